"""Products of matrices as loops: one product of two numbers at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...ops import Problem
from .._passes import by_name
from ._zeros import Array, zeros

Index = tuple[int, ...]


def _terms(problem: Problem) -> Iterator[tuple[Index, Index, Index]]:
    """Yield the places in x, w and y of each product."""
    for n, c, k in np.ndindex(problem.n, problem.c, problem.k):
        for i in range(problem.input[0]):
            yield (n, c, i), ((i, k) if problem.shared else (n, i, k)), (n, c, k)


def matmul_fprop(x: Array, w: Array, problem: Problem) -> Array:
    y = zeros(problem.shape("y"), x)
    for at_x, at_w, at_y in _terms(problem):
        y[at_y] += x[at_x] * w[at_w]
    return y


def matmul_backward(dy: Array, x: Array, w: Array, problem: Problem) -> tuple[Array, Array]:
    dx, dw = zeros(x.shape, x), zeros(w.shape, x)
    for at_x, at_w, at_y in _terms(problem):
        dx[at_x] += dy[at_y] * w[at_w].conjugate()
        dw[at_w] += dy[at_y] * x[at_x].conjugate()
    return dx, dw


def matmul_jvp(
    x: Array, w: Array, x_dot: Array, w_dot: Array, problem: Problem
) -> tuple[Array, Array]:
    y_dot = matmul_fprop(x_dot, w, problem) + matmul_fprop(x, w_dot, problem)
    return matmul_fprop(x, w, problem), y_dot


def matmul_double_backward(
    ddx: Array, ddw: Array, dy: Array, x: Array, w: Array, problem: Problem
) -> tuple[Any, Array, Array]:
    ddy = matmul_fprop(ddx, w, problem) + matmul_fprop(x, ddw, problem)
    return ddy, *matmul_backward(dy, ddx, ddw, problem)


FORMULAS = by_name(globals(), ("matmul",), masks=False)
