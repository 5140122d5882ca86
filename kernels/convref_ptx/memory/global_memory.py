"""Global memory of a launch: bounds of its allocations, and races between blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..arithmetic.numbers import Array, Undefined, distinct
from ..decode.program import Fault, refuse
from ..watch.races import ANOTHER
from .allocations import BASE, GAP, Allocation, Pointer
from .cells import CheckedMemory, bytes_of, differing_parts, element_of
from .shared_memory import SharedMemory

NONE, SEVERAL = -1, -2  # blocks


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
    variables: dict[str, list[int]] = {}  # of the program, their addresses in each launch
    block: Array  # of each lane, in all launches
    launch: Array  # of each lane
    shared: SharedMemory  # of the blocks that run; its clocks order the accesses of a block

    def __init__(
        self,
        allocations: Iterable[Allocation],
        grain: int,
        raced: Raced,
        changed: Array,
        owners: Sequence[int] = (),  # of each allocation, the launch; empty if there is one launch
    ) -> None:
        """Make memory; of runs before, the reads that raced, and which allocations were written."""
        self.owners = np.array([*owners, NONE]) if owners else None
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

    def begin(self, block: Array, launch: Array, shared: SharedMemory) -> None:
        """Let other blocks run: the block and launch of each lane, and their shared memory."""
        self.block, self.launch, self.shared = block, launch, shared
        if not len(self.read):
            self.read = np.zeros((shared.width, self.read.shape[1]), np.int32)

    def pointer(self, value: Allocation | Pointer | None) -> bytes:
        """Return a pointer as bytes; null for None."""
        known = getattr(value, "allocation", value)
        where = 0 if value is None else BASE + self.allocations[known] + value.offset
        return where.to_bytes(8, "little")

    def accessed_cells(self) -> tuple[Array, Array, Array]:
        """Return the cells that were written, their bytes, and the cells of recorded reads."""
        written = np.flatnonzero(self.writer != NONE)
        return written, self.lines(self.grain)[written], np.flatnonzero(self.reader != NONE)

    def apply_writes(self, cells: Array, values: Array) -> None:
        """Write to cells what another process wrote."""
        self.lines(self.grain)[cells] = values

    def write_back(self) -> None:
        for allocation, start in self.allocations.items():
            if allocation.writable:
                here = self.bytes[start : start + allocation.array.nbytes]
                allocation.array[...] = here.view(allocation.array.dtype).reshape(
                    allocation.array.shape
                )

    def places(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Array]:
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
        if self.owners is not None:
            wrong |= self.owners[allocation] != self.launch[lanes]
        if wrong.any():
            refuse(wrong, text, self._distance_to_allocation(int(place[wrong][0]), size))
        if self.gaps is not None:
            wrong = self.gaps.reshape(-1, size)[place // size].any(1)
            if wrong.any():
                where = self.described(int(place[wrong][0]))
                refuse(wrong, text, f"between the elements of a tensor: {where}")
        return place, allocation

    def _gaps(self) -> Array | None:
        """Return whether each byte lies between the elements of a tensor; None if none does."""
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

    def _distance_to_allocation(self, place: int, size: int) -> str:
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
        place, allocation = self.places(text, address, size, lanes)
        undefined = None
        if self.changed[allocation].any():
            undefined = self._read(text, self.cells(place, size), lanes, strong)
            if undefined is not None:
                undefined = np.repeat(undefined, size // undefined.shape[1], 1) * np.uint8(0xFF)
        else:
            self.was_read[allocation] = True
        return bytes_of(self.lines(size)[place // size]), undefined

    def store(
        self, text: str, address: Array, value: Array, lanes: Array, strong: bool = False
    ) -> None:
        value = element_of(value)
        place, allocation = self.places(text, address, size := value.itemsize, lanes)
        self._change(text, place, allocation)
        cells, lines, line = self.cells(place, size), self.lines(size), place // size
        before = lines[line]
        self._write(text, cells, lanes, strong, lambda: differing_parts(before, value, cells.shape))
        lines[line] = value
        if not np.array_equal(bytes_of(after := lines[line]), bytes_of(value)):
            wrong, why = (
                differing_parts(after, value, place.shape),
                "two threads write to one address",
            )
            self.refuse_race(wrong, f"{text}: race, {why}", cells[:, 0], lanes, True)

    def update(self, text: str, address: Array, size: int, lanes: Array) -> Array:
        """Record atomic updates; return the offsets in `bytes`."""
        place, allocation = self.places(text, address, size, lanes)
        self._change(text, place, allocation)
        cells = self.cells(place, size)
        self._write(text, cells, lanes, True, lambda: np.ones(cells.shape, bool))
        return place

    def _races_with_write(self, cells: Array, lanes: Array, strong: bool) -> Array:
        """Return whether the last write of each cell races with an access of lanes to it."""
        if not ((writer := self.writer[cells]) != NONE).any():
            return np.zeros(cells.shape, bool)
        before = self._ordered(lanes, writer, self.warp[cells], self.written[cells])
        return ~before & ~(strong & self.strong[cells])

    def _read(self, text: str, cells: Array, lanes: Array, strong: bool) -> Undefined:
        """Record a read; return a mask of the cells that it races for, None if there are none."""
        if self.note is not None:
            self.note(text, cells, lanes, False)
        unseen, now = self._races_with_write(cells, lanes, strong), self.shared.now(lanes)
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
        if (wrong := self._races_with_write(cells, lanes, strong)).any():
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
