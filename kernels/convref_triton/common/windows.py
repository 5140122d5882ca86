"""Device code of kernels that slide windows: the pixels of a tile, and the taps of each pixel.

Windows are either gathered, one for each pixel of the result, or the result is the big side: then
its pixels go by classes, those that are congruent modulo the stride, which have the same taps.
"""

from math import prod
from typing import NamedTuple

import triton
import triton.language as tl

from .geometry import Geometry, Three
from .index import pixel, taps_of

ONES = (1, 1, 1)
MAGIC = "o_magic o_shift p_magic p_shift q_magic q_shift"  # of `divisors`


class Window(NamedTuple):
    """The compile-time constants of a filter and its steps, by axis."""

    # As `Geometry` has them; the last three are 1, 1 and 0 where windows are gathered.
    filter: Three
    stride: Three
    dilation: Three
    step: Three
    common: Three
    inverse: Three
    scatter: bool  # whether the result is the big side
    move: Three  # distance between the positions that neighbouring taps read
    taps: Three  # taps of the class of pixels that has the most
    bits: int  # width of a mask with one bit a tap, 32 or 64; 0 where there are more taps


def window(geometry: Geometry, scatter: bool) -> Window:
    taps, move = geometry.filter, geometry.dilation
    step, common, inverse = ONES, ONES, (0, 0, 0)
    if scatter:
        step, common, inverse = geometry.step, geometry.common, geometry.inverse
        t, r, s = (-(-n // every) for n, every in zip(taps, step))
        d, h, w = (-(n // g) for n, g in zip(move, common))
        taps, move = (t, r, s), (d, h, w)
    bits = 32 if prod(taps) <= 32 else 64 if prod(taps) <= 64 else 0
    given = geometry.filter, geometry.stride, geometry.dilation
    return Window(*given, step, common, inverse, scatter, move, taps, bits)


@triton.jit
def strides(a, b, c, d, VEC: tl.constexpr, WIDE: tl.constexpr):
    """Return four strides in elements; offsets take their type, int64 if they are WIDE."""
    if WIDE:
        a, b, c, d = a.to(tl.int64), b.to(tl.int64), c.to(tl.int64), d.to(tl.int64)
    return a * VEC, b * VEC, c * VEC, d * VEC


@triton.jit
def unit(stride, IS_ONE: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr):
    """Return a stride in elements that may be the constant 1."""
    if IS_ONE:
        return 1
    elif WIDE:
        return stride.to(tl.int64) * VEC
    else:
        return stride * VEC


@triton.jit
def along_axis(e, lo, A: tl.constexpr, WINDOW: tl.constexpr):
    """Return (first, count, read, write) along axis A, for the pixels of class `e`.

    They have `count` taps from `first` on, at which pixel 0 of the class reads position `read`;
    pixel 0 is at `write`.
    """
    if WINDOW.scatter:
        stride: tl.constexpr = WINDOW.stride[A]
        first, count = taps_of(
            e, WINDOW.filter[A], WINDOW.step[A], WINDOW.common[A], WINDOW.inverse[A]
        )
        write = (e - lo) % stride
        write += tl.where(write < 0, stride, 0)  # % has the sign of its left side
        return first, count, (write + lo - first * WINDOW.dilation[A]) // stride, write
    else:
        return e * 0, e * 0 + WINDOW.filter[A], -lo, e * 0


@triton.jit
def rows_of(
    tile_m, e, M, pixels, lo, magic, RANK: tl.constexpr, WINDOW: tl.constexpr, BM: tl.constexpr
):
    """Return the pixels of class `e` that a tile has as rows.

    They are row numbers, the tile's first image, images counted from it, positions (o, p, q) that
    are written, (d, h, w) that the first tap reads, and the first tap and the count of each axis.
    """
    S: tl.constexpr = WINDOW.stride
    e_w, e = e % S[2], e // S[2]
    e_h, e_d = e % S[1], e // S[1]
    first_t, count_t, read_d, write_d = along_axis(e_d, lo[0], 0, WINDOW)
    first_r, count_r, read_h, write_h = along_axis(e_h, lo[1], 1, WINDOW)
    first_s, count_s, read_w, write_w = along_axis(e_w, lo[2], 2, WINDOW)
    rows = tile_m * BM + tl.arange(0, BM)  # (BM,)
    n, o, p, q = pixel(
        rows, pixels[0], pixels[1], pixels[2],
        magic[0], magic[1], magic[2], magic[3], magic[4], magic[5], RANK,
    )  # fmt: skip
    top, _, _, _ = pixel(
        tile_m * BM, pixels[0], pixels[1], pixels[2],
        magic[0], magic[1], magic[2], magic[3], magic[4], magic[5], RANK,
    )  # fmt: skip
    # Offsets count in 32 bits from the tile's first image.
    if WINDOW.scatter:
        d, h, w = o + read_d, p + read_h, q + read_w
        o, p, q = o * S[0] + write_d, p * S[1] + write_h, q * S[2] + write_w
    else:
        d, h, w = o * S[0] + read_d, p * S[1] + read_h, q * S[2] + read_w
    first, count = (first_t, first_r, first_s), (count_t, count_r, count_s)
    return rows, top, n - top, (o, p, q), (d, h, w), first, count


@triton.jit
def valid_taps(real, at, sizes, WINDOW: tl.constexpr):
    """Return one bit a tap, (t * R + r) * S + s, set where a real row's position exists."""
    MOVE: tl.constexpr = WINDOW.move
    T: tl.constexpr = WINDOW.taps[0]
    R: tl.constexpr = WINDOW.taps[1]
    S: tl.constexpr = WINDOW.taps[2]
    d, h, w = at
    D, H, W = sizes
    if WINDOW.bits == 0:
        return 0
    else:
        if WINDOW.bits == 64:
            bits, one = tl.zeros(w.shape, tl.int64), tl.full((), 1, tl.int64)
        else:
            bits, one = tl.zeros(w.shape, tl.int32), tl.full((), 1, tl.int32)
        for t in tl.static_range(T):
            on_d = real & (d + t * MOVE[0] >= 0) & (d + t * MOVE[0] < D)
            for r in tl.static_range(R):
                on_h = on_d & (h + r * MOVE[1] >= 0) & (h + r * MOVE[1] < H)
                for s in tl.static_range(S):
                    on = on_h & (w + s * MOVE[2] >= 0) & (w + s * MOVE[2] < W)
                    bits |= tl.where(on, one << ((t * R + r) * S + s), 0)
        return bits


@triton.jit
def is_valid(real, bits, t, r, s, at, sizes, WINDOW: tl.constexpr):
    """Return which rows have a position at the tap (t, r, s)."""
    if WINDOW.bits > 0:
        return ((bits >> ((t * WINDOW.taps[1] + r) * WINDOW.taps[2] + s)) & 1) != 0
    else:
        d, h, w = at[0] + t * WINDOW.move[0], at[1] + r * WINDOW.move[1], at[2] + s * WINDOW.move[2]
        D, H, W = sizes
        return real & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)


@triton.jit
def advance(pair, t, r, s, c, C, count, WINDOW: tl.constexpr, PAIRS: tl.constexpr):
    """Return the next (pair, t, r, s, c), c the fastest; an index of size 1 costs nothing."""
    c = tl.where(c < C, c, 0)
    carry = c == 0
    if WINDOW.taps[2] > 1:
        s += carry.to(tl.int32)
        carry &= s == count[2]
        s = tl.where(carry, 0, s)
    if WINDOW.taps[1] > 1:
        r += carry.to(tl.int32)
        carry &= r == count[1]
        r = tl.where(carry, 0, r)
    if WINDOW.taps[0] > 1:
        t += carry.to(tl.int32)
        carry &= t == count[0]
        t = tl.where(carry, 0, t)
    if PAIRS > 1:
        pair += carry.to(tl.int32)
    return pair, t, r, s, c
