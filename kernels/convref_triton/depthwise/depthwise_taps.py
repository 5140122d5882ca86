"""Filter cotangents of depthwise convolutions: warps add the sums of eight taps at a time.

The loop is a copy of that of `depthwise_wgrad`, whose measured rows are found by its source.

A thread of `depthwise_wgrad` writes all of its sums side by side, so that the lanes of a warp write
to the same bank. Here the lanes write the same tap of neighbouring channels, and padding up
to a power of two is not written.
"""

from dataclasses import replace

import triton
import triton.language as tl

from ..common.geometry import Tensor
from ..common.index import below, pixel
from ..common.reduce import MANY, add_in_parts
from ..common.windows import strides
from ..plan import lines
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile
from . import depthwise_wgrad as base
from .depthwise_wgrad import RUNTIME, add_column, read_rows

TOGETHER = 8  # taps, as `add_eight` has them


@triton.jit
def add_eight(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p):
    return a + i, b + j, c + k, d + l, e + m, f + n, g + o, h + p


@triton.jit
def over_strips(sums, COUNT: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """Return the totals (BK,) of COUNT sums (BM, BK) over their strips."""
    for _ in tl.static_range((8 - COUNT % 8) % 8):
        sums = sums + (tl.zeros((BM, BK), tl.float32),)
    totals = ()
    for i in tl.static_range((COUNT + 7) // 8):
        totals = totals + tl.reduce(sums[8 * i : 8 * i + 8], 0, add_eight)
    return totals[:COUNT]


@triton.jit
def side_by_side(values, COUNT: tl.constexpr, DEPTH: tl.constexpr, BK: tl.constexpr):
    """Return COUNT vectors (BK,) as one tile (BK, 2**DEPTH); the rest is zeros."""
    for _ in tl.static_range(2**DEPTH - COUNT):
        values = values + (tl.zeros((BK,), tl.float32),)
    for level in tl.static_range(DEPTH):
        joined = ()
        for i in tl.static_range(2 ** (DEPTH - 1 - level)):
            joined = joined + (tl.join(values[i], values[i + 2 ** (DEPTH - 1 - level)]),)
        values = joined
    return tl.reshape(values[0], (BK, 2**DEPTH))


@triton.jit(do_not_specialize=RUNTIME)
def depthwise_taps(
    a, b, w,
    M, D, H, W, O, U, V, P, Q, K, begin, run, steps, rows_of_taps, lo_d, lo_h, lo_w,
    o_magic, o_shift, u_magic, u_shift, v_magic, v_shift,
    a_n, a_d, a_h, a_w, b_n, b_d, b_h, b_w, w_0, w_t, w_r, w_s, w_k, w_z,
    RANK: tl.constexpr, TAPS: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
    RG: tl.constexpr, SIDE: tl.constexpr, UNROLL: tl.constexpr,
    DEPTH: tl.constexpr, DENSE: tl.constexpr, WIDE: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the sums of BK channels at RG rows of taps, over the strips of one split."""
    a_n, a_d, a_h, a_w = strides(a_n, a_d, a_h, a_w, VEC[0], WIDE)
    b_n, b_d, b_h, b_w = strides(b_n, b_d, b_h, b_w, VEC[1], WIDE)
    K = K * VEC[2]
    S: tl.constexpr = TAPS[2]
    EVERY: tl.constexpr = STRIDE[2]
    KEPT: tl.constexpr = (S + EVERY - 1) // EVERY - 1  # columns of the small side before a step's
    DOWN: tl.constexpr = STRIDE[1] if SIDE > 1 else 1  # rows of the big side that are loaded:
    READS: tl.constexpr = (SIDE - 1) * DOWN + RG
    blocks = tl.cdiv(K, BK)
    k = tl.program_id(0) % blocks * BK + tl.arange(0, BK)  # (BK,)
    group = tl.program_id(0) // blocks
    r_0, group = group % rows_of_taps * RG, group // rows_of_taps
    t, split = group % TAPS[0], group // TAPS[0]

    sums = ()
    for _ in tl.static_range(RG * S):
        sums = sums + (tl.zeros((BM, BK), tl.float32),)
    for step in range(split * steps, split * steps + steps):
        strip = (step * BM + tl.arange(0, BM))[:, None]  # (BM, 1)
        n, o, u, v = pixel(
            strip, O, U, V, o_magic, o_shift, u_magic, u_shift, v_magic, v_shift, RANK
        )
        p, q = u * SIDE, v * run + begin
        d = o * STRIDE[0] + t * DILATION[0] - lo_d
        h = p * STRIDE[1] + r_0 * DILATION[1] - lo_h
        i_w = q * EVERY - lo_w
        known = (k < K)[None, :] & (strip < M)
        on_a, on_b = (), ()
        for i in tl.static_range(SIDE):
            on_a = on_a + (known & (p + i < P),)
        for j in tl.static_range(READS):
            on_b = on_b + (known & below(d, D) & below(h + j * DILATION[1], H),)
        a_tile = n * a_n + o * a_d + p * a_h + q * a_w + k[None, :]
        b_tile = n * b_n + d * b_d + h * b_h + i_w * b_w + k[None, :]
        kept = ()
        for m in tl.static_range(KEPT):
            x = -1 - m
            kept = kept + read_rows(a + x * a_w, a_tile, on_a, below(q + x, Q), a_h, 1, SIDE)
        for block in range(0, run, UNROLL):
            for i in tl.static_range(UNROLL):
                x = block + i
                small = read_rows(a + x * a_w, a_tile, on_a, below(q + x, Q), a_h, 1, SIDE) + kept
                for e in tl.static_range(EVERY):
                    far = x * EVERY + e
                    also = below(i_w + far, W)
                    big = read_rows(b + far * b_w, b_tile, on_b, also, b_h, DILATION[1], READS)
                    sums = add_column(sums, small, big, RG, S, SIDE, e, EVERY, DOWN)
                kept = small[: KEPT * SIDE]

    total = side_by_side(over_strips(sums, RG * S, BM, BK), RG * S, DEPTH, BK)
    j = tl.arange(0, 2**DEPTH)[None, :]
    inside = (k < K)[:, None] & (j < RG * S) & (r_0 + j // S < TAPS[1])
    where = r_0 * w_r + (k * w_k)[:, None]
    where += j if DENSE else j // S * w_r + j % S * w_s
    to_w = w + split.to(tl.int64) * w_z + w_0 + t * w_t
    tl.store(to_w + where, total.to(w.dtype.element_ty), inside)


def depthwise_taps_refusal(task: Task) -> str | None:
    reason = base.depthwise_wgrad_refusal(task)
    if reason is None and not depthwise_taps_tiles(task):
        return "no tile of several warps"
    return reason


def depthwise_taps_tiles(task: Task) -> tuple[Tile, ...]:
    return tuple(tile for tile in base.depthwise_wgrad_tiles(task) if tile.warps > 1)


def depthwise_taps_work(task: Task, tile: Tile) -> Work:
    taps = base.group_of_rows(task.geometry, tile) * task.geometry.filter[2]
    return base.sums_work(task, tile, -(-taps // TOGETHER) * TOGETHER)


def add_depthwise_taps(task: Task, tile: Tile) -> None:
    def launch(part: Tensor) -> Launch:
        return replace(base.part_launch(task, part, tile), kernel=depthwise_taps)

    add_in_parts(task.builder, task.result(), base.splits(task, tile), launch, MANY)


SPEC = KernelSpec(
    "depthwise_taps",
    serves=("correlate",),
    refusal=depthwise_taps_refusal,
    tiles=depthwise_taps_tiles,
    add=add_depthwise_taps,
    kernels=(depthwise_taps,),
    work=depthwise_taps_work,
    lines=lines.WGRAD,
    expects=Expectation(across_groups=True, loop=((377, 320, 320, 320),)),
)
