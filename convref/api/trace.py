"""Trace the calls of a public function, and where their results go, without computing.

A `Trace` is passed in place of the name of a backend. The function checks its arguments and shapes
its results as usual; only the values are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import oracle
from ..arrays import Array, like, to_numpy
from ..dtypes import numpy_dtype
from ..ops import Sizes

if TYPE_CHECKING:
    from .run import Prepared


class Mark(np.ndarray[Any, Any]):
    """A placeholder of zeros for a result; its views, of any shape, record which result it is."""

    place: tuple[int, str] = (0, "")  # which call of the trace, and the role

    def __array_finalize__(self, parent: Any) -> None:
        """Copy the place of the array that this one is a view of."""
        self.place = getattr(parent, "place", self.place)


@dataclass(frozen=True)
class Traced:
    """One call, with the operands as the formulas have them."""

    prepared: Prepared
    operands: tuple[Any, ...]

    @cached_property
    def inputs(self) -> tuple[Array | None, ...]:
        """Return the operands as NumPy arrays."""
        return tuple(None if a is None else to_numpy(a) for a in self.operands)

    def mark(self, number: int, role: str) -> Mark | None:
        """Return the placeholder of the result in `role`, in the user's shape, without memory."""
        call = self.prepared.call
        if role not in call.wanted:
            return None
        zero = np.zeros((), numpy_dtype(call.dtype_of(role)))
        mark = np.broadcast_to(zero, call.problem.shape(role)).view(Mark)
        mark.place = number, role
        return self.prepared.result(role, mark)

    def formula(self, role: str, result: Any) -> Any:
        """Return a user's result, of any shape, in the shape and axis order of the formulas."""
        seen = self.mark(0, role)
        assert seen is not None
        return self.prepared.operand(role, result.reshape(seen.shape))

    def place(self, role: str, shape: Sizes, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index in the user's array of `shape` of the formulas' element at `index`."""
        numbered = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        found = np.unravel_index(int(self.formula(role, numbered)[index]), shape)
        return tuple(map(int, found))


class Oracle:
    """Computes operands of traced calls with the oracle, for any kind of array and device."""

    def take(self, prepared: Prepared, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the results of the oracle, in the user's form."""
        call, template = prepared.call, next(a for a in operands if a is not None)
        found = oracle.evaluate(call, *Traced(prepared, operands).inputs)
        return tuple(
            None if a is None else prepared.result(role, like(a, template))
            for role, a in zip(call.signature.results, found)
        )


@dataclass
class Trace:
    """Records the calls; `needed` computes results that later calls take as operands."""

    calls: list[Traced] = field(default_factory=list)
    needed: Oracle = field(default_factory=Oracle)

    def take(self, prepared: Prepared, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Record a call; return a Mark, or None, for each of its results."""
        traced = Traced(prepared, operands)
        self.calls.append(traced)
        number = len(self.calls) - 1
        return tuple(traced.mark(number, role) for role in prepared.call.signature.results)


def needed(backend: Any) -> Any:
    """Return the backend that computes omitted operands: the oracle if calls are traced."""
    return backend.needed if isinstance(backend, Trace) else backend
