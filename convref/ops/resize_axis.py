"""Where one axis of a resize samples its input, and with what weights: exactly, in Fractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..errors import invalid

HALF = Fraction(1, 2)
EXACT = 2**53  # integers below are exact in float64 and in int64
Row = tuple[tuple[int, Fraction], ...]  # (position, weight) of each element of an output


class ResizeAxis(NamedTuple):
    """One spatial axis that is resized from `size` to `out` elements; the rest as in the problem.

    `scale` is 0 where it follows from the sizes; `start` and `stop` frame the sampled part.
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
    moved: tuple[tuple[int, int], ...] = ()  # (output, by how many elements): see judge.ties

    @property
    def ratio(self) -> Fraction:
        """Return the number of outputs per input."""
        return Fraction(self.scale) if self.scale else Fraction(self.out, self.size)

    def position(self, p: int) -> Fraction:
        """Return the coordinate x_p that output p samples; x = i is the centre of input i."""
        return COORDINATES[self.coord](self, p)

    @property
    def step(self) -> Fraction:
        """Return the distance of two neighbouring outputs in the input."""
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


def _half_pixel(axis: ResizeAxis, p: int) -> Fraction:
    return (p + HALF) / axis.ratio - HALF


def _half_pixel_about_the_centre(axis: ResizeAxis, p: int) -> Fraction:
    """Return the position where the centres of image and output coincide."""
    adjustment = axis.out / (axis.ratio * axis.size)
    return Fraction(axis.size, 2) * (1 - adjustment) + _half_pixel(axis, p)


def _crop(axis: ResizeAxis, p: int) -> Fraction:
    start, stop = Fraction(axis.start), Fraction(axis.stop)
    share = Fraction(p, axis.out - 1) if axis.out > 1 else HALF
    return (start + share * (stop - start)) * (axis.size - 1)


COORDINATES: dict[str, Callable[[ResizeAxis, int], Fraction]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_about_the_centre,
    "pytorch_half_pixel": lambda a, p: _half_pixel(a, p) if a.out > 1 else Fraction(0),
    "align_corners": lambda a, p: Fraction(p * (a.size - 1), max(1, a.out - 1)),
    "asymmetric": lambda a, p: p / a.ratio,
    "tf_crop_and_resize": _crop,
}
# The element nearest to x / d, of integers; arrays of them too.
NEAREST: dict[str, Callable[[Any, Any], Any]] = {
    "round_prefer_floor": lambda x, d: -((d - 2 * x) // (2 * d)),
    "round_prefer_ceil": lambda x, d: (2 * x + d) // (2 * d),
    "floor": lambda x, d: x // d,
    "ceil": lambda x, d: -(-x // d),
}
MODES = ("linear", "nearest", "cubic", "area")


class Entries(NamedTuple):
    """The weights of one axis: `output` k reads `position` k with the weight number / over.

    Sorted by output, of which there are `outputs`; positions of weight 0 have no entry.
    Integers are exact, and Python's own (dtype object) where 53 bits are too few.
    """

    outputs: int
    inputs: int
    output: Array
    position: Array
    number: Array
    over: Array

    def transposed(self) -> Entries:
        """Return the same weights by position: which outputs read each of them."""
        order = np.argsort(self.position, kind="stable")
        columns = (a[order] for a in (self.position, self.output, self.number, self.over))
        return Entries(self.inputs, self.outputs, *columns)

    @property
    def rank(self) -> Array:
        """Return, for each entry, how many entries of its output come before it."""
        return np.arange(len(self.output)) - np.searchsorted(self.output, self.output)

    def rows(self) -> tuple[Row, ...]:
        """Return the (position, weight) that each output reads, as a tuple of tuples."""
        found: list[list[tuple[int, Fraction]]] = [[] for _ in range(self.outputs)]
        columns = (a.tolist() for a in (self.output, self.position, self.number, self.over))
        for p, i, number, over in zip(*columns):
            found[p].append((i, Fraction(number) / Fraction(over)))
        return tuple(map(tuple, found))


@lru_cache(maxsize=64)
def entries(axis: ResizeAxis) -> Entries:
    """Return the weights of an axis; positions beyond the image are read at its edge."""
    reads = _OF_MODE.get(axis.mode, _neighbours)(axis)
    last = axis.size - 1
    position = np.clip(reads.position, 0, last)
    number, over = reads.number, np.broadcast_to(reads.over, reads.number.shape)
    same = position[:, 1:] == position[:, :-1]  # the edge is read once, with all its weights
    for k in reversed(np.flatnonzero(same.any(0))):
        number[:, k] += np.where(same[:, k], number[:, k + 1], 0)
        number[:, k + 1] = np.where(same[:, k], 0, number[:, k + 1])
    number[outside(axis)] = 0
    output, tap = np.nonzero(number)
    listed = (a[output, tap] for a in (position, number, over))
    return Entries(axis.out, axis.size, output, *listed)


@lru_cache(maxsize=64)
def fixed_point(axis: ResizeAxis) -> tuple[int, Entries]:
    """Return (p, weights): weights as integers over 2^p, rounded to nearest, halves away from 0.

    p is the most of up to 22 bits for which the largest weight is below 2^15.
    """
    found, bits = entries(axis), 22
    size, over = abs(found.number).astype(object), found.over.astype(object)
    largest = np.argmax(size / over) if len(size) else slice(0)

    def scaled(at: Any) -> Any:
        return (size[at] * 2 ** (bits + 1) + over[at]) // (2 * over[at])

    while np.any(scaled(largest) >= 2**15):
        bits -= 1
        if bits < 0:
            weight = float(size[largest] / over[largest])
            raise invalid("resize", f"uint8 has a weight of {weight:g}, needs less than 2**15")
    number = (np.sign(found.number) * scaled(slice(None))).astype(np.int64)
    return bits, found._replace(number=number, over=np.ones_like(number))


@lru_cache(maxsize=64)
def columns(axis: ResizeAxis) -> Entries:
    """Return the weights of an axis by position."""
    return entries(axis).transposed()


@lru_cache(maxsize=256)
def rows(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return the positions and weights of each output."""
    return entries(axis).rows()


def reads(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return the positions that the kernel of each output covers, those beyond the image too."""
    window = _OF_MODE.get(axis.mode, _neighbours)(axis)
    output, tap = np.nonzero(window.number)
    listed = (a[output, tap] for a in np.broadcast_arrays(*window))
    return Entries(axis.out, axis.size, output, *listed).rows()


class _Window(NamedTuple):
    """Positions, also beyond the image, and weights per output (rows) and tap (columns)."""

    position: Array  # (out, taps) of int64
    number: Array  # (out, taps)
    over: Array  # (out, 1)


def positions(axis: ResizeAxis) -> tuple[Array, int]:
    """Return integers (x, d): output p samples x[p] / d. Every coordinate is affine in p."""
    first = axis.position(0)
    step = axis.position(1) - first if axis.out > 1 else Fraction(0)
    d = lcm(first.denominator, step.denominator)
    a, b = int(step * d), int(first * d)
    kind = _dtype(2 * (abs(a) * axis.out + abs(b) + axis.size * d))
    return np.arange(axis.out).astype(kind) * a + b, d


def outside(axis: ResizeAxis) -> Array:
    """Return which outputs sample beyond the image and read nothing of it."""
    x, d = positions(axis)
    cropped = axis.coord == "tf_crop_and_resize" and axis.mode != "area"
    found: Array = (x < 0) | (x > (axis.size - 1) * d) if cropped else np.zeros(axis.out)
    return found.astype(bool)


def _dtype(largest: int) -> Any:
    return np.int64 if largest < EXACT else object


def _nearest(axis: ResizeAxis) -> _Window:
    if axis.near == "float32":
        step = np.float32(1 / axis.scale) if axis.scale else np.float32(axis.size) / axis.out
        centre = np.arange(axis.out, dtype=np.float32)
        centre += np.float32(0.5 if axis.coord == "half_pixel" else 0)
        found = np.floor(centre * np.float32(step))
    else:
        found = NEAREST[axis.near](*positions(axis))
        for output, steps in axis.moved:
            found[output] += steps
    ones = np.ones((axis.out, 1), np.int64)
    return _Window(found.astype(np.int64)[:, None], ones, ones.copy())


def _areas(axis: ResizeAxis) -> _Window:
    p = np.arange(axis.out).astype(_dtype(axis.size * (axis.out + 1)))
    start, stop = p * axis.size // axis.out, -(-(p + 1) * axis.size // axis.out)
    over = (stop - start).astype(np.int64)[:, None]
    tap = np.arange(over.max())
    return _Window(start.astype(np.int64)[:, None] + tap, (tap < over).astype(np.int64), over)


def _neighbours(axis: ResizeAxis) -> _Window:
    """Return the taps of the linear or the cubic kernel: its numbers over one denominator."""
    x, d = positions(axis)
    stretch, radius = axis.stretch, axis.radius
    wide, unit = stretch.numerator * d, stretch.denominator  # t = (j d - x) unit / wide
    a = Fraction(axis.a)
    size = 3 * (radius * wide + 2 * d * unit)  # above any distance
    terms = 4 * (abs(a.numerator) + 4 * a.denominator) * size**3 if radius == 2 else size
    taps = 2 * radius * wide // (d * unit) + 2
    kind = _dtype(max(terms * taps, (int(abs(x).max()) + size) * unit * 2))
    x = x.astype(kind)
    first = -((radius * wide - x * unit) // (d * unit))
    last = (radius * wide + x * unit) // (d * unit)
    if axis.exclude:
        first, last = np.maximum(first, 0), np.minimum(last, axis.size - 1)
    first, last = first.astype(np.int64)[:, None], last.astype(np.int64)[:, None]
    position = first + np.arange(max(0, int((last - first).max()) + 1))
    t = abs(position.astype(kind) * d - x[:, None]) * unit
    number, over = _kernel(axis.mode, t, wide, a)
    number = np.where(position <= last, number, 0)
    total = np.full((axis.out, 1), over, kind)
    if axis.antialias or axis.exclude:
        total = number.sum(1, keepdims=True)
        number, total = np.where(total == 0, 0, number), np.where(total == 0, 1, total)
    return _Window(position, number, total)


def _kernel(mode: str, t: Array, e: int, a: Fraction) -> tuple[Array, int]:
    """Return (number, over) of the kernel's value at distances t / e."""
    if mode == "linear":
        return np.maximum(e - t, 0), e
    n, d = a.numerator, a.denominator
    inner = ((n + 2 * d) * t - (n + 3 * d) * e) * t * t + d * e**3
    outer = n * (((t - 5 * e) * t + 8 * e * e) * t - 4 * e**3)
    return np.where(t < e, inner, np.where(t < 2 * e, outer, 0)), d * e**3


_OF_MODE = {"nearest": _nearest, "area": _areas}


def table_entries(table: Sequence[Sequence[tuple[int, Any]]], inputs: int) -> Entries:
    """Return rows of (position, weight) as entries.

    >>> table_entries([[(0, 0.5), (1, 0.5)], []], 2).position
    array([0, 1])
    """
    lengths = [len(row) for row in table]
    flat = [pair for row in table for pair in row]
    output = np.repeat(np.arange(len(table)), lengths)
    weights = np.array([w for _, w in flat], object if flat and _is_exact(flat[0][1]) else float)
    ones = np.ones(len(flat), np.int64)
    return Entries(
        len(table), inputs, output, np.array([i for i, _ in flat], np.int64), weights, ones
    )


def _is_exact(weight: Any) -> bool:
    return isinstance(weight, Fraction)
