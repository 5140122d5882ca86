"""A device for Triton without a GPU: kernels launched on CPU tensors are compiled and interpreted.

Triton's own interpreter executes a kernel's source. This executes the PTX that the compiler made of
it, with all checks of `convref_ptx.launch`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton.testing
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from convref.errors import invalid
from convref_driver.manifest import pack

from ..decode.program import Fault, parse
from ..memory.allocations import Allocation
from ..state.launch import launch
from ..tensor_cores import sums
from .compiler import stop_at_ptx
from .cuda import SMS, on_cpu
from .tensors import SCRATCH, Address, Descriptor, Operands, track_undefined

ARCHS = ("80", "86", "89", "90", "100", "120")  # that Triton compiles for; "a" may follow
WARP = 32
KINDS = {"i1": "bool", "u1": "bool", "fp16": "f16", "fp32": "f32", "fp64": "f64"}  # of a Manifest
FLAGS = len(fields(TensorDescriptor)[4:])  # of a descriptor that is not a tensor map


@contextlib.contextmanager
def device(
    arch: str = "sm_90",
    *,
    seed: int = 0,
    late: bool = False,
    findings: list[LaunchFinding] | None = None,
    cuda: bool = True,
    bounds: str = "tensor",
    writable: Collection[str] | None = None,
    tensor_cores: str = "exact",
    jobs: int = 1,
) -> Iterator[Device]:
    """Run Triton kernels that are launched on CPU tensors as PTX of an architecture.

    Parameters
    ----------
    arch : "sm_80", "sm_90" or "sm_100".
    seed : of the order in which warps and programs run.
    late : whether asynchronous copies and products happen as late as their waits allow.
    findings : a list that receives each finding; the launch ends there and the program goes on.
        By default the first finding is raised.
    cuda : whether what the program places on "cuda" stays on the CPU (`triton.cuda.on_cpu`).
    bounds : "tensor" if a kernel may access the elements of its operands, "storage" if it may
        access all memory that an operand is a view of.
    writable : names of the parameters whose tensors kernels may write to; by default of all.
        Triton does not say which are only read.
    tensor_cores : "exact" if a product of matrices is rounded once, "model" if as cards of the
        architecture do, as far as that is published (`convref_ptx.tensor_cores.sums`).
    jobs : processes in which the programs of a launch run if they exchange nothing.

    Raises
    ------
    Fault
        If a kernel does something undefined, or has an instruction that is not supported.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> with device("sm_90"):  # doctest: +SKIP
    ...     their_function(torch.randn(64, 64, device="cuda"))
    """
    number = arch.removeprefix("sm_").removesuffix("a")
    if number not in ARCHS or not arch.startswith("sm_"):
        needs = ", ".join(f"sm_{known}" for known in ARCHS)
        raise invalid("convref_ptx", f"arch is {arch!r}, needs {needs}")
    if bounds not in ("tensor", "storage"):
        raise invalid("convref_ptx", f"bounds is {bounds!r}, needs 'tensor' or 'storage'")
    sums.check(tensor_cores)
    made = Device(int(number), seed, late, findings, bounds, writable, tensor_cores, jobs)
    with (
        stop_at_ptx(),
        mock.patch.object(driver, "_active", made),
        mock.patch.multiple(triton.testing, do_bench=_untimed, do_bench_cudagraph=_untimed),
        on_cpu(made.arch) if cuda else contextlib.nullcontext(),
        track_undefined(),
    ):
        yield made


def _untimed(call: Any, *_: Any, quantiles: Sequence[float] | None = None, **__: Any) -> Any:
    """Time nothing, so that an autotuner takes its first configuration."""
    return [0.0] * len(quantiles) if quantiles else 0.0


@dataclass(frozen=True)
class LaunchFinding:
    """What a launch did wrong: the kernel, its grid and arguments, and the text of the Fault."""

    kernel: str
    grid: tuple[int, ...]
    arguments: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.kernel}[{self.grid}]({', '.join(self.arguments)}): {self.text}"


class Utilities:
    """The properties that Triton asks of a device, those of an H100, and how it loads a kernel."""

    def get_device_properties(self, device: Any) -> dict[str, int]:
        return {
            "max_shared_mem": 232448,
            "max_num_regs": 65536,
            "multiprocessor_count": SMS,
            "warpSize": WARP,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }

    def load_binary(self, name: str, kernel: bytes, shared: int, device: Any) -> tuple[Any, ...]:
        registers, spills, threads = 32, 0, 1024  # programs divide by the registers
        return name, parse(kernel.decode()), registers, spills, threads


class Launcher:
    """Launches a compiled kernel, with the arguments of Triton's launcher."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.signature, self.metadata = source.signature, metadata

    def __call__(
        self, x: int, y: int, z: int, stream: Any, program: Any, packed: Any, hook_data: Any,
        enter: Callable[[Any], None] | None, leave: Callable[[Any], None] | None, *values: Any,
    ) -> None:  # fmt: skip
        if not x * y * z:
            return
        made, metadata = driver.active, self.metadata
        operands = Operands(made.bounds, made.writable)
        maps = list(metadata.tensordesc_meta or ())
        given: list[Any] = []
        for (name, kind), value in zip(self.signature.items(), values):
            given += _parameters(str(name), kind, value, operands, maps)
        for size in (metadata.global_scratch_size, metadata.profile_scratch_size):
            scratch = torch.empty(size * x * y * z, dtype=torch.uint8) if size else None
            given.append(operands.add(scratch, SCRATCH))
        if enter is not None:
            enter(hook_data)
        threads = WARP * metadata.num_warps
        made.run(program, (x, y, z), threads, operands.arguments(given), metadata.shared, values)
        if leave is not None:
            leave(hook_data)


def _parameters(name: str, kind: Any, value: Any, operands: Operands, maps: list[Any]) -> list[Any]:
    """Return the parameters of the entry for an argument of the kernel, as Triton's launcher."""
    if isinstance(kind, tuple):
        parts = (_parameters(name, k, v, operands, maps) for k, v in zip(kind, value))
        return [parameter for part in parts for parameter in part]
    if kind == "constexpr":
        return []
    if kind.startswith("*"):
        return [operands.add(value, name)]
    if kind.startswith("tensordesc"):
        start = operands.add(value.base, name)
        geometry = [*_packed(name, "i32", value.shape), *_packed(name, "i64", value.strides)]
        if maps:
            return [_descriptor(value, maps.pop(0), start), *geometry]
        flags = [value.padding == "nan", *(False for _ in range(FLAGS - 1))]
        sizes = _packed(name, "i64", [*value.shape, *value.strides])
        return [start, *sizes, *_packed(name, "i1", flags), *geometry]
    return _packed(name, kind, [value])


def _descriptor(value: Any, box: dict[str, Any], start: Address | None) -> Descriptor:
    if value.padding != "zero" or box.get("fp4_padded") or start is None:
        raise Fault(f"a tensor descriptor padded with {value.padding}: not supported")
    shape, strides = tuple(value.shape), tuple(value.strides)
    geometry = (shape, strides, tuple(box["block_size"]), box["swizzle"])
    return Descriptor(start.address, box["elem_size"], geometry)


def _packed(name: str, kind: str, values: Sequence[Any]) -> list[bytes]:
    if kind == "bf16":
        words = torch.tensor([float(value) for value in values]).bfloat16().view(torch.int16)
        return [pack(name, "i16", word) for word in words.tolist()]
    return [pack(name, KINDS.get(kind, kind), value) for value in values]


@dataclass
class Device:
    """Triton's driver: what it asks of the active device, and the launches on it."""

    arch: int
    seed: int
    late: bool
    findings: list[LaunchFinding] | None = None
    bounds: str = "tensor"
    writable: Collection[str] | None = None
    tensor_cores: str = "exact"
    jobs: int = 1
    launched: list[str] = field(default_factory=list)  # names of kernels
    utils: Utilities = field(default_factory=Utilities)
    launcher_cls: type[Launcher] = Launcher

    def run(
        self, program: Any, grid: tuple[int, ...], threads: int, arguments: list[Any], shared: int,
        values: Sequence[Any],
    ) -> None:  # fmt: skip
        self.launched.append(program.name)
        try:
            how = self.seed, self.late, shared, self.tensor_cores, self.jobs
            launch(program, grid, (threads,), arguments, *how)
        except Fault as fault:
            if self.findings is None:
                raise
            for argument in arguments:  # what the launch would have written is not another finding
                given = getattr(argument, "allocation", argument)
                if isinstance(given, Allocation) and given.undefined is not None:
                    given.undefined[...] = 0
            shown = tuple(map(_shown, values))
            self.findings.append(LaunchFinding(program.name, grid, shown, str(fault)))

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, WARP)

    def get_current_device(self) -> str:
        return f"PTX of sm_{self.arch}"  # kernels are compiled for each device

    def set_current_device(self, device: Any) -> None:
        """Accept any device: there is one."""

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return divmod(self.arch, 10)

    def get_active_torch_device(self) -> torch.device:
        return torch.empty(0).device  # cuda:0 within `on_cpu`

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return _untimed

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Do nothing: no time is measured."""

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}"
    return repr(value) if isinstance(value, (int, float, str, np.generic)) else type(value).__name__
