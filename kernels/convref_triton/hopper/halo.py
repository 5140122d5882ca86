"""Boxes of pixels with a halo: blocks that the taps along one axis share.

The shared axis is the outermost one of a box, images among the others: a line has 8 pixels or more,
after which the pattern repeats in which tensor maps scatter rows over the banks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from ..common.geometry import Four, Geometry
from ..conv.tma import in_boxes

LEAST_LINE = 8  # pixels
EDGES = (1, 2, 4, 8, 16, 32)  # of boxes, along axes other than the shared one
FARTHEST = 256  # pixels, that a map's box reaches over
SCRATCH = 18 * 1024  # bytes, at most, for what a group stores and for barriers


class Sharing(NamedTuple):
    """Which axis is shared, and the boxes that are cut along it.

    Parameters
    ----------
    order : tuple of 4 int
        Axes of (n, d, h, w): the shared one, those that the rank lacks, the others.
    box : tuple of 4 int
        Pixels along each of them.
    taps, apart : int
        Of the shared axis, and how many lines lie between two.
    """

    order: Four
    box: Four
    taps: int
    apart: int

    def turned(self, values: Sequence[int]) -> Four:
        """Return what stands for (n, d, h, w) in the order of the axes."""
        n, d, h, w = (values[axis] for axis in self.order)
        return n, d, h, w

    @property
    def natural(self) -> Four:
        """Return the box along (n, d, h, w)."""
        n, d, h, w = (self.box[self.order.index(axis)] for axis in range(4))
        return n, d, h, w

    @property
    def halo(self) -> int:
        """Return the lines of a block."""
        return self.box[0] + (self.taps - 1) * self.apart

    @property
    def copied(self) -> int:
        """Return the lines of a copy: blocks of maps have sizes that are powers of two."""
        return self.halo & -self.halo

    @property
    def pixels(self) -> int:
        """Return the pixels of a block."""
        return self.halo * prod(self.box[1:])

    def boxes(self, pixels: Sequence[int]) -> Four:
        """Return how many boxes cover pixels (n, d, h, w), in the order of the axes."""
        return in_boxes(self.turned(pixels), self.box)

    def cost(self, pixels: Sequence[int]) -> int:
        """Return what all boxes multiply and load, in rows of channels."""
        return prod(self.boxes(pixels)) * (prod(self.box) * self.taps + self.pixels)


def sharings(geometry: Geometry, size: int) -> Iterator[Sharing]:
    """Yield the boxes of `size` pixels of which an axis has taps that can share blocks."""
    stride, used = (1, *geometry.stride), (0, *range(4 - geometry.rank, 4))
    for axis in used[1:]:
        taps, apart = geometry.filter[axis - 1], geometry.dilation[axis - 1]
        others = [one for one in used if one != axis]
        order = (axis, *(one for one in range(4) if one not in used), *others)
        if taps == 1 or stride[axis] > 1:
            continue
        for edges in product(EDGES, repeat=len(others)):
            first, rest = divmod(size, prod(edges))
            far = max((edge - 1) * stride[one] for edge, one in zip(edges, others))
            if rest == 0 and first > apart and prod(edges) >= LEAST_LINE and far < FARTHEST:
                yield Sharing(order, (first, *(1,) * (3 - len(others)), *edges), taps, apart)
