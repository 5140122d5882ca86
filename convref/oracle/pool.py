"""Pooling: the maximum, the mean or a norm of the positions that each window reads.

Padding is not read, nor is a position between strides. Windows are products of intervals, so
every pool works through one axis after another:

    sums      S[n,c,p]   =  sum over the window of x[n,c,i]                        (P.1)
    maxima    y[n,c,p]   =  x[n,c,i*],  i* the last NaN, else the first maximum    (P.2)
    adjoint   dx[n,c,i]  =  sum of g[n,c,p] over the windows p that read i         (P.3)

All functions compute in the dtype they are given; `convref.oracle.evaluate` widens and rounds.
"""

from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ..case import Call
from ..errors import invalid
from ..ops import GROUPS, Problem, Sizes
from ._elementary import power
from ._passes import by_name
from ._windows import Array, Results, Window, at_axis, first_reads, gather_sums, reads, scatter_sums


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return the value of a window without positions: -inf, or the least integer of the type."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def max_pool_fprop(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return (y, indices), the maximum of each window and its position (P.2).

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
    >>> max_pool_fprop(np.array([[[3, 7, 7, 1]]]), PoolProblem(n=1, c=1, input=(4,), filter=(3,)))
    (array([[[7, 7]]]), array([[[1, 1]]]))
    """
    y, indices, inner = x, np.zeros(x.shape, np.int64), 1
    if x.size:
        for axis, window in zip(range(-1, -problem.rank - 1, -1), reversed(problem.axes)):
            y, indices = _max_along_axis(y, indices, axis, window, inner)
            inner *= window.big
    else:
        y = indices = np.zeros(problem.shape("y"), np.int64)
        y = y.astype(x.dtype)
    none = reduce(np.logical_or.outer, (first_reads(window) < 0 for window in problem.axes))
    if none.any():
        y[..., none], indices[..., none] = lowest(x.dtype), -1
    return y, indices


def _max_along_axis(
    x: Array, indices: Array, axis: int, window: Window, inner: int
) -> tuple[Array, Array]:
    """Return the maxima along one axis with their positions; `inner` positions make a step."""
    first = np.maximum(first_reads(window), 0)
    steps = inner * np.arange(window.big).reshape(-1, *(1,) * (-1 - axis))
    y, at = x.take(first, axis), (indices + steps).take(first, axis)
    for windows, positions in reads(window):
        here, there = at_axis(axis, windows), at_axis(axis, positions)
        new, old = x[there], y[here]
        wins = (new > old) | (new != new)  # a later equal loses, a later NaN does not
        y[here] = np.where(wins, new, old)
        at[here] = np.where(wins, indices[there] + steps[positions], at[here])
    return y, at


def max_pool_backward(dy: Array, x: Array, indices: Array, problem: Problem) -> Array:
    """Return dx: the sum of dy at each index; x is not read."""
    return scatter_add(dy, indices, problem.input)


def max_pool_jvp(x: Array, x_dot: Array, problem: Problem) -> Results:
    """Return (y, y_dot), the tangent at each index of the maximum."""
    y, indices = max_pool_fprop(x, problem)
    return y, gather(x_dot, indices)


def max_pool_double_backward(ddx: Array, x: Array, indices: Array, problem: Problem) -> Array:
    """Return ddy, the cotangent of dx at each index."""
    return gather(ddx, indices)


def gather(x: Array, indices: Array) -> Array:
    """Return x at each index, 0 where it is -1.

    >>> gather(np.array([[[1, 2, 3, 4]]]), np.array([[[3, -1]]]))
    array([[[4, 0]]])
    """
    count = prod(x.shape[2:])
    flat = np.zeros((*x.shape[:2], count + 1), x.dtype)  # one more, for -1
    flat[..., :count] = x.reshape(*x.shape[:2], count)
    return flat.ravel()[_flat_positions(indices, count)].reshape(indices.shape)


def scatter_add(y: Array, indices: Array, sizes: Sizes) -> Array:
    """Return the sum of y at each index (N, C, *sizes), the adjoint of `gather`; -1 is dropped.

    >>> scatter_add(np.array([[[5, 6, 7]]]), np.array([[[1, 1, -1]]]), (4,))
    array([[[ 0, 11,  0,  0]]])
    """
    lead, count = y.shape[:2], prod(sizes)
    x = np.zeros((*lead, count + 1), y.dtype)
    np.add.at(x.ravel(), _flat_positions(indices, count), y.ravel())
    return x[..., :count].reshape(*lead, *sizes)


def _flat_positions(indices: Array, count: int) -> Array:
    """Return each index as one into a flattened (N, C, count + 1); -1 is the last of an image."""
    if indices.size and (indices.min() < -1 or indices.max() >= count):
        wrong = int(indices.min() if indices.min() < -1 else indices.max())
        raise invalid("indices", f"holds {wrong}, needs a position from 0 to {count - 1} or -1")
    starts = (count + 1) * np.arange(prod(indices.shape[:2])).reshape(*indices.shape[:2], 1)
    at = np.where(indices < 0, count, indices)
    return (at.reshape(*at.shape[:2], prod(at.shape[2:])) + starts).ravel()


def divided(sums: Array, problem: Problem) -> Array:
    """Return sums (N, C, *output) over the divisor of each window; integers are cut toward 0."""
    fixed = problem.line_value("div")
    counts = [fixed] if fixed else problem.counts
    divisors = reduce(np.multiply.outer, map(np.array, counts))
    divisors = np.where(divisors == 0, 1, divisors)  # an empty window has an empty sum
    if sums.dtype == object:
        return sums * np.vectorize(lambda d: Fraction(1, int(d)), otypes=[object])(divisors)
    if sums.dtype.kind in "iu":
        return np.sign(sums) * np.sign(divisors) * (np.abs(sums) // np.abs(divisors))
    return sums / divisors.astype(sums.real.dtype)


def avg_pool_fprop(x: Array, problem: Problem) -> Array:
    """Return the mean of each window: P.1 over its divisor. Linear, so its own JVP.

    >>> from convref.ops import AdaptivePoolProblem
    >>> problem = AdaptivePoolProblem(n=1, c=1, input=(3,), output=(2,))
    >>> avg_pool_fprop(np.array([[[1., 2., 6.]]]), problem)
    array([[[1.5, 4. ]]])
    """
    return divided(gather_sums(x, problem.axes), problem)


def avg_pool_backward(dy: Array, problem: Problem) -> Array:
    """Return dx: dy over each divisor, added to the positions of its window (P.3).

    >>> from convref.ops import AvgPoolProblem
    >>> avg_pool_backward(np.ones((1, 1, 2)), AvgPoolProblem(n=1, c=1, input=(3,), filter=(2,)))
    array([[[0.5, 1. , 0.5]]])
    """
    return scatter_sums(divided(dy, problem), problem.axes)


def lp_pool_fprop(x: Array, problem: Problem) -> Array:
    """Return y, the p-norm of each window: (sum |x|^p)^(1/p)  (P.4).

    >>> from convref.ops import LpPoolProblem
    >>> lp_pool_fprop(np.array([[[3., -4., 0.]]]), LpPoolProblem(n=1, c=1, input=(3,), filter=(2,)))
    array([[[5., 4.]]])
    """
    sums = gather_sums(power(np.abs(x), problem.norm), problem.axes)
    return power(sums, 1 / problem.norm)


def _slopes(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return (sign(x) |x|^(p-1), y^(1-p)), whose products are dy/dx; 0 where y is 0."""
    scales = power(lp_pool_fprop(x, problem), 1 - problem.norm)
    return np.sign(x) * power(np.abs(x), problem.norm - 1), scales


def lp_pool_jvp(x: Array, x_dot: Array, problem: Problem) -> Results:
    """Return (y, y_dot), y_dot = y^(1-p) sum sign(x) |x|^(p-1) x_dot over each window (P.5)."""
    return lp_pool_fprop(x, problem), _tangent(x, x_dot, problem)


def _tangent(x: Array, x_dot: Array, problem: Problem) -> Array:
    slopes, scales = _slopes(x, problem)
    return scales * gather_sums(slopes * x_dot, problem.axes)


def lp_pool_backward(dy: Array, x: Array, problem: Problem) -> Array:
    """Return dx = sign(x) |x|^(p-1) times the sum of y^(1-p) dy over the windows that read x.

    >>> from convref.ops import LpPoolProblem
    >>> problem = LpPoolProblem(n=1, c=1, input=(2,), filter=(2,))
    >>> lp_pool_backward(np.array([[[10.]]]), np.array([[[3., -4.]]]), problem)
    array([[[ 6., -8.]]])
    """
    slopes, scales = _slopes(x, problem)
    return _where_read(slopes * scatter_sums(scales * dy, problem.axes), problem)


def _where_read(dx: Array, problem: Problem) -> Array:
    """Return dx with 0 wherever no window reads, even of NaN."""
    read = [np.zeros(axis.big, bool) for axis in problem.axes]
    for mask, axis in zip(read, problem.axes):
        for _, positions in reads(axis):
            mask[positions] = True
    return np.where(reduce(np.logical_and.outer, read), dx, np.zeros_like(dx))


def lp_pool_double_backward(
    ddx: Array, dy: Array, x: Array, problem: Problem, mask: tuple[bool, ...] = (True, True)
) -> Results:
    """Return (ddy, dx), the cotangents of dy and x through `lp_pool_backward` (P.6).

    ddy is the JVP along ddx. With s the slope at x, S and A the sums of P.1 and P.3,
    dx = (p-1) (|x|^(p-2) ddx A(y^(1-p) dy) - s A(y^(1-2p) dy S(s ddx))); where x is 0 and the
    power below 0, the first term is taken for 0.

    >>> from convref.ops import LpPoolProblem
    >>> problem = LpPoolProblem(n=1, c=1, input=(2,), filter=(2,))
    >>> one, x = np.ones((1, 1, 1)), np.array([[[3., 4.]]])
    >>> lp_pool_double_backward(x, one, x, problem)
    (array([[[5.]]]), array([[[0., 0.]]]))
    """
    ddy = _tangent(x, ddx, problem) if mask[0] else None
    if not mask[1]:
        return ddy, None
    first, second = _second_order_terms(ddx, dy, x, problem)
    return ddy, _where_read(first - second, problem)


def _second_order_terms(ddx: Array, dy: Array, x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return the two terms whose difference is dx of the double backward pass."""
    p, axes = problem.norm, problem.axes
    if p == 1:  # piecewise linear
        return np.zeros_like(x), np.zeros_like(x)
    slopes, scales = _slopes(x, problem)
    steep = power(lp_pool_fprop(x, problem), 1 - 2 * p)
    along_x = power(np.abs(x), p - 2) * ddx * scatter_sums(scales * dy, axes)
    along_y = slopes * scatter_sums(steep * dy * gather_sums(slopes * ddx, axes), axes)
    return (p - 1) * along_x, (p - 1) * along_y


def max_unpool_fprop(x: Array, indices: Array, problem: Problem) -> Array:
    """Return y (N, C, *output): each element of x at its index, zero elsewhere (P.7).

    Of several elements with one index the last in row-major order stays; -1 is dropped.

    >>> from convref.ops import UnpoolProblem
    >>> problem = UnpoolProblem(n=1, c=1, input=(3,), output=(4,))
    >>> max_unpool_fprop(np.array([[[5, 6, 7]]]), np.array([[[3, 0, 3]]]), problem)
    array([[[6, 0, 0, 7]]])
    """
    count = prod(problem.output)
    y = np.zeros((*x.shape[:2], count + 1), x.dtype)
    y.ravel()[_flat_positions(indices, count)] = x.ravel()  # numpy assigns in order: the last stays
    return y[..., :count].reshape(problem.shape("y"))


def max_unpool_backward(dy: Array, indices: Array, problem: Problem) -> Array:
    """Return dx: dy at the index of each element that stayed, 0 for those overwritten."""
    count, order = prod(problem.output), np.arange(indices.size)
    at = _flat_positions(indices, count)
    stays = np.zeros((prod(indices.shape[:2]), count + 1), np.int64)
    stays.ravel()[at] = order
    dx = gather(dy, indices)
    lost = (stays.ravel()[at] != order).reshape(dx.shape)
    return np.where(lost, np.zeros_like(dx), dx)


def _lp_pool_double_backward_magnitudes(call: Call, ddx: Array, dy: Array, x: Array) -> Results:
    """Return S of double backward, whose two terms cancel."""
    moduli = np.abs(ddx), np.abs(dy), np.abs(x)
    first, second = _second_order_terms(*moduli, call.problem)
    ddy = _tangent(moduli[2], moduli[0], call.problem)
    return ddy if call.mask[0] else None, first + second if call.mask[1] else None


FORMULAS = by_name(
    globals(),
    GROUPS["pool"],
    masks=True,
    like={f"adaptive_{op}": op for op in ("max_pool", "avg_pool")},
)
MAGNITUDES = {("lp_pool", "double_backward"): _lp_pool_double_backward_magnitudes}
