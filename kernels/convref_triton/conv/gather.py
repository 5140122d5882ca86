"""The convolution of a window with a filter, as a matrix product that gathers its left side.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

Rows are output pixels, columns output channels, and the reduction runs over taps and channels, a
block of channels of one tap at a time; no matrix of columns is ever made. The adjoint (dx of a
convolution, y of a transposed one) is the same product once for each class of pixels that are
congruent modulo the stride: they meet the same taps, `index.taps_of`, and gather with stride 1.
A second pair of operands, as derivatives have it, doubles the reduction.
"""

from __future__ import annotations

from math import prod
from typing import Any

import triton
import triton.language as tl

from ..common.epilogue import finish
from ..common.geometry import LIMIT, Geometry, Tensor, filter_steps, merge
from ..common.index import divisor, pixel, taps_of, tile_of
from ..plan import cost, lines
from ..plan.builder import slots, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import PLAIN, Epilogue, Task
from ..plan.tile import Change, Tile, TileTable

SIZES = "M D H W O P Q OD OH OW C K lo_d lo_h lo_w"
MAGIC = "o_magic o_shift p_magic p_shift q_magic q_shift"
STEPS = "x_n x_g x_d x_h x_w x_c w_0 w_g w_t w_r w_s w_c w_k y_n y_g y_d y_h y_w y_c"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # of which no shape has a binary of its own
PARTS = ["steps", "y_z"]


@triton.jit
def axis(
    e, lo, A: tl.constexpr, FILTER: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
    STEP: tl.constexpr, COMMON: tl.constexpr, INVERSE: tl.constexpr, SCATTER: tl.constexpr,
):  # fmt: skip
    """Return (first, count, read, write) along axis A, for the pixels of class `e`.

    They meet `count` taps from `first` on, of which pixel 0 of the class reads position `read` at
    the first, and pixel 0 lies at `write`.
    """
    if SCATTER:
        first, count = taps_of(e, FILTER[A], STEP[A], COMMON[A], INVERSE[A])
        write = (e - lo) % STRIDE[A]
        write += tl.where(write < 0, STRIDE[A], 0)  # % has the sign of its left side
        return first, count, (write + lo - first * DILATION[A]) // STRIDE[A], write
    else:
        return e * 0, e * 0 + FILTER[A], -lo, e * 0


@triton.jit
def rows_of(
    tile_m, e, M, O, P, Q, lo_d, lo_h, lo_w, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    RANK: tl.constexpr, FILTER: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
    STEP: tl.constexpr, COMMON: tl.constexpr, INVERSE: tl.constexpr, SCATTER: tl.constexpr,
    BM: tl.constexpr,
):  # fmt: skip
    """Return the pixels of class `e` that a tile has as rows.

    They are row numbers, the tile's first image, images counted from it, positions (o, p, q) that
    are written, (d, h, w) that the first tap reads, and the first tap and the count of each axis.
    """
    e_w, e = e % STRIDE[2], e // STRIDE[2]
    e_h, e_d = e % STRIDE[1], e // STRIDE[1]
    first_t, count_t, read_d, write_d = axis(
        e_d, lo_d, 0, FILTER, STRIDE, DILATION, STEP, COMMON, INVERSE, SCATTER
    )
    first_r, count_r, read_h, write_h = axis(
        e_h, lo_h, 1, FILTER, STRIDE, DILATION, STEP, COMMON, INVERSE, SCATTER
    )
    first_s, count_s, read_w, write_w = axis(
        e_w, lo_w, 2, FILTER, STRIDE, DILATION, STEP, COMMON, INVERSE, SCATTER
    )
    rows = tile_m * BM + tl.arange(0, BM)  # (BM,)
    n, o, p, q = pixel(rows, O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK)
    top, _, _, _ = pixel(
        tile_m * BM, O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK
    )  # the tile's first image, from which offsets count in 32 bits
    if SCATTER:
        d, h, w = o + read_d, p + read_h, q + read_w
        o, p, q = o * STRIDE[0] + write_d, p * STRIDE[1] + write_h, q * STRIDE[2] + write_w
    else:
        d, h, w = o * STRIDE[0] + read_d, p * STRIDE[1] + read_h, q * STRIDE[2] + read_w
    first, count = (first_t, first_r, first_s), (count_t, count_r, count_s)
    return rows, top, n - top, (o, p, q), (d, h, w), first, count


@triton.jit
def valid_taps(real, d, h, w, D, H, W, MOVE: tl.constexpr, TAPS: tl.constexpr, BITS: tl.constexpr):
    """Return one bit a tap, (t * R + r) * S + s, set where a real row's position exists."""
    T: tl.constexpr = TAPS[0]
    R: tl.constexpr = TAPS[1]
    S: tl.constexpr = TAPS[2]
    if BITS == 64:
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
def is_valid(
    real, bits, t, r, s, d, h, w, D, H, W,
    MOVE: tl.constexpr, TAPS: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Return which rows have a position at the tap (t, r, s)."""
    if BITS > 0:
        return ((bits >> ((t * TAPS[1] + r) * TAPS[2] + s)) & 1) != 0
    else:
        d, h, w = d + t * MOVE[0], h + r * MOVE[1], w + s * MOVE[2]
        return real & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)


@triton.jit
def advance(
    pair, t, r, s, c, C, count_t, count_r, count_s, TAPS: tl.constexpr, PAIRS: tl.constexpr
):
    """Return the next (pair, t, r, s, c), c the fastest; what cannot move costs nothing."""
    c = tl.where(c < C, c, 0)
    carry = c == 0
    if TAPS[2] > 1:
        s += carry.to(tl.int32)
        carry &= s == count_s
        s = tl.where(carry, 0, s)
    if TAPS[1] > 1:
        r += carry.to(tl.int32)
        carry &= r == count_r
        r = tl.where(carry, 0, r)
    if TAPS[0] > 1:
        t += carry.to(tl.int32)
        carry &= t == count_t
        t = tl.where(carry, 0, t)
    if PAIRS > 1:
        pair += carry.to(tl.int32)
    return pair, t, r, s, c


@triton.jit
def place(index, blocks, count_t, count_r, count_s, BK: tl.constexpr):
    """Return the (pair, t, r, s, c) that `advance` has reached after `index` steps."""
    c, index = index % blocks * BK, index // blocks
    count_t, count_r, count_s = (
        tl.maximum(count_t, 1), tl.maximum(count_r, 1), tl.maximum(count_s, 1)
    )  # fmt: skip
    s, index = index % count_s, index // count_s
    r, index = index % count_r, index // count_r
    return index // count_t, index % count_t, r, s, c


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


@triton.jit(do_not_specialize=RUNTIME + PARTS)
def gather(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    M, D, H, W, O, P, Q, OD, OH, OW, C, K, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_g, x_d, x_h, x_w, x_c, w_0, w_g, w_t, w_r, w_s, w_c, w_k, y_n, y_g, y_d, y_h, y_w, y_c,
    steps, y_z,
    RANK: tl.constexpr, FILTER: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
    STEP: tl.constexpr, COMMON: tl.constexpr, INVERSE: tl.constexpr, SCATTER: tl.constexpr,
    MOVE: tl.constexpr, TAPS: tl.constexpr, PAIRS: tl.constexpr, BITS: tl.constexpr,
    INSIDE: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Compute a tile of y, (BM pixels, BN channels), from the pairs (x, w) and (x_2, w_2)."""
    # Strides come in vectors: only a product tells the compiler what divides them.
    image_x, image_y = x_n.to(tl.int64) * VEC[0], y_n.to(tl.int64) * VEC[2]
    group_x, group_y = x_g.to(tl.int64) * VEC[0], y_g.to(tl.int64) * VEC[2]
    x_n, x_d, x_h, x_w = strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    w_0, w_t, w_r, w_s = strides(w_0, w_t, w_r, w_s, VEC[1], WIDE)
    y_n, y_d, y_h, y_w = strides(y_n, y_d, y_h, y_w, VEC[2], WIDE)
    group_w, C, K = w_g.to(tl.int64) * VEC[1], C * VEC[3], K * VEC[4]
    x_c, y_c = unit(x_c, UNIT[0], 1, WIDE), unit(y_c, UNIT[2], 1, WIDE)
    w_c, w_k = unit(w_c, UNIT[1] == 1, VEC[1], WIDE), unit(w_k, UNIT[1] == 2, VEC[1], WIDE)

    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(K, BN), BAND)
    group, e, split = tl.program_id(1), tl.program_id(2), 0
    if SPLIT:  # each part of the reduction has a result of its own
        CLASSES: tl.constexpr = STRIDE[0] * STRIDE[1] * STRIDE[2] if SCATTER else 1
        split, e = e // CLASSES, e % CLASSES
    rows, top, n, written, read, first, count = rows_of(
        tile_m, e, M, O, P, Q, lo_d, lo_h, lo_w,
        o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
        RANK, FILTER, STRIDE, DILATION, STEP, COMMON, INVERSE, SCATTER, BM,
    )  # fmt: skip
    o, p, q = written
    i_d, i_h, i_w = read
    first_t, first_r, first_s = first
    count_t, count_r, count_s = count
    bits = 0
    if BITS > 0:
        bits = valid_taps(rows < M, i_d, i_h, i_w, D, H, W, MOVE, TAPS, BITS)

    cols = tl.arange(0, BK)  # (BK,)
    outs = tile_n * BN + tl.arange(0, BN)  # (BN,)
    from_x = top * image_x + group * group_x
    from_w = group * group_w + w_0 + first_t * w_t + first_r * w_r + first_s * w_s
    x_tile = (n * x_n + i_d * x_d + i_h * x_h + i_w * x_w)[:, None] + (cols * x_c)[None, :]
    known = outs >= 0
    column = tl.minimum(outs, K - 1)  # a column that is not stored may hold anything
    if UNIT[1] == 2:  # but where loads run along the columns, a mask keeps them wide
        known, column = outs < K, outs
    w_tile = (cols * w_c)[:, None] + (column * w_k)[None, :]

    acc = tl.zeros((BM, BN), tl.float32)
    pair, t, r, s, c = 0, 0, 0, 0, 0
    count = PAIRS * count_t * count_r * count_s * tl.cdiv(C, BK)
    if SPLIT:
        pair, t, r, s, c = place(split * steps, tl.cdiv(C, BK), count_t, count_r, count_s, BK)
        count = tl.minimum(count - split * steps, steps)
    for _ in range(count):
        here = (t * MOVE[0]) * x_d + (r * MOVE[1]) * x_h + (s * MOVE[2]) * x_w + c * x_c
        there = (t * STEP[0]) * w_t + (r * STEP[1]) * w_r + (s * STEP[2]) * w_s + c * w_c
        on_x, on_w = (rows < M)[:, None], known[None, :]
        if not INSIDE:
            on_x = is_valid(rows < M, bits, t, r, s, i_d, i_h, i_w, D, H, W, MOVE, TAPS, BITS)[
                :, None
            ]
        if not WHOLE:
            on_x &= (c + cols < C)[None, :]
            on_w &= (c + cols < C)[:, None]
        left, right = x, w
        if PAIRS == 2:
            left, right = tl.where(pair == 0, x, x_2), tl.where(pair == 0, w, w_2)
        a = tl.load(left + from_x + here + x_tile, on_x, other=0.0)  # (BM, BK)
        b = tl.load(right + from_w + there + w_tile, on_w, other=0.0)  # (BK, BN)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        pair, t, r, s, c = advance(pair, t, r, s, c + BK, C, count_t, count_r, count_s, TAPS, PAIRS)

    known = outs < K
    inside = ((rows < M) & (o < OD) & (p < OH) & (q < OW))[:, None] & known[None, :]
    y_tile = (n * y_n + o * y_d + p * y_h + q * y_w)[:, None] + (outs * y_c)[None, :]
    to_y = top * image_y + group * group_y
    if SPLIT:
        to_y += split.to(tl.int64) * y_z
    channel = group * K + outs
    acc = finish(
        acc, bias, scale, shift, residual, channel, known, to_y + y_tile, inside, ACTIVATION
    )
    tl.store(y + to_y + y_tile, acc.to(y.dtype.element_ty), inside)


IEEE = (  # float32 on the ordinary cores
    Tile(128, 64, 16, 8, 3),
    Tile(64, 64, 16, 4, 3),
    Tile(64, 32, 16, 4, 3),
    Tile(32, 32, 16, 4, 3),
)
TF32 = (
    Tile(128, 128, 32, 8, 4),
    Tile(128, 64, 32, 4, 4),
    Tile(64, 64, 32, 4, 4),
    Tile(64, 32, 32, 4, 3),
)
TILES = TileTable(
    {
        "f16 bf16": (
            Tile(128, 128, 64, 8, 4),
            Tile(128, 64, 64, 4, 4),
            Tile(64, 128, 64, 4, 4),
            Tile(64, 64, 64, 4, 4),
            Tile(128, 256, 64, 8, 3),
            Tile(256, 128, 64, 8, 3),
            Tile(128, 32, 64, 4, 4),
            Tile(64, 32, 32, 4, 4),
            Tile(64, 64, 32, 4, 4),
            Tile(32, 32, 32, 4, 3),
        ),
        "ieee": IEEE,
        "tf32": TF32,
        "tf32x3": (Tile(128, 64, 32, 8, 4), *TF32[2:]),  # four warps would spill
    },
    short={
        "f16 bf16": (Tile(64, 64, 32, 4, 4), Tile(64, 32, 32, 4, 4), Tile(32, 32, 32, 4, 3)),
        "tf32": (TF32[0], TF32[2]),
        "tf32x3": TF32[2:],
    },
    tallest=128,
    blocks=1,
    changes=(  # mma.sync takes both operands from registers, and wgmma neither
        Change("sm_8", "f16 bf16", Tile(256, 128, 64, 8, 3)),
        Change("sm_8", "f16 bf16", Tile(128, 256, 64, 8, 3), below=16),
        Change("sm_8", "f16 bf16", Tile(64, 32, 32, 4, 4), 8, Tile(64, 32, 32, 8, 4)),
        Change("sm_8", "tf32", Tile(128, 128, 32, 8, 4), below=8),
        Change("sm_8", "tf32 tf32x3", Tile(64, 32, 32, 4, 3), instead=Tile(64, 32, 32, 8, 3)),
        Change("sm_8", "tf32x3", Tile(64, 64, 32, 4, 4), instead=Tile(64, 64, 32, 8, 4)),
    ),
)


def gather_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles that serve a task."""
    return TILES.of(task, task.width)


def gather_tile_count(task: Task, tile: Tile) -> int:
    """Return how many tiles the result has."""
    return -(-task.rows // tile.bm) * -(-task.channels[1] // tile.bn) * task.copies


def gather_steps(task: Task, tile: Tile) -> int:
    """Return the steps of a tile: blocks of channels of each tap and pair."""
    return (
        len(task.pairs) * taps_met(task.geometry, task.scatters) * -(-task.channels[0] // tile.bk)
    )


def gather_work(task: Task, tile: Tile) -> Work:
    """Return what the kernel does for a task on a tile."""
    count, steps = gather_tile_count(task, tile), gather_steps(task, tile)
    return cost.block_work(task, tile, count, steps, reached=0.7, vector=task.width, per_vector=16)


def add_gather(task: Task, tile: Tile) -> None:
    """Add the launch that computes a task."""
    pairs, y = task.aligned_pairs(), task.result()
    stored, scatter = task.stored(y), task.kind == "scatter"
    epilogue = task.epilogue(stored)
    made = gather_launch(task.geometry, pairs, stored, scatter, tile, task.math, epilogue)
    task.builder.steps.append(made)
    task.finish(stored, y)


ONES = (1, 1, 1)


def gather_launch(
    geometry: Geometry,
    pairs: tuple[tuple[Tensor, Tensor], ...],
    y: Tensor,
    scatter: bool,
    tile: Tile,
    precision: str = "ieee",
    epilogue: Epilogue = PLAIN,
    splits: int = 1,
) -> Launch:
    """Return the launch that computes y from at most two (x, w), of equal strides each.

    Parameters
    ----------
    geometry : Geometry
    pairs : tuple of (Tensor, Tensor)
    y : Tensor
    scatter : bool
        Whether y is the big side.
    tile : Tile
    precision : str
        What `tl.dot` may do to float32.
    epilogue : Epilogue
    splits : int
        Parts that the reduction is cut into; y is then the first of as many that follow one
        another.
    """
    x, w = pairs[0] if pairs else (y, y)  # of no products nothing is read
    x_2, w_2 = pairs[1] if len(pairs) > 1 else (None, None)
    read, written = geometry.big, geometry.small
    c, k = geometry.big_channels, geometry.small_channels
    if scatter:
        read, written, c, k = written, read, k, c
    classes = geometry.stride if scatter else ONES
    pixels = tuple(-(-size // stride) for size, stride in zip(written, classes))
    images, rank, x_steps, y_steps = geometry.n, geometry.rank, x.steps, y.steps
    if geometry.pointwise and pairs and (one := merge(x, y)):
        images, rank, pixels, (x_n, x_w, y_n, y_w) = one
        read = written = pixels
        x_steps, y_steps = (x_n, x.steps[1], 0, 0, x_w), (y_n, y.steps[1], 0, 0, y_w)
    w_steps = filter_steps(geometry, w, scatter) if pairs else (0,) * 7
    unit_w = 1 if w_steps[5] == 1 else 2 if w_steps[6] == 1 else 0
    steps, vec = in_vectors(x.dtype, x_steps, w_steps, y_steps, c, k, unit_w)
    rows = images * prod(pixels)
    wide = max(_reach(t, s, tile, pixels) for t, s in ((x, x_steps), (y, y_steps))) >= LIMIT
    tensors = {"x": x, "w": w, "x_2": x_2, "w_2": w_2, "y": y, **epilogue.tensors}
    given, absent = slots({name: tensors[name] for name in gather.arg_names[:9]})
    sizes = dict(
        zip(RUNTIME, (rows, *read, *pixels, *written, c // vec[3], k // vec[4], *geometry.lo))
    )
    for name, size in zip("opq", pixels):
        sizes |= zip((f"{name}_magic", f"{name}_shift"), divisor(size))
    taps = classes_of(geometry, scatter)
    each = -(-len(pairs) * taps_met(geometry, scatter) * -(-c // tile.bk) // splits)
    sizes |= {"steps": each, "y_z": prod(y.shape)}
    return Launch(
        gather,
        (-(-rows // tile.bm) * -(-k // tile.bn), geometry.groups, prod(classes) * splits),
        given | sizes | steps,
        absent
        | taps
        | {
            "RANK": rank,
            "PAIRS": len(pairs),
            "INSIDE": geometry.inside and not scatter,
            "WHOLE": c % tile.bk == 0,
            "WIDE": wide or w.span >= LIMIT,
            "UNIT": (x_steps[1] == 1, unit_w, y_steps[1] == 1),
            "VEC": vec,
            "BM": tile.bm,
            "BN": tile.bn,
            "BK": tile.bk,
            "BAND": tile.band,
            "PRECISION": precision,
            "ACTIVATION": epilogue.activation,
            "SPLIT": splits > 1,
        },
        tile.warps,
        tile.stages,
    )


def classes_of(geometry: Geometry, scatter: bool) -> dict[str, Any]:
    """Return the constants of the taps: those of each class of pixels where there are classes."""
    taps, move = geometry.filter, geometry.dilation
    step, common, inverse = ONES, ONES, (0, 0, 0)
    if scatter:
        step, common, inverse = geometry.step, geometry.common, geometry.inverse
        taps = tuple(-(-t // s) for t, s in zip(taps, step))
        move = tuple(-(d // g) for d, g in zip(move, common))
    return {
        "FILTER": geometry.filter,
        "STRIDE": geometry.stride,
        "DILATION": geometry.dilation,
        "STEP": step,
        "COMMON": common,
        "INVERSE": inverse,
        "SCATTER": scatter,
        "MOVE": move,
        "TAPS": taps,
        "BITS": 32 if prod(taps) <= 32 else 64 if prod(taps) <= 64 else 0,
    }


def taps_met(geometry: Geometry, scatter: bool) -> int:
    """Return how many taps a pixel meets, one of the class that meets the most."""
    return prod(classes_of(geometry, scatter)["TAPS"])


def in_vectors(
    dtype: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    y: tuple[int, ...],
    c: int,
    k: int,
    unit_w: int,
) -> tuple[dict[str, int], tuple[int, ...]]:
    """Return the kernel's strides, counted in vectors, and the width of (x, w, y, c, k)'s."""
    x_n, x_c, *x_pixel = x
    y_n, y_c, *y_pixel = y
    x_moves, y_moves = (x_n, x_c * c, *x_pixel), (y_n, y_c * k, *y_pixel)
    w_moves = (*w[:5], w[5] * (unit_w != 1), w[6] * (unit_w != 2))
    vec = tuple(vector(dtype, *steps) for steps in (x_moves, w_moves, y_moves, (c,), (k,)))
    steps = {}
    for letter, width, moves in (("x", vec[0], x_moves), ("y", vec[2], y_moves)):
        steps |= zip((f"{letter}_{axis}" for axis in "ngdhw"), (step // width for step in moves))
    steps |= zip((f"w_{axis}" for axis in "0gtrsck"), (step // vec[1] for step in w_moves))
    return steps | {"x_c": x_c, "y_c": y_c}, vec


def _reach(tensor: Tensor, steps: tuple[int, ...], tile: Tile, pixels: tuple[int, ...]) -> int:
    """Return how far the elements of a tile may lie from its first image, at most."""
    images = tile.bm // max(prod(pixels), 1) + 2
    return min(tensor.span, images * abs(steps[0]) + tensor.image_span)


SPEC = KernelSpec(
    "gather",
    serves=("gather", "scatter"),
    refusal=lambda task: None,
    tiles=gather_tiles,
    add=add_gather,
    kernels=(gather,),
    work=gather_work,
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(
        products=1,
        serialised=(
            "grouped fprop_1x1 16 128x128x64 w8 s4",
            "fprop_1x1 16 128x256x64 w8 s3",
            "fprop_1x1 32 128x128x32 w8 s4",
            "grouped fprop_1x1 32 128x128x32 w8 s4",
        ),
        loop={
            "sm_90": (313, 775, 354, 667),
            "sm_80": (379, 747, 403, 878),
            "gfx942": (258, 181, 275),
        },
    ),
)
