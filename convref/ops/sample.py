"""Ops that read an image between its elements, at positions that other operands give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from ..errors import invalid
from .base import BASE_ROLE, INPUT_AND_OUTPUT, Field, Problem
from .sizes import SPATIAL, Sizes
from .spec import OpSpec, Pass, formula

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}  # elements per axis that one position reads
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

    def positions(self, role: str) -> tuple[int, int | None] | None:
        return (self.n, None) if role == "boxes" else None

    def products(self, role: str) -> int:
        return 12  # of one weight; the oracle adds those of the sums, as boxes decide their length

    def work(self) -> int:
        return 4 * max(1, self.sampling_ratio) ** 2 * prod(self.shape("y"))


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
}
