"""Which kernels compute a call, on which tiles: a pure function of the call and of its strides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple, Protocol

from convref.case import Call

from . import gather
from .builder import Builder
from .geometry import ITEMSIZE, LIMIT, Tensor, geometry
from .launch import Plan
from .table import Tile
from .task import Task


class Kernel(Protocol):
    """What a module of this package offers to the table below."""

    def admits(self, task: Task) -> str | None:
        """Return None, or why the kernel does not compute the task."""

    def tiles(self, task: Task) -> tuple[Tile, ...]:
        """Return the rows of the table that serve the task."""

    def choose(self, task: Task) -> Tile:
        """Return one of `tiles`."""

    def plan(self, task: Task, tile: Tile) -> None:
        """Add what computes the task to its builder."""


# The kernels of each kind of sum in order of preference; the last of a row takes everything.
KERNELS: dict[str, tuple[Kernel, ...]] = {
    "gather": (gather,),
    "scatter": (gather,),
    "correlate": (),
    "total": (),
}


class Choice(NamedTuple):
    """A kernel by its module's name, and a row of its table."""

    kernel: str
    tile: Tile

    def __str__(self) -> str:
        return f"{self.kernel} {self.tile}"


def plan(call: Call, tensors: Mapping[str, Tensor], choice: Choice | None = None) -> Plan:
    """Return what computes `call` on operands that lie as `tensors` say.

    Parameters
    ----------
    call : Call
        One that `refusal` has nothing against.
    tensors : mapping of str to Tensor
        The operands that are present, by role.
    choice : Choice, optional
        Taken for every result that it serves, instead of the table's choice.
    """
    builder = Builder(call, tensors)
    shape = geometry(call.conv)
    for role in call.wanted:
        task = Task(builder, shape, role)
        if not prod(call.problem.shape(role)):
            task.result()
            continue
        passed, kernel = _first(task)
        tile = kernel.choose(task)
        for offered in choices(task):
            if offered == choice:
                kernel, tile = _named(task, offered.kernel), offered.tile
        kernel.plan(task, tile)
        builder.reasons.append(f"{role}: {Choice(_name(kernel), tile)}{passed}")
    return builder.plan()


def choices(task: Task) -> Iterator[Choice]:
    """Yield everything that computes a task, the preferred kernel first."""
    for kernel in KERNELS[task.kind]:
        if kernel.admits(task) is None:
            yield from (Choice(_name(kernel), tile) for tile in kernel.tiles(task))


def offered(call: Call, tensors: Mapping[str, Tensor]) -> list[Choice]:
    """Return every choice that `plan` takes for some result of a call."""
    shape = geometry(call.conv)
    tasks = (Task(Builder(call, tensors), shape, role) for role in call.wanted)
    return list(dict.fromkeys(choice for task in tasks for choice in choices(task)))


def _first(task: Task) -> tuple[str, Kernel]:
    """Return the first kernel that admits the task, after why the others do not."""
    passed = []
    for kernel in KERNELS[task.kind]:
        reason = kernel.admits(task)
        if reason is None:
            return f" ({'; '.join(passed)})" if passed else "", kernel
        passed.append(f"{_name(kernel)}: {reason}")
    raise AssertionError(f"no kernel takes every {task.kind}")


def _named(task: Task, name: str) -> Kernel:
    return next(kernel for kernel in KERNELS[task.kind] if _name(kernel) == name)


def _name(kernel: Kernel) -> str:
    return kernel.__name__.rpartition(".")[2]


MATHS = {"f32": ("ieee", "tf32", "tf32x3")}
MOST = 65_535  # programs along y and z of a grid


def refusal(call: Call) -> str | None:
    """Return why no kernel computes `call`, None if one does."""
    if call.op != "conv":
        return f"no kernel for {call.op}"
    if call.dtype not in ITEMSIZE:
        return f"{call.dtype}: kernels take {', '.join(ITEMSIZE)}"
    if call.math not in MATHS.get(call.dtype, ("ieee",)):
        return f"math={call.math} is for f32"
    shape = geometry(call.conv)
    if shape.n * prod(shape.big) >= LIMIT or shape.n * prod(shape.small) >= LIMIT:
        return "2**31 pixels or more"
    if shape.groups > MOST or prod(shape.stride) > MOST:
        return f"more than {MOST} groups or classes of pixels"
    for role in call.wanted:
        if not KERNELS[Task(Builder(call, {}), shape, role).kind]:
            return f"no kernel for {role}"
    return None
