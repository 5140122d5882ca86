"""The cost model: the time of a kernel, estimated from its products, its loads and its stores.

A multiprocessor computes its share of the tiles one after the other. A step of a tile takes as long
as its products at peak, as its blocks take to come from the L2 cache, or as its instructions take
to be issued, whichever is longest; a kernel reaches a share of that bound. Then come the ends of
tiles, of which some overlap, and their stores. The bytes that a call has to move at least overlap
with all of it; launches and copies of operands do not.

The bench's `fit` finds the rates in a tuner's times.
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
AHEAD = 3  # steps that are loaded ahead where a tile does not tell
WARP_GROUP = 64  # rows that four warps multiply together; fewer are multiplied at half the rate
ADDRESSES = 64  # registers of a thread besides its accumulators
BUSY = 2.25  # programs of four warps that hide the latency of their instructions
FILLED = 2  # times that the steps of a part of a sum fill the pipeline, at least
FILLS = (1, 2, 3, 4, 6, 8)  # quarters of the multiprocessors that parts of sums may fill
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
    stored: float = 0.0  # bytes of a tile that are stored
    beside: float = 0.0  # bytes that partial sums move through memory
    launches: int = 1
    # Copies of operands and results into other orders, and the bytes that they read and write.
    copies: int = 0
    copied: float = 0.0
    reordered: float = 0.0  # the same of those that a kernel of ours does
    # Tiles that a multiprocessor has at a time: one is begun or ended while others multiply.
    resident: int = 1
    at_once: int = 1  # tiles that a multiprocessor computes at a time
    busy: float = 1.0  # tiles that keep a multiprocessor busy: fewer take as long
    ahead: int = AHEAD  # steps whose loads are in flight while one is multiplied
    maps: bool = False  # whether it reads tensor maps
    # Share of the bound. Kernels that load with one warp and multiply with others come closest.
    reached: float = 1.0
    kernel: str = ""  # name of the `KernelSpec`


# Shares of the bound that kernels reached on an H200.
REACHED = {
    **{"gather": 0.67, "flat": 0.28, "tma": 0.52, "im2col": 0.78, "wgrad": 0.54},
    **{"gluon_fprop": 0.78, "gluon_halo": 0.78, "gluon_wgrad": 0.83, "gluon_halo_wgrad": 0.78},
    **{"depthwise": 0.51, "depthwise_wgrad": 0.70, "direct": 0.29, "direct_wgrad": 0.10},
}


@dataclass(frozen=True)
class Rates:
    """The figures of a card; those given here are measured on an H200 (`convref bench fit`)."""

    l2: float = 70.0  # bytes that come from the L2 cache in a cycle, for each multiprocessor
    fill: float = 2500.0  # cycles in which a tile is begun and ended
    latency: float = 300.0  # cycles that a step takes at least, however many tiles have one
    stored: float = 20.0  # bytes that a multiprocessor stores in a cycle
    mhz: float = 1980.0  # clock under load
    memory: float = 4.25e6  # bytes a microsecond
    empty_us: float = 1.7  # of a kernel that does nothing
    maps_us: float = 2.0  # more of one that reads tensor maps
    launch_us: float = 2.6  # between one kernel of a call and the next
    copy_us: float = 2.2  # of a copy of nothing
    copy: float = 1.06e6  # bytes a microsecond that copies read and write
    reorder: float = 3.0e6  # of our kernel; an H200 reached 2.9 to 3.8 for 10 MB and more
    # By kernel; `Work.reached` of those that are not in it.
    reached: Mapping[str, float] = field(default_factory=lambda: REACHED)


ESTIMATED = Rates()
ERROR = 1.3  # factor of a standard deviation, on an H200, for times that came after the fit


def step(numbers: str, products: float, loaded: float, issued: float, rates: Rates) -> float:
    """Return the cycles of a step, if a kernel reached its bound.

    >>> [step("bf16", 128 * n * 64, (128 + n) * 128, 0.0, Rates(l2=64)) for n in (128, 256)]
    [512.0, 1024.0]
    """
    return max(products / PRODUCTS[numbers], loaded / rates.l2, issued / ISSUED)


def turns(work: Work, sms: int = 0) -> int:
    """Return the tiles of the multiprocessor that has most."""
    return -(-work.tiles // (sms or archs.SMS))


def waiting(work: Work, rates: Rates) -> float:
    """Return the cycles that a step takes at least: a load takes AHEAD of them from issue to use.

    The first loads are issued as the tile begins.
    """
    loads = max(work.steps - work.ahead, 0) * AHEAD / work.ahead
    return rates.latency * max(1.0, loads / max(work.steps, 1))


def bound_us(work: Work, sms: int = 0, rates: Rates = ESTIMATED) -> float:
    """Return the microseconds of the steps of one multiprocessor's tiles, if it reaches the bound.

    >>> one = Work("bf16", 132, 10, 128 * 128 * 64, 0.0)
    >>> [round(bound_us(one._replace(tiles=n)) / bound_us(one), 9) for n in (133, 529)]
    [2.0, 5.0]
    >>> few = one._replace(at_once=4, busy=2.5)
    >>> [round(bound_us(few._replace(tiles=n)) / bound_us(one), 9) for n in (133, 529)]
    [2.5, 6.5]
    """
    each = step(work.numbers, work.products, work.loaded, work.issued, rates)
    least = max(work.busy * each, waiting(work, rates))
    waves, rest = divmod(turns(work, sms), work.at_once)
    last = max(rest * each, least) if rest else 0.0
    return work.steps * (waves * max(work.at_once * each, least) + last) / rates.mhz


def steps_us(work: Work, sms: int = 0, rates: Rates = ESTIMATED) -> float:
    """Return the microseconds of the steps of one multiprocessor's tiles."""
    return bound_us(work, sms, rates) / rates.reached.get(work.kernel, work.reached)


def ends_us(work: Work, sms: int = 0, rates: Rates = ESTIMATED) -> float:
    """Return the microseconds in which one multiprocessor begins, ends and stores its tiles."""
    tiles = turns(work, sms)
    ends = -(-tiles // work.resident) * rates.fill
    return (ends + tiles * work.stored / rates.stored) / rates.mhz


def beside_us(work: Work, rates: Rates = ESTIMATED) -> float:
    """Return the microseconds of launches, copies and partial sums, which overlap with nothing."""
    once = rates.empty_us + work.maps * rates.maps_us + (work.launches - 1) * rates.launch_us
    return once + copies_us(work, rates) + work.beside / rates.memory


def copies_us(work: Work, rates: Rates = ESTIMATED) -> float:
    moved = work.copied / rates.copy + work.reordered / rates.reorder
    return work.copies * rates.copy_us + moved


def longest(work: Work, moved: float, sms: int = 0, rates: Rates = ESTIMATED) -> str:
    """Return the longest part: products, L2, issue, ends of tiles, memory, copies, launches.

    >>> longest(Work("bf16", 132, 99, 64 * 64 * 64, 2 * 64 * 64 * 2), 0.0)
    'L2'
    """
    steps = turns(work, sms) * work.steps / rates.mhz
    us = {
        "products": steps * work.products / PRODUCTS[work.numbers],
        "L2": steps * work.loaded / rates.l2,
        "issue": steps * work.issued / ISSUED,
        "ends of tiles": ends_us(work, sms, rates),
        "memory": (moved + work.beside) / rates.memory,
        "copies": copies_us(work, rates),
        "launches": beside_us(work._replace(copies=0, copied=0, reordered=0, beside=0), rates),
    }
    return max(us, key=lambda name: us[name])


def us(work: Work, moved: float, sms: int = 0, rates: Rates = ESTIMATED) -> float:
    """Return the microseconds that a kernel is expected to take.

    Every kernel has to move `moved` bytes for the call; `sms` = 0 means those of `archs`.
    """
    busy = steps_us(work, sms, rates) + ends_us(work, sms, rates)
    return hypot(busy, moved / rates.memory) + beside_us(work, rates)


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
    resident = resident or max(1, min(*room, archs.PER_SM))
    return Work(
        task.numbers,
        tiles,
        steps,
        products,
        loaded or blocks,
        issued,
        tile.bm * tile.bn * ITEMSIZE[task.builder.call.dtype_of(task.role)],
        resident=resident,
        at_once=1 if resident == ALWAYS else resident,
        ahead=AHEAD if resident == ALWAYS else max(tile.stages - 1, 1),
        maps=resident == ALWAYS,
        reached=reached,
    )


def thread_work(programs: int, instructions: int, tile: Tile, *, reached: float) -> Work:
    """Return the work of programs, given the instructions that each thread issues."""
    issued = float(tile.warps * instructions)
    options = {"resident": ALWAYS, "at_once": archs.PER_SM, "busy": BUSY, "reached": reached}
    return Work("ieee", programs, 1, 0.0, 0.0, issued, **options)


def cut(task: Task, whole: Work) -> tuple[int, Work]:
    """Return the number of parts to cut the sums of a result into, and the work of these parts.

    Another kernel adds the parts. Their steps fill the pipeline, and their workspace is limited.
    Of the numbers in `FILLS`, the one is taken that is expected to be fastest. It depends on the
    call and the tile alone, so that results repeat bit for bit.
    """
    builder = task.builder
    size = prod(builder.call.problem.shape(task.role)) * 4
    steps, moved = whole.steps, builder.bytes_moved
    most = max(min(steps // (FILLED * (whole.ahead + 1)), WORKSPACE // max(size, 1)), 1)
    fills = (n * archs.SMS // (4 * max(whole.tiles, 1)) for n in FILLS)
    wanted = {min(max(parts, 1), most) for parts in fills} | {1}
    counts = {-(-steps // -(-steps // parts)) for parts in wanted} if steps else {1}
    wide = whole._replace(stored=whole.stored * 4 / ITEMSIZE[task.dtype])  # parts are float32
    works = {n: in_parts(wide, n, size) if n > 1 else whole for n in sorted(counts)}
    best = min(works, key=lambda parts: us(works[parts], moved))
    return best, works[best]


def in_parts(whole: Work, parts: int, size: int) -> Work:
    """Return the work of a result of `size` bytes whose sums are cut into parts.

    >>> in_parts(Work("bf16", 4, 64, 1.0, 1.0), 16, 4096)[1:3]
    (64, 4)
    """
    return whole._replace(
        tiles=whole.tiles * parts,
        steps=-(-whole.steps // parts),
        beside=whole.beside + 2.0 * size * parts,
        launches=whole.launches + 1,
    )
