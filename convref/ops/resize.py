"""The problem of resizing: an image sampled at other places than its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

from ..dtypes import INTEGERS, numpy_dtype
from ..errors import invalid, shorten
from .base import BASE_ROLE, INPUT_AND_OUTPUT, Field, Problem
from .resize_axis import COORDINATES, MODES, NEAREST, ResizeAxis, columns, entries, rows
from .sizes import Sizes, items, real
from .spec import OpSpec, linear

NEAR = ("float32", *NEAREST)
_OF_FLOAT32 = ("asymmetric", "half_pixel")  # what ATen calls nearest, and nearest-exact
_EXACT = 2**24  # integers that binary32 holds
_FACTORS = (2, 2, 3, 1)
_ORDER = {"mode": Field("mode", "word", draws=("CRD", "CRD", "DCR"), words=("CRD", "DCR"))}


@dataclass(frozen=True, kw_only=True)
class ResizeProblem(Problem):
    """A resize of rank 1 to 3: every output is a weighted sum of inputs near where it samples.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    output : int or tuple of int
        Spatial sizes of the output.
    mode : str
        "linear", "nearest", "cubic" or "area".
    coord : str
        Which coordinate an output samples, by ONNX's name: a key of `resize_axis.COORDINATES`.
    near : str
        How mode "nearest" rounds: by ONNX's name, or "float32", ATen's product in that type.
    antialias : bool
        Stretch the kernel where the image shrinks.
    exclude : bool
        Leave out positions beyond the image, and scale the other weights to a sum of 1.
    a : float
        Parameter of the cubic kernel.
    scale : tuple of float
        Outputs per input, one per axis; empty where the sizes determine it.
    roi : tuple of (float, float)
        What "tf_crop_and_resize" samples, in shares of the image.
    extrapolation : float
        What "tf_crop_and_resize" gives beyond the image; of no effect in derivatives.

    Examples
    --------
    >>> problem = ResizeProblem(n=1, c=2, input=(2,), output=(4,))
    >>> [str(problem.axes[0].position(p)) for p in range(4)]
    ['-1/4', '1/4', '3/4', '5/4']
    """

    name: ClassVar[str] = "resize"
    PARTS: ClassVar[dict[str, Field]] = INPUT_AND_OUTPUT
    KEYS: ClassVar[dict[str, Field]] = {
        "mode": Field("mode", "word", words=MODES),
        "coord": Field("coord", "word", words=tuple(COORDINATES)),
        "near": Field("near", "word", words=NEAR),
        "aa": Field("antialias", "flag"),
        "xo": Field("exclude", "flag"),
        "a": Field("a", "float"),
        "scale": Field("scale", "floats"),
        "roi": Field("roi", "spans"),
        "ev": Field("extrapolation", "float", label="extrapolation_value"),
    }
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1), ("output", 1))

    output: Sizes
    mode: str = "linear"
    coord: str = "half_pixel"
    near: str = "float32"
    antialias: bool = False
    exclude: bool = False
    a: float = -0.75
    scale: tuple[float, ...] = ()
    roi: tuple[tuple[float, float], ...] = ()
    extrapolation: float = 0.0

    def _validate(self, where: str, rank: int) -> None:
        if self.antialias and self.mode not in ("linear", "cubic"):
            raise invalid(where, f"antialias is True, needs mode linear or cubic, not {self.mode}")
        if self.mode == "nearest" and self.near == "float32" and self.coord not in _OF_FLOAT32:
            needs = " or ".join(_OF_FLOAT32)
            raise invalid(where, f"coord is {self.coord!r} with near float32, needs {needs}")
        if self.extrapolation and self.coord != "tf_crop_and_resize":
            what = f"extrapolation_value is {self.extrapolation} with coord {self.coord}"
            raise invalid(where, f"{what}, needs 0 or coord tf_crop_and_resize")
        self._put("scale", self._scales(where, rank))
        self._put("roi", self._frames(where, rank))

    def _scales(self, where: str, rank: int) -> tuple[float, ...]:
        listed = items(self.scale)
        listed = [self.scale] if listed is None else listed
        given = tuple(real(where, "scale", value) for value in listed)
        given = given * rank if len(given) == 1 else given
        if len(given) not in (0, rank) or not all(value > 0 for value in given):
            raise invalid(where, f"scale is {shorten(given)}, needs none or {rank} numbers above 0")
        return given

    def _frames(self, where: str, rank: int) -> tuple[tuple[float, float], ...]:
        listed = items(self.roi)
        pairs = [None] if listed is None else [items(entry) for entry in listed]
        pairs = pairs * rank if len(pairs) == 1 else pairs
        if len(pairs) not in (0, rank) or any(pair is None or len(pair) != 2 for pair in pairs):
            text = f"roi is {shorten(self.roi)}, needs none or {rank} pairs (start, stop)"
            raise invalid(where, text)
        if pairs and self.coord != "tf_crop_and_resize":
            what = f"roi is given with coord {self.coord}"
            raise invalid(where, f"{what}, needs none or coord tf_crop_and_resize")
        ends = (tuple(real(where, "roi", end) for end in pair or ()) for pair in pairs)
        return tuple((start, stop) for start, stop in ends)

    @cached_property
    def axes(self) -> tuple[ResizeAxis, ...]:
        rule = (self.mode, self.coord, self.near, self.antialias, self.exclude, self.a)
        scales = self.scale or (0.0,) * self.rank
        frames = self.roi or ((0.0, 1.0),) * self.rank
        return tuple(
            ResizeAxis(size, out, *rule, scale, *frame)
            for size, out, scale, frame in zip(self.input, self.output, scales, frames, strict=True)
        )

    def for_pass(self, pass_: str, code: str) -> Problem:
        return self if pass_ == "fprop" else replace(self, extrapolation=0.0)

    def refuses(self, code: str, pass_: str = "fprop") -> str | None:
        if code not in INTEGERS:
            return super().refuses(code)
        if self.mode != "nearest" and code != "u8":
            return f"weights of mode {self.mode} are not integers, needs u8 or floats, not {code}"
        if self.mode != "nearest" and pass_ != "fprop":
            return f"rounded results of mode {self.mode} have no derivative, needs floats"
        value, info = self.extrapolation, np.iinfo(numpy_dtype(code))
        if value != int(value) or not info.min <= value <= info.max:
            return f"extrapolation_value {value:g} is not a number of type {code}"
        return None

    def for_dtype(self, code: str, pass_: str) -> ResizeProblem:
        """Return the problem, in mode nearest where numbers of type `code` have no weights."""
        if self.refuses(code, pass_) is None:
            return self
        near = self.near if self.near != "float32" else "floor"
        return replace(self, mode="nearest", near=near, antialias=False, extrapolation=0.0)

    @cached_property
    def grain(self) -> int:
        found = 1
        for axis in self.axes:
            found *= max((w.denominator for row in rows(axis) for _, w in row), default=1)
        return found

    def is_exact(self, code: str) -> bool:
        dyadic = self.mode == "nearest" or all(map(_is_dyadic, self.axes))
        return dyadic and self.extrapolation.is_integer()

    def products(self, role: str) -> int:
        """Return the most roundings on the path to one element of the result `role`.

        Copies have none. Else each weight is rounded, multiplied by those of the other axes and
        by the operand, and the products are added.
        """
        table = columns if BASE_ROLE[role] == "x" else entries
        terms = prod(int(table(axis).rank.max(initial=-1)) + 1 for axis in self.axes)
        return max(terms - 1, 0) if self.mode == "nearest" else terms + 2 * self.rank

    def work(self) -> int:
        return self.n * self.c * prod(self.output) * prod(self.input)


def _is_dyadic(axis: ResizeAxis) -> bool:
    """Return whether positions, kernel and weights of an axis need no rounding in binary32."""
    weights = [w for row in rows(axis) for _, w in row]
    if axis.mode == "area":
        return all(map(_is_power, (w.denominator for w in weights)))
    if axis.antialias or axis.exclude:  # divided by their sum, which is rarely a power of two
        return False
    positions = [axis.position(p) for p in range(axis.out)]
    grain = max(x.denominator for x in positions)
    numbers = [*positions, *weights, axis.step, Fraction(axis.a)]
    numbers += [1 / axis.step] if axis.step else []  # some divide by the scale
    if not all(_is_power(number.denominator) for number in numbers):
        return False
    room = 48 * 4 * Fraction(axis.a).denominator * grain**3 if axis.mode == "cubic" else 1
    return max(room, 4 * grain * axis.size) <= _EXACT


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


@dataclass(frozen=True, kw_only=True)
class _PixelProblem(Problem):
    """An image and another with r times the height and width and 1 / r^2 of the channels."""

    HAS_RANKS: ClassVar[tuple[int, ...]] = (2,)
    INDEPENDENT: ClassVar[str] = "n"

    mode: str = "CRD"

    def _validate(self, where: str, rank: int) -> None:
        field = self.KEYS["r"]
        factor = self._at_least(field.name, self.factor, 1)
        sizes = {"n": self.n, "c": self.c, "input": self.input}
        if (needed := self.admissible(sizes, {field.name: factor})) != sizes:
            found = {"C": (self.c, needed["c"])} | {
                axis: pair for axis, *pair in zip("HW", self.input, needed["input"])
            }
            axis, (size, _) = next((a, pair) for a, pair in found.items() if pair[0] != pair[1])
            power = f"{field.name}**2 = {factor**2}" if axis == "C" else f"{field.name} = {factor}"
            raise invalid(where, f"input has {axis}={size}, needs a multiple of {power}")

    @property
    def factor(self) -> int:
        return int(getattr(self, self.KEYS["r"].name))


@dataclass(frozen=True, kw_only=True)
class PixelShuffleProblem(_PixelProblem):
    """Channels moved into space: y[n, c, h r + i, w r + j] = x[n, c r^2 + i r + j, h, w].

    Parameters
    ----------
    n, c, input
        As in `Problem`; two spatial axes, c a multiple of r^2.
    upscale_factor : int
        r, at least 1.
    mode : str
        "CRD", or "DCR" with x[n, (i r + j) C / r^2 + c, h, w]: ONNX's names.

    Examples
    --------
    >>> PixelShuffleProblem(n=1, c=8, input=(3, 4)).shape("y")
    (1, 2, 6, 8)
    """

    name: ClassVar[str] = "pixel_shuffle"
    KEYS: ClassVar[dict[str, Field]] = {
        "r": Field("upscale_factor", "integer", draws=_FACTORS),
        **_ORDER,
    }

    upscale_factor: int = 2

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        r, (h, w) = self.upscale_factor, self.input
        return {"x": (self.n, self.c, h, w), "y": (self.n, self.c // r**2, h * r, w * r)}

    @classmethod
    def input_channels(cls, channels: int, given: dict[str, Any]) -> int:
        return channels * given["upscale_factor"] ** 2

    @classmethod
    def admissible(cls, sizes: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the sizes, channels rounded up to a multiple of r^2."""
        return {**sizes, "c": _rounded_up(sizes["c"], given["upscale_factor"] ** 2)}


@dataclass(frozen=True, kw_only=True)
class PixelUnshuffleProblem(_PixelProblem):
    """Space moved into channels: y[n, c r^2 + i r + j, h, w] = x[n, c, h r + i, w r + j].

    Parameters
    ----------
    n, c, input
        As in `Problem`; two spatial axes, multiples of r.
    downscale_factor : int
        r, at least 1.
    mode : str
        As in `PixelShuffleProblem`.

    Examples
    --------
    >>> PixelUnshuffleProblem(n=1, c=2, input=(6, 8)).shape("y")
    (1, 8, 3, 4)
    """

    name: ClassVar[str] = "pixel_unshuffle"
    KEYS: ClassVar[dict[str, Field]] = {
        "r": Field("downscale_factor", "integer", draws=_FACTORS),
        **_ORDER,
    }

    downscale_factor: int = 2

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        r, (h, w) = self.downscale_factor, self.input
        return {"x": (self.n, self.c, h, w), "y": (self.n, self.c * r**2, h // r, w // r)}

    @classmethod
    def input_channels(cls, channels: int, given: dict[str, Any]) -> int:
        return channels // given["downscale_factor"] ** 2

    @classmethod
    def admissible(cls, sizes: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the sizes, height and width rounded up to multiples of r."""
        r = given["downscale_factor"]
        return {**sizes, "input": tuple(_rounded_up(size, r) for size in sizes["input"])}


def _rounded_up(size: int, step: int) -> int:
    return -(-size // step) * step


OPS = {
    "resize": OpSpec(ResizeProblem, linear("weighted")),
    "pixel_shuffle": OpSpec(PixelShuffleProblem, linear("copy")),
    "pixel_unshuffle": OpSpec(PixelUnshuffleProblem, linear("copy")),
}
