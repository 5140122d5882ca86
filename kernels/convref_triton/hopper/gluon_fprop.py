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
from typing import NamedTuple

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
from .arguments import (
    Axes,
    Barriers,
    Blocking,
    BoxGrid,
    Filter,
    Operands,
    Output,
    Strides,
)
from .ring import EPILOGUE_N, accumulate, split_columns, turn_step

RUNTIME = [name for name in tma.RUNTIME if name != "w_tap"]
RUNTIME += ["groups", "taps_d", "taps_h", "taps_w", "w_d", "w_h", "w_w"]
MOST_APART = 8  # pixels of a box, along an axis
MOST_CLASSES = 16  # of pixels of an adjoint


class Tiling(NamedTuple):
    """The tiles of the result: boxes of pixels of each parity class by columns of channels."""

    tiles: gl.tensor  # of all groups and classes
    boxes: gl.tensor  # of one group and class
    columns: gl.tensor
    grid: BoxGrid
    lo: Axes
    taps: Axes
    sizes: gl.tuple  # (N, O, P, Q)
    RANK: gl.constexpr
    MOVE: gl.constexpr
    CLASSES: gl.constexpr
    STEP: gl.constexpr
    BOX: gl.constexpr
    BAND: gl.constexpr


class ParityClass(NamedTuple):
    """Pixels of a strided adjoint that meet the same taps; without a stride, all pixels."""

    at: gl.tuple  # the first pixel (d, h, w)
    sizes: gl.tuple  # (N, O, P, Q) of the class
    first_tap: gl.tuple
    taps: gl.tuple
    read: gl.tuple  # where the first tap reads for the first pixel


class TilePlace(NamedTuple):
    """A column of a group's channels, and the first pixel of a box of a parity class."""

    group: gl.tensor
    column: gl.tensor
    n: gl.tensor
    o: gl.tensor
    p: gl.tensor
    q: gl.tensor
    parity: ParityClass


class Fprop(NamedTuple):
    """What both partitions of the kernel receive."""

    output: Output
    xs: gl.shared_memory_descriptor
    ws: gl.shared_memory_descriptor
    barriers: Barriers
    tiling: Tiling
    depth: gl.tensor  # blocks of a tap
    strides: Strides
    K: gl.tensor
    operands: Operands
    filter: Filter
    C: gl.tensor
    blocking: Blocking
    STRIDE: gl.constexpr
    PAIRS: gl.constexpr
    WIDE: gl.constexpr
    UNIT: gl.constexpr
    VEC: gl.constexpr
    ACTIVATION: gl.constexpr


@gluon.constexpr_function
def many(classes):
    """Return how many parity classes there are."""
    return classes[0] * classes[1] * classes[2]


@gluon.jit
def locate(tile, tiling):
    """Return the TilePlace of a tile."""
    COUNT: gl.constexpr = many(tiling.CLASSES)
    e, within = 0, tile
    if COUNT > 1:
        e = tile // (tiling.tiles // COUNT)
        within = tile - e * (tiling.tiles // COUNT)
    group, box, column = ring.locate(within, tiling.boxes, tiling.columns, tiling.BAND)
    n, o, p, q = corner(box, *tiling.grid, tiling.RANK, tiling.BOX)
    lo, taps, sizes = tiling.lo, tiling.taps, tiling.sizes
    if COUNT == 1:
        parity = ParityClass((0, 0, 0), sizes, (0, 0, 0), taps, (-lo.d, -lo.h, -lo.w))
    else:
        at, pixels, first, met, read = class_of(
            e, lo, taps, sizes, tiling.MOVE, tiling.CLASSES, tiling.STEP
        )
        # Boxes cover the largest class. Beyond the last pixel of a smaller one, no tap is met.
        inside = (o < pixels[1]) & (p < pixels[2]) & (q < pixels[3])
        parity = ParityClass(at, pixels, first, (tl.where(inside, met[0], 0), met[1], met[2]), read)
    return TilePlace(group, column, n, o, p, q, parity)


@gluon.jit
def steps_of(tile, tiling, depth):
    """Return how many blocks a tile has, where a tap has `depth` of them."""
    taps = locate(tile, tiling).parity.taps
    return depth * taps[0] * taps[1] * taps[2]


@gluon.jit
def load_box(x, n, d, h, v, c, full, block, RANK: gl.constexpr):
    """Start to copy the box of x at (n, d, h, v, c)."""
    if RANK == 0:
        maps.async_copy_global_to_shared(x, [n, c], full, block)
    elif RANK == 1:
        maps.async_copy_global_to_shared(x, [n, v, c], full, block)
    elif RANK == 2:
        maps.async_copy_global_to_shared(x, [n, h, v, c], full, block)
    else:
        maps.async_copy_global_to_shared(x, [n, d, h, v, c], full, block)


@gluon.jit
def load_tile(args, x, w, count, n, d, h, v, channel, row, column, taps, steps):
    """Copy the blocks of a tile's taps and channels; return the count of the next one."""
    BYTES: gl.constexpr = x.block_type.nbytes + w.block_type.nbytes
    MOVE: gl.constexpr = args.tiling.MOVE
    for t in range(taps[0]):
        for r in range(taps[1]):
            for s in range(taps[2]):
                tap = column + t * steps[0] + r * steps[1] + s * steps[2]
                for c in range(0, args.C, args.blocking.BK):
                    stage, full = ring.acquire(args.barriers, count, BYTES, args.blocking.STAGES)
                    load_box(
                        x, n, d + t * MOVE[0], h + r * MOVE[1], v + s * MOVE[2], channel + c,
                        full, args.xs.index(stage), args.tiling.RANK,
                    )  # fmt: skip
                    maps.async_copy_global_to_shared(w, [row, tap + c], full, args.ws.index(stage))
                    count += 1
    return count


@gluon.jit
def load(args):
    """Copy all blocks of a program's tiles, in the order in which they are multiplied."""
    STRIDE: gl.constexpr = args.STRIDE
    STEP: gl.constexpr = args.tiling.STEP
    tap = args.filter.tap
    steps = tap.d * STEP[0], tap.h * STEP[1], tap.w * STEP[2]
    count = 0
    for tile in range(gl.program_id(0), args.tiling.tiles, gl.num_programs(0)):
        at = locate(tile, args.tiling)
        first, read = at.parity.first_tap, at.parity.read
        d, h, v = at.o * STRIDE[0] + read[0], at.p * STRIDE[1] + read[1], at.q * STRIDE[2] + read[2]
        row = at.group * args.filter.group_row + at.column * args.blocking.BN
        column = args.filter.first + at.group * args.filter.group_column
        column += first[0] * tap.d + first[1] * tap.h + first[2] * tap.w
        for pair in gl.static_range(args.PAIRS):
            count = load_tile(
                args, args.operands[2 * pair], args.operands[2 * pair + 1], count, at.n, d, h, v,
                at.group * args.C, row, column, at.parity.taps, steps,
            )  # fmt: skip


@gluon.constexpr_function
def epilogue_layout(rows, activation):
    """Return the layout of the columns that a group stores at a time: 16 bytes of a thread."""
    # erf needs registers that 64 columns of 128 rows leave no room for.
    columns = EPILOGUE_N.value // 2 if activation == "gelu" and rows > 64 else EPILOGUE_N.value
    return gl.BlockedLayout([1, 8], [256 // columns, columns // 8], [4, 1], [1, 0])


@gluon.jit
def store(
    acc, output, to_y, pixels, real, group, column, y_c, K,
    LAYOUT: gl.constexpr, BN: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Apply the epilogue to an accumulator and store it at `to_y` + pixels, where they exist."""
    COLUMNS: gl.constexpr = LAYOUT.size_per_thread[1] * LAYOUT.threads_per_warp[1]
    parts = split_columns(acc, BN // COLUMNS)
    for part in gl.static_range(BN // COLUMNS):
        outs = column * BN + part * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))
        known = outs < K
        inside = real[:, None] & known[None, :]
        y_tile = to_y + (pixels[:, None] + (outs * y_c)[None, :])
        y = finish(
            gl.convert_layout(parts[part], LAYOUT), output.bias, output.scale, output.shift,
            output.residual, group * K + outs, known, y_tile, inside, ACTIVATION,
        )  # fmt: skip
        gl.store(output.y + y_tile, y.to(output.y.dtype.element_ty), inside)


@gluon.jit
def multiply(args, CONSUMER: gl.constexpr):
    """Compute the tiles of a warp group, or its rows of all tiles."""
    VEC: gl.constexpr = args.VEC
    CLASSES: gl.constexpr = args.tiling.CLASSES
    READERS: gl.constexpr = args.blocking.READERS
    BN: gl.constexpr = args.blocking.BN
    ROWS: gl.constexpr = args.blocking.BM // READERS
    TURNS: gl.constexpr = turn_step(READERS)
    LAYOUT: gl.constexpr = epilogue_layout(ROWS, args.ACTIVATION)
    # Strides are multiplied by their vector here: captures of a partition lose divisibility hints.
    image_y, group_y = args.strides.n.to(gl.int64) * VEC[0], args.strides.g.to(gl.int64) * VEC[0]
    y_n, y_d, y_h, y_w = strides(
        args.strides.n, args.strides.d, args.strides.h, args.strides.w, VEC[0], args.WIDE
    )
    y_c, K = unit(args.strides.c, args.UNIT, 1, args.WIDE), args.K * VEC[1]
    program, programs = gl.program_id(0), gl.num_programs(0)
    block = 0
    if many(CLASSES) > 1 and CONSUMER % TURNS > 0:
        block = steps_of(program, args.tiling, args.depth)
    for turn in range(CONSUMER % TURNS, tl.cdiv(args.tiling.tiles - program, programs), TURNS):
        tile = program + turn * programs
        steps = steps_of(tile, args.tiling, args.depth)
        if many(CLASSES) == 1:
            block = turn * steps
        acc = accumulate(
            args.xs, args.ws, args.barriers, args.blocking, turn, block, steps, CONSUMER, False
        )
        if many(CLASSES) > 1:
            block += steps
            if TURNS > 1:  # the other group's tile
                block += steps_of(tile + programs, args.tiling, args.depth)
        at = locate(tile, args.tiling)
        i = CONSUMER % READERS * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))  # (ROWS,)
        pixels, real = in_image(
            i, at.n, at.o, at.p, at.q, *at.parity.sizes,
            y_n, y_d * CLASSES[0], y_h * CLASSES[1], y_w * CLASSES[2], args.tiling.BOX,
        )  # fmt: skip
        d, h, w = at.parity.at
        to_y = at.n * image_y + at.group * group_y + (d * y_d + h * y_h + w * y_w)
        store(
            acc, args.output, to_y, pixels, real, at.group, at.column, y_c, K,
            LAYOUT, BN, args.ACTIVATION,
        )  # fmt: skip


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
    """Compute every num_programs-th tile of y, (BM pixels, BN channels), from one or two pairs."""
    xs = gl.allocate_shared_memory(x.dtype, [STAGES] + x.block_type.shape, x.layout)
    ws = gl.allocate_shared_memory(w.dtype, [STAGES] + w.block_type.shape, w.layout)
    barriers = ring.allocate_barriers(STAGES, READERS)
    columns = tl.cdiv(K * VEC[1], BN)
    tiles = boxes * columns * groups * many(CLASSES)
    grid = BoxGrid(boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    ring.run_partitions(
        multiply,
        load,
        Fprop(
            output=Output(y, bias, scale, shift, residual),
            xs=xs,
            ws=ws,
            barriers=barriers,
            tiling=Tiling(
                tiles, boxes, columns, grid, Axes(lo_d, lo_h, lo_w), Axes(taps_d, taps_h, taps_w),
                (N, O, P, Q), RANK, MOVE, CLASSES, STEP, BOX, BAND,
            ),
            depth=PAIRS * tl.cdiv(C, BK),
            strides=Strides(y_n, y_g, y_d, y_h, y_w, y_c),
            K=K,
            operands=Operands(x, w, x_2, w_2),
            filter=Filter(w_first, w_row, w_column, Axes(w_d, w_h, w_w)),
            C=C,
            blocking=Blocking(BM, BN, BK, BAND, STAGES, READERS),
            STRIDE=STRIDE,
            PAIRS=PAIRS,
            WIDE=WIDE,
            UNIT=UNIT,
            VEC=VEC,
            ACTIVATION=ACTIVATION,
        ),
        REGISTERS,
    )  # fmt: skip
    ring.invalidate(barriers, STAGES)


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
