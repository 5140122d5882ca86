"""A launch: its operands are placed in memory, its blocks run, and a fault is explained."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from ..arithmetic.numbers import Array
from ..asynchronous.maps import TensorMap
from ..decode.program import Fault, Program, refuse
from ..memory.allocations import BASE, Allocation
from ..memory.global_memory import GlobalMemory, Raced, Unrecorded
from ..tensor_cores import sums
from ..watch.races import Watch
from ..watch.undefined import PartlyDefined
from . import processes
from .machine import Machine


def launch(
    program: Program,
    grid: Sequence[int],
    threads: Sequence[int],
    arguments: Sequence[Allocation | TensorMap | bytes | None],
    seed: int = 0,
    late: bool = False,
    shared: int = 0,
    tensor_cores: str = "exact",
    jobs: int = 1,
) -> None:
    """Run a kernel on allocations; a Fault if it does something undefined or unsupported.

    The grid is in blocks and the threads are those of a block, along x, y, z. The arguments are one
    per parameter: a pointer, a tensor map, any other value packed, or None for a null pointer. The
    seed determines the order of warps and blocks. With `late`, asynchronous work is done as late as
    its waits allow instead of when it is issued. `shared` is the dynamic shared memory of a block,
    in bytes. A product of matrices is rounded once if `tensor_cores` is "exact", or as cards do if
    it is "model" (`tensor_cores.sums`). Blocks that exchange nothing run in that many processes,
    `jobs`, where processes can fork; with a finding the launch runs again in one.
    """
    sums.check(tensor_cores)
    size = prod(threads)
    many = 0 < program.max_threads < size
    refuse(many, program.name, f"{size} threads, at most {program.max_threads} are declared")
    sizes = (*grid, 1, 1)[:3], (*threads, 1, 1)[:3]
    room = program.sizes["shared"] + shared
    run = _Run(program, *sizes, arguments, seed, late, room, tensor_cores)
    for name, known in run.maps.items():
        known.check(f"{program.name}: the tensor map {name}")
    raced, cause, changed = Raced(), "", np.zeros(len(run.allocations) + 1, bool)
    if jobs > 1 and run.in_processes(jobs, changed):
        return
    while True:
        before, memory = changed.copy(), run.memory(raced, changed)
        try:
            run.execute(memory)
        except Unrecorded:
            continue
        except Fault as fault:
            print(*memory.printed, sep="", end="")
            text = run.explained(fault, raced, before)
            if cause := run.cause(memory, text, raced, before) or cause:
                text = f"{cause}; used by {text}"
            raise Fault(text) from fault
        if not memory.raced or raced:
            break
        cause, raced = run.cause(memory, "", raced, before), memory.raced  # now undefined values
    print(*memory.printed, sep="", end="")
    memory.write_back()


@dataclass
class _Run:
    """What a launch is given."""

    program: Program
    grid: Sequence[int]
    threads: Sequence[int]
    arguments: Sequence[Any]
    seed: int
    late: bool
    room: int  # bytes of shared memory of a block
    tensor_cores: str

    @cached_property
    def maps(self) -> dict[str, TensorMap]:
        """The tensor maps by the names of the parameters."""
        named = zip(self.program.parameters, self.arguments)
        return {parameter.name: a for parameter, a in named if isinstance(a, TensorMap)}

    @cached_property
    def allocations(self) -> list[Allocation]:
        unique = dict.fromkeys(getattr(a, "allocation", a) for a in self.arguments)
        return [*self.variables.values(), *(a for a in unique if isinstance(a, Allocation))]

    @cached_property
    def variables(self) -> dict[str, Allocation]:
        """The variables of the program in global memory, new ones for each launch."""
        return {
            name: Allocation(np.frombuffer(bytearray(content), np.uint8), writable=True, name=name)
            for name, content in self.program.variables.items()
        }

    def memory(self, raced: Raced, changed: Array) -> GlobalMemory:
        """Return the memory of a run, given what runs before have found."""
        elements = [known.itemsize for known in self.maps.values()]
        grain = min([self.program.grains["global"], *elements])
        undefined = any(a.undefined is not None for a in self.allocations)
        kind = PartlyDefined if undefined else GlobalMemory
        made = kind(self.allocations, grain, raced, changed)
        made.variables = {n: BASE + made.allocations[a] for n, a in self.variables.items()}
        return made

    def in_processes(self, count: int, changed: Array) -> bool:
        """Run all blocks in some processes and write back; return whether that was sound.

        What was changed is known for a run in one process.
        """
        count = min(count, prod(self.grid))
        if count < 2 or not processes.are_independent(self.program) or not processes.can_fork():
            return False
        while True:
            before = changed.copy()
            found = processes.run(partial(self._part, before, count), count)
            parts = [part for part in found if part is not None]
            for part in parts:
                changed |= part.changed
            if len(parts) < count:
                return False
            if not any((part.was_read & changed).any() for part in parts):
                break  # else reads are recorded that were not
        memory = self.memory(Raced(), changed)
        if sound := processes.joined(memory, parts):
            memory.write_back()
        return sound

    def _part(self, changed: Array, count: int, n: int) -> processes.Part | None:
        """Run the blocks of one process; None if it can not say what they do."""
        while True:
            memory = self.memory(Raced(), changed)
            try:
                self.execute(memory, share=(n, count))
            except Unrecorded:
                continue
            except Fault:
                return None
            if memory.raced or memory.cause or memory.printed:
                return None
            return processes.Part(*memory.accessed(), memory.was_read, changed)

    def execute(
        self, memory: GlobalMemory, watch: Watch | None = None, share: tuple[int, int] = (0, 1)
    ) -> None:
        """Run all blocks, or the share of one of several processes."""
        values = [_packed(memory, argument) for argument in self.arguments]
        got, needs = [len(value) for value in values], [p.size for p in self.program.parameters]
        refuse(got != needs, self.program.name, f"got arguments of {got} bytes, needs {needs}")
        placed = {self.program.addresses[name]: known for name, known in self.maps.items()}
        given = self.program, memory, values, placed, self.seed, self.late, self.room
        Machine(*given, self.tensor_cores, watch).launch(self.grid, self.threads, share)

    def cause(self, memory: GlobalMemory, text: str, raced: Raced, before: Array) -> str:
        """Return why a value is undefined that a fault of this text uses, as far as is known."""
        if memory.cause is not None:
            return self.explained(memory.cause, raced, before)
        if "undefined bits" in text:
            return self.program.located(memory.unwritten, "reads memory that was not written")
        return ""

    def explained(self, fault: Fault, raced: Raced, before: Array) -> str:
        """Return the text of a fault; for a race with both of its sides: the launch runs again."""
        if (conflict := fault.conflict) is None:
            return str(fault)
        memory, watch = self.memory(raced, before.copy()), Watch(conflict)
        with suppress(Fault, Unrecorded):
            self.execute(memory, watch)
        (own, other), text = watch.parties(), str(fault)
        if own and own.place not in text:  # of a read, which does not end the run
            text = f"{text} ({own.place})"
        space = memory.shared if conflict.shared else memory
        text = f"{text}; {space.described(conflict.cell * space.grain)}"
        verb = "written" if conflict.writes else "read"
        return f"{text}, {verb} by {other.text} ({other.place})" if other else text


def _packed(memory: GlobalMemory, argument: Any) -> bytes:
    if isinstance(argument, TensorMap):
        return bytes(128)  # found by its address
    return argument if isinstance(argument, bytes) else memory.pointer(argument)
