"""The loaded library: its functions, and scratch memory."""

import ctypes
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from . import build

DTYPES = ("f32", "f64", "bf16")  # DTYPES of launch.mojo
SCRATCH_KEPT = 1 << 26  # bytes of scratch memory that a thread keeps after a call

Word = ctypes.c_int64


@cache
def loaded() -> ctypes.CDLL:
    return load(build.library())


def load(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    found.convref_pass.restype, found.convref_pass.argtypes = Word, [Word] * 6
    found.convref_numpy.restype, found.convref_numpy.argtypes = Word, [Word] * 3
    return found


def tile() -> tuple[int, int, int]:
    """Return the register tile of float32: rows, vectors, elements of a vector."""
    found = (Word * 3)()
    loaded().convref_tile(found)
    rows, vectors, width = found
    return rows, vectors, width


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_local = threading.local()


def scratch(size: int) -> tuple[int, Any]:
    """Return the address of `size` bytes, and their owner, which keeps them alive.

    A thread keeps up to SCRATCH_KEPT bytes for its next request.
    """
    try:
        capacity, address, memory = _local.kept
    except AttributeError:
        capacity, address, memory = 0, 0, None
    if capacity < size:
        memory = np.empty(size, np.uint8)
        address = int(memory.ctypes.data)
        if size <= SCRATCH_KEPT:
            _local.kept = size, address, memory
    return address, memory
