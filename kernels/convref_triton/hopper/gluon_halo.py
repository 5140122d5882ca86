"""The product of `gluon_fprop` where taps along one axis share a block of x: a box with its halo.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

Along an axis of stride 1, neighbouring taps read the same pixels except at the edges. A block of x
is the box that the first tap reads, extended to what the last tap reads. Lines along that axis are
consecutive in shared memory, so a tap's operand begins some lines further on, and every pixel is
copied once instead of once per tap. `halo` chooses the axis and the boxes.
"""

from math import prod
from typing import Any, NamedTuple

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ..common.geometry import LIMIT, Tensor
from ..common.index import divisor
from ..common.windows import strides, unit
from ..conv import tma
from ..conv.gather import gather_steps, rows_read
from ..conv.tma import corner, in_image
from ..plan import cost, lines
from ..plan.builder import vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Epilogue, Pairs, Task
from ..plan.tile import Tile, TileTable, tiles
from . import is_proven, ring
from .arguments import Axes, Barriers, BoxGrid, Filter, Operands, Output, Strides
from .gluon_fprop import MAX_STRIDE, epilogue_layout, load_box, load_filters, store
from .halo import Sharing, cut, cuts
from .ring import EPILOGUE_N, filters_at, split_columns

PLACES = "N O P Q C K lo_n lo_d lo_h lo_w w_first w_row w_column w_n w_d w_h w_w"
REST = "taps_d taps_h taps_w halo groups y_n y_g y_d y_h y_w y_c"
RUNTIME = f"{tma.BOXES} {PLACES} {REST}".split()


class Halo(NamedTuple):
    """The arguments of both partitions of the kernel. Axis n is the one whose taps share blocks."""

    output: Output
    xs: gl.shared_memory_descriptor  # (blocks * halo, pixels of a line, bk)
    ws: gl.shared_memory_descriptor  # (stages * shared, bn, bk)
    x_barriers: Barriers
    w_barriers: Barriers
    tiles: gl.tensor
    boxes: gl.tensor
    columns: gl.tensor
    grid: BoxGrid
    blocks: gl.tensor  # of x for a tile
    sizes: gl.tuple  # (N, O, P, Q)
    strides: Strides
    K: gl.tensor
    operands: Operands
    lo: gl.tuple
    taps: Axes
    filter: Filter
    C: gl.tensor
    halo: gl.tensor  # lines of a block as a number, for a loop that must not be unrolled


@gluon.jit
def load(args, CONFIG: gl.constexpr):
    STRIDE: gl.constexpr = CONFIG.stride
    BOX: gl.constexpr = CONFIG.box
    PAIRS: gl.constexpr = CONFIG.pairs
    lo, matrix = args.lo, args.filter
    count = 0
    for tile in range(gl.program_id(0), args.tiles, gl.num_programs(0)):
        group, box, column = ring.locate(tile, args.boxes, args.columns, CONFIG.band)
        n, o, p, q = corner(box, *args.grid, CONFIG.rank, BOX)
        at = n - lo[0], o * STRIDE[0] - lo[1], p * STRIDE[1] - lo[2], q * STRIDE[2] - lo[3]
        row, first = filters_at(matrix, group, column, CONFIG)
        for pair in gl.static_range(PAIRS):
            count = load_tile(
                args, args.operands[2 * pair], args.operands[2 * pair + 1], count, at,
                group * args.C, row, first, CONFIG,
            )  # fmt: skip


@gluon.jit
def load_tile(args, x, w, count, at, channel, row, column, CONFIG: gl.constexpr):
    MOVE: gl.constexpr = CONFIG.move
    LINES: gl.constexpr = x.block_type.shape[0]  # of a copy
    BYTES: gl.constexpr = x.block_type.nbytes * (CONFIG.halo // LINES)
    n, d, h, v = at
    steps = args.filter.tap
    for t in range(args.taps.d):
        for r in range(args.taps.h):
            for s in range(args.taps.w):
                tap = column + t * steps[1] + r * steps[2] + s * steps[3]
                for c in range(0, args.C, CONFIG.bk):
                    stage, full = ring.acquire(args.x_barriers, count, BYTES, CONFIG.blocks)
                    for line in range(0, args.halo, LINES):  # unrolling would take registers
                        lines = args.xs.index(stage * CONFIG.halo + line)
                        load_box(
                            x, n + line, d + t * MOVE[0], h + r * MOVE[1], v + s * MOVE[2],
                            channel + c, full,
                            lines._reinterpret(x.dtype, x.block_type.shape, x.layout), CONFIG.rank,
                        )  # fmt: skip
                    load_shared_taps(args, w, count, row, tap, c, CONFIG)
                    count += 1
    return count


@gluon.jit
def load_shared_taps(args, w, count, row, tap, c, CONFIG: gl.constexpr):
    """Copy the block of filters of each tap that shares a block of x."""
    STAGES: gl.constexpr = CONFIG.stages
    for u in range(CONFIG.shared):
        stage = ring.stage_of(count, STAGES) * CONFIG.shared + u
        mbarrier.wait(args.w_barriers.empty.index(stage), ring.empty_phase(count, STAGES))
        full = args.w_barriers.full.index(stage)
        mbarrier.expect(full, w.block_type.nbytes)
        column = tap + u * args.filter.tap[0]
        load_filters(w, row, column, c, full, args.ws.index(stage), CONFIG)


@gluon.jit
def accumulate(args, turn, CONFIG: gl.constexpr, CONSUMER: gl.constexpr):
    """Return a group's rows of the accumulator of a tile, as `ring.accumulate` does.

    Rows are pixels, or channels where those are fewer: wgmma with more columns reads shared memory
    less often.
    """
    blocks, xs, ws = args.blocks, args.xs, args.ws
    x_barriers, w_barriers = args.x_barriers, args.w_barriers
    BM: gl.constexpr = CONFIG.bm
    BN: gl.constexpr = CONFIG.bn
    BK: gl.constexpr = CONFIG.bk
    READERS: gl.constexpr = CONFIG.readers
    STAGES: gl.constexpr = CONFIG.stages
    BLOCKS: gl.constexpr = CONFIG.blocks
    SHARED: gl.constexpr = CONFIG.shared
    SWAPPED: gl.constexpr = BM > BN
    ROWS: gl.constexpr = (BN if SWAPPED else BM) // READERS
    COLUMNS: gl.constexpr = BM if SWAPPED else BN
    FIRST: gl.constexpr = CONSUMER % READERS * ROWS
    LINE: gl.constexpr = 0 if SWAPPED else FIRST // (BM // CONFIG.box[0])
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    if READERS == 1:
        mbarrier.wait(x_barriers.order.index(CONSUMER), ring.order_phase(turn, CONSUMER))
    acc = gl.zeros((ROWS, COLUMNS), gl.float32, LAYOUT)
    x_release = x_barriers.empty.index(BLOCKS)
    w_release = w_barriers.empty.index(STAGES * SHARED)
    block = turn * blocks
    end = block + blocks
    while block != end:
        x_stage = ring.stage_of(block, BLOCKS)
        w_stage = ring.stage_of(block, STAGES) * SHARED
        x_empty = x_barriers.empty.index(x_stage)
        mbarrier.wait(x_barriers.full.index(x_stage), ring.full_phase(block, BLOCKS))
        for u in gl.static_range(SHARED):
            w_empty = w_barriers.empty.index(w_stage + u)
            mbarrier.wait(w_barriers.full.index(w_stage + u), ring.full_phase(block, STAGES))
            b = ring.as_matrix(ws.index(w_stage + u), BN, BK, CONFIG.transposed)
            a = xs.index(x_stage * CONFIG.halo + (u * CONFIG.apart + LINE))
            a = a._reinterpret(a.dtype, [BM if SWAPPED else ROWS, BK], a.layout)
            if SWAPPED:
                acc = warpgroup_mma(b.slice(FIRST, ROWS), a.permute((1, 0)), acc, is_async=True)
            else:
                acc = warpgroup_mma(a, b.permute((1, 0)), acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(w_release)
            w_release = w_empty
            if u == 0:
                mbarrier.arrive(x_release)
        x_release = x_empty
        block += 1
    if READERS == 1:
        mbarrier.arrive(x_barriers.order.index(1 - CONSUMER))
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(w_release)
    mbarrier.arrive(x_release)
    return acc


@gluon.jit
def multiply(args, CONFIG: gl.constexpr, CONSUMER: gl.constexpr):
    BOX: gl.constexpr = CONFIG.box
    BM: gl.constexpr = CONFIG.bm
    BN: gl.constexpr = CONFIG.bn
    READERS: gl.constexpr = CONFIG.readers
    ACTIVATION: gl.constexpr = CONFIG.activation
    SWAPPED: gl.constexpr = BM > BN
    ROWS: gl.constexpr = EPILOGUE_N if SWAPPED else BM // READERS  # pixels stored at a time
    FIRST: gl.constexpr = 0 if SWAPPED else CONSUMER % READERS * ROWS
    WIDTH: gl.constexpr = BN // READERS if SWAPPED else BN
    TURNS: gl.constexpr = CONFIG.turns
    LAYOUT: gl.constexpr = epilogue_layout(EPILOGUE_N if SWAPPED else BM, ACTIVATION)
    y, vector = args.strides, CONFIG.vec[0]
    far_n, far_d = y.n.to(gl.int64) * vector, y.d.to(gl.int64) * vector
    far_h, far_w = y.h.to(gl.int64) * vector, y.w.to(gl.int64) * vector
    far_g = y.g.to(gl.int64) * vector
    N, O, P, Q = args.sizes
    y_n, y_d, y_h, y_w = strides(y.n, y.d, y.h, y.w, CONFIG.vec[0], CONFIG.wide)
    y_c, K = unit(y.c, CONFIG.unit, 1, CONFIG.wide), args.K * CONFIG.vec[1]
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(CONSUMER % TURNS, tl.cdiv(args.tiles - program, programs), TURNS):
        tile = program + turn * programs
        acc = accumulate(args, turn, CONFIG, CONSUMER)
        group, box, column = ring.locate(tile, args.boxes, args.columns, CONFIG.band)
        n, o, p, q = corner(box, *args.grid, CONFIG.rank, BOX)
        to_y = n * far_n + o * far_d + p * far_h + q * far_w + group * far_g
        if SWAPPED:
            column = column * READERS + CONSUMER % READERS
            parts = split_columns(acc, BM // ROWS)
        for part in gl.static_range(BM // ROWS if SWAPPED else 1):
            i = FIRST + part * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))  # (ROWS,)
            pixels, real = in_image(  # relative to the box
                i, 0, 0, 0, 0, N - n, O - o, P - p, Q - q, y_n, y_d, y_h, y_w, BOX
            )
            rows = parts[part].permute((1, 0)) if SWAPPED else acc
            store(
                rows, args.output, to_y, pixels, real, group, column, y_c, K,
                LAYOUT, WIDTH, CONFIG,
            )  # fmt: skip


@gluon.jit(do_not_specialize=RUNTIME)
def gluon_halo(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    boxes, boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    N, O, P, Q, C, K, lo_n, lo_d, lo_h, lo_w,
    w_first, w_row, w_column, w_n, w_d, w_h, w_w, taps_d, taps_h, taps_w, halo, groups,
    y_n, y_g, y_d, y_h, y_w, y_c,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Compute every num_programs-th tile of y; the shared taps along axis n share blocks of x."""
    BM: gl.constexpr = CONFIG.bm
    BK: gl.constexpr = CONFIG.bk
    BLOCKS: gl.constexpr = CONFIG.blocks
    STAGES: gl.constexpr = CONFIG.stages * CONFIG.shared
    LINES: gl.constexpr = BLOCKS * CONFIG.halo
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    xs = gl.allocate_shared_memory(x.dtype, [LINES, BM // CONFIG.box[0], BK], LAYOUT)
    ws = gl.allocate_shared_memory(w.dtype, [STAGES] + w.block_type.shape, w.layout)
    x_barriers = ring.allocate_barriers(BLOCKS, CONFIG.readers)
    w_barriers = ring.allocate_barriers(STAGES, CONFIG.readers)
    columns = tl.cdiv(K * CONFIG.vec[1], CONFIG.bn)
    grid = BoxGrid(boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    args = Halo(
        output=Output(y, bias, scale, shift, residual), xs=xs, ws=ws, x_barriers=x_barriers,
        w_barriers=w_barriers, tiles=boxes * columns * groups, boxes=boxes, columns=columns,
        grid=grid, blocks=CONFIG.pairs * taps_d * taps_h * taps_w * tl.cdiv(C, BK),
        sizes=(N, O, P, Q), strides=Strides(y_n, y_g, y_d, y_h, y_w, y_c), K=K,
        operands=Operands(x, w, x_2, w_2), lo=(lo_n, lo_d, lo_h, lo_w),
        taps=Axes(taps_d, taps_h, taps_w),
        filter=Filter(w_first, w_row, w_column, (w_n, w_d, w_h, w_w)), C=C, halo=halo,
    )  # fmt: skip
    ring.run_partitions(multiply, load, args, CONFIG)
    ring.invalidate(x_barriers, BLOCKS)
    ring.invalidate(w_barriers, STAGES)


TILES = TileTable(  # taps share blocks of x; stages are those that w has of every tap, at most
    {
        "f16 bf16": tiles(
            "256x128x64 w4 s2, 128x256x64 w4 s1, 128x128x64 w4 s2, 256x64x64 w4 s4, 128x64x64 w4 s4"
        )
    }
)


def gluon_halo_refusal(task: Task) -> str | None:
    if reason := ring.refusal(task) or tma.box_refusal(task):
        return reason
    stride = task.geometry.stride
    if task.scatters and stride != (1, 1, 1):
        return "an adjoint of stride 1"
    if max(stride) > MAX_STRIDE:
        return f"boxes hold pixels that are at most {MAX_STRIDE} apart"
    if not gluon_halo_tiles(task):
        return "no axis of stride 1 whose taps are closer than a box is long"
    return None


def gluon_halo_tiles(task: Task) -> tuple[Tile, ...]:
    return tuple(tile for tile in TILES.of(task) if any(cuts(task, tile)))


def gluon_halo_work(task: Task, tile: Tile) -> Work:
    shared, _ = cut(task, tile)
    boxes = prod(shared.boxes(task.written))
    count = boxes * -(-task.channels[1] // tile.bn) * task.geometry.groups
    rows = rows_read(task, boxes, tile.bm) / tile.bm * shared.pixels / shared.taps
    loaded = (rows + tile.bn) * cost.LINE
    options = {"reached": 0.85, "loaded": loaded, "resident": cost.ALWAYS}
    return cost.block_work(task, tile, count, gather_steps(task, tile), **options)


def gluon_halo_launch(
    task: Task, pairs: Pairs, y: Tensor, tile: Tile, epilogue: Epilogue
) -> Launch:
    """Return the launch that computes y from (x, w), as `tma_launch`; rows are pixels here."""
    shared, room = cut(task, tile)
    arguments, constants = given(task, pairs, y, tile, shared, epilogue)
    count = arguments["boxes"] * -(-task.channels[1] // tile.bn) * task.geometry.groups
    return Launch(
        gluon_halo,
        (min(count, task.programs), 1, 1),
        arguments,
        ring.configured(constants, tile, blocks=room.blocks, stages=room.stages),
        tile.warps,
        tile.stages,
    )


def given(
    task: Task, pairs: Pairs, y: Tensor, tile: Tile, shared: Sharing, epilogue: Epilogue
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (arguments, constants) of the kernel, with axes in the order of `shared`."""
    geometry, scatter, (x, w) = task.geometry, task.scatters, pairs[0]
    read, moved = geometry.big, geometry.dilation
    if scatter:
        read, moved = geometry.small, tuple(-d for d in geometry.dilation)
    stride = shared.ordered((1, *geometry.stride))[1:]
    x_map = tma.mapped(
        shared.ordered((geometry.n, *read)), shared.ordered((x.steps[0], *x.steps[2:])), x.shape[1],
        (shared.copied, *shared.box[1:], tile.bk), geometry.rank, stride,
    )  # fmt: skip
    transposed = tma.is_transposed(task, w)
    tap, w_map = tma.filters_of(task, w, transposed, (tile.bn, tile.bk))
    arguments, constants = tma.tensors_of(pairs, x_map, w_map, y, epilogue)
    steps = y.steps[0], y.steps[1] * task.channels[1], *y.steps[2:]  # of (n, groups, d, h, w)
    vec = vector(y.dtype, *steps), vector(y.dtype, task.channels[1])
    edges = zip(shared.box, shared.ordered((steps[0], *steps[2:])))
    span = sum((edge - 1) * abs(step) for edge, step in edges) + task.channels[1] * abs(y.steps[1])
    numbers = *_boxes_of(task, shared), *_taps_of(task, tap, shared, transposed)
    image, group, *pixel = (step // vec[0] for step in steps)
    first, *rest = shared.ordered((image, *pixel))
    arguments |= dict(zip(RUNTIME, (*numbers, first, group, *rest, y.steps[1])))
    arguments["K"] //= vec[1]
    constants |= {
        "RANK": geometry.rank,
        "STRIDE": (1, 1, 1) if scatter else stride,
        "MOVE": shared.ordered((0, *moved))[1:],
        "SHARED": shared.taps,
        "APART": shared.apart,
        "HALO": shared.halo,
        "BOX": shared.box,
        "WIDE": span >= LIMIT,
        "UNIT": y.steps[1] == 1,
        "VEC": vec,
        "TRANSPOSED": transposed,
    }
    return arguments, constants


def _boxes_of(task: Task, shared: Sharing) -> tuple[int, ...]:
    boxes = shared.boxes(task.written)
    magic = (number for count in boxes[1:] for number in divisor(count))
    return prod(boxes), *boxes[1:], *magic, *shared.ordered(task.written), *task.channels


def _taps_of(task: Task, tap: int, shared: Sharing, transposed: bool) -> tuple[int, ...]:
    geometry, scatter = task.geometry, task.scatters
    axis, taps, (_, r, s) = shared.order[0], (1, *geometry.filter), geometry.filter
    los, steps, first = [0, *geometry.lo], [0, tap * r * s, tap * s, tap], 0
    if geometry.flip:
        first, steps = (geometry.taps - 1) * tap, [-step for step in steps]
    if scatter:  # along the shared axis, the last tap reads the first line
        los = [-lo for lo in los]
        los[axis] += (shared.taps - 1) * shared.apart
        first += (shared.taps - 1) * steps[axis]
        steps[axis] = -steps[axis]
    w_group = tma.group_of(task, transposed)
    return (
        *shared.ordered(los), first, *w_group, *shared.ordered(steps), *shared.ordered(taps)[1:],
        shared.halo, geometry.groups,
    )  # fmt: skip


SPEC = KernelSpec(
    "gluon_halo",
    serves=("gather", "scatter"),
    refusal=gluon_halo_refusal,
    tiles=gluon_halo_tiles,
    add=lambda task, tile: tma.add_boxes(task, tile, gluon_halo_launch),
    kernels=(gluon_halo,),
    work=gluon_halo_work,
    unproven=not is_proven("gluon_halo"),
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(products=1, staged=False, registers=168, loop=((160,),)),
)
