"""Sampling at positions that other operands give, with the arguments of PyTorch and torchvision."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..arrays import concatenate, facts, zeros_like
from ..errors import invalid
from ..ops import SIGNATURE, integer, integers
from .arguments import flag, windows
from .definition import Definition, Fields, Image, define
from .generate.passes import functions


@define(autocast={"cpu": "float32"})
def grid_sample(
    input: Image,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Fields:
    """Return `input` sampled at the positions of `grid`.

    Parameters
    ----------
    input : (N, C, H, W) or (N, C, D, H, W) array
    grid : (N, P, Q, 2) or (N, O, P, Q, 3) array
        Coordinates (x, y) or (x, y, z) of each output, -1 and 1 at the ends of W, H and D.
    mode : str
        "bilinear", "nearest" (ties go to the even index) or "bicubic" (two spatial axes only).
    padding_mode : str
        What is read beyond the image: "zeros", its "border" or its "reflection".
    align_corners : bool, optional
        Whether -1 and 1 are the centres of the outer elements, instead of their outer edges. None
        is False.

    Returns
    -------
    (N, C, *output) array

    >>> image, grid = np.array([[[[0., 8.]]]]), np.array([[[[-0.5, 0.], [1., 0.]]]])
    >>> grid_sample(image, grid, align_corners=True)
    array([[[[2., 8.]]]])
    >>> grid_sample(image, grid)
    array([[[[0., 4.]]]])
    """
    aligned = align_corners is not None and flag(input.where, "align_corners", align_corners)
    return {"mode": mode, "padding_mode": padding_mode, "align_corners": aligned}


grid_sample.derivatives(
    backward="""
        >>> image, grid = np.array([[[[0., 8.]]]]), np.array([[[[-0.5, 0.]]]])
        >>> grid_sample_backward(np.ones((1, 1, 1, 1)), image, grid, align_corners=True)
        (array([[[[0.75, 0.25]]]]), array([[[[4., 0.]]]]))
    """,
    jvp="""
        >>> image, grid = np.array([[[[0., 8.]]]]), np.array([[[[-0.5, 0.]]]])
        >>> grid_sample_jvp((image, grid), (None, np.ones_like(grid)), align_corners=True)
        (array([[[[2.]]]]), array([[[[4.]]]]))
    """,
)


class OnBoxes(Definition):
    """The definition of an op on boxes, which may also be listed by image."""

    def compute(self, pass_: str, arrays: tuple[Any, ...], *given: Any, **named: Any) -> Any:
        """Return the results of a pass, by role."""
        roles = SIGNATURE[self.op, pass_].operands
        listed = {"boxes": partial(_numbered, f"{self.op}.{pass_}")}
        arrays = tuple(listed.get(role, _identity)(array) for role, array in zip(roles, arrays))
        return super().compute(pass_, arrays, *given, **named)


def _identity(array: Any) -> Any:
    return array


def _numbered(where: str, boxes: Any) -> Any:
    """Return boxes (K, 5) with the number of their image, from an array (L, 4) for each image."""
    if not isinstance(boxes, (list, tuple)):
        return boxes
    found = [facts(where, f"boxes[{number}]", each) for number, each in enumerate(boxes)]
    for number, fact in enumerate(found):
        if len(fact.shape) != 2 or fact.shape[1] != 4:
            raise invalid(where, f"boxes[{number}] has shape {fact.shape}, needs (L, 4)")
        if fact._replace(shape=(), strides=()) != found[0]._replace(shape=(), strides=()):
            raise invalid(where, f"boxes[{number}] needs the kind, dtype and device of boxes[0]")
    if not found:
        raise invalid(where, "boxes is empty, needs an array (L, 4) for each image")
    lead = ((zeros_like(each[:, :1]) + number, each) for number, each in enumerate(boxes))
    return concatenate([concatenate(pair, 1) for pair in lead], 0)


@define(kind=OnBoxes)
def roi_align(
    input: Image,
    boxes: Any,
    output_size: Any,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Fields:
    """Return the means of bins of boxes in images, as `torchvision.ops.roi_align` does.

    Parameters
    ----------
    input : (N, C, H, W) array
    boxes : (K, 5) array or list of (L, 4) array
        Of each box, the number of its image and the corners x1, y1, x2, y2; or the corners alone,
        in an array for each image. Not differentiated.
    output_size : int or pair of int
        Bins per box on each axis.
    spatial_scale : float
        Elements per unit of the coordinates.
    sampling_ratio : int
        Samples per bin and axis; 0 or less is the size of a bin in elements, rounded up.
    aligned : bool
        Whether coordinate 0 is the edge of the first element. By default it is the centre, and a
        box has at least one element.

    Returns
    -------
    (K, C, *output_size) array

    >>> image, boxes = np.array([[[[0., 8., 16., 24.]]]]), np.array([[0., 0., 0., 2., 0.]])
    >>> roi_align(image, boxes, (1, 2), sampling_ratio=1)
    array([[[[ 4., 12.]]]])
    >>> roi_align(image, [boxes[:, 1:]], (1, 2), sampling_ratio=1)
    array([[[[ 4., 12.]]]])
    """
    sampling_ratio = max(0, integer(input.where, "sampling_ratio", sampling_ratio))
    output = integers(input.where, "output_size", output_size, len(input.space))
    return {
        "output": output,
        "spatial_scale": spatial_scale,
        "sampling_ratio": sampling_ratio,
        "aligned": flag(input.where, "aligned", aligned),
    }


roi_align.derivatives(
    backward="""
        Return grad_input of `roi_align`; of `input` only the shape is needed.

        >>> image, boxes = np.zeros((1, 1, 1, 4)), np.array([[0., 0., 0., 2., 0.]])
        >>> roi_align_backward(np.array([[[[2., 4.]]]]), image, boxes, (1, 2), sampling_ratio=1)
        array([[[[1., 3., 2., 0.]]]])
    """,
)


@define((2,), layouts=False)
def deform_conv(
    input: Image,
    offset: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    mask: Any = None,
) -> Fields:
    """Return a convolution of samples of `input`, as `torchvision.ops.deform_conv2d` does.

    Parameters
    ----------
    input : (N, C, H, W) array
    offset : (N, 2 * groups * taps, P, Q) array
        What is added to the position of each tap, (y, x) in turn; channels in as many groups as
        the shape has share their offsets.
    weight : (K, C / groups, R, S) array
    mask : (N, groups * taps, P, Q) array, optional
        Factors of the samples.

    Returns
    -------
    (N, K, P, Q) array

    >>> image, offset = np.array([[[[0., 8., 16.]]]]), np.array([[[[0., 0, 0]], [[0.5, 0, -2]]]])
    >>> deform_conv2d(image, offset, np.ones((1, 1, 1, 1)))
    array([[[[4., 8., 0.]]]])
    """
    taps = (*(weight or ()), *(1,) * 4)[2:4]
    found = windows(input.where, input.space, taps, stride, padding, dilation)
    return {name: found[name] for name in ("stride", "padding", "dilation")}


DEFINITIONS = (grid_sample, roi_align, deform_conv)
FUNCTIONS = functions(*DEFINITIONS)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
