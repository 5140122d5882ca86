"""Resizing as loops: each pair of an output and an input has one weight, computed independently."""

from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import Any

import numpy as np

from ...errors import invalid
from ...ops import Problem
from .._passes import by_name
from ._zeros import Array, zeros

HALF = Fraction(1, 2)


def centre(problem: Problem, axis: int, p: int) -> Fraction:
    """Return the coordinate that output p samples along one axis."""
    size, out = problem.input[axis], problem.output[axis]
    step = 1 / Fraction(problem.scale[axis]) if problem.scale else Fraction(size, out)
    coord = problem.coord
    if coord == "asymmetric":
        return p * step
    if coord == "align_corners":
        return Fraction(p * (size - 1), out - 1) if out > 1 else Fraction(0)
    if coord == "tf_crop_and_resize":
        start, stop = map(Fraction, problem.roi[axis] if problem.roi else (0, 1))
        if out == 1:
            return (start + stop) / 2 * (size - 1)
        return start * (size - 1) + p * (stop - start) * (size - 1) / (out - 1)
    if coord == "pytorch_half_pixel" and out == 1:
        return Fraction(0)
    x = (2 * p + 1) * step / 2 - HALF
    if coord == "half_pixel_symmetric":
        x += Fraction(size, 2) - out * step / 2
    return x


def rounded(problem: Problem, axis: int, p: int) -> int:
    """Return the position that mode nearest copies."""
    x = centre(problem, axis, p)
    down = floor(x)
    if problem.near == "float32":
        single = np.float32
        if problem.scale:
            step = single(1.0 / problem.scale[axis])
        else:
            step = single(problem.input[axis]) / single(problem.output[axis])
        if problem.coord == "asymmetric":
            return floor(single(p) * step)
        return floor(single(p + 0.5) * step)
    if problem.near == "floor":
        return down
    if problem.near == "ceil":
        return ceil(x)
    if x - down == HALF:
        return down + (problem.near == "round_prefer_ceil")
    return down if x - down < HALF else down + 1


def _cubic(t: Fraction, a: Fraction) -> Fraction:
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else Fraction(0)


def _bell(problem: Problem, distance: Fraction) -> Fraction:
    t = abs(distance)
    if problem.mode == "cubic":
        return _cubic(t, Fraction(problem.a))
    return 1 - t if t < 1 else Fraction(0)


def _is_beyond(problem: Problem, axis: int, p: int) -> bool:
    inside = 0 <= centre(problem, axis, p) <= problem.input[axis] - 1
    return problem.coord == "tf_crop_and_resize" and not inside


def weight(problem: Problem, axis: int, p: int, i: int) -> Fraction:
    """Return the weight of input i in output p along one axis."""
    size, out = problem.input[axis], problem.output[axis]
    if problem.mode == "area":
        first, end = floor(Fraction(p * size, out)), ceil(Fraction((p + 1) * size, out))
        return Fraction(1, end - first) if first <= i < end else Fraction(0)
    if _is_beyond(problem, axis, p):
        return Fraction(0)
    x = centre(problem, axis, p)
    if problem.mode == "nearest":
        return Fraction(int(i == max(0, min(size - 1, rounded(problem, axis, p)))))
    step = Fraction(1)
    if problem.antialias:
        apart = centre(problem, axis, 1) - centre(problem, axis, 0) if out > 1 else None
        if apart is None:
            apart = 1 / Fraction(problem.scale[axis]) if problem.scale else Fraction(size)
        step = max(step, abs(apart))
    reach = ceil(3 * step) + 1
    mine = total = Fraction(0)
    for j in range(floor(x) - reach, ceil(x) + reach + 1):
        if problem.exclude and not 0 <= j < size:
            continue
        share = _bell(problem, (j - x) / step)
        total += share
        if max(0, min(size - 1, j)) == i:
            mine += share
    if not (problem.antialias or problem.exclude):
        return mine
    return mine / total if total else Fraction(0)


def _product(problem: Problem, share: Fraction, value: Any) -> Any:
    """Return share * value, the share first rounded unless the value is a Fraction."""
    if problem.mode == "nearest":
        return value
    if not isinstance(value, np.inexact):
        return share * value
    near = float(share)
    if isinstance(value, (np.longdouble, np.clongdouble)):
        return (np.longdouble(near) + np.longdouble(float(share - Fraction(near)))) * value
    return near * value


def _weighted_sums(x: Array, problem: Problem, adjoint: bool = False) -> Array:
    result = zeros(problem.shape("x" if adjoint else "y"), x)
    space = [
        [[weight(problem, a, p, i) for i in range(size)] for p in range(out)]
        for a, (size, out) in enumerate(zip(problem.input, problem.output))
    ]
    for p in product(*map(range, problem.output)):
        for i in product(*map(range, problem.input)):
            share = Fraction(1)
            for a in range(problem.rank):
                share *= space[a][p[a]][i[a]]
            if not share:
                continue
            for n, c in product(range(problem.n), range(problem.c)):
                to, by = ((n, c, *i), (n, c, *p)) if adjoint else ((n, c, *p), (n, c, *i))
                result[to] += _product(problem, share, x[by])
    return result


def _bytes_along(x: Array, problem: Problem, axis: int) -> Array:
    """Return integers from 0 to 255: sums along one axis with weights of at most 16 bits."""
    inputs, outputs = range(problem.input[axis]), range(problem.output[axis])
    shares = [[weight(problem, axis, p, i) for i in inputs] for p in outputs]
    largest = max(abs(share) for row in shares for share in row)
    units = [2**b for b in range(23) if largest * 2**b + HALF < 2**15]
    if not units:
        what = f"uint8 has a weight of {float(largest):g}, needs less than 2**15"
        raise invalid("resize", what)
    unit = units[-1]
    y = zeros((*x.shape[: axis + 2], len(outputs), *x.shape[axis + 3 :]), x)
    for at in np.ndindex(y.shape):
        p, total = at[axis + 2], 0
        for i, share in enumerate(shares[p]):
            size = floor(abs(share) * unit + HALF)
            total += (size if share > 0 else -size) * int(x[(*at[: axis + 2], i, *at[axis + 3 :])])
        y[at] = min(255, max(0, floor(Fraction(total, unit) + HALF)))
    return y


def _rounded_sums(x: Array, problem: Problem) -> Array:
    for axis in reversed(range(problem.rank)):
        x = _bytes_along(x, problem, axis)
    return x


def resize_fprop(x: Array, problem: Problem) -> Array:
    whole = x.dtype.kind in "iu" and problem.mode != "nearest"
    y = _rounded_sums(x, problem) if whole else _weighted_sums(x, problem)
    value = problem.extrapolation
    for at in np.ndindex(y.shape if value and problem.mode != "area" else 0):
        if any(_is_beyond(problem, axis, p) for axis, p in enumerate(at[2:])):
            y[at] = Fraction(value) if x.dtype == object else value
    return y


def resize_backward(dy: Array, problem: Problem) -> Array:
    return _weighted_sums(dy, problem, adjoint=True)


def _channel(problem: Problem, c: int, i: int, j: int, count: int) -> int:
    """Return the channel that holds row i and column j of the blocks of channel c of `count`."""
    r = problem.factor
    return (i * r + j) * count + c if problem.mode == "DCR" else (c * r + i) * r + j


def shuffled(x: Array, problem: Problem) -> Array:
    """Return y: each of its elements reads one of x."""
    (n, deep, h, w), r = x.shape, problem.factor
    y = zeros((n, deep // r**2, h * r, w * r), x)
    for m, k, p, q in np.ndindex(y.shape):
        y[m, k, p, q] = x[m, _channel(problem, k, p % r, q % r, y.shape[1]), p // r, q // r]
    return y


def unshuffled(y: Array, problem: Problem) -> Array:
    """Return x: each of its elements reads one of y."""
    (n, c, p, q), r = y.shape, problem.factor
    x = zeros((n, c * r**2, p // r, q // r), y)
    for m, k, h, w, i, j in np.ndindex(n, c, p // r, q // r, r, r):
        x[m, _channel(problem, k, i, j, c), h, w] = y[m, k, h * r + i, w * r + j]
    return x


pixel_shuffle_fprop = pixel_unshuffle_backward = shuffled
pixel_unshuffle_fprop = pixel_shuffle_backward = unshuffled
FORMULAS = by_name(globals(), ("resize", "pixel_shuffle", "pixel_unshuffle"), masks=False)
