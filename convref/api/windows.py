"""Sliding windows as users describe them: sizes along axes, and padding in numbers or words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ConvrefError, message, shorten
from ..ops import Pads, Sizes, integers, pads


def per_axis(where: str, rank: int, **given: Any) -> tuple[Sizes, ...]:
    """Return sizes along each axis, at least 1, of what the user calls `stride` and the like."""
    found = {name: integers(where, name, value, rank) for name, value in given.items()}
    for name, sizes in found.items():
        if min(sizes) < 1:
            raise ConvrefError(message(where, f"{name} is {sizes}, needs at least 1"))
    return tuple(found.values())


def windows(
    where: str, input: Sizes, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> dict[str, Any]:
    """Return the geometry of windows on an image."""
    sizes = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    names = "filter", "stride", "dilation"
    geometry = dict(zip(names, per_axis(where, len(input), **sizes)))
    pads = padding_of(where, padding, input=input, transposed=False, **geometry)
    return {**geometry, "padding": pads}


def padding_of(
    where: str,
    value: Any,
    *,
    input: Sequence[int],
    filter: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
) -> Pads:
    """Return padding as ((lo, hi), ...) from any of the forms that the public API takes."""
    if not isinstance(value, str):
        return pads(where, "padding", value, len(input))
    words = ("valid",) if transposed else tuple(_WORDS)
    if value not in words:
        what = f"padding is {shorten(repr(value))}, needs numbers or one of {', '.join(words)}"
        raise ConvrefError(message(where, what))
    if value == "same" and set(stride) != {1}:
        what = f"padding is 'same' with stride {tuple(stride)}, needs stride 1 "
        raise ConvrefError(message(where, f"{what}(same_upper and same_lower take any)"))
    spans = (d * (taps - 1) for taps, d in zip(filter, dilation))
    return tuple(_WORDS[value](*sizes) for sizes in zip(input, stride, spans))


def _valid(size: int, stride: int, span: int) -> tuple[int, int]:
    return 0, 0


def _same_upper(size: int, stride: int, span: int) -> tuple[int, int]:
    """Return what makes ceil(size / stride) windows fit; the odd one stands at the end."""
    total = max(0, (-(-size // stride) - 1) * stride + span + 1 - size)
    return total // 2, total - total // 2


def _same_lower(size: int, stride: int, span: int) -> tuple[int, int]:
    half, rest = _same_upper(size, stride, span)
    return rest, half


def _half(size: int, stride: int, span: int) -> tuple[int, int]:
    return (span + 1) // 2, (span + 1) // 2


def _full(size: int, stride: int, span: int) -> tuple[int, int]:
    return span, span


# What a word puts before and behind one axis; `span` is the reach of the filter's last tap.
_WORDS = {
    "valid": _valid,
    "same": _same_upper,
    "same_upper": _same_upper,
    "same_lower": _same_lower,
    "half": _half,
    "full": _full,
}
