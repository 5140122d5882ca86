"""The product of `gather` on tiles of 96 and 192 columns, which leave fewer multiprocessors idle.

A block of 64 or 128 columns and one of half as many share the rows that a step loads; each has a
sum of its own. 78 tiles of 128 columns keep 78 multiprocessors busy; 104 tiles of 96 columns keep
more of them busy, for less time.
"""

from dataclasses import replace

import triton
import triton.language as tl

from ..common import windows
from ..common.geometry import ITEMSIZE, Tensor
from ..common.index import tile_of
from ..plan import archs, cost, lines
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Epilogue, Task
from ..plan.tile import Tile, TileTable, tiles
from . import gather


@triton.jit
def multiply(
    tensors, from_x, from_w, from_more, real, known, known_more, C, count, bits, read, sizes,
    x_steps, w_steps,
    WINDOW: tl.constexpr, PAIRS: tl.constexpr, INSIDE: tl.constexpr, WHOLE: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the sums of both blocks over all taps and channels, as `gather.multiply`."""
    MOVE: tl.constexpr = WINDOW.move
    STEP: tl.constexpr = WINDOW.step
    x, w, x_2, w_2 = tensors
    _, _, _, x_d, x_h, x_w, x_c = x_steps
    _, _, w_t, w_r, w_s, w_c, _ = w_steps
    cols = tl.arange(0, BK)  # (BK,)
    acc = tl.zeros((BM, known.shape[0]), tl.float32)
    acc_more = tl.zeros((BM, known_more.shape[0]), tl.float32)
    pair, t, r, s, c = 0, 0, 0, 0, 0
    for _ in range(PAIRS * count[0] * count[1] * count[2] * tl.cdiv(C, BK)):
        here = (t * MOVE[0]) * x_d + (r * MOVE[1]) * x_h + (s * MOVE[2]) * x_w + c * x_c
        there = (t * STEP[0]) * w_t + (r * STEP[1]) * w_r + (s * STEP[2]) * w_s + c * w_c
        on_x, on_w, on_more = real[:, None], known[None, :], known_more[None, :]
        if not INSIDE:
            on_x = windows.is_valid(real, bits, t, r, s, read, sizes, WINDOW)[:, None]
        if not WHOLE:
            inside = c + cols < C
            on_x &= inside[None, :]
            on_w &= inside[:, None]
            on_more &= inside[:, None]
        left, right = x, w
        if PAIRS == 2:
            left, right = tl.where(pair == 0, x, x_2), tl.where(pair == 0, w, w_2)
        a = tl.load(left + here + from_x, on_x, other=0.0)  # (BM, BK)
        b = tl.load(right + there + from_w, on_w, other=0.0)  # (BK, 2 BN / 3)
        b_more = tl.load(right + there + from_more, on_more, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        acc_more = tl.dot(a, b_more, acc_more, input_precision=PRECISION)
        pair, t, r, s, c = windows.advance(pair, t, r, s, c + BK, C, count, WINDOW, PAIRS)
    return acc, acc_more


@triton.jit(do_not_specialize=gather.RUNTIME)
def columns(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    M, D, H, W, O, P, Q, OD, OH, OW, C, K, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_g, x_d, x_h, x_w, x_c, w_0, w_g, w_t, w_r, w_s, w_c, w_k, y_n, y_g, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, WINDOW: tl.constexpr, PAIRS: tl.constexpr,
    INSIDE: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of y, (BM pixels, BN channels), of two blocks: 2 BN / 3 and BN / 3."""
    x_steps, w_steps, y_steps, C, K = gather.in_elements(
        (x_n, x_g, x_d, x_h, x_w, x_c), (w_0, w_g, w_t, w_r, w_s, w_c, w_k),
        (y_n, y_g, y_d, y_h, y_w, y_c), C, K, UNIT, VEC, WIDE,
    )  # fmt: skip
    image_x, group_x, x_n, x_d, x_h, x_w, x_c = x_steps
    w_0, group_w, w_t, w_r, w_s, w_c, w_k = w_steps
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(K, BN), BAND)
    group, e = tl.program_id(1), tl.program_id(2)
    magic, sizes = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift), (D, H, W)
    rows, top, n, written, read, first, count = windows.rows_of(
        tile_m, e, M, (O, P, Q), (lo_d, lo_h, lo_w), magic, RANK, WINDOW, BM
    )
    i_d, i_h, i_w = read
    bits = windows.valid_taps(rows < M, read, sizes, WINDOW)

    cols = tl.arange(0, BK)  # (BK,)
    LESS: tl.constexpr = BN // 3
    outs = tile_n * BN + tl.arange(0, 2 * LESS)
    more = tile_n * BN + 2 * LESS + tl.arange(0, LESS)
    x_tile = (n * x_n + i_d * x_d + i_h * x_h + i_w * x_w)[:, None] + (cols * x_c)[None, :]
    from_w = group * group_w + w_0 + first[0] * w_t + first[1] * w_r + first[2] * w_s
    acc, acc_more = multiply(
        (x, w, x_2, w_2), top * image_x + group * group_x + x_tile,
        from_w + ((cols * w_c)[:, None] + (outs * w_k)[None, :]),
        from_w + ((cols * w_c)[:, None] + (more * w_k)[None, :]),
        rows < M, outs < K, more < K, C, count, bits, read, sizes, x_steps, w_steps,
        WINDOW, PAIRS, INSIDE, WHOLE, BM, BK, PRECISION,
    )  # fmt: skip
    gather.store_tile(
        acc, y, bias, scale, shift, residual, rows, M, top, n, written, (OD, OH, OW), outs, K,
        group, 0, y_steps, ACTIVATION,
    )  # fmt: skip
    gather.store_tile(
        acc_more, y, bias, scale, shift, residual, rows, M, top, n, written, (OD, OH, OW), more, K,
        group, 0, y_steps, ACTIVATION,
    )  # fmt: skip


SHARED = 128  # bytes that a multiprocessor reads from shared memory in a cycle
TILES = TileTable(
    {"f16 bf16": tiles("128x96x64 w8 s4, 128x192x64 w8 s4")},
    blocks=1,
)


def columns_refusal(task: Task) -> str | None:
    if not task.arch.startswith("sm_9"):
        return f"{task.arch} has no wgmma"
    if not TILES.of(task):
        return f"{task.dtype}: 16-bit products only"
    if task.width < 16:
        return f"{task.channels} channels share no vector of 16 bytes"
    return None


def columns_work(task: Task, tile: Tile) -> Work:
    count, steps = gather.gather_tile_count(task, tile), gather.gather_steps(task, tile)
    options = {"per_vector": 16, "loaded": gather.gather_loaded(task, tile)}
    # wgmma reads rows from shared memory for each of the two blocks, a block for each 64 rows.
    read = ITEMSIZE[task.dtype] * (2 * tile.bm + tile.bm // cost.WARP_GROUP * tile.bn)
    products = max(1.0, read / SHARED * archs.PRODUCTS[task.numbers] / (tile.bm * tile.bn))
    return cost.block_work(task, tile, count, steps, reached=0.67, products=products, **options)


def add_columns(task: Task, tile: Tile) -> None:
    pairs, scatter = task.aligned_pairs(), task.scatters

    def launch(y: Tensor, after: Epilogue) -> Launch:
        made = gather.gather_launch(task.geometry, pairs, y, scatter, tile, task.math, after)
        of = {n: v for n, v in made.arguments.items() if n in columns.arg_names}
        constants = {n: v for n, v in made.constants.items() if n in columns.arg_names}
        return replace(made, kernel=columns, arguments=of, constants=constants)

    task.compute(launch)


SPEC = KernelSpec(
    "columns",
    serves=("gather", "scatter"),
    refusal=columns_refusal,
    tiles=TILES.of,
    add=add_columns,
    kernels=(columns,),
    work=columns_work,
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(products=1, in_flight=2, loop=((181,),)),
)
