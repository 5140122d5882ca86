"""The cost model: the time of a kernel, estimated from its products and its loads.

A multiprocessor computes its share of the tiles one after the other. A step of a tile takes as long
as its products at peak, as its blocks take to come from the L2 cache, or as its instructions take
to be issued, whichever is longest; `Work.reached` is the share of that bound which a kernel
reaches. The bytes that a call has to move at least overlap with it.

No figure is measured here: the bench's `fit` finds them in a tuner's times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import hypot, prod
from typing import TYPE_CHECKING, NamedTuple

from ..common.geometry import ITEMSIZE
from . import archs
from .archs import ISSUED, PRODUCTS

if TYPE_CHECKING:
    from .task import Task
    from .tile import Tile

LINE = 128  # bytes of 64 channels, which blocks of tensor maps have
ALWAYS = 10**6  # resident tiles of a persistent kernel, which overlaps each end with other work
WARP_GROUP = 64  # rows that four warps multiply together; fewer are multiplied at half the rate
ADDRESSES = 64  # registers of a thread besides its accumulators
LEAST_STEPS = 8  # of a part of a sum, to fill the pipeline
WORKSPACE = 2**26  # bytes of parts, at most


class Work(NamedTuple):
    """The work of a kernel for a result on one tile of its table."""

    numbers: str  # key of `archs.PRODUCTS`
    # Tiles of the result, or of its parts, and steps of each.
    tiles: int
    steps: int
    products: float  # multiplications of a step, those of padding too
    loaded: float  # bytes that a step loads into a multiprocessor
    issued: float = 0.0  # warp instructions of a step, where instruction issue may be the bound
    beside: float = 0.0  # bytes that copies and partial sums move through memory
    launches: int = 1
    # Tiles that a multiprocessor has at a time: one is begun or ended while others multiply.
    resident: int = 1
    # Share of the bound. Kernels that load with one warp and multiply with others come closest.
    reached: float = 1.0
    kernel: str = ""  # name of the `KernelSpec`


@dataclass(frozen=True)
class Rates:
    """The figures of a card; those given here are estimates for an H100 or H200."""

    l2: float = 40.0  # bytes that come from the L2 cache in a cycle, for each multiprocessor
    fill: float = 1500.0  # cycles in which a tile is begun and ended
    mhz: float = 1600.0  # clock under load
    memory: float = 3e6  # bytes a microsecond
    launch_us: float = 2.0  # between one kernel of a call and the next
    # By kernel, where that is not its `Work.reached`.
    reached: Mapping[str, float] = field(default_factory=dict)


ESTIMATED = Rates()


def step(numbers: str, products: float, loaded: float, issued: float, rates: Rates) -> float:
    """Return the cycles of a step, if a kernel reached its bound.

    >>> [step("bf16", 128 * n * 64, (128 + n) * 128, 0.0, Rates(l2=64)) for n in (128, 256)]
    [512.0, 1024.0]
    """
    return max(products / PRODUCTS[numbers], loaded / rates.l2, issued / ISSUED)


def bound_us(work: Work, sms: int = 0, rates: Rates = ESTIMATED) -> float:
    """Return the microseconds in which the multiprocessors do their share, if all reach the bound.

    >>> one = Work("bf16", 132, 10, 128 * 128 * 64, 0.0)
    >>> bound_us(one._replace(tiles=133)) / bound_us(one)
    2.0
    """
    turns = -(-work.tiles // (sms or archs.SMS))
    cycles = turns * work.steps * step(work.numbers, work.products, work.loaded, work.issued, rates)
    return (cycles + -(-turns // work.resident) * rates.fill) / rates.mhz


def longest(work: Work, moved: float, sms: int = 0, rates: Rates = ESTIMATED) -> str:
    """Return the bound of a kernel: products, L2, issue, ends of tiles, memory, launches.

    >>> longest(Work("bf16", 132, 9, 64 * 64 * 64, 2 * 64 * 64 * 2), 0.0)
    'L2'
    """
    turns = -(-work.tiles // (sms or archs.SMS))
    cycles = {
        "products": turns * work.steps * work.products / PRODUCTS[work.numbers],
        "L2": turns * work.steps * work.loaded / rates.l2,
        "issue": turns * work.steps * work.issued / ISSUED,
        "ends of tiles": -(-turns // work.resident) * rates.fill,
        "memory": (moved + work.beside) / rates.memory * rates.mhz,
        "launches": (work.launches - 1) * rates.launch_us * rates.mhz,
    }
    return max(cycles, key=lambda name: cycles[name])


def us(work: Work, moved: float, sms: int = 0, rates: Rates = ESTIMATED) -> float:
    """Return the microseconds that a kernel is expected to take.

    Every kernel has to move `moved` bytes for the call; `sms` = 0 means those of `archs`.
    """
    busy = bound_us(work, sms, rates) / rates.reached.get(work.kernel, work.reached)
    rest = work.beside / rates.memory + (work.launches - 1) * rates.launch_us
    return hypot(busy, moved / rates.memory) + rest


def block_work(
    task: Task,
    tile: Tile,
    tiles: int,
    steps: int,
    *,
    reached: float,
    vector: int = 16,  # bytes that a thread loads at a time
    per_vector: float = 0.0,  # instructions that the compiled kernel issues for each of them
    loaded: float = 0.0,  # bytes of a step, if these are not the two blocks
    products: float = 1.0,  # products of a step, as a multiple of the tile's
    resident: int = 0,  # as in `Work`; 0 for as many as there is room for
) -> Work:
    """Return the work of a kernel that loads a block of rows and one of columns for each step."""
    blocks = (tile.bm + tile.bn) * tile.bk * ITEMSIZE[task.dtype]
    registers = 32 * tile.warps * (tile.per_thread + ADDRESSES)
    room = archs.shared(task.arch) // (blocks * tile.stages), archs.REGISTERS // registers
    products *= prod(tile[:3]) * (1 if max(tile[:2]) >= WARP_GROUP else 2)
    issued = per_vector * blocks / (32 * vector)
    return Work(
        task.numbers,
        tiles,
        steps,
        products,
        loaded or blocks,
        issued,
        resident=resident or max(1, min(room)),
        reached=reached,
    )


def thread_work(programs: int, instructions: int, tile: Tile, *, reached: float) -> Work:
    """Return the work of programs, given the instructions that each thread issues.

    A multiprocessor runs several programs at a time: fewer take as long.
    """
    issued = archs.PER_SM * tile.warps * instructions
    turns = -(-programs // archs.PER_SM)
    return Work("ieee", turns, 1, 0.0, 0.0, issued, resident=ALWAYS, reached=reached)


def cut(task: Task, whole: Work) -> tuple[int, Work]:
    """Return the number of parts to cut the sums of a result into, and the work of these parts.

    Another kernel adds the parts. Each has at least `LEAST_STEPS` steps, and their workspace is
    limited. They fill the multiprocessors once or twice, whichever is expected to be fastest. The
    number depends on the call and the tile alone, so that results repeat bit for bit.
    """
    call = task.builder.call
    size = prod(call.problem.shape(task.role)) * 4
    steps, moved = whole.steps, call.bytes_moved()
    most = max(min(steps // LEAST_STEPS, WORKSPACE // max(size, 1)), 1)
    wanted = {min(max(waves * archs.SMS // max(whole.tiles, 1), 1), most) for waves in (1, 2)} | {1}
    counts = {-(-steps // -(-steps // parts)) for parts in wanted} if steps else {1}
    works = {parts: in_parts(whole, parts, size) for parts in sorted(counts)}
    best = min(works, key=lambda parts: us(works[parts], moved))
    return best, works[best]


def in_parts(whole: Work, parts: int, size: int) -> Work:
    """Return the work of a result of `size` bytes whose sums are cut into parts.

    >>> in_parts(Work("bf16", 4, 64, 1.0, 1.0), 16, 4096)[1:3]
    (64, 4)
    """
    if parts == 1:
        return whole
    return whole._replace(
        tiles=whole.tiles * parts,
        steps=-(-whole.steps // parts),
        beside=whole.beside + 2.0 * size * parts,
        launches=whole.launches + 1,
    )
