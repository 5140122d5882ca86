"""The correlation of `wgrad`, warp specialized: one warp copies, two warp groups run wgmma.

dw[k, c, r] = sum over images n and pixels p of a[n, k, p] b[n, c, p * stride + r * dilation - lo]

Rows are channels of the small side a, columns channels of the big side b for one tap, and a block
is a box of pixels of both: b's box is a's, moved by the tap. In shared memory channels are
contiguous, so both operands are read MN-major. Each split of the boxes has its partial sums in a
workspace, which `reduce` adds in a fixed order.

Boxes end with a's pixels: beyond them, zeros of a would be multiplied by values of b, which may be
infinite. Images beyond the last are zero on both sides, as are pixels where both sides have the
same.
"""

from collections import namedtuple
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..common.geometry import LIMIT, Four, Geometry, Tensor, Three, filter_steps, merge
from ..common.index import divisors, tile_of
from ..common.reduce import add_in_parts
from ..common.windows import strides, unit
from ..conv import tma, wgrad
from ..conv.tma import corner, in_boxes, is_mapped, mapped
from ..plan import cost, lines
from ..plan.builder import channels_last, slot, vector
from ..plan.cost import Work
from ..plan.launch import Descriptor, Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile
from . import is_proven, ring
from .arguments import Axes, Barriers, BoxGrid, FilterStrides
from .gluon_fprop import MAX_STRIDE, TILES, load_box
from .ring import EPILOGUE_N, accumulate, split_columns

SIZES = "K C items tiles steps groups lo_d lo_h lo_w"
BOXES = "boxes_o boxes_p boxes_q o_magic o_shift p_magic p_shift q_magic q_shift"
DEPTH = 64  # pixels of a block
RUNTIME = f"{SIZES} {BOXES} w_0 w_g w_k w_t w_r w_s w_c w_z".split()


# Tiles of all groups and splits, tiles of one of those, groups, boxes of a split.
Items = namedtuple("Items", "count tiles groups steps")
# A tile of a split: its group and tap, its first row and column.
TilePlace = namedtuple("TilePlace", "split group t r s k c")


class Wgrad(NamedTuple):
    """The arguments of both partitions; two fields are of `gluon_halo_wgrad` alone."""

    dw: gl.tensor
    left: gl.shared_memory_descriptor
    right: gl.shared_memory_descriptor
    barriers: Barriers
    items: Items
    strides: FilterStrides
    shared_tap: gl.tensor  # stride of dw between taps that share a block
    K: gl.tensor
    vectors: gl.tensor  # C in vectors of dw
    a: gl.tensor
    b: gl.tensor
    grid: BoxGrid
    lo: Axes
    halo: gl.tensor  # lines of a block as a number, for a loop that must not be unrolled
    C: gl.tensor


@gluon.jit
def locate(args, item, C, CONFIG: gl.constexpr):
    TAPS: gl.constexpr = CONFIG.taps
    BN: gl.constexpr = CONFIG.bn
    rest = item // args.items.tiles
    split, group = rest // args.items.groups, rest % args.items.groups
    columns = tl.cdiv(C, BN)  # of a tap
    row, column = tile_of(
        item - rest * args.items.tiles, tl.cdiv(args.K, CONFIG.bm),
        columns * (TAPS[0] * TAPS[1] * TAPS[2]), CONFIG.band,
    )  # fmt: skip
    tap = column // columns
    t, r, s = tap // (TAPS[1] * TAPS[2]), tap // TAPS[2] % TAPS[1], tap % TAPS[2]
    k, c = row * CONFIG.bm, (column - tap * columns) * BN
    return TilePlace(split, group, t, r, s, k, c)


@gluon.jit
def load(args, CONFIG: gl.constexpr):
    a, b, lo, steps = args.a, args.b, args.lo, args.items.steps
    STRIDE: gl.constexpr = CONFIG.stride
    MOVE: gl.constexpr = CONFIG.move
    BOX: gl.constexpr = CONFIG.box
    BYTES: gl.constexpr = a.block_type.nbytes + b.block_type.nbytes
    count = 0
    for item in range(gl.program_id(0), args.items.count, gl.num_programs(0)):
        at = locate(args, item, args.C, CONFIG)
        d, h, v = at.t * MOVE[0] - lo.d, at.r * MOVE[1] - lo.h, at.s * MOVE[2] - lo.w
        for box in range(at.split * steps, (at.split + 1) * steps):
            n, o, p, q = corner(box, *args.grid, CONFIG.rank, BOX)
            stage, full = ring.acquire(args.barriers, count, BYTES, CONFIG.stages)
            k = at.group * args.K + at.k
            load_box(a, n, o, p, q, k, full, args.left.index(stage), CONFIG.rank)
            load_box(
                b, n, o * STRIDE[0] + d, p * STRIDE[1] + h, q * STRIDE[2] + v,
                at.group * args.C + at.c, full, args.right.index(stage), CONFIG.rank,
            )  # fmt: skip
            count += 1


@gluon.constexpr_function
def store_layout(dtype):
    """Return the layout of EPILOGUE_N columns in which a thread stores 16 bytes."""
    vector = 128 // dtype.primitive_bitwidth
    return gl.BlockedLayout([1, vector], [vector // 2, 64 // vector], [4, 1], [1, 0])


@gluon.jit
def in_elements(args, CONFIG: gl.constexpr):
    """Return the strides of dw, which the host counts in vectors, and C.

    They are multiplied here, because captures of a partition have no divisibility hints.
    """
    w, vector = args.strides, CONFIG.vec[0]
    k, t, r, s = strides(w.k, w.t, w.r, w.s, CONFIG.vec[0], CONFIG.wide)
    first, g, z = w.first * vector, w.g * vector, w.z.to(gl.int64) * vector
    c, C = unit(w.c, CONFIG.unit, 1, CONFIG.wide), args.vectors * CONFIG.vec[1]
    return FilterStrides(first, g, k, t, r, s, c, z), C


@gluon.jit
def tile_offset(at, w):
    """Return where the tap and the split of a tile begin in dw."""
    return (
        at.split * w.z
        + at.group.to(gl.int64) * w.g
        + w.first
        + (at.t * w.t + at.r * w.r + at.s * w.s)
    )


@gluon.jit
def store(acc, dw, to_w, row, column, inside, w):
    """Store columns of an accumulator at `to_w`, where they are inside."""
    LAYOUT: gl.constexpr = store_layout(dw.dtype.element_ty)
    w_tile = to_w + ((row * w.k)[:, None] + (column * w.c)[None, :])
    out = gl.convert_layout(acc, LAYOUT)
    gl.store(dw + w_tile, out.to(dw.dtype.element_ty), inside)


@gluon.jit
def multiply(args, CONFIG: gl.constexpr, CONSUMER: gl.constexpr):
    ROWS: gl.constexpr = CONFIG.bm // CONFIG.readers
    PARTS: gl.constexpr = CONFIG.bn // EPILOGUE_N
    TURNS: gl.constexpr = CONFIG.turns
    LAYOUT: gl.constexpr = store_layout(args.dw.dtype.element_ty)
    w, C = in_elements(args, CONFIG)
    steps = args.items.steps
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(CONSUMER % TURNS, tl.cdiv(args.items.count - program, programs), TURNS):
        item = program + turn * programs
        acc = accumulate(
            args.left, args.right, args.barriers, turn, turn * steps, steps, CONFIG, CONSUMER, True
        )
        at = locate(args, item, C, CONFIG)
        row = (
            at.k + CONSUMER % CONFIG.readers * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
        )
        to_w = tile_offset(at, w)
        parts = split_columns(acc, PARTS)
        for part in gl.static_range(PARTS):
            column = at.c + part * EPILOGUE_N + gl.arange(0, EPILOGUE_N, gl.SliceLayout(0, LAYOUT))
            inside = (row < args.K)[:, None] & (column < C)[None, :]
            store(parts[part], args.dw, to_w, row, column, inside, w)


@gluon.jit(do_not_specialize=RUNTIME)
def gluon_wgrad(
    a, b, w,
    K, C, items, tiles, steps, groups, lo_d, lo_h, lo_w,
    boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    w_0, w_g, w_k, w_t, w_r, w_s, w_c, w_z,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Compute every num_programs-th tile: BM channels of a, BN of b, one tap and split."""
    STAGES: gl.constexpr = CONFIG.stages
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)
    barriers = ring.allocate_barriers(STAGES, CONFIG.readers)
    grid = BoxGrid(boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    args = Wgrad(
        dw=w, left=left, right=right, barriers=barriers, items=Items(items, tiles, groups, steps),
        strides=FilterStrides(w_0, w_g, w_k, w_t, w_r, w_s, w_c, w_z), shared_tap=None, K=K,
        vectors=C, a=a, b=b, grid=grid, lo=Axes(lo_d, lo_h, lo_w), halo=None, C=C * CONFIG.vec[1],
    )  # fmt: skip
    ring.run_partitions(multiply, load, args, CONFIG)
    ring.invalidate(barriers, STAGES)


def gluon_wgrad_refusal(task: Task) -> str | None:
    shape = task.geometry
    if reason := side_refusal(task):
        return reason
    if boxes_of(shape) is None:
        return (
            f"boxes that end with {shape.small[3 - shape.rank :]} pixels are more than half empty"
        )
    return None


def side_refusal(task: Task) -> str | None:
    """Return why the sides of a task do not fit, whatever its boxes are, None if they do."""
    shape = task.geometry
    channels = shape.small_channels, shape.big_channels
    if reason := ring.refusal(task):
        return reason
    if max(shape.stride) > MAX_STRIDE:
        return f"boxes hold pixels that are at most {MAX_STRIDE} apart"
    if min(channels) < EPILOGUE_N.value or any(c * shape.groups % tma.VECTOR for c in channels):
        return f"{channels} channels do not fill a tile, or rows of them do not start at 16 bytes"
    return None


def gluon_wgrad_parts(task: Task, tile: Tile) -> tuple[int, Work]:
    shape, (_, pixels, box) = task.geometry, boxes_of(task.geometry)
    tiles, steps = count(task, tile, shape.filter) * shape.groups, prod(in_boxes(pixels, box))
    options = {"reached": 0.8, "resident": cost.ALWAYS}
    return cost.cut(task, cost.block_work(task, tile, tiles, steps, **options))


def count(task: Task, tile: Tile, taps: Three) -> int:
    """Return how many tiles the result of a group has, each of one of `taps`."""
    rows, columns = task.geometry.small_channels, task.geometry.big_channels
    return -(-rows // tile.bm) * prod(taps) * -(-columns // tile.bn)


def boxes_of(geometry: Geometry) -> tuple[int, Four, Four] | None:
    """Return (rank, pixels, box): boxes that end with the pixels and waste the fewest images.

    None if more than half of their pixels would be waste. The pixels of a pointwise product are one
    axis, which ends at the same pixel on both sides.
    """
    pixels = geometry.pixels
    if geometry.pointwise:
        return 0, (prod(pixels), 1, 1, 1), (DEPTH, 1, 1, 1)
    shapes = [(DEPTH // prod(edges), *edges) for edges in tma.EDGES[geometry.rank]]
    fit = [
        box
        for box in shapes
        if box[0] and not any(n % edge for n, edge in zip(pixels[1:], box[1:]))
    ]
    box = min(fit, key=lambda box: prod(in_boxes(pixels, box)))
    few = prod(in_boxes(pixels, box)) * DEPTH <= 2 * prod(pixels)
    return (geometry.rank, pixels, box) if few else None


def add_gluon_wgrad(task: Task, tile: Tile) -> None:
    """Add the launches that compute a task, after copies that tensor maps describe."""
    sides = [tensor for tensor, _ in wgrad.sides(task)]
    one = not task.geometry.pointwise or merge(*sides) is not None
    add_sides(task, tile, gluon_wgrad_parts(task, tile)[0], gluon_wgrad_launch, one)


def add_sides(
    task: Task, tile: Tile, splits: int, launch: Callable[..., Launch], nested: bool = True
) -> None:
    """Add the launches of a task in `splits` parts; `launch` makes the kernel's.

    Sides are copied where no tensor map describes them, or where they are not `nested`.
    """
    sides = [tensor for tensor, _ in wgrad.sides(task)]
    if not nested or not all(map(is_mapped, sides)):
        last = channels_last(task.geometry.rank)
        sides = [task.builder.copied(tensor, last) for tensor in sides]
    w = task.result()
    stored = task.stored(w)
    add_in_parts(
        task.builder, stored, splits, lambda first: launch(task, *sides, first, tile, splits)
    )
    task.finish(stored, w)


def gluon_wgrad_launch(
    task: Task, a: Tensor, b: Tensor, w: Tensor, tile: Tile, splits: int
) -> Launch:
    """Return the launch that computes w from the small side and the big one, or its partial sums.

    Tensor maps describe a and b; those of a pointwise product are `merge`d to one axis. w is dense,
    the first of `splits` consecutive ones. Rows of the tile are channels of a, columns of b.
    """
    geometry = task.geometry
    rank, pixels, box = boxes_of(geometry)
    (a_n, _, *a_pixel), (b_n, _, *b_pixel), read = a.steps, b.steps, geometry.big
    if geometry.pointwise:
        _, _, _, (a_n, _, b_n, _) = merge(a, b)
        a_pixel, b_pixel, read = [0, 0, 0], [0, 0, 0], (1, 1, 1)
    a_map = mapped(pixels, (a_n, *a_pixel), a.shape[1], (*box, tile.bm), rank)
    b_box, stride = (*box, tile.bn), geometry.stride
    b_map = mapped((pixels[0], *read), (b_n, *b_pixel), b.shape[1], b_box, rank, stride)
    numbers, constants = given(task, w, tile, splits, geometry.filter, in_boxes(pixels, box))
    return Launch(
        gluon_wgrad,
        (min(numbers["items"], task.programs), 1, 1),
        {"a": Descriptor(slot(a), *a_map), "b": Descriptor(slot(b), *b_map), "w": slot(w)}
        | numbers,
        ring.configured(constants, tile, rank=rank, box=box),
        tile.warps,
        tile.stages,
    )


def given(
    task: Task, w: Tensor, tile: Tile, splits: int, taps: Three, boxes: Four
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return (numbers, constants) of a kernel whose tiles sum over `boxes` for one of `taps`."""
    geometry = task.geometry
    k, c = geometry.small_channels, geometry.big_channels
    tiles = count(task, tile, taps)
    w_0, w_g, *w_taps, w_c, w_k = filter_steps(geometry, w, False)
    size = prod(w.shape)
    width = wgrad.narrowed(vector(w.dtype, w_0, w_g, w_k, *w_taps, size), geometry.groups, w_g)
    vec = width, vector(w.dtype, c)
    numbers = (k, c // vec[1], tiles * geometry.groups * splits, tiles, -(-prod(boxes) // splits))
    numbers += (geometry.groups, *geometry.lo)
    numbers += (*boxes[1:], *divisors(boxes[1:]))
    numbers += (*(step // vec[0] for step in (w_0, w_g, w_k, *w_taps)), w_c, size // vec[0])
    constants = {
        "TAPS": taps,
        "STRIDE": geometry.stride,
        "MOVE": geometry.dilation,
        "WIDE": w.span >= LIMIT,
        "UNIT": w_c == 1,
        "VEC": vec,
    }
    return dict(zip(RUNTIME, numbers)), constants


SPEC = KernelSpec(
    "gluon_wgrad",
    serves=("correlate",),
    refusal=gluon_wgrad_refusal,
    tiles=TILES.of,
    add=add_gluon_wgrad,
    kernels=(gluon_wgrad,),
    work=lambda task, tile: gluon_wgrad_parts(task, tile)[1],
    unproven=not is_proven("gluon_wgrad"),
    lines=lines.WGRAD,
    expects=Expectation(products=1, staged=False, registers=168, loop=((57,),)),
)
