"""Threads in lock step where they agree, warps in random order where nothing orders them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from . import arithmetic, im2col, matrices, numbers, operations  # noqa: F401
from .copies import Barrier, Groups, Load, TensorMap, Work
from .memory import Array, Buffer, Global, Shared
from .operations import ASLEEP, DONE, NAMED, RUNNING, WAITING, WARP
from .program import PARAMETERS, Fault, Instruction, Program, packed, refuse

TOGETHER = 4096  # threads that are one vector
ENDLESS = 1_000_000  # stretches of instructions after which a run is taken to hang


def launch(
    program: Program,
    grid: Sequence[int],
    threads: Sequence[int],
    arguments: Sequence[Buffer | TensorMap | bytes | None],
    seed: int = 0,
    late: bool = False,
    shared: int = 0,
) -> None:
    """Run a kernel on buffers.

    Parameters
    ----------
    program : Program
    grid, threads : sequence of int
        Blocks, and threads of a block, along x, y, z.
    arguments : sequence of Buffer, TensorMap, bytes or None
        One per parameter: a pointer, a tensor map, any other value packed, or a null pointer.
    seed : int
        Of the order of warps and blocks.
    late : bool
        Whether what is asynchronous happens when somebody cannot go on without it, and not at once.
    shared : int
        Bytes of dynamic shared memory.

    Raises
    ------
    Fault
        If the kernel does something forbidden or unknown.
    """
    grid, threads = ((*sizes, 1, 1)[:3] for sizes in (grid, threads))
    size, rng = prod(threads), np.random.default_rng(seed)
    if program.max_threads and size > program.max_threads:
        raise Fault(f"{program.name}: {size} threads, at most {program.max_threads} are declared")
    lying = [a.buffer if isinstance(a, TensorMap) else a for a in arguments]
    memory = Global(list({id(a): a for a in lying if isinstance(a, Buffer)}.values()))
    values = (
        a if isinstance(a, bytes) else bytes(128) if isinstance(a, TensorMap) else memory.pointer(a)
        for a in arguments
    )
    parameters = packed(program, list(values))
    maps = {
        PARAMETERS + p.offset: a
        for p, a in zip(program.parameters, arguments)
        if isinstance(a, TensorMap)
    }
    order, step = rng.permutation(prod(grid)), max(1, TOGETHER // size)
    for i in range(0, len(order), step):
        blocks = order[i : i + step]
        machine = Machine(program, grid, threads, blocks, parameters, memory, rng)
        machine.late, machine.maps = late, maps
        machine.shared = Shared(program.shared_bytes + shared, machine.block, machine.warp)
        machine.run()
    memory.write_back()


class Machine:
    """Some blocks of a launch."""

    def __init__(
        self, program: Program, grid: Sequence[int], threads: Sequence[int], blocks: Array,
        parameters: bytes, memory: Global, rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.program, self.parameters, self.memory, self.rng = program, parameters, memory, rng
        size = prod(threads)
        self.count = len(blocks) * size
        self.block = np.repeat(np.arange(len(blocks)), size)  # of each lane, among these
        within = np.tile(np.arange(size), len(blocks))
        warps = -(-size // WARP)
        self.warp, self.lane = self.block * warps + within // WARP, within % WARP
        self.thread = np.repeat(blocks, size) * size + within  # of each lane, among all
        self.pc, self.state = np.zeros(self.count, np.int64), np.zeros(self.count, np.int8)
        self.at, self.need = np.zeros((2, self.count), np.int64)  # barrier: which, of how many
        self.late, self.maps = False, dict[int, TensorMap]()
        self.shared: Shared  # set before it runs
        self.registers: dict[str, Array] = {}  # patterns; all bits set before one is written
        self.undefined: dict[str, Array] = {}  # bits that nothing defines; they stand as ones
        self.special = _special(grid, threads, np.repeat(blocks, size), within, self.lane)
        self.code = [(*operations.decoded(i.op), i) for i in program.code]
        together = (".sync" in i.op and not i.op.startswith("bar") for i in program.code)
        self.together = [*together, False]
        self.groups = {kind: Groups(self) for kind in ("cp.async", "cp.async.bulk", "wgmma")}
        self.barriers: dict[int, Barrier] = {}  # by their place
        self.loads: list[Load] = []
        # Registers of wgmma: products were not waited for; a thread wrote since its last fence.
        self.fragments = matrices.fragments(program.code)
        self.flying, self.changed = np.zeros((2, len(self.fragments), self.count), bool)
        self._steps, self._nudged = 0, dict[int, bytes]()

    def run(self) -> None:
        """Run all threads to their end."""
        with np.errstate(all="ignore"):
            while (self.state != DONE).any():
                first = self.rng.random(int(self.warp[-1]) + 1) < 0.5
                for group in (first[self.warp], ~first[self.warp]):
                    self._advance(group)
                self._release()
        left: list[Work | Load] = [work for work, *_ in self.groups["cp.async.bulk"].begun]
        for work in left + [work for work, *_ in self.groups["wgmma"].begun] + self.loads:
            raise Fault(f"{work.text}: the kernel ends without waiting for it")

    def _advance(self, group: Array) -> None:
        """Run the threads of a group until each waits or is done, those behind first."""
        while True:
            active = np.flatnonzero(group & (self.state == RUNNING))
            if not len(active):
                return
            lanes = self._next(active)
            self._stretch(lanes, int(self.pc[lanes[0]]))
            self._steps += 1
            refuse(self._steps > ENDLESS, self.program.name, "does not end")

    def _next(self, active: Array) -> Array:
        """Return the threads furthest behind that can go on without the rest of their warps."""
        at = self.pc[active]
        for pc in np.unique(at):
            lanes = active[at == pc]
            if self.together[pc]:
                lanes = lanes[self._whole(lanes)]
            if len(lanes):
                return lanes
        return active[at == at.min()]

    def _whole(self, lanes: Array) -> Array:
        """Return for each of some threads whether no other of its warp is missing."""
        warps = self.warp[lanes]
        alive = np.bincount(self.warp[self.state != DONE], minlength=warps.max() + 1)
        return np.bincount(warps)[warps] == alive[warps]

    def _stretch(self, lanes: Array, pc: int) -> None:
        """Run lanes that stand at one instruction up to where they may part or meet others."""
        begin, leaders = pc, self.program.leaders
        whole = len(lanes) == self.count or bool(self._whole(lanes).all())
        while pc == begin or pc not in leaders:
            refuse(pc >= len(self.code), self.program.name, "runs past its end")
            if self.together[pc] and not whole and pc != begin:
                break
            operation, parts, instruction = self.code[pc]
            chosen = self._guarded(instruction, lanes)
            pc += 1
            if parts:
                self.pc[lanes] = pc
            if len(chosen):
                operation(self, instruction, chosen)
            else:  # what a guard keeps all from writing may still be moved around
                for name in np.atleast_1d(np.array(instruction.operands[:1], object)).ravel():
                    if isinstance(name, str) and self.program.width(name):
                        self.held(instruction, name)
            if parts:
                return
        self.pc[lanes] = pc

    def _guarded(self, i: Instruction, lanes: Array) -> Array:
        if not i.predicate:
            return lanes
        goes = self.read(i, i.predicate, "pred", lanes) != i.negated
        chosen = lanes[goes]
        if i.op == "bra.uni":  # warps may go different ways
            parted = np.isin(self.warp[chosen], self.warp[lanes[~goes]])
            refuse(parted, i.text, "threads disagree")
        return chosen

    def _release(self) -> None:
        """Let go on who may, at barriers that are full and phases that are complete."""
        waiting = np.flatnonzero(self.state == WAITING)
        key = self.block[waiting] * NAMED + self.at[waiting]
        alive = np.bincount(self.block[self.state != DONE], minlength=int(self.block[-1]) + 1)
        need = np.where(self.need[waiting], self.need[waiting], alive[self.block[waiting]])
        there = np.bincount(key, minlength=1)[key]
        refuse(there > need, self.program.name, "more threads at a barrier than it was given")
        if len(full := waiting[there == need]):
            self._meet(full, key[there == need])
        asleep = np.flatnonzero(self.state == ASLEEP)
        for place in np.unique(self.at[asleep]):
            lanes = asleep[self.at[asleep] == place]
            self._wake(lanes[self.barriers[int(place)].passed(self.need[lanes])])
        still = np.setdiff1d(self.block[self.state != DONE], self.block[self.state == RUNNING])
        for block in still:
            self._unlock(int(block))

    def _meet(self, lanes: Array, key: Array) -> None:
        warps = np.unique(key * self.count + self.warp[lanes])
        if len(np.unique(self.warp[lanes] * len(self.code) + self.pc[lanes])) != len(warps):
            raise Fault(f"{self.program.name}: threads of a warp wait at different barriers")
        starts = np.flatnonzero(np.diff(warps // self.count, prepend=-1))
        self.shared.meet(warps % self.count, starts)
        self._wake(lanes)

    def _wake(self, lanes: Array) -> None:
        self.state[lanes] = RUNNING
        for block in np.unique(self.block[lanes]):
            self._nudged.pop(int(block), None)

    def _unlock(self, block: int) -> None:
        """Do what a block cannot go on without: a copy, then a wait that ends in vain."""
        lanes = np.flatnonzero((self.block == block) & (self.state != DONE))
        asleep = lanes[self.state[lanes] == ASLEEP]
        awaited = [load for load in self.loads if load.place in self.at[asleep]]
        if awaited:
            load = awaited[self.rng.integers(len(awaited))]
            self.loads.remove(load)
            load.finish()
            return
        stand = self.pc[lanes].tobytes()
        if not len(asleep) or self._nudged.get(block) == stand:
            raise Fault(f"{self.program.name}: all threads wait; {self._standing(lanes)}")
        self._nudged[block] = stand
        self.state[asleep] = RUNNING

    def _standing(self, lanes: Array) -> str:
        stand = sorted({(int(self.pc[n]) - 1, int(self.warp[n])) for n in lanes})
        return "; ".join(
            f"{self.code[pc][-1].text}: warps {[warp % self.shared.width for _, warp in those]}"
            for pc, those in groupby(stand, lambda pair: pair[0])
        )

    def read(self, i: Instruction, operand: Any, kind: str, lanes: Array, lax: int = -1) -> Array:
        """Return an operand as numbers of a type; `lax` is the value of bits nothing defines."""
        bits = numbers.BITS[numbers.width(kind)]
        if isinstance(operand, int):
            value = operand != 0 if kind == "pred" else operand & int(np.iinfo(bits).max)
            pattern = np.full(len(lanes), value, bits)
        elif operand in self.special:
            pattern = self.special[operand][lanes].astype(bits)
        elif operand not in self.registers:
            raise Fault(f"{i.text}: {operand} is read before it is written")
        else:
            pattern = self.registers[operand][lanes]
            if operand in self.fragments and self.flying[self.fragments[operand], lanes].any():
                raise Fault(f"{i.text}: {operand} has not been waited for")
            if operand in self.undefined and (lacks := self.undefined[operand][lanes]).any():
                if lax < 0:
                    raise Fault(f"{i.text}: {operand} has bits that nothing defines")
                pattern = pattern if lax else pattern & ~lacks
        if pattern.dtype != bits:
            raise Fault(f"{i.text}: {operand} has not {numbers.width(kind)} bits")
        return numbers.seen(pattern, kind)

    def held(self, i: Instruction, register: str) -> Array:
        """Return the patterns of a register that is about to be written."""
        if register not in self.registers:
            width = self.program.width(register)
            if width is None:
                raise Fault(f"{i.text}: {register} is not declared")
            self.registers[register] = np.full(self.count, -1).astype(numbers.BITS[width])
        return self.registers[register]

    def leave(self, i: Instruction, operand: Any) -> None:
        """Let a register that nothing has written hold bits that nothing defines."""
        known = isinstance(operand, int) or operand in self.special or operand in self.registers
        if not known:
            self.undefined[operand] = self.held(i, operand).copy()

    def write(self, i: Instruction, to: Any, value: Array, lanes: Array, least: Any = None) -> None:
        """Set a register, "_" for none; `least` is the value with zeros for undefined bits."""
        if to == "_":
            return
        held = self.held(i, to)
        if held.dtype.itemsize != value.dtype.itemsize:
            raise Fault(f"{i.text}: {to} has not {8 * value.itemsize} bits")
        if to in self.fragments:
            row = self.fragments[to]
            if self.flying[row, lanes].any():
                raise Fault(f"{i.text}: {to} has not been waited for")
            self.changed[row, lanes] = True
        held[lanes] = value = value.view(held.dtype)
        if least is not None or to in self.undefined:
            lacks = 0 if least is None else value ^ least.view(held.dtype)
            self.undefined.setdefault(to, np.zeros_like(held))[lanes] = lacks


def _special(
    grid: Sequence[int], threads: Sequence[int], block: Array, within: Array, lane: Array
) -> dict[str, Array]:
    """Return the special registers of all lanes."""
    found = {"%laneid": lane, "%warpid": within // WARP}
    for name, index, sizes in (("tid", within, threads), ("ctaid", block, grid)):
        places = np.unravel_index(index, tuple(sizes[::-1]))[::-1]
        for axis, size, place in zip("xyz", sizes, places):
            found[f"%{name}.{axis}"], found[f"%n{name}.{axis}"] = place, np.full(len(index), size)
    return {name: value.astype(np.uint32) for name, value in found.items()}
