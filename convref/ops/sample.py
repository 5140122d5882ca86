"""Ops that read an image between its elements, at positions that other operands give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

from ..errors import invalid
from .base import BASE_ROLE, INPUT_AND_OUTPUT, Field, Positions, Problem
from .sizes import SPATIAL, Sizes
from .spec import OpSpec, Pass, formula
from .window import WindowProblem

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}  # elements per axis that one position reads
_BYTES = 64  # of a sample along one axis: two taps, each with an element and a weight
PADDINGS = ("zeros", "border", "reflection")
_NO_INTEGERS = "weights of positions are not integers, needs floats instead of {code}"


class SampledProblem(Problem):
    """An op whose results are sums of elements with weights that depend on positions."""

    REFUSES: ClassVar[dict[str, str]] = {
        "c": "complex numbers are not positions",
        "i": _NO_INTEGERS,
        "u": _NO_INTEGERS,
    }

    @property
    def may_cancel(self) -> bool:
        return True  # a rounded position decides whether an infinity has the weight 0


@dataclass(frozen=True, kw_only=True)
class GridSampleProblem(SampledProblem):
    """An image sampled at the positions of a grid, one per output.

    Parameters
    ----------
    n, c, input
        As in `Problem`; two or three spatial axes of at least 1.
    output : tuple of int
        Spatial sizes of the grid.
    mode : str
        "bilinear", "nearest" or "bicubic"; the last only for two axes.
    padding_mode : str
        What is read beyond the image: "zeros", its "border", or its "reflection".
    align_corners : bool
        Whether -1 and 1 are the centres of the corner elements, instead of their outer edges.

    Examples
    --------
    >>> GridSampleProblem(n=1, c=2, input=(5, 6), output=(3, 4)).shape("grid")
    (1, 3, 4, 2)
    """

    name: ClassVar[str] = "grid_sample"
    PARTS: ClassVar[dict[str, Field]] = INPUT_AND_OUTPUT
    KEYS: ClassVar[dict[str, Field]] = {
        "mode": Field("mode", "word", draws=("bilinear", "bilinear", "nearest", "bicubic")),
        "pad": Field("padding_mode", "word", draws=PADDINGS),
        "align": Field("align_corners", "flag", draws=(False, True)),
    }
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1), ("output", 0))
    HAS_RANKS: ClassVar[tuple[int, ...]] = (2, 3)
    OF_OPERANDS: ClassVar[tuple[str, ...]] = ("n", "c", "input", "output")

    output: Sizes
    mode: str = "bilinear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    def _validate(self, where: str, rank: int) -> None:
        if self.mode == "bicubic" and rank != 2:
            raise invalid(where, f"mode bicubic has {rank} spatial axes, needs 2")

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        x, grid = shapes["x"], shapes.get("grid", ())
        if len(grid) != len(x):
            raise invalid(f"{cls.name}.{pass_}", f"grid has {len(grid)} axes, needs {len(x)}")
        return {"n": x[0], "c": x[1], "input": tuple(x[2:]), "output": tuple(grid[1:-1])}

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        return {**super()._shapes, "grid": (self.n, *self.output, self.rank)}

    def letters(self, role: str) -> str:
        return f"n{SPATIAL[self.rank]}l" if BASE_ROLE[role] == "grid" else super().letters(role)

    def products(self, role: str) -> int:
        """Return the roundings of one element: each tap has a weight per axis, and a factor."""
        taps, parts, base = TAPS[self.mode] ** self.rank, self.rank + 1, BASE_ROLE[role]
        weights = 3 * self.rank + 2
        if base == "x":  # all of the grid may read the same element
            return parts * taps * prod(self.output) + weights
        return parts * taps * (self.c if base == "grid" else 1) + weights

    def work(self) -> int:
        return prod(self.shape("y")) * TAPS[self.mode] ** self.rank * (self.rank + 1)

    def scratch(self) -> int:
        return prod(self.shape("y")) + 2 * prod(self.shape("grid")) * TAPS[self.mode]


@dataclass(frozen=True, kw_only=True)
class RoiAlignProblem(SampledProblem):
    """The mean of samples in each bin of boxes in images.

    Parameters
    ----------
    n, c, input
        As in `Problem`; two spatial axes of at least 1.
    output : tuple of int
        Bins of a box on each axis.
    boxes : int
        How many boxes there are.
    spatial_scale : float
        Elements per unit of the boxes' coordinates.
    sampling_ratio : int
        Samples per bin and axis; 0 is the size of the bin in elements, rounded up.
    aligned : bool
        Whether coordinate 0 is the edge of the first element, instead of its centre.

    Examples
    --------
    >>> RoiAlignProblem(n=1, c=2, input=(5, 6), output=(3, 4), boxes=7).shape("y")
    (7, 2, 3, 4)
    """

    name: ClassVar[str] = "roi_align"
    PARTS: ClassVar[dict[str, Field]] = INPUT_AND_OUTPUT
    KEYS: ClassVar[dict[str, Field]] = {
        "boxes": Field("boxes", "integer"),
        "sc": Field("spatial_scale", "float", draws=(1.0, 0.5, 2.0, 0.25)),
        "sr": Field("sampling_ratio", "integer", draws=(2, 1, 3, 0)),
        "aligned": Field("aligned", "flag", draws=(False, True)),
    }
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1), ("output", 1))
    HAS_RANKS: ClassVar[tuple[int, ...]] = (2,)
    INDEPENDENT: ClassVar[str] = "c"
    OF_OPERANDS: ClassVar[tuple[str, ...]] = ("n", "c", "input", "boxes")

    output: Sizes
    boxes: int = 1
    spatial_scale: float = 1.0
    sampling_ratio: int = 0
    aligned: bool = False

    def _validate(self, where: str, rank: int) -> None:
        self._at_least("boxes", self.boxes, 0)
        self._at_least("sampling_ratio", self.sampling_ratio, 0)
        if self.boxes and not self.n:
            raise invalid(where, f"{self.boxes} boxes are in no image, needs n of at least 1")

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        n, c, *space = shapes["x"]
        return {"n": n, "c": c, "input": tuple(space), "boxes": (*shapes.get("boxes", ()), 1)[0]}

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        y = (self.boxes, self.c, *self.output)
        return {**super()._shapes, "y": y, "boxes": (self.boxes, 5)}

    def letters(self, role: str) -> str:
        return {"boxes": "rl", "y": "rchw"}.get(BASE_ROLE[role], "nchw")

    def positions(self, role: str) -> Positions | None:
        return Positions(self.n, thing="an image", column=0) if role == "boxes" else None

    def flaw(self, values: Any, room: int) -> str | None:
        """Return a corner that is not finite, or that the samples need more than `room` bytes."""
        corners = values[:, 1:].astype(np.float64)
        if not np.isfinite(corners).all():
            return f"holds {corners[~np.isfinite(corners)][0]}, needs finite corners"
        with np.errstate(over="ignore"):
            sides = abs(corners[:, 2:] - corners[:, :2]) * abs(self.spatial_scale)
        bins = max(1.0, float((sides / self.output[::-1]).max(initial=0)))
        count = len(values) * sum(self.output) * (self.sampling_ratio or bins)
        if count * _BYTES <= room:
            return None
        need, has = count * _BYTES / 2**30, room / 2**30
        return f"needs {need:.3g} GiB for its samples, this machine has {has:.3g} GiB"

    def products(self, role: str) -> int:
        return 12  # of one weight; the oracle adds those of the sums, as boxes decide their length

    def work(self) -> int:
        return 4 * max(1, self.sampling_ratio) ** 2 * prod(self.shape("y"))


@dataclass(frozen=True, kw_only=True)
class DeformConvProblem(WindowProblem):
    """A convolution whose taps are samples, each at an offset of its own.

    Parameters
    ----------
    n, c, input, filter, stride, padding, dilation
        As in `WindowProblem`; two spatial axes, of at least 1.
    k : int
        Channels of the output.
    groups, offset_groups : int
        Groups of channels with filters, and with offsets, of their own.
    bias, masked : bool
        Whether there are a bias, and factors of the samples.

    Examples
    --------
    >>> DeformConvProblem(n=1, c=2, k=3, input=(5, 5), filter=(3, 3)).shape("offset")
    (1, 18, 3, 3)
    """

    name: ClassVar[str] = "deform_conv"
    KEYS: ClassVar[dict[str, Field]] = {
        "ko": Field("k", "integer"),
        "wg": Field("groups", "integer"),
        "og": Field("offset_groups", "integer"),
        "bias": Field("bias", "flag", draws=(True, False)),
        "masked": Field("masked", "flag", draws=(False, True)),
    }
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1), *WindowProblem.SIZES[1:])
    REFUSES: ClassVar[dict[str, str]] = SampledProblem.REFUSES
    HAS_RANKS: ClassVar[tuple[int, ...]] = (2,)
    INDEPENDENT: ClassVar[str] = "n"
    OF_OPERANDS: ClassVar[tuple[str, ...]] = (
        *("n", "c", "input", "k", "filter", "groups", "offset_groups", "bias", "masked"),
    )
    transposed: ClassVar[bool] = False

    k: int = 1
    groups: int = 1
    offset_groups: int = 1
    bias: bool = True
    masked: bool = False

    def _validate_family(self, where: str, rank: int) -> None:
        self._at_least("k", self.k, 0)
        for name, channels in (("groups", (self.c, self.k)), ("offset_groups", (self.c,))):
            count = self._at_least(name, getattr(self, name), 1)
            if any(size % count for size in channels):
                needs = " and ".join(map(str, channels))
                raise invalid(where, f"{name} is {count}, needs a divisor of {needs} channels")

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        n, c, *space = shapes["x"]
        k, each, *taps = (*shapes.get("w", ()), *(1,) * 4)[:4]
        channels = (*shapes.get("offset", ()), 0, 0)[1]
        return {
            **{"n": n, "c": c, "input": tuple(space), "k": k, "filter": tuple(taps)},
            "groups": max(1, c // max(1, each)),
            "offset_groups": max(1, channels // max(1, 2 * taps[0] * taps[1])),
            **{"bias": "b" in shapes, "masked": "mod" in shapes},
        }

    @property
    def may_cancel(self) -> bool:
        return True

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        taps = self.offset_groups * prod(self.filter)
        return {
            "x": (self.n, self.c, *self.input),
            "offset": (self.n, 2 * taps, *self.output),
            "w": (self.k, self.c // self.groups, *self.filter),
            "b": (self.k,),
            "mod": (self.n, taps, *self.output),
            "y": (self.n, self.k, *self.output),
        }

    def letters(self, role: str) -> str:
        known = {"x": "nchw", "y": "nkhw", "w": "oihw", "b": "o"}
        return known.get(BASE_ROLE[role], "nqhw")

    def for_pass(self, pass_: str, code: str) -> DeformConvProblem:
        """Return the problem of `pass_`: in backward the mask alone decides on the bias."""
        return replace(self, bias=True) if pass_ == "backward" else self

    def has(self, role: str) -> bool:
        return {"b": self.bias, "mod": self.masked}.get(BASE_ROLE[role], True)

    def products(self, role: str) -> int:
        taps, outputs = prod(self.filter), self.n * prod(self.output)
        terms = {
            "y": self.c // self.groups * taps,
            "x": self.k // self.groups * taps * prod(self.output),
            "w": outputs,
            "b": outputs,
        }
        every = self.c // self.offset_groups * (self.k // self.groups)
        return 24 * terms.get(BASE_ROLE[role], every) + 40

    def work(self) -> int:
        return 4 * prod(self.shape("y")) * self.c // self.groups * prod(self.filter)

    def scratch(self) -> int:
        return 8 * self.n * self.c * prod(self.filter) * prod(self.output)

    def padded_image(self) -> int:
        return 0


_DEFORMED = ("x", "offset", "w", "mod")
_DEFORM_DOTS = ("x_dot", "offset_dot", "w_dot", "b_dot", "mod_dot")
_DEFORM_OUTER = ("ddx", "ddoffset", "ddw", "ddb", "ddmod")
_DEFORM_CONV = {
    "fprop": Pass(("x", "offset", "w", "b", "mod"), {"y": formula(*_DEFORMED, "b")}),
    "backward": Pass(
        ("dy", *_DEFORMED),
        {
            "dx": formula("dy", "offset", "w", "mod"),
            "doffset": formula("dy", *_DEFORMED),
            "dw": formula("dy", "x", "offset", "mod"),
            "db": formula("dy"),
            "dmod": formula("dy", "x", "offset", "w"),
        },
        maskable=True,
    ),
    "jvp": Pass(
        ("x", "offset", "w", "b", "mod", *_DEFORM_DOTS),
        {"y": formula(*_DEFORMED, "b"), "y_dot": formula(*_DEFORMED, *_DEFORM_DOTS)},
    ),
    "double_backward": Pass(
        (*_DEFORM_OUTER, "dy", *_DEFORMED),
        {
            "ddy": formula(*_DEFORM_OUTER, *_DEFORMED),
            **{
                f"d{role}": formula(*(r for r in _DEFORM_OUTER if r != "ddb"), "dy", *_DEFORMED)
                for role in _DEFORMED
            },
        },
        maskable=True,
    ),
}
_GRID_SAMPLE = {
    "fprop": Pass(("x", "grid"), {"y": formula("x", "grid")}),
    "backward": Pass(
        ("dy", "x", "grid"),
        {"dx": formula("dy", "grid"), "dgrid": formula("dy", "x", "grid")},
        maskable=True,
    ),
    "jvp": Pass(
        ("x", "grid", "x_dot", "grid_dot"),
        {"y": formula("x", "grid"), "y_dot": formula("x", "grid", "x_dot", "grid_dot")},
    ),
    "double_backward": Pass(
        ("ddx", "ddgrid", "dy", "x", "grid"),
        {
            "ddy": formula("ddx", "ddgrid", "x", "grid"),
            "dx": formula("ddgrid", "dy", "grid"),
            "dgrid": formula("ddx", "ddgrid", "dy", "x", "grid"),
        },
        maskable=True,
    ),
}
_ROI_ALIGN = {
    "fprop": Pass(("x", "boxes"), {"y": formula("x", by=("boxes",))}),
    "backward": Pass(("dy", "x", "boxes"), {"dx": formula("dy", by=("boxes",))}),
    "jvp": Pass(("x_dot", "boxes"), {"y_dot": formula("x_dot", by=("boxes",))}),
    "double_backward": Pass(("ddx", "boxes"), {"ddy": formula("ddx", by=("boxes",))}),
}
OPS = {
    "grid_sample": OpSpec(GridSampleProblem, _GRID_SAMPLE),
    "roi_align": OpSpec(RoiAlignProblem, _ROI_ALIGN),
    "deform_conv": OpSpec(DeformConvProblem, _DEFORM_CONV),
}
