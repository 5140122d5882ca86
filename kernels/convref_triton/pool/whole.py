"""The pool of one window that reads a whole image: a sum, or a maximum with its index.

y[n, c] = scale * sum over i of x[n, c, i]        or the last NaN, else the first largest x[n, c, i]

A program has one image and BN channels and reads BM pixels at a time, with a sum or a best row per
lane; then the lanes are reduced as a tree. `best_of` gives the same in either order.
"""

from math import prod

import triton
import triton.language as tl

from ..common import images
from ..common.geometry import LIMIT, Tensor, merge
from ..common.index import divisors, pixel
from ..common.windows import MAGIC, strides, unit
from ..plan.archs import SMS
from ..plan.builder import is_channels_last, slot, vector
from ..plan.launch import Launch
from ..plan.tile import Tile
from .windows import Form

RUNTIME = f"L O P Q C scale {MAGIC} x_n x_d x_h x_w x_c y_n y_c".split()
LAST = (Tile(32, 64, 1, 4, 1), Tile(64, 32, 1, 4, 1), Tile(128, 16, 1, 4, 1), Tile(256, 8, 1, 4, 1))
FIRST = (Tile(1024, 1, 1, 4, 1), Tile(256, 4, 1, 4, 1), Tile(64, 16, 1, 4, 1), Tile(64, 8, 1, 4, 1))


@triton.jit
def best_of(a, i, b, j):
    """Return the larger of two (value, index); a pair with index -1 is empty."""
    larger = (b > a) | ((b == a) & (j < i))
    later = (b != b) & ((a == a) | (j > i))
    second = (j >= 0) & ((i < 0) | larger | later)
    return tl.where(second, b, a), tl.where(second, j, i)


@triton.jit(do_not_specialize=RUNTIME)
def pool_whole_kernel(
    x, y, indices, L, O, P, Q, C, scale, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_d, x_h, x_w, x_c, y_n, y_c,
    RANK: tl.constexpr, MAX: tl.constexpr, UNIT: tl.constexpr, VEC: tl.constexpr,
    WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Pool BN channels of one image of L pixels, which strides see as (O, P, Q)."""
    x += tl.program_id(0).to(tl.int64) * x_n * VEC[0]
    x_n, x_d, x_h, x_w = strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    x_c = unit(x_c, UNIT[0], VEC[0], WIDE)
    if UNIT[1]:
        x_w = 1
    L, C = L * VEC[1], C * VEC[2]
    c = tl.program_id(1) * BN + tl.arange(0, BN)  # (BN,)
    known, channel = (c < C)[None, :], (c * x_c)[None, :]
    total = tl.full((BM, BN), float("-inf") if MAX else 0.0, tl.float32)
    at = tl.full((BM, BN), -1, tl.int32)
    for i in range(0, L, BM):
        rows = i + tl.arange(0, BM)  # (BM,)
        _, o, p, q = pixel(
            rows, O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK
        )
        if RANK == 1:
            q = rows
        on = (rows < L)[:, None] & known
        value = tl.load(x + (channel + (o * x_d + p * x_h + q * x_w)[:, None]), on, other=0.0)
        value = value.to(tl.float32)  # (BM, BN)
        if MAX:
            wins = on & ((value > total) | (value != value) | (at < 0))
            total, at = tl.where(wins, value, total), tl.where(wins, rows[:, None], at)
        else:
            total += value
    target = tl.program_id(0).to(tl.int64) * y_n + c * y_c.to(tl.int64)
    if MAX:
        found, at = tl.reduce((total, at), 0, best_of)
        tl.store(indices + target, at.to(tl.int64), c < C)
    else:
        found = tl.sum(total, 0) * scale
    tl.store(y + target, found.to(y.dtype.element_ty), c < C)


def is_whole(form: Form) -> bool:
    alone = prod(form.small) == 1 and prod(form.big) and form.scale
    reads = zip(form.big, form.size, form.dilation, form.lo, form.end)
    return bool(alone) and all(
        lo >= 0 and end == big and (dilation == 1 or big == 1 == taps) and taps - lo >= big
        for big, taps, dilation, lo, end in reads
    )


def whole_tiles(x: Tensor) -> tuple[Tile, ...]:
    n, channels = x.shape[:2]
    offered = images.wide_enough(LAST, x.dtype) if is_channels_last(x) else FIRST
    return images.ranked(offered, channels, lambda tile: n * -(-channels // tile.bn), SMS)


def whole_launch(x: Tensor, made: list[Tensor], form: Form, largest: bool, tile: Tile) -> Launch:
    n, c, *moves = x.steps
    rank, sizes = len(x.shape) - 2, form.big
    if one := merge(x):
        rank, sizes, moves = 1, (1, 1, prod(sizes)), [0, 0, one[3][1]]
    side = rank == 1 and moves[2] == 1 and (c != 1 or x.shape[1] == 1)
    c = 0 if x.shape[1] == 1 else c
    vec = vector(x.dtype, n, *([c] if side else moves), *([] if c == 1 else [c]))
    long = vector(x.dtype, prod(sizes)) if side else 1
    wide = vector(x.dtype, x.shape[1])
    y_n, y_c = made[0].strides[:2]
    numbers: tuple[float, ...] = (prod(sizes) // long, *sizes, x.shape[1] // wide, form.scale)
    numbers += (*divisors(sizes), n // vec)
    numbers += (0, 0, 1) if side else tuple(move // vec for move in moves)
    numbers += (c if c == 1 else c // vec, y_n, y_c)
    slots = {"x": slot(x), "y": slot(made[0])}
    slots |= {"indices": slot(made[1])} if largest else {}
    return Launch(
        pool_whole_kernel,
        (x.shape[0], -(-x.shape[1] // tile.bn), 1),
        slots | dict(zip(RUNTIME, numbers)),
        ({} if largest else {"indices": None})
        | {
            "RANK": rank,
            "MAX": largest,
            "UNIT": (c == 1, side),
            "VEC": (vec, long, wide),
            "WIDE": x.image_span >= LIMIT,
            "BM": tile.bm,
            "BN": tile.bn,
        },
        tile.warps,
        tile.stages,
    )
