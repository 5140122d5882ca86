"""The verdict on a call, and the wording of its reason."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array
from .references import Exhibit


@dataclass(frozen=True)
class Verdict:
    """The verdict on one call.

    Parameters
    ----------
    kind : str
        "pass", "wrong" or "suspect"; of a program also "undecided" or "vacuous".
    tier : str
        "exact", "proven", "statistical", or "form" (shape, type or presence of a result).
    role : str
        The result at fault, else the last one judged.
    reason : str
        One sentence; empty for a pass.
    index : tuple of int
        Position of the first element at fault.
    got, want, error, bound : float
        That element, the reference there, their distance and its bound.
    faults, outputs : int
        Elements at fault, and elements judged.
    worst : float
        Largest error as a fraction of its bound, over the call.
    undecided : float
        Share of the elements that have no bound.
    """

    kind: str
    tier: str
    role: str = ""
    reason: str = ""
    index: tuple[int, ...] = ()
    got: Any = None
    want: Any = None
    error: float = 0.0
    bound: float = 0.0
    faults: int = 0
    outputs: int = 0
    worst: float = 0.0
    undecided: float = 0.0

    def __bool__(self) -> bool:
        return self.kind == "pass"


def first_index(wrong: Array) -> tuple[int, ...]:
    """Return the index of the first element at fault."""
    return tuple(int(j) for j in np.argwhere(wrong)[0])


def element(role: str, at: tuple[int, ...]) -> str:
    """Return the name of one element: "dx[0, 2, 1]", or "y" of a result without axes."""
    return f"{role}[{', '.join(map(str, at))}]" if at else role


def beyond_limit(
    kind: str, tier: str, it: Exhibit, error: Array, limit: Array, wrong: Array, worst: float
) -> Verdict:
    """Return the verdict on errors that exceed their limit where `wrong` is true."""
    at, faults = first_index(wrong), int(wrong.sum())
    reason = (
        f"{element(it.role, at)} is {it.got[at]}, needs {it.value[at]}; error "
        f"{float(error[at]):.3g}, bound {float(limit[at]):.3g} "
        f"({faults} of {it.got.size} elements)"
    )
    return Verdict(
        kind,
        tier,
        it.role,
        reason,
        index=at,
        got=it.got[at],
        want=it.value[at],
        error=float(error[at]),
        bound=float(limit[at]),
        faults=faults,
        outputs=it.got.size,
        worst=worst,
    )
