"""The data of a plan, without tensors or a device.

A Launch is data: the interpreter runs it, the ahead-of-time compiler compiles it, the launcher of a
GPU launches it. Tensors are represented by `Slot`s, so that a plan serves every call of its kind.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Slot(NamedTuple):
    role: str  # which tensor: a role of the call ("x", "dw", ...) or the name of a Buffer
    dtype: str  # a code of `convref.dtypes`
    aligned: bool = True  # whether its address is a multiple of 16 bytes


class Descriptor(NamedTuple):
    """A tensor argument that a kernel reads through a tensor map, in boxes (TMA)."""

    slot: Slot  # the tensor; its address has to be a multiple of 16 bytes
    # In elements; the last stride is 1, the others are multiples of 16 bytes.
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]  # the box
    # Steps between the elements of a box along each axis, at most 8; empty for all 1.
    every: tuple[int, ...] = ()
    # Of a map im2col, whose boxes are (pixels, channels): where pixels begin along each spatial
    # axis, and how far beyond the tensor they end; empty for boxes of its axes.
    corners: tuple[tuple[int, ...], ...] = ()


def is_group(value: Any) -> bool:
    return isinstance(value, tuple) and not isinstance(value, Slot | Descriptor)


def regroup(group: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    """Return `items` as a tuple of the type of `group`, which may be a NamedTuple."""
    return type(group)(*items) if hasattr(group, "_fields") else tuple(items)


def flatten(value: Any) -> Iterator[Any]:
    """Yield the arguments in `value`, depth first; a single argument yields itself.

    >>> list(flatten((1, (Slot("x", "f32"), 2))))
    [1, Slot(role='x', dtype='f32', aligned=True), 2]
    """
    if not is_group(value):
        yield value
        return
    for item in value:
        yield from flatten(item)


def map_arguments(function: Callable[[Any], Any], value: Any) -> Any:
    """Return `value` with `function` applied to each argument in it; tuples keep their types."""
    if not is_group(value):
        return function(value)
    return regroup(value, [map_arguments(function, item) for item in value])


@dataclass(frozen=True)
class Launch:
    kernel: Any
    grid: tuple[int, int, int]  # programs along x, y, z
    # The kernel's parameters that are not constants. A tuple or NamedTuple may be nested and may
    # also hold None, `tl.constexpr` and `triton.jit` functions, which are compiled in.
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]  # its `tl.constexpr` parameters, and pointers that are None
    # Options of the compiler: warps of a program, stages of its software pipeline.
    warps: int = 4
    stages: int = 3


class Buffer(NamedTuple):
    """A tensor that the plan allocates: a result, a packed operand, a workspace."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements; a dense tensor in some order of its axes
    dtype: str


class Table(NamedTuple):
    """Numbers that the host computes with the plan: a contiguous tensor that kernels only read."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes


class Copy(NamedTuple):
    """Copy the tensor `source` into the Buffer `target`, which has another order of axes.

    Where `target` has more elements along an axis, those beyond the source's are zero.
    """

    source: str
    target: str
    # (blocks, groups of each) where `target` has the filters of a block as one group: zero between
    # filters and channels of different groups.
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class KernelPlan:
    """The plan of one kind of call: buffers to allocate, then copies and launches in order."""

    # Results under their roles ("y", "dx", ...), the rest under other names.
    buffers: Mapping[str, Buffer]
    steps: tuple[Copy | Launch, ...]
    reason: str = ""  # which kernel and tile, and why; `explain` shows it
    tables: Mapping[str, Table] = field(default_factory=dict)

    @property
    def copies(self) -> list[Copy]:
        return [step for step in self.steps if isinstance(step, Copy)]

    @property
    def launches(self) -> list[Launch]:
        return [step for step in self.steps if isinstance(step, Launch)]
