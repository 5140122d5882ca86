"""Pooling as loops: one generator lists what each window reads, each pass walks over it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops import AdaptivePoolProblem, Problem
from ._zeros import Array, zeros

if TYPE_CHECKING:
    from ...case import Call

Index = tuple[int, ...]


def windows(problem: Problem) -> Iterator[tuple[Index, list[Index], int]]:
    """Yield (index in y, indices in x that the window reads, in order, divisor of its mean)."""
    for n in range(problem.n):
        for c in range(problem.c):
            for p in product(*map(range, problem.output)):
                sides = [_side(problem, axis, at) for axis, at in enumerate(p)]
                divisor = 1
                for _, count in sides:
                    divisor *= count
                positions = product(*(found for found, _ in sides))
                read = [(n, c, *i) for i in positions]
                yield (n, c, *p), read, getattr(problem, "divisor", 0) or divisor


def _side(problem: Problem, axis: int, p: int) -> tuple[list[int], int]:
    """Return the positions that window p reads along one axis, and how many its mean counts."""
    size = problem.input[axis]
    if isinstance(problem, AdaptivePoolProblem):
        share = Fraction(size, problem.output[axis])
        found = list(range(floor(p * share), ceil((p + 1) * share)))
        return found, len(found)
    lo, hi = problem.padding[axis]
    found, count = [], 0
    for r in range(problem.filter[axis]):
        i = p * problem.stride[axis] + r * problem.dilation[axis] - lo
        real = 0 <= i < size and -lo <= i < size + hi
        if real:
            found.append(i)
        if real or (getattr(problem, "include_pad", False) and -lo <= i < size + hi):
            count += 1
    return found, count


def _flat(problem: Problem, at: Index) -> int:
    flat = 0
    for size, i in zip(problem.input, at[2:]):
        flat = flat * size + i
    return flat


def maxima(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return (y, indices): the last NaN of a window, else its first maximum."""
    empty = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    y = np.full(problem.shape("y"), empty, x.dtype)
    indices = np.full(problem.shape("y"), -1, np.int64)
    for at, read, _ in windows(problem):
        best = None
        for i in read:
            if best is None or x[i] != x[i] or x[i] > x[best]:
                best = i
        if best is not None:
            y[at], indices[at] = x[best], _flat(problem, best)
    return y, indices


def picked(x: Array, indices: Array, problem: Problem) -> Array:
    """Return x at each index, one by one."""
    y = zeros(indices.shape, x)
    for at in np.ndindex(indices.shape):
        if indices[at] >= 0:
            y[at] = x[at[:2]].ravel()[indices[at]]
    return y


def placed(dy: Array, indices: Array, problem: Problem) -> Array:
    """Return dx, one cotangent added at a time."""
    dx = zeros(problem.shape("x"), dy)
    for at in np.ndindex(indices.shape):
        if indices[at] >= 0:
            dx[at[:2]].reshape(-1)[indices[at]] += dy[at]
    return dx


def _quotient(total: Any, divisor: int) -> Any:
    if isinstance(total, np.integer):
        return (1 if (total < 0) == (divisor < 0) else -1) * (abs(total) // abs(divisor))
    return total * Fraction(1, divisor) if isinstance(total, Fraction) else total / divisor


def averages(x: Array, problem: Problem) -> Array:
    """Return y, one element added at a time."""
    y = zeros(problem.shape("y"), x)
    for at, read, divisor in windows(problem):
        for i in read:
            y[at] += x[i]
        if read:
            y[at] = _quotient(y[at], divisor)
    return y


def averages_adjoint(dy: Array, problem: Problem) -> Array:
    """Return dx, one share added at a time."""
    dx = zeros(problem.shape("x"), dy)
    for at, read, divisor in windows(problem):
        for i in read:
            dx[i] += _quotient(dy[at], divisor)
    return dx


def norms(x: Array, problem: Problem) -> Array:
    """Return y, one power added at a time."""
    y = zeros(problem.shape("y"), x)
    for at, read, _ in windows(problem):
        for i in read:
            y[at] += abs(x[i]) ** problem.norm if problem.norm != 1 else abs(x[i])
        y[at] = y[at] ** (1 / problem.norm) if problem.norm != 1 else y[at]
    return y


def _slope(x: Any, y: Any, norm: float) -> Any:
    """Return dy/dx of one element of a window."""
    sign = int(x > 0) - int(x < 0) if x == x else x
    return sign if norm == 1 or not y else sign * (abs(x) / y) ** (norm - 1)


def norms_jvp(x: Array, x_dot: Array, problem: Problem) -> Array:
    """Return y_dot, one slope at a time."""
    y, y_dot = norms(x, problem), zeros(problem.shape("y"), x)
    for at, read, _ in windows(problem):
        for i in read:
            y_dot[at] += _slope(x[i], y[at], problem.norm) * x_dot[i]
    return y_dot


def norms_adjoint(dy: Array, x: Array, problem: Problem) -> Array:
    """Return dx, one slope at a time."""
    y, dx = norms(x, problem), zeros(x.shape, dy)
    for at, read, _ in windows(problem):
        for i in read:
            dx[i] += _slope(x[i], y[at], problem.norm) * dy[at]
    return dx


def norms_second(ddx: Array, dy: Array, x: Array, problem: Problem) -> Array:
    """Return dx of double backward, from the Hessian of each window entry by entry."""
    y, dx, p = norms(x, problem), zeros(x.shape, dy), problem.norm
    for at, read, _ in windows(problem):
        if not y[at] or p == 1:
            continue
        for i in read:
            for j in read:
                entry = -_slope(x[i], y[at], p) * _slope(x[j], y[at], p)
                if i == j and (x[i] or p == 2):
                    entry += (abs(x[i]) / y[at]) ** (p - 2)
                dx[i] += dy[at] * (p - 1) / y[at] * entry * ddx[j]
    return dx


def _landings(indices: Array) -> dict[tuple[int, ...], Index]:
    """Return which element of x stays at each place of y: the last that goes there."""
    return {(*at[:2], int(indices[at])): at for at in np.ndindex(indices.shape) if indices[at] >= 0}


def unpooled(x: Array, indices: Array, problem: Problem) -> Array:
    """Return y, one element put down at a time."""
    y = zeros(problem.shape("y"), x)
    for place, at in _landings(indices).items():
        y[place[:2]].reshape(-1)[place[2]] = x[at]
    return y


def unpooled_adjoint(dy: Array, indices: Array, problem: Problem) -> Array:
    """Return dx, one element picked up at a time."""
    dx = zeros(problem.shape("x"), dy)
    for place, at in _landings(indices).items():
        dx[at] = dy[place[:2]].reshape(-1)[place[2]]
    return dx


def _max_fprop(call: Call, x: Array) -> tuple[Any, ...]:
    return maxima(x, call.problem)


def _max_backward(call: Call, dy: Array, x: Array, indices: Array) -> tuple[Any, ...]:
    return (placed(dy, indices, call.problem),)


def _max_jvp(call: Call, x: Array, x_dot: Array) -> tuple[Any, ...]:
    y, indices = maxima(x, call.problem)
    return y, picked(x_dot, indices, call.problem)


def _max_double_backward(call: Call, ddx: Array, x: Array, indices: Array) -> tuple[Any, ...]:
    return (picked(ddx, indices, call.problem),)


def _avg(call: Call, x: Array) -> tuple[Any, ...]:
    return (averages(x, call.problem),)


def _avg_backward(call: Call, dy: Array) -> tuple[Any, ...]:
    return (averages_adjoint(dy, call.problem),)


def _lp_fprop(call: Call, x: Array) -> tuple[Any, ...]:
    return (norms(x, call.problem),)


def _lp_backward(call: Call, dy: Array, x: Array) -> tuple[Any, ...]:
    return (norms_adjoint(dy, x, call.problem),)


def _lp_jvp(call: Call, x: Array, x_dot: Array) -> tuple[Any, ...]:
    return norms(x, call.problem), norms_jvp(x, x_dot, call.problem)


def _lp_double_backward(call: Call, ddx: Array, dy: Array, x: Array) -> tuple[Any, ...]:
    ddy = norms_jvp(x, ddx, call.problem) if call.mask[0] else None
    return ddy, norms_second(ddx, dy, x, call.problem) if call.mask[1] else None


def _unpool(call: Call, x: Array, indices: Array) -> tuple[Any, ...]:
    return (unpooled(x, indices, call.problem),)


def _unpool_backward(call: Call, dy: Array, indices: Array) -> tuple[Any, ...]:
    return (unpooled_adjoint(dy, indices, call.problem),)


_MAX = (_max_fprop, _max_backward, _max_jvp, _max_double_backward)
_AVG = (_avg, _avg_backward, _avg, _avg)
_PASSES = ("fprop", "backward", "jvp", "double_backward")
_OPS: dict[str, tuple[Any, ...]] = {
    "max_pool": _MAX,
    "adaptive_max_pool": _MAX,
    "avg_pool": _AVG,
    "adaptive_avg_pool": _AVG,
    "lp_pool": (_lp_fprop, _lp_backward, _lp_jvp, _lp_double_backward),
    "max_unpool": (_unpool, _unpool_backward, _unpool, _unpool),
}
FORMULAS = {(op, name): run for op, rows in _OPS.items() for name, run in zip(_PASSES, rows)}
