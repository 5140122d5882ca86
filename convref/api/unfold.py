"""Unfold (im2col) and fold (col2im) of rank 1 to 3, flat as PyTorch's."""

from __future__ import annotations

from typing import Any

from .. import dispatch
from ..arrays import facts
from ..case import Call, Spec
from ..errors import ConvrefError, message
from ..problem import WindowProblem, integers, items
from ._arguments import window_problem


def _windows(op: str, array: Any, problem: WindowProblem, backend: str) -> Any:
    where = f"{op}.fprop"
    found = facts(where, "input", array)
    call = Call(op, "fprop", problem, specs=(Spec(found.dtype, device=found.device),))
    return dispatch.run(call, array, backend=backend)[0]


def unfold(
    input: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
    *,
    backend: str = "numpy",
) -> Any:
    """Return the windows of `input` as columns (im2col); argument order as in torch.

    Parameters
    ----------
    input : (N, C, *spatial) array
        1 to 3 spatial axes.
    kernel_size, dilation, stride : int or tuple of int
    padding : int, tuple of int, (lo, hi) pairs or str
        As in `conv2d`.

    Returns
    -------
    (N, C * prod(kernel_size), prod(output)) array

    Examples
    --------
    >>> unfold(np.arange(4.).reshape(1, 1, 4), 2)
    array([[[0., 1., 2.],
            [1., 2., 3.]]])
    """
    shape = facts("unfold", "input", input).shape
    if len(shape) not in (3, 4, 5):
        raise ConvrefError(message("unfold", f"input has {len(shape)} axes, needs 3 to 5"))
    problem = window_problem("unfold", shape, kernel_size, dilation, padding, stride)
    return _windows("unfold", input, problem, backend)


def fold(
    input: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
    *,
    backend: str = "numpy",
) -> Any:
    """Return the image whose windows are added up from columns (col2im), the adjoint of `unfold`.

    Parameters
    ----------
    input : (N, C * prod(kernel_size), L) array
    output_size : tuple of int
        Spatial sizes of the image, one per axis; a single int means two equal axes.
    kernel_size, dilation, padding, stride
        As in `unfold`.

    Returns
    -------
    (N, C, *output_size) array

    Examples
    --------
    >>> fold(np.ones((1, 2, 3)), (4,), 2)
    array([[[1., 2., 2., 1.]]])
    """
    shape = facts("fold", "input", input).shape
    if len(shape) != 3:
        raise ConvrefError(message("fold", f"input has {len(shape)} axes, needs 3"))
    listed = items(output_size)
    rank = 2 if listed is None else len(listed)
    if rank not in (1, 2, 3):
        raise ConvrefError(message("fold", f"output_size has {rank} entries, needs 1 to 3"))
    sizes = integers("fold", "output_size", output_size, rank)
    taps = 1
    for size in integers("fold", "kernel_size", kernel_size, rank):
        taps *= max(1, size)
    if shape[1] % taps:
        raise ConvrefError(
            message("fold", f"input has {shape[1]} rows, needs a multiple of {taps}")
        )
    image = (shape[0], shape[1] // taps, *sizes)
    problem = window_problem("fold", image, kernel_size, dilation, padding, stride)
    if shape[2] != problem.shape("cols")[2]:
        raise ConvrefError(
            message("fold", f"input has {shape[2]} columns, needs {problem.shape('cols')[2]}")
        )
    return _windows("fold", input, problem, backend)
