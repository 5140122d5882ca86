"""What users of torch.nn.functional pass, as the attributes of an op.

Plain arithmetic, so that a compiler can trace it with symbols for sizes. What is wrong is found
behind it, where the Problem is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import floor
from typing import Any

import torch

from ...api._windows import padding_of
from ...api.resize import MODES, PILLOW_A
from ...errors import ConvrefError, message, shorten


@lru_cache(maxsize=4096, typed=True)  # 1, 1.0 and True are not the same stride
def _remembered(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
    return function(*arguments)


def remembered(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
    """Return what `function` makes of arguments that it may have seen before."""
    if torch.compiler.is_compiling():
        return function(*arguments)
    try:
        return _remembered(function, *arguments)
    except TypeError:  # a list cannot be remembered
        return function(*arguments)


def per_axis(value: Any, rank: int) -> tuple[Any, ...]:
    """Return one value for each axis."""
    if isinstance(value, (tuple, list)):
        return tuple(value) * rank if len(value) == 1 else tuple(value)
    return (value,) * rank


def pads(value: Any, rank: int, **geometry: Sequence[Any]) -> tuple[Any, ...]:
    """Return padding as lo, hi of each axis, one after the other; words need the geometry."""
    if isinstance(value, str):
        found = padding_of("padding", value, transposed=False, **geometry)
        return tuple(size for pair in found for size in pair)
    flat: tuple[Any, ...] = ()
    for item in per_axis(value, rank):
        flat += tuple(item) if isinstance(item, (tuple, list)) else (item, item)
    return flat


def windows(
    input: Sequence[Any],
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> tuple[Any, ...]:
    """Return filter, stride, padding, dilation and ceil of a pool."""
    rank = len(input)
    filter = per_axis(kernel_size, rank)
    strides = filter if stride is None or stride == [] else per_axis(stride, rank)
    dilations = per_axis(dilation, rank)
    sides = pads(padding, rank, input=input, filter=filter, stride=strides, dilation=dilations)
    return filter, strides, sides, dilations, ceil_mode


def adaptive(input: Sequence[Any], output_size: Any) -> tuple[Any, ...]:
    """Return the output sizes; None keeps the input's."""
    sizes = per_axis(output_size, len(input))
    return tuple(i if size is None else size for i, size in zip(input, sizes))


def unpooled(
    input: Sequence[Any], kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> tuple[Any, ...]:
    """Return the output sizes of max_unpool."""
    rank = len(input)
    if output_size is not None:
        return tuple(output_size)[-rank:]
    kernel = per_axis(kernel_size, rank)
    steps = kernel if stride is None else per_axis(stride, rank)
    sides = per_axis(padding, rank)
    return tuple((i - 1) * s - 2 * p + k for i, s, p, k in zip(input, steps, sides, kernel))


def sampling(
    where: str,
    input: Sequence[Any],
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute: bool | None,
    antialias: bool,
) -> tuple[Any, ...]:
    """Return output, mode, coord, near, antialias, exclude, a, scale and roi of a resize."""
    if mode not in MODES or len(input) not in MODES[mode][1]:
        known = ", ".join(name for name, (_, ranks) in MODES.items() if len(input) in ranks)
        text = f"mode is {shorten(repr(mode))}, needs one of {known} for {len(input)} axes"
        raise ConvrefError(message(where, text))
    kind = MODES[mode][0]
    smooth = kind in ("linear", "cubic")
    if (align_corners is not None or antialias) and not smooth:
        text = f"align_corners or antialias with mode {mode}, needs neither"
        raise ConvrefError(message(where, text))
    if (size is None) == (scale_factor is None):
        raise ConvrefError(message(where, "one of size and scale_factor is needed, and no more"))
    scale: tuple[float, ...] = ()
    if size is not None:
        output = per_axis(size, len(input))
    else:
        scale = tuple(float(s) for s in per_axis(scale_factor, len(input)))
        output = tuple(floor(i * s) for i, s in zip(input, scale))
    if recompute or align_corners or kind == "area":
        scale = ()
    coord = "asymmetric" if mode == "nearest" else "half_pixel"
    a = PILLOW_A if antialias and kind == "cubic" else -0.75
    coord = "align_corners" if align_corners else coord
    return output, kind, coord, "float32", antialias, antialias, a, scale, ()
