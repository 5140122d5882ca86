"""The filter cotangent of grouped convolutions of few channels, the diagonal of a matrix product.

dw[k, c, r] = sum over images n and pixels p of a[n, k, p] b[n, c, p * stride + r * dilation - lo]

a is the small side, b the big one. Several groups form one block, whose channels of a meet all of
its channels of b, as in `wgrad`, so that loads are 16 bytes wide and matrix instructions multiply.
Sums of channels of different groups are not stored, whatever they are. A block begins at a vector
of channels: it has channels of a neighbour if its first group begins within one.
"""

from dataclasses import replace
from math import gcd, prod

import triton
import triton.language as tl

from ..common.geometry import ITEMSIZE, LIMIT, Geometry, Tensor, filter_steps
from ..common.index import along, divisors, pixel
from ..common.reduce import MANY, add_in_parts
from ..common.windows import MAGIC, strides, unit
from ..plan import cost, lines
from ..plan.builder import slot, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Change, Tile, TileTable, tiles
from . import wgrad
from .flat import rounded
from .gather import reach

SIZES = "L D H W O P Q K C groups each_k each_c together wide_k wide_c steps lo_d lo_h lo_w"
STEPS = "a_n a_d a_h a_w b_n b_d b_h b_w w_0 w_t w_r w_s w_c w_k w_z"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit(do_not_specialize=RUNTIME)
def blocks_wgrad(
    a, b, w,
    L, D, H, W, O, P, Q, K, C, groups, each_k, each_c, together, wide_k, wide_c, steps,
    lo_d, lo_h, lo_w, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    a_n, a_d, a_h, a_w, b_n, b_d, b_h, b_w, w_0, w_t, w_r, w_s, w_c, w_k, w_z,
    RANK: tl.constexpr, FILTER: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
    INSIDE: tl.constexpr, LINEAR: tl.constexpr, WIDE: tl.constexpr, RUN: tl.constexpr,
    VEC: tl.constexpr, SWAP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a tile (BM channels of a, BN pairs of tap and channel of b) of one block and split.

    `together` groups form a block, with wide_k and wide_c vectors of channels.
    """
    a_n, a_d, a_h, a_w = strides(a_n, a_d, a_h, a_w, VEC[0], WIDE)
    b_n, b_d, b_h, b_w = strides(b_n, b_d, b_h, b_w, VEC[1], WIDE)
    w_k, w_t, w_r, w_s = strides(w_k, w_t, w_r, w_s, 1, WIDE)
    w_c = unit(w_c, False, 1, WIDE)

    R: tl.constexpr = FILTER[1]
    S: tl.constexpr = FILTER[2]
    first_group, split = tl.program_id(1) * together, tl.program_id(2)
    first = split * steps * BK
    top, _, _, _ = pixel(
        first, O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK
    )  # the split's first image, from which pixels and offsets count
    begin = first - top * (O * P * Q)
    end = begin + tl.minimum(steps * BK, L - first)

    from_k, from_c = first_group * each_k // RUN, first_group * each_c // RUN
    k = from_k * RUN + tl.arange(0, BM)  # (BM,)
    known_k = k < tl.minimum(from_k + wide_k, K) * RUN
    column = tl.program_id(0) * BN + tl.arange(0, BN)  # (BN,)
    tap, c = column // (wide_c * RUN), from_c * RUN + column % (wide_c * RUN)
    t, r, s = tap // (R * S), tap // S % R, tap % S
    known = (tap < FILTER[0] * R * S) & (c < C * RUN)
    at_d, at_h, at_w = t * DILATION[0] - lo_d, r * DILATION[1] - lo_h, s * DILATION[2] - lo_w
    to_b = at_d * b_d + at_h * b_h + at_w * b_w + c
    acc = wgrad.correlate(
        (a + top.to(tl.int64) * a_n, b + top.to(tl.int64) * b_n),
        (along(k, not SWAP), along(to_b, SWAP)),
        (along(at_d, SWAP), along(at_h, SWAP), along(at_w, SWAP)), (known_k, known), (begin, end),
        (D, H, W), (O, P, Q), (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift),
        (a_n, a_d, a_h, a_w), (b_n, b_d, b_h, b_w),
        RANK, STRIDE, INSIDE, LINEAR, (False, False), SWAP, BM, BN, BK, PRECISION,
    )  # fmt: skip

    group, group_c = k // each_k, c // each_c
    mine = (group >= first_group) & (group < tl.minimum(first_group + together, groups))
    inside = (known_k & mine)[:, None] & known[None, :] & (group[:, None] == group_c[None, :])
    to_w = w + (split.to(tl.int64) * w_z + w_0)
    w_tile = (k * w_k)[:, None] + (t * w_t + r * w_r + s * w_s + c % each_c * w_c)[None, :]
    tl.store(to_w + w_tile, acc.to(w.dtype.element_ty), inside)


TILES = TileTable(
    {
        "f16 bf16": tiles(
            "64x128x64 w4 s4 run8, 64x64x64 w4 s4 run8, 32x128x64 w4 s4 run8, "
            "16x128x64 w4 s4 run8, 32x256x64 w8 s4 run8"
        ),
        "tf32": tiles("64x64x32 w4 s4 run4, 32x64x32 w4 s4 run4"),
    },
    blocks=1,
    changes=(
        Change("sm_8", "f16 bf16", Tile(64, 128, 64, 4, 4, run=8)),
        Change("sm_8", "f16 bf16", Tile(32, 128, 64, 4, 4, run=8)),
        Change("sm_8", "tf32", Tile(64, 64, 32, 4, 4, run=4)),
    ),
)
MOST = 32  # channels of a group: more fill tiles of their own


def one_group(task: Task) -> Task:
    """Return the task with the channels of all groups as those of one."""
    shape = task.geometry
    big, small = (shape.groups * n for n in (shape.big_channels, shape.small_channels))
    return replace(task, geometry=replace(shape, groups=1, big_channels=big, small_channels=small))


def wide(each: int, together: int, run: int) -> int:
    """Return the channels of a block, whole vectors, wherever its first group begins."""
    size = each * together
    return -(-(size + run - gcd(size, run)) // run) * run


def grid(shape: Geometry, tile: Tile, together: int) -> tuple[int, int]:
    """Return the tiles of a block, and the blocks."""
    columns = wide(shape.big_channels, together, tile.run) * shape.taps
    return -(-columns // tile.bn), -(-shape.groups // together)


def together(shape: Geometry, tile: Tile) -> int:
    """Return how many groups form a block: those that make fewest tiles, 0 if not one fits."""
    fitting = (
        n
        for n in range(1, min(shape.groups, tile.bm) + 1)
        if wide(shape.small_channels, n, tile.run) <= tile.bm
    )
    return min(fitting, key=lambda n: (prod(grid(shape, tile, n)), -n), default=0)


def blocks_wgrad_refusal(task: Task) -> str | None:
    shape = task.geometry
    sides = shape.big_channels, shape.small_channels
    if not task.pairs:
        return "no products"
    if task.numbers in ("ieee", "tf32x3"):
        return "float32" if task.numbers == "ieee" else "products of three"
    if shape.groups == 1:
        return "one group"
    if max(sides) == 1:
        return "depthwise"
    if not 0 < max(sides) <= MOST or not min(sides):
        return f"{sides[0]} and {sides[1]} channels a group, not 1 to {MOST}"
    if shape.groups >= 2**16:
        return "2**16 groups or more"
    return None


def blocks_wgrad_tiles(task: Task) -> tuple[Tile, ...]:
    return tuple(tile for tile in TILES.of(task) if together(task.geometry, tile))


def blocks_wgrad_parts(task: Task, tile: Tile) -> tuple[int, Work]:
    """Return the number of splits of the sums, and their work."""
    shape, size = task.geometry, ITEMSIZE[task.dtype]
    steps = -(-shape.n * prod(shape.small) // tile.bk)
    n = together(shape, tile)
    count = prod(grid(shape, tile, n))
    loaded = (wide(shape.small_channels, n, tile.run) + tile.bn) * tile.bk * size
    made = cost.block_work(task, tile, count, steps, reached=0.54, per_vector=24, loaded=loaded)
    return cost.cut(task, made._replace(stored=made.stored / n))


def add_blocks_wgrad(task: Task, tile: Tile) -> None:
    one = one_group(task)
    pair = tuple(wgrad.laid(one, tensor, n, tile) for tensor, n in wgrad.sides(one))
    w, (splits, _) = task.result(), blocks_wgrad_parts(task, tile)
    add_in_parts(
        task.builder, w, splits,
        lambda part: blocks_wgrad_launch(task.geometry, pair, part, tile, splits, task.math), MANY,
    )  # fmt: skip


def blocks_wgrad_launch(
    geometry: Geometry,
    pair: tuple[Tensor, ...],
    w: Tensor,
    tile: Tile,
    splits: int = 1,
    precision: str = "ieee",
) -> Launch:
    """Return the launch that computes w from (small side, big side), or its partial sums.

    The pair has channels innermost, in vectors of `tile.run`; with splits w is the first of as many
    consecutive ones.
    """
    a, b = pair
    run, n = tile.run, together(geometry, tile)
    each = geometry.small_channels, geometry.big_channels
    images, rank, pixels, linear, a_steps, b_steps = wgrad.views(geometry, a, b)
    rows = images * prod(pixels)
    steps = -(-rows // (tile.bk * splits))
    w_0, _, *w_taps, w_c, w_k = filter_steps(geometry, w, False)
    moves = (a_steps[0], *a_steps[2:]), (b_steps[0], *b_steps[2:])
    vec = tuple(vector(t.dtype, *move) for t, move in zip(pair, moves))
    over = [[step // width for step in move] for move, width in zip(moves, vec)]
    totals = (rounded(geometry.groups * size, tile) // run for size in each)
    sizes = (rows, *geometry.big, *pixels, *totals, geometry.groups, *each, n)
    sizes += (*(wide(size, n, run) // run for size in each), steps, *geometry.lo, *divisors(pixels))
    sizes += (*over[0], *over[1], w_0, *w_taps, w_c, w_k, prod(w.shape))
    near = max(reach(t, s, steps * tile.bk, pixels) for t, s in ((a, a_steps), (b, b_steps)))
    return Launch(
        blocks_wgrad,
        (*grid(geometry, tile, n), splits),
        {"a": slot(a), "b": slot(b), "w": slot(w)} | dict(zip(RUNTIME, sizes)),
        {
            **wgrad.correlate_constants(geometry, rank, linear, tile, precision),
            "WIDE": max(near, w.span) >= LIMIT,
            "RUN": run,
            "VEC": vec,
        },
        tile.warps,
        tile.stages,
    )


SPEC = KernelSpec(
    "blocks_wgrad",
    serves=("correlate",),
    refusal=blocks_wgrad_refusal,
    tiles=blocks_wgrad_tiles,
    add=add_blocks_wgrad,
    kernels=(blocks_wgrad,),
    work=lambda task, tile: blocks_wgrad_parts(task, tile)[1],
    lines=lines.WGRAD,
    expects=Expectation(products=1, loop=((322, 0, 311, 0), (316, 0, 233, 0))),
)
