"""Threads in lock step where they agree, warps in random order where nothing orders them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from . import numbers, operations
from .fault import Fault
from .memory import Array, Buffer, Global, Shared
from .program import Instruction, Program, packed

WARP = 32
TOGETHER = 4096  # threads that are one vector
ENDLESS = 1_000_000  # stretches of instructions after which a run is taken to hang
RUNNING, WAITING, DONE = 0, 1, 2

__all__ = ["Buffer", "Machine", "launch"]


def launch(
    program: Program,
    grid: Sequence[int],
    threads: Sequence[int],
    arguments: Sequence[Buffer | bytes | None],
    seed: int = 0,
) -> None:
    """Run a kernel on buffers.

    Parameters
    ----------
    program : Program
    grid, threads : sequence of int
        Blocks, and threads of a block, along x, y, z.
    arguments : sequence of Buffer, bytes or None
        One per parameter: a pointer, any other value packed, or a null pointer.
    seed : int
        Of the order of warps and blocks.

    Raises
    ------
    Fault
        If the kernel does something forbidden or unknown.
    """
    (gx, gy, gz), (tx, ty, tz) = ((*sizes, 1, 1)[:3] for sizes in (grid, threads))
    size, rng = tx * ty * tz, np.random.default_rng(seed)
    if program.max_threads and size > program.max_threads:
        raise Fault(f"{program.name}: {size} threads, at most {program.max_threads} are declared")
    buffers = [value for value in arguments if isinstance(value, Buffer)]
    memory = Global(buffers)
    addresses = iter(a + b.offset for a, b in zip(memory.addresses, buffers))
    values = [
        value
        if isinstance(value, bytes)
        else (0 if value is None else next(addresses)).to_bytes(8, "little")
        for value in arguments
    ]
    parameters = packed(program, values)
    order = rng.permutation(gx * gy * gz)
    step = max(1, TOGETHER // size)
    for i in range(0, len(order), step):
        blocks = order[i : i + step]
        Machine(program, (gx, gy, gz), (tx, ty, tz), blocks, parameters, memory, rng).run()
    memory.write_back()


class Machine:
    """Some blocks of a launch.

    Attributes
    ----------
    registers : dict of str to ndarray
        Patterns of each register, for all threads; all bits set before it is written.
    block, warp, thread : ndarray of int64
        Of each lane: its block among these, its warp among all, its thread among all.
    epoch : ndarray of int64
        Barriers that each block has passed.
    """

    def __init__(
        self,
        program: Program,
        grid: tuple[int, int, int],
        threads: tuple[int, int, int],
        blocks: Array,
        parameters: bytes,
        memory: Global,
        rng: np.random.Generator,
    ) -> None:
        self.program, self.parameters, self.memory, self.rng = program, parameters, memory, rng
        size = prod(threads)
        self.count = len(blocks) * size
        self.block = np.repeat(np.arange(len(blocks)), size)
        within = np.tile(np.arange(size), len(blocks))
        warps = -(-size // WARP)
        self.warp, self.lane = self.block * warps + within // WARP, within % WARP
        self.thread = np.repeat(blocks, size) * size + within
        self.pc, self.state = np.zeros(self.count, np.int64), np.zeros(self.count, np.int8)
        self.epoch = np.zeros(len(blocks), np.int64)
        self.shared = Shared(len(blocks), program.shared_bytes)
        self.registers: dict[str, Array] = {}
        self.special = _special(grid, threads, np.repeat(blocks, size), within, self.lane)
        self.code = [(operations.decoded(i), i) for i in program.code]
        self._steps = 0

    def run(self) -> None:
        """Run all threads to their end."""
        with np.errstate(all="ignore"):
            while (self.state != DONE).any():
                first = self.rng.random(int(self.warp[-1]) + 1) < 0.5
                for group in (first[self.warp], ~first[self.warp]):
                    self._advance(group)
                self._release()

    def _advance(self, group: Array) -> None:
        """Run the threads of a group until each waits or is done, those behind first."""
        while True:
            active = np.flatnonzero(group & (self.state == RUNNING))
            if not len(active):
                return
            at = self.pc[active]
            lanes = active[at == at.min()]
            self._stretch(lanes, int(at.min()))
            self._steps += 1
            if self._steps > ENDLESS:
                raise Fault(f"{self.program.name}: does not end")

    def _stretch(self, lanes: Array, pc: int) -> None:
        """Run lanes that stand at one instruction up to where they may part or meet others."""
        begin, leaders = pc, self.program.leaders
        while pc == begin or pc not in leaders:
            if pc >= len(self.code):
                raise Fault(f"{self.program.name}: runs past its end")
            operation, instruction = self.code[pc]
            chosen = self._guarded(instruction, lanes)
            pc += 1
            if operation is operations.CONTROL:
                self.pc[lanes] = pc
                self._control(instruction, lanes, chosen)
                return
            if len(chosen):
                operation(self, instruction, chosen)
        self.pc[lanes] = pc

    def _guarded(self, instruction: Instruction, lanes: Array) -> Array:
        if not instruction.predicate:
            return lanes
        return lanes[
            self.read(instruction, instruction.predicate, "pred", lanes) != instruction.negated
        ]

    def _control(self, instruction: Instruction, lanes: Array, chosen: Array) -> None:
        op = instruction.op
        if op in ("bra", "bra.uni"):
            if op == "bra.uni" and 0 < len(chosen) < len(lanes):
                raise Fault(f"{instruction.text}: threads disagree")
            self.pc[chosen] = self.program.labels[str(instruction.operands[0])]
        elif op in ("ret", "exit"):
            self.state[chosen] = DONE
        elif instruction.operands != (0,):
            raise Fault(f"{instruction.text}: only barrier 0 of all threads is known")
        else:
            self.state[chosen] = WAITING

    def _release(self) -> None:
        """Let the blocks go on whose threads all wait at one barrier, or are done."""
        for block in np.unique(self.block[self.state == WAITING]):
            there = np.flatnonzero((self.block == block) & (self.state == WAITING))
            if len(np.unique(self.pc[there])) > 1:
                raise Fault(f"{self.program.name}: threads wait at different barriers")
            self.epoch[block] += 1
            self.state[there] = RUNNING

    def read(self, instruction: Instruction, operand: Any, kind: str, lanes: Array) -> Array:
        """Return an operand as numbers of a type."""
        if kind == "pred":
            return self._register(instruction, operand)[lanes]
        bits = numbers.BITS[numbers.width(kind)]
        if isinstance(operand, int):
            pattern = np.array([operand & int(np.iinfo(bits).max)], bits)
        elif operand in self.special:
            pattern = self.special[operand][lanes].astype(bits)
        else:
            pattern = self._register(instruction, operand)[lanes]
        if pattern.dtype != bits:
            raise Fault(f"{instruction.text}: {operand} has not {numbers.width(kind)} bits")
        return numbers.seen(pattern, kind)

    def _register(self, instruction: Instruction, name: str) -> Array:
        if name not in self.registers:
            raise Fault(f"{instruction.text}: {name} is read before it is written")
        return self.registers[name]

    def write(self, instruction: Instruction, register: Any, value: Array, lanes: Array) -> None:
        """Set a register; "_" stands for none."""
        if register == "_":
            return
        if register not in self.registers:
            prefix = register.rstrip("0123456789")
            if prefix not in self.program.registers:
                raise Fault(f"{instruction.text}: {register} is not declared")
            bits = numbers.BITS[self.program.registers[prefix]]
            self.registers[register] = np.full(self.count, -1).astype(bits)
        held = self.registers[register]
        if held.dtype.itemsize != value.dtype.itemsize:
            raise Fault(f"{instruction.text}: {register} has not {8 * value.itemsize} bits")
        held[lanes] = value.view(held.dtype)


def _special(
    grid: Sequence[int], threads: Sequence[int], block: Array, within: Array, lane: Array
) -> dict[str, Array]:
    """Return the special registers of all lanes."""
    found = {"%laneid": lane, "%warpid": within // WARP}
    for name, index, sizes in (("tid", within, threads), ("ctaid", block, grid)):
        rest = index
        for axis, size in zip("xyz", sizes):
            found[f"%{name}.{axis}"] = rest % size
            found[f"%n{name}.{axis}"] = np.full(len(index), size)
            rest = rest // size
    return {name: value.astype(np.uint32) for name, value in found.items()}
