"""The correlation of a 1x1 filter with both sides in NCHW, which are read as they are.

dw[k, c] = sum over images n and pixels p of a[n, k, p] b[n, c, p]

The sum runs along the axis that is contiguous in both, so that a thread loads a vector of pixels
of a channel, as tensor cores take them. `wgrad` reads vectors of channels, from copies. Each split
of the pixels has partial sums of its own in a workspace, which `reduce` adds in a fixed order.
"""

from math import prod

import triton
import triton.language as tl

from ..common.geometry import ITEMSIZE, LIMIT, Tensor, filter_steps
from ..common.index import divisor, quotient, tile_of
from ..common.reduce import add_in_parts
from ..common.windows import strides, unit
from ..plan import cost, lines
from ..plan.builder import slot, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Change, Tile, TileTable, tiles
from .gather import IEEE, reach
from .planes import run_of
from .wgrad import sides

SIZES = "L P rows columns steps magic shift"
STEPS = "a_n a_g a_row b_n b_g b_column w_g w_row w_column w_z"
RUNTIME = f"{SIZES} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit(do_not_specialize=RUNTIME)
def planes_wgrad(
    a, b, w,
    L, P, rows, columns, steps, magic, shift,
    a_n, a_g, a_row, b_n, b_g, b_column, w_g, w_row, w_column, w_z,
    RUN: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr, UNIT: tl.constexpr,
    VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of w, (BM channels of a, BN of b), of one split; RUN divides the P pixels."""
    # Strides are counted in runs, so that the compiler infers their divisibility.
    a_n, a_row, b_n, b_column = strides(a_n, a_row, b_n, b_column, RUN, WIDE)
    w_row, w_column = unit(w_row, UNIT == 1, VEC[0], WIDE), unit(w_column, UNIT == 2, VEC[0], WIDE)
    P, rows, columns = P * RUN, rows * VEC[1], columns * VEC[2]
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(rows, BM), tl.cdiv(columns, BN), BAND)
    group, split = tl.program_id(1).to(tl.int64), tl.program_id(2)
    first = split * steps * BK
    top = quotient(first, magic, shift)  # the split's first image, from which offsets count
    begin = first - top * P
    end = begin + tl.minimum(steps * (BK // RUN), L - first // RUN) * RUN
    from_a = a + (top.to(tl.int64) * a_n + group * a_g * RUN)
    from_b = b + (top.to(tl.int64) * b_n + group * b_g * RUN)
    i, j = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    to_a, to_b = (i * a_row)[:, None], (j * b_column)[None, :]

    acc = tl.zeros((BM, BN), tl.float32)
    index = begin + tl.arange(0, BK)  # (BK,)
    # A loop that might not run at all made ptxas wait for each wgmma (C7515).
    for _ in range(tl.maximum(tl.cdiv(end - begin, BK), 1)):
        n = quotient(index, magic, shift)
        here = tl.max_contiguous(tl.multiple_of(n * a_n + (index - n * P), [RUN]), [RUN])
        there = tl.max_contiguous(tl.multiple_of(n * b_n + (index - n * P), [RUN]), [RUN])
        on_a, on_b = (index < end)[None, :], (index < end)[:, None]
        if not WHOLE[0]:
            on_a &= (i < rows)[:, None]
        if not WHOLE[1]:
            on_b &= (j < columns)[None, :]
        left = tl.load(from_a + (to_a + here[None, :]), on_a, other=0.0)  # (BM, BK)
        right = tl.load(from_b + (there[:, None] + to_b), on_b, other=0.0)  # (BK, BN)
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
        index += BK

    to_w = w + (split.to(tl.int64) * w_z + group * w_g) * VEC[0]
    w_tile = (i * w_row)[:, None] + (j * w_column)[None, :]
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    tl.store(to_w + w_tile, acc.to(w.dtype.element_ty), inside)


TILES = TileTable(  # the side with more channels has the rows
    {
        "f16 bf16": tiles(
            "128x128x64 w8 s4, 128x64x64 w4 s4, 64x64x64 w4 s4, 128x256x64 w8 s3, "
            "256x128x64 w8 s3, 128x32x64 w4 s4, 64x32x64 w4 s4, 64x32x128 w4 s4, 64x64x128 w4 s4"
        ),
        "ieee": IEEE,
        "tf32": tiles(
            "128x128x32 w8 s4, 128x64x32 w4 s4, 64x64x32 w4 s4, 128x256x32 w8 s3, "
            "256x128x32 w8 s3, 128x32x32 w4 s4, 64x32x32 w4 s4, 64x32x64 w4 s4, 64x64x64 w4 s4"
        ),
        "tf32x3": tiles("128x64x32 w8 s4, 64x64x32 w4 s4, 64x32x32 w4 s4"),
    },
    blocks=1,
    changes=(
        Change("sm_8", "f16 bf16", Tile(128, 256, 64, 8, 3)),
        Change("sm_8", "f16 bf16", Tile(256, 128, 64, 8, 3)),
        Change("sm_8", "f16 bf16", Tile(64, 64, 128, 4, 4), below=16),
        Change("sm_8", "tf32", Tile(128, 256, 32, 8, 3)),
        Change("sm_8", "tf32", Tile(256, 128, 32, 8, 3)),
    ),
)


def planes_wgrad_tiles(task: Task) -> tuple[Tile, ...]:
    return TILES.of(task, run_of(task.geometry, task.pairs[0]) * ITEMSIZE[task.dtype])


def planes_wgrad_refusal(task: Task) -> str | None:
    if not task.pairs or not task.geometry.n:
        return "no products"
    if not run_of(task.geometry, task.pairs[0]):
        return "no vectors of pixels of a 1x1 filter"
    return None


def planes_wgrad_parts(task: Task, tile: Tile) -> tuple[int, Work]:
    """Return the number of splits of the sums, and their work."""
    shape = task.geometry
    (_, rows), (_, columns) = ordered(task)
    count = -(-rows // tile.bm) * -(-columns // tile.bn) * shape.groups
    steps = -(-shape.n * prod(shape.small) // tile.bk)
    run = run_of(shape, task.pairs[0]) * ITEMSIZE[task.dtype]
    return cost.cut(
        task, cost.block_work(task, tile, count, steps, reached=0.6, vector=run, per_vector=16)
    )


def ordered(task: Task) -> list[tuple[Tensor, int]]:
    """Return the sides with their channels per group, the one with more channels first."""
    return sorted(sides(task), key=lambda side: -side[1])


def add_planes_wgrad(task: Task, tile: Tile) -> None:
    w, (splits, _) = task.result(), planes_wgrad_parts(task, tile)

    def part(first: Tensor) -> Launch:
        return planes_wgrad_launch(task, first, tile, splits)

    add_in_parts(task.builder, w, splits, part)


def planes_wgrad_launch(task: Task, w: Tensor, tile: Tile, splits: int) -> Launch:
    """Return the launch that computes w, or the first of as many consecutive parts of it."""
    shape = task.geometry
    (a, rows), (b, columns) = ordered(task)
    pixels, run = prod(shape.small), run_of(shape, (a, b))
    length = shape.n * pixels
    steps = -(-length // (tile.bk * splits))
    _, w_g, *_, w_c, w_k = filter_steps(shape, w, False)
    w_row, w_column = (w_k, w_c) if a is sides(task)[0][0] else (w_c, w_k)
    unit_w = 2 if w_column == 1 else 1 if w_row == 1 else 0
    moves = w_g, w_row * (unit_w != 1), w_column * (unit_w != 2), prod(w.shape)
    vec = vector(w.dtype, *moves), vector(w.dtype, rows), vector(w.dtype, columns)
    sizes = (length // run, pixels // run, rows // vec[1], columns // vec[2], steps)
    sizes += divisor(pixels)
    for tensor, channels in ((a, rows), (b, columns)):
        n, c, *_ = tensor.steps
        sizes += (n // run, c * channels // run, c // run)
    sizes += tuple(step // vec[0] for step in moves)
    near = max(reach(t, t.steps, steps * tile.bk, (1, 1, pixels)) for t in (a, b))
    return Launch(
        planes_wgrad,
        (-(-rows // tile.bm) * -(-columns // tile.bn), shape.groups, splits),
        {"a": slot(a), "b": slot(b), "w": slot(w)} | dict(zip(RUNTIME, sizes)),
        {
            "RUN": run,
            "WHOLE": (rows % tile.bm == 0, columns % tile.bn == 0),
            "WIDE": max(near, w.span) >= LIMIT,
            "UNIT": unit_w,
            "VEC": vec,
            **tile.constants,
            "PRECISION": task.math,
        },
        tile.warps,
        tile.stages,
    )


SPEC = KernelSpec(
    "planes_wgrad",
    serves=("correlate",),
    refusal=planes_wgrad_refusal,
    tiles=planes_wgrad_tiles,
    add=add_planes_wgrad,
    kernels=(planes_wgrad,),
    work=lambda task, tile: planes_wgrad_parts(task, tile)[1],
    lines=lines.PLANES_WGRAD,
    expects=Expectation(
        products=1, loop=((311, 791, 763, 710), (360, 785, 864, 1072), (256, 164, 493))
    ),
)
