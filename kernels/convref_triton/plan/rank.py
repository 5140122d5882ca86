"""What each kernel does for a result, in the words of `cost`; and which choice to try first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from ..common.geometry import ITEMSIZE
from ..conv import depthwise, direct_wgrad, flat, gather, split, tma, wgrad
from ..conv.task import Task
from . import archs, cost, table
from .cost import Work
from .table import Tile

if TYPE_CHECKING:
    from .choose import Choice

LINE = 128  # bytes of 64 channels, which blocks of tensor maps have
ALWAYS = 10**6  # tiles at a time: a kernel that goes from one to the next never waits for an end
# Instructions that the compiled kernels issue for each vector that threads load.
PER_VECTOR = {"gather": 16, "split": 16, "flat": 16, "wgrad": 24}
WARP_GROUP = 64  # rows of what four warps multiply together; fewer are multiplied at half the rate
ADDRESSES = 64  # registers of a thread beside its sums


def expected_us(kernel: str, task: Task, tile: Tile, rates: cost.Rates = cost.ESTIMATED) -> float:
    """Return the microseconds that a kernel is expected to take for a task on a tile."""
    moved = task.builder.call.bytes_moved()
    return cost.us(WORKS[kernel](task, tile), moved, task.sms, rates)


def best(task: Task, kernel: Any) -> Tile:
    """Return the tile with which a kernel is expected to be fastest, the earlier at a tie.

    A kernel of which nothing is expected has a `choose` of its own.
    """
    name = kernel.__name__.rpartition(".")[2]
    if name not in WORKS:
        tile: Tile = kernel.choose(task)
        return tile
    return min(kernel.tiles(task), key=lambda one: expected_us(name, task, one))


def ranked(task: Task, choices: Iterable[Choice]) -> list[Choice]:
    """Return choices, the fastest first: one of each kernel, and then the others.

    The estimate tells tiles of a kernel apart better than kernels. Choices of which nothing is
    expected come last.
    """
    every = list(choices)
    us = {c: expected_us(c.kernel, task, c.tile) for c in every if c.kernel in WORKS}
    order = sorted(us, key=lambda choice: us[choice])
    heads: dict[str, Choice] = {}
    for choice in order:
        heads.setdefault(choice.kernel, choice)
    return list(dict.fromkeys([*heads.values(), *order, *every]))


def _kind(task: Task) -> str:
    return task.math if task.dtype == "f32" else task.dtype


def _blocks(kernel: str, task: Task, tile: Tile, tiles: int, steps: int, vector: int = 16) -> Work:
    """Return the work of a kernel that loads a block of rows and one of columns for each step.

    `vector`: bytes that a thread loads at a time.
    """
    loaded = (tile.bm + tile.bn) * tile.bk * ITEMSIZE[task.dtype]
    issued = PER_VECTOR.get(kernel, 0) * loaded / (32 * vector)
    registers = 32 * tile.warps * (table.held(tile) + ADDRESSES)
    room = archs.shared(task.arch) // (loaded * tile.stages), cost.REGISTERS // registers
    products = prod(tile[:3]) * (1 if max(tile[:2]) >= WARP_GROUP else 2)
    resident = max(1, min(room))
    return Work(kernel, _kind(task), tiles, steps, products, loaded, issued, resident=resident)


def _in_parts(kernel: str, task: Task, tile: Tile, tiles: int, steps: int, parts: int) -> Work:
    """Return the work of a kernel whose sums are cut into parts, which another one adds."""
    size = prod(task.builder.call.problem.shape(task.role)) * 4 * parts
    vector = tile.run * ITEMSIZE[task.dtype] if kernel == "wgrad" else 16
    made = _blocks(kernel, task, tile, tiles * parts, -(-steps // parts), vector)
    return made._replace(beside=2.0 * size, launches=2) if parts > 1 else made


def _gather(task: Task, tile: Tile) -> Work:
    tiles, steps = split.count(task, tile), split.steps(task, tile)
    return _blocks("gather", task, tile, tiles, steps, task.width)


def _dual(task: Task, tile: Tile) -> Work:
    """Return the work of y and y_dot: x, x_dot, w and w_dot are loaded, and three products made."""
    made = _gather(task, tile)
    products, loaded = 3 * made.products, 2 * made.loaded
    return made._replace(kernel="dual", products=products, loaded=loaded, issued=2 * made.issued)


def _split(task: Task, tile: Tile) -> Work:
    tiles, steps = split.count(task, tile), split.steps(task, tile)
    return _in_parts("split", task, tile, tiles, steps, split.splits(task, tile))


def _flat(task: Task, tile: Tile) -> Work:
    count, steps, beside, copies = flat.counted(task, tile)
    made = _blocks("flat", task, tile, count, steps, tile.run * ITEMSIZE[task.dtype])
    return made._replace(beside=beside, launches=1 + copies)


def _boxes(kernel: str, task: Task, tile: Tile, pixels: int, channels: int) -> Work:
    """Return the work of a kernel on boxes of so many pixels."""
    geometry, stride = task.geometry, task.geometry.stride
    rank, sizes, apart = geometry.rank, geometry.pixels, stride
    if task.scatters:
        o, p, q = (-(-b // s) for b, s in zip(geometry.big, stride))
        sizes, apart = (geometry.n, o, p, q), (1, 1, 1)
    if geometry.pointwise:
        rank, sizes = 0, (prod(sizes), 1, 1, 1)
    boxes = prod(tma.in_boxes(sizes, tma.best_box(pixels, sizes, rank, apart)))
    count = boxes * -(-task.channels[1] // channels) * task.copies
    return _blocks(kernel, task, tile, count, split.steps(task, tile))


def _tma(task: Task, tile: Tile) -> Work:
    return _boxes("tma", task, tile, tile.bn, tile.bm)


def _gluon_fprop(task: Task, tile: Tile) -> Work:
    return _boxes("gluon_fprop", task, tile, tile.bm, tile.bn)._replace(resident=ALWAYS)


def _im2col(task: Task, tile: Tile) -> Work:
    count = -(-task.rows // tile.bm) * -(-task.channels[1] // tile.bn) * task.geometry.groups
    return _blocks("im2col", task, tile, count, split.steps(task, tile))._replace(resident=ALWAYS)


def _gluon_halo(task: Task, tile: Tile) -> Work:
    from ..hopper.gluon_halo import cut

    shared, _ = cut(task, tile)
    boxes = prod(shared.boxes(task.written))
    count = boxes * -(-task.channels[1] // tile.bn) * task.geometry.groups
    loaded = (shared.pixels / shared.taps + tile.bn) * LINE
    made = _blocks("gluon_halo", task, tile, count, split.steps(task, tile))
    return made._replace(loaded=loaded, resident=ALWAYS)


def _wgrad(task: Task, tile: Tile) -> Work:
    (rows, columns, depth), (beside, copies) = wgrad.sizes(task, tile), wgrad.copied(task, tile)
    tiles = -(-rows // tile.bm) * -(-columns // tile.bn) * task.geometry.groups
    parts, _ = wgrad.split(task, tile)
    made = _in_parts("wgrad", task, tile, tiles, -(-depth // tile.bk), parts)
    return made._replace(beside=made.beside + beside, launches=made.launches + copies)


def _gluon_wgrad(task: Task, tile: Tile) -> Work:
    from ..hopper import gluon_wgrad

    shape, (_, pixels, box) = task.geometry, gluon_wgrad.boxes_of(task.geometry)
    tiles = gluon_wgrad.count(task, tile, shape.filter) * shape.groups
    steps, (parts, _) = prod(tma.in_boxes(pixels, box)), gluon_wgrad.split(task, tile)
    made = _in_parts("gluon_wgrad", task, tile, tiles, steps, parts)
    return made._replace(resident=ALWAYS)


def _gluon_halo_wgrad(task: Task, tile: Tile) -> Work:
    from ..hopper import gluon_halo_wgrad, gluon_wgrad

    shape, shared = task.geometry, gluon_halo_wgrad.sharing(task.geometry)
    assert shared is not None
    tiles = gluon_wgrad.count(task, tile, gluon_halo_wgrad.apart(shape, shared)) * shape.groups
    steps, (parts, _) = prod(shared.boxes(shape.pixels)), gluon_halo_wgrad.split(task, tile)
    made = _in_parts("gluon_halo_wgrad", task, tile, tiles, steps, parts)
    loaded = tile.bm * LINE + tile.bn * shared.pixels * ITEMSIZE[task.dtype]
    return made._replace(products=made.products * shared.taps, loaded=loaded, resident=ALWAYS)


def _threads(kernel: str, programs: int, instructions: int, tile: Tile) -> Work:
    """Return the work of programs whose threads issue so many instructions each.

    A multiprocessor runs some programs at a time: fewer leave it waiting as long.
    """
    issued = table.PER_SM * tile.warps * instructions
    return Work(kernel, "ieee", -(-programs // table.PER_SM), 1, 0.0, 0.0, issued, resident=ALWAYS)


def _depthwise(task: Task, tile: Tile) -> Work:
    return _threads("depthwise", *depthwise.issued(task, tile), tile)


def _of_product(tile: Tile) -> int:
    """Return a thread's instructions for one product of each element: addresses, load, sum."""
    return 10 + 3 * table.held(tile)


def _direct(task: Task, tile: Tile) -> Work:
    columns = -(-task.geometry.groups * task.channels[1] // tile.bn)
    programs = -(-task.rows // tile.bm) * columns * task.classes
    taps = gather.taps_met(task.geometry, task.scatters)
    terms = len(task.pairs) * taps * task.channels[0]
    return _threads("direct", programs, terms * _of_product(tile), tile)


def _direct_wgrad(task: Task, tile: Tile) -> Work:
    shape, (o, p, q) = task.geometry, task.geometry.small
    rows = direct_wgrad.walk(shape, tile)
    pairs = shape.groups * shape.small_channels * shape.big_channels
    programs = -(-shape.n * o * q * (p // rows) // tile.bm) * -(-pairs // tile.bn)
    each, (t, r, s) = table.held(tile), shape.filter
    read = t * s * (r if shape.stride[1] > 1 else 1)  # of stride 1, a row meets windows of r rows
    return _threads("direct_wgrad", programs, rows * (read * (10 + each) + shape.taps * each), tile)


WORKS: Mapping[str, Callable[[Task, Tile], Work]] = {
    "gather": _gather,
    "split": _split,
    "dual": _dual,
    "flat": _flat,
    "tma": _tma,
    "gluon_fprop": _gluon_fprop,
    "gluon_halo": _gluon_halo,
    "im2col": _im2col,
    "wgrad": _wgrad,
    "gluon_wgrad": _gluon_wgrad,
    "gluon_halo_wgrad": _gluon_halo_wgrad,
    "depthwise": _depthwise,
    "direct": _direct,
    "direct_wgrad": _direct_wgrad,
}
