"""CUDA C++ to PTX by NVRTC, which needs neither a GPU nor a driver."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator, Sequence
from ctypes.util import find_library
from functools import cache
from pathlib import Path

from convref.errors import UnsupportedError, invalid

PACKAGE = "nvidia-cuda-nvrtc"


def compile_cuda(
    source: str, names: Sequence[str] = (), arch: str = "sm_90", file: str = "kernel.cu",
    options: Sequence[str] = (),
) -> tuple[str, list[str]]:  # fmt: skip
    """Return the PTX of a source with its lines, and the symbols of kernels in it.

    Parameters
    ----------
    source : CUDA C++; headers of CUDA are found where their packages are installed.
    names : those kernels, a template as its instance, "sums<float, 128>".
    arch : the architecture to compile for, as "sm_80" or "sm_90a".
    file : the name of the source in messages.
    options : more options of NVRTC, as "-I/path" or "--use_fast_math".

    Raises
    ------
    UnsupportedError
        If NVRTC is not installed.
    ConvrefError
        If the source does not compile; with NVRTC's log.
    """
    headers = [f"-I{path}" for name in ("include", "include/cccl") for path in _folders(name)]
    words = [f"-arch={arch}", "-lineinfo", "-std=c++17", *options, *headers]
    program = _Program(source, file)
    try:
        program.compile(words, names)
        return program.text("PTX"), [program.symbol(name) for name in names]
    finally:
        program.close()


class _Program:
    """A program of NVRTC."""

    def __init__(self, source: str, file: str) -> None:
        self._library, self._file, self._handle = _nvrtc(), file, ctypes.c_void_p()
        given = source.encode(), file.encode(), 0, None, None
        self._check(self._library.nvrtcCreateProgram(ctypes.byref(self._handle), *given))

    def close(self) -> None:
        self._library.nvrtcDestroyProgram(ctypes.byref(self._handle))

    def compile(self, options: Sequence[str], names: Sequence[str]) -> None:
        for name in names:
            self._call("AddNameExpression", name.encode())
        words = (ctypes.c_char_p * len(options))(*map(str.encode, options))
        code = self._library.nvrtcCompileProgram(self._handle, len(options), words)
        self._check(code, self.text("ProgramLog").strip())

    def text(self, what: str) -> str:
        """Return the "PTX" or the "ProgramLog"."""
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", ctypes.byref(size))
        held = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", held)
        return held.value.decode()

    def symbol(self, name: str) -> str:
        found = ctypes.c_char_p()
        self._call("GetLoweredName", name.encode(), ctypes.byref(found))
        return (found.value or b"").decode()

    def _call(self, function: str, *arguments: object) -> None:
        self._check(getattr(self._library, f"nvrtc{function}")(self._handle, *arguments))

    def _check(self, code: int, log: str = "") -> None:
        if code:
            why = self._library.nvrtcGetErrorString(code).decode()
            raise invalid(self._file, f"{why}\n{log}" if log else why)


@cache
def _nvrtc() -> ctypes.CDLL:
    """Return the library, of the package if it is installed."""
    found = [str(path) for folder in _folders("lib") for path in folder.glob("libnvrtc.so.*")]
    path = found[0] if found else find_library("nvrtc")
    if path is None:
        raise UnsupportedError(f"CUDA C++ needs NVRTC: pip install {PACKAGE}")
    library = ctypes.CDLL(path)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _folders(name: str) -> Iterator[Path]:
    """Yield the folders with a name of NVIDIA's packages: nvidia/cu13/lib and the like."""
    spec = importlib.util.find_spec("nvidia")
    for parent in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(parent).glob(f"*/{name}"))
