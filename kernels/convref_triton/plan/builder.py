"""Builds a KernelPlan: names tensors, allocates buffers, copies operands into other orders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

from convref.case import Call

from ..common.geometry import ITEMSIZE, Tensor
from ..common.reorder import reorder_launch
from .launch import Buffer, Copy, KernelPlan, Launch, Slot, Table

FILTER = "w"  # the operand that is usually the same over many calls
NEW = ".new"  # ends the name of a result whose role an operand has too


def dense(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense tensor with its axes in `order`, outermost first.

    >>> dense((2, 3, 4, 5), (0, 2, 3, 1))
    (60, 1, 15, 3)
    """
    sizes = [max(shape[axis], 1) for axis in reversed(order)]
    steps = accumulate([1, *sizes[:-1]], mul)
    by_axis = dict(zip(reversed(order), steps))
    return tuple(by_axis[axis] for axis in range(len(shape)))


def channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, 2 + rank), 1)


def is_channels_last(tensor: Tensor) -> bool:
    """Return whether axis 1 of a tensor is innermost in memory, as far as its sizes show."""
    return tensor.strides[1] == 1 and (tensor.shape[1] > 1 or min(tensor.strides[2:]) > 1)


@dataclass
class Builder:
    call: Call
    tensors: Mapping[str, Tensor]  # the operands that are present, by role
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[Copy | Launch] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    ordered: dict[tuple[str, tuple[int, ...], tuple[int, ...]], Tensor] = field(
        default_factory=dict
    )

    @cached_property
    def bytes_moved(self) -> int:
        return self.call.bytes_moved()

    def new(self, name: str, shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> Tensor:
        """Return a dense tensor that the plan allocates."""
        strides = dense(shape, order)
        self.buffers[name] = Buffer(shape, strides, dtype)
        return Tensor(name, shape, strides, dtype)

    def copied(
        self,
        tensor: Tensor,
        order: tuple[int, ...],
        sizes: Mapping[int, int] | None = None,
        blocks: tuple[int, ...] = (),
    ) -> Tensor:
        """Return a dense copy of a tensor with its axes in `order`, the same for all uses.

        `sizes` makes axes longer, filled with zeros; `blocks` is as in `Copy`.
        """
        longer = {axis: n for axis, n in (sizes or {}).items() if n != tensor.shape[axis]}
        shape = tuple(longer.get(axis, n) for axis, n in enumerate(tensor.shape))
        key = tensor.role, order, shape
        if key not in self.ordered:
            name = f"{tensor.role}.{''.join(map(str, order))}"
            name += "".join(f".{n}" for n in longer.values())
            self.ordered[key] = self.new(name, shape, order, tensor.dtype)
            self.steps.append(Copy(tensor.role, name, blocks))
        return self.ordered[key]

    def table(self, name: str, values: Any, dtype: str) -> Slot:
        """Return the argument for an array that the plan holds."""
        self.tables[name] = Table(values.shape, dtype, values.tobytes())
        return Slot(name, dtype)

    def in_order(self, tensor: Tensor, order: tuple[int, ...]) -> Tensor:
        """Return a tensor that is dense with its axes in `order`: itself, or a copy."""
        strides = dense(tensor.shape, order)
        real = (axis for axis, size in enumerate(tensor.shape) if size > 1)
        if all(tensor.strides[axis] == strides[axis] for axis in real):
            return tensor
        return self.copied(tensor, order)

    def parts(self, result: Tensor, splits: int) -> Tensor:
        """Return the first of `splits` consecutive partial results in float32.

        One part is the result itself.
        """
        if splits == 1:
            return result
        first = result._replace(role=f"{result.role}.parts", dtype="f32", aligned=True)
        shape, strides = (splits, *result.shape), (prod(result.shape), *result.strides)
        self.buffers[first.role] = Buffer(shape, strides, "f32")
        return first

    def moved(self, step: Copy) -> Copy | Launch:
        """Return the launch that does a copy, or the copy itself where no kernel does it.

        Filters are left to copies, which may be kept from one call to the next.
        """
        if step.blocks or step.source == FILTER:
            return step
        source = self.tensors.get(step.source)
        if source is None:
            made = self.buffers[step.source]
            source = Tensor(step.source, *made)
        return reorder_launch(source, step.target, self.buffers[step.target]) or step

    def plan(self) -> KernelPlan:
        steps = (self.moved(step) if isinstance(step, Copy) else step for step in self.steps)
        return KernelPlan(self.buffers, tuple(steps), "; ".join(self.reasons), self.tables)


def slot(tensor: Tensor | None) -> Slot | None:
    return None if tensor is None else Slot(tensor.role, tensor.dtype, tensor.aligned)


def slots(tensors: Mapping[str, Tensor | None]) -> tuple[dict[str, Slot], dict[str, None]]:
    """Return tensors as arguments of a launch, and constants for those that are None."""
    found = {name: made for name, tensor in tensors.items() if (made := slot(tensor))}
    return found, {name: None for name in tensors if name not in found}


def vector(dtype: str, *counts: int) -> int:
    """Return the widest vector of elements, at most 16 bytes, that divides every count.

    >>> vector("bf16", 24, 40), vector("f32", 24), vector("f16", 3)
    (8, 4, 1)
    """
    width = 16 // ITEMSIZE[dtype]
    while any(count % width for count in counts):
        width //= 2
    return width
