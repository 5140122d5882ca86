"""A convolution as the kernels see it: lattices of windows over three axes.

Windows slide over the big side (x, or y of a transposed convolution), one for each pixel of the
small side. A gather has one lattice: window j of an axis reads, at tap r, position
``j * stride + r * dilation - lo``. A scatter is turned round: position q of the big side gets from
those taps for which ``q + lo - r * dilation`` is a multiple of the stride. Positions with the same
remainder share their taps, so that each class is a gather with step 1 of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from convref.ops import Axis, ConvProblem

UNIT = Axis(big=1, small=1, taps=1, stride=1, dilation=1, lo=0, hi=0)


class Line(NamedTuple):
    """One axis of a lattice.

    Parameters
    ----------
    count, size : int
        Windows, and positions of what they slide over.
    step : int
        Distance of windows.
    start, pace : int
        Window j belongs to position ``start + j * pace`` of the result.
    taps, shifts : tuple of int
        Filter taps in the order in which they are read, and where window 0 reads them.
    """

    count: int
    size: int
    step: int
    start: int
    pace: int
    taps: tuple[int, ...]
    shifts: tuple[int, ...]


def axes(problem: ConvProblem) -> tuple[Axis, Axis, Axis]:
    """Return the axes z, y, x of a problem; those that it lacks have one position and one tap."""
    z, y, x = (UNIT,) * (3 - problem.rank) + problem.axes
    return z, y, x


def gathered(axis: Axis) -> Line:
    """Return the lattice of windows over the big side.

    >>> gathered(Axis(big=5, small=3, taps=3, stride=2, dilation=1, lo=1, hi=1)).shifts
    (-1, 0, 1)
    """
    taps = tuple(range(axis.taps))
    shifts = tuple(r * axis.dilation - axis.lo for r in taps)
    return Line(axis.small, axis.big, axis.stride, 0, 1, taps, shifts)


def scattered(axis: Axis) -> Iterator[Line]:
    """Yield the lattices, class by class of the big side, of windows over the small side.

    >>> [line.taps for line in scattered(Axis(5, 3, taps=3, stride=2, dilation=1, lo=1, hi=1))]
    [(1,), (2, 0)]
    """
    for start in range(min(axis.stride, axis.big)):
        meets = [
            ((start + axis.lo - r * axis.dilation) // axis.stride, r)
            for r in range(axis.taps)
            if (start + axis.lo - r * axis.dilation) % axis.stride == 0
        ]
        shifts, taps = zip(*sorted(meets)) if meets else ((), ())
        count = -(-(axis.big - start) // axis.stride)
        yield Line(count, axis.small, 1, start, axis.stride, taps, shifts)


def lattices(problem: ConvProblem, scatter: bool) -> Iterator[tuple[Line, ...]]:
    """Yield (z, y, x) of each lattice whose windows make up the result."""
    if scatter:
        yield from product(*map(scattered, axes(problem)))
    else:
        yield tuple(map(gathered, axes(problem)))
