"""Scaling by a sum over neighbours as loops: its Jacobian, one pair of elements at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...ops import NormalizeProblem, Problem, passes
from ._elementary import number, power
from ._zeros import Array, zeros

if TYPE_CHECKING:
    from ...case import Call

Index = tuple[int, ...]


def _lines(problem: Problem) -> Iterator[list[Index]]:
    shape, dim = problem.shape("x"), problem.dim
    for start in np.ndindex(*(1 if axis == dim else size for axis, size in enumerate(shape))):
        yield [(*start[:dim], i, *start[dim + 1 :]) for i in range(shape[dim])]


class _Element(NamedTuple):
    """An element, the line and the positions in it that its sum reads, and g, g' and g''."""

    at: Index
    line: list[Index]
    reads: range
    g: Any
    g1: Any
    g2: Any


def _elements(x: Array, problem: Problem) -> Iterator[_Element]:
    for line in _lines(problem):
        for i, at in enumerate(line):
            reads = range(len(line))
            if not isinstance(problem, NormalizeProblem):
                first, last = i - problem.size // 2, i + (problem.size - 1) // 2
                reads = range(max(0, first), min(len(line), last + 1))
            yield _Element(at, line, reads, *_scale([x[line[j]] for j in reads], problem))


def _scale(read: list[Any], problem: Problem) -> tuple[Any, Any, Any]:
    """Return g, g' and g'' at the sum of the elements that are read."""
    like, total = read[0], number(0, read[0])
    if isinstance(problem, NormalizeProblem):
        for v in read:
            total = total + power(abs(v), problem.p)
        norm, p = power(total, 1 / problem.p), number(problem.p, like)
        if norm < number(problem.eps, like):
            return 1 / number(problem.eps, like), number(0, like), number(0, like)
        return 1 / norm, -1 / (norm * total * p), (1 + p) / (norm * (p * total) * (p * total))
    for v in read:
        total = total + v * v
    share, beta = number(problem.alpha, like) / problem.size, number(problem.beta, like)
    u = number(problem.k, like) + share * total
    g = 1 / power(u, problem.beta)
    return g, -beta * g * share / u, beta * (1 + beta) * g * (share / u) * (share / u)


def _slopes(v: Any, problem: Problem) -> tuple[Any, Any]:
    """Return f' and f'' at an element."""
    p = number(getattr(problem, "p", 2.0), v)
    sign, exponent = int(v > 0) - int(v < 0), float(p)
    return (
        p * sign * power(abs(v), exponent - 1),
        (p - 1) * p * power(abs(v), exponent - 2),
    )


def fprop(call: Call, x: Array) -> tuple[Array, ...]:
    """Return y."""
    y = zeros(x.shape, x)
    for one in _elements(x, call.problem):
        y[one.at] = x[one.at] * one.g
    return (y,)


def _scale_terms(one: _Element, problem: Problem) -> range:
    """Return what moves the scale of an element: nothing where eps divides it."""
    constant = isinstance(problem, NormalizeProblem) and one.g1 == 0
    return range(0) if constant else one.reads


def _jacobian(x: Array, problem: Problem) -> Iterator[tuple[Index, Index, Any]]:
    """Yield (i, j, the derivative of y_i by x_j) where it may not be 0; twice for i = j."""
    for one in _elements(x, problem):
        yield one.at, one.at, one.g
        for j in _scale_terms(one, problem):
            f1, _ = _slopes(x[one.line[j]], problem)
            yield one.at, one.line[j], x[one.at] * one.g1 * f1


def jvp(call: Call, x: Array, x_dot: Array) -> tuple[Array, ...]:
    """Return (y, y_dot)."""
    y_dot = zeros(x.shape, x)
    for i, j, slope in _jacobian(x, call.problem):
        y_dot[i] += slope * x_dot[j]
    return *fprop(call, x), y_dot


def backward(call: Call, dy: Array, x: Array) -> tuple[Array, ...]:
    """Return dx."""
    dx = zeros(x.shape, x)
    for i, j, slope in _jacobian(x, call.problem):
        dx[j] += slope * dy[i]
    return (dx,)


def double_backward(call: Call, ddx: Array, dy: Array, x: Array) -> tuple[Array | None, ...]:
    """Return (ddy, dx): dx is the derivative of the sum of ddx_j dy_i dy_i/dx_j by each x_k."""
    problem, dx = call.problem, zeros(x.shape, x)
    for one in _elements(x, problem):
        i = one.at
        for j in _scale_terms(one, problem):
            at_j = one.line[j]
            f1, f2 = _slopes(x[at_j], problem)
            dx[at_j] += dy[i] * one.g1 * f1 * ddx[i]
            dx[i] += dy[i] * one.g1 * f1 * ddx[at_j]
            dx[at_j] += dy[i] * x[i] * one.g1 * f2 * ddx[at_j]
            for k in _scale_terms(one, problem):
                other, _ = _slopes(x[one.line[k]], problem)
                dx[one.line[k]] += dy[i] * x[i] * one.g2 * f1 * other * ddx[at_j]
    _, ddy = jvp(call, x, ddx)
    return tuple(a if on else None for a, on in zip((ddy, dx), call.mask))


_PASSES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "fprop": fprop,
    "backward": backward,
    "jvp": jvp,
    "double_backward": double_backward,
}
FORMULAS = {
    (op, name): _PASSES[name] for op in ("normalize", "local_response_norm") for name in passes(op)
}
