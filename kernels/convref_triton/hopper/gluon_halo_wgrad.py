"""The correlation of `gluon_wgrad` for all taps along one axis at a time, which share blocks of b.

dw[k, c, r] = sum over images n and pixels p of a[n, k, p] b[n, c, p * stride + r * dilation - lo]

A block is a box of a's pixels and, of b, that box with its halo, as in `gluon_halo`; a tile has the
sums of each tap that shares it. Both warp groups multiply every block: they have 64 channels of a
each, or 64 of b, whichever the tile has more of. What is of a is read into registers once for all
taps, because shared memory is not read as fast as products of 64 columns want both sides.
"""

from __future__ import annotations

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
from ..common.windows import strides, unit
from ..conv.tma import corner, in_boxes, mapped
from ..plan import archs, cost, lines
from ..plan.builder import slot
from ..plan.cost import Work
from ..plan.launch import Descriptor, Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile, TileTable
from . import gluon_wgrad
from .gluon_fprop import load_box
from .gluon_wgrad import DEPTH, place, side_refusal
from .halo import SCRATCH, Sharing, sharings
from .ring import PART, closed, opened, parity_of, shared_out, slot_of, taken

SIZES = "K C items tiles steps groups lo_d lo_h lo_w halo"
BOXES = "boxes_o boxes_p boxes_q o_magic o_shift p_magic p_shift q_magic q_shift"
RUNTIME = f"{SIZES} {BOXES} w_0 w_g w_k w_t w_r w_s w_u w_c w_z".split()
MOST_SHARED = 5  # taps, for whose sums a thread has registers


@gluon.jit
def load(
    a, b, left, right, full, free, items, tiles, groups, magic, lo, halo, steps, K, C,
    RANK: gl.constexpr, TAPS: gl.constexpr, STRIDE: gl.constexpr, MOVE: gl.constexpr,
    ORDER: gl.constexpr, BOX: gl.constexpr, HALO: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, BAND: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Load all blocks of a program's tiles, in the order in which they are multiplied."""
    LINES: gl.constexpr = b.block_type.shape[0]  # of a copy
    PARTS: gl.constexpr = BN // PART
    BYTES: gl.constexpr = a.block_type.nbytes + b.block_type.nbytes * (HALO // LINES * PARTS)
    count = 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        split, group, t, r, s, k, c = place(item, tiles, groups, K, C, TAPS, BM, BN, BAND)
        d, h, v = t * MOVE[0] - lo[0], r * MOVE[1] - lo[1], s * MOVE[2] - lo[2]
        for box in range(split * steps, (split + 1) * steps):
            n, o, p, q = corner(box, *magic, RANK, BOX)
            at, to = (n, o, p, q), (n, o * STRIDE[0] + d, p * STRIDE[1] + h, q * STRIDE[2] + v)
            block, came = taken(full, free, count, BYTES, STAGES)
            load_box(
                a, at[ORDER[0]], at[ORDER[1]], at[ORDER[2]], at[ORDER[3]], group * K + k,
                came, left.index(block), RANK,
            )  # fmt: skip
            for part in gl.static_range(PARTS):
                for line in range(0, halo, LINES):  # unrolled, it would want registers
                    lines = right.index((block * PARTS + part) * HALO + line)
                    load_box(
                        b, to[ORDER[0]] + line, to[ORDER[1]], to[ORDER[2]], to[ORDER[3]],
                        group * C + c + part * PART, came,
                        lines._reinterpret(b.dtype, b.block_type.shape, b.layout), RANK,
                    )  # fmt: skip
            count += 1


@gluon.jit
def nothing(SHARED: gl.constexpr, SUMS: gl.constexpr):
    """Return sums of nothing for so many taps."""
    if SHARED == 0:
        return ()
    else:
        return (gl.zeros((64, PART), gl.float32, SUMS),) + nothing(SHARED - 1, SUMS)


@gluon.jit
def added(accs, a, lines, first, SHARED: gl.constexpr, APART: gl.constexpr, BK: gl.constexpr):
    """Return the sums of the last SHARED taps, to which products are being added."""
    if SHARED == 0:
        return ()
    else:
        b = lines.index(first)
        b = b._reinterpret(b.dtype, [BK, PART], b.layout)
        acc = warpgroup_mma(a, b, accs[len(accs) - SHARED], is_async=True)
        return (acc,) + added(accs, a, lines, first + APART, SHARED - 1, APART, BK)


@gluon.jit
def summed(
    left, right, full, free, turn, steps,
    WHICH: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    SHARED: gl.constexpr, APART: gl.constexpr, HALO: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Return a group's sums of a turn of the program, 64 channels of a by 64 of b for each tap."""
    PARTS: gl.constexpr = BN // PART
    FIRST: gl.constexpr = WHICH * 64 if BM > 64 else 0
    HALF: gl.constexpr = WHICH if PARTS > 1 else 0
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PART, 16])
    READ: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    accs = nothing(SHARED, SUMS)
    block = turn * steps
    last = block + steps
    while block != last:
        at = slot_of(block, STAGES)
        mbarrier.wait(full.index(at), parity_of(block, STAGES))
        rows = left.index(at).reshape((BK, BM)).permute((1, 0)).slice(FIRST, 64)
        a = rows.load(READ)
        accs = added(accs, a, right, (at * PARTS + HALF) * HALO, SHARED, APART, BK)
        accs = warpgroup_mma_wait(0, deps=accs)
        mbarrier.arrive(free.index(at))
        block += 1
    return accs


@gluon.jit
def multiply(
    WHICH: gl.constexpr, w, left, right, full, free, items, tiles, groups, steps, w_place, K, C,
    TAPS: gl.constexpr, SHARED: gl.constexpr, APART: gl.constexpr,
    HALO: gl.constexpr, WIDE: gl.constexpr, UNIT: gl.constexpr, VEC: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Compute a group's part of all tiles."""
    w_0, w_g, w_k, w_t, w_r, w_s, w_u, w_c, w_z = w_place
    w_k, w_t, w_r, w_s = strides(w_k, w_t, w_r, w_s, VEC[0], WIDE)
    w_0, w_g, w_z = w_0 * VEC[0], w_g * VEC[0], w_z.to(gl.int64) * VEC[0]
    w_c, C = unit(w_c, UNIT, 1, WIDE), C * VEC[1]
    LAST: gl.constexpr = 128 // w.dtype.element_ty.primitive_bitwidth  # of 16 bytes
    OUT: gl.constexpr = gl.BlockedLayout([1, LAST], [LAST // 2, 64 // LAST], [4, 1], [1, 0])
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(tl.cdiv(items - program, programs)):
        item = program + turn * programs
        accs = summed(
            left, right, full, free, turn, steps, WHICH, BM, BN, BK, SHARED, APART, HALO, STAGES
        )
        split, group, t, r, s, k, c = place(item, tiles, groups, K, C, TAPS, BM, BN, BAND)
        k, c = k + (WHICH * 64 if BM > 64 else 0), c + (WHICH * PART if BN > PART else 0)
        row = k + gl.arange(0, 64, gl.SliceLayout(1, OUT))  # (64,)
        column = c + gl.arange(0, PART, gl.SliceLayout(0, OUT))
        inside = (row < K)[:, None] & (column < C)[None, :]
        to_w = split * w_z + group.to(gl.int64) * w_g + w_0 + (t * w_t + r * w_r + s * w_s)
        w_tile = (row * w_k)[:, None] + (column * w_c)[None, :]
        for u in gl.static_range(SHARED):
            out = gl.convert_layout(accs[u], OUT)
            to_u = to_w + u * (w_u.to(gl.int64) * VEC[0])
            gl.store(w + (to_u + w_tile), out.to(w.dtype.element_ty), inside)


@gluon.jit(do_not_specialize=RUNTIME)
def gluon_halo_wgrad(
    a, b, w,
    K, C, items, tiles, steps, groups, lo_d, lo_h, lo_w, halo,
    boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    w_0, w_g, w_k, w_t, w_r, w_s, w_u, w_c, w_z,
    RANK: gl.constexpr, TAPS: gl.constexpr, STRIDE: gl.constexpr, MOVE: gl.constexpr,
    SHARED: gl.constexpr, APART: gl.constexpr, ORDER: gl.constexpr, BOX: gl.constexpr,
    WIDE: gl.constexpr, UNIT: gl.constexpr, VEC: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Compute every so-manieth tile, (BM channels of a, BN of b, SHARED taps) of a split."""
    FIRST: gl.constexpr = BOX[ORDER[0]]
    HALO: gl.constexpr = FIRST + (SHARED - 1) * APART  # lines of a block
    LINES: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    lines: gl.constexpr = STAGES * (BN // PART) * HALO
    right = gl.allocate_shared_memory(b.dtype, [lines, BK // FIRST, PART], LINES)
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)
    full, free, order = opened(STAGES, 2)
    magic = (
        boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift
    )  # fmt: skip
    w_place = (w_0, w_g, w_k, w_t, w_r, w_s, w_u, w_c, w_z)
    shared_out(
        multiply, (
            w, left, right, full, free, items, tiles, groups, steps, w_place, K, C, TAPS, SHARED,
            APART, HALO, WIDE, UNIT, VEC, BM, BN, BK, BAND, STAGES,
        ),
        load, (
            a, b, left, right, full, free, items, tiles, groups, magic, (lo_d, lo_h, lo_w), halo,
            steps, K, C * VEC[1],
            RANK, TAPS, STRIDE, MOVE, ORDER, BOX, HALO, BM, BN, BAND, STAGES,
        ),
        REGISTERS,
    )  # fmt: skip
    closed(full, free, order, STAGES)


TILES = TileTable(  # a group has 64 channels of each side
    {"f16 bf16": (Tile(128, 64, 64, 4, 6), Tile(64, 128, 64, 4, 6))}
)


def gluon_halo_wgrad_refusal(task: Task) -> str | None:
    """Return why no taps of a task share blocks, None if some do."""
    if reason := side_refusal(task):
        return reason
    if sharing(task.geometry) is None:
        return "no axis of stride 1 whose taps are closer than a box that ends with it is long"
    return None


def gluon_halo_wgrad_parts(task: Task, tile: Tile) -> tuple[int, Work]:
    """Return into how many parts the boxes are cut, and their work."""
    shape, shared = task.geometry, sharing(task.geometry)
    assert shared is not None
    count = gluon_wgrad.count(task, tile, apart(shape, shared)) * shape.groups
    loaded = tile.bm * cost.LINE + tile.bn * shared.pixels * ITEMSIZE[task.dtype]
    options = {"reached": 0.8, "loaded": loaded, "resident": cost.ALWAYS}
    steps, taps = prod(shared.boxes(shape.pixels)), shared.taps
    return cost.cut(task, cost.block_work(task, tile, count, steps, products=taps, **options))


def sharing(geometry: Geometry) -> Sharing | None:
    """Return the boxes that end with the pixels and load least; None if none do.

    Nor do they where more than half of what boxes hold would be waste.
    """
    pixels = geometry.pixels
    found = (one for one in sharings(geometry, DEPTH) if _fits(one, pixels))
    best = min(found, key=lambda one: one.cost(pixels), default=None)
    return best if best and prod(best.boxes(pixels)) * DEPTH <= 2 * prod(pixels) else None


def apart(geometry: Geometry, shared: Sharing) -> Three:
    """Return the taps of a filter that share no blocks, along each axis."""
    t, r, s = (1 if n == shared.order[0] else size for n, size in enumerate(geometry.filter, 1))
    return t, r, s


def _fits(shared: Sharing, pixels: Four) -> bool:
    """Return whether a thread has registers for all taps' sums, and boxes end with the pixels."""
    ends = zip(pixels[1:], shared.natural[1:])  # images that there are not are zero
    return shared.taps <= MOST_SHARED and not any(size % edge for size, edge in ends)


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
    axis, stride = shared.order[0], shared.turned((1, *geometry.stride))[1:]
    maps = {
        "a": (geometry.pixels, a, (*shared.box, tile.bm), (1, 1, 1)),
        "b": ((geometry.n, *geometry.big), b, (shared.copied, *shared.box[1:], PART.value), stride),
    }
    arguments = {
        name: Descriptor(
            slot(t),
            *mapped(
                shared.turned(sizes), shared.turned((t.steps[0], *t.steps[2:])), t.shape[1], box,
                geometry.rank, every,
            ),
        )
        for name, (sizes, t, box, every) in maps.items()
    }  # fmt: skip
    boxes = in_boxes(geometry.pixels, shared.natural)
    numbers, constants = gluon_wgrad.given(task, w, tile, splits, apart(geometry, shared), boxes)
    numbers |= {"halo": shared.halo, "w_u": numbers[f"w_{'trs'[axis - 1]}"]}
    block = (tile.bm * DEPTH + tile.bn * shared.pixels) * 2  # bytes
    constants |= {
        "RANK": geometry.rank,
        "SHARED": shared.taps,
        "APART": shared.apart,
        "ORDER": shared.order,
        "BOX": shared.natural,
        "STAGES": min(tile.stages, (archs.shared(task.arch) - SCRATCH) // block),
    }
    del constants["READERS"]
    return Launch(
        gluon_halo_wgrad,
        (min(numbers["items"], task.programs), 1, 1),
        {**arguments, "w": slot(w), **numbers},
        constants,
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
    measured_only=True,
    lines=lines.WGRAD,
    expects=Expectation(
        products=1,
        operands="RS",
        in_flight=0,
        why="one side is read once for several taps while the other group multiplies",
        staged=False,
        registers=168,
        loop={
            "sm_90": (86,),
        },
    ),
)
