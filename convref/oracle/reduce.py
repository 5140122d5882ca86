"""Reductions over axes, and sums that run along one."""

import numpy as np

from ..ops import Problem
from ._passes import by_name
from ._windows import Array


def sum_fprop(x: Array, problem: Problem) -> Array:
    """Return the sum over the axes (RD.1), which keep extent 1.

    Examples
    --------
    >>> from convref.ops import SumProblem
    >>> sum_fprop(np.array([[[1, 2, 3]]]), SumProblem(n=1, c=1, input=(3,)))
    array([[[6]]])
    """
    return x.sum(axis=problem.axes, keepdims=True)


def sum_backward(dy: Array, problem: Problem) -> Array:
    """Return dx: every term of a sum has its cotangent."""
    return np.broadcast_to(dy, problem.shape("x")).copy()


def mean_fprop(x: Array, problem: Problem) -> Array:
    """Return the sum over the axes, over the number of its terms (RD.2)."""
    return sum_fprop(x, problem) / x.dtype.type(problem.count)


def mean_backward(dy: Array, problem: Problem) -> Array:
    """Return dx: every term of a mean has an equal share of its cotangent."""
    return sum_backward(dy / dy.dtype.type(problem.count), problem)


def cumsum_fprop(x: Array, problem: Problem) -> Array:
    """Return y_i = x_0 + ... + x_i along the axis (RD.3).

    Examples
    --------
    >>> from convref.ops import CumsumProblem
    >>> cumsum_fprop(np.array([[[1, 2, 3]]]), CumsumProblem(n=1, c=1, input=(3,), dim=2))
    array([[[1, 3, 6]]])
    """
    return np.add.accumulate(x, axis=problem.dim)


def cumsum_backward(dy: Array, problem: Problem) -> Array:
    """Return dx_i = dy_i + ... + dy_last (RD.4): x_i is a term of y_i and of all after it."""
    return np.flip(cumsum_fprop(np.flip(dy, problem.dim), problem), problem.dim).copy()


FORMULAS = by_name(globals(), ("sum", "mean", "cumsum"), masks=True)
