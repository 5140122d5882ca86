"""The gathered product in TMA im2col mode: the launches of `hopper.gluon_im2col`.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

A tensor map im2col iterates over the pixels that the first tap reads, a stride apart, over lines
and images; each tap reads at its own distance from the first. The adjoint of stride 1 is the same
product with the filter flipped. As in `tma`, what is outside of x is zero, channels beyond the
last are zeros in w too, and rows beyond the last pixel are not stored.

`hopper.precompile` makes the file of kernels.
"""

from functools import cache
from math import prod
from operator import mul
from typing import Any

from ..common.index import divisors
from ..conv import tma
from ..conv.gather import gather_loaded, gather_steps
from ..plan import cost, lines
from ..plan.builder import slot
from ..plan.cost import Work
from ..plan.launch import Descriptor, Launch
from ..plan.spec import KernelSpec
from ..plan.task import UNFUSED, Task
from ..plan.tile import Tile
from . import precompiled
from .precompiled import Precompiled

NAME = "gluon_im2col"
SOURCES = (f"hopper.{NAME}", "hopper.ring", "hopper.arguments", "common.index")
TILES = (Tile(128, 256, 64, 4, 4), Tile(128, 128, 64, 4, 4))  # rows are pixels
RANKS = (2, 3)  # spatial axes of maps; one is two of which the first has one line
DTYPES = ("bf16", "f16")
BITS = {2: 8, 3: 5}  # of an offset, and of a corner with its sign, by the spatial axes of a map
MAX_STRIDE = 8  # along an axis, the limit of tensor maps
VECTOR = 8  # channels of a vector, the unit of the result's channels
PIXELS = "M O P Q C K groups biased o_magic o_shift p_magic p_shift q_magic q_shift"
TAPS = [f"{name}_{axis}" for name in ("stride", "lo", "taps", "dilation") for axis in "dhw"]
RUNTIME = [*PIXELS.split(), *TAPS, "w_first", "w_row", "w_column", "w_d", "w_h", "w_w"]


@cache
def kernels() -> dict[tuple[str, int, Tile, bool], Precompiled]:
    found = {}
    for kernel in precompiled.load(NAME).kernels:
        c = kernel.constants
        found[c["dtype"], c["RANK"], Tile(*c["tile"]), c["TRANSPOSED"]] = kernel
    return found


def source() -> str:
    return precompiled.load(NAME).digest


def im2col_refusal(task: Task) -> str | None:
    scatter, stride = task.kind == "scatter", task.geometry.stride
    if task.builder.call.specs[0].device != "cuda":
        return "the interpreter takes no PTX"
    if not task.arch.startswith("sm_9"):
        return f"{task.arch} has no wgmma"
    if reason := tma.box_refusal(task):
        return reason
    if len(task.pairs) > 1 or task.fusion != UNFUSED:
        return "one product, and nothing after it but a bias"
    if (scatter and stride != (1, 1, 1)) or max(stride) > MAX_STRIDE:
        return f"an adjoint of stride 1, or pixels that are at most {MAX_STRIDE} apart"
    if task.channels[1] % VECTOR:
        return f"{task.channels[1]} result channels are not a multiple of a vector"
    return _too_far(task) or (None if im2col_tiles(task) else "no compiled kernel")


def _too_far(task: Task) -> str | None:
    """Return None, or the axis whose offsets exceed the range of a tensor map."""
    bits = BITS[_rank(task)]
    for axis in range(3):
        lower, upper, reach = _walk(task, axis)
        if not -(1 << bits - 1) <= min(lower, upper) <= max(lower, upper) < 1 << bits - 1:
            return f"padding and filter exceed the range of {bits} bits"
        if reach >> bits:
            return f"the distance of the last tap from the first exceeds {bits} bits"
    return None


def _rank(task: Task) -> int:
    return max(task.geometry.rank, 2)


def _walk(task: Task, axis: int) -> tuple[int, int, int]:
    """Return (where pixels begin, how far beyond x they end, reach of the taps) along an axis."""
    geometry, scatter = task.geometry, task.kind == "scatter"
    reach = (geometry.filter[axis] - 1) * geometry.dilation[axis]
    read, written = geometry.big[axis], geometry.small[axis]
    if scatter:
        read, written = written, read
    lower = geometry.lo[axis] - reach if scatter else -geometry.lo[axis]
    return lower, lower + (written - 1) * geometry.stride[axis] + 1 - read, reach


def im2col_tiles(task: Task) -> tuple[Tile, ...]:
    return tuple(tile for tile in TILES if (task.dtype, _rank(task), tile, False) in kernels())


def _count(task: Task, tile: Tile) -> int:
    columns = -(-task.channels[1] // tile.bn) * task.geometry.groups
    return -(-task.rows // tile.bm) * columns


def im2col_work(task: Task, tile: Tile) -> Work:
    count, steps = _count(task, tile), gather_steps(task, tile)
    options = {"loaded": gather_loaded(task, tile), "resident": cost.ALWAYS}
    return cost.block_work(task, tile, count, steps, reached=0.85, **options)


def add_im2col(task: Task, tile: Tile) -> None:
    """Add the launch that computes a task, after copies into the order that tensor maps need."""
    ((x, w),), y = tma.laid(task, stored=True), task.result()
    stored, transposed = task.stored(y), tma.is_transposed(task, w)
    kernel = kernels()[task.dtype, _rank(task), tile, transposed]
    bias = task.epilogue(stored).bias
    if bias is not None and not bias.aligned:
        bias = task.builder.copied(bias, (0,))
    tap, w_map = tma.filters_of(task, w, transposed, (tile.bn, tile.bk))
    arguments = {
        "x": _pixels(task, x, tile),
        "w": Descriptor(slot(w), *w_map),
        "y": slot(stored),
        **({} if bias is None else {"bias": slot(bias)}),
        **dict(zip(RUNTIME, _numbers(task, tap, tma.group_of(task, transposed), bias is not None))),
    }
    constants = {"bias": None} if bias is None else {}
    grid = min(_count(task, tile), task.programs), 1, 1
    task.builder.steps.append(Launch(kernel, grid, arguments, constants, tile.warps, tile.stages))
    task.finish(stored, y)


def _pixels(task: Task, x: Any, tile: Tile) -> Descriptor:
    geometry, rank = task.geometry, _rank(task)
    read = geometry.small if task.kind == "scatter" else geometry.big
    x_n, _, *steps = x.steps
    sizes, strides, *_ = tma.mapped(
        (geometry.n, *read), (x_n, *steps), x.shape[1], (1, 1, 1, 1, 1), rank
    )
    walks = [_walk(task, axis) for axis in range(3 - rank, 3)]
    corners = tuple(lower for lower, *_ in walks), tuple(upper for _, upper, _ in walks)
    every = 1, *geometry.stride[3 - rank :], 1
    return Descriptor(slot(x), sizes, strides, (tile.bm, tile.bk), every, corners)


def _numbers(task: Task, tap: int, group: tuple[int, int], biased: bool) -> tuple[int, ...]:
    geometry, (c, k), scatter = task.geometry, task.channels, task.kind == "scatter"
    o, p, q = written = geometry.big if scatter else geometry.small
    los = (-_walk(task, axis)[0] for axis in range(3))
    taps, (_, r, s) = geometry.filter, geometry.filter
    steps = [tap * n for n in (r * s, s, 1)]
    first = 0
    if geometry.flip != scatter:  # the adjoint of a filter is that filter flipped
        first = sum(map(mul, (n - 1 for n in taps), steps))
        steps = [-step for step in steps]
    return (
        geometry.n * prod(written), o, p, q, c, k // VECTOR, geometry.groups, int(biased),
        *divisors(written),
        *geometry.stride, *los, *taps, *geometry.dilation,
        first, *group, *steps,
    )  # fmt: skip


SPEC = KernelSpec(
    "im2col",
    serves=("gather", "scatter"),
    refusal=im2col_refusal,
    tiles=im2col_tiles,
    add=add_im2col,
    work=im2col_work,
    lines=lines.FPROP | lines.DGRAD,
    digest=source,
)
