"""Stand-ins for libcuda and libamdhip64, built by a C compiler, which log their calls."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from convref.errors import UnsupportedError, message
from convref_driver import hip
from convref_driver.library import LIBRARY, Driver

FOLDER = Path(__file__).parent
SOURCES = {LIBRARY: ("nvidia", "stub_cuda.c"), hip.LIBRARY: ("amd", "stub_hip.c")}


def compiler_of(vendor: str = "nvidia") -> tuple[str, Path]:
    """Return a C compiler, and the folder of a vendor's headers.

    Raises
    ------
    UnsupportedError
        If there is no C compiler, or no Triton to take the headers from.
    """
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    try:
        import triton
    except ImportError:
        raise UnsupportedError(message("stub", "needs triton for its headers")) from None
    if compiler is None:
        raise UnsupportedError(message("stub", "needs gcc or clang"))
    return compiler, Path(triton.__file__).parent / "backends" / vendor / "include"


def build(folder: Path, name: str = LIBRARY) -> Path:
    """Return the path of a stand-in built in `folder`, under the library's own name."""
    vendor, source = SOURCES[name]
    compiler, headers = compiler_of(vendor)
    target = folder / name
    command = [compiler, "-O2", "-w", "-shared", "-fPIC", f"-I{headers}", str(FOLDER / source)]
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
