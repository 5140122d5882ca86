"""The product of `tma`, warp specialized: one warp copies, two warp groups run wgmma.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

Rows are a box of pixels and columns output channels; wgmma reads both from shared memory, where TMA
puts them. There is a program for each multiprocessor, which takes every num_programs-th tile, and
copies run ahead of products across tiles. Padding and ragged channels are as in `tma`, whose
refusals and arguments these are too.

The adjoint of a stride is the same product for each parity class of pixels, which have the same
taps. One launch has the tiles of all classes, those with the most taps first.
"""

from collections import namedtuple
from dataclasses import replace
from math import prod
from typing import NamedTuple

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

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
from ..plan.tile import Tile, TileTable, tiles
from . import is_proven, maps, ring
from .arguments import Axes, Barriers, BoxGrid, Filter, Operands, Output, Strides
from .ring import EPILOGUE_N, accumulate, filters_at, split_columns

RUNTIME = [name for name in tma.RUNTIME if name != "w_tap"]
RUNTIME += ["groups", "taps_d", "taps_h", "taps_w", "w_d", "w_h", "w_w"]
MAX_STRIDE = 8  # along an axis, the limit of tensor maps
MAX_CLASSES = 16  # parity classes of an adjoint


# The tiles of all groups and classes, the boxes of one of those, and columns of channels; what
# places them: boxes along each axis, padding, taps, and pixels (N, O, P, Q).
Tiling = namedtuple("Tiling", "tiles boxes columns grid lo taps sizes")
# Pixels of a strided adjoint that have the same taps, else all: the first (d, h, w), how many
# (N, O, P, Q), their first tap, their taps, and what the first tap reads for the first pixel.
ParityClass = namedtuple("ParityClass", "at sizes first_tap taps read")
# A column of a group's channels, and the first pixel of a box of a parity class.
TilePlace = namedtuple("TilePlace", "group column n o p q parity")


class Fprop(NamedTuple):
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


@gluon.jit
def locate(tile, tiling, CONFIG: gl.constexpr):
    BOX: gl.constexpr = CONFIG.box
    MOVE: gl.constexpr = CONFIG.move
    CLASSES: gl.constexpr = CONFIG.classes
    STEP: gl.constexpr = CONFIG.step
    e, within = 0, tile
    if CONFIG.parities > 1:
        e = tile // (tiling.tiles // CONFIG.parities)
        within = tile - e * (tiling.tiles // CONFIG.parities)
    group, box, column = ring.locate(within, tiling.boxes, tiling.columns, CONFIG.band)
    n, o, p, q = corner(box, *tiling.grid, CONFIG.rank, BOX)
    lo, taps, sizes = tiling.lo, tiling.taps, tiling.sizes
    if CONFIG.parities == 1:
        parity = ParityClass((0, 0, 0), sizes, (0, 0, 0), taps, (-lo.d, -lo.h, -lo.w))
    else:
        at, pixels, first, met, read = class_of(e, lo, taps, sizes, MOVE, CLASSES, STEP)
        # Boxes cover the largest class. Beyond the last pixel of a smaller one there is no tap.
        inside = (o < pixels[1]) & (p < pixels[2]) & (q < pixels[3])
        met = tl.where(inside, met[0], 0), met[1], met[2]
        parity = ParityClass(at, pixels, first, met, read)
    return TilePlace(group, column, n, o, p, q, parity)


@gluon.jit
def steps_of(tile, tiling, depth, CONFIG: gl.constexpr):
    """Return how many blocks a tile has, where a tap has `depth` of them."""
    taps = locate(tile, tiling, CONFIG).parity.taps
    return depth * taps[0] * taps[1] * taps[2]


@gluon.jit
def load_box(x, n, d, h, v, c, full, block, RANK: gl.constexpr):
    if RANK == 0:
        maps.async_copy_global_to_shared(x, [n, c], full, block)
    elif RANK == 1:
        maps.async_copy_global_to_shared(x, [n, v, c], full, block)
    elif RANK == 2:
        maps.async_copy_global_to_shared(x, [n, h, v, c], full, block)
    else:
        maps.async_copy_global_to_shared(x, [n, d, h, v, c], full, block)


@gluon.jit
def load_filters(w, row, column, c, full, block, CONFIG: gl.constexpr):
    """Copy the block of a tap's filters for channels of the sum from c on."""
    if CONFIG.transposed:
        maps.async_copy_global_to_shared(w, [row + c, column], full, block)
    else:
        maps.async_copy_global_to_shared(w, [row, column + c], full, block)


@gluon.jit
def load_tile(
    args, x, w, count, n, d, h, v, channel, row, column, taps, steps, CONFIG: gl.constexpr
):
    """Copy the blocks of a tile's taps and channels; return the count of the next one."""
    BYTES: gl.constexpr = x.block_type.nbytes + w.block_type.nbytes
    MOVE: gl.constexpr = CONFIG.move
    for t in range(taps[0]):
        for r in range(taps[1]):
            for s in range(taps[2]):
                tap = column + t * steps[0] + r * steps[1] + s * steps[2]
                for c in range(0, args.C, CONFIG.bk):
                    stage, full = ring.acquire(args.barriers, count, BYTES, CONFIG.stages)
                    load_box(
                        x, n, d + t * MOVE[0], h + r * MOVE[1], v + s * MOVE[2], channel + c,
                        full, args.xs.index(stage), CONFIG.rank,
                    )  # fmt: skip
                    load_filters(w, row, tap, c, full, args.ws.index(stage), CONFIG)
                    count += 1
    return count


@gluon.jit
def load(args, CONFIG: gl.constexpr):
    STRIDE: gl.constexpr = CONFIG.stride
    STEP: gl.constexpr = CONFIG.step
    PAIRS: gl.constexpr = CONFIG.pairs
    tap = args.filter.tap
    steps = tap.d * STEP[0], tap.h * STEP[1], tap.w * STEP[2]
    count = 0
    for tile in range(gl.program_id(0), args.tiling.tiles, gl.num_programs(0)):
        at = locate(tile, args.tiling, CONFIG)
        first, read = at.parity.first_tap, at.parity.read
        d, h, v = at.o * STRIDE[0] + read[0], at.p * STRIDE[1] + read[1], at.q * STRIDE[2] + read[2]
        row, column = filters_at(args.filter, at.group, at.column, CONFIG)
        column += first[0] * tap.d + first[1] * tap.h + first[2] * tap.w
        for pair in gl.static_range(PAIRS):
            count = load_tile(
                args, args.operands[2 * pair], args.operands[2 * pair + 1], count, at.n, d, h, v,
                at.group * args.C, row, column, at.parity.taps, steps, CONFIG,
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
    LAYOUT: gl.constexpr, BN: gl.constexpr, CONFIG: gl.constexpr,
):  # fmt: skip
    """Apply the epilogue to an accumulator and store it at `to_y` + pixels, where they exist."""
    ACTIVATION: gl.constexpr = CONFIG.activation
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
def multiply(args, CONFIG: gl.constexpr, CONSUMER: gl.constexpr):
    BOX: gl.constexpr = CONFIG.box
    CLASSES: gl.constexpr = CONFIG.classes
    ROWS: gl.constexpr = CONFIG.bm // CONFIG.readers
    TURNS: gl.constexpr = CONFIG.turns
    ACTIVATION: gl.constexpr = CONFIG.activation
    LAYOUT: gl.constexpr = epilogue_layout(ROWS, ACTIVATION)
    # Strides are multiplied by their vector here: captures of a partition lose divisibility hints.
    vector, tiling, depth, y = CONFIG.vec[0], args.tiling, args.depth, args.strides
    image_y, group_y = y.n.to(gl.int64) * vector, y.g.to(gl.int64) * vector
    y_n, y_d, y_h, y_w = strides(y.n, y.d, y.h, y.w, CONFIG.vec[0], CONFIG.wide)
    y_c, K = unit(y.c, CONFIG.unit, 1, CONFIG.wide), args.K * CONFIG.vec[1]
    program, programs = gl.program_id(0), gl.num_programs(0)
    block = 0
    if CONFIG.parities > 1 and CONSUMER % TURNS > 0:
        block = steps_of(program, tiling, depth, CONFIG)
    for turn in range(CONSUMER % TURNS, tl.cdiv(tiling.tiles - program, programs), TURNS):
        tile = program + turn * programs
        steps = steps_of(tile, tiling, depth, CONFIG)
        if CONFIG.parities == 1:
            block = turn * steps
        acc = accumulate(
            args.xs, args.ws, args.barriers, turn, block, steps, CONFIG, CONSUMER, False
        )
        if CONFIG.parities > 1:
            block += steps
            if TURNS > 1:  # the other group's tile
                block += steps_of(tile + programs, tiling, depth, CONFIG)
        at = locate(tile, tiling, CONFIG)
        i = CONSUMER % CONFIG.readers * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
        pixels, real = in_image(
            i, at.n, at.o, at.p, at.q, *at.parity.sizes,
            y_n, y_d * CLASSES[0], y_h * CLASSES[1], y_w * CLASSES[2], BOX,
        )  # fmt: skip
        d, h, w = at.parity.at
        to_y = at.n * image_y + at.group * group_y + (d * y_d + h * y_h + w * y_w)
        store(
            acc, args.output, to_y, pixels, real, at.group, at.column, y_c, K,
            LAYOUT, CONFIG.bn, CONFIG,
        )  # fmt: skip


@gluon.jit(do_not_specialize=RUNTIME)
def gluon_fprop(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    N, O, P, Q, C, K, lo_d, lo_h, lo_w, w_first, w_row, w_column,
    boxes, boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    y_n, y_g, y_d, y_h, y_w, y_c, groups, taps_d, taps_h, taps_w, w_d, w_h, w_w,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Compute every num_programs-th tile of y, (BM pixels, BN channels), from one or two pairs."""
    STAGES: gl.constexpr = CONFIG.stages
    xs = gl.allocate_shared_memory(x.dtype, [STAGES] + x.block_type.shape, x.layout)
    ws = gl.allocate_shared_memory(w.dtype, [STAGES] + w.block_type.shape, w.layout)
    barriers = ring.allocate_barriers(STAGES, CONFIG.readers)
    columns = tl.cdiv(K * CONFIG.vec[1], CONFIG.bn)
    tiles = boxes * columns * groups * CONFIG.parities
    grid = BoxGrid(boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    lo, taps = Axes(lo_d, lo_h, lo_w), Axes(taps_d, taps_h, taps_w)
    args = Fprop(
        output=Output(y, bias, scale, shift, residual), xs=xs, ws=ws, barriers=barriers,
        tiling=Tiling(tiles, boxes, columns, grid, lo, taps, (N, O, P, Q)),
        depth=CONFIG.pairs * tl.cdiv(C, CONFIG.bk), strides=Strides(y_n, y_g, y_d, y_h, y_w, y_c),
        K=K, operands=Operands(x, w, x_2, w_2),
        filter=Filter(w_first, w_row, w_column, Axes(w_d, w_h, w_w)), C=C,
    )  # fmt: skip
    ring.run_partitions(multiply, load, args, CONFIG)
    ring.invalidate(barriers, STAGES)


# Of `gluon_wgrad` too: rows are pixels here and channels there, columns channels. There are as many
# stages as shared memory allows.
TILES = TileTable(
    {"f16 bf16": tiles("128x256x64 w4 s4, 256x128x64 w4 s4, 128x128x64 w4 s4, 128x64x64 w4 s8")}
)


def gluon_fprop_refusal(task: Task) -> str | None:
    if reason := ring.refusal(task) or tma.box_refusal(task):
        return reason
    stride = task.geometry.stride
    if task.kind == "scatter" and prod(stride) > MAX_CLASSES:
        return f"more than {MAX_CLASSES} parity classes"
    if task.kind == "gather" and max(stride) > MAX_STRIDE:
        return f"boxes hold pixels that are at most {MAX_STRIDE} apart"
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
        largest = (-(-size // every) for size, every in zip(geometry.big, classes))
        read = replace(geometry, big=tuple(largest), dilation=tuple(move))
    one_class = replace(task, geometry=read)
    arguments, constants = tma.given(one_class, pairs, y, tile.bm, tile.bn, tile.bk, epilogue)
    w, columns = pairs[0][1], -(-task.channels[1] // tile.bn)
    count = arguments["boxes"] * prod(classes) * columns * geometry.groups
    _, r, s = (1,) * (5 - len(w.shape)) + w.shape[2:]
    tap = arguments.pop("w_tap")
    more = geometry.groups, *geometry.filter, *(tap * n for n in (r * s, s, 1))
    arguments |= dict(zip(RUNTIME[len(tma.RUNTIME) - 1 :], more))
    if classes != ONES:
        arguments |= zip(("O", "P", "Q", "lo_d", "lo_h", "lo_w"), (*geometry.big, *geometry.lo))
    return Launch(
        gluon_fprop,
        (min(count, task.programs), 1, 1),
        arguments,
        ring.configured(
            constants, tile, stride=stride, classes=classes, step=step, parities=prod(classes)
        ),
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
    unproven=not is_proven("gluon_fprop"),
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(products=1, staged=False, registers=168, loop=((59,),)),
)
