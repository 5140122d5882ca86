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
from ..decode.program import Fault, PtxProgram, refuse
from ..memory.allocations import BASE, Allocation
from ..memory.global_memory import GlobalMemory, Raced, Unrecorded
from ..tensor_cores import sums
from ..watch.races import Watch
from ..watch.undefined import PartlyDefined
from . import processes
from .machine import Machine


def launch(
    program: PtxProgram,
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
    run = _run(program, [grid], threads, [arguments], seed, [late], shared, tensor_cores)
    for name, known in run.maps[0].items():
        known.check(f"{program.name}: the tensor map {name}")
    raced, cause, changed = Raced(), "", np.zeros(len(run.owners) + 1, bool)
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
            text = run.explanation(fault, raced, before)
            if cause := run.cause(memory, text, raced, before) or cause:
                text = f"{cause}; used by {text}"
            raise Fault(text) from fault
        if not memory.raced or raced:
            break
        cause, raced = run.cause(memory, "", raced, before), memory.raced  # now undefined values
    print(*memory.printed, sep="", end="")
    memory.write_back()


def launch_all(
    program: PtxProgram,
    grids: Sequence[Sequence[int]],
    threads: Sequence[int],
    arguments: Sequence[Sequence[Allocation | TensorMap | bytes | None]],
    seed: int,
    late: Sequence[bool],
    shared: int = 0,
    tensor_cores: str = "exact",
) -> None:
    """Run launches of a kernel that have no allocation in common, as `launch` does.

    The grids, arguments and `late` are of each launch. Their blocks are one vector, which is many
    times faster than one small launch after another. With a finding they run again, one by one: it
    is always that of a launch alone.
    """
    if len(grids) > 1:
        run = _run(program, grids, threads, arguments, seed, late, shared, tensor_cores)
        if run.run_all():
            return
    for grid, values, one in zip(grids, arguments, late, strict=True):
        launch(program, grid, threads, values, seed, one, shared, tensor_cores)


def _run(
    program: PtxProgram,
    grids: Sequence[Sequence[int]],
    threads: Sequence[int],
    arguments: Sequence[Any],
    seed: int,
    late: Sequence[bool],
    shared: int,
    tensor_cores: str,
) -> _Run:
    sums.check(tensor_cores)
    size = prod(threads)
    many = 0 < program.max_threads < size
    refuse(many, program.name, f"{size} threads, at most {program.max_threads} are declared")
    full, block = [(*grid, 1, 1)[:3] for grid in grids], (*threads, 1, 1)[:3]
    room = program.sizes["shared"] + shared
    return _Run(program, full, block, arguments, seed, late, room, tensor_cores)


@dataclass
class _Run:
    """What some launches of a program are given."""

    program: PtxProgram
    grids: Sequence[Sequence[int]]  # of each launch, as the arguments are
    threads: Sequence[int]
    arguments: Sequence[Sequence[Any]]
    seed: int
    late: Sequence[bool]
    room: int  # bytes of shared memory of a block
    tensor_cores: str

    @cached_property
    def maps(self) -> list[dict[str, TensorMap]]:
        """The tensor maps of each launch by the names of the parameters."""
        return [
            {p.name: a for p, a in zip(self.program.parameters, given) if isinstance(a, TensorMap)}
            for given in self.arguments
        ]

    @cached_property
    def owners(self) -> dict[Allocation, int]:
        """The allocations of all launches, each with its launch."""
        found: dict[Allocation, int] = {}
        for n, (variables, given) in enumerate(zip(self.variables, self.arguments)):
            each = (*variables.values(), *(getattr(a, "allocation", a) for a in given))
            found |= {a: n for a in each if isinstance(a, Allocation)}
        return found

    @cached_property
    def variables(self) -> list[dict[str, Allocation]]:
        """The variables of the program in global memory, new ones for each launch."""

        def made(name: str, content: bytes) -> Allocation:
            array = np.frombuffer(bytearray(content), np.uint8)
            return Allocation(array, writable=True, name=name)

        given = self.program.variables.items()
        return [{name: made(name, content) for name, content in given} for _ in self.grids]

    def memory(self, raced: Raced, changed: Array) -> GlobalMemory:
        """Return the memory of a run, given what runs before have found."""
        elements = [known.itemsize for maps in self.maps for known in maps.values()]
        grain = min([self.program.grains["global"], *elements])
        undefined = any(a.undefined is not None for a in self.owners)
        kind = PartlyDefined if undefined else GlobalMemory
        owners = [*self.owners.values()] if len(self.grids) > 1 else []
        made = kind(self.owners, grain, raced, changed, owners)
        made.variables = {
            name: [BASE + made.allocations[variables[name]] for variables in self.variables]
            for name in self.program.variables
        }
        return made

    def run_all(self) -> bool:
        """Run all launches and write back; return whether there was nothing to report."""
        memory = self._undisturbed(np.zeros(len(self.owners) + 1, bool))
        if memory is None or not self._are_possible():
            return False
        memory.write_back()
        return True

    def _are_possible(self) -> bool:
        """Return whether the driver would make all tensor maps."""
        with suppress(Fault):
            for maps in self.maps:
                for known in maps.values():
                    known.check("")
            return True
        return False

    def in_processes(self, count: int, changed: Array) -> bool:
        """Run all blocks in some processes and write back; return whether that was sound.

        What was changed is known for a run in one process.
        """
        count = min(count, prod(self.grids[0]))
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
        if sound := processes.merge_parts(memory, parts):
            memory.write_back()
        return sound

    def _part(self, changed: Array, count: int, n: int) -> processes.Part | None:
        """Run the blocks of one process; None if it can not say what they do."""
        memory = self._undisturbed(changed, (n, count))
        return memory and processes.Part(*memory.accessed_cells(), memory.was_read, changed)

    def _undisturbed(self, changed: Array, share: tuple[int, int] = (0, 1)) -> GlobalMemory | None:
        """Return the memory after a run without a finding or output, None if there is any."""
        while True:
            memory = self.memory(Raced(), changed)
            try:
                self.execute(memory, share=share)
            except Unrecorded:
                continue
            except Fault:
                return None
            return None if memory.raced or memory.cause or memory.printed else memory

    def execute(
        self, memory: GlobalMemory, watch: Watch | None = None, share: tuple[int, int] = (0, 1)
    ) -> None:
        """Run all blocks, or the share of one of several processes."""
        needs, packed = [p.size for p in self.program.parameters], []
        for arguments in self.arguments:
            packed.append([_packed(memory, argument) for argument in arguments])
            got = [len(value) for value in packed[-1]]
            refuse(got != needs, self.program.name, f"got arguments of {got} bytes, needs {needs}")
        places = self.program.addresses
        placed = [{places[name]: known for name, known in maps.items()} for maps in self.maps]
        given = self.program, memory, _rows(packed), placed, self.seed, self.late, self.room
        Machine(*given, self.tensor_cores, watch).launch(self.grids, self.threads, share)

    def cause(self, memory: GlobalMemory, text: str, raced: Raced, before: Array) -> str:
        """Return why a value is undefined that a fault of this text uses, as far as is known."""
        if memory.cause is not None:
            return self.explanation(memory.cause, raced, before)
        if "undefined bits" in text:
            return self.program.message_at(memory.unwritten, "reads memory that was not written")
        return ""

    def explanation(self, fault: Fault, raced: Raced, before: Array) -> str:
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


def _rows(packed: list[list[bytes]]) -> list[Array]:
    """Return the values of each parameter: a row of bytes a launch, one row if all are the same."""
    found = []
    for values in zip(*packed):
        each = values if len(set(values)) > 1 else values[:1]
        found.append(np.frombuffer(b"".join(each), np.uint8).reshape(len(each), -1))
    return found


def _packed(memory: GlobalMemory, argument: Any) -> bytes:
    if isinstance(argument, TensorMap):
        return bytes(128)  # found by its address
    return argument if isinstance(argument, bytes) else memory.pointer(argument)
