"""A KernelPlan on CPU tensors: NumPy interprets the PTX that a GPU would execute.

`convref check convref_triton.emulated:backend` judges the compiler's output.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import torch

from convref_driver.manifest import pack
from convref_ptx import Allocation, Fault, Im2colMap, TensorMap, launch, parse

from .backend import TritonBackend
from .compile import aot
from .compile.specialize import specialize
from .plan.launch import Descriptor, KernelPlan, Launch, Slot
from .run import gpu, interpreted

PATTERNS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def run(
    plan: KernelPlan,
    operands: Mapping[str, torch.Tensor],  # by role, on the CPU
    seed: int = 0,  # of the order in which warps and programs run
    late: bool = False,  # whether asynchronous operations complete as late as possible
    arch: str = "sm_90",  # architecture of the compiled kernels
) -> dict[str, torch.Tensor]:
    """Return every buffer of `plan` by name, results among them."""
    return interpreted.run(plan, operands, seed, partial(execute, late=late, arch=arch))


def _buffer(tensor: torch.Tensor, writable: bool) -> Allocation:
    """Return the memory of a tensor as patterns of its elements' size."""
    span = 1 + sum(s * (n - 1) for n, s in zip(tensor.shape, tensor.stride()))
    flat = tensor.as_strided((span if tensor.numel() else 0,), (1,))
    patterns = flat.view(PATTERNS[flat.element_size()]).numpy()
    return Allocation(patterns.view(f"u{flat.element_size()}"), writable)


def execute(
    step: Launch,
    tensors: Mapping[str, torch.Tensor],
    *,
    writable: Collection[str],
    seed: int,
    late: bool,
    arch: str,
) -> None:
    compiled = aot.compile(specialize(step), arch)
    buffers = {role: _buffer(tensor, role in writable) for role, tensor in tensors.items()}
    manifest = gpu.manifest(compiled)
    maps = iter(compiled.metadata["tensordesc_meta"] or ())
    arguments: list[Any] = []
    for kind, value in zip(manifest.parameters, gpu.arguments(compiled, step)):
        if isinstance(value, Descriptor):
            box = next(maps)  # a box that is wider than a swizzle line is read in several
            geometry = (
                value.shape,
                value.strides,
                tuple(box["block_size"]),
                box["swizzle"],
                value.every,
            )
            made = Im2colMap if value.corners else TensorMap
            arguments.append(made(buffers[value.slot.role], *geometry, *value.corners))
        elif isinstance(value, Slot):
            arguments.append(buffers[value.role])
        else:
            arguments.append(None if kind == "ptr" else pack(manifest.name, kind, value))
    arguments += [None] * len(manifest.scratch)
    program = parse(compiled.asm["ptx"])
    launch(program, step.grid, manifest.threads, arguments, seed, late, manifest.shared)


class Emulated(TritonBackend):
    """The backend `triton` on interpreted PTX, with asynchronous operations early and late."""

    def interpret(
        self, made: KernelPlan, tensors: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return every buffer of a plan; raise a Fault if the two runs differ."""
        early, found = (run(made, tensors, late=late) for late in (False, True))
        for name, tensor in found.items():
            if _bytes(early[name]) != _bytes(tensor):
                raise Fault(f"{made.reason}: {name} depends on when copies and products happen")
        return found


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


backend = Emulated("triton.emulated")
