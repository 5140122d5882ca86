"""Sampling at positions that other operands give, with the arguments of PyTorch and torchvision."""

from __future__ import annotations

from typing import Any

from .arguments import flag
from .definition import Fields, Image, define
from .passes import functions


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


DEFINITIONS = (grid_sample,)
FUNCTIONS = functions(*DEFINITIONS)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
