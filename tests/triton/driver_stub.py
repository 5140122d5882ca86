"""A stand-in for libcuda, built by a C compiler, which logs the calls it receives."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from convref.errors import UnsupportedError, message
from convref_driver.library import LIBRARY, Driver

SOURCE = Path(__file__).with_name("stub_cuda.c")


def compiler_of() -> tuple[str, Path]:
    """Return a C compiler, and the folder of cuda.h.

    Raises
    ------
    UnsupportedError
        If there is no C compiler, or no Triton to take cuda.h from.
    """
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    try:
        import triton
    except ImportError:
        raise UnsupportedError(message("stub", "needs triton for its cuda.h")) from None
    if compiler is None:
        raise UnsupportedError(message("stub", "needs gcc or clang"))
    return compiler, Path(triton.__file__).parent / "backends" / "nvidia" / "include"


def build(folder: Path) -> Path:
    """Return the path of a stand-in built in `folder`, under libcuda's own name."""
    compiler, headers = compiler_of()
    target = folder / LIBRARY
    command = [compiler, "-O2", "-w", "-shared", "-fPIC", f"-I{headers}", str(SOURCE)]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target


class Stub(Driver):
    """The driver of a stand-in, with access to its log."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._stub = ctypes.CDLL(str(path))
        self._stub.stub_log.restype = ctypes.c_char_p

    def log(self) -> list[str]:
        """Return the calls since the previous `log()`, one per line."""
        lines: list[str] = self._stub.stub_log().decode().splitlines()
        self._stub.stub_clear()
        return lines

    def fail(self, name: str, code: int, after: int = 0) -> None:
        """Make one call of `name`, after `after` successful ones, fail with `code`."""
        self._stub.stub_fail(name.encode(), code, after)

    def layout(self, sizes: Sequence[int]) -> None:
        """Set how many bytes of each parameter a launch logs."""
        self._stub.stub_layout(len(sizes), (ctypes.c_int * len(sizes))(*sizes))

    def set_version(self, number: int) -> None:
        """Set the CUDA version of the driver, such as 13010."""
        self._stub.stub_version(number)

    def static_shared(self, size: int) -> None:
        """Set how many bytes of static shared memory a kernel has, besides the dynamic ones."""
        self._stub.stub_static_shared(size)

    def quiet(self) -> None:
        """Count calls from now on without logging them, so that launches are cheap."""
        self._stub.stub_quiet(1)
