"""Unfold (im2col) and fold (col2im): the windows themselves, and their adjoint."""

import numpy as np

from ..ops import WindowProblem
from ._passes import by_name
from ._windows import Array, add_to_windows, pad, padded_sizes, unpad, windows


def unfold(x: Array, problem: WindowProblem) -> Array:
    """Return cols[n, c*R + r, p] = x^[n, c, p*stride + r*dilation] (U.1), flat as torch's.

    Parameters
    ----------
    x : (N, C, *input) ndarray
    problem : WindowProblem

    Returns
    -------
    cols : (N, C * prod(filter), prod(output)) ndarray

    Examples
    --------
    >>> unfold(np.arange(4).reshape(1, 1, 4), WindowProblem(n=1, c=1, input=(4,), filter=(2,)))
    array([[[0, 1, 2],
            [1, 2, 3]]])
    """
    cols = windows(pad(x, problem.axes), problem.axes).copy()  # (N, C, *filter, *output)
    return cols.reshape(problem.shape("cols"))


def fold(cols: Array, problem: WindowProblem) -> Array:
    """Return x^[n, c, p*stride + r*dilation] += cols[n, c*R + r, p] (U.2), cropped.

    Parameters
    ----------
    cols : (N, C * prod(filter), prod(output)) ndarray
    problem : WindowProblem

    Returns
    -------
    x : (N, C, *input) ndarray

    Examples
    --------
    >>> fold(np.ones((1, 2, 3), int), WindowProblem(n=1, c=1, input=(4,), filter=(2,)))
    array([[[1, 2, 2, 1]]])
    """
    cols = cols.reshape(problem.n, problem.c, *problem.filter, *problem.output)
    padded = np.zeros((problem.n, problem.c, *padded_sizes(problem.axes)), cols.dtype)
    add_to_windows(windows(padded, problem.axes), cols, problem.rank)
    return unpad(padded, problem.axes)


unfold_fprop = unfold_jvp = fold_backward = unfold
fold_fprop = fold_jvp = unfold_backward = fold
FORMULAS = by_name(globals(), ("unfold", "fold"), masks=True)
