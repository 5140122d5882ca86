"""Convolution: three sums, and every derivative written with them.

For one group, with x^ the padded input and o_r = p * stride + r * dilation,

    gather     small[n,k,p]    = sum_r sum_c  big^[n,c,o_r]  w[k,c,r]       (C.1)
    scatter    big^[n,c,o_r]  += sum_k        small[n,k,p]   w[k,c,r]       (C.2)
    correlate  dw[k,c,r]       = sum_n,p      big^[n,c,o_r]  small[n,k,p]   (C.3)

Convolution: big is the input and small the output. Transposed convolution: the reverse. All
functions compute in the dtype they are given; `convref.oracle.evaluate` widens and rounds.
"""

from collections.abc import Iterator
from math import prod

import numpy as np

from ..ops import ConvProblem
from ._passes import conv_rows
from ._windows import (
    Array,
    Part,
    add_to_windows,
    blocks,
    columns,
    pad,
    padded_sizes,
    parts,
    unpad,
    windows,
)


def gather(big: Array, w: Array, problem: ConvProblem) -> Array:
    """Return the windows of `big` weighted by `w` (C.1); w is (K, C/G, *filter)."""
    axes, g, small = problem.axes, problem.groups, tuple(axis.small for axis in problem.axes)
    w = w.reshape(g, w.shape[0] // g, *w.shape[1:])  # (G, K/G, C/G, *filter)
    out = np.empty((problem.n, g, w.shape[1], prod(small)), big.dtype)  # (N, G, K/G, P)
    images = blocks(problem.n, axes)
    block = (images[0].stop, g, w.shape[2])  # (N, G, C/G)
    zeros = np.zeros((*block, *padded_sizes(axes)), big.dtype)
    taken, scratch = parts(prod(block), axes, big.dtype)
    factors = [_by_tap(w, r) for r in taken]
    for at_n in images:
        read = windows(pad(_grouped(big[at_n], g), axes, zeros), axes)
        read_by = (columns(read[:, :, :, *r], 2, axes, scratch) for r in taken)
        _sum_into(out[at_n], zip(factors, read_by))  # (N, G, K/G, P)
    return out.reshape(problem.n, g * w.shape[1], *small)  # (N, K, *small)


def scatter(small: Array, w: Array, problem: ConvProblem) -> Array:
    """Return `small` spread through `w` (C.2), the adjoint of `gather` in its first argument."""
    axes, g = problem.axes, problem.groups
    w = w.reshape(g, w.shape[0] // g, *w.shape[1:])  # (G, K/G, C/G, *filter)
    big = np.empty((problem.n, g, w.shape[2], *(axis.big for axis in axes)), small.dtype)
    images = blocks(problem.n, axes)
    block = (images[0].stop, g, w.shape[2])  # (N, G, C/G)
    padding = np.empty((*block, *padded_sizes(axes)), small.dtype)
    taken, scratch = parts(prod(block), axes, small.dtype)
    factors = [_by_tap(w, r).swapaxes(1, 2) for r in taken]  # (G, C/G * taps, K/G)
    for at_n in images:
        values = _flat(_grouped(small[at_n], g), 3)  # (N, G, K/G, P)
        padded = padding[: len(values)]
        padded[...] = 0
        for r, factor in zip(taken, factors):
            written = windows(padded, axes)[:, :, :, *r]  # (N, G, C/G, *taps, *small)
            spread = scratch[: written.size].reshape(written.shape)
            flat = spread.reshape(*values.shape[:2], factor.shape[1], values.shape[3])
            np.matmul(factor, values, out=flat)  # (N, G, C/G * taps, P)
            add_to_windows(written, spread, len(axes))
        big[at_n] = unpad(padded, axes)
    return big.reshape(problem.n, g * w.shape[2], *big.shape[3:])  # (N, C, *big)


def correlate(big: Array, small: Array, problem: ConvProblem) -> Array:
    """Return the correlation of `big` with `small` at each tap (C.3), shaped (K, C/G, *filter)."""
    axes, g = problem.axes, problem.groups
    shape = (g, small.shape[1] // g, big.shape[1] // g)  # (G, K/G, C/G)
    dw = np.empty((*shape, *problem.filter), small.dtype)  # (G, K/G, C/G, *filter)
    pairs = []
    images = blocks(problem.n, axes)
    for at_n in images:
        padded = _by_channel(pad(_grouped(big[at_n], g), axes))  # (G, C/G, N, *padded)
        read = np.moveaxis(windows(padded, axes), 2, 2 + len(axes))  # (G, C/G, *filter, N, *small)
        pairs.append((_flat(_by_channel(_grouped(small[at_n], g)), 2), read))  # (G, K/G, N*P)
    taken, scratch = parts(images[0].stop * big.shape[1], axes, big.dtype)
    for r in taken:
        products = ((values, columns(read[:, :, *r], 1, axes, scratch)) for values, read in pairs)
        part = dw[:, :, :, *r]
        found = np.empty((g, shape[1], prod(part.shape[2:])), dw.dtype)  # (G, K/G, C/G * taps)
        _sum_into(found, ((values, cols.swapaxes(1, 2)) for values, cols in products))
        part[...] = found.reshape(part.shape)
    return dw.reshape(g * shape[1], shape[2], *problem.filter)  # (K, C/G, *filter)


def _sum_into(out: Array, factors: Iterator[tuple[Array, Array]]) -> None:
    np.matmul(*next(factors), out=out)
    product = None
    for left, right in factors:
        product = np.empty_like(out) if product is None else product
        out += np.matmul(left, right, out=product)


def _by_tap(w: Array, part: Part) -> Array:
    """Return a part of a filter (G, K/G, C/G, *filter) as (G, K/G, C/G * taps)."""
    return _flat(w[:, :, :, *part], 2)


def _grouped(array: Array, g: int) -> Array:
    """Return (N, C, ...) as (N, G, C/G, ...)."""
    return array.reshape(array.shape[0], g, array.shape[1] // g, *array.shape[2:])


def _by_channel(array: Array) -> Array:
    """Return (N, G, C/G, ...) as (G, C/G, N, ...)."""
    return array.transpose(1, 2, 0, *range(3, array.ndim))


def _flat(array: Array, lead: int) -> Array:
    return array.reshape(*array.shape[:lead], prod(array.shape[lead:]))


def _oriented(w: Array, problem: ConvProblem) -> Array:
    """Return the filter as cross-correlation takes it: flipped if `flip` is set."""
    return np.flip(w, tuple(range(2, w.ndim))) if problem.flip else w


def conv_fprop(x: Array, w: Array, b: Array | None, problem: ConvProblem) -> Array:
    """Return y, the convolution or transposed convolution of x with w, plus b.

    Parameters
    ----------
    x : (N, C, *input) ndarray
        Input.
    w : (K, C/G, *filter) ndarray, or (C, K/G, *filter) when transposed
        Filter, not flipped unless ``problem.flip``.
    b : (K,) ndarray or None
        Bias.
    problem : ConvProblem
        Sizes and geometry; lengths in elements.

    Returns
    -------
    y : (N, K, *output) ndarray
        Same dtype as `x`.

    Examples
    --------
    >>> x, w = np.arange(5).reshape(1, 1, 5), np.array([[[1, 10]]])
    >>> conv_fprop(x, w, None, ConvProblem(n=1, c=1, k=1, input=(5,), filter=(2,)))
    array([[[10, 21, 32, 43]]])
    """
    sum_ = scatter if problem.transposed else gather
    y = sum_(x, _oriented(w, problem), problem)
    return y if b is None else y + b.reshape(-1, *(1,) * problem.rank)  # (N, K, *output)


def conv_dgrad(dy: Array, w: Array, problem: ConvProblem) -> Array:
    """Return dx, the input cotangent: the adjoint of `conv_fprop` in x.

    Conjugation is part of the adjoint, not of the sums, so it is applied here for both kinds.

    Parameters
    ----------
    dy : (N, K, *output) ndarray
        Output cotangent.
    w : ndarray
        Filter, shaped as in `conv_fprop`.
    problem : ConvProblem

    Returns
    -------
    dx : (N, C, *input) ndarray
        Positions that no window reads are 0.

    Examples
    --------
    >>> dy, w = np.ones((1, 1, 2), int), np.array([[[1, 10]]])
    >>> conv_dgrad(dy, w, ConvProblem(n=1, c=1, k=1, input=(5,), filter=(2,), stride=2))
    array([[[ 1, 10,  1, 10,  0]]])
    """
    sum_ = gather if problem.transposed else scatter
    return sum_(dy, _oriented(w, problem).conj(), problem)


def conv_wgrad(dy: Array, x: Array, problem: ConvProblem) -> Array:
    """Return dw, the filter cotangent: the adjoint of `conv_fprop` in w.

    Parameters
    ----------
    dy : (N, K, *output) ndarray
        Output cotangent.
    x : (N, C, *input) ndarray
        Input of the forward pass.
    problem : ConvProblem

    Returns
    -------
    dw : ndarray
        Shaped like the filter of `conv_fprop`.

    Examples
    --------
    >>> x, dy = np.arange(5).reshape(1, 1, 5), np.ones((1, 1, 4), int)
    >>> conv_wgrad(dy, x, ConvProblem(n=1, c=1, k=1, input=(5,), filter=(2,)))
    array([[[ 6, 10]]])
    """
    big, small = (dy, x.conj()) if problem.transposed else (x.conj(), dy)
    return _oriented(correlate(big, small, problem), problem)


def conv_bgrad(dy: Array, problem: ConvProblem) -> Array:
    """Return db (K,), the bias cotangent: the sum of dy (N, K, *output) over N and space.

    >>> problem = ConvProblem(n=2, c=1, k=3, input=(4,), filter=(1,))
    >>> conv_bgrad(np.ones((2, 3, 4), int), problem)
    array([8, 8, 8])
    """
    return dy.sum(axis=(0, *range(2, 2 + problem.rank)), dtype=dy.dtype)


def conv_jvp(
    x: Array,
    w: Array,
    x_dot: Array | None,
    w_dot: Array | None,
    b_dot: Array | None,
    problem: ConvProblem,
) -> Array:
    """Return y_dot, the output tangent: fprop(x_dot, w) + fprop(x, w_dot) + b_dot.

    Parameters
    ----------
    x, w : ndarray
        Primals, shaped as in `conv_fprop`.
    x_dot, w_dot, b_dot : ndarray or None
        Tangents, shaped like x, w and b; None is a zero tangent and costs nothing.
    problem : ConvProblem

    Returns
    -------
    y_dot : (N, K, *output) ndarray

    Examples
    --------
    >>> problem = ConvProblem(n=1, c=1, k=1, input=(3,), filter=(2,))
    >>> x, w = np.array([[[1, 2, 3]]]), np.array([[[1, 10]]])
    >>> conv_jvp(x, w, x, w, None, problem) == 2 * conv_fprop(x, w, None, problem)
    array([[[ True,  True]]])
    """
    y_dot = np.zeros(problem.shape("y"), x.dtype)
    if x_dot is not None:
        y_dot = conv_fprop(x_dot, w, None, problem)
    if w_dot is not None:
        y_dot = y_dot + conv_fprop(x, w_dot, None, problem)
    return y_dot if b_dot is None else y_dot + b_dot.reshape(-1, *(1,) * problem.rank)


def conv_double_backward(
    ddx: Array | None,
    ddw: Array | None,
    ddb: Array | None,
    dy: Array,
    x: Array,
    w: Array,
    problem: ConvProblem,
    mask: tuple[bool, ...] = (True, True, True),
) -> tuple[Array | None, Array | None, Array | None]:
    """Return (ddy, dx, dw), the cotangents of (dy, x, w) through the backward pass.

    Backward is linear in dy, so its adjoint there is the JVP: ddy = fprop(ddx, w) +
    fprop(x, ddw) + ddb. What is left is bilinear: dx = dgrad(dy, ddw), dw = wgrad(dy, ddx).

    Parameters
    ----------
    ddx, ddw, ddb : ndarray or None
        Cotangents of dx, dw and db; None is zero.
    dy, x, w : ndarray
        What the backward pass was given.
    problem : ConvProblem
    mask : tuple of bool
        Which of ddy, dx, dw to compute; the others are None.

    Returns
    -------
    tuple of (ndarray or None)

    Examples
    --------
    >>> problem = ConvProblem(n=1, c=1, k=1, input=(1,), filter=(1,))
    >>> two, three, five = (np.full((1, 1, 1), v) for v in (2, 3, 5))
    >>> conv_double_backward(two, None, None, three, five, five, problem)
    (array([[[10]]]), array([[[0]]]), array([[[6]]]))
    """
    ddy = conv_jvp(x, w, ddx, ddw, ddb, problem) if mask[0] else None
    dx = dw = None
    if mask[1]:
        dx = np.zeros_like(x) if ddw is None else conv_dgrad(dy, ddw, problem)
    if mask[2]:
        dw = np.zeros_like(w) if ddx is None else conv_wgrad(dy, ddx, problem)
    return ddy, dx, dw


FORMULAS = conv_rows(globals())
