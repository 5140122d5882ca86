"""Pooling as loops: one generator lists the positions of each window."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import Any

import numpy as np

from ...ops import GROUPS, AdaptivePoolProblem, AvgPoolProblem, Problem
from .._passes import by_name
from ._zeros import Array, zeros

Index = tuple[int, ...]


def windows(problem: Problem) -> Iterator[tuple[Index, list[Index]]]:
    """Yield (index in y, indices in x that the window reads, in order)."""
    for n in range(problem.n):
        for c in range(problem.c):
            for p in product(*map(range, problem.output)):
                positions = product(*(_positions(problem, axis, at) for axis, at in enumerate(p)))
                yield (n, c, *p), [(n, c, *i) for i in positions]


def _positions(problem: Problem, axis: int, p: int) -> list[int]:
    size = problem.input[axis]
    if isinstance(problem, AdaptivePoolProblem):
        share = Fraction(size, problem.output[axis])
        return list(range(floor(p * share), ceil((p + 1) * share)))
    hi = problem.padding[axis][1]
    return [i for i in _taps(problem, axis, p) if 0 <= i < size + min(hi, 0)]


def _taps(problem: Problem, axis: int, p: int) -> list[int]:
    """Return the positions of all taps of window p that are on the input or its padding."""
    (lo, hi), reads = problem.padding[axis], range(problem.filter[axis])
    end = problem.input[axis] + hi
    found = [p * problem.stride[axis] + r * problem.dilation[axis] - lo for r in reads]
    return [i for i in found if -lo <= i < end]


def divisor(problem: Problem, at: Index) -> int:
    """Return the divisor of the window at (n, c, *p)."""
    if isinstance(problem, AvgPoolProblem) and problem.divisor:
        return problem.divisor
    count = 1
    for axis, p in enumerate(at[2:]):
        padded = isinstance(problem, AvgPoolProblem) and problem.include_pad
        count *= len(_taps(problem, axis, p) if padded else _positions(problem, axis, p))
    return count


def _flat(problem: Problem, at: Index) -> int:
    flat = 0
    for size, i in zip(problem.input, at[2:]):
        flat = flat * size + i
    return flat


def max_pool_fprop(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return (y, indices): the last NaN of a window, else its first maximum."""
    empty = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    y = np.full(problem.shape("y"), empty, x.dtype)
    indices = np.full(problem.shape("y"), -1, np.int64)
    for at, read in windows(problem):
        best = None
        for i in read:
            if best is None or x[i] != x[i] or x[i] > x[best]:
                best = i
        if best is not None:
            y[at], indices[at] = x[best], _flat(problem, best)
    return y, indices


def max_pool_backward(dy: Array, x: Array, indices: Array, problem: Problem) -> Array:
    dx = zeros(problem.shape("x"), dy)
    for at in np.ndindex(indices.shape):
        if indices[at] >= 0:
            dx[at[:2]].reshape(-1)[indices[at]] += dy[at]
    return dx


def max_pool_jvp(x: Array, x_dot: Array, problem: Problem) -> tuple[Array, Array]:
    """Return (y, y_dot), the tangent at each index."""
    y, indices = max_pool_fprop(x, problem)
    return y, max_pool_double_backward(x_dot, x, indices, problem)


def max_pool_double_backward(ddx: Array, x: Array, indices: Array, problem: Problem) -> Array:
    ddy = zeros(indices.shape, ddx)
    for at in np.ndindex(indices.shape):
        if indices[at] >= 0:
            ddy[at] = ddx[at[:2]].ravel()[indices[at]]
    return ddy


def _quotient(total: Any, divisor: int) -> Any:
    if isinstance(total, np.integer):
        return (1 if (total < 0) == (divisor < 0) else -1) * (abs(total) // abs(divisor))
    return total * Fraction(1, divisor) if isinstance(total, Fraction) else total / divisor


def avg_pool_fprop(x: Array, problem: Problem) -> Array:
    y = zeros(problem.shape("y"), x)
    for at, read in windows(problem):
        for i in read:
            y[at] += x[i]
        if read:
            y[at] = _quotient(y[at], divisor(problem, at))
    return y


def avg_pool_backward(dy: Array, problem: Problem) -> Array:
    dx = zeros(problem.shape("x"), dy)
    for at, read in windows(problem):
        for i in read:
            dx[i] += _quotient(dy[at], divisor(problem, at))
    return dx


def lp_pool_fprop(x: Array, problem: Problem) -> Array:
    y = zeros(problem.shape("y"), x)
    for at, read in windows(problem):
        for i in read:
            y[at] += abs(x[i]) ** problem.norm if problem.norm != 1 else abs(x[i])
        y[at] = y[at] ** (1 / problem.norm) if problem.norm != 1 else y[at]
    return y


def _derivative(x: Any, y: Any, norm: float) -> Any:
    sign = int(x > 0) - int(x < 0) if x == x else x
    return sign if norm == 1 or not y else sign * (abs(x) / y) ** (norm - 1)


def lp_pool_jvp(x: Array, x_dot: Array, problem: Problem) -> tuple[Array, Array]:
    y, y_dot = lp_pool_fprop(x, problem), zeros(problem.shape("y"), x)
    for at, read in windows(problem):
        for i in read:
            y_dot[at] += _derivative(x[i], y[at], problem.norm) * x_dot[i]
    return y, y_dot


def lp_pool_backward(dy: Array, x: Array, problem: Problem) -> Array:
    y, dx = lp_pool_fprop(x, problem), zeros(x.shape, dy)
    for at, read in windows(problem):
        for i in read:
            dx[i] += _derivative(x[i], y[at], problem.norm) * dy[at]
    return dx


def lp_pool_double_backward(
    ddx: Array, dy: Array, x: Array, problem: Problem
) -> tuple[Array, Array]:
    """Return (ddy, dx), dx from the Hessian of each window entry by entry."""
    y, dx, p = lp_pool_fprop(x, problem), zeros(x.shape, dy), problem.norm
    for at, read in windows(problem):
        if not y[at] or p == 1:
            continue
        for i in read:
            for j in read:
                entry = -_derivative(x[i], y[at], p) * _derivative(x[j], y[at], p)
                if i == j and (x[i] or p == 2):
                    entry += (abs(x[i]) / y[at]) ** (p - 2)
                dx[i] += dy[at] * (p - 1) / y[at] * entry * ddx[j]
    return lp_pool_jvp(x, ddx, problem)[1], dx


def _last_writers(indices: Array) -> dict[tuple[int, ...], Index]:
    """Return the index in x of the last element that is written to each position of y."""
    return {(*at[:2], int(indices[at])): at for at in np.ndindex(indices.shape) if indices[at] >= 0}


def max_unpool_fprop(x: Array, indices: Array, problem: Problem) -> Array:
    y = zeros(problem.shape("y"), x)
    for place, at in _last_writers(indices).items():
        y[place[:2]].reshape(-1)[place[2]] = x[at]
    return y


def max_unpool_backward(dy: Array, indices: Array, problem: Problem) -> Array:
    dx = zeros(problem.shape("x"), dy)
    for place, at in _last_writers(indices).items():
        dx[at] = dy[place[:2]].reshape(-1)[place[2]]
    return dx


FORMULAS = by_name(
    globals(),
    GROUPS["pool"],
    masks=False,
    like={f"adaptive_{op}": op for op in ("max_pool", "avg_pool")},
)
