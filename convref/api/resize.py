"""Resizing of rank 1 to 3: PyTorch's `interpolate`, ONNX's `Resize`, and their derivatives."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

from ..errors import invalid, needs_one, shorten
from ..ops import OUTPUT_AXES, ResizeProblem, Sizes, integers, items
from ..ops.sizes import one_of, real
from . import views
from .arguments import flag
from .definition import Fields, Image, define
from .generate.passes import functions

# PyTorch's name -> the mode of a problem, and the ranks that PyTorch has under this name.
MODES: dict[str, tuple[str, tuple[int, ...]]] = {
    "nearest": ("nearest", (1, 2, 3)),
    "nearest-exact": ("nearest", (1, 2, 3)),
    "linear": ("linear", (1, 2, 3)),
    "bilinear": ("linear", (2,)),
    "trilinear": ("linear", (3,)),
    "cubic": ("cubic", (1, 2, 3)),
    "bicubic": ("cubic", (2,)),
    "area": ("area", (1, 2, 3)),
}
ASPECTS = ("stretch", "not_larger", "not_smaller")
PILLOW_A = -0.5  # the cubic that antialias takes, where plain interpolation has -0.75


def _output(where: str, input: Sizes, size: Any, scale: Any, names: tuple[str, str]) -> Any:
    """Return (output sizes, scales or ()) from the one of both that is given."""
    rank, (size_name, scale_name) = len(input), names
    if (size is None) == (scale is None):
        got = "neither" if size is None else "both"
        raise invalid(where, f"{got} of {size_name} and {scale_name} given, needs one")
    if size is not None:
        return integers(where, size_name, size, rank), ()
    listed = items(scale)
    listed = [scale] * rank if listed is None else listed
    if len(listed) != rank:
        needs = f"1 or {rank}" if rank > 1 else "1"
        raise invalid(where, f"{scale_name} has {len(listed)} entries, needs {needs}")
    scales = tuple(real(where, scale_name, value) for value in listed)
    if min(scales) <= 0:
        raise invalid(where, f"{scale_name} is {scales}, needs numbers above 0")
    return tuple(floor(i * s) for i, s in zip(input, scales, strict=True)), scales


def _in_proportion(
    where: str, input: Sizes, output: Sizes, scale: tuple[float, ...], policy: str
) -> tuple[Sizes, tuple[float, ...]]:
    """Return sizes of one scale for all axes, halves rounded up, and the scale."""
    if scale:
        raise invalid(where, f"keep_aspect_ratio_policy is {policy!r} with scales, needs sizes")
    _checked(where, output)
    ratios = [Fraction(out, max(1, size)) for size, out in zip(input, output, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    sizes = tuple(floor(size * ratio + Fraction(1, 2)) for size in input)
    return sizes, (float(ratio),) * len(input)


def _cropped(space: Sizes, output: Any, scale: Any, fields: Fields) -> Any:
    """Return the output's sizes: those of the regions times the scales, where both are given."""
    ones = (1,) * len(space)
    regions = ResizeProblem(n=1, c=1, input=space, output=ones, **fields).roi
    if not (regions and scale):
        return output
    cropped = zip(space, scale, regions, strict=True)
    return tuple(floor(i * (stop - start) * s) for i, s, (start, stop) in cropped)


def _checked(where: str, output: Sizes) -> Sizes:
    for axis, size in zip(OUTPUT_AXES[len(output)], output, strict=True):
        if size < 1:
            raise invalid(where, f"output {axis} is {size}, needs at least 1")
    return output


def _kind(where: str, mode: Any, rank: int) -> str:
    """Return the mode of a problem for PyTorch's name in this rank."""
    if not isinstance(mode, str) or mode not in MODES:
        raise invalid(where, f"mode is {shorten(repr(mode))}, {needs_one(mode, MODES)}")
    kind, ranks = MODES[mode]
    if rank not in ranks:
        raise invalid(where, f"mode {mode} has {rank} spatial axes, needs {ranks[0]}")
    return kind


def _of_smooth_modes(
    where: str, mode: str, kind: str, align_corners: Any, antialias: Any
) -> tuple[bool, bool]:
    """Return the flags that only linear and cubic modes have."""
    smooth = kind in ("linear", "cubic")
    if align_corners is not None and not smooth:
        raise invalid(where, f"align_corners is given with mode {mode}, needs None")
    aligned = align_corners is not None and flag(where, "align_corners", align_corners)
    antialias = flag(where, "antialias", antialias)
    if antialias and not smooth:
        needs = "linear, bilinear, trilinear, cubic or bicubic"
        text = f"antialias is True with mode {mode}, needs {needs}"
        raise invalid(where, text)
    return aligned, antialias


@define(op="resize", layer="Upsample")
def interpolate(
    input: Image,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Fields:
    """Return `input` sampled on a grid of another size.

    Parameters
    ----------
    input : (N, C, *spatial) array
        Rank 1 to 3. Floats; integers in modes that copy; uint8 in every mode, with weights of at
        most 16 bits and each axis rounded, as PyTorch computes it.
    size : int or tuple of int, optional
        Spatial sizes of the output; this or `scale_factor`.
    scale_factor : float or tuple of float, optional
        Output per input; sizes are rounded down.
    mode : str
        "nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic" (or "cubic", of any
        rank) or "area". The nearest ones round positions in float32, as ATen does.
    align_corners : bool, optional
        Whether the centres of the corner elements meet, instead of the corners themselves.
    recompute_scale_factor : bool, optional
        Sample by the ratio of the sizes; otherwise by `scale_factor` where it is given.
    antialias : bool
        Widen the kernel where the image shrinks.

    Returns
    -------
    (N, C, *output) array

    >>> interpolate(np.array([[[0., 8.]]]), scale_factor=2, mode="linear")
    array([[[0., 2., 6., 8.]]])
    >>> interpolate(np.array([[[0., 8.]]]), size=3, mode="linear", align_corners=True)
    array([[[0., 4., 8.]]])
    """
    where, kind = input.where, _kind(input.where, mode, len(input.space))
    aligned, antialias = _of_smooth_modes(where, mode, kind, align_corners, antialias)
    again = recompute_scale_factor is not None
    again = again and flag(where, "recompute_scale_factor", recompute_scale_factor)
    if again and size is not None:
        raise invalid(where, "recompute_scale_factor is True with size, needs scale_factor")
    output, scale = _output(where, input.space, size, scale_factor, ("size", "scale_factor"))
    coord = "asymmetric" if mode == "nearest" else "half_pixel"
    return {
        "output": _checked(where, output),
        "mode": kind,
        "coord": "align_corners" if aligned else coord,
        "antialias": antialias,
        "exclude": antialias,
        "a": PILLOW_A if antialias and kind == "cubic" else -0.75,
        "scale": () if again or aligned or kind == "area" else scale,
    }


interpolate.derivatives(
    backward="""
        Return grad_input of `interpolate`: each cotangent shared out by the weights of its output.

        >>> interpolate_backward(np.ones((1, 1, 4)), np.ones((1, 1, 2)), scale_factor=2)
        array([[[2., 2.]]])
    """,
    jvp="""
        >>> x = np.array([[[0., 8.]]])
        >>> interpolate_jvp((x,), (10 * x,), 3, mode="linear")
        (array([[[0., 4., 8.]]]), array([[[ 0., 40., 80.]]]))
    """,
    double_backward="""
        >>> interpolate_double_backward(np.array([[[0., 8.]]]), 3, mode="linear")
        array([[[0., 4., 8.]]])
    """,
)


@define()
def resize(
    input: Image,
    sizes: Any = None,
    scales: Any = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    roi: Any = None,
    keep_aspect_ratio_policy: str = "stretch",
    extrapolation_value: float = 0.0,
) -> Fields:
    """Return `input` resized along its spatial axes by ONNX's Resize, with exact positions.

    Parameters
    ----------
    input : (N, C, *spatial) array
        Of types as in `interpolate`.
    sizes, scales
        One number per spatial axis, or one for all; either of them.
    mode : str
        "nearest", "linear" or "cubic".
    coordinate_transformation_mode, nearest_mode, cubic_coeff_a, exclude_outside, antialias
        As in ONNX; "tf_half_pixel_for_nn" is not here.
    roi : sequence of (start, stop), optional
        For "tf_crop_and_resize", one pair per spatial axis.
    keep_aspect_ratio_policy : str
        What `sizes` are: "stretch", or of one scale for all axes, "not_larger" or "not_smaller".
    extrapolation_value : float
        What "tf_crop_and_resize" gives beyond the image; its derivative is 0.

    Returns
    -------
    (N, C, *output) array

    >>> resize(np.array([[[1., 2., 3., 4.]]]), 2, nearest_mode="ceil")
    array([[[2., 4.]]])
    """
    where, space = input.where, input.space
    mode = one_of(where, "mode", mode, ("nearest", "linear", "cubic"))
    output, scale = _output(where, space, sizes, scales, ("sizes", "scales"))
    policy = one_of(where, "keep_aspect_ratio_policy", keep_aspect_ratio_policy, ASPECTS)
    if policy != "stretch":
        output, scale = _in_proportion(where, space, output, scale, policy)
    fields = {
        "mode": mode,
        "coord": coordinate_transformation_mode,
        "near": nearest_mode,
        "antialias": flag(where, "antialias", antialias),
        "exclude": flag(where, "exclude_outside", exclude_outside),
        "a": cubic_coeff_a,
        "scale": scale,
        "roi": () if roi is None else roi,
        "extrapolation": extrapolation_value,
    }
    return {**fields, "output": _checked(where, _cropped(space, output, scale, fields))}


resize.derivatives(
    backward="""
        Return grad_input of `resize`.

        >>> resize_backward(np.array([[[5., 7.]]]), np.ones((1, 1, 4)), 2, nearest_mode="ceil")
        array([[[0., 5., 0., 7.]]])
    """,
    jvp="""
        >>> x = np.array([[[0., 8.]]])
        >>> keywords = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
        >>> resize_jvp((x,), (10 * x,), 3, roi=[(0, 2)], extrapolation_value=-1, **keywords)
        (array([[[ 0.,  8., -1.]]]), array([[[ 0., 80.,  0.]]]))
    """,
    double_backward="""
        >>> resize_double_backward(np.array([[[0., 8.]]]), 3, mode="linear")
        array([[[0., 4., 8.]]])
    """,
)


@define(view=views.batches, layouts=False, layer="PixelShuffle")
def pixel_shuffle(input: Image, upscale_factor: int, *, mode: str = "CRD") -> None:
    """Return `input` with blocks of r^2 channels moved into r x r elements of space.

    Parameters
    ----------
    input : (..., C r^2, H, W) array
        Any leading axes.
    upscale_factor : int
        r, at least 1.
    mode : str
        "CRD" as in PyTorch, where the channels of a block are next to each other, or "DCR" as in
        TensorFlow and by default in ONNX's DepthToSpace, where they are C apart.

    Returns
    -------
    (..., C, H r, W r) array

    >>> pixel_shuffle(np.array([[[1.]], [[2.]], [[3.]], [[4.]]]), 2)
    array([[[1., 2.],
            [3., 4.]]])
    """


@define(view=views.batches, layouts=False, layer="PixelUnshuffle")
def pixel_unshuffle(input: Image, downscale_factor: int, *, mode: str = "CRD") -> None:
    """Return `input` with r x r elements of space moved into blocks of r^2 channels.

    Parameters
    ----------
    input : (..., C, H r, W r) array
        Any leading axes.
    downscale_factor : int
        r, at least 1.
    mode : str
        As in `pixel_shuffle`; ONNX's SpaceToDepth is "DCR".

    Returns
    -------
    (..., C r^2, H, W) array

    >>> pixel_unshuffle(np.array([[[1., 2.], [3., 4.]]]), 2).ravel()
    array([1., 2., 3., 4.])
    """


pixel_shuffle.derivatives(
    backward="""
        >>> x = np.ones((4, 1, 1))
        >>> pixel_shuffle_backward(np.array([[[1., 2.], [3., 4.]]]), x, 2).ravel()
        array([1., 2., 3., 4.])
    """,
)
pixel_unshuffle.derivatives(
    backward="""
        >>> x = np.ones((1, 2, 2))
        >>> pixel_unshuffle_backward(np.array([[[1.]], [[2.]], [[3.]], [[4.]]]), x, 2)
        array([[[1., 2.],
                [3., 4.]]])
    """,
)


DEFINITIONS = (interpolate, resize, pixel_shuffle, pixel_unshuffle)
FUNCTIONS = functions(*DEFINITIONS)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
