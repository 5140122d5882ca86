"""Shared memory of blocks, whose warps race unless barriers order them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arithmetic.numbers import Array, Undefined
from ..decode.program import CHUNK, refuse
from ..watch.races import ANY
from .cells import CheckedMemory, bytes_of, differing_parts, element_of

IN_FLIGHT, UNWRITTEN = 1 << 30, 1 << 30 | 1  # times later than any clock


class SharedMemory(CheckedMemory):
    """The shared memory of some blocks, and a vector clock per warp that detects races.

    A warp increments its own entry when it releases its accesses to others (barriers, arrivals). A
    row of `clock` has an entry for each warp of the block, and a last one for the copy engine. An
    access races with an earlier one that is later than the clock of its warp. Threads of a warp are
    assumed to run together.
    """

    is_shared = True

    def __init__(self, size: int, block: Array, warp: Array, grain: int) -> None:
        self.size = -(-max(size, CHUNK) // CHUNK) * CHUNK
        self.block, self.warp = block, warp  # of each lane
        blocks, warps = int(block[-1]) + 1, int(warp[-1]) + 1
        super().__init__(blocks * self.size, grain)
        self.width = warps // blocks
        self.every, self.columns = np.arange(warps), warp % self.width  # of each lane in its block
        self.clock = np.zeros((warps, self.width + 1), np.int32)
        self.tick(self.every)
        cells = blocks * self.size // grain
        self.written, self.writer = np.full(cells, UNWRITTEN, np.int32), np.zeros(cells, np.int16)
        self.read = np.zeros((self.width, cells), np.int32)
        self.copies = 0  # of the copy engine, completed
        self.unfenced = np.zeros(cells, bool)  # written by threads without a proxy fence since
        self.strong = np.zeros(cells, bool)  # whether the last write was atomic

    def described(self, place: int) -> str:
        """Return where in the memory of its block an offset in `bytes` is."""
        return f"byte {place % self.size} of shared memory"

    def tick(self, warps: Array) -> None:
        """Make the next accesses of these warps later than those that they have released."""
        self.clock[warps, warps % self.width] += 1

    def column(self, lanes: Array) -> Array:
        """Return the warps (lane, 1) of lanes within their blocks."""
        return self.columns[lanes, None]

    def now(self, lanes: Array) -> Array:
        """Return the own clock entries (lane, 1) of the warps of some lanes."""
        return self.clock[self.every, self.every % self.width][self.warp[lanes, None]]

    def synchronize(self, warps: Array, starts: Array) -> None:
        """Synchronize the warps of each group; groups begin at `starts`."""
        all_seen = np.maximum.reduceat(self.clock[warps], starts, axis=0)
        self.clock[warps] = np.repeat(all_seen, np.diff(starts, append=len(warps)), axis=0)
        self.tick(warps)

    def fence(self, lanes: Array) -> None:
        """Order the writes that these warps have seen before later asynchronous accesses."""
        cells, fencing = np.flatnonzero(self.unfenced), np.zeros(len(self.clock), bool)
        fencing[self.warp[lanes]] = True
        warp = cells * self.grain // self.size * self.width + np.arange(self.width)[:, None]
        seen = fencing[warp] & (self.clock[warp, self.writer[cells]] >= self.written[cells])
        self.unfenced[cells[seen.any(0)]] = False

    def places(self, text: str, address: Array, size: int, lanes: Array) -> Array:
        """Return the offsets in `bytes` of accesses by lanes."""
        outside = (address < 0) | (address.astype(np.int64) > self.size - size)
        refuse(outside, text, "outside of shared memory")
        self.refuse_misaligned(address & size - 1, text, address, size)
        return address.astype(np.int64) + self.block[lanes] * self.size

    def look(
        self, text: str, cells: Array, lanes: Array, write: bool,
        differs: Callable[[], Array] | None = None,
    ) -> Undefined:  # fmt: skip
        """Raise a Fault if an access to cells (lane, cell) races with an earlier one.

        Two warps may write the same value: `differs` returns in which cells a write stores another
        one. Return a mask of unwritten cells, None if there are none.
        """
        if self.note is not None:
            self.note(text, cells, lanes, write)
        warp, written, fresh = self.warp[lanes], self.written[cells], None
        latest = self.clock.take(self.writer[cells] + warp[:, None] * self.clock.shape[1])
        unseen = latest < written
        if unseen.any():
            flying, why = written == IN_FLIGHT, "an asynchronous copy has not been waited for"
            self.refuse_write(flying, text, why, cells, lanes)
            fresh = written == UNWRITTEN
            unseen &= ~fresh & (differs() if differs else True)
            why = "race, another warp wrote there since the last barrier"
            self.refuse_write(unseen, text, why, cells, lanes)
        if write:
            read = self.read[:, cells]
            unseen = read > self.clock.T[: self.width, warp, None]
            if unseen.any():
                flying = unseen & (read == IN_FLIGHT)
                for found, why in (
                    (flying, "asynchronous work still reads there"),
                    (unseen, "another warp read there since the last barrier"),
                ):
                    self.refuse_race(
                        found.any(0), f"{text}: race, {why}", cells, lanes, False, ANY,
                        found.argmax(0),
                    )  # fmt: skip
        return fresh

    def refuse_write(self, wrong: Array, text: str, why: str, cells: Array, lanes: Array) -> None:
        """Raise a Fault that names the last write, if any access (lane, cell) is wrong."""
        warp = self.writer[cells]
        by = np.where(warp == self.width, ANY, warp)  # of a copy, any warp that issues it
        self.refuse_race(wrong, f"{text}: {why}", cells, lanes, True, ANY, by)

    def set_read(self, cells: Array, lanes: Array, when: Any) -> None:
        """Set the time of the last read of cells (lane, cell) by the warps of some lanes."""
        self.read.reshape(-1)[self.column(lanes) * self.read.shape[1] + cells] = when

    def load(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Undefined]:
        """Return the bytes (access, size) at addresses, and a mask of undefined ones."""
        place = self.places(text, address, size, lanes)
        cells = self.cells(place, size)
        undefined = self.look(text, cells, lanes, False)
        self.set_read(cells, lanes, self.now(lanes))
        if undefined is not None:
            undefined = np.repeat(undefined, size // cells.shape[1], 1) * np.uint8(0xFF)
        return bytes_of(self.lines(size)[place // size]), undefined

    def store(self, text: str, address: Array, value: Array, lanes: Array) -> None:
        value = element_of(value)
        place = self.places(text, address, size := value.itemsize, lanes)
        lines, line, cells = self.lines(size), place // size, self.cells(place, size)
        before = lines[line]
        self.look(text, cells, lanes, True, lambda: differing_parts(before, value, cells.shape))
        self._write(cells, lanes, False)
        lines[line] = value
        if not np.array_equal(bytes_of(after := lines[line]), bytes_of(value)):
            differ = differing_parts(after, value, place.shape)
            # Of the lanes of one warp, any one is stored: replicas of a sum may be rounded apart.
            places, inverse = np.unique(line, return_inverse=True)
            warp, last = self.warp[lanes], np.zeros(len(places), np.int64)
            last[inverse] = warp
            why, by = f"{text}: race, two warps write to one address", last[inverse]
            self.refuse_race(
                differ & (by != warp), why, cells[:, 0], lanes, True, ANY, by % self.width
            )

    def update(self, text: str, address: Array, size: int, lanes: Array) -> Array:
        """Record atomic updates; return the offsets in `bytes`."""
        place = self.places(text, address, size, lanes)
        cells = self.cells(place, size)
        unwritten = self.look(text, cells, lanes, True, lambda: ~self.strong[cells])
        refuse(unwritten, text, "updates unwritten memory")
        self._write(cells, lanes, True)
        return place

    def _write(self, cells: Array, lanes: Array, strong: bool) -> None:
        self.written[cells], self.writer[cells] = self.now(lanes), self.column(lanes)
        self.unfenced[cells], self.strong[cells] = True, strong
