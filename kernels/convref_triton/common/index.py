"""Index arithmetic of every kernel: scalar and vector helpers, and the numbers the host sends.

It does not depend on how a tile is loaded, so that any kernel may call it.
"""

from __future__ import annotations

from collections.abc import Iterable

import triton
import triton.language as tl


def divisor(size: int) -> tuple[int, int]:
    """Return (magic, shift) with which `quotient` divides by `size` what is below 2**31.

    With L = ceil(log2(size)), magic = ceil(2**(31 + L) / size) is in [2**31, 2**32) and
    n // size = n * magic >> (31 + L). It is handed over as the int32 of the same bits.

    >>> divisor(1), divisor(7)
    ((-2147483648, 0), (-1840700269, 3))
    """
    shift = max(size - 1, 0).bit_length()
    magic = -(-(1 << (31 + shift)) // max(size, 1))
    return magic - (1 << 32), shift


def divisors(sizes: Iterable[int]) -> tuple[int, ...]:
    """Return the (magic, shift) of each size, one after the other."""
    return tuple(number for size in sizes for number in divisor(size))


@triton.jit
def quotient(n, magic, shift):
    """Return n // size of `divisor(size)`, for n in [0, 2**31)."""
    doubled = n.to(tl.uint32) * 2  # so that a size of 1 needs no case of its own
    return (tl.umulhi(doubled, magic.to(tl.uint32, bitcast=True)) >> shift).to(tl.int32)


@triton.jit
def tile_of(program, rows, columns, GROUP: tl.constexpr):
    """Return (row, column) of a tile: columns of GROUP rows each, so that neighbours share L2."""
    band = program // (GROUP * columns)
    first = band * GROUP
    height = tl.minimum(rows - first, GROUP)
    within = program - band * GROUP * columns
    return first + within % height, within // height


@triton.jit
def pixel(index, O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK: tl.constexpr):
    """Return (n, o, p, q) of a row-major pixel index; axes that RANK lacks are 0."""
    rest = index
    o, p, q = rest * 0, rest * 0, rest * 0
    if RANK >= 1:
        up = quotient(rest, q_magic, q_shift)
        q = rest - up * Q
        rest = up
    if RANK >= 2:
        up = quotient(rest, p_magic, p_shift)
        p = rest - up * P
        rest = up
    if RANK == 3:
        up = quotient(rest, o_magic, o_shift)
        o = rest - up * O
        rest = up
    return rest, o, p, q


@triton.jit
def taps_of(
    phase, R: tl.constexpr, STEP: tl.constexpr, COMMON: tl.constexpr, INVERSE: tl.constexpr
):
    """Return (first, count) of the taps r with r * dilation = phase modulo stride.

    COMMON is gcd(stride, dilation) and STEP stride / COMMON: the taps are every STEP-th one.
    INVERSE is that of dilation / COMMON modulo STEP. A phase without taps has the count 0.
    """
    first = phase // COMMON * INVERSE % STEP
    count = tl.maximum(R - first + STEP - 1, 0) // STEP
    return first, tl.where(phase % COMMON == 0, count, 0)


@triton.jit
def class_along(e, lo, taps, size, MOVE: tl.constexpr, CLASSES: tl.constexpr, STEP: tl.constexpr):
    """Return (corner, pixels, first, taps, read) of a class of pixels along one axis.

    Its pixels are every CLASSES-th one from `corner` on. They have every STEP-th tap from `first`
    on, at which the one at `corner` reads `read`. Classes are numbered by their first taps, so that
    those with the most taps come first, and those without any last.
    """
    first, apart = e % STEP, e // STEP
    DILATION: tl.constexpr = -MOVE * (CLASSES // STEP)
    phase = (first * DILATION + apart) % CLASSES
    corner = (phase - lo) % CLASSES
    corner += tl.where(corner < 0, CLASSES, 0)  # % has the sign of its left side
    met = tl.where(apart == 0, tl.cdiv(tl.maximum(taps - first, 0), STEP), 0)
    read = (corner + lo - first * DILATION) // CLASSES
    return corner, tl.cdiv(size - corner, CLASSES), first, met, read


@triton.jit
def class_of(e, lo, taps, sizes, MOVE: tl.constexpr, CLASSES: tl.constexpr, STEP: tl.constexpr):
    """Return what `class_along` does, each by axis, behind the images where it is sizes."""
    d, h, w = e // (CLASSES[1] * CLASSES[2]), e // CLASSES[2] % CLASSES[1], e % CLASSES[2]
    N, O, P, Q = sizes
    d, o, t, met_t, read_d = class_along(d, lo[0], taps[0], O, MOVE[0], CLASSES[0], STEP[0])
    h, p, r, met_r, read_h = class_along(h, lo[1], taps[1], P, MOVE[1], CLASSES[1], STEP[1])
    w, q, s, met_s, read_w = class_along(w, lo[2], taps[2], Q, MOVE[2], CLASSES[2], STEP[2])
    return (
        (d, h, w), (N, o, p, q), (t, r, s), (met_t, met_r, met_s), (read_d, read_h, read_w)
    )  # fmt: skip


@triton.jit
def below(position, size):
    """Return whether 0 <= position < size."""
    return position.to(tl.uint32, bitcast=True) < size.to(tl.uint32, bitcast=True)


@triton.jit
def across(pixels, TURN: tl.constexpr):
    """Return what each pixel has as a column; as a row where pixels are to run along rows."""
    if TURN:
        return pixels[None, :]
    else:
        return pixels[:, None]


@triton.jit
def along(channels, TURN: tl.constexpr):
    """Return what each channel has as a row; as a column where pixels are to run along rows."""
    if TURN:
        return channels[:, None]
    else:
        return channels[None, :]
