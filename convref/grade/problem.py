"""What a format gives to the grader: references, arguments and how a solution is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from .sizes import Sizes


@dataclass(frozen=True)
class Trial:
    """A reference at some sizes, with arguments of which the values may be changed.

    Parameters
    ----------
    reference : callable
        Takes inputs and named: a list, and a dict of parameters or keyword arguments.
    inputs, named
        Arguments as the problem draws them.
    request : dict
        What the process of the solution needs besides: {"init", "seed"} of a module.
    """

    reference: Callable[[list[Any], dict[str, Any]], Any]
    inputs: list[Any]
    named: dict[str, Any]
    request: dict[str, Any] = field(default_factory=dict)


class Problem(Protocol):
    """A problem of a benchmark."""

    name: str
    entry: str  # of a solution: the function or class in its file
    tolerance: float  # of the own rule of the benchmark, relative and absolute

    def sizes(self) -> Iterator[Sizes]:
        """Yield the sizes to grade at; {} are those of the problem."""

    def trial(self, sizes: Sizes, seed: int) -> Trial:
        """Return the problem at these sizes."""
