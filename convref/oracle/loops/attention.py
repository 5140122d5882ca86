"""Attention as loops: one query at a time, over the keys that it attends to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...ops import Problem
from .._passes import by_name
from ._elementary import exp, number
from ._zeros import Array, zeros


class _Row(NamedTuple):
    """A query: its place in x, and of each key its place, that of the bias, and its weight."""

    at: tuple[int, ...]
    keys: list[Any]
    biases: list[Any]
    p: list[Any]
    scale: Any


def _dot(a: Array, b: Array) -> Any:
    total = 0
    for one, other in zip(a, b):
        total = total + one * other
    return total


def _rows(x: Array, k: Array, b: Array | None, problem: Problem) -> Iterator[_Row]:
    for n, c, i in np.ndindex(problem.n, problem.c, problem.input[0]):
        count = min(i + 1, problem.source[0]) if problem.causal else problem.source[0]
        keys = [(n, c // problem.groups, j) for j in range(count)]
        biases = [(n, c, i, j) if problem.full else (i, j) for j in range(count)]
        scale = number(problem.factor, x[n, c, i, 0])
        a = [scale * _dot(x[n, c, i], k[at]) for at in keys]
        if b is not None:
            a = [one + b[at] for one, at in zip(a, biases)]
        powers = [exp(one - max(a)) for one in a]
        yield _Row((n, c, i), keys, biases, [one / sum(powers) for one in powers], scale)


def _centred(p: list[Any], values: list[Any]) -> list[Any]:
    mean = sum(w * v for w, v in zip(p, values))
    return [v - mean for v in values]


def _score_tangents(row: _Row, x: Array, k: Array, dots: tuple[Any, Any, Any]) -> list[Any]:
    """Return the tangent of each score less their mean."""
    x_dot, k_dot, b_dot = dots
    at, scale = row.at, row.scale
    u = [scale * (_dot(x_dot[at], k[j]) + _dot(x[at], k_dot[j])) for j in row.keys]
    if b_dot is not None:
        u = [one + b_dot[j] for one, j in zip(u, row.biases)]
    return _centred(row.p, u)


def sdpa_fprop(x: Array, k: Array, v: Array, b: Array | None, problem: Problem) -> Array:
    y = zeros(problem.shape("y"), x)
    for row in _rows(x, k, b, problem):
        for p, j in zip(row.p, row.keys):
            y[row.at] += v[j] * p
    return y


def sdpa_backward(
    dy: Array, x: Array, k: Array, v: Array, b: Array | None, problem: Problem
) -> tuple[Array, ...]:
    dx, dk, dv, db = (zeros(problem.shape(role), x) for role in "xkvb")
    for row in _rows(x, k, b, problem):
        e = _centred(row.p, [_dot(dy[row.at], v[j]) for j in row.keys])
        for p, one, j, at in zip(row.p, e, row.keys, row.biases):
            dx[row.at] += k[j] * (row.scale * p * one)
            dk[j] += x[row.at] * (row.scale * p * one)
            dv[j] += dy[row.at] * p
            db[at] += p * one
    return dx, dk, dv, db


def sdpa_jvp(
    x: Array, k: Array, v: Array, b: Array | None, *dots: Any, problem: Problem
) -> tuple[Array, Array]:
    y_dot = zeros(problem.shape("y"), x)
    x_dot, k_dot, v_dot, b_dot = dots
    for row in _rows(x, k, b, problem):
        moved = _score_tangents(row, x, k, (x_dot, k_dot, b_dot))
        for p, u, j in zip(row.p, moved, row.keys):
            y_dot[row.at] += v[j] * (p * u) + v_dot[j] * p
    return sdpa_fprop(x, k, v, b, problem), y_dot


def sdpa_double_backward(
    ddx: Array, ddk: Array, ddv: Array, ddb: Any, dy: Array, *primals: Any, problem: Problem
) -> tuple[Array, ...]:
    x, k, v, b = primals
    ddy = zeros(problem.shape("y"), x)
    dx, dk, dv, db = (zeros(problem.shape(role), x) for role in "xkvb")
    for row in _rows(x, k, b, problem):
        at, scale = row.at, row.scale
        u = _score_tangents(row, x, k, (ddx, ddk, ddb))
        e = _centred(row.p, [_dot(dy[at], v[j]) for j in row.keys])
        each = [one * other + _dot(dy[at], ddv[j]) for one, other, j in zip(u, e, row.keys)]
        da = _centred(row.p, each)
        for p, u_j, e_j, da_j, j, place in zip(row.p, u, e, da, row.keys, row.biases):
            ddy[at] += v[j] * (p * u_j) + ddv[j] * p
            dx[at] += (k[j] * da_j + ddk[j] * e_j) * (scale * p)
            dk[j] += (x[at] * da_j + ddx[at] * e_j) * (scale * p)
            dv[j] += dy[at] * (p * u_j)
            db[place] += p * da_j
    return ddy, dx, dk, dv, db


FORMULAS = by_name(globals(), ("sdpa",), masks=False)
