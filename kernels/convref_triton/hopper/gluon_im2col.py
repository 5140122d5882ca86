"""The product of `gluon_fprop` on rows of pixels that cross lines and images: tensor maps im2col.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

Rows are pixels of the result one after the other, whatever line or image they are of; the copy
engine walks over them `stride` apart, and a tap is how far aside it reads. No pixel of a tile but
of the last one is for nothing. The Gluon that this is written in is newer than the package's: what
it becomes is kept by `carried`, and nothing of it is compiled where it runs.
"""

from __future__ import annotations

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma as maps

from ..common.index import pixel
from .ring import PART, closed, in_parts, opened, place, product, shared_out, taken, turns

VECTOR = gl.constexpr(8)  # channels that strides of a result are counted in


@gluon.jit
def load_rows(x, n, d, h, v, c, t, r, s, came, block, RANK: gl.constexpr):
    """Start to load the rows of x from (n, d, h, v) on, as the tap that is (t, r, s) aside."""
    t, r, s = t.to(gl.int16), r.to(gl.int16), s.to(gl.int16)
    if RANK == 2:
        maps.async_load_im2col(x, [n, h, v, c], [r, s], came, block)
    else:
        maps.async_load_im2col(x, [n, d, h, v, c], [t, r, s], came, block)


@gluon.jit
def load(
    x, w, ring_of, tiles, rows, columns, magic, stride, lo, taps, aside, w_place, w_steps, C,
    RANK: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BAND: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Load all blocks of a program's tiles, in the order in which they are multiplied."""
    xs, ws, full, free, _ = ring_of
    w_first, w_row, w_column = w_place
    BYTES: gl.constexpr = x.block_type.nbytes + w.block_type.nbytes
    count = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        group, row, column = place(tile, rows, columns, BAND)
        n, o, p, q = pixel(row * BM, *magic, RANK)
        d, h, v = o * stride[0] - lo[0], p * stride[1] - lo[1], q * stride[2] - lo[2]
        w_at, first = group * w_row + column * BN, w_first + group * w_column
        for t in range(taps[0]):
            for r in range(taps[1]):
                for s in range(taps[2]):
                    tap = first + t * w_steps[0] + r * w_steps[1] + s * w_steps[2]
                    for c in range(0, C, BK):
                        slot, came = taken(full, free, count, BYTES, STAGES)
                        load_rows(
                            x, n, d, h, v, group * C + c, t * aside[0], r * aside[1],
                            s * aside[2], came, xs.index(slot), RANK,
                        )  # fmt: skip
                        maps.async_load(w, [w_at, tap + c], came, ws.index(slot))
                        count += 1


@gluon.jit
def multiply(
    WHICH: gl.constexpr, y, bias, ring_of, tiles, rows, columns, steps, M, K, groups, biased,
    READERS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, BAND: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute a group's tiles, or its rows of all tiles, and store them in parts."""
    K = K * VECTOR
    ROWS: gl.constexpr = BM // READERS
    TURNS: gl.constexpr = turns(READERS)
    OUT: gl.constexpr = gl.BlockedLayout([1, 8], [256 // PART, PART // 8], [4, 1], [1, 0])
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(WHICH % TURNS, tl.cdiv(tiles - program, programs), TURNS):
        tile = program + turn * programs
        acc = product(*ring_of, turn, steps, WHICH, READERS, BM, BN, BK, False, STAGES)
        group, row, column = place(tile, rows, columns, BAND)
        first = row * BM + WHICH % READERS * ROWS
        i = gl.arange(0, ROWS, gl.SliceLayout(1, OUT))  # (ROWS,)
        to_y = y + first.to(gl.int64) * (K * groups) + group * K
        parts = in_parts(acc, BN // PART)
        for part in gl.static_range(BN // PART):
            outs = column * BN + part * PART + gl.arange(0, PART, gl.SliceLayout(0, OUT))
            known = outs < K
            inside = (i < M - first)[:, None] & known[None, :]
            sums = gl.convert_layout(parts[part], OUT)
            more = gl.load(bias + group * K + outs, known & (biased > 0), other=0.0)
            sums += more.to(gl.float32)[None, :]
            at = (i * (K * groups))[:, None] + outs[None, :]
            gl.store(to_y + at, sums.to(y.dtype.element_ty), inside)


@gluon.jit
def gluon_im2col(
    x, w, y, bias,
    M, O, P, Q, C, K, groups, biased, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    stride_d, stride_h, stride_w, lo_d, lo_h, lo_w, taps_d, taps_h, taps_w,
    aside_d, aside_h, aside_w, w_first, w_row, w_column, w_d, w_h, w_w,
    RANK: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr, READERS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Compute every so-manieth tile of y, (BM pixels, BN channels); `biased` is whether bias is."""
    xs = gl.allocate_shared_memory(x.dtype, [STAGES] + x.block_type.shape, x.layout)
    ws = gl.allocate_shared_memory(w.dtype, [STAGES] + w.block_type.shape, w.layout)
    full, free, order = opened(STAGES, READERS)
    ring_of = (xs, ws, full, free, order)
    magic = (O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(K * VECTOR, BN)
    tiles = rows * columns * groups
    steps = taps_d * taps_h * taps_w * tl.cdiv(C, BK)
    shared_out(
        multiply, (
            y, bias, ring_of, tiles, rows, columns, steps, M, K, groups, biased, READERS,
            BM, BN, BK, BAND, STAGES,
        ),
        load, (
            x, w, ring_of, tiles, rows, columns, magic, (stride_d, stride_h, stride_w),
            (lo_d, lo_h, lo_w), (taps_d, taps_h, taps_w), (aside_d, aside_h, aside_w),
            (w_first, w_row, w_column), (w_d, w_h, w_w), C, RANK, BM, BN, BK, BAND, STAGES,
        ),
        REGISTERS,
    )  # fmt: skip
    closed(full, free, order, STAGES)
