"""Convolutions of 8-bit numbers: of integers, scaled or not, and of floats with scales."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ..dtypes import EIGHT
from ..errors import invalid
from .base import Field
from .conv import ConvProblem
from .sizes import Sizes
from .spec import OpSpec, Pass, Terms

_ZEROS = (0, 0, 3, 100)
_CHANNELS = ("b32", "zero", "scale")  # operands with an element per output channel


@dataclass(frozen=True, kw_only=True)
class _ForwardConvProblem(ConvProblem):
    """A convolution that is neither transposed nor flipped, and has no derivatives."""

    transposed: ClassVar[bool] = False  # type: ignore[misc]
    output_padding: ClassVar[Sizes] = (0,)  # type: ignore[misc]
    flip: ClassVar[bool] = False  # type: ignore[misc]

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        return super().of_operands(pass_, shapes, {"transposed": False, **given})

    def tangents(self, pass_: str) -> str:
        return ""


@dataclass(frozen=True, kw_only=True)
class ConvIntegerProblem(_ForwardConvProblem):
    """The convolution of x - x_zero with w - zero, where zero has an element per output channel.

    Parameters
    ----------
    n, c, k, groups, input, filter, stride, padding, dilation
        As in `ConvProblem`; padding counts as x_zero.
    x_zero : int
        -128 to 255.

    Examples
    --------
    >>> ConvIntegerProblem(n=1, c=2, k=3, input=(4,), filter=(1,)).shape("zero")
    (3,)
    """

    name: ClassVar[str] = "conv_integer"
    KEYS: ClassVar[dict[str, Field]] = {
        "xz": Field("x_zero", "integer", draws=_ZEROS, label="input_zero_point")
    }

    bias: bool = False
    x_zero: int = 0

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        found = super().of_operands(pass_, shapes, given)
        return {**found, "bias": "b32" in shapes}

    def _validate_family(self, where: str, rank: int) -> None:
        super()._validate_family(where, rank)
        for field in self.KEYS.values():
            if field.codec == "integer" and not -128 <= (zero := getattr(self, field.name)) <= 255:
                raise invalid(where, f"{field.label} is {zero}, needs -128 to 255")

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        shapes = super()._shapes
        return {**shapes, "acc": shapes["y"], **dict.fromkeys(_CHANNELS, (self.k,))}

    def letters(self, role: str) -> str:
        return "o" if role in _CHANNELS else super().letters(role)

    def has(self, role: str) -> bool:
        return role != "b32" or self.bias

    def products(self, role: str) -> int:
        return super().products("y")

    def refuses(self, code: str, pass_: str = "fprop") -> str | None:
        return None if code in ("i8", "u8") else f"{self.name} has no {code}, needs i8 or u8"


@dataclass(frozen=True, kw_only=True)
class QuantizedConvProblem(ConvIntegerProblem):
    """A convolution of integers, scaled per output channel, rounded and moved by y_zero.

    Parameters
    ----------
    n, c, k, groups, input, filter, stride, padding, dilation, x_zero
        As in `ConvIntegerProblem`.
    bias : bool
        Whether int32 values of shape (K,) are added to the sums.
    y_zero : int
        -128 to 255.

    Examples
    --------
    >>> QuantizedConvProblem(n=1, c=2, k=3, input=(4,), filter=(2,)).shape("y")
    (1, 3, 3)
    """

    name: ClassVar[str] = "quantized_conv"
    KEYS: ClassVar[dict[str, Field]] = {
        **ConvIntegerProblem.KEYS,
        "yz": Field("y_zero", "integer", draws=_ZEROS, label="output_zero_point"),
        "bias": Field("bias", "flag"),
    }

    bias: bool = True
    y_zero: int = 0


@dataclass(frozen=True, kw_only=True)
class ScaledConvProblem(_ForwardConvProblem):
    """A convolution of 8-bit floats, scaled per output channel in float32.

    Parameters
    ----------
    n, c, k, groups, input, filter, stride, padding, dilation
        As in `ConvProblem`.
    bias : bool
        Whether float32 values of shape (K,) are added to the scaled sums.
    out : {"f32", "bf16", "f16"}
        The type of the output.

    Examples
    --------
    >>> ScaledConvProblem(n=1, c=2, k=3, input=(4,), filter=(2,), out="bf16").products("y")
    6
    """

    name: ClassVar[str] = "scaled_conv"
    KEYS: ClassVar[dict[str, Field]] = {
        "out": Field("out", "word", draws=("f32", "bf16", "f16"), label="output_dtype"),
        "bias": Field("bias", "flag"),
    }

    out: str = "f32"

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        return {**super()._shapes, "scale": (self.k,)}

    def letters(self, role: str) -> str:
        return "o" if role == "scale" else super().letters(role)

    def dtype_of(self, role: str, code: str) -> str:
        return {"b": "f32", "y": self.out}.get(role) or super().dtype_of(role, code)

    def products(self, role: str) -> int:
        return super().products(role) + 1  # the scaling rounds too

    def refuses(self, code: str, pass_: str = "fprop") -> str | None:
        return None if code in EIGHT else f"{self.name} has no {code}, needs e4m3 or e5m2"


_SUMS = (("x", "w"),)
# Of integers "copy", for nothing is judged but equality.
OPS = {
    "conv_integer": OpSpec(
        ConvIntegerProblem,
        {"fprop": Pass(("x", "w", "zero"), {"acc": Terms(_SUMS, by=("zero",), kind="copy")})},
    ),
    "quantized_conv": OpSpec(
        QuantizedConvProblem,
        {"fprop": Pass(("x", "w", *_CHANNELS), {"y": Terms(_SUMS, by=_CHANNELS, kind="copy")})},
    ),
    "scaled_conv": OpSpec(
        ScaledConvProblem,
        {"fprop": Pass(("x", "w", "b", "scale"), {"y": Terms(_SUMS, ("b",), by=("scale",))})},
    ),
}
