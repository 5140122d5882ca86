"""Choose the kernels and tiles of a call: a pure function of the call and of its strides."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from convref.case import Call
from convref.dtypes import EIGHT
from convref.ops import BASE_ROLE

from ..common.geometry import LIMIT, Tensor, geometry
from ..conv.direct import MOST_CHANNELS
from . import archs, cost, measured
from .builder import Builder
from .kernels import BY_NAME, KERNELS, serving, source
from .launch import KernelPlan
from .spec import KernelSpec
from .task import UNFUSED, Fusion, Task
from .tile import Tile

# Ops with one task per result; the other ops have one task for all results.
WINDOWED = tuple(dict.fromkeys(op for k in KERNELS if not k.whole_call for op in k.ops))
OPS = (*WINDOWED, *(op for spec in KERNELS if spec.whole_call for op in spec.serves))
EXCLUDED = "used only where it was measured to be the fastest"
MATHS = {"f32": ("ieee", "tf32", "tf32x3")}
MOST = 65_535  # programs along y and z of a grid


@dataclass(frozen=True)
class Choice:
    """A kernel by name, one of its tiles, and a hash of the kernel's source."""

    kernel: str
    tile: Tile
    source: str

    @property
    def key(self) -> str:
        """Return kernel and tile as in a measured row."""
        return f"{self.kernel} {list(self.tile)}"

    @property
    def unproven(self) -> bool:
        return BY_NAME[self.kernel].unproven

    def __str__(self) -> str:
        return f"{self.kernel} {self.tile}"


def plan(
    call: Call,  # one for which `refusal` is None
    tensors: Mapping[str, Tensor],  # the operands that are present, by role
    choice: Choice | None = None,  # used for every result that it serves, instead of the default
    card: str = "",  # name of the device, whose measured rows are looked up
    fusion: Fusion = UNFUSED,  # the epilogue of a forward convolution
    arch: str = archs.DEFAULT,  # architecture of the device
    sms: int = 0,  # its multiprocessors; 0 for as many as estimates assume
    unproven: bool = False,  # whether kernels that no card has run may be chosen
) -> KernelPlan:
    builder = Builder(call, tensors)
    for task in tasks(builder, fusion, arch, sms):
        if task.role in builder.buffers:
            continue  # computed together with one before
        if task.geometry is not None and not prod(call.problem.shape(task.role)):
            task.result()
            continue
        asked = choice and _possible(task).get(choice.key)
        used, why = (asked, "asked for") if asked else _looked_up(task, card, unproven)
        spec = BY_NAME[used.kernel]
        spec.add(task, used.tile)
        roles = call.wanted if spec.whole_call else (task.role,)
        builder.reasons.append(f"{', '.join(roles)}: {used} ({why})")
    return builder.plan()


def tasks(
    builder: Builder, fusion: Fusion = UNFUSED, arch: str = archs.DEFAULT, sms: int = 0
) -> Iterator[Task]:
    """Yield the tasks of a call: one per result of ops with windows, else one for all results."""
    call = builder.call
    windows = geometry(call.windows) if call.op in WINDOWED else None
    for role in call.wanted if windows else call.wanted[:1]:
        yield Task(builder, windows, role, fusion, arch, sms)


def choices(task: Task) -> Iterator[Choice]:
    for spec in serving(task.kind):
        if spec.refusal(task) is None:
            yield from (Choice(spec.name, tile, source(spec)) for tile in spec.tiles(task))


def offered(call: Call, tensors: Mapping[str, Tensor], arch: str = archs.DEFAULT) -> list[Choice]:
    """Return every choice that `plan` accepts for some result of a call; none if it is empty."""
    found = [
        choice
        for task in tasks(Builder(call, tensors), arch=arch)
        if task.geometry is None or prod(call.problem.shape(task.role))
        for choice in choices(task)
    ]
    return list(dict.fromkeys(found))


def ranked(task: Task, choices: Iterable[Choice]) -> list[Choice]:
    """Return choices, the fastest first: one of each kernel, and then the others.

    The estimate ranks tiles of one kernel better than kernels. Choices that have no estimate
    come last.
    """
    every = list(choices)
    specs = {choice: BY_NAME[choice.kernel] for choice in every}
    us = {c: spec.us(task, c.tile) for c, spec in specs.items() if spec.work is not None}
    order = sorted(us, key=lambda choice: us[choice])
    heads: dict[str, Choice] = {}
    for choice in order:
        heads.setdefault(choice.kernel, choice)
    return list(dict.fromkeys([*heads.values(), *order, *every]))


def _possible(task: Task) -> dict[str, Choice]:
    return {choice.key: choice for choice in choices(task)}


def _looked_up(task: Task, card: str, unproven: bool) -> tuple[Choice, str]:
    """Return the choice measured to be fastest, else the estimate's, and the reason."""
    best, why = expected(task, unproven)
    found = measured.look_up(task.builder.call, task.role, card)
    if found is None:
        return best, why
    row, where = found
    choice = _possible(task).get(f"{row['kernel']} {row['tile']}")
    if choice is None or choice.source != row["source"]:
        return best, f"{where} on another source; {why}"
    return choice, where


def expected(task: Task, unproven: bool = False) -> tuple[Choice, str]:
    """Return the kernel and tile of least estimated time, the earlier kernel at a tie."""
    found: list[tuple[float, KernelSpec, Tile]] = []
    passed = []
    for spec in serving(task.kind):
        reason = spec.refusal(task)
        if reason is None and spec.unproven and not unproven:
            reason = EXCLUDED
        if reason is None:
            tile = spec.best(task)
            us = spec.us(task, tile) * spec.share if spec.work else 0.0
            found.append((us, spec, tile))
        else:
            passed.append(f"no {spec.name}: {reason}")
    (us, best, tile), *others = sorted(found, key=lambda one: one[0])
    estimated = f"estimated {us:.3g} us within a factor of {cost.ERROR}"
    why = [estimated if best.work else "the only kernel"]
    why += ["no card has run it"] * best.unproven
    why += [f"{spec.name} {us:.3g} us" for us, spec, _ in others]
    return Choice(best.name, tile, source(best)), "; ".join(why + passed)


def dtypes(op: str) -> tuple[str, ...]:
    """Return the types of operands that the kernels of an op take."""
    return next(k.dtypes for k in KERNELS if op in (k.serves if k.whole_call else k.ops))


def refusal(call: Call, arch: str = archs.DEFAULT) -> str | None:
    if call.op not in OPS:
        return f"no kernel for {call.op}: there are some for {', '.join(OPS)}"
    taken = dtypes(call.op)
    if call.dtype not in taken:
        return f"{call.dtype}: kernels take {', '.join(taken)}"
    if call.math not in MATHS.get(call.dtype, ("ieee",)):
        return f"math={call.math} is for f32"
    if call.math == "tf32x3" and arch.startswith("gfx"):
        return f"math=tf32x3: Triton does not make one product of three on {arch}"
    if call.dtype in EIGHT and arch not in archs.FP8:
        return f"{call.dtype}: kernels are for {' and '.join(archs.FP8)}, not for {arch}"
    if call.op not in WINDOWED:
        (task,) = tasks(Builder(call, {}), arch=arch)
        (spec,) = serving(call.op)
        return spec.refusal(task)
    shape = geometry(call.windows)
    if shape.n * prod(shape.big) >= LIMIT or shape.n * prod(shape.small) >= LIMIT:
        return "2**31 pixels or more"
    filters = (prod(call.problem.shape(r)) for r in call.wanted if BASE_ROLE[r] == "w")
    many = max(shape.big_channels, shape.small_channels) > MOST_CHANNELS
    crowded = call.op == "conv" and (many or max(filters, default=0) >= LIMIT)
    if (crowded and shape.groups > MOST) or prod(shape.stride) > MOST:
        return f"more than {MOST} groups or classes of pixels"
    return None
