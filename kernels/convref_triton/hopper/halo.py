"""Boxes of pixels with a halo: blocks that the taps along one axis share.

The shared axis is the outermost one of a box. The others, images among them, make lines of 8 pixels
or more, because the 128-byte swizzle of shared memory repeats every 8 rows.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from ..common.geometry import Four, Geometry
from ..conv.tma import in_boxes
from ..plan import archs
from ..plan.task import Task
from ..plan.tile import Tile
from . import ring

MIN_LINE = 8  # pixels
EDGES = (1, 2, 4, 8, 16, 32)  # of boxes, along axes other than the shared one
MAX_SPAN = 256  # pixels, from the first to the last of a box
SCRATCH = 18 * 1024  # bytes, at most, for epilogue and barriers
TRANSPOSE = 18 * 1024  # bytes, for an accumulator that is transposed before it is stored
MAX_BLOCKS = 4  # of x


class Sharing(NamedTuple):
    """Boxes of pixels and the axis along which their taps share blocks."""

    order: Four  # axes of (n, d, h, w): the shared one, those beyond the rank, the others
    box: Four  # pixels along each of them
    # Of the shared axis, and their distance in lines.
    taps: int
    apart: int

    def ordered(self, values: Sequence[int]) -> Four:
        """Return values of (n, d, h, w) in the order of the axes."""
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
        """Return the lines of a copy: boxes of tensor maps have powers of two of them."""
        return self.halo & -self.halo

    @property
    def pixels(self) -> int:
        return self.halo * prod(self.box[1:])

    def boxes(self, pixels: Sequence[int]) -> Four:
        return in_boxes(self.ordered(pixels), self.box)

    def cost(self, pixels: Sequence[int]) -> int:
        return prod(self.boxes(pixels)) * (prod(self.box) * self.taps + self.pixels)


def sharings(geometry: Geometry, size: int) -> Iterator[Sharing]:
    """Yield the boxes of `size` pixels along an axis whose taps can share blocks."""
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
            if rest == 0 and first > apart and prod(edges) >= MIN_LINE and far < MAX_SPAN:
                yield Sharing(order, (first, *(1,) * (3 - len(others)), *edges), taps, apart)


class Room(NamedTuple):
    """How many blocks fit into shared memory."""

    blocks: int  # of x
    stages: int  # of w, for each tap


def cut(task: Task, tile: Tile) -> tuple[Sharing, Room]:
    """Return the boxes with which a result takes the fewest products and loads."""
    return min(cuts(task, tile), key=lambda found: found[0].cost(task.written))


def cuts(task: Task, tile: Tile) -> Iterator[tuple[Sharing, Room]]:
    """Yield the boxes of a tile of `gluon_halo` that fit into shared memory."""
    for shared in sharings(task.geometry, tile.bm):
        shares = shared.box[0] % ring.readers(tile.bm, tile.bn) == 0
        room = _room(shared, tile, archs.shared(task.arch))
        if shares and room and shared.halo <= MAX_SPAN:
            yield shared, room


def _room(shared: Sharing, tile: Tile, most: int) -> Room | None:
    """Return the most stages that leave room for two blocks of x; None if there are none."""
    free = most - SCRATCH - (TRANSPOSE if tile.bm > tile.bn else 0)
    line = tile.bk * 2  # bytes of a row of channels
    for stages in (n for n in (4, 2, 1) if n <= tile.stages):
        blocks = (free - stages * shared.taps * tile.bn * line) // (shared.pixels * line)
        if blocks > 1:
            return Room(min(blocks, MAX_BLOCKS), stages)
    return None
