"""Asynchronous copies, completed by wait groups or by mbarriers.

The memory of asynchronous work is in flight from its issue to the wait for it; an access in between
is a fault. The work is done when it is issued, or as late as a wait allows (`Machine.is_late`).
After the PTX manual, "Data Movement and Conversion Instructions: Asynchronous copy" and "Tensors".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.opcodes import operation
from ..decode.program import CHUNK, Fault, Instruction, refuse
from ..memory.accesses import addresses
from ..memory.allocations import BASE
from ..memory.shared_memory import IN_FLIGHT
from .maps import Im2colMap, TensorMap, swizzled
from .mbarriers import Barrier, barriers

if TYPE_CHECKING:
    from ..state.machine import Machine

NONE = np.zeros((1, 0), np.int64)  # no cells


class Work(NamedTuple):
    """Asynchronous work: a row for each of some threads."""

    text: str
    lanes: Array  # the threads, or the first ones of warps
    move: Callable[[Array], None]  # does the work of some of the rows
    reads: Array = NONE  # cells of shared memory (row, cell)
    writes: Array = NONE
    sums: Array = NONE[0]  # rows of `Machine.in_flight`, used by whole warps


class Groups:
    """The work of one kind, in groups that threads commit and wait for."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.committed = machine, np.zeros(machine.count, np.int64)
        # Work with its group and a mask of unfinished rows.
        self.begun: list[tuple[Work, Array, Array]] = []

    def begin(self, work: Work) -> None:
        """Mark the memory of the work as in flight, and do the work unless the run is late."""
        m, every = self.machine, np.ones(len(work.lanes), bool)
        undefined = m.shared.look(work.text, work.reads, work.lanes, False)
        refuse(undefined, work.text, "reads unwritten memory")
        m.shared.look(work.text, work.writes, work.lanes, True)
        unfenced, why = m.shared.unfenced[work.reads], "reads without a fence.proxy.async"
        m.shared.refuse_write(unfenced, work.text, why, work.reads, work.lanes)
        self._mark(work, every, IN_FLIGHT)
        m.shared.unfenced[work.writes] = False
        if (early := ~m.is_late(work.lanes)).any():
            work.move(early)
        self.begun.append((work, self.committed[work.lanes], every))

    def _mark(self, work: Work, rows: Array, when: int | None) -> None:
        """Set the time of the accesses of some rows: IN_FLIGHT, or None for the current time."""
        m, index = self.machine, slice(None) if rows.all() else rows
        shared, lanes = m.shared, work.lanes[index]
        column, at = shared.column(lanes), shared.now(lanes) if when is None else when
        if work.reads.size:
            shared.set_read(work.reads[index], lanes, at)
        if work.writes.size:
            shared.written[work.writes[index]], shared.writer[work.writes[index]] = at, column
        if work.sums.size:
            m.in_flight[np.ix_(work.sums, m.warp[lanes])] = when is not None

    def wait(self, lanes: Array, left: int) -> None:
        """Finish the work of some threads except their `left` latest groups; with -1 all of it."""
        limit = np.full(len(self.committed), -1)
        limit[lanes] = self.committed[lanes] - left
        begun, self.begun, finished = self.begun, [], False
        for work, group, rest in begun:
            over = rest & (group < limit[work.lanes])
            if over.any():
                finished = True
                if (now := over & self.machine.is_late(work.lanes)).any():
                    work.move(now)
                self._mark(work, over, None)
            if (rest & ~over).any():
                self.begun.append((work, group, rest & ~over))
        for work, _, rest in self.begun if finished else ():
            if work.reads.size or work.sums.size:  # both may use the same cell or registers
                self._mark(work, rest, IN_FLIGHT)


@operation(r"(cp\.async|cp\.async\.bulk|wgmma)\.commit_group(?:\.sync\.aligned)?")
def _commit(m: Machine, i: Instruction, lanes: Array, name: str) -> None:
    m.groups[name].committed[lanes] += 1


@operation(r"(cp\.async|cp\.async\.bulk|wgmma)\.wait_group(?:\.read|\.sync\.aligned)?")
@operation(r"(cp\.async)\.wait_all")
def _wait(m: Machine, i: Instruction, lanes: Array, name: str) -> None:
    m.groups[name].wait(lanes, int(i.operands[0]) if i.operands else -1)


@operation(r"cp\.async\.(ca|cg)\.shared(?:::cta)?\.global(?:\.L2::\d+B)?")
def _copy(m: Machine, i: Instruction, lanes: Array, cache: str) -> None:
    to, from_, size, real = (*i.operands, i.operands[2])[:4]
    known = (16,) if cache == "cg" else (4, 8, 16)
    refuse(size not in known, i.text, f"copies of {size} bytes are not supported")
    real = m.read(i, real, "u32", lanes).astype(np.int64)
    refuse(real > size, i.text, f"a source of {real.max()} bytes")
    source = addresses(m, i, from_, lanes)
    m.memory.refuse_misaligned(source & size - 1, i.text, source - BASE, size)
    place = m.shared.places(i.text, addresses(m, i, to, lanes), size, lanes)
    twice = not np.diff(np.sort(place)).all()
    refuse(twice, i.text, "race, two threads write to one place")
    part = int(np.gcd.reduce(real, initial=size))  # all sources have a multiple of these bytes

    def move(rows: Array) -> None:
        values = np.zeros((len(lanes), size // part), f"V{part}")
        row, n = np.nonzero(rows[:, None] & (np.arange(0, size, part) < real[:, None]))
        found, _ = m.memory.load(i.text, source[row] + n * part, part, lanes[row])
        values[row, n] = found.view(values.dtype)[:, 0]
        m.shared.lines(size)[place[rows] // size] = values.view(f"V{size}")[rows, 0]

    cells = m.shared.cells(place, size)
    m.groups["cp.async"].begin(Work(i.text, lanes, move, writes=cells))


class Box(NamedTuple):
    """The elements of one copy: cells of shared memory, global addresses, and which are inside."""

    text: str
    lane: Array
    bits: Any
    place: Array
    cells: Array
    address: Array
    inside: Array

    def finish(self, m: Machine, barrier: Barrier) -> None:
        """Do the copy and complete its bytes on the mbarrier, whose phase makes them visible."""
        value = np.zeros(len(self.place), self.bits)
        address, size = self.address[self.inside], self.bits.itemsize
        found, _ = m.memory.load(self.text, address, size, self.lane)
        value[self.inside] = found.view(self.bits)[:, 0]
        m.shared.bytes.view(self.bits)[self.place] = value
        m.shared.copies += 1
        m.shared.written[self.cells] = barrier.clock[-1] = m.shared.copies
        current = m.barriers.get(barrier.place)
        refuse(current is not barrier, self.text, "its mbarrier was invalidated")
        barrier.bytes, barrier.filled = barrier.bytes - value.nbytes, self.text
        barrier.complete_phase()


def box_of(
    m: Machine,
    i: Instruction,
    lane: Array,
    rank: str,
    kind: Any,
    to: Any,
    tensor: Any,
    *offsets: Any,
) -> Box:
    """Return the copy that a lane issues: the kind of map, coordinates, and offsets if any."""
    base, offset, coordinates = tensor
    maps = m.maps[m.memory.launch[lane[0]]]
    known = maps.get(int(addresses(m, i, [base, offset], lane)[0]))
    if type(known) is not kind or not int(rank) == len(known.shape) == len(coordinates):
        raise Fault(f"{i.text}: no tensor map of {rank} axes there")
    start, shifts = (
        [int(m.read(i, word, t, lane)[0]) for word in words][::-1]
        for words, t in ((coordinates, "s32"), ((*offsets, ())[0], "u16"))
    )
    position = known.position(i.text, start, shifts)
    size, span = known.itemsize, CHUNK << known.swizzle
    inside = np.all([(p >= 0) & (p < n) for p, n in zip(position, known.shape)], axis=0)
    address = size * np.sum([p * s for p, s in zip(position, known.strides)], axis=0)
    address += int.from_bytes(m.memory.pointer(known.allocation), "little") + known.offset
    first = addresses(m, i, to, lane)
    refuse(first % 128, i.text, "an address is not a multiple of 128")
    spot = swizzled(first[0] + size * np.arange(len(address)), span)
    place = m.shared.places(i.text, spot, size, np.repeat(lane, len(spot)))
    cells = m.shared.cells(place[:: CHUNK // size], CHUNK).ravel()
    return Box(i.text, lane, np.dtype(f"u{size}"), place // size, cells, address, inside)


@operation(
    r"cp\.async\.bulk\.tensor\.([1-5])d\.shared::(?:cluster|cta)\.global(?:\.tile|(\.im2col))?"
    r"\.mbarrier::complete_tx::bytes"
)
def _load_box(m: Machine, i: Instruction, lanes: Array, rank: str, pixels: str | None) -> None:
    to, tensor, at, *offsets = i.operands
    for lane in lanes[:, None]:
        box = box_of(m, i, lane, rank, Im2colMap if pixels else TensorMap, to, tensor, *offsets)
        ((barrier, _),) = barriers(m, i, at, lane)
        m.shared.look(i.text, box.cells[None], lane, True)
        m.shared.writer[box.cells], m.shared.written[box.cells] = m.shared.width, IN_FLIGHT
        m.shared.unfenced[box.cells] = False
        if m.is_late(lane)[0]:
            m.loads.append((box, barrier))
        else:
            box.finish(m, barrier)


@operation(r"cp\.async\.bulk\.tensor\.([1-5])d\.global\.shared::cta(?:\.tile)?\.bulk_group")
def _store_box(m: Machine, i: Instruction, lanes: Array, rank: str) -> None:
    tensor, from_ = i.operands
    for lane in lanes[:, None]:
        box = box_of(m, i, lane, rank, TensorMap, from_, tensor)

        def move(_: Array, lane: Array = lane, box: Box = box) -> None:
            value = m.shared.bytes.view(box.bits)[box.place][box.inside]
            if len(value):  # else all of the box is outside of the tensor
                m.memory.store(i.text, box.address[box.inside], value, np.repeat(lane, len(value)))

        m.groups["cp.async.bulk"].begin(Work(i.text, lane, move, reads=box.cells[None]))


@operation(r"fence\.proxy\.async(?:\.shared::(?:cta|cluster))?")
def _fence(m: Machine, i: Instruction, lanes: Array) -> None:
    m.shared.fence(lanes)
