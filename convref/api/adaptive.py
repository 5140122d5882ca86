"""Pools of a given output size, global ones among them, and their derivatives."""

from __future__ import annotations

from typing import Any

from ..arrays import facts
from ..ops import RANKS, integers, items
from .definition import Fields, Image, define
from .docs import entries
from .generate import documented, names
from .passes import functions
from .pool import lp_pool
from .run import needed


def _output(input: Image, output_size: Any) -> Fields:
    """Return the sizes of an adaptive pool's output; None keeps the input's."""
    listed = items(output_size)
    listed = [output_size] * len(input.space) if listed is None else listed
    if len(listed) == len(input.space):
        listed = [size if out is None else out for size, out in zip(input.space, listed)]
    return {"output": integers(input.where, "output_size", listed, len(input.space))}


@define(RANKS, layer="AdaptiveMaxPool")
def adaptive_max_pool(input: Image, output_size: Any) -> Fields:
    """Return the maximum of each window, with windows cut so that the output has a given size.

    Window p of P over an axis of W elements reads from floor(p W / P) up to ceil((p + 1) W / P).

    Returns
    -------
    (N, C, *output_size) array, or a tuple of it and the indices

    >>> adaptive_max_pool1d(np.array([[[1., 5., 2., 3., 4.]]]), 2)
    array([[[5., 4.]]])
    """
    return _output(input, output_size)


adaptive_max_pool.derivatives(
    backward="""
        Return grad_input of `adaptive_max_pool2d`: each cotangent goes to its maximum.

        An index of -1 passes nothing on.

        >>> x = np.array([[[1., 5., 2.]]])
        >>> adaptive_max_pool1d_backward(np.array([[[1., 10.]]]), x, 2)
        array([[[ 0., 11.,  0.]]])
    """,
    jvp="""
        >>> x = np.array([[[1., 5., 2., 3.]]])
        >>> adaptive_max_pool1d_jvp((x,), (10 * x,), 2)
        (array([[[5., 3.]]]), array([[[50., 30.]]]))
    """,
    double_backward="""
        >>> x = np.array([[[1., 5., 2., 3.]]])
        >>> adaptive_max_pool1d_double_backward(10 * x, x, 2)
        array([[[50., 30.]]])
    """,
)


@define(RANKS, layer="AdaptiveAvgPool")
def adaptive_avg_pool(input: Image, output_size: Any) -> Fields:
    """Return the mean of each window, with windows as in `adaptive_max_pool2d`.

    Returns
    -------
    (N, C, *output_size) array

    >>> adaptive_avg_pool1d(np.array([[[1., 5., 2., 3., 4.]]]), 2)
    array([[[2.66666667, 3.        ]]])
    """
    return _output(input, output_size)


adaptive_avg_pool.derivatives(
    backward="""
        Return grad_input of `adaptive_avg_pool2d`: each cotangent spread over its window.

        >>> adaptive_avg_pool1d_backward(np.ones((1, 1, 2)), np.ones((1, 1, 3)), 2)
        array([[[0.5, 1. , 0.5]]])
    """,
    jvp="""
        >>> x = np.array([[[1., 5., 2., 3.]]])
        >>> adaptive_avg_pool1d_jvp((x,), (10 * x,), 2)
        (array([[[3. , 2.5]]]), array([[[30., 25.]]]))
    """,
    double_backward="""
        >>> adaptive_avg_pool1d_double_backward(np.array([[[1., 5., 2., 3.]]]), 2)
        array([[[3. , 2.5]]])
    """,
)


def global_max_pool(input: Any, *, backend: str = "auto") -> Any:
    """Return the maximum of each channel (N, C, 1, ...): `adaptive_max_pool2d` to size 1.

    >>> global_max_pool(np.arange(12.).reshape(1, 2, 2, 3))
    array([[[[ 5.]],
    <BLANKLINE>
            [[11.]]]])
    """
    return adaptive_max_pool.compute("fprop", (input,), (1,), None, backend)[0]


def global_avg_pool(input: Any, *, backend: str = "auto") -> Any:
    """Return the mean of each channel (N, C, 1, ...): `adaptive_avg_pool2d` to size 1.

    >>> global_avg_pool(np.arange(6.).reshape(1, 2, 3))
    array([[[1.],
            [4.]]])
    """
    return adaptive_avg_pool.compute("fprop", (input,), (1,), None, backend)[0]


def global_lp_pool(input: Any, norm_type: float = 2.0, *, backend: str = "auto") -> Any:
    """Return the p-norm of each channel (N, C, 1, ...): `lp_pool2d` of a window over all of it.

    >>> global_lp_pool(np.array([[[3., 4.]]]))
    array([[[5.]]])
    """
    window = facts("lp_pool.fprop", "input", input).shape[2:]
    settings = (norm_type, window, None, False, 0, 1)
    return lp_pool.compute("fprop", (input,), settings, None, backend)[0]


def global_max_pool_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any:
    """Return grad_input of `global_max_pool`.

    >>> global_max_pool_backward(np.array([[[5.]]]), np.array([[[3., 4.]]]))
    array([[[0., 5.]]])
    """
    _, indices = adaptive_max_pool.compute("fprop", (input,), (1,), None, needed(backend))
    arrays = grad_output, input, indices
    return adaptive_max_pool.compute("backward", arrays, (1,), None, backend)[0]


def global_avg_pool_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any:
    """Return grad_input of `global_avg_pool`; of `input` only the shape is needed.

    >>> global_avg_pool_backward(np.array([[[5.]]]), np.array([[[3., 4.]]]))
    array([[[2.5, 2.5]]])
    """
    x = facts("adaptive_avg_pool.backward", "input", input).shape
    return adaptive_avg_pool.compute("backward", (grad_output,), (1,), None, backend, x=x)[0]


_WITH_N = entries("input : (N, C, *spatial) array")
DEFINITIONS = (adaptive_max_pool, adaptive_avg_pool)
FUNCTIONS = {
    **functions(*DEFINITIONS),
    **names(documented(global_max_pool, global_avg_pool, global_lp_pool, known=_WITH_N)),
    **names(documented(global_max_pool_backward, global_avg_pool_backward, known=_WITH_N)),
}
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
