"""Reductions and running sums as loops: each pair of an element and a sum that it is a term of."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ...ops import Problem
from .._passes import by_name
from ._zeros import Array, zeros

Index = tuple[int, ...]


def _reduced(problem: Problem) -> Iterator[tuple[Index, Index]]:
    """Yield the place of each element of x, and that of its sum in y."""
    letters = problem.letters("x")
    for at in np.ndindex(problem.shape("x")):
        yield at, tuple(0 if a in problem.over else i for a, i in zip(letters, at))


def _prefix_sums(problem: Problem) -> Iterator[tuple[Index, Index]]:
    """Yield the place of each element of x, and that of each sum in y that it is a term of."""
    dim, shape = problem.dim, problem.shape("x")
    for at in np.ndindex(shape):
        for i in range(at[dim], shape[dim]):
            yield at, (*at[:dim], i, *at[dim + 1 :])


def _added(a: Array, pairs: Iterator[tuple[Index, Index]], shape: Index, back: bool) -> Array:
    found = zeros(shape, a)
    for at_x, at_y in pairs:
        to, of = (at_x, at_y) if back else (at_y, at_x)
        found[to] += a[of]
    return found


def _term_count(a: Array, problem: Problem) -> Any:
    """Return the number of terms of a mean, in the number type of an array."""
    return Fraction(problem.count) if a.dtype == object else a.dtype.type(problem.count)


def sum_fprop(x: Array, problem: Problem) -> Array:
    return _added(x, _reduced(problem), problem.shape("y"), back=False)


def sum_backward(dy: Array, problem: Problem) -> Array:
    return _added(dy, _reduced(problem), problem.shape("x"), back=True)


def mean_fprop(x: Array, problem: Problem) -> Array:
    return sum_fprop(x, problem) / _term_count(x, problem)


def mean_backward(dy: Array, problem: Problem) -> Array:
    return sum_backward(dy, problem) / _term_count(dy, problem)


def cumsum_fprop(x: Array, problem: Problem) -> Array:
    return _added(x, _prefix_sums(problem), x.shape, back=False)


def cumsum_backward(dy: Array, problem: Problem) -> Array:
    return _added(dy, _prefix_sums(problem), dy.shape, back=True)


FORMULAS = by_name(globals(), ("sum", "mean", "cumsum"), masks=True)
