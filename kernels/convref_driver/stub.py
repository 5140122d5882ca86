"""A stand-in for libcuda: built by a C compiler, it writes down what it is asked."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from convref.errors import UnsupportedError, message

from .library import LIBRARY, Driver

SOURCE = Path(__file__).with_name("stub_cuda.c")


def build(folder: Path) -> Path:
    """Return the path of a stand-in built in `folder`, under libcuda's own name.

    Raises
    ------
    UnsupportedError
        If there is no C compiler, or no Triton to take cuda.h from.
    """
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    try:
        import triton
    except ImportError:
        raise UnsupportedError(message("stub", "needs triton, whose cuda.h it takes")) from None
    if compiler is None:
        raise UnsupportedError(message("stub", "needs gcc or clang"))
    headers = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    target = folder / LIBRARY
    command = [compiler, "-O2", "-w", "-shared", "-fPIC", f"-I{headers}", str(SOURCE)]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target


class Stub(Driver):
    """The driver of a stand-in, with what was asked of it."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._stub = ctypes.CDLL(str(path))
        self._stub.stub_log.restype = ctypes.c_char_p

    def log(self) -> list[str]:
        """Return what was asked since the last time, a line a call."""
        lines: list[str] = self._stub.stub_log().decode().splitlines()
        self._stub.stub_clear()
        return lines

    def fail(self, name: str, code: int, after: int = 0) -> None:
        """Let the call of `name` that follows `after` others fail once with `code`."""
        self._stub.stub_fail(name.encode(), code, after)

    def layout(self, sizes: Sequence[int]) -> None:
        """Say how many bytes of each parameter a launch writes down."""
        self._stub.stub_layout(len(sizes), (ctypes.c_int * len(sizes))(*sizes))

    def static_shared(self, size: int) -> None:
        """Say how many bytes of shared memory a kernel has beside what its launch asks for."""
        self._stub.stub_static_shared(size)

    def quiet(self) -> None:
        """Only count from here on: launches cost next to nothing."""
        self._stub.stub_quiet(1)
