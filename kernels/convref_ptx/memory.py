"""Global and shared memory of a run: every access is checked before it happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .program import refuse

Array = np.ndarray[Any, Any]
BASE = 1 << 32  # address of the first buffer
GAP = 4096  # bytes of nothing between two buffers
NOBODY = -1
BUSY = 1 << 30  # later than every clock: asynchronous, and not waited for


@dataclass(frozen=True)
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


class Global:
    """The buffers of a launch, far apart.

    A cell may be written by one thread only, and what one wrote no other may read: blocks run in
    any order. Atomic additions are free of this.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers, self.addresses, top = buffers, [], GAP
        for buffer in buffers:
            self.addresses.append(BASE + top)
            top += -(-buffer.array.nbytes // GAP) * GAP + GAP
        self.bytes = np.full(top, 0xFF, np.uint8)
        self.region = np.zeros(top, np.int16)  # 0 is nowhere
        self.owner = np.full(top, NOBODY, np.int64)
        self.writable = np.array([False] + [buffer.writable for buffer in buffers])
        for i, (buffer, address) in enumerate(zip(buffers, self.addresses)):
            here = slice(address - BASE, address - BASE + buffer.array.nbytes)
            self.bytes[here] = np.ascontiguousarray(buffer.array).view(np.uint8).ravel()
            self.region[here] = i + 1

    def pointer(self, value: Buffer | None) -> bytes:
        """Return the address of where a buffer points, packed; null for none."""
        where = 0
        if value is not None:
            at = next(i for i, buffer in enumerate(self.buffers) if buffer is value)
            where = self.addresses[at] + value.offset
        return where.to_bytes(8, "little")

    def write_back(self) -> None:
        """Copy the writable buffers into their arrays."""
        for buffer, address in zip(self.buffers, self.addresses):
            if buffer.writable:
                here = self.bytes[address - BASE : address - BASE + buffer.array.nbytes]
                buffer.array[...] = here.view(buffer.array.dtype).reshape(buffer.array.shape)

    def _places(self, text: str, address: Array, size: int, write: bool = False) -> Array:
        place = address.astype(np.int64) - BASE
        inside = (place >= 0) & (place + size <= len(self.bytes))
        safe = np.where(inside, place, 0)
        last = self.region[np.minimum(safe + size, len(self.bytes)) - 1]
        inside &= (last > 0) & (self.region[safe] == last)
        refuse(~inside, text, "outside of every buffer")
        refuse(place % size, text, f"an address is no multiple of {size}")
        refuse(write & ~self.writable[self.region[place]], text, "writes to an operand")
        return place

    def load(self, text: str, address: Array, size: int, bits: Any, thread: Array) -> Array:
        """Return what stands at addresses, as patterns of type `bits`."""
        place = self._places(text, address, size)
        owner = self.owner[place]
        refuse((owner != NOBODY) & (owner != thread), text, "reads what another thread wrote")
        return self.bytes.view(bits)[place // size]

    def store(self, text: str, address: Array, value: Array, thread: Array) -> None:
        """Write patterns to addresses."""
        size = value.dtype.itemsize
        place = self._places(text, address, size, write=True)
        other = (self.owner[place] != NOBODY) & (self.owner[place] != thread)
        self.owner[place] = thread
        refuse(other | (self.owner[place] != thread), text, "two threads write to one place")
        self.bytes.view(value.dtype)[place // size] = value

    def add(self, text: str, address: Array, value: Array, order: Array) -> Array:
        """Add atomically, in an order of the lanes; return what stood there before."""
        size = value.dtype.itemsize
        place = self._places(text, address, size, write=True)
        memory, before = self.bytes.view(value.dtype), np.empty_like(value)
        for i in order:
            before[i] = memory[place[i] // size]
            memory[place[i] // size] = before[i] + value[i]
        return before


class Shared:
    """The shared memory of some blocks; of each warp a clock that says what it has seen.

    A warp counts what it releases to others (barriers, arrivals). A row of `clock` has a column for
    each warp of its block, up to where it has been seen, and a last one for copies of the engine.
    Who touches what was touched later than it has seen races. Threads of a warp are taken to run
    together.
    """

    def __init__(self, size: int, block: Array, warp: Array) -> None:
        self.size = -(-max(size, 16) // 16) * 16
        self.block, self.warp = block, warp  # of each lane
        blocks, warps = int(block[-1]) + 1, int(warp[-1]) + 1
        self.width = warps // blocks
        self.clock = np.zeros((warps, self.width + 1), np.int32)
        self.tick(np.arange(warps))
        self.bytes = np.full(blocks * self.size, 0xFF, np.uint8)
        cells = blocks * self.size
        self.written, self.writer = np.zeros(cells, np.int32), np.zeros(cells, np.int16)
        self.read = np.zeros((self.width, cells), np.int32)
        self.copies = 0  # of the engine, that are over
        self.unfenced = np.zeros(cells, bool)  # written by threads, not yet shown to the engine

    def tick(self, warps: Array) -> None:
        """Let what these warps do from now on be later than what they have released."""
        self.clock[warps, warps % self.width] += 1

    def column(self, lanes: Array) -> Array:
        """Return the columns of the warps of some lanes."""
        return self.warp[lanes] % self.width

    def now(self, lanes: Array) -> Array:
        """Return how far the warps of some lanes have counted."""
        return self.clock[self.warp[lanes], self.column(lanes)]

    def meet(self, warps: Array, starts: Array) -> None:
        """Let warps see each other that lie between two starts."""
        all_seen = np.maximum.reduceat(self.clock[warps], starts, axis=0)
        self.clock[warps] = np.repeat(all_seen, np.diff(starts, append=len(warps)), axis=0)
        self.tick(warps)

    def fence(self, lanes: Array) -> None:
        """Show the engine what threads wrote, as far as these warps have seen it."""
        for lane in lanes[np.unique(self.warp[lanes], return_index=True)[1]]:
            cells = np.flatnonzero(self.unfenced)
            cells = cells[cells // self.size == self.block[lane]]
            seen = self.clock[self.warp[lane]][self.writer[cells]] >= self.written[cells]
            self.unfenced[cells[seen]] = False

    def places(self, text: str, address: Array, size: int, lanes: Array) -> Array:
        """Return the places in `bytes` of accesses by lanes."""
        outside = (address < 0) | (address.astype(np.int64) > self.size - size)
        refuse(outside, text, "outside of shared memory")
        refuse(address % size, text, f"an address is no multiple of {size}")
        return address.astype(np.int64) + self.block[lanes] * self.size

    def look(
        self, text: str, cells: Array, lanes: Array, write: bool, same: Array | bool = False
    ) -> None:
        """Stop where cells (lane, cell) are touched that another has touched unseen.

        Two may write what is the `same`.
        """
        view, written = self.clock[self.warp[lanes]], self.written[cells]
        unseen = view[np.arange(len(lanes))[:, None], self.writer[cells]] < written
        refuse(unseen & (written == BUSY), text, "an asynchronous copy has not been waited for")
        differs = np.logical_not(same)
        refuse(unseen & differs, text, "race, another warp wrote there since the last barrier")
        read = self.read[:, cells] if write else np.zeros((0, *cells.shape))
        unseen = read > view.T[: len(read), :, None]
        refuse(unseen & (read == BUSY), text, "race, it is still read there asynchronously")
        refuse(unseen, text, "race, another warp read there since the last barrier")

    def load(self, text: str, address: Array, size: int, bits: Any, lanes: Array) -> Array:
        """Return what stands at addresses, as patterns of type `bits`."""
        place = self.places(text, address, size, lanes)
        cells = spread(place, size)
        self.look(text, cells, lanes, False)
        self.read[self.column(lanes)[:, None], cells] = self.now(lanes)[:, None]
        return self.bytes.view(bits)[place // size]

    def store(self, text: str, address: Array, value: Array, lanes: Array) -> None:
        """Write patterns to addresses."""
        size = value.dtype.itemsize
        place = self.places(text, address, size, lanes)
        memory, word, cells = self.bytes.view(value.dtype), place // size, spread(place, size)
        self.look(text, cells, lanes, True, (memory[word] == value)[:, None])
        self.written[cells], self.writer[cells] = (
            self.now(lanes)[:, None],
            self.column(lanes)[:, None],
        )
        self.unfenced[cells] = True
        memory[word] = value
        refuse(memory[word] != value, text, "race, two threads write to one place")


def spread(place: Array, size: int) -> Array:
    """Return the cells (access, cell) that accesses of `size` bytes cover."""
    return place[:, None] + np.arange(size)
