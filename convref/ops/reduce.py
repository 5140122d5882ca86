"""Reductions over axes, and sums that run along one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import ClassVar

from ..errors import invalid
from .base import INEXACT, Field, Problem
from .sizes import SPATIAL, Sizes
from .softmax import SoftmaxProblem
from .spec import OpSpec, linear

# The axes of an image that a reduction may be over, by their letters.
OVER = tuple("".join(axes) for count in (1, 2, 3) for axes in combinations("dhw", count))


@dataclass(frozen=True, kw_only=True)
class SumProblem(Problem):
    """The sum over some of the spatial axes, which have extent 1 in the result.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    over : str
        The letters of the axes: some of "dhw", as many of these as the image has, from the end.

    Examples
    --------
    >>> SumProblem(n=1, c=2, input=(3, 4), over="h").shape("y")
    (1, 2, 1, 4)
    """

    name: ClassVar[str] = "sum"
    KEYS: ClassVar[dict[str, Field]] = {"over": Field("over", "word", words=OVER)}

    over: str = "w"

    def _validate(self, where: str, rank: int) -> None:
        if unknown := set(self.over) - set(SPATIAL[rank]):
            known = ", ".join(SPATIAL[rank])
            raise invalid(where, f"over has {''.join(sorted(unknown))}, needs some of {known}")

    @cached_property
    def axes(self) -> Sizes:
        """Return the axes of the array that are summed over."""
        return tuple(2 + SPATIAL[self.rank].index(letter) for letter in self.over)

    @property
    def output(self) -> Sizes:
        """Return the spatial sizes of the result."""
        return tuple(1 if 2 + a in self.axes else size for a, size in enumerate(self.input))

    @property
    def count(self) -> int:
        """Return how many elements a sum has."""
        return prod(self.input[axis - 2] for axis in self.axes)

    def products(self, role: str) -> int:
        return self.count if role.startswith(("y", "ddy")) else 1


class MeanProblem(SumProblem):
    """The mean over some of the spatial axes.

    Examples
    --------
    >>> MeanProblem(n=1, c=2, input=(3, 4), over="hw").count
    12
    """

    name: ClassVar[str] = "mean"
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1),)
    REFUSES: ClassVar[dict[str, str]] = {code: INEXACT[code] for code in "iu"}

    def is_exact(self, code: str) -> bool:
        return self.count & (self.count - 1) == 0

    def products(self, role: str) -> int:
        return super().products(role) + 1


class CumsumProblem(SoftmaxProblem):
    """Sums of the elements up to each one along one axis.

    Examples
    --------
    >>> CumsumProblem(n=1, c=2, input=(3,), dim=2).products("y")
    3
    """

    name: ClassVar[str] = "cumsum"
    REFUSES: ClassVar[dict[str, str]] = {}

    def products(self, role: str) -> int:
        return self.count


OPS = {
    "sum": OpSpec(SumProblem, linear()),
    # Shares of subnormal numbers may all be 0.
    "mean": OpSpec(MeanProblem, linear(), unsuitable_fills=("subnormal",)),
    "cumsum": OpSpec(CumsumProblem, linear()),
}
