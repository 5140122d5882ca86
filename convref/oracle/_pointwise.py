"""Activations as functions of one element with their derivatives."""

from collections.abc import Callable
from typing import NamedTuple

from ..ops import Problem
from ._windows import Array

Function = Callable[[Array, Problem], Array]


class Pointwise(NamedTuple):
    """A function of one element."""

    # f, f' and f'' of an array x and the problem. Without f'' it is zero and has no result.
    value: Function
    derivative: Function | None = None
    second_derivative: Function | None = None
    # f'(x) v of x, v and the problem, where it is not the product
    directional: Callable[[Array, Array, Problem], Array] | None = None
    # S of f, f' and f'', the scale of their rounding errors (docs/judge.md); it follows
    # the ways in which libraries compute the function. Without, S is the absolute value.
    magnitudes: Callable[[Array, Problem], tuple[Array, ...]] | None = None

    def times_derivative(self, x: Array, v: Array, problem: Problem) -> Array:
        """Return f'(x) v."""
        if self.directional is not None:
            return self.directional(x, v, problem)
        assert self.derivative is not None
        return self.derivative(x, problem) * v
