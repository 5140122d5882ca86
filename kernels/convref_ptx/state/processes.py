"""Blocks of a launch in several processes: each runs some of them, on its own copy of memory.

That is sound for blocks that exchange nothing. What they wrote is joined if no block of a process
wrote to what those of another read or wrote. Else, or if there is a fault, the launch has to run in
one process: its findings are always those of one process.
"""

from __future__ import annotations

import multiprocessing
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.program import PtxProgram
from ..memory.global_memory import GlobalMemory

_EXCHANGES = re.compile(r"(?:atom|red|cp\.reduce|[ls][dt]\.(?:volatile|relaxed|acquire|release))\b")


class Part(NamedTuple):
    """What the blocks of one process did to global memory."""

    written: Array  # cells
    values: Array  # their bytes
    read: Array  # cells of allocations that blocks of the process wrote to, or those of `changed`
    was_read: Array  # of each allocation, whether reads of it were not recorded
    changed: Array  # of each allocation, whether there were writes to it


def are_independent(program: PtxProgram) -> bool:
    """Return whether no instruction of a program passes values between blocks."""
    return not any(_EXCHANGES.match(i.op) for i in program.code)


def can_fork() -> bool:
    """Return whether processes can be made that have this one's memory."""
    known = "fork" in multiprocessing.get_all_start_methods()
    return known and not multiprocessing.current_process().daemon


def run(work: Callable[[int], Part | None], count: int) -> list[Part | None]:
    """Return what each of some processes makes of its number; None if it ends without a result."""
    context = multiprocessing.get_context("fork")
    ends, processes = [], []
    for n in range(count):
        end, other = context.Pipe(duplex=False)
        process = context.Process(target=_send, args=(work, n, other))
        with warnings.catch_warnings():  # threads of BLAS do not go on: NumPy's start again
            warnings.simplefilter("ignore")
            process.start()
        other.close()
        ends.append(end)
        processes.append(process)
    found = [_received(end) for end in ends]
    for process in processes:
        process.join()
    return found


def _send(work: Callable[[int], Part | None], n: int, end: Any) -> None:
    end.send(work(n))


def _received(end: Any) -> Part | None:
    try:
        found: Part | None = end.recv()
    except EOFError:
        return None
    return found


def merge_parts(memory: GlobalMemory, parts: list[Part]) -> bool:
    """Write what processes wrote to a memory; return whether their accesses are independent."""
    owner = np.zeros(len(memory.writer), np.int16)
    for n, part in enumerate(parts, 1):
        if owner[part.written].any():
            return False
        owner[part.written] = n
    for n, part in enumerate(parts, 1):
        by = owner[part.read]
        if ((by != 0) & (by != n)).any():
            return False
    for part in parts:
        memory.apply_writes(part.written, part.values)
    return True
