"""The Mojo kernels for the GPU as a backend: PTX run by the CUDA driver, or by an interpreter."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from convref import dtypes
from convref.arrays import facts
from convref.backends import PLAIN, Arm
from convref.case import Call, check_count, check_operand
from convref.errors import UnsupportedError, message
from convref.judge import Numerics
from convref.ops import BASE_ROLE

from . import emit
from .backend import checked, empty, spec_of, unsupported
from .geometry import ArrayLayout
from .gpu import pool
from .gpu.conv import THREADS, TILE, GpuLaunch, launches
from .strides import strides_of

OFFSETS = 2**31  # elements; offsets in the kernels have 32 bits
MAX_GRID_Y = 65535
INVALID_INDEX = -(2**62)
EXACT = 2**24  # float32 represents all integers up to here


class GpuBackend:
    """Computes convolutions and pools with the GPU kernels.

    `kinds` are the kernels to choose from: "direct", "mma" and "wgmma"; `arms` the variants of it
    that the court runs.
    """

    def __init__(
        self,
        name: str,
        runner: Interpreter | CudaRunner,
        kinds: tuple[str, ...] = ("mma", "direct"),
        arms: tuple[Arm, ...] = (PLAIN,),
    ) -> None:
        self.name, self.runner, self.kinds, self.arms = name, runner, kinds, arms

    def supports(self, call: Call) -> str | None:
        if call.op != "conv" and call.op not in pool.OPS:
            return f"no {call.where} kernel for the GPU"
        if (reason := unsupported(call, self.runner.device)) is not None:
            return reason
        if max(prod(call.problem.shape(role)) for role in (*call.roles, *call.wanted)) >= OFFSETS:
            return "offsets have 32 bits, an array has 2**31 elements or more"
        found = _too_many_tiles(call) if call.op == "conv" else _too_large_windows(call)
        return found or self.runner.why_missing() or emit.why_missing()

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role; raise UnsupportedError if offsets would be too large."""
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        check_count(call, operands)
        given = {
            role: self.runner.dense(call, role, operand)
            for role, operand in zip(call.roles, operands)
            if call.is_present(role)
        }
        results = {role: self.runner.empty(call, role, given) for role in call.wanted}
        arrays = {role: self.runner.layout(role, a) for role, a in (given | results).items()}
        if max(array.reach for array in arrays.values()) >= OFFSETS:
            what = "offsets have 32 bits, an array spans 2**31 elements or more"
            raise UnsupportedError(message(self.name, what, call))
        for launch in self._launches(call, arrays):
            self.runner.run(launch, given | results)
        return tuple(results.get(role) for role in call.signature.results)

    def _launches(self, call: Call, arrays: dict[str, ArrayLayout]) -> Iterable[GpuLaunch]:
        if call.op == "conv":
            return launches(call, arrays, self.kinds)
        empty = all(prod(arrays[role].shape) == 0 for role in call.wanted)
        return () if empty else (pool.launch(call, arrays),)

    def numerics(self, call: Call) -> Numerics:
        """Return the accuracy model: tensor-core sums for bfloat16, else sums rounded once."""
        if call.op == "conv" and call.dtype == "bf16" and "mma" in self.kinds:
            return Numerics("mma32")
        return Numerics("rn64" if call.dtype == "f64" else "rn32")

    def fingerprint(self) -> dict[str, str]:
        if (reason := self.runner.why_missing() or emit.why_missing()) is not None:
            return {"missing": reason}
        return {"sources": emit.source_hash(), "compiler": emit.version() or ""}


def _too_many_tiles(call: Call) -> str | None:
    tiles = call.problem.groups * -(-max(call.problem.c, call.problem.k) // TILE)
    return f"more than {MAX_GRID_Y} tiles of channels" if tiles > MAX_GRID_Y else None


def _too_large_windows(call: Call) -> str | None:
    if pool.largest(call.problem) >= OFFSETS:
        return "positions have 32 bits, a window spans 2**31 or more"
    if pool.taps(call.problem) >= EXACT:
        return "a divisor of 2**24 or more"
    return None


class Interpreter:
    """Runs the PTX of one architecture with NumPy."""

    device = "cpu"

    def __init__(self, arch: str) -> None:
        self.arch, self.seed = arch, 0

    def why_missing(self) -> str | None:
        return None

    def dense(self, call: Call, role: str, operand: Any) -> Any:
        """Return a dense copy with the axes in memory order."""
        array = checked(call, role, operand, spec_of(call).operands[role])
        assert array is not None
        return array.copy(order="K")

    def empty(self, call: Call, role: str, given: dict[str, Any]) -> Any:
        """Return memory for a result, filled with NaN or an invalid index."""
        need = spec_of(call).results[role]
        assert need is not None
        out = empty(need, given)
        out.fill(INVALID_INDEX if role == "indices" else np.nan)
        return out

    def layout(self, role: str, array: Any) -> ArrayLayout:
        return ArrayLayout(role, array.shape, strides_of(array))

    def run(self, launch: GpuLaunch, arrays: dict[str, Any]) -> None:
        """Run a launch with asynchronous work done early and then late, warps in random order.

        Raise a Fault if the kernel does something forbidden, or if its results depend on the
        asynchronous work.
        """
        from convref_ptx import Allocation, Fault
        from convref_ptx import launch as run

        arguments: list[Any] = []
        for role, at in launch.pointers:
            if not role:
                arguments.append(None)
                continue
            flat = _flat(arrays[role])
            arguments.append(Allocation(flat, role in launch.written, at * flat.itemsize))
        program, results = _program(self.arch, launch.kernel), set()
        asynchronous = any(i.op.startswith(("cp.async", "wgmma")) for i in program.code)
        for late in (False, True) if asynchronous else (False,):
            self.seed += 1
            given = [*arguments, bytes(launch.geometry)]
            run(program, launch.grid, (THREADS,), given, self.seed, late)
            results.add(b"".join(a.array.tobytes() for a in arguments if a and a.writable))
        if len(results) > 1:
            raise Fault(f"{launch.kernel}: results depend on when asynchronous copies complete")


@cache
def _program(arch: str, kernel: str) -> Any:
    from convref_ptx import parse

    return parse(emit.texts()[arch, kernel])


def _flat(array: Any) -> Any:
    order = np.argsort([-abs(s) for s in array.strides], kind="stable")
    return array.transpose(order).reshape(-1)


class CudaRunner:
    """Runs PTX on torch's CUDA tensors and its current stream.

    `only` is the one compute capability that the kernels support; by default any from 8.0 on.
    """

    device = "cuda"

    def __init__(self, only: tuple[int, int] | None = None) -> None:
        self.only = only

    def why_missing(self) -> str | None:
        try:
            import torch
        except ImportError:
            return "needs torch for its CUDA tensors"
        found = torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)
        if self.only and found != self.only:
            return "needs a CUDA device of sm_{}{}".format(*self.only)
        return None if found >= (8, 0) else "needs a CUDA device of sm_80 or newer"

    def dense(self, call: Call, role: str, operand: Any) -> Any:
        """Return the operand, checked; kernels take any strides."""
        check_operand(call, role, facts(call.where, role, operand))
        return operand.detach()

    def empty(self, call: Call, role: str, given: dict[str, Any]) -> Any:
        """Return memory for a result, with the layout of the operand of its own role."""
        import torch

        shape, like = call.problem.shape(role), next(iter(given.values()))
        same = [a for r, a in given.items() if BASE_ROLE[r] == BASE_ROLE[role]]
        images = [a for a in (*same, like) if a.dim() == len(shape)]
        last = images and len(shape) in (4, 5) and images[0].stride(1) == 1
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        layout = formats[len(shape)] if last else torch.contiguous_format
        dtype = getattr(torch, _torch_name(call.dtype_of(role)))
        return torch.empty(shape, dtype=dtype, device=like.device, memory_format=layout)

    def layout(self, role: str, array: Any) -> ArrayLayout:
        strides = tuple(0 if n == 1 else s for n, s in zip(array.shape, array.stride()))
        return ArrayLayout(role, tuple(array.shape), strides, array.data_ptr() % 16 == 0)

    def run(self, launch: GpuLaunch, arrays: dict[str, Any]) -> None:
        import torch

        out = arrays[launch.pointers[0][0]]
        major, minor = torch.cuda.get_device_capability(out.device)
        arch = "sm_90a" if (major, minor) == (9, 0) else "sm_80"
        addresses = [
            arrays[role].data_ptr() + at * arrays[role].element_size() if role else 0
            for role, at in launch.pointers
        ]
        with torch.cuda.device(out.device):
            kernel = load_kernel(arch, launch.kernel, out.device.index or 0)
            stream = torch.cuda.current_stream().cuda_stream
            kernel.launch(launch.grid, [*addresses, bytes(launch.geometry)], stream)


def _torch_name(code: str) -> str:
    return "bfloat16" if code == "bf16" else dtypes.numpy_dtype(code).name


@cache
def load_kernel(arch: str, kernel: str, device: int, driver: Any = None) -> Any:
    from convref_driver import load

    text = emit.texts()[arch, kernel]
    return load(text.encode(), manifest(text), device, driver)


def manifest(text: str) -> Any:
    from convref_driver import Manifest
    from convref_ptx import parse

    program = parse(text)
    kinds = ("ptr" if p.size == 8 else f"bytes{p.size}" for p in program.parameters)
    return Manifest(program.name, tuple(kinds), (THREADS, 1, 1))


interpreted_direct = GpuBackend("mojo.interpreted.direct", Interpreter("sm_80"), ("direct",))
interpreted_sm_80 = GpuBackend("mojo.interpreted.sm_80", Interpreter("sm_80"))
WITH_WGMMA = ("wgmma", "mma", "direct")
interpreted_wgmma = GpuBackend("mojo.interpreted.wgmma", Interpreter("sm_90a"), WITH_WGMMA)
interpreted = GpuBackend(
    "mojo.interpreted",
    Interpreter("sm_90a"),
    arms=(
        PLAIN,
        Arm("direct", backend=f"{__name__}:interpreted_direct"),
        Arm("sm_80", backend=f"{__name__}:interpreted_sm_80"),
        Arm("wgmma", backend=f"{__name__}:interpreted_wgmma"),
    ),
)
backend = GpuBackend("mojo.cuda", CudaRunner())
wgmma = GpuBackend("mojo.cuda.wgmma", CudaRunner((9, 0)), WITH_WGMMA)
