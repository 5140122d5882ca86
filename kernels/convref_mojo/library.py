"""The loaded library: its functions, the threads that share their work, and scratch memory."""

from __future__ import annotations

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

DTYPES = ("f32", "f64", "bf16")
KEPT = 1 << 26  # bytes of scratch memory that a thread keeps at most
ALIGNMENT = 64
PIECES = 4  # of work for each thread
NOWHERE = -1  # the processor of a caller on a system that does not say

Function = Callable[..., None]


@cache
def loaded() -> ctypes.CDLL:
    """Return the library for this CPU, built if need be."""
    return ctypes.CDLL(str(build.library()))


@cache
def function(name: str, dtype: str) -> Function:
    """Return a function of the library; its arguments are words."""
    found = getattr(loaded(), f"convref_{name}_{dtype}")
    found.restype = None
    return found  # type: ignore[no-any-return]


def tile() -> tuple[int, int, int]:
    """Return the register tile of float32: rows, vectors, numbers in a vector."""
    found = (ctypes.c_int64 * 3)()
    loaded().convref_tile(found)
    rows, vectors, width = found
    return rows, vectors, width


def cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Others:
    """The threads beside the caller's, kept off the processor that the caller is on.

    The kernel of a virtual machine takes a processor that sleeps for one that the host has taken
    away, and so wakes a thread on its waker's processor, where each then has half of it.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max(1, cores() - 1), "convref_mojo", self._enter)
        self._threads: list[int] = []
        self._kept_off = NOWHERE
        self._here = getattr(ctypes.PyDLL(None), "sched_getcpu", lambda: NOWHERE)

    def _enter(self) -> None:
        self._threads.append(threading.get_native_id())
        self._kept_off = NOWHERE

    def start(self, tasks: Iterable[Callable[[], Any]]) -> list[Future[Any]]:
        """Let the threads do the tasks."""
        if (here := self._here()) != self._kept_off:
            self._keep_off(here)
        return [self._pool.submit(task) for task in tasks]

    def _keep_off(self, here: int) -> None:
        self._kept_off = here
        if places := os.sched_getaffinity(0) - {here}:
            for thread in list(self._threads):
                with suppress(OSError):  # where it is forbidden they run anywhere
                    os.sched_setaffinity(thread, places)


@cache
def _others() -> Others:
    return Others()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_others.cache_clear)  # its threads stay with the parent

_own = threading.local()


def scratch(size: int, slot: str) -> int:
    """Return the address of `size` bytes that belong to this thread until it asks again."""
    if size == 0:
        return 0
    room, address, _ = getattr(_own, slot, (0, 0, None))
    if room < size:
        held = np.empty(size + ALIGNMENT, np.uint8)
        start = int(held.ctypes.data)
        address = start + -start % ALIGNMENT
        setattr(_own, slot if size <= KEPT else "large", (size, address, held))
    return address


def spread(work: Callable[[int, int], Any], units: int, threads: int) -> None:
    """Do `units` of work, of which `threads`, the caller's among them, take pieces in turn.

    Another thread begins late, or not before all is done: it finds less to do then, or nothing.
    """
    shares = min(threads, units)
    if shares < 2:
        work(0, units)
        return
    count = min(units, PIECES * shares)
    edges = [units * i // count for i in range(count + 1)]
    pieces = iter([*pairwise(edges)])  # whose next() no other thread interrupts

    def turns() -> None:
        for low, high in pieces:
            work(low, high)

    others = _others().start([turns] * (shares - 1))
    try:
        turns()
    finally:
        for other in others:
            if not other.cancel():
                other.result()
