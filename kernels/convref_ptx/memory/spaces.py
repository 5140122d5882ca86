"""Global and shared memory of a run; every access is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..arithmetic.numbers import Array, Undefined, distinct
from ..decode.program import CHUNK, CONSTANT, LOCAL, Fault, refuse
from ..watch.races import ANOTHER, ANY, Conflict

BASE = 1 << 32  # address of the first allocation
GAP = 4096  # unmapped bytes between two allocations
NONE, SEVERAL = -1, -2  # blocks
IN_FLIGHT, UNWRITTEN = 1 << 30, 1 << 30 | 1  # times later than any clock


@dataclass(frozen=True, eq=False)
class Allocation:
    """An array in global memory; a writable one receives the results after a run."""

    array: Array  # contiguous
    writable: bool = False
    offset: int = 0  # bytes from its first element to the pointer
    skew: int = 0  # bytes by which the address of its first element misses a multiple of 4096
    name: str = ""  # for messages
    undefined: Array | None = None  # of each byte 0xFF if it is, changed by a launch; None for none
    gaps: Array | None = None  # of each byte whether it is of no element; None for none


@dataclass(frozen=True)
class Pointer:
    """An address in an allocation that several arguments share."""

    allocation: Allocation
    offset: int  # bytes from its first element


class CheckedMemory:
    """Bytes in cells of `grain` bytes; subclasses record the accesses to each cell."""

    # Notes accesses (text, cells, lanes, whether they write) in a run that looks for a race.
    note: Callable[[str, Array, Array, bool], None] | None = None
    batch = 0  # of the blocks that run together

    def __init__(self, size: int, grain: int, fill: int = 0xFF) -> None:
        self.bytes = np.full(size, fill, np.uint8) if fill else np.zeros(size, np.uint8)
        self.grain = grain

    def race(
        self, wrong: Array, text: str, cells: Array, lanes: Array, writes: bool,
        block: Any = ANY, warp: Any = ANY,
    ) -> Fault:  # fmt: skip
        """Return the Fault of the first wrong access (lane, cell), or (lane,).

        `writes` says whether the other access of the race does; `block` and `warp` are its, for
        each access.
        """
        at = tuple(np.argwhere(wrong)[0].tolist())
        cell, *by = (int(np.broadcast_to(a, wrong.shape)[at]) for a in (cells, block, warp))
        thread = self.batch, int(lanes[at[0]])
        fault = Fault(text)
        fault.row = at[0], len(wrong)
        fault.conflict = Conflict(isinstance(self, SharedMemory), cell, thread, writes, *by)
        return fault

    def refuse_race(self, wrong: Array, *more: Any) -> None:
        """Raise the Fault of the first wrong access, if there is one."""
        if wrong.any():
            raise self.race(wrong, *more)

    def refuse_misaligned(self, rest: Array, text: str, place: Array, size: int) -> None:
        """Raise a Fault that names the first place whose rest is not 0."""
        if rest.any():
            where = self.described(int(place[rest != 0][0]))
            refuse(rest, text, f"an address is not a multiple of {size}: {where}")

    def described(self, place: int) -> str:
        """Return where an offset in `bytes` is, for a message."""
        raise NotImplementedError

    def lines(self, size: int) -> Array:
        """Return memory in elements of `size` bytes; NumPy moves them faster than rows."""
        return self.bytes.view(f"V{size}")

    def cells(self, place: Array, size: int) -> Array:
        """Return the cells (access, cell) that accesses of `size` bytes touch."""
        first = place[:, None] // self.grain
        return first if size <= self.grain else first + np.arange(size // self.grain)


class Raced:
    """Reads of cells, by the block, the warp of the block, and the clock of the warp."""

    def __init__(self) -> None:
        self._keys: set[tuple[int, int, int, int]] = set()

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, cells: Array, blocks: Array, warps: Array, times: Array) -> None:
        self._keys.update(zip(*(part.tolist() for part in (cells, blocks, warps, times))))

    def has(self, cells: Array, blocks: Array, warps: Array, times: Array) -> Array:
        """Return which of the reads (lane, cell) are among them."""
        parts = (np.broadcast_to(part.reshape(len(cells), -1), cells.shape).ravel().tolist()
                 for part in (cells, blocks, warps, times))  # fmt: skip
        return np.array([key in self._keys for key in zip(*parts)], bool).reshape(cells.shape)


class Unrecorded(Exception):
    """A launch writes to an allocation whose reads were not recorded; it starts again."""


class GlobalMemory(CheckedMemory):
    """The allocations of a launch, with gaps between them.

    Blocks run in any order. Of two accesses to a cell of which one writes, one must happen before
    the other: by barriers if a block makes both, else by a release and an acquire. Accesses that
    are both strong (atomic or volatile) do not race, and two threads may write the same value. A
    read that races has an undefined value, which is a fault where it is used: often several warps
    load an element, and only the one that stores it uses what it has loaded.

    The last write of each cell is kept, and of its reads those of one block by warp (after
    FastTrack, Flanagan and Freund, PLDI 2009). What blocks have acquired is kept by block. Accesses
    to allocations that the launch does not write are not recorded.
    """

    unwritten = ""  # the last instruction that read memory that was undefined before the launch
    has_fences = False  # whether the program has any
    variables: dict[str, int] = {}  # addresses of the program's variables
    block: Array  # of each lane, in the launch
    shared: SharedMemory  # of the blocks that run; its clocks order the accesses of a block

    def __init__(
        self, allocations: Iterable[Allocation], grain: int, raced: Raced, changed: Array
    ) -> None:
        """Make memory; of runs before, the reads that raced, and which allocations were written."""
        sizes = np.array([allocation.array.nbytes for allocation in allocations], np.int64)
        spans = -(-sizes // GAP) * GAP + 2 * GAP
        super().__init__(int(spans.sum()) + GAP, grain, 0)  # gaps are never read
        skews = np.array([allocation.skew for allocation in allocations], np.int64)
        self.starts = GAP + np.cumsum(spans) - spans + skews
        self.allocations = dict(zip(allocations, self.starts.tolist()))
        # The last end is that of addresses before the first allocation.
        self.ends = np.append(self.starts + sizes, np.iinfo(np.int64).min)
        self.writable = np.array([*(allocation.writable for allocation in allocations), False])
        self.gaps = self._gaps()
        self.changed, self.was_read = changed, np.zeros_like(changed)
        cells = len(self.bytes) // grain
        self.writer, self.reader = np.full((2, cells), NONE, np.int32)  # blocks
        self.warp, self.written = np.zeros(cells, np.int16), np.zeros(cells, np.int32)
        self.strong = np.zeros(cells, bool)  # whether the last write was
        self.read = np.zeros((0, cells), np.int32)  # times, by the warps of the reader
        self.raced_before, self.raced = raced, Raced()
        self.printed: list[str] = []  # by the kernel
        self.cause: Fault | None = None  # the first race of a read, whose value is undefined
        self.released: dict[int, _Clocks] = {}  # by cell
        self.acquired: dict[int, _Clocks] = {}  # by block
        # By block and warp: what relaxed reads have seen, and what the last fence releases.
        self.seen: dict[tuple[int, int], _Clocks] = {}
        self.fenced: dict[tuple[int, int], _Clocks] = {}
        for allocation, start in self.allocations.items():
            patterns = np.ascontiguousarray(allocation.array).view(np.uint8).ravel()
            self.bytes[start : start + len(patterns)] = patterns

    def begin(self, block: Array, shared: SharedMemory) -> None:
        """Let other blocks run: the block of each lane, and their shared memory."""
        self.block, self.shared = block, shared
        if not len(self.read):
            self.read = np.zeros((shared.width, self.read.shape[1]), np.int32)

    def pointer(self, value: Allocation | Pointer | None) -> bytes:
        """Return a pointer as bytes; null for None."""
        known = getattr(value, "allocation", value)
        where = 0 if value is None else BASE + self.allocations[known] + value.offset
        return where.to_bytes(8, "little")

    def accessed(self) -> tuple[Array, Array, Array]:
        """Return the cells that were written, their bytes, and the cells of recorded reads."""
        written = np.flatnonzero(self.writer != NONE)
        return written, self.lines(self.grain)[written], np.flatnonzero(self.reader != NONE)

    def take(self, cells: Array, values: Array) -> None:
        """Write to cells what another process wrote."""
        self.lines(self.grain)[cells] = values

    def write_back(self) -> None:
        for allocation, start in self.allocations.items():
            if allocation.writable:
                here = self.bytes[start : start + allocation.array.nbytes]
                allocation.array[...] = here.view(allocation.array.dtype).reshape(
                    allocation.array.shape
                )

    def places(self, text: str, address: Array, size: int) -> tuple[Array, Array]:
        """Return the offsets of accesses in `bytes`, and their allocations, or the common one."""
        place = address.astype(np.int64) - BASE
        self.refuse_misaligned(place & size - 1, text, place, size)
        ends = place.min(initial=len(self.bytes)), place.max(initial=0)
        allocation = self.starts.searchsorted(ends, "right") - 1
        if allocation[0] == allocation[1]:
            allocation = allocation[:1]
        else:
            allocation = self.starts.searchsorted(place, "right") - 1
        wrong = place + size > self.ends[allocation]
        if wrong.any():
            refuse(wrong, text, self._outside(int(place[wrong][0]), size))
        if self.gaps is not None:
            wrong = self.gaps.reshape(-1, size)[place // size].any(1)
            if wrong.any():
                where = self.described(int(place[wrong][0]))
                refuse(wrong, text, f"between the elements of a tensor: {where}")
        return place, allocation

    def _gaps(self) -> Array | None:
        """Return of each byte whether it lies between the elements of a tensor, None for none."""
        if all(allocation.gaps is None for allocation in self.allocations):
            return None
        found = np.zeros(len(self.bytes), bool)
        for allocation, start in self.allocations.items():
            if allocation.gaps is not None:
                found[start : start + len(allocation.gaps)] = allocation.gaps
        return found

    def _change(self, text: str, place: Array, allocation: Array) -> None:
        """Check that some lanes may write to allocations, and that earlier reads are recorded."""
        if not (writable := self.writable[allocation]).all():
            wrong = np.broadcast_to(~writable, place.shape)
            where = self.described(int(place[wrong][0]))
            refuse(wrong, text, f"writes to an operand: {where}")
        if not (changed := self.changed[allocation]).all():
            self.changed[allocation] = True
            if self.was_read[allocation[~changed]].any():
                raise Unrecorded

    def _outside(self, place: int, size: int) -> str:
        """Return how far an access is from the nearest allocation."""
        near = []
        for allocation, start in self.allocations.items():
            name, count = allocation.name or "an allocation", allocation.array.nbytes
            far = place - start if place < start else max(0, place + size - start - count)
            side = "before the first" if far < 0 else "past the last"
            near.append((abs(far), f"{abs(far)} bytes {side} of {count} bytes of {name}"))
        return f"outside of every allocation: {min(near)[1]}" if near else "no allocation"

    def described(self, place: int) -> str:
        """Return the allocation at or before an offset in `bytes`, and where in it that is."""
        before = [(start, a) for a, start in self.allocations.items() if start <= place]
        if not before:
            return "before every allocation"
        start, allocation = max(before, key=lambda pair: pair[0])
        return f"byte {place - start} of {allocation.name or 'an allocation'}"

    def load(
        self, text: str, address: Array, size: int, lanes: Array, strong: bool = False
    ) -> tuple[Array, Undefined]:
        """Return the bytes (access, size) at addresses, and a mask of undefined ones."""
        place, allocation = self.places(text, address, size)
        undefined = None
        if self.changed[allocation].any():
            undefined = self._read(text, self.cells(place, size), lanes, strong)
            if undefined is not None:
                undefined = np.repeat(undefined, size // undefined.shape[1], 1) * np.uint8(0xFF)
        else:
            self.was_read[allocation] = True
        return _bytes(self.lines(size)[place // size]), undefined

    def store(
        self, text: str, address: Array, value: Array, lanes: Array, strong: bool = False
    ) -> None:
        value = _element(value)
        place, allocation = self.places(text, address, size := value.itemsize)
        self._change(text, place, allocation)
        cells, lines, line = self.cells(place, size), self.lines(size), place // size
        before = lines[line]
        self._write(text, cells, lanes, strong, lambda: _differ(before, value, cells.shape))
        lines[line] = value
        if not np.array_equal(_bytes(after := lines[line]), _bytes(value)):
            wrong, why = _differ(after, value, place.shape), "two threads write to one address"
            self.refuse_race(wrong, f"{text}: race, {why}", cells[:, 0], lanes, True)

    def update(self, text: str, address: Array, size: int, lanes: Array) -> Array:
        """Record atomic updates; return the offsets in `bytes`."""
        place, allocation = self.places(text, address, size)
        self._change(text, place, allocation)
        cells = self.cells(place, size)
        self._write(text, cells, lanes, True, lambda: np.ones(cells.shape, bool))
        return place

    def _unseen(self, cells: Array, lanes: Array, strong: bool) -> Array:
        """Return whether the last write of each cell races with an access of lanes to it."""
        if not ((writer := self.writer[cells]) != NONE).any():
            return np.zeros(cells.shape, bool)
        before = self._ordered(lanes, writer, self.warp[cells], self.written[cells])
        return ~before & ~(strong & self.strong[cells])

    def _read(self, text: str, cells: Array, lanes: Array, strong: bool) -> Undefined:
        """Record a read; return a mask of the cells that it races for, None for none."""
        if self.note is not None:
            self.note(text, cells, lanes, False)
        unseen, now = self._unseen(cells, lanes, strong), self.shared.now(lanes)
        if unseen.any() and self.cause is None:
            why, by = "reads what another thread wrote", (self.writer[cells], self.warp[cells])
            self.cause = self.race(unseen, f"{text}: race, {why}", cells, lanes, True, *by)
        if self.raced_before:
            unseen |= self.raced_before.has(
                cells, self.block[lanes], self.shared.column(lanes), now
            )
        if strong:
            return unseen if unseen.any() else None
        mine, reader = self.block[lanes][:, None], self.reader[cells]
        several, other = reader == SEVERAL, (reader != mine) & (reader != SEVERAL)
        if (other & (reader != NONE)).any():
            before = self._ordered(lanes, reader, self._warps(), self.read[:, cells])
            several |= other & ~before.all(0)
        self.read[:, cells[other]] = 0
        self.reader[cells] = new = np.where(several, SEVERAL, mine)
        self.reader[cells[self.reader[cells] != new]] = SEVERAL  # several blocks in this vector
        self.read[self.shared.column(lanes), cells] = now
        return unseen if unseen.any() else None

    def _warps(self) -> Array:
        """Return the warps of a block as (warp, lane, cell)."""
        return np.arange(len(self.read))[:, None, None]

    def _write(
        self, text: str, cells: Array, lanes: Array, strong: bool, differs: Callable[[], Array]
    ) -> None:
        """Record a write; `differs` returns in which cells it stores another value."""
        if self.note is not None:
            self.note(text, cells, lanes, True)
        if (wrong := self._unseen(cells, lanes, strong)).any():
            why, by = "writes what another thread wrote", (self.writer[cells], self.warp[cells])
            self.refuse_race(wrong & differs(), f"{text}: race, {why}", cells, lanes, True, *by)
        if ((reader := self.reader[cells]) != NONE).any():
            self._write_after_reads(text, cells, lanes, reader, differs())
        self.writer[cells], self.warp[cells] = self.block[lanes][:, None], self.shared.column(lanes)
        self.written[cells], self.strong[cells] = self.shared.now(lanes), strong

    def _write_after_reads(
        self, text: str, cells: Array, lanes: Array, reader: Array, differs: Array
    ) -> None:
        wrong = (reader == SEVERAL) & (not self.released) & differs
        why = f"{text}: race, writes what another block read"
        self.refuse_race(wrong, why, cells, lanes, False, ANOTHER)
        times = self.read[:, cells]
        unseen = (times > 0) & (reader >= 0) & differs
        unseen &= ~self._ordered(lanes, reader, self._warps(), times)
        if unseen.any():
            warps, lane, n = np.nonzero(unseen)
            if self.cause is None:
                why, by = f"{text}: race, writes what another thread read", unseen.argmax(0)
                self.cause = self.race(unseen.any(0), why, cells, lanes, False, reader, by)
            self.raced.add(cells[lane, n], reader[lane, n], warps, times[unseen])

    def _ordered(self, lanes: Array, block: Array, warp: Array, time: Array) -> Array:
        """Return whether accesses happened before those of some lanes ([warp,] lane, cell)."""
        mine = self.block[lanes][:, None]
        view = self.shared.clock[self.shared.warp[lanes][:, None], warp]
        found = (block == NONE) | (time == 0) | ((block == mine) & (view >= time))
        if self.acquired and not found.all():
            for own in distinct(np.broadcast_to(mine, found.shape)[~found]):
                for other, row in self.acquired.get(int(own), {}).items():
                    found |= (mine == own) & (block == other) & (row[warp] >= time)
        return found

    def synchronize(
        self, cells: Array, lanes: Array, acquires: bool, releases: bool, relaxed: bool
    ) -> None:
        """Order what other blocks released at a cell before these lanes, one lane after another.

        A relaxed access does so for what follows its next fence, or precedes its last one.
        """
        if relaxed and not self.has_fences:
            return
        for cell, lane in zip(cells.tolist(), lanes.tolist()):
            block, warp = int(self.block[lane]), int(self.shared.warp[lane])
            there = self.released.setdefault(cell, {})
            if relaxed:
                self._relaxed(there, (block, warp), acquires, releases)
                continue
            held = self.acquired.setdefault(block, {})
            if acquires:
                _merge(held, there)
            if releases:
                _merge(there, held)
                _merge(there, {block: self.shared.clock[warp].copy()})
                self.shared.tick(np.array([warp]))

    def _relaxed(self, there: _Clocks, key: tuple[int, int], reads: bool, writes: bool) -> None:
        if reads:
            _merge(self.seen.setdefault(key, {}), there)
        if writes:
            _merge(there, self.fenced.get(key, {}))

    def fence(self, lanes: Array) -> None:
        """Order accesses by fences of some warps, together with their relaxed accesses."""
        for lane in lanes[np.unique(self.shared.warp[lanes], return_index=True)[1]].tolist():
            block, warp = int(self.block[lane]), int(self.shared.warp[lane])
            held = self.acquired.setdefault(block, {})
            _merge(held, self.seen.get((block, warp), {}))
            self.fenced[block, warp] = {**held, block: self.shared.clock[warp].copy()}
            self.shared.tick(np.array([warp]))


_Clocks = dict[int, Array]  # of blocks, the clocks of their warps


def _merge(into: _Clocks, clocks: _Clocks) -> None:
    for block, row in clocks.items():
        into[block] = np.maximum(into[block], row) if block in into else row


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
        one. Return a mask of unwritten cells, None for none.
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
        return _bytes(self.lines(size)[place // size]), undefined

    def store(self, text: str, address: Array, value: Array, lanes: Array) -> None:
        value = _element(value)
        place = self.places(text, address, size := value.itemsize, lanes)
        lines, line, cells = self.lines(size), place // size, self.cells(place, size)
        before = lines[line]
        self.look(text, cells, lanes, True, lambda: _differ(before, value, cells.shape))
        self._write(cells, lanes, False)
        lines[line] = value
        if not np.array_equal(_bytes(after := lines[line]), _bytes(value)):
            differ = _differ(after, value, place.shape)
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


def _bytes(value: Array) -> Array:
    size = value.itemsize * prod(value.shape[1:])
    return np.ascontiguousarray(value).view(np.uint8).reshape(len(value), size)


def _element(value: Array) -> Array:
    """Return rows as one element each."""
    rows = _bytes(value)
    return rows.view(f"V{rows.shape[1]}")[:, 0]


def _differ(a: Array, b: Array, shape: tuple[int, ...]) -> Array:
    """Return which parts of elements differ, as (element,) or (element, part)."""
    return (_bytes(a) != _bytes(b)).reshape(*shape, -1).any(-1)


class ConstantMemory:
    """The constants of a program."""

    def __init__(self, content: bytes) -> None:
        self.bytes = np.frombuffer(content, np.uint8)

    def load(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Undefined]:
        offset = address - CONSTANT
        outside = (offset < 0) | (offset > len(self.bytes) - size)
        refuse(outside, text, "outside of constant memory")
        refuse(offset % size, text, f"an address is not a multiple of {size}")
        return self.bytes[offset[:, None] + np.arange(size)], None


class LocalMemory:
    """The memory of each thread alone: bytes (thread, byte) and which of them are undefined."""

    def __init__(self, count: int, size: int) -> None:
        self.bytes = np.full((count, size), 0xFF, np.uint8)
        self.undefined = self.bytes.copy()

    def _places(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Array]:
        offset = address - LOCAL
        outside = (offset < 0) | (offset > self.bytes.shape[1] - size)
        refuse(outside, text, "outside of local memory")
        refuse(offset % size, text, f"an address is not a multiple of {size}")
        return lanes[:, None], offset[:, None] + np.arange(size)

    def load(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Undefined]:
        at = self._places(text, address, size, lanes)
        undefined = self.undefined[at]
        return self.bytes[at], undefined if undefined.any() else None

    def store(
        self, text: str, address: Array, value: Array, undefined: Array, lanes: Array
    ) -> None:
        at = self._places(text, address, _bytes(value).shape[1], lanes)
        self.bytes[at], self.undefined[at] = _bytes(value), _bytes(undefined)
