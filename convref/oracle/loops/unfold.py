"""Unfold and fold as loops: one generator lists every copied element."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from ...ops import WindowProblem
from .._passes import by_name
from ._zeros import Array, zeros


def _window_terms(
    problem: WindowProblem,
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...] | None]]:
    """Yield (index in cols, index in x or None for padding) of each copied element."""
    for n in range(problem.n):
        for c in range(problem.c):
            row = c * int(np.prod(problem.filter))
            for i, r in enumerate(product(*map(range, problem.filter))):
                for j, p in enumerate(product(*map(range, problem.output))):
                    at: tuple[int, ...] = ()
                    for a in range(problem.rank):
                        low = problem.padding[a][0]
                        at += (p[a] * problem.stride[a] + r[a] * problem.dilation[a] - low,)
                    inside = all(0 <= at[a] < problem.input[a] for a in range(problem.rank))
                    yield (n, row + i, j), ((n, c, *at) if inside else None)


def unfold(x: Array, problem: WindowProblem) -> Array:
    cols = zeros(problem.shape("cols"), x)
    for cols_at, x_at in _window_terms(problem):
        if x_at is not None:
            cols[cols_at] = x[x_at]
    return cols


def fold(cols: Array, problem: WindowProblem) -> Array:
    x = zeros(problem.shape("x"), cols)
    for cols_at, x_at in _window_terms(problem):
        if x_at is not None:
            x[x_at] += cols[cols_at]
    return x


unfold_fprop = unfold_jvp = fold_backward = unfold
fold_fprop = fold_jvp = unfold_backward = fold
FORMULAS = by_name(globals(), ("unfold", "fold"), masks=False)
