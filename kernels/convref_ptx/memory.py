"""Global and shared memory of a run: every access is checked before it happens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .numbers import Array, Lacks
from .program import CHUNK, refuse

BASE = 1 << 32  # address of the first buffer
GAP = 4096  # bytes of nothing between two buffers
NOBODY, MANY = -1, -2  # no thread; more than one
BUSY, NEVER = 1 << 30, 1 << 30 | 1  # later than every clock: not waited for; nobody wrote there


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array in global memory; its bytes are written back after a run where it is writable.

    Parameters
    ----------
    array : ndarray
        Contiguous.
    writable : bool
    offset : int
        Bytes from its start to where the pointer points.
    """

    array: Array
    writable: bool = False
    offset: int = 0


class Memory:
    """Bytes, in cells of `grain` of which subclasses keep who has touched them."""

    def __init__(self, size: int, grain: int) -> None:
        self.bytes, self.grain = np.full(size, 0xFF, np.uint8), grain

    def lines(self, size: int) -> Array:
        """Return the bytes, `size` in each line."""
        return self.bytes.reshape(-1, size)

    def cells(self, place: Array, size: int) -> Array:
        """Return the cells (access, cell) that accesses of `size` bytes touch."""
        return place[:, None] // self.grain + np.arange(-(-size // self.grain))


class Global(Memory):
    """The buffers of a launch, far apart.

    A cell may be written by one thread only, and then read by that one only, before and after:
    blocks run in any order.
    """

    thread: Array  # of each lane, among all of a launch

    def __init__(self, buffers: Iterable[Buffer], grain: int) -> None:
        sizes = np.array([buffer.array.nbytes for buffer in buffers], np.int64)
        spans = -(-sizes // GAP) * GAP + GAP
        super().__init__(int(spans.sum()) + GAP, grain)
        self.starts = GAP + np.cumsum(spans) - spans
        self.buffers = dict(zip(buffers, self.starts.tolist()))
        self.ends = np.append(self.starts + sizes, np.iinfo(np.int64).min)  # last: what lies before
        self.writable = np.array([*(buffer.writable for buffer in buffers), False])
        self.writer, self.reader = np.full((2, len(self.bytes) // grain), NOBODY)
        for buffer, start in self.buffers.items():
            patterns = np.ascontiguousarray(buffer.array).view(np.uint8).ravel()
            self.bytes[start : start + len(patterns)] = patterns

    def pointer(self, value: Buffer | None) -> bytes:
        """Return the address of where a buffer points, packed; null for none."""
        where = 0 if value is None else BASE + self.buffers[value] + value.offset
        return where.to_bytes(8, "little")

    def write_back(self) -> None:
        """Copy the writable buffers into their arrays."""
        for buffer, start in self.buffers.items():
            if buffer.writable:
                here = self.bytes[start : start + buffer.array.nbytes]
                buffer.array[...] = here.view(buffer.array.dtype).reshape(buffer.array.shape)

    def _places(self, text: str, address: Array, size: int) -> tuple[Array, Array]:
        """Return where accesses lie in `bytes`, and in writable buffers or not."""
        place = address.astype(np.int64) - BASE
        buffer = self.starts.searchsorted(place, "right") - 1
        refuse(place % size, text, f"an address is no multiple of {size}")
        refuse(place + size > self.ends[buffer], text, "outside of every buffer")
        return place, self.writable[buffer]

    def load(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Lacks]:
        """Return the bytes (access, size) that stand at addresses; all of them are defined."""
        place, writable = self._places(text, address, size)
        if writable.any():
            cells, who = self.cells(place, size), self.thread[lanes][:, None]
            writer, reader = self.writer[cells], self.reader[cells]
            refuse(_another(writer, who), text, "reads what another thread wrote")
            self.reader[cells] = reader = np.where(_another(reader, who), MANY, who)
            self.reader[cells[self.reader[cells] != reader]] = MANY
        return self.lines(size)[place // size], None

    def store(self, text: str, address: Array, value: Array, lanes: Array) -> None:
        """Write patterns, of one or several numbers each, to addresses."""
        value = _bytes(value)
        place, writable = self._places(text, address, size := value.shape[1])
        refuse(~writable, text, "writes to an operand")
        cells, who = self.cells(place, size), self.thread[lanes][:, None]
        other, self.writer[cells] = _another(self.writer[cells], who), who
        refuse(other | (self.writer[cells] != who), text, "two threads write to one place")
        refuse(_another(self.reader[cells], who), text, "writes what another thread read")
        self.lines(size)[place // size] = value


class Shared(Memory):
    """The shared memory of some blocks; of each warp a clock that says what it has seen.

    A warp counts what it releases to others (barriers, arrivals). A row of `clock` has a column for
    each warp of its block, up to where it has been seen, and a last one for copies of the engine.
    Who touches what was touched later than it has seen races. Threads of a warp are taken to run
    together.
    """

    def __init__(self, size: int, block: Array, warp: Array, grain: int) -> None:
        self.size = -(-max(size, CHUNK) // CHUNK) * CHUNK
        self.block, self.warp = block, warp  # of each lane
        blocks, warps = int(block[-1]) + 1, int(warp[-1]) + 1
        super().__init__(blocks * self.size, grain)
        self.width = warps // blocks
        self.clock = np.zeros((warps, self.width + 1), np.int32)
        self.tick(np.arange(warps))
        cells = blocks * self.size // grain
        self.written, self.writer = np.full(cells, NEVER, np.int32), np.zeros(cells, np.int16)
        self.read = np.zeros((self.width, cells), np.int32)
        self.copies = 0  # of the engine, that are over
        self.unfenced = np.zeros(cells, bool)  # written by threads, not yet shown to the engine

    def tick(self, warps: Array) -> None:
        """Let what these warps do from now on be later than what they have released."""
        self.clock[warps, warps % self.width] += 1

    def column(self, lanes: Array) -> Array:
        """Return the columns (lane, 1) of the warps of some lanes."""
        return (self.warp[lanes] % self.width)[:, None]

    def now(self, lanes: Array) -> Array:
        """Return how far the warps of some lanes (lane, 1) have counted."""
        return self.clock[self.warp[lanes][:, None], self.column(lanes)]

    def meet(self, warps: Array, starts: Array) -> None:
        """Let warps see each other that lie between two starts."""
        all_seen = np.maximum.reduceat(self.clock[warps], starts, axis=0)
        self.clock[warps] = np.repeat(all_seen, np.diff(starts, append=len(warps)), axis=0)
        self.tick(warps)

    def fence(self, lanes: Array) -> None:
        """Show the engine what threads wrote, as far as these warps have seen it."""
        cells = np.flatnonzero(self.unfenced)
        for warp in np.unique(self.warp[lanes]):
            mine = cells[cells * self.grain // self.size == warp // self.width]
            seen = self.clock[warp][self.writer[mine]] >= self.written[mine]
            self.unfenced[mine[seen]] = False

    def places(self, text: str, address: Array, size: int, lanes: Array) -> Array:
        """Return the places in `bytes` of accesses by lanes."""
        outside = (address < 0) | (address.astype(np.int64) > self.size - size)
        refuse(outside, text, "outside of shared memory")
        refuse(address % size, text, f"an address is no multiple of {size}")
        return address.astype(np.int64) + self.block[lanes] * self.size

    def look(self, text: str, cells: Array, lanes: Array, write: bool, same: Any = False) -> Lacks:
        """Stop where cells (lane, cell) are touched that another has touched unseen.

        Two may write what is the `same`. Return where nobody ever wrote, None for nowhere.
        """
        view, written, fresh = self.clock[self.warp[lanes]], self.written[cells], None
        unseen = view[np.arange(len(lanes))[:, None], self.writer[cells]] < written
        if unseen.any():
            refuse(written == BUSY, text, "an asynchronous copy has not been waited for")
            fresh = written == NEVER
            differs = unseen & ~fresh & np.logical_not(same)
            refuse(differs, text, "race, another warp wrote there since the last barrier")
        if write:
            read = self.read[:, cells]
            unseen = read > view.T[: self.width, :, None]
            refuse(unseen & (read == BUSY), text, "race, it is still read there asynchronously")
            refuse(unseen, text, "race, another warp read there since the last barrier")
        return fresh

    def load(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Lacks]:
        """Return the bytes (access, size) that stand at addresses, and what they lack."""
        place = self.places(text, address, size, lanes)
        cells = self.cells(place, size)
        lacks = self.look(text, cells, lanes, False)
        self.read[self.column(lanes), cells] = self.now(lanes)
        if lacks is not None:
            lacks = np.repeat(lacks, size // cells.shape[1], 1) * np.uint8(0xFF)
        return self.lines(size)[place // size], lacks

    def store(self, text: str, address: Array, value: Array, lanes: Array) -> None:
        """Write patterns, of one or several numbers each, to addresses."""
        value = _bytes(value)
        place = self.places(text, address, size := value.shape[1], lanes)
        lines, line, cells = self.lines(size), place // size, self.cells(place, size)
        same = (lines[line] == value).reshape(*cells.shape, -1).all(-1)
        self.look(text, cells, lanes, True, same)
        self.written[cells], self.writer[cells] = self.now(lanes), self.column(lanes)
        self.unfenced[cells] = True
        lines[line] = value
        refuse(lines[line] != value, text, "race, two threads write to one place")


def _another(owner: Array, who: Array) -> Array:
    """Return where cells belong to somebody else."""
    return (owner != NOBODY) & (owner != who)


def _bytes(value: Array) -> Array:
    """Return the bytes (access, byte) of patterns."""
    return np.ascontiguousarray(value).view(np.uint8).reshape(len(value), -1)
