"""A KernelPlan on CPU tensors, in the strict interpreter and with poisoned buffers."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..interpreter import TYPES, execute
from ..plan.launch import Buffer, Copy, KernelPlan, Table


def run(
    plan: KernelPlan,
    operands: Mapping[str, torch.Tensor],  # by role, on the CPU
    seed: int = 0,  # of the order in which programs run
    # Runs a launch as `execute`, the strict interpreter, does.
    executor: Callable[..., Any] | None = None,
) -> dict[str, torch.Tensor]:
    """Return every buffer of `plan` by name, results among them."""
    tensors = dict(operands) | {name: poisoned(made) for name, made in plan.buffers.items()}
    tensors |= {name: held(table) for name, table in plan.tables.items()}
    for step in plan.steps:
        if isinstance(step, Copy):
            copy(tensors[step.source], tensors[step.target], step.blocks)
        else:
            (executor or execute)(step, tensors, writable=plan.buffers, seed=seed)
    return {name: tensors[name] for name in plan.buffers}


def copy(source: torch.Tensor, target: torch.Tensor, blocks: tuple[int, ...] = ()) -> None:
    """Copy `source` to the beginning of every axis of `target`, and zeros to the rest.

    `blocks` is as in `Copy`.
    """
    if target.shape != source.shape:
        target.zero_()
    if blocks:  # (blocks, groups, filters of a group, channels of a group, ...)
        channels = source.shape[1]
        source, target = (filters.unflatten(0, (*blocks, -1)) for filters in (source, target))
        target = target.unflatten(3, (-1, channels)).diagonal(dim1=1, dim2=3).movedim(-1, 1)
    target[tuple(map(slice, source.shape))].copy_(source)


def held(table: Table) -> torch.Tensor:
    """Return the numbers of a table, as a tensor of its own."""
    numbers = torch.frombuffer(bytearray(table.data), dtype=TYPES[table.dtype][0])
    return numbers.reshape(table.shape)


def poisoned(made: Buffer) -> torch.Tensor:
    """Return a new tensor full of NaN or the least integer, so that unwritten elements show."""
    tensor = torch.empty_strided(made.shape, made.strides, dtype=TYPES[made.dtype][0])
    floats = tensor.is_floating_point()
    return tensor.fill_(torch.nan if floats else torch.iinfo(tensor.dtype).min)
