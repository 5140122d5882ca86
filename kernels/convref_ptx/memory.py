"""Global and shared memory of a run: every access is checked before it happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .fault import Fault

Array = np.ndarray[Any, Any]
BASE = 1 << 32  # address of the first buffer
GAP = 4096  # bytes of nothing between two buffers
CELL = 2  # bytes: the smallest access in whose races we are interested
NOBODY, MANY = -1, -2


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
        self.owner = np.full(top // CELL, NOBODY, np.int64)
        self.writable = np.array([False] + [buffer.writable for buffer in buffers])
        for i, (buffer, address) in enumerate(zip(buffers, self.addresses)):
            here = slice(address - BASE, address - BASE + buffer.array.nbytes)
            self.bytes[here] = np.ascontiguousarray(buffer.array).view(np.uint8).ravel()
            self.region[here] = i + 1

    def write_back(self) -> None:
        """Copy the writable buffers into their arrays."""
        for buffer, address in zip(self.buffers, self.addresses):
            if buffer.writable:
                here = self.bytes[address - BASE : address - BASE + buffer.array.nbytes]
                buffer.array[...] = here.view(buffer.array.dtype).reshape(buffer.array.shape)

    def _places(self, text: str, address: Array, size: int) -> Array:
        place = address.astype(np.int64) - BASE
        inside = (place >= 0) & (place + size <= len(self.bytes))
        safe = np.where(inside, place, 0)
        inside &= self.region[safe] > 0
        inside &= (
            self.region[safe] == self.region[np.minimum(safe, len(self.bytes) - size) + size - 1]
        )
        if not inside.all():
            raise Fault(f"{text}: outside of every buffer")
        if (place % size).any():
            raise Fault(f"{text}: an address is no multiple of {size}")
        return place

    def load(self, text: str, address: Array, size: int, bits: Any, thread: Array) -> Array:
        """Return what stands at addresses, as patterns of type `bits`."""
        place = self._places(text, address, size)
        owner = self.owner[place // CELL]
        if ((owner != NOBODY) & (owner != thread)).any():
            raise Fault(f"{text}: reads what another thread wrote")
        return self.bytes.view(bits)[place // size]

    def store(self, text: str, address: Array, value: Array, thread: Array) -> None:
        """Write patterns to addresses."""
        size = value.dtype.itemsize
        place = self._places(text, address, size)
        if not self.writable[self.region[place]].all():
            raise Fault(f"{text}: writes to an operand")
        cell = place // CELL
        other = (self.owner[cell] != NOBODY) & (self.owner[cell] != thread)
        self.owner[cell] = thread
        if other.any() or (self.owner[cell] != thread).any():
            raise Fault(f"{text}: two threads write to one place")
        self.bytes.view(value.dtype)[place // size] = value

    def add(self, text: str, address: Array, value: Array, order: Array) -> Array:
        """Add atomically, in an order of the lanes; return what stood there before."""
        size = value.dtype.itemsize
        place = self._places(text, address, size)
        if not self.writable[self.region[place]].all():
            raise Fault(f"{text}: writes to an operand")
        memory, before = self.bytes.view(value.dtype), np.empty_like(value)
        for i in order:
            before[i] = memory[place[i] // size]
            memory[place[i] // size] = before[i] + value[i]
        return before


class Shared:
    """The shared memory of some blocks; stamps of who touched what since the last barrier.

    Threads of a warp are taken to run together; between warps only a barrier orders accesses.
    """

    def __init__(self, blocks: int, size: int) -> None:
        self.size = -(-max(size, 16) // 16) * 16
        self.bytes = np.full(blocks * self.size, 0xFF, np.uint8)
        cells = blocks * self.size // CELL
        self.written, self.read = np.full(cells, -1, np.int64), np.full(cells, -1, np.int64)
        self.writer, self.reader = np.zeros(cells, np.int64), np.zeros(cells, np.int64)

    def _places(self, text: str, address: Array, size: int, block: Array) -> Array:
        if (address.astype(np.uint64) > np.uint64(self.size - size)).any():
            raise Fault(f"{text}: outside of shared memory")
        if (address % size).any():
            raise Fault(f"{text}: an address is no multiple of {size}")
        return address.astype(np.int64) + block * self.size

    @staticmethod
    def _cells(place: Array, size: int) -> Array:
        return (place[:, None] // CELL + np.arange(max(1, size // CELL))).T

    def load(
        self, text: str, address: Array, size: int, bits: Any, block: Array, warp: Array, now: Array
    ) -> Array:
        """Return what stands at addresses; `now` counts the barriers of each lane's block."""
        place = self._places(text, address, size, block)
        for cell in self._cells(place, size):
            if ((self.written[cell] == now) & (self.writer[cell] != warp)).any():
                raise Fault(f"{text}: race, another warp wrote there since the last barrier")
            again = (self.read[cell] == now) & (self.reader[cell] != warp)
            self.reader[cell] = warp
            self.reader[cell[again | (self.reader[cell] != warp)]] = MANY
            self.read[cell] = now
        return self.bytes.view(bits)[place // size]

    def store(
        self, text: str, address: Array, value: Array, block: Array, warp: Array, now: Array
    ) -> None:
        """Write patterns to addresses."""
        size = value.dtype.itemsize
        place = self._places(text, address, size, block)
        for cell in self._cells(place, size):
            wrote = (self.written[cell] == now) & (self.writer[cell] != warp)
            readers = (self.read[cell] == now) & (self.reader[cell] != warp)
            self.written[cell], self.writer[cell] = now, warp
            if (wrote | readers | (self.writer[cell] != warp)).any():
                raise Fault(f"{text}: race, another warp was there since the last barrier")
        self.bytes.view(value.dtype)[place // size] = value
