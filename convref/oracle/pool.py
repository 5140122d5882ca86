"""Pooling: what each window makes of the positions that it reads.

Padding is absence here, never a number, and no position between strides is ever read. Windows
are products of intervals, so every pool works through one axis after another:

    sums      S[n,c,p]   =  sum over the window of x[n,c,i]                        (P.1)
    maxima    y[n,c,p]   =  x[n,c,i*],  i* the last NaN, else the first maximum    (P.2)
    spread    dx[n,c,i]  =  sum of g[n,c,p] over the windows p that read i         (P.3)

All functions compute in the dtype they are given; `convref.oracle.evaluate` widens and rounds.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ..case import Call
from ..errors import ConvrefError, message
from ..ops import Problem, Sizes
from ._windows import (
    Array,
    Results,
    Window,
    along,
    first_reads,
    gather_sums,
    reads,
    spread_sums,
)


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return what a window without positions holds: -inf, or the least integer of the type."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def maxima(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return (y, indices), the maximum of each window and where it stands (P.2).

    Parameters
    ----------
    x : (N, C, *input) ndarray
        Input.
    problem : PoolProblem or AdaptiveMaxPoolProblem

    Returns
    -------
    y : (N, C, *output) ndarray
        -inf (the least integer) where a window reads nothing.
    indices : (N, C, *output) ndarray of int64
        Flat position in the image of a channel; -1 where a window reads nothing.

    Examples
    --------
    >>> from convref.ops import PoolProblem
    >>> maxima(np.array([[[3, 7, 7, 1]]]), PoolProblem(n=1, c=1, input=(4,), filter=(3,)))
    (array([[[7, 7]]]), array([[[1, 1]]]))
    """
    y, indices, inner = x, np.zeros(x.shape, np.int64), 1
    if x.size:
        for axis, window in zip(range(-1, -problem.rank - 1, -1), reversed(problem.axes)):
            y, indices = _maxima_along(y, indices, axis, window, inner)
            inner *= window.big
    else:
        y = indices = np.zeros(problem.shape("y"), np.int64)
        y = y.astype(x.dtype)
    none = reduce(np.logical_or.outer, (first_reads(window) < 0 for window in problem.axes))
    if none.any():
        y[..., none], indices[..., none] = lowest(x.dtype), -1
    return y, indices


def _maxima_along(
    x: Array, indices: Array, axis: int, window: Window, inner: int
) -> tuple[Array, Array]:
    """Return the maxima along one axis with their positions; `inner` positions make a step."""
    first = np.maximum(first_reads(window), 0)
    steps = inner * np.arange(window.big).reshape(-1, *(1,) * (-1 - axis))
    y, at = x.take(first, axis), (indices + steps).take(first, axis)
    for windows, positions in reads(window):
        here, there = along(axis, windows), along(axis, positions)
        new, old = x[there], y[here]
        wins = (new > old) | (new != new)  # a later equal loses, a later NaN does not
        y[here] = np.where(wins, new, old)
        at[here] = np.where(wins, indices[there] + steps[positions], at[here])
    return y, at


def picked(x: Array, indices: Array, problem: Problem) -> Array:
    """Return x at each index, 0 where it is -1: what a maximum passes on of a tangent.

    Examples
    --------
    >>> from convref.ops import PoolProblem
    >>> problem = PoolProblem(n=1, c=1, input=(4,), filter=(3,))
    >>> picked(np.array([[[1, 2, 3, 4]]]), np.array([[[3, -1]]]), problem)
    array([[[4, 0]]])
    """
    count = prod(x.shape[2:])
    flat = np.zeros((*x.shape[:2], count + 1), x.dtype)  # one more, for -1
    flat[..., :count] = x.reshape(*x.shape[:2], count)
    return flat.ravel()[_landings(indices, count)].reshape(indices.shape)


def placed(y: Array, indices: Array, sizes: Sizes) -> Array:
    """Return the sum of y at each index (N, C, *sizes), the adjoint of `picked`; -1 is dropped.

    Examples
    --------
    >>> placed(np.array([[[5, 6, 7]]]), np.array([[[1, 1, -1]]]), (4,))
    array([[[ 0, 11,  0,  0]]])
    """
    lead, count = y.shape[:2], prod(sizes)
    x = np.zeros((*lead, count + 1), y.dtype)
    np.add.at(x.ravel(), _landings(indices, count), y.ravel())
    return x[..., :count].reshape(*lead, *sizes)


def _landings(indices: Array, count: int) -> Array:
    """Return, flat, where each index points when images of `count` and a spare lie end to end.

    -1 points to the spare. The result serves arrays (N, C, count + 1).
    """
    if indices.size and (indices.min() < -1 or indices.max() >= count):
        wrong = int(indices.min() if indices.min() < -1 else indices.max())
        raise ConvrefError(
            message("indices", f"hold {wrong}, need a position from 0 to {count - 1}, or -1")
        )
    starts = (count + 1) * np.arange(prod(indices.shape[:2])).reshape(*indices.shape[:2], 1)
    at = np.where(indices < 0, count, indices)
    return (at.reshape(*at.shape[:2], prod(at.shape[2:])) + starts).ravel()


def divided(sums: Array, problem: Problem) -> Array:
    """Return sums (N, C, *output) over the divisor of each window; integers are cut toward 0."""
    fixed = getattr(problem, "divisor", 0)
    divisors = (
        np.array(fixed) if fixed else reduce(np.multiply.outer, map(np.array, problem.counts))
    )
    divisors = np.where(divisors == 0, 1, divisors)  # an empty window has an empty sum
    if sums.dtype == object:
        return sums * np.vectorize(lambda d: Fraction(1, int(d)), otypes=[object])(divisors)
    if sums.dtype.kind in "iu":
        return np.sign(sums) * np.sign(divisors) * (np.abs(sums) // np.abs(divisors))
    return sums / divisors.astype(sums.real.dtype)


def averages(x: Array, problem: Problem) -> Array:
    """Return the mean of each window: P.1 over its divisor. Linear, so its own JVP.

    Examples
    --------
    >>> from convref.ops import AdaptivePoolProblem
    >>> averages(np.array([[[1., 2., 6.]]]), AdaptivePoolProblem(n=1, c=1, input=(3,), output=(2,)))
    array([[[1.5, 4. ]]])
    """
    return divided(gather_sums(x, problem.axes), problem)


def averages_adjoint(dy: Array, problem: Problem) -> Array:
    """Return dx: dy over each divisor, spread over the windows (P.3).

    Examples
    --------
    >>> from convref.ops import AvgPoolProblem
    >>> averages_adjoint(np.ones((1, 1, 2)), AvgPoolProblem(n=1, c=1, input=(3,), filter=(2,)))
    array([[[0.5, 1. , 0.5]]])
    """
    return spread_sums(divided(dy, problem), problem.axes)


def _power(base: Array, exponent: float) -> Array:
    """Return base**exponent for base >= 0; 0 stays 0 even to a power below it."""
    if exponent == 1:
        return base
    if exponent == 2:
        return base * base
    if exponent == 0.5:
        return np.sqrt(base)
    if exponent == 0:
        return np.ones_like(base)
    return np.where(base == 0, base, np.where(base == 0, 1, base) ** exponent)


def norms(x: Array, problem: Problem) -> Array:
    """Return y, the p-norm of each window: (sum |x|^p)^(1/p)  (P.4).

    Examples
    --------
    >>> from convref.ops import LpPoolProblem
    >>> norms(np.array([[[3., -4., 0.]]]), LpPoolProblem(n=1, c=1, input=(3,), filter=(2,)))
    array([[[5., 4.]]])
    """
    sums = gather_sums(_power(np.abs(x), problem.norm), problem.axes)
    return _power(sums, 1 / problem.norm)


def _slopes(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return (sign(x) |x|^(p-1), y^(1-p)), whose products are dy/dx; 0 where y is 0."""
    scales = _power(norms(x, problem), 1 - problem.norm)
    return np.sign(x) * _power(np.abs(x), problem.norm - 1), scales


def norms_jvp(x: Array, x_dot: Array, problem: Problem) -> Array:
    """Return y_dot = y^(1-p) sum sign(x) |x|^(p-1) x_dot over each window (P.5)."""
    slopes, scales = _slopes(x, problem)
    return scales * gather_sums(slopes * x_dot, problem.axes)


def norms_adjoint(dy: Array, x: Array, problem: Problem) -> Array:
    """Return dx = sign(x) |x|^(p-1) times the sum of y^(1-p) dy over the windows that read x.

    Examples
    --------
    >>> from convref.ops import LpPoolProblem
    >>> problem = LpPoolProblem(n=1, c=1, input=(2,), filter=(2,))
    >>> norms_adjoint(np.array([[[10.]]]), np.array([[[3., -4.]]]), problem)
    array([[[ 6., -8.]]])
    """
    slopes, scales = _slopes(x, problem)
    return _where_read(slopes * spread_sums(scales * dy, problem.axes), problem)


def _where_read(dx: Array, problem: Problem) -> Array:
    """Return dx with 0 wherever no window reads, whatever stands there."""
    read = [np.zeros(axis.big, bool) for axis in problem.axes]
    for mask, axis in zip(read, problem.axes):
        for _, positions in reads(axis):
            mask[positions] = True
    return np.where(reduce(np.logical_and.outer, read), dx, np.zeros_like(dx))


def norms_double_backward(
    ddx: Array, dy: Array, x: Array, problem: Problem, mask: tuple[bool, ...] = (True, True)
) -> Results:
    """Return (ddy, dx), the cotangents of dy and x through `norms_adjoint` (P.6).

    ddy is the JVP along ddx. With s the slope at x and S, A the sums and spreads of P.1 and P.3,
    dx = (p-1) (|x|^(p-2) ddx A(y^(1-p) dy) - s A(y^(1-2p) dy S(s ddx))); where x is 0 and the
    power below 0, the first term is taken for 0.

    Examples
    --------
    >>> from convref.ops import LpPoolProblem
    >>> problem = LpPoolProblem(n=1, c=1, input=(2,), filter=(2,))
    >>> one, x = np.ones((1, 1, 1)), np.array([[[3., 4.]]])
    >>> norms_double_backward(x, one, x, problem)
    (array([[[5.]]]), array([[[0., 0.]]]))
    """
    ddy = norms_jvp(x, ddx, problem) if mask[0] else None
    if not mask[1]:
        return ddy, None
    first, second = _curvatures(ddx, dy, x, problem)
    return ddy, _where_read(first - second, problem)


def _curvatures(ddx: Array, dy: Array, x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return the two terms whose difference is dx of the double backward pass."""
    p, axes = problem.norm, problem.axes
    if p == 1:  # piecewise linear
        return np.zeros_like(x), np.zeros_like(x)
    slopes, scales = _slopes(x, problem)
    steep = _power(norms(x, problem), 1 - 2 * p)
    along_x = _power(np.abs(x), p - 2) * ddx * spread_sums(scales * dy, axes)
    along_y = slopes * spread_sums(steep * dy * gather_sums(slopes * ddx, axes), axes)
    return (p - 1) * along_x, (p - 1) * along_y


def unpooled(x: Array, indices: Array, problem: Problem) -> Array:
    """Return y (N, C, *output): each element of x at its index, zero elsewhere (P.7).

    Of several elements with one index the last in row-major order stays; -1 is dropped.

    Examples
    --------
    >>> from convref.ops import UnpoolProblem
    >>> problem = UnpoolProblem(n=1, c=1, input=(3,), output=(4,))
    >>> unpooled(np.array([[[5, 6, 7]]]), np.array([[[3, 0, 3]]]), problem)
    array([[[6, 0, 0, 7]]])
    """
    count = prod(problem.output)
    y = np.zeros((*x.shape[:2], count + 1), x.dtype)
    y.ravel()[_landings(indices, count)] = x.ravel()  # numpy assigns in order: the last stays
    return y[..., :count].reshape(problem.shape("y"))


def unpooled_adjoint(dy: Array, indices: Array, problem: Problem) -> Array:
    """Return dx: dy at the index of each element that stayed, 0 for those overwritten."""
    count, order = prod(problem.output), np.arange(indices.size)
    at = _landings(indices, count)
    stays = np.zeros((prod(indices.shape[:2]), count + 1), np.int64)
    stays.ravel()[at] = order
    dx = picked(dy, indices, problem)
    lost = (stays.ravel()[at] != order).reshape(dx.shape)
    return np.where(lost, np.zeros_like(dx), dx)


def _max_fprop(call: Call, x: Array) -> Results:
    return maxima(x, call.problem)


def _max_backward(call: Call, dy: Array, x: Array, indices: Array) -> Results:
    return (placed(dy, indices, call.problem.input),)


def _max_jvp(call: Call, x: Array, x_dot: Array) -> Results:
    y, indices = maxima(x, call.problem)
    return y, picked(x_dot, indices, call.problem)


def _max_double_backward(call: Call, ddx: Array, x: Array, indices: Array) -> Results:
    return (picked(ddx, indices, call.problem),)


def _avg(call: Call, x: Array) -> Results:
    return (averages(x, call.problem),)


def _avg_backward(call: Call, dy: Array) -> Results:
    return (averages_adjoint(dy, call.problem),)


def _lp_fprop(call: Call, x: Array) -> Results:
    return (norms(x, call.problem),)


def _lp_backward(call: Call, dy: Array, x: Array) -> Results:
    return (norms_adjoint(dy, x, call.problem),)


def _lp_jvp(call: Call, x: Array, x_dot: Array) -> Results:
    return norms(x, call.problem), norms_jvp(x, x_dot, call.problem)


def _lp_double_backward(call: Call, ddx: Array, dy: Array, x: Array) -> Results:
    return norms_double_backward(ddx, dy, x, call.problem, call.mask)


def _lp_curvature(call: Call, ddx: Array, dy: Array, x: Array) -> Results:
    """Return the magnitude of double backward, whose two terms cancel."""
    moduli = np.abs(ddx), np.abs(dy), np.abs(x)
    first, second = _curvatures(*moduli, call.problem)
    ddy = norms_jvp(moduli[2], moduli[0], call.problem)
    return ddy if call.mask[0] else None, first + second if call.mask[1] else None


def _unpool(call: Call, x: Array, indices: Array) -> Results:
    return (unpooled(x, indices, call.problem),)


def _unpool_backward(call: Call, dy: Array, indices: Array) -> Results:
    return (unpooled_adjoint(dy, indices, call.problem),)


_MAX = {
    "fprop": _max_fprop,
    "backward": _max_backward,
    "jvp": _max_jvp,
    "double_backward": _max_double_backward,
}
_AVG = {"fprop": _avg, "backward": _avg_backward, "jvp": _avg, "double_backward": _avg}
_LP = {
    "fprop": _lp_fprop,
    "backward": _lp_backward,
    "jvp": _lp_jvp,
    "double_backward": _lp_double_backward,
}
_UNPOOL = {
    "fprop": _unpool,
    "backward": _unpool_backward,
    "jvp": _unpool,
    "double_backward": _unpool,
}
_OPS: dict[str, dict[str, Any]] = {
    "max_pool": _MAX,
    "adaptive_max_pool": _MAX,
    "avg_pool": _AVG,
    "adaptive_avg_pool": _AVG,
    "lp_pool": _LP,
    "max_unpool": _UNPOOL,
}
FORMULAS = {(op, name): run for op, rows in _OPS.items() for name, run in rows.items()}
MAGNITUDES = {("lp_pool", "double_backward"): _lp_curvature}
