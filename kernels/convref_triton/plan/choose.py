"""Which kernels compute a call, on which tiles: a pure function of the call and of its strides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from math import prod
from typing import Any, Protocol

from triton.runtime import JITFunction

from convref.case import Call

from ..common.geometry import ITEMSIZE, LIMIT, Tensor, geometry
from ..conv import (
    bgrad,
    depthwise,
    direct,
    direct_wgrad,
    dual,
    flat,
    gather,
    split,
    tma,
    unfold,
    wgrad,
)
from ..conv.task import ARCH, UNFUSED, Fusion, Task
from ..hopper import race
from ..norm import norm
from ..pool import pool
from ..resize import resize
from . import measured, rank
from .builder import Builder
from .launch import Plan
from .table import MOST_DIRECT, Tile


class Kernel(Protocol):
    """What a module of this package offers to the table below."""

    def admits(self, task: Task) -> str | None:
        """Return None, or why the kernel does not compute the task."""

    def tiles(self, task: Task) -> tuple[Tile, ...]:
        """Return the rows of the table that serve the task."""

    def plan(self, task: Task, tile: Tile) -> None:
        """Add what computes the task to its builder."""


# The kernels of each kind of sum in order of preference; the last of a row takes everything.
KERNELS: dict[str, tuple[Kernel, ...]] = {
    "gather": (depthwise, direct, flat, dual, split, tma, gather),
    "scatter": (depthwise, direct, flat, dual, split, tma, gather),
    "correlate": (
        direct_wgrad,
        wgrad,
    ),
    "total": (bgrad,),
    "unfold": (unfold,),
    "fold": (unfold,),
}
OPS = ("conv", "unfold", "fold")


class Family(Protocol):
    """What a module offers that plans whole calls of its ops, not one result at a time."""

    OPS: tuple[str, ...]

    def refusal(self, call: Call) -> str | None:
        """Return why the family does not compute a call of its ops, None if it does."""

    def tiles(self, builder: Builder) -> tuple[Tile, ...]:
        """Return the rows of the table that serve a call, the one to take first."""

    def add(self, builder: Builder, tile: Tile, fusion: Fusion) -> None:
        """Add what computes the call to its builder."""


FAMILIES: dict[str, Family] = {op: family for family in (pool, norm, resize) for op in family.OPS}


@dataclass(frozen=True)
class Choice:
    """A kernel by its module's name, a row of its table, and a hash of the kernel's source."""

    kernel: str
    tile: Tile
    source: str

    @property
    def key(self) -> str:
        """Return kernel and tile as a measured row names them."""
        return f"{self.kernel} {list(self.tile)}"

    @property
    def unproven(self) -> bool:
        """Return whether only a measurement chooses the kernel, after its tests on that card."""
        return self.kernel in {_name(kernel) for kernel in race.every()}

    def __str__(self) -> str:
        return f"{self.kernel} {self.tile}"


def plan(
    call: Call,
    tensors: Mapping[str, Tensor],
    choice: Choice | None = None,
    card: str = "",
    fusion: Fusion = UNFUSED,
    arch: str = ARCH,
    sms: int = 0,
) -> Plan:
    """Return what computes `call` on operands that lie as `tensors` say.

    Parameters
    ----------
    call : Call
        One that `refusal` has nothing against.
    tensors : mapping of str to Tensor
        The operands that are present, by role.
    choice : Choice, optional
        Taken for every result that it serves, instead of the table's choice.
    card : str
        Name of the device, whose measured rows are looked up.
    fusion : Fusion
        What else happens to the sums of a forward convolution.
    arch : str
        Architecture of the device.
    sms : int
        Its multiprocessors; 0 for as many as the heuristics plan for.
    """
    builder = Builder(call, tensors)
    if call.op in FAMILIES:
        return _whole_plan(builder, choice, card, fusion)
    shape = geometry(call.windows)
    for role in call.wanted:
        if role in builder.buffers:
            continue  # computed together with one before
        task = Task(builder, shape, role, fusion, arch, sms)
        if not prod(call.problem.shape(role)):
            task.result()
            continue
        possible = {offered.key: offered for offered in choices(task)}
        if choice is not None and choice.key in possible:
            taken, why = possible[choice.key], "asked for"
        else:
            taken, why = _looked_up(task, card, possible)
        _named(task, taken.kernel).plan(task, taken.tile)
        builder.reasons.append(f"{role}: {taken} ({why})")
    return builder.plan()


def _whole_plan(builder: Builder, choice: Choice | None, card: str, fusion: Fusion) -> Plan:
    """Return the plan of a call that a family plans."""
    family = FAMILIES[builder.call.op]
    possible = {found.key: found for found in _of_family(builder)}
    expected = next(iter(possible.values()))
    if choice is not None and choice.key in possible:
        taken, why = possible[choice.key], "asked for"
    else:
        row = measured.look_up(builder.call, builder.call.wanted[0], card)
        taken, why = _known(row, possible, expected, "heuristic")
    family.add(builder, taken.tile, fusion)
    builder.reasons.append(f"{', '.join(builder.call.wanted)}: {taken} ({why})")
    return builder.plan()


def _of_family(builder: Builder) -> list[Choice]:
    family = FAMILIES[builder.call.op]
    return [Choice(_name(family), tile, _source(family)) for tile in family.tiles(builder)]


def choices(task: Task) -> Iterator[Choice]:
    """Yield everything that computes a task, the preferred kernel first."""
    for kernel in _kernels(task):
        if kernel.admits(task) is None:
            yield from (_choice(kernel, tile) for tile in kernel.tiles(task))


def _kernels(task: Task) -> tuple[Kernel, ...]:
    """Return the kernels of a task, those that only a measurement chooses last."""
    return (*KERNELS[task.kind], *race.offered(task.kind))


def offered(call: Call, tensors: Mapping[str, Tensor], arch: str = ARCH) -> list[Choice]:
    """Return every choice that `plan` takes for some result of a call; an empty one has none."""
    if call.op in FAMILIES:
        return _of_family(Builder(call, tensors))
    shape, roles = geometry(call.windows), (r for r in call.wanted if prod(call.problem.shape(r)))
    tasks = (Task(Builder(call, tensors), shape, role, arch=arch) for role in roles)
    return list(dict.fromkeys(choice for task in tasks for choice in choices(task)))


def _looked_up(task: Task, card: str, possible: Mapping[str, Choice]) -> tuple[Choice, str]:
    """Return what was measured to be fastest, else what the heuristic expects, and the reason."""
    found = measured.look_up(task.builder.call, task.role, card)
    return _known(found, possible, *_expected(task))


def _known(
    found: tuple[Mapping[str, Any], str] | None,
    possible: Mapping[str, Choice],
    expected: Choice,
    why: str,
) -> tuple[Choice, str]:
    """Return the choice of a measured row, else the expected one, and the reason."""
    if found is None:
        return expected, why
    row, where = found
    choice = possible.get(f"{row['kernel']} {row['tile']}")
    if choice is None or choice.source != row["source"]:
        return expected, f"{where} on another source; {why}"
    return choice, where


def _expected(task: Task) -> tuple[Choice, str]:
    """Return the heuristic's choice, and why kernels that are preferred do not admit the task."""
    raced = race.offered(task.kind)
    others = [f"no {_name(k)}: {k.admits(task) or race.UNMEASURED}" for k in raced]
    passed = ["heuristic"]
    for kernel in KERNELS[task.kind]:
        reason = kernel.admits(task)
        if reason is None:
            return _choice(kernel, rank.best(task, kernel)), "; ".join(passed + others)
        passed.append(f"no {_name(kernel)}: {reason}")
    raise AssertionError(f"no kernel takes every {task.kind}")


def _choice(kernel: Kernel, tile: Tile) -> Choice:
    return Choice(_name(kernel), tile, _source(kernel))


@cache
def _source(kernel: Kernel | Family) -> str:
    """Return twelve digits that change with the source of a module's kernels or their helpers."""
    made = [value for value in vars(kernel).values() if isinstance(value, JITFunction)]
    keys = sorted(function.cache_key for function in made)
    if hasattr(kernel, "source"):  # of what it has been compiled from
        keys.append(kernel.source())
    return sha256("".join(keys).encode()).hexdigest()[:12]


def _named(task: Task, name: str) -> Kernel:
    return next(kernel for kernel in _kernels(task) if _name(kernel) == name)


def _name(kernel: Kernel | Family) -> str:
    return kernel.__name__.rpartition(".")[2]


MATHS = {"f32": ("ieee", "tf32", "tf32x3")}
MOST = 65_535  # programs along y and z of a grid


def refusal(call: Call, arch: str = ARCH) -> str | None:
    """Return why no kernel computes `call` on an architecture, None if one does."""
    if call.op not in (*OPS, *FAMILIES):
        return f"no kernel for {call.op}: there are some for {', '.join((*OPS, *FAMILIES))}"
    if call.dtype not in ITEMSIZE:
        return f"{call.dtype}: kernels take {', '.join(ITEMSIZE)}"
    if call.math not in MATHS.get(call.dtype, ("ieee",)):
        return f"math={call.math} is for f32"
    if call.math == "tf32x3" and arch.startswith("gfx"):
        return f"math=tf32x3: Triton does not make one product of three on {arch}"
    if call.op in FAMILIES:
        return FAMILIES[call.op].refusal(call)
    shape = geometry(call.windows)
    if shape.n * prod(shape.big) >= LIMIT or shape.n * prod(shape.small) >= LIMIT:
        return "2**31 pixels or more"
    crowded = max(shape.big_channels, shape.small_channels) > MOST_DIRECT and call.op == "conv"
    if (crowded and shape.groups > MOST) or prod(shape.stride) > MOST:
        return f"more than {MOST} groups or classes of pixels"
    for role in call.wanted:
        if not KERNELS[Task(Builder(call, {}), shape, role).kind]:
            return f"no kernel for {role}"
    return None
