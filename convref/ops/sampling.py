"""Where one axis of a resize samples its input, and with what weights: exactly, in Fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np

from .pool import AdaptiveAxis

HALF = Fraction(1, 2)
Row = tuple[tuple[int, Fraction], ...]  # what one output reads: (position, weight), no zeros


class ResizeAxis(NamedTuple):
    """One spatial axis that is resized from `size` to `out` elements; the rest as in the problem.

    `scale` is 0 where it follows from the sizes; `start` and `stop` frame what is sampled.
    """

    size: int
    out: int
    mode: str
    coord: str
    near: str
    antialias: bool
    exclude: bool
    a: float
    scale: float = 0.0
    start: float = 0.0
    stop: float = 1.0

    @property
    def ratio(self) -> Fraction:
        """Return how many outputs lie on one input."""
        return Fraction(self.scale) if self.scale else Fraction(self.out, self.size)

    def position(self, p: int) -> Fraction:
        """Return the coordinate x_p that output p samples; x = i is the centre of input i."""
        return COORDINATES[self.coord](self, p)

    @property
    def step(self) -> Fraction:
        """Return how far apart two neighbouring outputs sample."""
        return self.position(1) - self.position(0) if self.out > 1 else 1 / self.ratio

    @property
    def stretch(self) -> Fraction:
        """Return by how much the kernel is stretched: only where antialias shrinks the image."""
        return max(Fraction(1), abs(self.step)) if self.antialias else Fraction(1)

    @property
    def radius(self) -> int:
        """Return how far from x_p the kernel reaches before it is stretched."""
        return {"linear": 1, "cubic": 2}.get(self.mode, 0)

    def kernel(self, t: Fraction) -> Fraction:
        """Return the weight at distance t: a triangle, or Keys' cubic with parameter a."""
        t = abs(t)
        if self.mode == "linear":
            return max(1 - t, Fraction(0))
        a = Fraction(self.a)
        if t < 1:
            return ((a + 2) * t - (a + 3)) * t * t + 1
        return (((t - 5) * t + 8) * t - 4) * a if t < 2 else Fraction(0)

    def nearest(self, p: int) -> int:
        """Return the position that output p copies, before it is clamped to the image."""
        if self.near != "float32":
            return NEAREST[self.near](self.position(p))
        step = np.float32(1 / self.scale) if self.scale else np.float32(self.size) / self.out
        centre = np.float32(p) + np.float32(0.5 if self.coord == "half_pixel" else 0)
        return int(np.floor(centre * np.float32(step)))

    def reads(self, p: int) -> list[tuple[int, Fraction]]:
        """Return (position, weight) of what the kernel covers, also beyond the image."""
        x, stretch = self.position(p), self.stretch
        first, last = ceil(x - self.radius * stretch), floor(x + self.radius * stretch)
        if self.exclude:
            first, last = max(first, 0), min(last, self.size - 1)
        found = [(j, self.kernel((j - x) / stretch)) for j in range(first, last + 1)]
        total = sum(weight for _, weight in found) if self.antialias or self.exclude else 1
        return [(j, weight / total) for j, weight in found] if total else []

    def row(self, p: int) -> Row:
        """Return what output p reads: positions beyond the image are read at its edge."""
        if self.mode == "area":
            start, stop = AdaptiveAxis(self.size, self.out).bounds(p)
            return tuple((i, Fraction(1, stop - start)) for i in range(start, stop))
        if self.coord == "tf_crop_and_resize" and not 0 <= self.position(p) <= self.size - 1:
            return ()
        found = [(self.nearest(p), Fraction(1))] if self.mode == "nearest" else self.reads(p)
        weights: dict[int, Fraction] = {}
        for j, weight in found:
            i = min(max(j, 0), self.size - 1)
            weights[i] = weights.get(i, Fraction(0)) + weight
        return tuple((i, weight) for i, weight in weights.items() if weight)


def _half_pixel(axis: ResizeAxis, p: int) -> Fraction:
    return (p + HALF) / axis.ratio - HALF


def _half_pixel_of_many(axis: ResizeAxis, p: int) -> Fraction:
    return _half_pixel(axis, p) if axis.out > 1 else Fraction(0)


def _half_pixel_about_the_centre(axis: ResizeAxis, p: int) -> Fraction:
    """Return the position where the centres of image and output lie on each other."""
    adjustment = axis.out / (axis.ratio * axis.size)
    return Fraction(axis.size, 2) * (1 - adjustment) + _half_pixel(axis, p)


def _align_corners(axis: ResizeAxis, p: int) -> Fraction:
    return Fraction(p * (axis.size - 1), max(1, axis.out - 1))


def _asymmetric(axis: ResizeAxis, p: int) -> Fraction:
    return p / axis.ratio


def _crop(axis: ResizeAxis, p: int) -> Fraction:
    start, stop = Fraction(axis.start), Fraction(axis.stop)
    share = Fraction(p, axis.out - 1) if axis.out > 1 else HALF
    return (start + share * (stop - start)) * (axis.size - 1)


COORDINATES: dict[str, Callable[[ResizeAxis, int], Fraction]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_about_the_centre,
    "pytorch_half_pixel": _half_pixel_of_many,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_crop_and_resize": _crop,
}
NEAREST: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda x: ceil(x - HALF),
    "round_prefer_ceil": lambda x: floor(x + HALF),
    "floor": floor,
    "ceil": ceil,
}
MODES = ("linear", "nearest", "cubic", "area")


@lru_cache(maxsize=256)
def rows(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return what each output reads, by output."""
    return tuple(map(axis.row, range(axis.out)))


@lru_cache(maxsize=256)
def columns(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return which outputs read each position, and with what weight: `rows` transposed."""
    return turned(rows(axis), axis.size)


def turned(table: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """Return a table of rows as one of `size` columns."""
    found: list[list[tuple[int, Any]]] = [[] for _ in range(size)]
    for p, row in enumerate(table):
        for i, weight in row:
            found[i].append((p, weight))
    return tuple(map(tuple, found))
