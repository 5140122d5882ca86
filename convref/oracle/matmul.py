"""Products of matrices, the last two axes of arrays whose first axis is the batch."""

import numpy as np

from ..ops import Problem
from ._passes import by_name
from ._windows import Array, Results


def matmul_fprop(x: Array, w: Array, problem: Problem) -> Array:
    """Return y[n,c,k] = sum_i x[n,c,i] w[n,i,k] (M.1); a shared w has no n.

    Examples
    --------
    >>> from convref.ops import MatmulProblem
    >>> problem = MatmulProblem(n=1, c=1, k=2, input=(2,), shared=True)
    >>> matmul_fprop(np.array([[[1, 10]]]), np.array([[1, 2], [3, 4]]), problem)
    array([[[31, 42]]])
    """
    return x @ w


def matmul_dgrad(dy: Array, w: Array, problem: Problem) -> Array:
    """Return dx[n,c,i] = sum_k dy[n,c,k] conj(w[n,i,k]) (M.2)."""
    return dy @ np.conj(w).swapaxes(-1, -2)


def matmul_wgrad(dy: Array, x: Array, problem: Problem) -> Array:
    """Return dw[n,i,k] = sum_c conj(x[n,c,i]) dy[n,c,k] (M.3), also over n for a shared w."""
    if problem.shared:  # one matrix of the rows of all
        x, dy = (a.reshape(problem.n * problem.c, a.shape[-1]) for a in (x, dy))
    return np.conj(x).swapaxes(-1, -2) @ dy


def matmul_backward(dy: Array, x: Array, w: Array, problem: Problem) -> Results:
    """Return (dx, dw)."""
    return matmul_dgrad(dy, w, problem), matmul_wgrad(dy, x, problem)


def matmul_jvp(x: Array, w: Array, x_dot: Array, w_dot: Array, problem: Problem) -> Results:
    """Return (y, y_dot): y is linear in x and in w."""
    return x @ w, x_dot @ w + x @ w_dot


def matmul_double_backward(
    ddx: Array, ddw: Array, dy: Array, x: Array, w: Array, problem: Problem
) -> Results:
    """Return (ddy, dx, dw), the gradients of <ddx, dx> + <ddw, dw> by dy, x and w."""
    ddy = ddx @ w + x @ ddw
    return ddy, matmul_dgrad(dy, ddw, problem), matmul_wgrad(dy, ddx, problem)


FORMULAS = by_name(globals(), ("matmul",), masks=False)
