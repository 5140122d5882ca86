"""Global and shared memory of a run; every access is checked."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .numbers import Array, Undefined
from .program import CHUNK, refuse

BASE = 1 << 32  # address of the first allocation
GAP = 4096  # unmapped bytes between two allocations
NO_THREAD, SEVERAL = -1, -2
IN_FLIGHT, UNWRITTEN = 1 << 30, 1 << 30 | 1  # times later than any clock


@dataclass(frozen=True, eq=False)
class Allocation:
    """An array in global memory; a writable one receives the results after a run."""

    array: Array  # contiguous
    writable: bool = False
    offset: int = 0  # bytes from its first element to the pointer


class CheckedMemory:
    """Bytes in cells of `grain` bytes; subclasses record the accesses to each cell."""

    def __init__(self, size: int, grain: int) -> None:
        self.bytes, self.grain = np.full(size, 0xFF, np.uint8), grain

    def lines(self, size: int) -> Array:
        return self.bytes.reshape(-1, size)

    def cells(self, place: Array, size: int) -> Array:
        """Return the cells (access, cell) that accesses of `size` bytes touch."""
        return place[:, None] // self.grain + np.arange(-(-size // self.grain))


class GlobalMemory(CheckedMemory):
    """The allocations of a launch, with gaps between them.

    Blocks run in any order, so only one thread may write a cell, and no other one may read it.
    """

    thread: Array  # of each lane, in the launch

    def __init__(self, allocations: Iterable[Allocation], grain: int) -> None:
        sizes = np.array([allocation.array.nbytes for allocation in allocations], np.int64)
        spans = -(-sizes // GAP) * GAP + GAP
        super().__init__(int(spans.sum()) + GAP, grain)
        self.starts = GAP + np.cumsum(spans) - spans
        self.allocations = dict(zip(allocations, self.starts.tolist()))
        # The last end is that of addresses before the first allocation.
        self.ends = np.append(self.starts + sizes, np.iinfo(np.int64).min)
        self.writable = np.array([*(allocation.writable for allocation in allocations), False])
        self.writer, self.reader = np.full((2, len(self.bytes) // grain), NO_THREAD)
        for allocation, start in self.allocations.items():
            patterns = np.ascontiguousarray(allocation.array).view(np.uint8).ravel()
            self.bytes[start : start + len(patterns)] = patterns

    def pointer(self, value: Allocation | None) -> bytes:
        """Return the pointer of an allocation as bytes; null for None."""
        where = 0 if value is None else BASE + self.allocations[value] + value.offset
        return where.to_bytes(8, "little")

    def write_back(self) -> None:
        for allocation, start in self.allocations.items():
            if allocation.writable:
                here = self.bytes[start : start + allocation.array.nbytes]
                allocation.array[...] = here.view(allocation.array.dtype).reshape(
                    allocation.array.shape
                )

    def _places(self, text: str, address: Array, size: int) -> tuple[Array, Array]:
        """Return the offsets of accesses in `bytes`, and whether they may write there."""
        place = address.astype(np.int64) - BASE
        allocation = self.starts.searchsorted(place, "right") - 1
        refuse(place % size, text, f"an address is not a multiple of {size}")
        refuse(place + size > self.ends[allocation], text, "outside of every allocation")
        return place, self.writable[allocation]

    def load(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Undefined]:
        """Return the bytes (access, size) at addresses; all of them are defined."""
        place, writable = self._places(text, address, size)
        if writable.any():
            cells, who = self.cells(place, size), self.thread[lanes][:, None]
            writer, reader = self.writer[cells], self.reader[cells]
            refuse(_another(writer, who), text, "reads what another thread wrote")
            self.reader[cells] = reader = np.where(_another(reader, who), SEVERAL, who)
            self.reader[cells[self.reader[cells] != reader]] = SEVERAL
        return self.lines(size)[place // size], None

    def store(self, text: str, address: Array, value: Array, lanes: Array) -> None:
        value = _bytes(value)
        place, writable = self._places(text, address, size := value.shape[1])
        refuse(~writable, text, "writes to an operand")
        cells, who = self.cells(place, size), self.thread[lanes][:, None]
        other, self.writer[cells] = _another(self.writer[cells], who), who
        refuse(other | (self.writer[cells] != who), text, "two threads write to one address")
        refuse(_another(self.reader[cells], who), text, "writes what another thread read")
        self.lines(size)[place // size] = value


class SharedMemory(CheckedMemory):
    """The shared memory of some blocks, and a vector clock per warp that detects races.

    A warp increments its own entry when it releases its accesses to others (barriers, arrivals). A
    row of `clock` has an entry for each warp of the block, and a last one for the copy engine. An
    access races with an earlier one that is later than the clock of its warp. Threads of a warp are
    assumed to run together.
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
        self.written, self.writer = np.full(cells, UNWRITTEN, np.int32), np.zeros(cells, np.int16)
        self.read = np.zeros((self.width, cells), np.int32)
        self.copies = 0  # of the copy engine, completed
        self.unfenced = np.zeros(cells, bool)  # written by threads without a proxy fence since

    def tick(self, warps: Array) -> None:
        """Make the next accesses of these warps later than those that they have released."""
        self.clock[warps, warps % self.width] += 1

    def column(self, lanes: Array) -> Array:
        return (self.warp[lanes] % self.width)[:, None]

    def now(self, lanes: Array) -> Array:
        """Return the own clock entries (lane, 1) of the warps of some lanes."""
        return self.clock[self.warp[lanes][:, None], self.column(lanes)]

    def synchronize(self, warps: Array, starts: Array) -> None:
        """Synchronize the warps of each group; groups begin at `starts`."""
        all_seen = np.maximum.reduceat(self.clock[warps], starts, axis=0)
        self.clock[warps] = np.repeat(all_seen, np.diff(starts, append=len(warps)), axis=0)
        self.tick(warps)

    def fence(self, lanes: Array) -> None:
        """Order the writes that these warps have seen before later asynchronous accesses."""
        cells = np.flatnonzero(self.unfenced)
        for warp in np.unique(self.warp[lanes]):
            mine = cells[cells * self.grain // self.size == warp // self.width]
            seen = self.clock[warp][self.writer[mine]] >= self.written[mine]
            self.unfenced[mine[seen]] = False

    def places(self, text: str, address: Array, size: int, lanes: Array) -> Array:
        """Return the offsets in `bytes` of accesses by lanes."""
        outside = (address < 0) | (address.astype(np.int64) > self.size - size)
        refuse(outside, text, "outside of shared memory")
        refuse(address % size, text, f"an address is not a multiple of {size}")
        return address.astype(np.int64) + self.block[lanes] * self.size

    def look(
        self, text: str, cells: Array, lanes: Array, write: bool, same: Any = False
    ) -> Undefined:
        """Raise a Fault if an access to cells (lane, cell) races with an earlier one.

        Two warps may write the `same` value. Return a mask of unwritten cells, None for none.
        """
        view, written, fresh = self.clock[self.warp[lanes]], self.written[cells], None
        unseen = view[np.arange(len(lanes))[:, None], self.writer[cells]] < written
        if unseen.any():
            refuse(written == IN_FLIGHT, text, "an asynchronous copy has not been waited for")
            fresh = written == UNWRITTEN
            differs = unseen & ~fresh & np.logical_not(same)
            refuse(differs, text, "race, another warp wrote there since the last barrier")
        if write:
            read = self.read[:, cells]
            unseen = read > view.T[: self.width, :, None]
            refuse(unseen & (read == IN_FLIGHT), text, "race, asynchronous work still reads there")
            refuse(unseen, text, "race, another warp read there since the last barrier")
        return fresh

    def load(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Undefined]:
        """Return the bytes (access, size) at addresses, and a mask of undefined ones."""
        place = self.places(text, address, size, lanes)
        cells = self.cells(place, size)
        undefined = self.look(text, cells, lanes, False)
        self.read[self.column(lanes), cells] = self.now(lanes)
        if undefined is not None:
            undefined = np.repeat(undefined, size // cells.shape[1], 1) * np.uint8(0xFF)
        return self.lines(size)[place // size], undefined

    def store(self, text: str, address: Array, value: Array, lanes: Array) -> None:
        value = _bytes(value)
        place = self.places(text, address, size := value.shape[1], lanes)
        lines, line, cells = self.lines(size), place // size, self.cells(place, size)
        same = (lines[line] == value).reshape(*cells.shape, -1).all(-1)
        self.look(text, cells, lanes, True, same)
        self.written[cells], self.writer[cells] = self.now(lanes), self.column(lanes)
        self.unfenced[cells] = True
        lines[line] = value
        refuse(lines[line] != value, text, "race, two threads write to one address")


def _another(owner: Array, who: Array) -> Array:
    return (owner != NO_THREAD) & (owner != who)


def _bytes(value: Array) -> Array:
    return np.ascontiguousarray(value).view(np.uint8).reshape(len(value), -1)
