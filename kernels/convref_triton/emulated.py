"""A KernelPlan on CPU tensors: NumPy interprets the PTX that a GPU would execute.

`convref check convref_triton.emulated:backend` judges the compiler's output; `:model` sums products
as a card does, and holds the results to what the backend declares for a card.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from convref.arrays import to_torch
from convref.case import Call, first_array
from convref.judge import Numerics
from convref_driver.manifest import Manifest, pack
from convref_ptx import (
    Allocation,
    Fault,
    Im2colMap,
    PtxProgram,
    TensorMap,
    launch_all,
    parse,
)

from .backend import TritonBackend, cached_plan, facts_of, results_of
from .compile import aot
from .compile.specialize import specialize
from .plan.launch import Descriptor, KernelPlan, Launch, Slot
from .plan.task import UNFUSED
from .run import gpu, interpreted

ARCH = "sm_90"
PATTERNS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def run(
    plan: KernelPlan,
    operands: Mapping[str, torch.Tensor],  # by role, on the CPU
    seed: int = 0,  # of the order in which warps and programs run
    late: bool = False,  # whether asynchronous operations complete as late as possible
    arch: str = ARCH,  # architecture of the compiled kernels
    tensor_cores: str = "exact",  # how products are summed, as `convref_ptx.launch` has it
) -> dict[str, torch.Tensor]:
    """Return every buffer of `plan` by name, results among them."""
    (found,) = run_all([plan], [operands], seed, [late], arch, tensor_cores)
    return found


def run_all(
    plans: Sequence[KernelPlan],
    operands: Sequence[Mapping[str, torch.Tensor]],
    seed: int,
    late: Sequence[bool],  # of each plan
    arch: str = ARCH,
    tensor_cores: str = "exact",
) -> list[dict[str, torch.Tensor]]:
    """Return what `run` does for each of some plans of the same compiled kernels, run together."""
    how = {"seed": seed, "late": late, "arch": arch, "tensor_cores": tensor_cores}
    return interpreted.run_all(plans, operands, partial(execute, **how))


def kernels(plan: KernelPlan) -> tuple[Any, ...]:
    """Return the identity of the kernels of a plan; plans with the same ones may run together."""
    return tuple(specialize(step).key if isinstance(step, Launch) else None for step in plan.steps)


def _program(step: Launch, arch: str) -> tuple[PtxProgram, aot.Compiled]:
    compiled = aot.compile_ptx(specialize(step), arch)
    return parse(compiled.asm["ptx"]), compiled


def _buffer(tensor: torch.Tensor, writable: bool) -> Allocation:
    """Return the memory of a tensor as patterns of its elements' size."""
    span = 1 + sum(s * (n - 1) for n, s in zip(tensor.shape, tensor.stride()))
    flat = tensor.as_strided((span if tensor.numel() else 0,), (1,))
    patterns = flat.view(PATTERNS[flat.element_size()]).numpy()
    return Allocation(patterns.view(f"u{flat.element_size()}"), writable)


def execute(
    steps: Sequence[Launch],  # of one compiled kernel
    tensors: Sequence[Mapping[str, torch.Tensor]],
    writable: Sequence[Collection[str]],
    *,
    seed: int,
    late: Sequence[bool],
    arch: str,
    tensor_cores: str,
) -> None:
    program, compiled = _program(steps[0], arch)
    manifest = gpu.manifest(compiled)
    given = [
        _arguments(compiled, manifest, step, held, names)
        for step, held, names in zip(steps, tensors, writable, strict=True)
    ]
    grids = [step.grid for step in steps]
    how = seed, late, manifest.shared, tensor_cores
    launch_all(program, grids, manifest.threads, given, *how)


def _arguments(
    compiled: aot.Compiled,
    manifest: Manifest,
    step: Launch,
    tensors: Mapping[str, torch.Tensor],
    writable: Collection[str],
) -> list[Any]:
    """Return the arguments of a launch, on allocations of its own."""
    buffers = {role: _buffer(tensor, role in writable) for role, tensor in tensors.items()}
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
    return [*arguments, *(None for _ in manifest.scratch)]


class Emulated(TritonBackend):
    """The backend `triton` on interpreted PTX, with asynchronous operations early and late."""

    stateless = True  # each launch has its memory; plans are kept by `backend`, which is judged too
    data = batch = 5  # most of an example's time is that of compiling its kernels
    chunk = 60

    def __init__(self, name: str, arch: str = ARCH, tensor_cores: str = "exact") -> None:
        super().__init__(name)
        self._how = {"arch": arch, "tensor_cores": tensor_cores}

    def numerics(self, call: Call) -> Numerics:
        modelled = self._how["tensor_cores"] == "model"
        return super().numerics(call.on("cuda") if modelled else call)

    def run_many(
        self, calls: Sequence[Call], operands: Sequence[Sequence[Any]]
    ) -> list[tuple[Any, ...]]:
        """Return the results of `run` for each call; those of the same kernels run together."""
        groups: dict[Any, list[tuple[int, KernelPlan, dict[str, torch.Tensor]]]] = {}
        for n, (call, arrays) in enumerate(zip(calls, operands, strict=True)):
            given = zip(call.roles, arrays)
            tensors = {role: to_torch(array) for role, array in given if array is not None}
            facts = facts_of(call, tensors)
            made = cached_plan(call, facts, None, UNFUSED, None, self._unproven)
            groups.setdefault(kernels(made), []).append((n, made, tensors))
        found: list[tuple[Any, ...]] = [()] * len(calls)
        for group in groups.values():
            numbers, plans, tensors_of = zip(*group)
            for n, buffers in zip(numbers, self.interpret_all(plans, tensors_of)):
                found[n] = results_of(calls[n], first_array(calls[n], operands[n]), buffers)
        return found

    def interpret(
        self, made: KernelPlan, tensors: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return every buffer of a plan; raise a Fault if the two runs differ."""
        (found,) = self.interpret_all([made], [tensors])
        return found

    def interpret_all(
        self, plans: Sequence[KernelPlan], tensors: Sequence[dict[str, torch.Tensor]]
    ) -> list[dict[str, torch.Tensor]]:
        """Return what `interpret` does for each of some plans of the same compiled kernels."""
        count, arch = len(plans), self._how["arch"]
        if not any(_program(launch, arch)[0].is_asynchronous for launch in plans[0].launches):
            return run_all(plans, tensors, 0, [False] * count, **self._how)
        late = [False] * count + [True] * count
        both = run_all([*plans, *plans], [*tensors, *tensors], 0, late, **self._how)
        for made, one, other in zip(plans, both, both[count:]):
            for name, tensor in other.items():
                if _bytes(one[name]) != _bytes(tensor):
                    what = f"{name} depends on when copies and products happen"
                    raise Fault(f"{made.reason}: {what}")
        return both[count:]


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


backend = Emulated("triton.emulated")
model = Emulated("triton.model", tensor_cores="model")
