"""Convolution of samples at offsets as loops: each term is a product of five numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ...ops import Problem
from .._passes import by_name
from ._zeros import Array, zeros
from .sample import slope


class _Term(NamedTuple):
    """Where one term reads: y, the image, the filter, the factor, offsets; and its weight."""

    y: tuple[int, ...]
    x: tuple[int, ...]
    w: tuple[int, ...]
    mod: tuple[int, ...]
    offset: tuple[tuple[int, ...], ...]
    weight: Any  # by the orders of its derivatives


def _neighbours(position: Any, size: int) -> list[tuple[int, tuple[Any, ...]]]:
    found = ((i, slope(position - i)) for i in range(size))
    return [(i, weights) for i, weights in found if any(weights)]


def _terms(offset: Array, problem: Problem) -> Iterator[_Term]:
    p, area = problem, problem.filter[0] * problem.filter[1]
    for n, k, c in product(range(p.n), range(p.k), range(p.c)):
        group, first = divmod(c, p.c // p.groups)
        if group != k // (p.k // p.groups):
            continue
        for i, j, *out in np.ndindex(*p.filter, *p.output):
            at = c // (p.c // p.offset_groups) * area + i * p.filter[1] + j
            moves = tuple((n, 2 * at + a, *out) for a in range(2))
            near = []
            for a, tap in enumerate((i, j)):
                start = out[a] * p.stride[a] - p.padding[a][0] + tap * p.dilation[a]
                near.append(_neighbours(offset[moves[a]] + start, p.input[a]))
            for (h, v), (w, u) in product(*near):

                def weight(*by: int, v: Any = v, u: Any = u) -> Any:
                    return v[by.count(0)] * u[by.count(1)]

                place, mod = (n, k, *out), (n, at, *out)
                yield _Term(place, (n, c, h, w), (k, first, i, j), mod, moves, weight)


def _zeros(problem: Problem, like: Array, *roles: str) -> list[Array]:
    return [zeros(problem.shape(role), like) for role in roles]


def _biased(y: Array, b: Array | None) -> Array:
    return y if b is None else y + b[:, None, None]


def _element_or(array: Array | None, place: tuple[int, ...], absent: int) -> Any:
    return absent if array is None else array[place]


def deform_conv_fprop(
    x: Array, offset: Array, w: Array, b: Array | None, mod: Array | None, problem: Problem
) -> Array:
    (y,) = _zeros(problem, x, "y")
    for t in _terms(offset, problem):
        y[t.y] += w[t.w] * _element_or(mod, t.mod, 1) * t.weight() * x[t.x]
    return _biased(y, b)


def deform_conv_backward(
    dy: Array, x: Array, offset: Array, w: Array, mod: Array | None, problem: Problem
) -> tuple[Array, ...]:
    dx, doffset, dw, db, dmod = _zeros(problem, x, "x", "offset", "w", "b", "mod")
    for t in _terms(offset, problem):
        m, g = _element_or(mod, t.mod, 1), dy[t.y]
        dx[t.x] += g * w[t.w] * m * t.weight()
        dw[t.w] += g * m * t.weight() * x[t.x]
        dmod[t.mod] += g * w[t.w] * t.weight() * x[t.x]
        for a in range(2):
            doffset[t.offset[a]] += g * w[t.w] * m * t.weight(a) * x[t.x]
    for n, k, *out in np.ndindex(*dy.shape):
        db[k] += dy[(n, k, *out)]
    return dx, doffset, dw, db, dmod


def deform_conv_jvp(
    x: Array,
    offset: Array,
    w: Array,
    b: Array | None,
    mod: Array | None,
    x_dot: Array,
    offset_dot: Array,
    w_dot: Array,
    b_dot: Array | None,
    mod_dot: Array | None,
    problem: Problem,
) -> tuple[Array, Array]:
    (y_dot,) = _zeros(problem, x, "y")
    for t in _terms(offset, problem):
        m, m_dot = _element_or(mod, t.mod, 1), _element_or(mod_dot, t.mod, 0)
        moved = sum(offset_dot[t.offset[a]] * t.weight(a) for a in range(2))
        y_dot[t.y] += (w_dot[t.w] * m + w[t.w] * m_dot) * t.weight() * x[t.x]
        y_dot[t.y] += w[t.w] * m * (moved * x[t.x] + t.weight() * x_dot[t.x])
    return deform_conv_fprop(x, offset, w, b, mod, problem), _biased(y_dot, b_dot)


def deform_conv_double_backward(
    ddx: Array,
    ddoffset: Array,
    ddw: Array,
    ddb: Array | None,
    ddmod: Array | None,
    dy: Array,
    x: Array,
    offset: Array,
    w: Array,
    mod: Array | None,
    problem: Problem,
) -> tuple[Array, ...]:
    given = x, offset, w, None, mod, ddx, ddoffset, ddw, ddb, ddmod
    _, ddy = deform_conv_jvp(*given, problem)
    dx, doffset, dw, dmod = _zeros(problem, x, "x", "offset", "w", "mod")
    for t in _terms(offset, problem):
        v, f, m, g = x[t.x], w[t.w], _element_or(mod, t.mod, 1), dy[t.y]
        v_, f_, m_ = ddx[t.x], ddw[t.w], _element_or(ddmod, t.mod, 0)
        moves = [ddoffset[t.offset[a]] for a in range(2)]
        one = t.weight()
        one_ = sum(moves[a] * t.weight(a) for a in range(2))
        dx[t.x] += g * ((f_ * m + f * m_) * one + f * m * one_)
        dw[t.w] += g * (m_ * one * v + m * one_ * v + m * one * v_)
        dmod[t.mod] += g * (f_ * one * v + f * one_ * v + f * one * v_)
        for a in range(2):
            by, by_ = t.weight(a), sum(moves[b] * t.weight(a, b) for b in range(2))
            total = (f_ * m + f * m_) * by * v + f * m * (by_ * v + by * v_)
            doffset[t.offset[a]] += g * total
    return ddy, dx, doffset, dw, dmod


FORMULAS = by_name(globals(), ("deform_conv",), masks=False)
