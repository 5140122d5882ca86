"""The product of `tma` by warps of two kinds: one loads, two groups multiply, tile after tile.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

Rows are a box of pixels and columns output channels, both read from shared memory where tensor maps
put them. A program stays on its multiprocessor and takes every so-manieth tile; what it loads runs
ahead of what it multiplies, across tiles. What `tma` says of padding and strangers holds here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from operator import mul
from typing import NamedTuple

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma as maps

from . import ring, table, tma
from .epilogue import finish
from .gather import strides, unit
from .geometry import Geometry, Tensor, Three
from .index import tile_of
from .launch import Launch
from .ring import PART, closed, in_parts, opened, taken
from .table import Tile
from .task import Epilogue, Pairs, Task
from .tma import corner, in_image

RUNTIME = [name for name in tma.RUNTIME if name != "w_tap"]
RUNTIME += ["y_0", "groups", "taps_d", "taps_h", "taps_w", "w_d", "w_h", "w_w"]
MOST_APART = 8  # pixels of a box, along an axis
MOST_CLASSES = 16  # of pixels of a result, each of which has a launch


@gluon.jit
def place(tile, boxes, columns, BAND: gl.constexpr):
    """Return (group, box, column) of a tile."""
    group = tile // (boxes * columns)
    box, column = tile_of(tile - group * (boxes * columns), boxes, columns, BAND)
    return group, box, column


@gluon.jit
def load_box(x, n, d, h, v, c, came, block, RANK: gl.constexpr):
    """Start to load the box of x at (n, d, h, v, c)."""
    if RANK == 0:
        maps.async_copy_global_to_shared(x, [n, c], came, block)
    elif RANK == 1:
        maps.async_copy_global_to_shared(x, [n, v, c], came, block)
    elif RANK == 2:
        maps.async_copy_global_to_shared(x, [n, h, v, c], came, block)
    else:
        maps.async_copy_global_to_shared(x, [n, d, h, v, c], came, block)


@gluon.jit
def load_tile(
    x, w, ring_of, count, n, d, h, v, channel, row, column, taps, w_steps, C,
    RANK: gl.constexpr, MOVE: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Load the blocks of a tile's taps and channels; return the count of the next one."""
    xs, ws, full, free, _ = ring_of
    BYTES: gl.constexpr = x.block_type.nbytes + w.block_type.nbytes
    for t in range(taps[0]):
        for r in range(taps[1]):
            for s in range(taps[2]):
                tap = column + t * w_steps[0] + r * w_steps[1] + s * w_steps[2]
                for c in range(0, C, BK):
                    slot, came = taken(full, free, count, BYTES, STAGES)
                    load_box(
                        x, n, d + t * MOVE[0], h + r * MOVE[1], v + s * MOVE[2], channel + c,
                        came, xs.index(slot), RANK,
                    )  # fmt: skip
                    maps.async_copy_global_to_shared(w, [row, tap + c], came, ws.index(slot))
                    count += 1
    return count


@gluon.jit
def load(
    tensors, ring_of, tiles, boxes, columns, magic, lo, taps, w_place, w_steps, C,
    RANK: gl.constexpr, STRIDE: gl.constexpr, MOVE: gl.constexpr, PAIRS: gl.constexpr,
    BOX: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Load all blocks of a program's tiles, in the order in which they are multiplied."""
    x, w, x_2, w_2 = tensors
    w_first, w_row, w_column = w_place
    count = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        group, box, column = place(tile, boxes, columns, BAND)
        n, o, p, q = corner(box, *magic, RANK, BOX)
        d, h, v = o * STRIDE[0] - lo[0], p * STRIDE[1] - lo[1], q * STRIDE[2] - lo[2]
        row, first = group * w_row + column * BN, w_first + group * w_column
        count = load_tile(
            x, w, ring_of, count, n, d, h, v, group * C, row, first, taps, w_steps, C,
            RANK, MOVE, BK, STAGES,
        )  # fmt: skip
        if PAIRS == 2:
            count = load_tile(
                x_2, w_2, ring_of, count, n, d, h, v, group * C, row, first, taps, w_steps, C,
                RANK, MOVE, BK, STAGES,
            )  # fmt: skip


@gluon.constexpr_function
def stored_as(rows, activation):
    """Return the layout of the columns that a group stores at a time: 16 bytes of a thread."""
    # The error function takes registers that parts of 128 rows leave no room for.
    columns = PART.value // 2 if activation == "gelu" and rows > 64 else PART.value
    return gl.BlockedLayout([1, 8], [256 // columns, columns // 8], [4, 1], [1, 0])


@gluon.jit
def store(
    acc, tensors, to_y, pixels, real, group, column, y_c, K,
    OUT: gl.constexpr, BN: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Store a group's sums at `to_y` + pixels, where they are real, and what follows the sums."""
    y, bias, scale, shift, residual = tensors
    LAST: gl.constexpr = OUT.size_per_thread[1] * OUT.threads_per_warp[1]
    parts = in_parts(acc, BN // LAST)
    for part in gl.static_range(BN // LAST):
        outs = column * BN + part * LAST + gl.arange(0, LAST, gl.SliceLayout(0, OUT))
        known = outs < K
        inside = real[:, None] & known[None, :]
        y_tile = to_y + (pixels[:, None] + (outs * y_c)[None, :])
        out = finish(
            gl.convert_layout(parts[part], OUT), bias, scale, shift, residual,
            group * K + outs, known, y_tile, inside, ACTIVATION,
        )  # fmt: skip
        gl.store(y + y_tile, out.to(y.dtype.element_ty), inside)


@gluon.jit
def multiply(
    tensors, ring_of, tiles, boxes, columns, magic, steps, sizes, y_steps, K,
    WHICH: gl.constexpr, READERS: gl.constexpr, RANK: gl.constexpr, BOX: gl.constexpr,
    WIDE: gl.constexpr, UNIT: gl.constexpr, VEC: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Compute a group's tiles, or its rows of all tiles."""
    # Strides come in vectors, here too: what a product is divided by is not passed on to a group.
    y_0, y_n, y_g, y_d, y_h, y_w, y_c = y_steps
    y_0, image_y = y_0.to(gl.int64) * VEC[0], y_n.to(gl.int64) * VEC[0]
    group_y = y_g.to(gl.int64) * VEC[0]
    y_n, y_d, y_h, y_w = strides(y_n, y_d, y_h, y_w, VEC[0], WIDE)
    y_c, K = unit(y_c, UNIT, 1, WIDE), K * VEC[1]
    ROWS: gl.constexpr = BM // READERS
    FIRST: gl.constexpr = WHICH * ROWS if READERS > 1 else 0
    TURNS: gl.constexpr = 1 if READERS > 1 else 2
    OUT: gl.constexpr = stored_as(ROWS, ACTIVATION)
    begin: gl.constexpr = 0 if READERS > 1 else WHICH
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(begin, tl.cdiv(tiles - program, programs), TURNS):
        tile = program + turn * programs
        acc = ring.product(*ring_of, turn, steps, WHICH, READERS, BM, BN, BK, False, STAGES)
        group, box, column = place(tile, boxes, columns, BAND)
        n, o, p, q = corner(box, *magic, RANK, BOX)
        i = FIRST + gl.arange(0, ROWS, gl.SliceLayout(1, OUT))  # (ROWS,)
        pixels, real = in_image(i, n, o, p, q, *sizes, y_n, y_d, y_h, y_w, BOX)
        to_y = y_0 + n * image_y + group * group_y
        store(acc, tensors, to_y, pixels, real, group, column, y_c, K, OUT, BN, ACTIVATION)


@gluon.jit(do_not_specialize=RUNTIME)
def gluon_fprop(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    N, O, P, Q, C, K, lo_d, lo_h, lo_w, w_first, w_row, w_column,
    boxes, boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    y_n, y_g, y_d, y_h, y_w, y_c, y_0, groups, taps_d, taps_h, taps_w, w_d, w_h, w_w,
    RANK: gl.constexpr, STRIDE: gl.constexpr, MOVE: gl.constexpr,
    PAIRS: gl.constexpr, BOX: gl.constexpr, WIDE: gl.constexpr, UNIT: gl.constexpr,
    VEC: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr, READERS: gl.constexpr, REGISTERS: gl.constexpr,
    ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Compute every so-manieth tile of y, (BM pixels, BN channels), from (x, w) and (x_2, w_2)."""
    xs = gl.allocate_shared_memory(x.dtype, [STAGES] + x.block_type.shape, x.layout)
    ws = gl.allocate_shared_memory(w.dtype, [STAGES] + w.block_type.shape, w.layout)
    full, free, order = opened(STAGES, READERS)
    ring_of = (xs, ws, full, free, order)
    magic = (
        boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift
    )  # fmt: skip
    columns = tl.cdiv(K * VEC[1], BN)
    tiles = boxes * columns * groups
    steps = PAIRS * taps_d * taps_h * taps_w * tl.cdiv(C, BK)
    results, sizes = (y, bias, scale, shift, residual), (N, O, P, Q)
    y_steps = (y_0, y_n, y_g, y_d, y_h, y_w, y_c)
    gl.warp_specialize(
        [
            (multiply, (
                results, ring_of, tiles, boxes, columns, magic, steps, sizes, y_steps, K,
                gl.constexpr(0), READERS, RANK, BOX, WIDE, UNIT, VEC, BM, BN, BK, BAND,
                STAGES, ACTIVATION,
            )),
            (multiply, (
                results, ring_of, tiles, boxes, columns, magic, steps, sizes, y_steps, K,
                gl.constexpr(1), READERS, RANK, BOX, WIDE, UNIT, VEC, BM, BN, BK, BAND,
                STAGES, ACTIVATION,
            )),
            (load, (
                (x, w, x_2, w_2), ring_of, tiles, boxes, columns, magic, (lo_d, lo_h, lo_w),
                (taps_d, taps_h, taps_w), (w_first, w_row, w_column), (w_d, w_h, w_w), C,
                RANK, STRIDE, MOVE, PAIRS, BOX, BN, BK, BAND, STAGES,
            )),
        ],
        [4, 1],
        REGISTERS,
    )  # fmt: skip
    closed(full, free, order, STAGES)


def admits(task: Task) -> str | None:
    """Return None, or why warps of two kinds do not compute a task."""
    if reason := ring.refusal(task) or tma.unfit(task):
        return reason
    stride = task.geometry.stride
    if task.kind == "scatter" and prod(stride) > MOST_CLASSES:
        return f"more than {MOST_CLASSES} classes of pixels"
    if task.kind == "gather" and max(stride) > MOST_APART:
        return f"boxes hold pixels that are at most {MOST_APART} apart"
    return None


def tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles that serve a task."""
    return table.tiles("gluon_fprop", task.dtype, task.math, task.arch)


def choose(task: Task) -> Tile:
    """Return the tile that the heuristic expects to be the fastest, waste of boxes included."""
    return min(tiles(task), key=lambda tile: tma.time(task, tile, tile.bm, tile.bn))


def plan(task: Task, tile: Tile) -> None:
    """Add the launches that compute a task, after copies into the order that tensor maps need."""
    tma.add(task, tile, partial(launches, programs=task.programs))


class Class(NamedTuple):
    """Pixels of the big side that meet the same taps: each stride-th one, from `corner` on.

    `geometry` is that of a result which has no others, made by those taps alone: each `step`-th
    one from `tap` on.
    """

    geometry: Geometry
    corner: Three
    tap: Three
    step: Three


def classes(geometry: Geometry) -> Iterator[Class]:
    """Yield the classes of an adjoint that have pixels; the taps of some are none.

    Pixel corner + stride j meets window j + lo - m dilation at its m-th tap, for the `lo` and the
    `dilation` of the class.
    """
    for at in product(*(range(min(s, n)) for s, n in zip(geometry.stride, geometry.big))):
        axes = [_class(geometry, axis, at[axis]) for axis in range(3)]
        big, filter_, lo, tap = (tuple(axis[n] for axis in axes) for n in range(4))
        dilation = tuple(d // g for d, g in zip(geometry.dilation, geometry.common))
        made = replace(
            geometry, big=big, filter=filter_, stride=(1, 1, 1), dilation=dilation, lo=lo
        )
        yield Class(made, at, tap, geometry.step)


def _class(geometry: Geometry, axis: int, corner: int) -> tuple[int, int, int, int]:
    """Return (pixels, taps, lo, first tap) of a class along one axis."""
    stride, common, step = (t[axis] for t in (geometry.stride, geometry.common, geometry.step))
    pixels, phase = -(-(geometry.big[axis] - corner) // stride), corner + geometry.lo[axis]
    tap = phase % stride // common * geometry.inverse[axis] % step
    taps = max(-(-(geometry.filter[axis] - tap) // step), 0) if phase % common == 0 else 0
    return pixels, taps, (phase - tap * geometry.dilation[axis]) // stride, tap


def launches(
    geometry: Geometry,
    pairs: Pairs,
    y: Tensor,
    scatter: bool,
    tile: Tile,
    epilogue: Epilogue,
    programs: int,
) -> list[Launch]:
    """Return the launches that compute y from (x, w), as `tma.launch`; rows are pixels here.

    At most so many programs are launched, a multiprocessor each.
    """
    if not scatter:
        whole = Class(geometry, (0, 0, 0), (0, 0, 0), (1, 1, 1))
        return [_launch(whole, pairs, y, scatter, tile, epilogue, programs)]
    stride = geometry.stride[3 - geometry.rank :]
    steps = (*y.strides[:2], *(step * s for step, s in zip(y.strides[2:], stride)))
    made = []
    for one in classes(geometry):
        shape = (*y.shape[:2], *one.geometry.big[3 - geometry.rank :])
        part = y._replace(shape=shape, strides=steps)
        first = sum(map(mul, one.corner[3 - geometry.rank :], y.strides[2:]))
        made.append(_launch(one, pairs, part, scatter, tile, epilogue, programs, first))
    return made


def _launch(
    one: Class,
    pairs: Pairs,
    y: Tensor,
    scatter: bool,
    tile: Tile,
    epilogue: Epilogue,
    programs: int,
    first: int = 0,
) -> Launch:
    """Return the launch that computes one class of y, which begins at element `first`."""
    geometry, w = one.geometry, pairs[0][1]
    arguments, constants = tma.given(
        geometry, pairs, y, scatter, tile.bm, tile.bn, tile.bk, epilogue, first
    )
    k = geometry.big_channels if scatter else geometry.small_channels
    count = arguments["boxes"] * -(-k // tile.bn) * geometry.groups
    _, r, s = (1,) * (5 - len(w.shape)) + w.shape[2:]
    tap = arguments.pop("w_tap")
    taps = [tap * n for n in (r * s, s, 1)]
    more = (first // constants["VEC"][0], geometry.groups, *geometry.filter)
    more += tuple(map(mul, one.step, taps))
    arguments["w_first"] += sum(map(mul, one.tap, taps))
    del constants["TAPS"]
    return Launch(
        gluon_fprop,
        (min(count, programs), 1, 1),
        arguments | dict(zip(RUNTIME[len(tma.RUNTIME) - 1 :], more)),
        constants | {"STRIDE": geometry.stride} | ring.constants(tile),
        tile.warps,
        tile.stages,
    )
