"""Resizing: every output is a weighted sum of inputs, and so is every derivative.

One axis is a matrix W with few entries, which `convref.ops.resize_axis` gives exactly; an image
is resized along one axis after the other, so two axes are W_h x W_w^T:

    fprop     y[n,c,p]   =  sum_i W[p,i] x[n,c,i]                                  (R.1)
    backward  dx[n,c,i]  =  sum_p W[p,i] dy[n,c,p]                                 (R.2)

Pixel shuffle, a resize that takes the new elements from channels, moves elements and nothing else:

    y[n, c, h r + i, w r + j]  =  x[n, c r^2 + i r + j, h, w]                      (R.3)

or, in mode DCR, x[n, (i r + j) C + c, h, w] with C the channels of y.

Of uint8, weights are integers v[p,i] over 2^b, and the sums along each axis, the last first, are

    y[p]  =  saturated(floor(sum_i v[p,i] x[i] / 2^b + 1/2))                       (R.4)

Each op is linear, so both its JVP and its double backward are R.1. A weight of 0 is not a tap:
its element is not read. All functions compute in the dtype they are given.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from ..ops import Problem, ResizeAxis
from ..ops.resize_axis import Entries, columns, entries, fixed_point, outside
from ._passes import by_name
from ._windows import Array, at_axis

Taps = tuple[tuple[Any, Any, Array | None], ...]
Table = Callable[[ResizeAxis], Entries]
MANY = 64  # entries of one output that are added one after another; more are one call


@lru_cache(maxsize=64)
def taps(axis: ResizeAxis, table: Table, kind: str) -> Taps:
    """Return, for each tap, the outputs that have it, the position each reads, and its weights.

    Weights are of dtype `kind`, rounded once; None means ones, which need no product.
    """
    listed = table(axis)
    weights = rounded(listed, np.dtype(kind))
    plain = listed.number == listed.over
    found, rank = [], listed.rank
    for r in range(rank.max(initial=-1) + 1):
        at = np.flatnonzero(rank == r)
        ones = plain[at].all()
        found.append(
            (_as_slice(listed.output[at]), listed.position[at], None if ones else weights[at])
        )
    return tuple(found)


def _as_slice(positions: Array) -> Any:
    """Return positions as a slice where they follow each other: a view costs nothing."""
    first, last = int(positions[0]), int(positions[-1]) + 1
    return slice(first, last) if last - first == len(positions) else positions


def rounded(listed: Entries, kind: np.dtype[Any]) -> Array:
    """Return weights as the nearest numbers of a dtype; an object array keeps them exact."""
    number, over = listed.number, listed.over
    if kind.hasobject or (number.dtype == object and kind.itemsize > 8):
        exact = [Fraction(n) / Fraction(d) for n, d in zip(number.tolist(), over.tolist())]
        if kind.hasobject:
            return np.array([*exact, None], object)[:-1]  # of None, so that NumPy keeps Fractions
        near = np.array([float(w) for w in exact], np.longdouble)
        return near + np.array([float(w - Fraction(float(w))) for w in exact], np.longdouble)
    real = np.zeros(0, kind).real.dtype
    wide = np.longdouble if real.itemsize > 8 else np.float64
    if number.dtype == object:  # Python rounds the quotient of any integers to nearest
        return (number / over).astype(real)
    return (number.astype(wide) / over).astype(real)


def weighted(x: Array, axes: tuple[ResizeAxis, ...], table: Table) -> Array:
    """Return the weighted sums of x that a table lists, one axis after the other.

    Parameters
    ----------
    x : (*lead, *sizes) ndarray
        Images.
    axes : tuple of ResizeAxis
        One per spatial axis.
    table : callable
        `entries` for R.1, `columns` for R.2, or another that lists weights by output.

    Examples
    --------
    >>> from convref.ops import ResizeProblem
    >>> axes = ResizeProblem(n=1, c=1, input=(2,), output=(4,)).axes
    >>> weighted(np.array([[0., 8.]]), axes, entries)
    array([[0., 2., 6., 8.]])
    >>> weighted(np.array([[4., 4., 4., 4.]]), axes, columns)
    array([[8., 8.]])
    """
    for number, axis in zip(range(-len(axes), 0), axes):
        x = along_axis(x, number, axis, table)
    return x


def weighted_bytes(x: Array, axes: tuple[ResizeAxis, ...]) -> Array:
    """Return weighted sums of integers from 0 to 255, each axis rounded and limited (R.4).

    >>> from convref.ops import ResizeProblem
    >>> axes = ResizeProblem(n=1, c=1, input=(2,), output=(4,)).axes
    >>> weighted_bytes(np.array([[0, 9]]), axes)  # of 0, 2.25, 6.75 and 9
    array([[0, 2, 7, 9]])
    """
    for number, axis in reversed(list(zip(range(-len(axes), 0), axes))):
        bits, _ = fixed_point(axis)
        sums = along_axis(x, number, axis, _fixed_entries)
        x = np.clip((sums + (1 << bits >> 1)) >> bits, 0, 255)
    return x


def _fixed_entries(axis: ResizeAxis) -> Entries:
    return fixed_point(axis)[1]


def along_axis(x: Array, number: int, axis: ResizeAxis, table: Table) -> Array:
    """Return the weighted sums of x along the axis of that negative number."""
    shape, listed = list(x.shape), table(axis)
    shape[number] = listed.outputs
    if len(listed.output) > MANY * max(1, listed.outputs):
        return _reduced(x, number, listed, np.zeros(shape, x.dtype))
    sums: Array | None = None
    for outputs, positions, weights in taps(axis, table, x.dtype.str):
        part = x.take(positions, number)
        if weights is not None:
            part *= weights.reshape(-1, *(1,) * (-1 - number))
        if sums is None and len(positions) == shape[number]:
            sums = part  # a copy keeps the sign of its zeros
            continue
        sums = np.zeros(shape, x.dtype) if sums is None else sums
        sums[at_axis(number, outputs)] += part
    return np.zeros(shape, x.dtype) if sums is None else sums


def _reduced(x: Array, number: int, listed: Entries, sums: Array) -> Array:
    """Return the sums of outputs with so many entries that a call for each would take longer."""
    products = x.take(listed.position, number)
    products *= rounded(listed, x.dtype).reshape(-1, *(1,) * (-1 - number))
    outputs, starts = np.unique(listed.output, return_index=True)
    sums[at_axis(number, outputs)] = np.add.reduceat(products, starts, number)
    return sums


def resize_fprop(x: Array, problem: Problem) -> Array:
    """Return y, the image sampled at the problem's positions (R.1). Linear, so its own JVP.

    Beyond the image y is the problem's `extrapolation`, a constant, which is 0 in derivatives.

    >>> from convref.ops import ResizeProblem
    >>> problem = ResizeProblem(n=1, c=1, input=(3,), output=(2,), mode="area")
    >>> resize_fprop(np.array([[[1., 2., 6.]]]), problem)
    array([[[1.5, 4. ]]])
    """
    whole = x.dtype.kind in "iu" and problem.mode != "nearest"
    y = weighted_bytes(x, problem.axes) if whole else weighted(x, problem.axes, entries)
    value = problem.extrapolation
    if value:
        y[..., outside_image(problem)] = Fraction(value) if x.dtype == object else value
    return y


def outside_image(problem: Problem) -> Array:
    """Return which outputs (*output) sample beyond the image along some axis."""
    return reduce(np.logical_or.outer, map(outside, problem.axes))


def resize_backward(dy: Array, problem: Problem) -> Array:
    """Return dx: each cotangent times its weights, added to the inputs they belong to (R.2).

    >>> from convref.ops import ResizeProblem
    >>> problem = ResizeProblem(n=1, c=1, input=(2,), output=(4,), coord="align_corners")
    >>> resize_backward(np.array([[[3., 3., 3., 3.]]]), problem)
    array([[[6., 6.]]])
    """
    return weighted(dy, problem.axes, columns)


def shuffled(x: Array, problem: Problem) -> Array:
    """Return y of R.3.

    >>> from convref.ops import FAMILY
    >>> problem = FAMILY["pixel_shuffle"](n=1, c=4, input=(1, 2))
    >>> shuffled(np.arange(8).reshape(1, 4, 1, 2), problem)
    array([[[[0, 2, 1, 3],
             [4, 6, 5, 7]]]])
    """
    (n, deep, h, w), r = x.shape, problem.factor
    c = deep // r**2
    if problem.mode == "DCR":
        x = x.reshape(n, r**2, c, h, w).swapaxes(1, 2)
    blocks = x.reshape(n, c, r, r, h, w).transpose(0, 1, 4, 2, 5, 3)  # (n, c, h, r, w, r)
    return blocks.copy().reshape(n, c, h * r, w * r)


def unshuffled(y: Array, problem: Problem) -> Array:
    """Return x of R.3; a permutation's adjoint is its inverse."""
    (n, c, p, q), r = y.shape, problem.factor
    h, w = p // r, q // r
    blocks = y.reshape(n, c, h, r, w, r).transpose(0, 1, 3, 5, 2, 4)  # (n, c, r, r, h, w)
    if problem.mode == "DCR":
        blocks = blocks.reshape(n, c, r**2, h, w).swapaxes(1, 2)
    return blocks.copy().reshape(n, c * r**2, h, w)


pixel_shuffle_fprop = pixel_unshuffle_backward = shuffled
pixel_unshuffle_fprop = pixel_shuffle_backward = unshuffled
FORMULAS = by_name(globals(), ("resize", "pixel_shuffle", "pixel_unshuffle"), masks=True)
