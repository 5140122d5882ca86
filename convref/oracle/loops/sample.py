"""Sampling as loops: every pair of an output and an element has one weight, found on its own."""

from fractions import Fraction
from itertools import product
from math import ceil, floor, isfinite, isinf
from typing import Any

import numpy as np

from ...ops import Problem
from .._passes import by_name
from ._zeros import Array, zeros


def _reflect(x: Any, low: Any, high: Any) -> tuple[Any, int]:
    """Return x reflected about both ends as often as it takes, and the sign of its direction."""
    if low == high or not isfinite(x):
        return 0 * low, 0
    turns = floor((x - low) / (2 * (high - low)))
    x = x - 2 * turns * (high - low)
    return (2 * high - x, -1) if x > high else (x, 1)


def _clip(x: Any, size: int, sign: int = 1) -> tuple[Any, int]:
    if not x > 0:
        return 0, 0
    return (size - 1, 0) if x >= size - 1 else (x, sign)


def _pad(x: Any, size: int, problem: Problem) -> tuple[Any, int]:
    if problem.padding_mode == "zeros":
        return x, 1
    if problem.padding_mode == "border":
        return _clip(x, size)
    half = (0 * x + 1) / 2
    low, high = (0, size - 1) if problem.align_corners else (-half, size - half)
    x, sign = _reflect(x, low, high)
    return _clip(x, size, sign)


def slope(t: Any) -> tuple[Any, Any, Any]:
    if -1 <= t < 0:
        return 1 + t, 1, 0
    return (1 - t, -1, 0) if 0 <= t < 1 else (0, 0, 0)


def _cubic(t: Any) -> tuple[Any, Any, Any]:
    s, sign = abs(t), 1 if t >= 0 else -1
    if s <= 1:
        return 1 - 9 * s**2 / 4 + 5 * s**3 / 4, sign * (15 * s**2 - 18 * s) / 4, (15 * s - 9) / 2
    if s < 2 or t == -2:
        value = 3 - 6 * s + 15 * s**2 / 4 - 3 * s**3 / 4
        return value, sign * (-24 + 30 * s - 9 * s**2) / 4, (15 - 9 * s) / 2
    return 0, 0, 0


def _round_half_even(x: Any) -> int:
    down = floor(x)
    if x - down == down + 1 - x:
        return down + down % 2
    return down if x - down < down + 1 - x else down + 1


def _axis(g: Any, size: int, problem: Problem) -> dict[int, list[Any]]:
    """Return, by element, its weight and the two derivatives by the coordinate g."""
    scale = size - 1 if problem.align_corners else size
    x = (g * scale + size - 1) / 2
    sign = 1
    if problem.mode != "bicubic":
        x, sign = _pad(x, size, problem)
    if isinf(x) or x != x:
        return {}
    found: dict[int, list[Any]] = {}
    for j in range(floor(x) - 2, floor(x) + 4):
        if problem.mode == "nearest":
            kernel = (int(j == _round_half_even(x)), 0, 0)
        else:
            kernel = (slope if problem.mode == "bilinear" else _cubic)(x - j)
        i = _pad(0 * x + j, size, problem)[0] if problem.mode == "bicubic" else j
        if 0 <= i < size and any(kernel):
            row = found.setdefault(int(i), [0, 0, 0])
            for order in range(3):
                row[order] += kernel[order] * (sign * scale) ** order / (0 * g + 2) ** order
    return found


def _weights(at: Array, problem: Problem) -> list[tuple[tuple[int, ...], Any]]:
    """Return, for one position, each element and a function of the orders that gives its weight."""
    axes = [_axis(g, size, problem) for g, size in zip(at[::-1], problem.input)]
    found = []
    for place in product(*axes):
        rows = [axis[i] for axis, i in zip(axes, place)]

        def weight(*by: int, rows: Any = tuple(rows)) -> Any:
            total = 1
            for a, row in enumerate(rows):
                total = total * row[by.count(a)]
            return total

        found.append((place, weight))
    return found


def _results(problem: Problem, x: Array, *roles: str) -> list[Array]:
    return [zeros(problem.shape(role), x) for role in roles]


def grid_sample_fprop(x: Array, grid: Array, problem: Problem) -> Array:
    (y,) = _results(problem, x, "y")
    for n, *p in np.ndindex(problem.n, *problem.output):
        for i, weight in _weights(grid[(n, *p)], problem):
            for c in range(problem.c):
                y[(n, c, *p)] += weight() * x[(n, c, *i)]
    return y


def grid_sample_backward(dy: Array, x: Array, grid: Array, problem: Problem) -> tuple[Array, Array]:
    dx, dgrid = _results(problem, x, "dx", "dgrid")
    for n, *p in np.ndindex(problem.n, *problem.output):
        for i, weight in _weights(grid[(n, *p)], problem):
            for c in range(problem.c):
                dx[(n, c, *i)] += weight() * dy[(n, c, *p)]
                for a in range(problem.rank):
                    dgrid[(n, *p, -1 - a)] += weight(a) * x[(n, c, *i)] * dy[(n, c, *p)]
    return dx, dgrid


def grid_sample_jvp(
    x: Array, grid: Array, x_dot: Array, grid_dot: Array, problem: Problem
) -> tuple[Array, Array]:
    y_dot = grid_sample_fprop(x_dot, grid, problem)
    for n, *p in np.ndindex(problem.n, *problem.output):
        for i, weight in _weights(grid[(n, *p)], problem):
            for c, a in product(range(problem.c), range(problem.rank)):
                y_dot[(n, c, *p)] += weight(a) * x[(n, c, *i)] * grid_dot[(n, *p, -1 - a)]
    return grid_sample_fprop(x, grid, problem), y_dot


def grid_sample_double_backward(
    ddx: Array, ddgrid: Array, dy: Array, x: Array, grid: Array, problem: Problem
) -> tuple[Array, Array, Array]:
    _, ddy = grid_sample_jvp(x, grid, ddx, ddgrid, problem)
    dx, dgrid = _results(problem, x, "dx", "dgrid")
    axes = range(problem.rank)
    for n, *p in np.ndindex(problem.n, *problem.output):
        for i, weight in _weights(grid[(n, *p)], problem):
            for c, b in product(range(problem.c), axes):
                dot, one = ddgrid[(n, *p, -1 - b)], dy[(n, c, *p)]
                dx[(n, c, *i)] += weight(b) * dot * one
                change = weight(b) * ddx[(n, c, *i)]
                for a in axes:
                    change += weight(a, b) * x[(n, c, *i)] * ddgrid[(n, *p, -1 - a)]
                dgrid[(n, *p, -1 - b)] += change * one
    return ddy, dx, dgrid


def _box_axis(low: Any, high: Any, size: int, out: int, problem: Problem) -> list[dict[int, Any]]:
    """Return, for each bin, the weight of each element that it reads on one axis."""
    if isinstance(low, int):  # in an array of objects
        low, high = Fraction(low), Fraction(high)
    zero = 0 * low
    scale = type(zero)(problem.spatial_scale)
    low, high = low * scale, high * scale
    if problem.aligned:
        low, high = low - (zero + 1) / 2, high - (zero + 1) / 2
    width = high - low
    if not problem.aligned and width < 1:
        width = zero + 1
    count = problem.sampling_ratio or max(0, ceil(width / out))
    found: list[dict[int, Any]] = []
    for p in range(out):
        weights: dict[int, Any] = {}
        for s in range(count):
            x = low + (p + (zero + 2 * s + 1) / (2 * count)) * width / out
            if not -1 <= x <= size:
                continue
            x = min(max(x, zero), zero + size - 1)
            for i in range(size):
                if abs(x - i) < 1:
                    weights[i] = weights.get(i, 0) + (1 - abs(x - i)) / count
        found.append(weights)
    return found


def _bins(boxes: Array, problem: Problem) -> Any:
    """Yield (box, image), an output, an element and its weight."""
    for k, (n, x1, y1, x2, y2) in enumerate(boxes):
        ends = ((y1, y2), (x1, x2))
        sizes = zip(ends, problem.input, problem.output)
        rows = [_box_axis(*end, size, out, problem) for end, size, out in sizes]
        for p in np.ndindex(*problem.output):
            for (i, v), (j, w) in product(*(row[q].items() for row, q in zip(rows, p))):
                yield (k, int(n)), p, (i, j), v * w


def roi_align_fprop(x: Array, boxes: Array, problem: Problem) -> Array:
    (y,) = _results(problem, x, "y")
    for (k, n), p, i, weight in _bins(boxes, problem):
        for c in range(problem.c):
            y[(k, c, *p)] += weight * x[(n, c, *i)]
    return y


def roi_align_backward(dy: Array, x: Array, boxes: Array, problem: Problem) -> Array:
    (dx,) = _results(problem, dy, "dx")
    for (k, n), p, i, weight in _bins(boxes, problem):
        for c in range(problem.c):
            dx[(n, c, *i)] += weight * dy[(k, c, *p)]
    return dx


FORMULAS = by_name(globals(), ("grid_sample", "roi_align"), masks=False)
