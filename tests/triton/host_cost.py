"""The host cost of a launch, without a GPU, compared with a launch by Triton itself.

The driver is a stub of libcuda that takes every call and does nothing. What is left is the work of
the host: reading the operands, allocating results, packing arguments, calling the driver. Results
are CPU tensors, so their allocation is that of a CPU.
"""

import contextlib
import timeit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Small: the system takes longer to give megabytes to a CPU tensor than a CUDA allocator would.
LINE = "conv.fprop:n1c64k64_i7x7_f3x3_p1x1:dt=bf16:mem=nhwc"
STREAM = 7
SEEN, TRITONS = "a prepared call: operands to results", "Triton's kernel[grid](...)"


def measured(folder: Path, line: str) -> dict[str, float]:
    """Return the cost in us of a prepared call, of finding it, and of Triton's launchers."""
    import torch

    from convref.case import parse
    from convref_triton.common import geometry
    from convref_triton.interpreter import TYPES
    from convref_triton.plan.choose import plan
    from convref_triton.run import gpu

    torch.set_num_threads(1)
    call = parse(line).call
    operands = geometry.operands(call)
    tensors = {
        role: torch.empty_strided(t.shape, t.strides, dtype=TYPES[t.dtype][0])
        for role, t in operands.items()
    }
    device, made = _stub_device(folder), plan(call, operands)
    ready = gpu.prepare(made, device)
    given = [tensors[role] for role in ready.roles]
    results = dict(zip(made.buffers, ready(given)))
    launch = made.launches[0]
    rows = {
        SEEN: lambda: ready(given),
        "finding what was prepared": lambda: gpu.prepare(made, device),
        **_by_triton(launch, tensors | results),
    }
    return {name: _best(work) for name, work in rows.items()}


def _stub_device(folder: Path) -> Any:
    import driver_stub as stub
    import torch

    from convref_driver.library import LIBRARY
    from convref_triton.run import gpu

    driver = stub.Stub(folder / LIBRARY)
    driver.quiet()
    return gpu.Device(
        torch.device("cpu"),
        "sm_90",
        driver,
        lambda: STREAM,
        lambda: True,
        contextlib.nullcontext,
        lambda: False,
    )


def _best(work: Callable[[], Any], count: int = 100) -> float:
    """Return the best of many short runs: on a busy machine long ones are interrupted."""
    work()
    return min(timeit.repeat(work, number=count, repeat=500)) / count * 1e6


def _by_triton(launch: Any, tensors: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return launches of the same kernel by Triton: its compiled launcher, and its whole path."""
    import triton
    from triton.backends.nvidia.driver import CudaDriver
    from triton.tools.tensor_descriptor import TensorDescriptor

    from convref_triton.plan.launch import Descriptor, Slot, map_arguments

    host = CudaDriver()
    host.get_current_device = lambda: 0
    host.get_current_stream = lambda device: STREAM
    host.get_device_capability = lambda device: (9, 0)
    triton.runtime.driver.set_active(host)

    def argument(value: Any) -> Any:
        if isinstance(value, Descriptor):
            geometry = map(list, (value.shape, value.strides, value.block))
            return TensorDescriptor(tensors[value.slot.role], *geometry)
        return tensors[value.role] if isinstance(value, Slot) else value

    given = {**launch.constants, **launch.arguments}
    named = [p.name for p in launch.kernel.params if p.name in given]
    values = [map_arguments(argument, given[name]) for name in named]
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    kernel = launch.kernel[launch.grid](*values, **options)
    head = (*launch.grid, STREAM, kernel.function, kernel.packed_metadata, None, None, None)
    return {
        "Triton's launcher alone": lambda: kernel.run(*head, *values),
        TRITONS: lambda: launch.kernel[launch.grid](*values, **options),
    }
