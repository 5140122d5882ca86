"""The product of `gluon_fprop` on rows of pixels that cross lines and images: TMA im2col mode.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

A row is a pixel of the result, whatever its line and image. The tensor map visits pixels of x a
stride apart, and a tap is an offset of the copy, so that only the last tile has rows without a
pixel. This needs a newer Gluon than the package's: `precompiled` loads what Triton 3.8 compiled.
"""

from typing import NamedTuple

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma as maps

from ..common.index import pixel
from . import ring
from .arguments import Axes, Barriers, Filter
from .ring import EPILOGUE_N, accumulate, filters_at, split_columns

VECTOR = gl.constexpr(8)  # channels, the unit of the result's K


class Im2col(NamedTuple):
    """What both partitions of the kernel receive."""

    y: gl.tensor
    bias: gl.tensor
    xs: gl.shared_memory_descriptor
    ws: gl.shared_memory_descriptor
    barriers: Barriers
    tiles: gl.tensor
    rows: gl.tensor  # of tiles
    columns: gl.tensor  # of tiles
    steps: gl.tensor  # blocks of a tile
    M: gl.tensor
    K: gl.tensor
    groups: gl.tensor
    biased: gl.tensor
    x: gl.tensor
    w: gl.tensor
    pixels: gl.tuple  # O, P and Q with their divisors
    stride: Axes
    lo: Axes
    taps: Axes
    dilation: Axes
    filter: Filter
    C: gl.tensor


@gluon.jit
def load_rows(x, n, d, h, v, c, t, r, s, full, block, RANK: gl.constexpr):
    """Start to copy the rows of x from (n, d, h, v) on, for the tap at offset (t, r, s)."""
    t, r, s = t.to(gl.int16), r.to(gl.int16), s.to(gl.int16)
    if RANK == 2:
        maps.async_load_im2col(x, [n, h, v, c], [r, s], full, block)
    else:
        maps.async_load_im2col(x, [n, d, h, v, c], [t, r, s], full, block)


@gluon.jit
def load(args, CONFIG: gl.constexpr):
    x, w, stride, lo, dilation, matrix = (
        args.x, args.w, args.stride, args.lo, args.dilation, args.filter
    )  # fmt: skip
    BYTES: gl.constexpr = x.block_type.nbytes + w.block_type.nbytes
    count = 0
    for tile in range(gl.program_id(0), args.tiles, gl.num_programs(0)):
        group, row, column = ring.locate(tile, args.rows, args.columns, CONFIG.band)
        n, o, p, q = pixel(row * CONFIG.bm, *args.pixels, CONFIG.rank)
        d, h, v = o * stride.d - lo.d, p * stride.h - lo.h, q * stride.w - lo.w
        w_row, first = filters_at(matrix, group, column, CONFIG)
        for t in range(args.taps.d):
            for r in range(args.taps.h):
                for s in range(args.taps.w):
                    tap = first + t * matrix.tap.d + r * matrix.tap.h + s * matrix.tap.w
                    for c in range(0, args.C, CONFIG.bk):
                        stage, full = ring.acquire(args.barriers, count, BYTES, CONFIG.stages)
                        load_rows(
                            x, n, d, h, v, group * args.C + c, t * dilation.d, r * dilation.h,
                            s * dilation.w, full, args.xs.index(stage), CONFIG.rank,
                        )  # fmt: skip
                        if CONFIG.transposed:
                            maps.async_load(w, [w_row + c, tap], full, args.ws.index(stage))
                        else:
                            maps.async_load(w, [w_row, tap + c], full, args.ws.index(stage))
                        count += 1


@gluon.jit
def multiply(args, CONFIG: gl.constexpr, CONSUMER: gl.constexpr):
    K = args.K * VECTOR
    ROWS: gl.constexpr = CONFIG.bm // CONFIG.readers
    PARTS: gl.constexpr = CONFIG.bn // EPILOGUE_N
    TURNS: gl.constexpr = CONFIG.turns
    LAYOUT: gl.constexpr = gl.BlockedLayout(
        [1, 8], [256 // EPILOGUE_N, EPILOGUE_N // 8], [4, 1], [1, 0]
    )
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(CONSUMER % TURNS, tl.cdiv(args.tiles - program, programs), TURNS):
        tile = program + turn * programs
        acc = accumulate(
            args.xs, args.ws, args.barriers, turn, turn * args.steps, args.steps,
            CONFIG, CONSUMER, False,
        )  # fmt: skip
        group, row, column = ring.locate(tile, args.rows, args.columns, CONFIG.band)
        first = row * CONFIG.bm + CONSUMER % CONFIG.readers * ROWS
        i = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))  # (ROWS,)
        to_y = args.y + first.to(gl.int64) * (K * args.groups) + group * K
        parts = split_columns(acc, PARTS)
        for part in gl.static_range(PARTS):
            outs = column * CONFIG.bn + part * EPILOGUE_N
            outs += gl.arange(0, EPILOGUE_N, gl.SliceLayout(0, LAYOUT))
            known = outs < K
            inside = (i < args.M - first)[:, None] & known[None, :]
            out = gl.convert_layout(parts[part], LAYOUT)
            bias = gl.load(args.bias + group * K + outs, known & (args.biased > 0), other=0.0)
            out += bias.to(gl.float32)[None, :]
            at = (i * (K * args.groups))[:, None] + outs[None, :]
            gl.store(to_y + at, out.to(args.y.dtype.element_ty), inside)


@gluon.jit
def gluon_im2col(
    x, w, y, bias,
    M, O, P, Q, C, K, groups, biased, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    stride_d, stride_h, stride_w, lo_d, lo_h, lo_w, taps_d, taps_h, taps_w,
    dilation_d, dilation_h, dilation_w, w_first, w_row, w_column, w_d, w_h, w_w,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Compute every num_programs-th tile of y, (BM pixels, BN channels); `biased`: with a bias."""
    STAGES: gl.constexpr = CONFIG.stages
    xs = gl.allocate_shared_memory(x.dtype, [STAGES] + x.block_type.shape, x.layout)
    ws = gl.allocate_shared_memory(w.dtype, [STAGES] + w.block_type.shape, w.layout)
    barriers = ring.allocate_barriers(STAGES, CONFIG.readers)
    rows, columns = tl.cdiv(M, CONFIG.bm), tl.cdiv(K * VECTOR, CONFIG.bn)
    args = Im2col(
        y=y, bias=bias, xs=xs, ws=ws, barriers=barriers, tiles=rows * columns * groups, rows=rows,
        columns=columns, steps=taps_d * taps_h * taps_w * tl.cdiv(C, CONFIG.bk), M=M, K=K,
        groups=groups, biased=biased, x=x, w=w,
        pixels=(O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift),
        stride=Axes(stride_d, stride_h, stride_w), lo=Axes(lo_d, lo_h, lo_w),
        taps=Axes(taps_d, taps_h, taps_w), dilation=Axes(dilation_d, dilation_h, dilation_w),
        filter=Filter(w_first, w_row, w_column, Axes(w_d, w_h, w_w)), C=C,
    )  # fmt: skip
    ring.run_partitions(multiply, load, args, CONFIG)
    ring.invalidate(barriers, STAGES)
