"""Convolution as loops: one generator lists every product, each pass adds up one factor."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from ...ops import ConvProblem
from .._passes import conv_rows
from ._zeros import Array, zeros

Term = tuple[tuple[int, ...] | None, tuple[int, ...], tuple[int, ...] | None]


def terms(problem: ConvProblem) -> Iterator[Term]:
    """Yield (index in x, index in w, index in y) of each product.

    None is a zero of the padding. In a convolution x is the padded array; in a transposed
    one it is y, whose padding is dropped.
    """
    c_group, k_group = problem.c // problem.groups, problem.k // problem.groups
    for n in range(problem.n):
        for g in range(problem.groups):
            for c in range(c_group):
                for k in range(k_group):
                    for at in product(*map(range, _windows(problem))):
                        for r in product(*map(range, problem.filter)):
                            yield _term(problem, n, g, c, k, at, r)


def _windows(problem: ConvProblem) -> tuple[int, ...]:
    return problem.input if problem.transposed else problem.output


def _term(
    problem: ConvProblem, n: int, g: int, c: int, k: int, at: tuple[int, ...], r: tuple[int, ...]
) -> Term:
    c_group, k_group = problem.c // problem.groups, problem.k // problem.groups
    far: tuple[int, ...] = ()
    for a in range(problem.rank):
        low = problem.padding[a][0]
        far += (at[a] * problem.stride[a] + r[a] * problem.dilation[a] - low,)
    filter_at = r
    if problem.flip:
        filter_at = tuple(problem.filter[a] - 1 - r[a] for a in range(problem.rank))
    bound = problem.output if problem.transposed else problem.input
    inside = all(0 <= far[a] < bound[a] for a in range(problem.rank))
    x_channel, y_channel = g * c_group + c, g * k_group + k
    if problem.transposed:
        y_at = (n, y_channel, *far) if inside else None
        return (n, x_channel, *at), (x_channel, k, *filter_at), y_at
    x_at = (n, x_channel, *far) if inside else None
    return x_at, (y_channel, c, *filter_at), (n, y_channel, *at)


def conv_fprop(x: Array, w: Array, b: Array | None, problem: ConvProblem) -> Array:
    y = zeros(problem.shape("y"), x)
    for x_at, w_at, y_at in terms(problem):
        if y_at is not None:
            y[y_at] += (0 if x_at is None else x[x_at]) * w[w_at]
    if b is not None:
        for at in np.ndindex(y.shape):
            y[at] += b[at[1]]
    return y


def conv_dgrad(dy: Array, w: Array, problem: ConvProblem) -> Array:
    dx = zeros(problem.shape("x"), dy)
    for x_at, w_at, y_at in terms(problem):
        if x_at is not None:
            dx[x_at] += (0 if y_at is None else dy[y_at]) * np.conj(w[w_at])
    return dx


def conv_wgrad(dy: Array, x: Array, problem: ConvProblem) -> Array:
    dw = zeros(problem.shape("w"), dy)
    for x_at, w_at, y_at in terms(problem):
        from_x = 0 if x_at is None else np.conj(x[x_at])
        dw[w_at] += from_x * (0 if y_at is None else dy[y_at])
    return dw


def conv_bgrad(dy: Array, problem: ConvProblem) -> Array:
    db = zeros(problem.shape("b"), dy)
    for at in np.ndindex(dy.shape):
        db[at[1]] += dy[at]
    return db


def conv_jvp(
    x: Array,
    w: Array,
    x_dot: Array | None,
    w_dot: Array | None,
    b_dot: Array | None,
    problem: ConvProblem,
) -> Array:
    """Return y_dot, by the product rule on every product."""
    y_dot = zeros(problem.shape("y"), x)
    for x_at, w_at, y_at in terms(problem):
        if y_at is None:
            continue
        if x_dot is not None:
            y_dot[y_at] += (0 if x_at is None else x_dot[x_at]) * w[w_at]
        if w_dot is not None:
            y_dot[y_at] += (0 if x_at is None else x[x_at]) * w_dot[w_at]
    if b_dot is not None:
        for at in np.ndindex(y_dot.shape):
            y_dot[at] += b_dot[at[1]]
    return y_dot


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
    """Return (ddy, dx, dw), by differentiating every product of the backward pass."""
    ddy = conv_jvp(x, w, ddx, ddw, ddb, problem)
    dx, dw = zeros(x.shape, dy), zeros(w.shape, dy)
    for x_at, w_at, y_at in terms(problem):
        from_dy = 0 if y_at is None else dy[y_at]
        if x_at is not None and ddw is not None:
            dx[x_at] += from_dy * np.conj(ddw[w_at])
        if ddx is not None:
            dw[w_at] += (0 if x_at is None else np.conj(ddx[x_at])) * from_dy
    return ddy if mask[0] else None, dx if mask[1] else None, dw if mask[2] else None


FORMULAS = conv_rows(globals())
