"""A KernelPlan in a graph that PyTorch traces: launches are kernels that its compiler sees."""

from collections.abc import Mapping

import torch
from torch.library import wrap_triton
from triton.runtime.jit import JITFunction

from ..interpreter import TYPES
from ..plan.launch import Copy, KernelPlan, Slot, is_group
from .interpreted import copy


def refusal(plan: KernelPlan) -> str | None:
    """Return why the launches of a plan cannot be nodes of a graph, None if they can."""
    if plan.tables:
        return "it has tables of numbers"
    for step in plan.launches:
        if not isinstance(step.kernel, JITFunction) or step.kernel.is_gluon():
            return f"{step.kernel.__name__} is not a kernel of triton.jit"
        values = step.arguments.values()
        if any(isinstance(v, tuple) and (is_group(v) or not isinstance(v, Slot)) for v in values):
            return f"{step.kernel.__name__} reads tensor maps or groups of tensors"
    return None


def run(plan: KernelPlan, operands: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return every buffer of `plan` by name, on tensors that are being traced."""
    place = next(iter(operands.values())).device
    tensors = dict(operands)
    for name, made in plan.buffers.items():
        dtype = TYPES[made.dtype][0]
        tensors[name] = torch.empty_strided(made.shape, made.strides, dtype=dtype, device=place)
    for step in plan.steps:
        if isinstance(step, Copy):
            copy(tensors[step.source], tensors[step.target], step.blocks)
            continue
        given = {
            name: tensors[value.role] if isinstance(value, Slot) else value
            for name, value in {**step.arguments, **step.constants}.items()
        }
        options = {"num_warps": step.warps, "num_stages": step.stages}
        wrap_triton(step.kernel)[step.grid](**given, **options)
    return {name: tensors[name] for name in plan.buffers}
