"""Kernels under compute-sanitizer: addresses out of bounds on a few small problems."""

from __future__ import annotations

import subprocess
import sys

from ..records import Record

PROBE_S = 15.0
TOOL = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9"]
PROBE = """
import ctypes
cuda, device, context, memory = ctypes.CDLL("libcuda.so.1"), *(ctypes.c_void_p() for _ in "abc")
assert not cuda.cuInit(0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1024))
assert not cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(1), ctypes.c_size_t(1024))
assert not cuda.cuCtxSynchronize()
"""


def broken(tool: list[str] = TOOL) -> str:
    """Return why the tool fails on a tiny program, or an empty text."""
    command = [*tool, sys.executable, "-c", PROBE]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"compute-sanitizer: {type(error).__name__} within {PROBE_S:g} s"
    last = ((found.stdout + found.stderr).strip().splitlines() or [""])[-1]
    return "" if found.returncode == 0 else f"compute-sanitizer: exit {found.returncode}: {last}"


def check(name: str, seconds: float, tool: list[str] = TOOL) -> Record:
    """Return the tool's report of a backend on small problems of the property list."""
    script = f"from convref_bench.gpu.sanitize import child; child({name!r})"
    row: Record = {"backend": name}
    try:
        found = subprocess.run(
            [*tool, sys.executable, "-c", script], capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as late:
        return row | {"status": "timeout", "said": (late.stdout or b"")[-2000:].decode()}
    said = (found.stdout + found.stderr)[-2000:]
    return row | {"status": "clean" if found.returncode == 0 else "found", "said": said}


def child(name: str) -> None:
    """Run a backend on a ragged problem of some classes, and on the others, without a judge."""
    from convref.case import parse
    from convref.conformance.operands import operands

    from . import properties

    backend, ran = getattr(properties.on_cuda, name), 0
    step = len(properties.ALIGNED) + len(properties.RAGGED)
    every, some = properties.lines(), 3 * len(properties.PASSES)
    chosen = every[len(properties.ALIGNED) :: step][:some]
    for line in (*chosen, *every[-len(properties.others()) :][: len(properties.OTHERS)]):
        case = parse(line)
        if backend.supports(case.call) is None:
            backend.run(case.call, *operands(case))
            ran += 1
    print(f"ran {ran} calls")
