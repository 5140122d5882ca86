"""The gathered product of grouped convolutions of few channels, as a block-diagonal one.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] W[k, c, r]

Several groups form one block of at most MOST channels. W has the filters of a block as one group,
zero where k and c are of different groups: a copy makes it. So loads are 16 bytes wide and matrix
instructions multiply, `gather.multiply`, most of it by zero.

An infinity or NaN times such a zero is NaN. It would make every sum of its pixel and block NaN, so
that finite sums are right. Otherwise the program repeats its tile group by group.
"""

from dataclasses import replace
from math import gcd, lcm

import triton
import triton.language as tl

from ..common import windows
from ..common.geometry import Geometry, Tensor
from ..common.index import tile_of
from ..plan import lines
from ..plan.builder import channels_last, vector
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Epilogue, Task
from ..plan.tile import Change, Tile, TileTable, tiles
from . import gather

BLOCKS = [*gather.RUNTIME, "each_c", "each_k", "groups"]
MOST = 64  # channels of a block: a row of 128 bytes
VECTOR = 8  # elements of 16 bytes


@triton.jit(do_not_specialize=BLOCKS)
def blocks(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    M, D, H, W, O, P, Q, OD, OH, OW, C, K, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_g, x_d, x_h, x_w, x_c, w_0, w_g, w_t, w_r, w_s, w_c, w_k, y_n, y_g, y_d, y_h, y_w, y_c,
    each_c, each_k, groups,
    RANK: tl.constexpr, WINDOW: tl.constexpr, PAIRS: tl.constexpr,
    INSIDE: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, RUN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of y, (BM pixels, BN channels); a group has each_c channels and each_k."""
    x_steps, w_steps, y_steps, C, K = gather.in_elements(
        (x_n, x_g, x_d, x_h, x_w, x_c), (w_0, w_g, w_t, w_r, w_s, w_c, w_k),
        (y_n, y_g, y_d, y_h, y_w, y_c), C, K, UNIT, VEC, WIDE,
    )  # fmt: skip
    image_x, group_x, x_n, x_d, x_h, x_w, x_c = x_steps
    w_0, group_w, w_t, w_r, w_s, w_c, w_k = w_steps
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(K, BN), BAND)
    block, e = tl.program_id(1), tl.program_id(2)
    magic, sizes = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift), (D, H, W)
    rows, top, n, written, read, first, count = windows.rows_of(
        tile_m, e, M, (O, P, Q), (lo_d, lo_h, lo_w), magic, RANK, WINDOW, BM
    )
    i_d, i_h, i_w = read
    bits = windows.valid_taps(rows < M, read, sizes, WINDOW)

    cols = tl.arange(0, BK)  # (BK,)
    outs = tile_n * BN + tl.arange(0, BN)  # (BN,)
    from_x = top * image_x + block * group_x
    from_w = block * group_w + w_0 + first[0] * w_t + first[1] * w_r + first[2] * w_s
    x_tile = (n * x_n + i_d * x_d + i_h * x_h + i_w * x_w)[:, None] + (cols * x_c)[None, :]
    known = outs < K
    w_tile = (cols * w_c)[:, None] + (outs * w_k)[None, :]

    steps = PAIRS * count[0] * count[1] * count[2] * tl.cdiv(C, BK)
    acc = gather.multiply(
        (x, w, x_2, w_2), (from_x, from_w), (x_tile, w_tile), rows < M, known, C, steps,
        (0, 0, 0, 0, 0), bits, read, sizes, count, x_steps, w_steps, 0, None,
        WINDOW, PAIRS, INSIDE, WHOLE, BM, BN, BK, PRECISION,
    )  # fmt: skip
    if tl.max(acc.to(tl.int32, bitcast=True) & 0x7FFFFFFF) >= 0x7F800000:
        each_c = each_c * RUN
        for group in range(groups):
            low = group * each_c
            own = gather.multiply(
                (x, w, x_2, w_2), (from_x, from_w), (x_tile, w_tile), rows < M, known, C, steps,
                (0, 0, 0, 0, 0), bits, read, sizes, count, x_steps, w_steps, low, low + each_c,
                WINDOW, PAIRS, INSIDE, WHOLE, BM, BN, BK, PRECISION,
            )  # fmt: skip
            within = (outs >= group * each_k) & (outs < group * each_k + each_k)
            acc = tl.where(within[None, :], own, acc)
    gather.store_tile(
        acc, y, bias, scale, shift, residual, rows, M, top, n, written, (OD, OH, OW), outs, K,
        block, 0, y_steps, ACTIVATION,
    )  # fmt: skip


SQUARE = tiles(
    "128x64x64 w8 s4 run8, 64x64x64 w4 s4 run8, 128x32x32 w4 s4 run8, 64x32x32 w4 s4 run8"
)
TILES = TileTable(
    {"f16 bf16": SQUARE},
    blocks=1,
    changes=(
        Change("sm_8", "f16 bf16", SQUARE[0]),
        Change("sm_8", "f16 bf16", SQUARE[1], instead=SQUARE[1]._replace(warps=8)),
        Change("sm_8", "f16 bf16", SQUARE[3]),
    ),
)


def merged(shape: Geometry) -> int:
    """Return how many groups form a block, 1 if none can."""
    sides = shape.big_channels, shape.small_channels
    unit = lcm(*(VECTOR // gcd(size, VECTOR) for size in sides))  # groups of whole vectors
    most = MOST // max(sides)
    fitting = (n for n in range(unit, most + 1, unit) if shape.groups % n == 0)
    return max(fitting, default=1)


def blocked(task: Task) -> Task:
    """Return the task with blocks as groups."""
    shape, n = task.geometry, merged(task.geometry)
    big, small = shape.big_channels * n, shape.small_channels * n
    one = replace(shape, groups=shape.groups // n, big_channels=big, small_channels=small)
    return replace(task, geometry=one)


def blocks_refusal(task: Task) -> str | None:
    shape = task.geometry
    sides = shape.big_channels, shape.small_channels
    if not task.pairs:
        return "no products"
    if task.dtype == "f32":
        return "float32"
    if shape.groups == 1:
        return "one group"
    if any(size < 2 or size % 2 for size in sides):
        return f"{sides[0]} and {sides[1]} channels a group, which are not even"
    if merged(shape) == 1:
        return f"groups fill no block of at most {MOST} channels"
    if shape.groups // merged(shape) >= 2**16:
        return "2**16 blocks or more"
    return None


def blocks_tiles(task: Task) -> tuple[Tile, ...]:
    size = max(blocked(task).channels)
    return tuple(tile for tile in TILES.of(task) if tile.bk < max(2 * size, MOST))


def expanded(task: Task, w: Tensor) -> Tensor:
    """Return a copy of filters with those of a block as one group."""
    n, order = merged(task.geometry), channels_last(len(w.shape) - 2)
    return task.builder.copied(w, order, {1: w.shape[1] * n}, (task.geometry.groups // n, n))


def add_blocks(task: Task, tile: Tile) -> None:
    xs = task.one_order([x for x, _ in task.pairs])
    pairs = tuple((x, expanded(task, w)) for x, (_, w) in zip(xs, task.pairs))
    task.compute(lambda y, after: blocks_launch(task, pairs, y, tile, after))


def blocks_launch(
    task: Task, pairs: tuple[tuple[Tensor, Tensor], ...], y: Tensor, tile: Tile, after: Epilogue
) -> Launch:
    """Return the launch that computes y: `gather_launch` with the kernel of this module."""
    shape, scatter = task.geometry, task.kind == "scatter"
    made = gather.gather_launch(blocked(task).geometry, pairs, y, scatter, tile, task.math, after)
    names, (c, k) = set(blocks.arg_names), task.channels
    run = vector(task.dtype, c)
    numbers = {"each_c": c // run, "each_k": k, "groups": merged(shape)}
    return replace(
        made,
        kernel=blocks,
        arguments={k: v for k, v in made.arguments.items() if k in names} | numbers,
        constants={k: v for k, v in made.constants.items() if k in names} | {"RUN": run},
    )


SPEC = KernelSpec(
    "blocks",
    serves=("gather", "scatter"),
    refusal=blocks_refusal,
    tiles=blocks_tiles,
    add=add_blocks,
    kernels=(blocks,),
    work=lambda task, tile: gather.gather_work(blocked(task), tile),
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(products=1, loop=((125,), (126,), (179,))),
)
