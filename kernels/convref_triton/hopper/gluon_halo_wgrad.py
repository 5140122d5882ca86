"""The correlation of `gluon_wgrad` for all taps along one axis at a time, which share blocks of b.

dw[k, c, r] = sum over images n and pixels p of a[n, k, p] b[n, c, p * stride + r * dilation - lo]

A block is a box of a's pixels and, of b, that box with its halo, as in `gluon_halo`; a tile has an
accumulator per shared tap. Both warp groups multiply every block: each has 64 channels of a, or 64
of b, whichever the tile has more of. The operand from a is loaded into registers once for all taps,
because products of 64 columns need more bandwidth than shared memory has for both operands.
"""

from math import prod

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ..common.geometry import ITEMSIZE, Four, Geometry, Tensor, Three
from ..conv.tma import corner, in_boxes, mapped
from ..plan import archs, cost, lines
from ..plan.builder import slot
from ..plan.cost import Work
from ..plan.launch import Descriptor, Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile, TileTable
from . import gluon_wgrad, is_proven, ring
from .arguments import Axes, BoxGrid, FilterStrides
from .gluon_fprop import load_box
from .halo import Sharing, sharings

SIZES = "K C items tiles steps groups lo_d lo_h lo_w halo"
BOXES = "boxes_o boxes_p boxes_q o_magic o_shift p_magic p_shift q_magic q_shift"
RUNTIME = f"{SIZES} {BOXES} w_0 w_g w_k w_t w_r w_s w_u w_c w_z".split()
ROWS = gl.constexpr(64)  # channels of a that a warp group multiplies
COLUMNS = gl.constexpr(64)  # channels of b of one copy
SCRATCH = 34 * 1024  # bytes, at most, for float32 accumulators of both groups and barriers
MAX_SHARED = 5  # taps: a thread has registers for at most 5 accumulators


@gluon.jit
def load(args, CONFIG: gl.constexpr):
    a, b, lo, steps = args.a, args.b, args.lo, args.items.steps
    STRIDE: gl.constexpr = CONFIG.stride
    MOVE: gl.constexpr = CONFIG.move
    BOX: gl.constexpr = CONFIG.box
    ORDER: gl.constexpr = CONFIG.order
    LINES: gl.constexpr = b.block_type.shape[0]  # of a copy
    PARTS: gl.constexpr = CONFIG.bn // COLUMNS
    BYTES: gl.constexpr = a.block_type.nbytes + b.block_type.nbytes * (CONFIG.halo // LINES * PARTS)
    count = 0
    for item in range(gl.program_id(0), args.items.count, gl.num_programs(0)):
        tile = gluon_wgrad.locate(args, item, args.C, CONFIG)
        d, h, v = tile.t * MOVE[0] - lo.d, tile.r * MOVE[1] - lo.h, tile.s * MOVE[2] - lo.w
        for box in range(tile.split * steps, (tile.split + 1) * steps):
            n, o, p, q = corner(box, *args.grid, CONFIG.rank, BOX)
            at, to = (n, o, p, q), (n, o * STRIDE[0] + d, p * STRIDE[1] + h, q * STRIDE[2] + v)
            stage, full = ring.acquire(args.barriers, count, BYTES, CONFIG.stages)
            load_box(
                a, at[ORDER[0]], at[ORDER[1]], at[ORDER[2]], at[ORDER[3]],
                tile.group * args.K + tile.k, full, args.left.index(stage), CONFIG.rank,
            )  # fmt: skip
            for part in gl.static_range(PARTS):
                for line in range(0, args.halo, LINES):  # unrolling would take registers
                    lines = args.right.index((stage * PARTS + part) * CONFIG.halo + line)
                    load_box(
                        b, to[ORDER[0]] + line, to[ORDER[1]], to[ORDER[2]], to[ORDER[3]],
                        tile.group * args.C + tile.c + part * COLUMNS, full,
                        lines._reinterpret(b.dtype, b.block_type.shape, b.layout), CONFIG.rank,
                    )  # fmt: skip
            count += 1


@gluon.jit
def zeros(SHARED: gl.constexpr, LAYOUT: gl.constexpr):
    if SHARED == 0:
        return ()
    else:
        return (gl.zeros((ROWS, COLUMNS), gl.float32, LAYOUT),) + zeros(SHARED - 1, LAYOUT)


@gluon.jit
def multiply_taps(
    accs, a, lines, first, SHARED: gl.constexpr, APART: gl.constexpr, BK: gl.constexpr
):
    """Return the accumulators of the last SHARED taps, with the wgmma of each started."""
    if SHARED == 0:
        return ()
    else:
        b = lines.index(first)
        b = b._reinterpret(b.dtype, [BK, COLUMNS], b.layout)
        acc = warpgroup_mma(a, b, accs[len(accs) - SHARED], is_async=True)
        return (acc,) + multiply_taps(accs, a, lines, first + APART, SHARED - 1, APART, BK)


@gluon.jit
def accumulate(args, turn, CONFIG: gl.constexpr, CONSUMER: gl.constexpr):
    """Return a group's accumulators of a tile: 64 channels of a by 64 of b for each tap."""
    barriers, steps = args.barriers, args.items.steps
    BM: gl.constexpr = CONFIG.bm
    BK: gl.constexpr = CONFIG.bk
    STAGES: gl.constexpr = CONFIG.stages
    PARTS: gl.constexpr = CONFIG.bn // COLUMNS
    FIRST: gl.constexpr = CONSUMER * ROWS if BM > ROWS else 0
    PART: gl.constexpr = CONSUMER if PARTS > 1 else 0
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 2)
    accs = zeros(CONFIG.shared, LAYOUT)
    block = turn * steps
    end = block + steps
    while block != end:
        stage = ring.stage_of(block, STAGES)
        mbarrier.wait(barriers.full.index(stage), ring.full_phase(block, STAGES))
        rows = args.left.index(stage).reshape((BK, BM)).permute((1, 0)).slice(FIRST, ROWS)
        a = rows.load(OPERAND)
        first = (stage * PARTS + PART) * CONFIG.halo
        accs = multiply_taps(accs, a, args.right, first, CONFIG.shared, CONFIG.apart, BK)
        accs = warpgroup_mma_wait(0, deps=accs)
        mbarrier.arrive(barriers.empty.index(stage))
        block += 1
    return accs


@gluon.jit
def multiply(args, CONFIG: gl.constexpr, CONSUMER: gl.constexpr):
    SHARED: gl.constexpr = CONFIG.shared
    LAYOUT: gl.constexpr = gluon_wgrad.store_layout(args.dw.dtype.element_ty)
    K: gl.constexpr = CONSUMER * ROWS if CONFIG.bm > ROWS else 0
    C: gl.constexpr = CONSUMER * COLUMNS if CONFIG.bn > COLUMNS else 0
    w, channels = gluon_wgrad.in_elements(args, CONFIG)
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(tl.cdiv(args.items.count - program, programs)):
        item = program + turn * programs
        accs = accumulate(args, turn, CONFIG, CONSUMER)
        at = gluon_wgrad.locate(args, item, channels, CONFIG)
        row = at.k + K + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
        column = at.c + C + gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))
        inside = (row < args.K)[:, None] & (column < channels)[None, :]
        to_w = gluon_wgrad.tile_offset(at, w)
        for u in gl.static_range(SHARED):
            to_u = to_w + u * (args.shared_tap.to(gl.int64) * CONFIG.vec[0])
            gluon_wgrad.store(accs[u], args.dw, to_u, row, column, inside, w)


@gluon.jit(do_not_specialize=RUNTIME)
def gluon_halo_wgrad(
    a, b, w,
    K, C, items, tiles, steps, groups, lo_d, lo_h, lo_w, halo,
    boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    w_0, w_g, w_k, w_t, w_r, w_s, w_u, w_c, w_z,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Compute every num_programs-th tile: BM channels of a, BN of b, the shared taps, one split."""
    STAGES: gl.constexpr = CONFIG.stages
    FIRST: gl.constexpr = CONFIG.box[CONFIG.order[0]]
    LINES: gl.constexpr = STAGES * (CONFIG.bn // COLUMNS) * CONFIG.halo
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    right = gl.allocate_shared_memory(b.dtype, [LINES, CONFIG.bk // FIRST, COLUMNS], LAYOUT)
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)
    barriers = ring.allocate_barriers(STAGES, 2)
    grid = BoxGrid(boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    args = gluon_wgrad.Wgrad(
        dw=w, left=left, right=right, barriers=barriers,
        items=gluon_wgrad.Items(items, tiles, groups, steps),
        strides=FilterStrides(w_0, w_g, w_k, w_t, w_r, w_s, w_c, w_z), shared_tap=w_u, K=K,
        vectors=C, a=a, b=b, grid=grid, lo=Axes(lo_d, lo_h, lo_w), halo=halo, C=C * CONFIG.vec[1],
    )  # fmt: skip
    ring.run_partitions(multiply, load, args, CONFIG)
    ring.invalidate(barriers, STAGES)


TILES = TileTable(  # a group has 64 channels of each side
    {"f16 bf16": (Tile(128, 64, 64, 4, 6), Tile(64, 128, 64, 4, 6))}
)


def gluon_halo_wgrad_refusal(task: Task) -> str | None:
    if reason := gluon_wgrad.side_refusal(task):
        return reason
    if sharing(task.geometry) is None:
        return "no axis of stride 1 whose taps are closer than a box that ends with it is long"
    return None


def gluon_halo_wgrad_parts(task: Task, tile: Tile) -> tuple[int, Work]:
    shape, shared = task.geometry, sharing(task.geometry)
    assert shared is not None
    count = gluon_wgrad.count(task, tile, apart(shape, shared)) * shape.groups
    loaded = tile.bm * cost.LINE + tile.bn * shared.pixels * ITEMSIZE[task.dtype]
    options = {"reached": 0.8, "loaded": loaded, "resident": cost.ALWAYS}
    steps, taps = prod(shared.boxes(shape.pixels)), shared.taps
    return cost.cut(task, cost.block_work(task, tile, count, steps, products=taps, **options))


def sharing(geometry: Geometry) -> Sharing | None:
    """Return the boxes that end with the pixels and load least.

    None if there are none, or if more than half of their pixels would be waste.
    """
    pixels = geometry.pixels
    found = (one for one in sharings(geometry, gluon_wgrad.DEPTH) if _fits(one, pixels))
    best = min(found, key=lambda one: one.cost(pixels), default=None)
    return (
        best if best and prod(best.boxes(pixels)) * gluon_wgrad.DEPTH <= 2 * prod(pixels) else None
    )


def apart(geometry: Geometry, shared: Sharing) -> Three:
    """Return the taps of a filter that share no blocks, along each axis."""
    t, r, s = (1 if n == shared.order[0] else size for n, size in enumerate(geometry.filter, 1))
    return t, r, s


def _fits(shared: Sharing, pixels: Four) -> bool:
    """Return whether accumulators fit into registers, and boxes end with the pixels."""
    ends = zip(pixels[1:], shared.natural[1:])  # images beyond the last are zero
    return shared.taps <= MAX_SHARED and not any(size % edge for size, edge in ends)


def add_gluon_halo_wgrad(task: Task, tile: Tile) -> None:
    """Add the launches that compute a task, after copies that tensor maps describe."""
    parts, _ = gluon_halo_wgrad_parts(task, tile)
    gluon_wgrad.add_sides(task, tile, parts, gluon_halo_wgrad_launch)


def gluon_halo_wgrad_launch(
    task: Task, a: Tensor, b: Tensor, w: Tensor, tile: Tile, splits: int
) -> Launch:
    """Return the launch that computes w from a and b, as `gluon_wgrad_launch`."""
    geometry, shared = task.geometry, sharing(task.geometry)
    assert shared is not None
    axis, stride = shared.order[0], shared.ordered((1, *geometry.stride))[1:]
    maps = {
        "a": (geometry.pixels, a, (*shared.box, tile.bm), (1, 1, 1)),
        "b": (
            (geometry.n, *geometry.big),
            b,
            (shared.copied, *shared.box[1:], COLUMNS.value),
            stride,
        ),
    }
    arguments = {
        name: Descriptor(
            slot(t),
            *mapped(
                shared.ordered(sizes), shared.ordered((t.steps[0], *t.steps[2:])), t.shape[1], box,
                geometry.rank, every,
            ),
        )
        for name, (sizes, t, box, every) in maps.items()
    }  # fmt: skip
    boxes = in_boxes(geometry.pixels, shared.natural)
    numbers, constants = gluon_wgrad.given(task, w, tile, splits, apart(geometry, shared), boxes)
    numbers |= {"halo": shared.halo, "w_u": numbers[f"w_{'trs'[axis - 1]}"]}
    block = (tile.bm * gluon_wgrad.DEPTH + tile.bn * shared.pixels) * 2  # bytes
    config = ring.configured(
        constants,
        tile,
        rank=geometry.rank,
        shared=shared.taps,
        apart=shared.apart,
        halo=shared.halo,
        order=shared.order,
        box=shared.natural,
        stages=min(tile.stages, (archs.shared(task.arch) - SCRATCH) // block),
    )
    return Launch(
        gluon_halo_wgrad,
        (min(numbers["items"], task.programs), 1, 1),
        {**arguments, "w": slot(w), **numbers},
        config,
        tile.warps,
        tile.stages,
    )


SPEC = KernelSpec(
    "gluon_halo_wgrad",
    serves=("correlate",),
    refusal=gluon_halo_wgrad_refusal,
    tiles=TILES.of,
    add=add_gluon_halo_wgrad,
    kernels=(gluon_halo_wgrad,),
    work=lambda task, tile: gluon_halo_wgrad_parts(task, tile)[1],
    unproven=not is_proven("gluon_halo_wgrad"),
    lines=lines.WGRAD,
    expects=Expectation(
        products=1,
        operands="RS",
        in_flight=0,
        why="one side is read once for several taps while the other group multiplies",
        staged=False,
        registers=168,
        loop=((86,),),
    ),
)
