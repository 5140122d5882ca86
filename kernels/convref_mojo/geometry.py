"""A convolution as lattices of windows over three axes.

Windows slide over the big side (x, or y of a transposed convolution), one for each pixel of the
small side. A gather has one lattice: window j of an axis reads, at tap r, position
``j * stride + r * dilation - lo``. A scatter is computed as several gathers: position q of the big
side sums the taps for which ``q + lo - r * dilation`` is a multiple of the stride. Positions that
are equal modulo the stride have the same taps, so each such class is a gather with step 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from convref.ops import Axis, ConvProblem

UNIT = Axis(big=1, small=1, taps=1, stride=1, dilation=1, lo=0, hi=0)


class AxisWindows(NamedTuple):
    """The windows of a lattice along one axis.

    Parameters
    ----------
    count, size : int
        Windows, and positions of the axis that they slide over.
    step : int
        Positions from one window to the next.
    result_start, result_step : int
        Window j computes position ``result_start + j * result_step`` of the result.
    taps, shifts : tuple of int
        Filter taps in the order in which they are read, and their positions in window 0.
    """

    count: int
    size: int
    step: int
    result_start: int
    result_step: int
    taps: tuple[int, ...]
    shifts: tuple[int, ...]


Lattice = tuple[AxisWindows, ...]  # of z, y, x


def axes(problem: ConvProblem) -> tuple[Axis, Axis, Axis]:
    """Return the axes z, y, x of a problem; missing ones have one position and one tap."""
    z, y, x = (UNIT,) * (3 - problem.rank) + problem.axes
    return z, y, x


def gathered(axis: Axis) -> AxisWindows:
    """Return the lattice of windows over the big side.

    >>> gathered(Axis(big=5, small=3, taps=3, stride=2, dilation=1, lo=1, hi=1)).shifts
    (-1, 0, 1)
    """
    taps = tuple(range(axis.taps))
    shifts = tuple(r * axis.dilation - axis.lo for r in taps)
    return AxisWindows(axis.small, axis.big, axis.stride, 0, 1, taps, shifts)


def scattered(axis: Axis) -> Iterator[AxisWindows]:
    """Yield windows over the small side, one lattice per class of the big side modulo the stride.

    >>> [each.taps for each in scattered(Axis(5, 3, taps=3, stride=2, dilation=1, lo=1, hi=1))]
    [(1,), (2, 0)]
    """
    for start in range(min(axis.stride, axis.big)):
        shifts_and_taps = [
            ((start + axis.lo - r * axis.dilation) // axis.stride, r)
            for r in range(axis.taps)
            if (start + axis.lo - r * axis.dilation) % axis.stride == 0
        ]
        shifts, taps = zip(*sorted(shifts_and_taps)) if shifts_and_taps else ((), ())
        count = -(-(axis.big - start) // axis.stride)
        yield AxisWindows(count, axis.small, 1, start, axis.stride, taps, shifts)


def lattices(problem: ConvProblem, scatter: bool) -> Iterator[Lattice]:
    """Yield the axes (z, y, x) of each lattice; their windows together make up the result."""
    if scatter:
        yield from product(*map(scattered, axes(problem)))
    else:
        yield tuple(map(gathered, axes(problem)))
