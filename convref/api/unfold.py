"""Unfold (im2col) and fold (col2im) of rank 1 to 3, flat as PyTorch's."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..arrays import facts
from ..case import Call, Spec, spec_of
from ..errors import invalid
from ..ops import Sizes, WindowProblem, integers, items
from .arguments import windows
from .generate import documented, names
from .run import Prepared, compute


def _prepared(
    op: str, array: Any, image: Sizes, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Prepared:
    """Return the call of windows on an image (N, C, *spatial)."""
    n, c, *space = image
    geometry = windows(op, tuple(space), kernel_size, stride, padding, dilation)
    problem = WindowProblem(n=n, c=c, input=tuple(space), **geometry)
    found, columns = facts(op, "input", array), problem.shape("cols")[2]
    if op == "fold" and found.shape[2] != columns:
        raise invalid(op, f"input has {found.shape[2]} columns, needs {columns}")
    call = Call(op, "fprop", problem, specs=(Spec(found.dtype),))
    return Prepared(replace(call, specs=(spec_of(call, call.roles[0], found),)))


def _prepare_unfold(arrays: tuple[Any, ...], *geometry: Any) -> Prepared:
    shape = facts("unfold", "input", arrays[0]).shape
    if len(shape) not in (3, 4, 5):
        raise invalid("unfold", f"input has {len(shape)} axes, needs 3 to 5")
    return _prepared("unfold", arrays[0], shape, *geometry)


def _prepare_fold(
    arrays: tuple[Any, ...], output_size: Any, kernel_size: Any, *geometry: Any
) -> Prepared:
    shape = facts("fold", "input", arrays[0]).shape
    if len(shape) != 3:
        raise invalid("fold", f"input has {len(shape)} axes, needs 3")
    listed = items(output_size)
    rank = 2 if listed is None else len(listed)
    if rank not in (1, 2, 3):
        raise invalid("fold", f"output_size has {rank} entries, needs 1 to 3")
    sizes = integers("fold", "output_size", output_size, rank)
    taps = prod(max(1, size) for size in integers("fold", "kernel_size", kernel_size, rank))
    if shape[1] % taps:
        raise invalid("fold", f"input has {shape[1]} rows, needs a multiple of {taps}")
    image = (shape[0], shape[1] // taps, *sizes)
    return _prepared("fold", arrays[0], image, kernel_size, *geometry)


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
        In elements, at least 1.

    Returns
    -------
    (N, C * prod(kernel_size), prod(output)) array

    >>> unfold(np.arange(4.).reshape(1, 1, 4), 2)
    array([[[0., 1., 2.],
            [1., 2., 3.]]])
    """
    given = kernel_size, dilation, padding, stride
    return compute(_prepare_unfold, (input,), given, backend)[0]


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
    kernel_size, dilation, stride : int or tuple of int
        In elements, at least 1.

    Returns
    -------
    (N, C, *output_size) array

    >>> fold(np.ones((1, 2, 3)), (4,), 2)
    array([[[1., 2., 2., 1.]]])
    """
    given = output_size, kernel_size, dilation, padding, stride
    return compute(_prepare_fold, (input,), given, backend)[0]


FUNCTIONS = names(documented(unfold, fold))
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
