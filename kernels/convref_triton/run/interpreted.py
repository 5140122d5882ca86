"""A KernelPlan on CPU tensors, in the strict interpreter and with poisoned buffers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..interpreter import TYPES, execute
from ..plan.launch import Buffer, KernelPlan, Launch, Table


def run(
    plan: KernelPlan,
    operands: Mapping[str, torch.Tensor],  # by role, on the CPU
    seed: int = 0,  # of the order in which programs run
    # Runs a launch as `execute`, the strict interpreter, does.
    executor: Callable[..., Any] | None = None,
) -> dict[str, torch.Tensor]:
    """Return every buffer of `plan` by name, results among them."""

    def alone(steps: Sequence[Launch], tensors: Sequence[Any], writable: Sequence[Any]) -> None:
        (executor or execute)(steps[0], tensors[0], writable=writable[0], seed=seed)

    (found,) = run_all([plan], [operands], alone)
    return found


def run_all(
    plans: Sequence[KernelPlan],
    operands: Sequence[Mapping[str, torch.Tensor]],
    # Runs the launches of a step on the tensors of each plan, the names of which are writable.
    executor: Callable[[Sequence[Launch], Sequence[Any], Sequence[Any]], None],
) -> list[dict[str, torch.Tensor]]:
    """Return the buffers of each of some plans, whose steps are of the same kinds."""
    tensors = [_tensors(plan, given) for plan, given in zip(plans, operands, strict=True)]
    writable = [plan.buffers for plan in plans]
    for steps in zip(*(plan.steps for plan in plans), strict=True):
        launches = [step for step in steps if isinstance(step, Launch)]
        if launches:
            executor(launches, tensors, writable)
            continue
        for step, held in zip(steps, tensors):
            copy(held[step.source], held[step.target], step.blocks)
    return [{name: held[name] for name in plan.buffers} for plan, held in zip(plans, tensors)]


def _tensors(plan: KernelPlan, operands: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    tensors = dict(operands) | {name: poisoned(made) for name, made in plan.buffers.items()}
    return tensors | {name: table_tensor(table) for name, table in plan.tables.items()}


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


def table_tensor(table: Table) -> torch.Tensor:
    """Return the numbers of a table, as a tensor of its own."""
    numbers = torch.frombuffer(bytearray(table.data), dtype=TYPES[table.dtype][0])
    return numbers.reshape(table.shape)


def poisoned(made: Buffer) -> torch.Tensor:
    """Return a new tensor full of NaN or the least integer, so that unwritten elements show."""
    tensor = torch.empty_strided(made.shape, made.strides, dtype=TYPES[made.dtype][0])
    floats = tensor.is_floating_point()
    return tensor.fill_(torch.nan if floats else torch.iinfo(tensor.dtype).min)
