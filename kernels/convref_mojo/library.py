"""The loaded library: its functions, the threads that share their work, and scratch memory."""

import ctypes
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from . import build
from .structs import table

DTYPES = ("f32", "f64", "bf16")  # DTYPES of launch.mojo
KERNELS = table("cpu/launch.mojo", "KERNELS")
STRUCTS = 1024  # filled-in structs in a cache, per kind of kernel
SCRATCH_KEPT = 1 << 26  # bytes of scratch memory that a thread keeps after a call
ALIGNMENT = 64
PIECES = 4  # of the work, per thread
NO_PROCESSOR = -1  # on systems without sched_getcpu

Word = ctypes.c_int64


@cache
def loaded() -> ctypes.CDLL:
    found = ctypes.CDLL(str(build.library()))
    found.convref_plan.restype = found.convref_compute.restype = None
    found.convref_pass.restype, found.convref_pass.argtypes = Word, [Word] * 6
    return found


def tile() -> tuple[int, int, int]:
    """Return the register tile of float32: rows, vectors, elements of a vector."""
    found = (Word * 3)()
    loaded().convref_tile(found)
    rows, vectors, width = found
    return rows, vectors, width


@cache
def _words(kernel: str, dtype: str) -> tuple[Word, Word]:
    return Word(KERNELS.index(kernel)), Word(DTYPES.index(dtype))


def plan(kernel: str, dtype: str, struct: Any) -> None:
    loaded().convref_plan(*_words(kernel, dtype), ctypes.byref(struct))


def run(kernel: str, dtype: str, struct: Any, units: int, threads: int, size: int = 0) -> None:
    """Compute all units of a launch on some threads, each with `size` bytes of scratch memory."""
    compute, words = loaded().convref_compute, _words(kernel, dtype)
    address = Word(ctypes.addressof(struct))

    def work(low: int, high: int) -> None:
        own, _owner = scratch(size, "thread")
        compute(*words, address, Word(own), Word(low), Word(high))

    spread(work, units, threads)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """The worker threads, with an affinity that excludes the caller's processor.

    On a virtual machine whose host has taken a processor away, that processor looks idle to the
    guest. Linux then wakes a worker on the processor of the thread that woke it, and the two
    threads share it.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max(1, cores() - 1), "convref_mojo", self._enter)
        self._threads: list[int] = []
        self._excluded = NO_PROCESSOR
        self._current_processor = getattr(ctypes.PyDLL(None), "sched_getcpu", lambda: NO_PROCESSOR)

    def _enter(self) -> None:
        self._threads.append(threading.get_native_id())
        self._excluded = NO_PROCESSOR

    def start(self, tasks: Iterable[Callable[[], Any]]) -> list[Future[Any]]:
        if (processor := self._current_processor()) != self._excluded:
            self._exclude(processor)
        return [self._pool.submit(task) for task in tasks]

    def _exclude(self, processor: int) -> None:
        self._excluded = processor
        if rest := os.sched_getaffinity(0) - {processor}:
            for thread in list(self._threads):
                with suppress(OSError):  # without the permission, threads run anywhere
                    os.sched_setaffinity(thread, rest)


@cache
def _workers() -> Workers:
    return Workers()


if hasattr(os, "register_at_fork"):
    # A child process has none of the threads of its parent.
    os.register_at_fork(after_in_child=_workers.cache_clear)

_local = threading.local()


def scratch(size: int, slot: str) -> tuple[int, Any]:
    """Return the address of `size` bytes, and their owner, which keeps them alive.

    The thread keeps up to SCRATCH_KEPT bytes of each slot for the next request of that slot.
    """
    if size == 0:
        return 0, None
    capacity, address, memory = getattr(_local, slot, (0, 0, None))
    if capacity < size:
        memory = np.empty(size + ALIGNMENT, np.uint8)
        start = int(memory.ctypes.data)
        address = start + -start % ALIGNMENT
        if size <= SCRATCH_KEPT:
            setattr(_local, slot, (size, address, memory))
    return address, memory


def spread(work: Callable[[int, int], Any], units: int, threads: int) -> None:
    """Compute `units` of work on `threads` threads, the caller's included.

    The work is cut into pieces that the threads take in turn: a worker that starts late takes
    fewer of them, and the caller does not wait for one that has not started.
    """
    shares = min(threads, units)
    if shares < 2:
        work(0, units)
        return
    count = min(units, PIECES * shares)
    edges = [units * i // count for i in range(count + 1)]
    pieces = iter([*pairwise(edges)])  # next() of a list's iterator is atomic

    def take_pieces() -> None:
        for low, high in pieces:
            work(low, high)

    workers = _workers().start([take_pieces] * (shares - 1))
    try:
        take_pieces()
    finally:
        for worker in workers:
            if not worker.cancel():
                worker.result()
