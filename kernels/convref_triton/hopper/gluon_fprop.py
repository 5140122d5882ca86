"""The product of `tma` by warps of two kinds: one loads, two groups multiply, tile after tile.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

Rows are a box of pixels and columns output channels, both read from shared memory where tensor maps
put them. A program stays on its multiprocessor and takes every so-manieth tile; what it loads runs
ahead of what it multiplies, across tiles. What `tma` says of padding and strangers holds here too.

The adjoint of a stride is the same product for each class of pixels that meet the same taps. Tiles
of all classes are of one launch, those with the most taps first.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma as maps

from ..common.epilogue import finish
from ..common.geometry import Tensor
from ..common.index import class_of
from ..common.windows import ONES, strides, unit
from ..conv import tma
from ..conv.tma import corner, in_image
from ..plan import cost, lines
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Epilogue, Pairs, Task
from ..plan.tile import Tile, TileTable
from . import ring
from .ring import PART, closed, in_parts, opened, place, shared_out, summed, taken, turns

RUNTIME = [name for name in tma.RUNTIME if name != "w_tap"]
RUNTIME += ["groups", "taps_d", "taps_h", "taps_w", "w_d", "w_h", "w_w"]
MOST_APART = 8  # pixels of a box, along an axis
MOST_CLASSES = 16  # of pixels of an adjoint


@gluon.constexpr_function
def many(classes):
    """Return how many classes of pixels there are."""
    return classes[0] * classes[1] * classes[2]


@gluon.jit
def find(
    tile, tiles, boxes, columns, magic, lo, taps, sizes, RANK: gl.constexpr, MOVE: gl.constexpr,
    CLASSES: gl.constexpr, STEP: gl.constexpr, BOX: gl.constexpr, BAND: gl.constexpr,
):  # fmt: skip
    """Return (group, column, pixel, class) of a tile: its box begins at the pixel of the class."""
    COUNT: gl.constexpr = many(CLASSES)
    e, within = 0, tile
    if COUNT > 1:
        e = tile // (tiles // COUNT)
        within = tile - e * (tiles // COUNT)
    group, box, column = place(within, boxes, columns, BAND)
    n, o, p, q = corner(box, *magic, RANK, BOX)
    if COUNT == 1:
        one = (0, 0, 0), sizes, (0, 0, 0), taps, (-lo[0], -lo[1], -lo[2])
    else:
        at, pixels, first, met, read = class_of(e, lo, taps, sizes, MOVE, CLASSES, STEP)
        # Of a smaller class than the largest one, boxes may lie beyond all pixels: no tap is met.
        there = (o < pixels[1]) & (p < pixels[2]) & (q < pixels[3])
        one = at, pixels, first, (tl.where(there, met[0], 0), met[1], met[2]), read
    return group, column, (n, o, p, q), one


@gluon.jit
def steps_of(
    tile, depth, tiling, RANK: gl.constexpr, MOVE: gl.constexpr, CLASSES: gl.constexpr,
    STEP: gl.constexpr, BOX: gl.constexpr, BAND: gl.constexpr,
):  # fmt: skip
    """Return how many blocks a tile has, where a tap has `depth` of them."""
    _, _, _, one = find(tile, *tiling, RANK, MOVE, CLASSES, STEP, BOX, BAND)
    _, _, _, taps, _ = one
    return depth * taps[0] * taps[1] * taps[2]


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
    tensors, ring_of, tiling, w_place, w_steps, C,
    RANK: gl.constexpr, STRIDE: gl.constexpr, MOVE: gl.constexpr, CLASSES: gl.constexpr,
    STEP: gl.constexpr, PAIRS: gl.constexpr, BOX: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, BAND: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Load all blocks of a program's tiles, in the order in which they are multiplied."""
    x, w, x_2, w_2 = tensors
    w_first, w_row, w_column = w_place
    w_d, w_h, w_w = w_steps
    w_steps = w_d * STEP[0], w_h * STEP[1], w_w * STEP[2]
    count = 0
    for tile in range(gl.program_id(0), tiling[0], gl.num_programs(0)):
        group, column, pixel, one = find(tile, *tiling, RANK, MOVE, CLASSES, STEP, BOX, BAND)
        n, o, p, q = pixel
        _, _, tap, taps, read = one
        d, h, v = o * STRIDE[0] + read[0], p * STRIDE[1] + read[1], q * STRIDE[2] + read[2]
        row, first = group * w_row + column * BN, w_first + group * w_column
        first += tap[0] * w_d + tap[1] * w_h + tap[2] * w_w
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
    WHICH: gl.constexpr, tensors, ring_of, tiling, depth, y_steps, K,
    READERS: gl.constexpr, RANK: gl.constexpr, MOVE: gl.constexpr,
    CLASSES: gl.constexpr, STEP: gl.constexpr, BOX: gl.constexpr,
    WIDE: gl.constexpr, UNIT: gl.constexpr, VEC: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Compute a group's tiles, or its rows of all tiles."""
    # Strides come in vectors, here too: what a product is divided by is not passed on to a group.
    y_n, y_g, y_d, y_h, y_w, y_c = y_steps
    image_y, group_y = y_n.to(gl.int64) * VEC[0], y_g.to(gl.int64) * VEC[0]
    y_n, y_d, y_h, y_w = strides(y_n, y_d, y_h, y_w, VEC[0], WIDE)
    y_c, K = unit(y_c, UNIT, 1, WIDE), K * VEC[1]
    ROWS: gl.constexpr = BM // READERS
    TURNS: gl.constexpr = turns(READERS)
    OUT: gl.constexpr = stored_as(ROWS, ACTIVATION)
    COUNT: gl.constexpr = many(CLASSES)
    program, programs = gl.program_id(0), gl.num_programs(0)
    block = 0
    if COUNT > 1 and WHICH % TURNS > 0:
        block = steps_of(program, depth, tiling, RANK, MOVE, CLASSES, STEP, BOX, BAND)
    for turn in range(WHICH % TURNS, tl.cdiv(tiling[0] - program, programs), TURNS):
        tile = program + turn * programs
        steps = steps_of(tile, depth, tiling, RANK, MOVE, CLASSES, STEP, BOX, BAND)
        if COUNT == 1:
            block = turn * steps
        acc = summed(*ring_of, turn, block, steps, WHICH, READERS, BM, BN, BK, False, STAGES)
        if COUNT > 1:
            block += steps
            if TURNS > 1:  # the other group's tile
                block += steps_of(
                    tile + programs, depth, tiling, RANK, MOVE, CLASSES, STEP, BOX, BAND
                )
        group, column, pixel, one = find(tile, *tiling, RANK, MOVE, CLASSES, STEP, BOX, BAND)
        n, o, p, q = pixel
        at, sizes, _, _, _ = one
        i = WHICH % READERS * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, OUT))  # (ROWS,)
        pixels, real = in_image(
            i, n, o, p, q, *sizes, y_n, y_d * CLASSES[0], y_h * CLASSES[1], y_w * CLASSES[2], BOX
        )
        to_y = n * image_y + group * group_y + (at[0] * y_d + at[1] * y_h + at[2] * y_w)
        store(acc, tensors, to_y, pixels, real, group, column, y_c, K, OUT, BN, ACTIVATION)


@gluon.jit(do_not_specialize=RUNTIME)
def gluon_fprop(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    N, O, P, Q, C, K, lo_d, lo_h, lo_w, w_first, w_row, w_column,
    boxes, boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    y_n, y_g, y_d, y_h, y_w, y_c, groups, taps_d, taps_h, taps_w, w_d, w_h, w_w,
    RANK: gl.constexpr, STRIDE: gl.constexpr, MOVE: gl.constexpr, CLASSES: gl.constexpr,
    STEP: gl.constexpr, PAIRS: gl.constexpr, BOX: gl.constexpr, WIDE: gl.constexpr,
    UNIT: gl.constexpr, VEC: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BAND: gl.constexpr, STAGES: gl.constexpr, READERS: gl.constexpr, REGISTERS: gl.constexpr,
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
    COUNT: gl.constexpr = many(CLASSES)
    tiling = (
        boxes * columns * groups * COUNT, boxes, columns, magic, (lo_d, lo_h, lo_w),
        (taps_d, taps_h, taps_w), (N, O, P, Q),
    )  # fmt: skip
    depth = PAIRS * tl.cdiv(C, BK)
    results, y_steps = (y, bias, scale, shift, residual), (y_n, y_g, y_d, y_h, y_w, y_c)
    shared_out(
        multiply, (
            results, ring_of, tiling, depth, y_steps, K, READERS, RANK, MOVE, CLASSES, STEP, BOX,
            WIDE, UNIT, VEC, BM, BN, BK, BAND, STAGES, ACTIVATION,
        ),
        load, (
            (x, w, x_2, w_2), ring_of, tiling, (w_first, w_row, w_column), (w_d, w_h, w_w), C,
            RANK, STRIDE, MOVE, CLASSES, STEP, PAIRS, BOX, BN, BK, BAND, STAGES,
        ),
        REGISTERS,
    )  # fmt: skip
    closed(full, free, order, STAGES)


# Warp groups multiply what one warp loads, as far ahead as shared memory allows: rows are pixels of
# a forward product and channels of a filter's, columns channels.
TILES = TileTable(
    {
        "f16 bf16": (
            Tile(128, 256, 64, 4, 4),
            Tile(256, 128, 64, 4, 4),
            Tile(128, 128, 64, 4, 4),
            Tile(128, 64, 64, 4, 8),
        )
    }
)


def gluon_fprop_refusal(task: Task) -> str | None:
    """Return why warps of two kinds do not compute a task, None if they do."""
    if reason := ring.refusal(task) or tma.box_refusal(task):
        return reason
    stride = task.geometry.stride
    if task.kind == "scatter" and prod(stride) > MOST_CLASSES:
        return f"more than {MOST_CLASSES} classes of pixels"
    if task.kind == "gather" and max(stride) > MOST_APART:
        return f"boxes hold pixels that are at most {MOST_APART} apart"
    return None


def gluon_fprop_launch(
    task: Task, pairs: Pairs, y: Tensor, tile: Tile, epilogue: Epilogue
) -> Launch:
    """Return the launch that computes y from (x, w), as `tma_launch`; rows are pixels here."""
    geometry = task.geometry
    classes, step, stride, read = ONES, ONES, geometry.stride, geometry
    if task.scatters:
        classes, step, stride = geometry.stride, geometry.step, ONES
        move = (d // g for d, g in zip(geometry.dilation, geometry.common))
        most = (-(-size // every) for size, every in zip(geometry.big, classes))
        read = replace(geometry, big=tuple(most), dilation=tuple(move))
    one = replace(task, geometry=read)
    arguments, constants = tma.given(one, pairs, y, tile.bm, tile.bn, tile.bk, epilogue)
    w, columns = pairs[0][1], -(-task.channels[1] // tile.bn)
    count = arguments["boxes"] * prod(classes) * columns * geometry.groups
    _, r, s = (1,) * (5 - len(w.shape)) + w.shape[2:]
    tap = arguments.pop("w_tap")
    more = geometry.groups, *geometry.filter, *(tap * n for n in (r * s, s, 1))
    arguments |= dict(zip(RUNTIME[len(tma.RUNTIME) - 1 :], more))
    if classes != ONES:
        arguments |= zip(("O", "P", "Q", "lo_d", "lo_h", "lo_w"), (*geometry.big, *geometry.lo))
    del constants["TAPS"]
    return Launch(
        gluon_fprop,
        (min(count, task.programs), 1, 1),
        arguments,
        constants | {"STRIDE": stride, "CLASSES": classes, "STEP": step} | ring.constants(tile),
        tile.warps,
        tile.stages,
    )


SPEC = KernelSpec(
    "gluon_fprop",
    serves=("gather", "scatter"),
    refusal=gluon_fprop_refusal,
    tiles=TILES.of,
    add=lambda task, tile: tma.add_boxes(task, tile, gluon_fprop_launch),
    kernels=(gluon_fprop,),
    work=lambda task, tile: tma.box_work(task, tile, tile.bm, tile.bn, reached=0.85)._replace(
        resident=cost.ALWAYS
    ),
    measured_only=True,
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(
        products=1,
        staged=False,
        registers=168,
        loop={
            "sm_90": (58,),
        },
    ),
)
