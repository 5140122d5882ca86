"""What a launch costs the host, without a GPU: `python -m convref_bench.timing.host_cost [LINE]`.

A stand-in for libcuda takes every call and does nothing, so that what is left is ours: looking at
the operands, allocating results, packing arguments, calling the driver. Results are CPU tensors:
allocation is measured on those. Triton's own launcher is measured beside, on the same stand-in.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Small: the system takes longer to give megabytes to a CPU tensor than a CUDA allocator would.
LINE = "conv.fprop:n1c64k64_i7x7_f3x3_p1x1:dt=bf16:mem=nhwc"
STREAM = 7
SEEN, TRITONS = "a seen call: operands to results", "Triton's kernel[grid](...)"


def main(arguments: list[str]) -> int:
    """Measure in a process of its own, whose libcuda is the stand-in."""
    from convref_driver import stub

    with tempfile.TemporaryDirectory() as folder:
        stub.build(Path(folder))
        paths = filter(None, (folder, os.environ.get("LD_LIBRARY_PATH")))
        env = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths), "TRITON_CACHE_DIR": folder}
        code = "import sys; from convref_bench import host_cost; host_cost.report(*sys.argv[1:])"
        line = arguments[0] if arguments else LINE
        return subprocess.run([sys.executable, "-c", code, folder, line], env=env).returncode


def report(folder: str, line: str) -> None:
    """Print the table of `measured`."""
    print(f"host cost of {line}, libcuda a stand-in; us a call, the best of many")
    for name, cost in measured(Path(folder), line).items():
        print(f"{cost:8.2f}  {name}")


def measured(folder: Path, line: str) -> dict[str, float]:
    """Return the cost in us of a seen call, of its parts, and of Triton's launchers."""
    import torch

    from convref.case import parse
    from convref_triton.common import geometry
    from convref_triton.interpreter import TYPES
    from convref_triton.plan.choose import plan
    from convref_triton.plan.launch import Launch
    from convref_triton.run import gpu

    torch.set_num_threads(1)
    call = parse(line).call
    lying = geometry.operands(call)
    tensors = {
        role: torch.empty_strided(t.shape, t.strides, dtype=TYPES[t.dtype][0])
        for role, t in lying.items()
    }
    device = _stand_in(folder)
    made = plan(call, lying)
    ready = gpu.prepare(made, device)
    operands = [tensors[role] for role in ready.roles]
    results = ready(operands)
    kept = [*operands, *results]
    addresses = [tensor.data_ptr() for tensor in kept]
    launches = [step for step in made.steps if isinstance(step, Launch)]
    steps = [run for run, step in zip(ready._steps, made.steps) if isinstance(step, Launch)]
    rows = {
        SEEN: lambda: ready(operands),
        f"  of that {len(made.buffers)} allocations": lambda: _allocate(ready),
        f"  of that {len(kept)} addresses": lambda: [tensor.data_ptr() for tensor in kept],
        f"  of that {len(steps)} launches": lambda: _all(steps, kept, addresses),
        "  one bare call of the driver": _bare(device.driver, launches[0], device),
        "finding what was prepared": lambda: gpu.prepare(made, device),
        "key of the operands: shapes, strides, alignment": lambda: hash(
            tuple((t.shape, t.stride(), t.data_ptr() % 16 == 0) for t in operands)
        ),
        "key of the call: one hash": lambda: hash(call),
        **_tritons(launches[0], {**tensors, **dict(zip(made.buffers, results))}),
    }
    return {name: _best(work) for name, work in rows.items()}


def _stand_in(folder: Path) -> Any:
    """Return a device whose driver is the quiet stand-in for libcuda of a folder."""
    import torch

    from convref_driver import stub
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


def _allocate(ready: Any) -> None:
    import torch

    for shape, strides, dtype in ready._buffers:
        torch.empty_strided(shape, strides, dtype=dtype, device=ready._device.place)


def _all(steps: list[Any], tensors: list[Any], addresses: list[int]) -> None:
    for step in steps:
        step(STREAM, tensors, addresses)


def _bare(driver: Any, launch: Any, device: Any) -> Callable[[], Any]:
    """Return a call of cuLaunchKernelEx with everything in place."""
    from convref_driver.manifest import TENSORMAP
    from convref_triton.compile.specialise import specialise
    from convref_triton.plan.launch import Descriptor, Slot
    from convref_triton.run import gpu

    compiled, kernel = gpu._kernel(specialise(launch), device)
    empty = {Slot: 0, Descriptor: bytes(TENSORMAP)}
    values = [empty.get(type(v), v) for v in gpu.arguments(compiled, launch)]
    prepared = kernel.prepare(launch.grid, values)
    frame = prepared._frame()
    call, function = driver.launch, prepared.kernel.function
    return lambda: call(frame.config, function, frame.pointers, None)


def _tritons(launch: Any, tensors: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return launches of the same kernel by Triton itself: its launcher, and its whole path."""
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
    as_ints = [
        map_arguments(lambda v: v.data_ptr() if hasattr(v, "data_ptr") else v, value)
        for value in values
    ]
    head = (*launch.grid, STREAM, kernel.function, kernel.packed_metadata, None, None, None)
    return {
        "Triton's launcher alone, addresses given": lambda: kernel.run(*head, *as_ints),
        "Triton's launcher alone, tensors given": lambda: kernel.run(*head, *values),
        TRITONS: lambda: launch.kernel[launch.grid](*values, **options),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
