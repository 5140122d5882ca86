"""Both sides of a race: the launch runs again, and what accesses one cell of memory is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..arithmetic.numbers import Array

ANY, ANOTHER = -1, -2  # of blocks and warps: any one; any block but that of the reported access


class Conflict(NamedTuple):
    """An access that is reported, and what is known of the one that it races with."""

    shared: bool  # the cell is one of shared memory, else of global memory
    cell: int
    thread: tuple[int, int]  # of the reported access: the batch of blocks, and its lane there
    writes: bool  # whether the other access does
    block: int  # of the other access
    warp: int  # of the other access, in its block


class Access(NamedTuple):
    """An access to the cell of a Conflict."""

    thread: tuple[int, int]
    writes: bool
    block: int
    warp: int
    text: str  # the instruction
    place: str  # line of the source, program, warp and lane


@dataclass
class Watch:
    """The accesses to the cell of a conflict, in the order in which they run."""

    conflict: Conflict
    seen: list[Access] = field(default_factory=list)

    def hits(self, cells: Array) -> Array:
        """Return the rows of accesses (lane, cell) that touch the cell."""
        return np.flatnonzero((cells == self.conflict.cell).any(1))

    def parties(self) -> tuple[Access | None, Access | None]:
        """Return the reported access and the latest one that it races with, if they were seen."""
        latest, thread = self.seen[::-1], self.conflict.thread
        own = next((access for access in latest if access.thread == thread), None)
        return own, next((access for access in latest if self._races(access, own)), None)

    def _races(self, access: Access, own: Access | None) -> bool:
        _, _, thread, writes, block, warp = self.conflict
        if access.thread == thread or access.writes != writes or warp not in (ANY, access.warp):
            return False
        if block == ANOTHER:
            return own is None or access.block != own.block
        return block in (ANY, access.block)
