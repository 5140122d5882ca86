"""Pools: the largest or the mean of what each window reads, and their derivatives, by gathering.

y[n, c, p]  = max or mean over the positions i of window p of x[n, c, i]
dx[n, c, i] = sum over the windows p that read i of dy[n, c, p] / D[p]           of a mean
            = sum over those p whose index is i of dy[n, c, p]                   of a maximum

Rows are pixels of the result, columns channels, and a loop runs over taps: over positions of a
window, or over the windows that may read a position. Padding is absence, so a tap without a
position is masked. Each result is written once, by one program, with its sum in a fixed order.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import triton
import triton.language as tl

from convref.case import Call
from convref.ops import AdaptiveAxis, AdaptivePoolProblem, AvgPoolProblem

from ..common import images
from ..common.geometry import LIMIT, Tensor, Three
from ..common.index import pixel, quotient
from ..common.windows import strides, unit
from ..plan.builder import slots, vector
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile
from . import whole

SIZES = "M O P Q D H W C end_d end_h end_w lo_d lo_h lo_w"
COUNTS = "least_d least_h least_w most_d most_h most_w size_d size_h size_w"
LOOP = "taps taps_d taps_h taps_w scale"
MAGIC = "o_magic o_shift p_magic p_shift q_magic q_shift"
OTHER = "d_magic d_shift h_magic h_shift w_magic w_shift"
STEPS = "x_n x_d x_h x_w x_c v_n v_d v_h v_w v_c y_n y_d y_h y_w y_c"
RUNTIME = f"{SIZES} {COUNTS} {LOOP} {MAGIC} {OTHER} {STEPS}".split()


@triton.jit
def first_read(p, other, lo, magic, shift, STRIDE: tl.constexpr, ADAPTIVE: tl.constexpr):
    """Return the first position of window p; of an adaptive one, floor(p * other / own)."""
    if ADAPTIVE:
        return quotient(p * other, magic, shift)
    else:
        return p * STRIDE - lo


@triton.jit
def last_read(p, own, other, end, magic, shift, ADAPTIVE: tl.constexpr):
    """Return the position that ends window p, ceil((p + 1) * other / own), or all windows."""
    if ADAPTIVE:
        return quotient((p + 1) * other + own - 1, magic, shift)
    else:
        return p * 0 + end


@triton.jit
def counted(
    p, own, other, lo, least, most, taps, magic, shift,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, ADAPTIVE: tl.constexpr,
):  # fmt: skip
    """Return how many taps of window p its divisor counts along an axis."""
    first = first_read(p, other, lo, magic, shift, STRIDE, ADAPTIVE)
    if ADAPTIVE:
        return last_read(p, own, other, 0, magic, shift, True) - first
    else:
        low = tl.cdiv(tl.maximum(least - first, 0), DILATION)
        high = tl.minimum(tl.cdiv(tl.maximum(most - first, 0), DILATION), taps)
        return high - low


@triton.jit
def shares(
    place, own, other, lo, least, most, taps, magic,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, ADAPTIVE: tl.constexpr,
):  # fmt: skip
    """Return 1 / D of the windows `place`, rounded to nearest; an empty one divides by 1."""
    count = tl.full(place[2].shape, 1.0, tl.float32)
    for a in tl.static_range(3):
        along = counted(
            place[a], own[a], other[a], lo[a], least[a], most[a], taps[a],
            magic[2 * a], magic[2 * a + 1], STRIDE[a], DILATION[a], ADAPTIVE,
        )  # fmt: skip
        count *= tl.maximum(along, 1).to(tl.float32)
    return tl.div_rn(tl.full(count.shape, 1.0, tl.float32), count)


@triton.jit
def lanes(M, own, magic, C, RANK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return the channels and pixels (n, o, p, q) of a tile, its first image, and what is real.

    Images count from the tile's first one, from where offsets have 32 bits.
    """
    columns = tl.cdiv(C, BN)
    start = tl.program_id(0) // columns * BM
    c = tl.program_id(0) % columns * BN + tl.arange(0, BN)  # (BN,)
    rows = start + tl.arange(0, BM)  # (BM,)
    top, _, _, _ = pixel(
        start, own[0], own[1], own[2],
        magic[0], magic[1], magic[2], magic[3], magic[4], magic[5], RANK,
    )  # fmt: skip
    n, o, p, q = pixel(
        rows, own[0], own[1], own[2],
        magic[0], magic[1], magic[2], magic[3], magic[4], magic[5], RANK,
    )  # fmt: skip
    return c, n - top, (o, p, q), top.to(tl.int64), rows < M, (c < C)[None, :]


@triton.jit
def offsets(c, c_step, n, n_step, place, steps):
    """Return the offsets (BM, BN) of a tile from its first image."""
    return (c * c_step)[None, :] + (
        n * n_step + place[0] * steps[0] + place[1] * steps[1] + place[2] * steps[2]
    )[:, None]


@triton.jit
def visit(
    x, x_dot, tile, tile_dot, t, r, s, first, stop, real, known, H, W, x_steps, v_steps,
    best, dot, at, DILATION: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Return (best, dot, at) after one tap of all windows of a tile.

    A later position wins if it is larger or NaN, so that the first maximum stays, and the last NaN.
    """
    d, h, w = first[0] + t * DILATION[0], first[1] + r * DILATION[1], first[2] + s * DILATION[2]
    on = real & (d >= 0) & (d < stop[0]) & (h >= 0) & (h < stop[1]) & (w >= 0) & (w < stop[2])
    here = (t * DILATION[0]) * x_steps[0] + (r * DILATION[1]) * x_steps[1]
    here += (s * DILATION[2]) * x_steps[2]
    inside = on[:, None] & known
    new = tl.load(x + here + tile, inside, other=0.0).to(tl.float32)  # (BM, BN)
    if MAX:
        wins = on[:, None] & ((new > best) | (new != new) | (at < 0))
        best, at = tl.where(wins, new, best), tl.where(wins, ((d * H + h) * W + w)[:, None], at)
        if x_dot is not None:
            here = (t * DILATION[0]) * v_steps[0] + (r * DILATION[1]) * v_steps[1]
            here += (s * DILATION[2]) * v_steps[2]
            new = tl.load(x_dot + here + tile_dot, inside, other=0.0).to(tl.float32)
            dot = tl.where(wins, new, dot)
    else:
        best += new
    return best, dot, at


@triton.jit(do_not_specialize=RUNTIME)
def pool(
    x, x_dot, y, y_dot, indices,
    M, O, P, Q, D, H, W, C, end_d, end_h, end_w, lo_d, lo_h, lo_w,
    least_d, least_h, least_w, most_d, most_h, most_w, size_d, size_h, size_w,
    taps, taps_d, taps_h, taps_w, scale,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    d_magic, d_shift, h_magic, h_shift, w_magic, w_shift,
    x_n, x_d, x_h, x_w, x_c, v_n, v_d, v_h, v_w, v_c, y_n, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr, FILTER: tl.constexpr,
    COUNT: tl.constexpr, ADAPTIVE: tl.constexpr, MAX: tl.constexpr, EVEN: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Pool BM windows of BN channels; a maximum takes x_dot and its index along."""
    image_x, image_v, image_y = x_n.to(tl.int64), v_n.to(tl.int64), y_n.to(tl.int64)
    x_n, x_d, x_h, x_w = strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    v_n, v_d, v_h, v_w = strides(v_n, v_d, v_h, v_w, VEC[1], WIDE)
    y_n, y_d, y_h, y_w = strides(y_n, y_d, y_h, y_w, VEC[2], WIDE)
    x_c, v_c = unit(x_c, UNIT[0], 1, WIDE), unit(v_c, UNIT[1], 1, WIDE)
    y_c = unit(y_c, UNIT[2], 1, WIDE)
    x_steps, v_steps, y_steps = (x_d, x_h, x_w), (v_d, v_h, v_w), (y_d, y_h, y_w)
    own, other, lo, end = (O, P, Q), (D, H, W), (lo_d, lo_h, lo_w), (end_d, end_h, end_w)
    least, most = (least_d, least_h, least_w), (most_d, most_h, most_w)
    filter, magic = (size_d, size_h, size_w), (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    c, n, place, top, real, known = lanes(M, own, magic, C * VEC[3], RANK, BM, BN)
    to_y = top * image_y * VEC[2]
    tile_y = offsets(c, y_c, n, y_n, place, y_steps)
    first, stop = (), ()
    for a in tl.static_range(3):
        first += (
            first_read(
                place[a], other[a], lo[a], magic[2 * a], magic[2 * a + 1], STRIDE[a], ADAPTIVE
            ),
        )
        stop += (
            last_read(place[a], own[a], other[a], end[a], magic[2 * a], magic[2 * a + 1], ADAPTIVE),
        )
    from_x, tile = x + top * image_x * VEC[0], offsets(c, x_c, n, x_n, first, x_steps)
    from_v, tile_dot = None, tile
    if x_dot is not None:
        from_v = x_dot + top * image_v * VEC[1]
        tile_dot = offsets(c, v_c, n, v_n, first, v_steps)

    best = tl.full((BM, BN), float("-inf") if MAX else 0.0, tl.float32)
    dot, at = tl.zeros((BM, BN), tl.float32), tl.full((BM, BN), -1, tl.int32)
    if COUNT > 0:
        for tap in tl.static_range(COUNT):
            best, dot, at = visit(
                from_x, from_v, tile, tile_dot, tap // (FILTER[1] * FILTER[2]),
                tap // FILTER[2] % FILTER[1], tap % FILTER[2], first, stop, real, known, H, W,
                x_steps, v_steps, best, dot, at, DILATION, MAX,
            )  # fmt: skip
    else:
        for tap in range(taps):
            best, dot, at = visit(
                from_x, from_v, tile, tile_dot, tap // (taps_h * taps_w),
                tap // taps_w % taps_h, tap % taps_w, first, stop, real, known, H, W,
                x_steps, v_steps, best, dot, at, DILATION, MAX,
            )  # fmt: skip
    if not MAX:
        if EVEN:
            best *= scale
        else:
            share = shares(
                place, own, other, lo, least, most, filter, magic, STRIDE, DILATION, ADAPTIVE
            )
            best *= share[:, None]
    inside = real[:, None] & known
    tl.store(y + to_y + tile_y, best.to(y.dtype.element_ty), inside)
    if y_dot is not None:
        tl.store(y_dot + to_y + tile_y, dot.to(y_dot.dtype.element_ty), inside)
    if indices is not None:
        tl.store(indices + to_y + tile_y, at.to(tl.int64), inside)


@triton.jit
def meets(
    i, p, small, stop, lo, taps,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, ADAPTIVE: tl.constexpr,
):  # fmt: skip
    """Return whether window p exists and reads position i, along an axis."""
    if ADAPTIVE:
        return p < stop
    else:
        rest = i + lo - p * STRIDE
        on = (p >= 0) & (p < small) & (rest >= 0) & (rest <= (taps - 1) * DILATION)
        if DILATION > 1:
            on = on & (rest % DILATION == 0)
        return on


@triton.jit
def return_to(
    dy, indices, tile, tile_at, t, r, s, i, first, stop, own, other, lo, least, most, filter,
    others, real, known, x_steps, v_steps, total,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, ADAPTIVE: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return `total` with what one window of each position sends back to it."""
    p = (first[0] + t, first[1] + r, first[2] + s)
    on = real
    for a in tl.static_range(3):
        on = on & meets(
            i[a], p[a], other[a], stop[a], lo[a], filter[a], STRIDE[a], DILATION[a], ADAPTIVE
        )
    inside = on[:, None] & known
    here = t * x_steps[0] + r * x_steps[1] + s * x_steps[2]
    value = tl.load(dy + here + tile, inside, other=0.0).to(tl.float32)  # (BM, BN)
    if indices is not None:
        here = t * v_steps[0] + r * v_steps[1] + s * v_steps[2]
        chosen = tl.load(indices + here + tile_at, inside, other=-1)
        mine = ((i[0] * own[1] + i[1]) * own[2] + i[2])[:, None]
        value = tl.where(chosen == mine.to(tl.int64), value, 0.0)
    elif not EVEN:
        share = shares(p, other, own, lo, least, most, filter, others, STRIDE, DILATION, ADAPTIVE)
        value *= share[:, None]
    return total + value


@triton.jit(do_not_specialize=RUNTIME)
def spread(
    dy, indices, dx,
    M, O, P, Q, D, H, W, C, end_d, end_h, end_w, lo_d, lo_h, lo_w,
    least_d, least_h, least_w, most_d, most_h, most_w, size_d, size_h, size_w,
    taps, taps_d, taps_h, taps_w, scale,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    d_magic, d_shift, h_magic, h_shift, w_magic, w_shift,
    x_n, x_d, x_h, x_w, x_c, v_n, v_d, v_h, v_w, v_c, y_n, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr, FILTER: tl.constexpr,
    COUNT: tl.constexpr, ADAPTIVE: tl.constexpr, MAX: tl.constexpr, EVEN: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Gather what BM positions of BN channels get back from the windows that read them."""
    image_x, image_v, image_y = x_n.to(tl.int64), v_n.to(tl.int64), y_n.to(tl.int64)
    x_n, x_d, x_h, x_w = strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    v_n, v_d, v_h, v_w = strides(v_n, v_d, v_h, v_w, VEC[1], WIDE)
    y_n, y_d, y_h, y_w = strides(y_n, y_d, y_h, y_w, VEC[2], WIDE)
    x_c, v_c = unit(x_c, UNIT[0], 1, WIDE), unit(v_c, UNIT[1], 1, WIDE)
    y_c = unit(y_c, UNIT[2], 1, WIDE)
    x_steps, v_steps, y_steps = (x_d, x_h, x_w), (v_d, v_h, v_w), (y_d, y_h, y_w)
    own, other, lo, end = (O, P, Q), (D, H, W), (lo_d, lo_h, lo_w), (end_d, end_h, end_w)
    least, most = (least_d, least_h, least_w), (most_d, most_h, most_w)
    filter, magic = (size_d, size_h, size_w), (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    c, n, place, top, real, known = lanes(M, own, magic, C * VEC[3], RANK, BM, BN)
    to_y = top * image_y * VEC[2]
    tile_y = offsets(c, y_c, n, y_n, place, y_steps)
    others, reach = (d_magic, d_shift, h_magic, h_shift, w_magic, w_shift), (taps_d, taps_h, taps_w)
    written, first, stop = real, (), ()
    for a in tl.static_range(3):
        if ADAPTIVE:  # who reads whom is symmetric
            p = first_read(place[a], other[a], 0, magic[2 * a], magic[2 * a + 1], 1, True)
            q = last_read(place[a], own[a], other[a], 0, magic[2 * a], magic[2 * a + 1], True)
            first, stop = first + (p,), stop + (q,)
        else:
            p = (place[a] + lo[a]) // STRIDE[a] - (reach[a] - 1)
            first, stop = first + (p,), stop + (p,)
        real = real & (place[a] < end[a])
    from_dy, tile = dy + top * image_x * VEC[0], offsets(c, x_c, n, x_n, first, x_steps)
    from_at, tile_at = None, tile
    if MAX:
        from_at = indices + top * image_v * VEC[1]
        tile_at = offsets(c, v_c, n, v_n, first, v_steps)
    total = tl.zeros((BM, BN), tl.float32)
    if COUNT > 0:
        for tap in tl.static_range(COUNT):
            total = return_to(
                from_dy, from_at, tile, tile_at, tap // (FILTER[1] * FILTER[2]),
                tap // FILTER[2] % FILTER[1], tap % FILTER[2], place, first, stop, own, other, lo,
                least, most, filter, others, real, known, x_steps, v_steps, total,
                STRIDE, DILATION, ADAPTIVE, EVEN,
            )  # fmt: skip
    else:
        for tap in range(taps):
            total = return_to(
                from_dy, from_at, tile, tile_at, tap // (taps_h * taps_w),
                tap // taps_w % taps_h, tap % taps_w, place, first, stop, own, other, lo,
                least, most, filter, others, real, known, x_steps, v_steps, total,
                STRIDE, DILATION, ADAPTIVE, EVEN,
            )  # fmt: skip
    if EVEN and not MAX:
        total *= scale
    inside = written[:, None] & known
    tl.store(dx + to_y + tile_y, total.to(dx.dtype.element_ty), inside)


@triton.jit(do_not_specialize=RUNTIME)
def pick(
    x, indices, y,
    M, O, P, Q, D, H, W, C, end_d, end_h, end_w, lo_d, lo_h, lo_w,
    least_d, least_h, least_w, most_d, most_h, most_w, size_d, size_h, size_w,
    taps, taps_d, taps_h, taps_w, scale,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    d_magic, d_shift, h_magic, h_shift, w_magic, w_shift,
    x_n, x_d, x_h, x_w, x_c, v_n, v_d, v_h, v_w, v_c, y_n, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr, FILTER: tl.constexpr,
    COUNT: tl.constexpr, ADAPTIVE: tl.constexpr, MAX: tl.constexpr, EVEN: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Copy to BM windows of BN channels what stands at their indices, 0 where there is none."""
    image_x, image_v, image_y = x_n.to(tl.int64), v_n.to(tl.int64), y_n.to(tl.int64)
    x_n, x_d, x_h, x_w = strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    v_n, v_d, v_h, v_w = strides(v_n, v_d, v_h, v_w, VEC[1], WIDE)
    y_n, y_d, y_h, y_w = strides(y_n, y_d, y_h, y_w, VEC[2], WIDE)
    x_c, v_c = unit(x_c, UNIT[0], 1, WIDE), unit(v_c, UNIT[1], 1, WIDE)
    y_c = unit(y_c, UNIT[2], 1, WIDE)
    v_steps, y_steps = (v_d, v_h, v_w), (y_d, y_h, y_w)
    own, magic = (O, P, Q), (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    c, n, place, top, real, known = lanes(M, own, magic, C * VEC[3], RANK, BM, BN)
    to_y = top * image_y * VEC[2]
    tile_y = offsets(c, y_c, n, y_n, place, y_steps)
    tile = offsets(c, v_c, n, v_n, place, v_steps)
    inside = real[:, None] & known
    at = tl.load(indices + top * image_v * VEC[1] + tile, inside, other=-1)  # (BM, BN)
    there = inside & (at >= 0) & (at < D * H * W)
    at = tl.where(there, at, 0).to(tl.int32)
    up = quotient(at, w_magic, w_shift)
    d = quotient(up, h_magic, h_shift)
    tile = (c * x_c)[None, :] + (n * x_n)[:, None]
    tile += d * x_d + (up - d * H) * x_h + (at - up * W) * x_w
    value = tl.load(x + top * image_x * VEC[0] + tile, there, other=0.0)
    tl.store(y + to_y + tile_y, value, inside)


UNROLLED = 27  # taps that are unrolled: of 3x3x3; more would not fit the registers


class Form(NamedTuple):
    """How windows lie, along (d, h, w).

    Parameters
    ----------
    big, small, size, stride, dilation, lo, end : tuple of 3 int
        Positions, windows, taps of a window; `end` is where a crop ends what exists.
    least, most : tuple of 3 int
        From where to where taps count for a divisor.
    adaptive : bool
        Whether windows are cut so that there is a given number of them.
    scale : float
        1 / D if all windows have the same divisor; 0 if they have not.
    """

    big: Three
    small: Three
    size: Three
    stride: Three
    dilation: Three
    lo: Three
    end: Three
    least: Three
    most: Three
    adaptive: bool
    scale: float


def form(call: Call) -> Form:
    """Return how the windows of a pool lie; small adaptive ones of one size are plain windows."""
    problem = call.problem
    big, small = images.three(problem.input), images.three(problem.output)
    ones, none = (1, 1, 1), (0, 0, 0)
    scale = _scale(problem)
    if isinstance(problem, AdaptivePoolProblem):
        size = images.three(axis.taps for axis in problem.axes)
        even = all(i % o == 0 for i, o in zip(big, small)) and prod(size) <= UNROLLED
        stride = size if even else ones
        return Form(big, small, size, stride, ones, none, big, none, big, not even, scale)
    lo = images.three((lo for lo, _ in problem.padding), 0)
    ends = images.three(size + hi for size, (_, hi) in zip(problem.input, problem.padding))
    end = tuple(map(min, big, ends))
    counts_padding = isinstance(problem, AvgPoolProblem) and problem.include_pad
    least, most = (tuple(-v for v in lo), ends) if counts_padding else (none, end)
    given = problem.filter, problem.stride, problem.dilation
    return Form(big, small, *map(images.three, given), lo, end, least, most, False, scale)


def _scale(problem: Any) -> float:
    if getattr(problem, "divisor", 0):
        return 1 / problem.divisor
    counts = getattr(problem, "counts", ())  # a maximum has none
    return 0.0 if any(len(set(c)) > 1 for c in counts) else 1 / prod(max(c[0], 1) for c in counts)


# By whether it is a maximum, and the pass: kernel, what it reads, what goes along, results.
PASSES: dict[tuple[bool, str], tuple[Any, str, str, tuple[str, ...]]] = {
    (True, "fprop"): (pool, "x", "", ("y", "indices")),
    (True, "jvp"): (pool, "x", "x_dot", ("y", "y_dot")),
    (True, "backward"): (spread, "dy", "indices", ("dx",)),
    (True, "double_backward"): (pick, "ddx", "indices", ("ddy",)),
    (False, "fprop"): (pool, "x", "", ("y",)),
    (False, "jvp"): (pool, "x_dot", "", ("y_dot",)),
    (False, "backward"): (spread, "dy", "", ("dx",)),
    (False, "double_backward"): (pool, "ddx", "", ("ddy",)),
}


def pool_refusal(task: Task) -> str | None:
    """Return why no kernel computes a pool, None if one does."""
    call = task.builder.call
    shape = form(call)
    if call.problem.n * max(prod(shape.big), prod(shape.small)) >= LIMIT:
        return "2**31 pixels or more"
    if any(i * (o + 2) + o >= LIMIT or o * (i + 2) + i >= LIMIT for i, o in zip(*shape[:2])):
        return "an axis whose sizes have a product of 2**31 or more"
    return None


def _row(call: Call) -> tuple[Any, str, str, tuple[str, ...]]:
    return PASSES["max" in call.op, call.pass_]


def _is_whole(call: Call) -> bool:
    """Return whether one window reads a whole image, and no tangent goes along."""
    kernel, _, beside, _ = _row(call)
    return kernel is pool and not beside and whole.admits(form(call))


def pool_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles for a call, the best guess first."""
    builder = task.builder
    _, read, _, results = _row(builder.call)
    source = builder.tensors[read]
    if _is_whole(builder.call):
        return whole.tiles(source)
    return images.tiles(images.lying(builder, results[0], source))


def add_pool(task: Task, tile: Tile) -> None:
    """Add the launch that computes a call."""
    builder, call = task.builder, task.builder.call
    kernel, read, beside, results = _row(call)
    source = builder.tensors[read]
    made = [images.result(builder, role, source) for role in results]
    if not prod(made[0].shape):
        return
    shape = form(call)
    if _is_whole(call):
        builder.steps.append(whole.launch(source, made, shape, "max" in call.op, tile))
        return
    second = builder.tensors[beside] if beside else None
    builder.steps.append(pool_launch(kernel, call, shape, (source, second), made, tile))


def pool_launch(
    kernel: Any,
    call: Call,
    shape: Form,
    operands: tuple[Tensor, Tensor | None],
    made: list[Tensor],
    tile: Tile,
) -> Launch:
    """Return the launch of one of this module's kernels.

    Parameters
    ----------
    kernel : triton.runtime.JITFunction
        `pool`, `spread` or `pick`.
    call : Call
    shape : Form
    operands : tuple of Tensor
        What is read, and x_dot or indices.
    made : list of Tensor
        Results of equal strides.
    tile : Tile
        Pixels and channels.
    """
    source, second = operands
    back, largest = kernel is spread, "max" in call.op
    own, other = (shape.big, shape.small) if back else (shape.small, shape.big)
    loop = _reach(shape) if back else shape.size
    lain = [images.moves(tensor, call.dtype) for tensor in (source, second, made[0])]
    vec = (*(vec for vec, _ in lain), vector(call.dtype, call.problem.c))
    rows = call.problem.n * prod(own)
    numbers: tuple[float, ...] = (rows, *own, *other, call.problem.c // vec[3], *shape.end)
    numbers += (*shape.lo, *shape.least, *shape.most, *shape.size, prod(loop), *loop, shape.scale)
    numbers += (*images.magics(own), *images.magics(other))
    numbers += tuple(step for _, steps in lain for step in steps)
    unrolled = prod(loop) <= UNROLLED and not shape.adaptive
    given, absent = slots(_named(kernel, [source, second, *made]))
    return Launch(
        kernel,
        (-(-rows // tile.bm) * -(-call.problem.c // tile.bn), 1, 1),
        given | dict(zip(RUNTIME, numbers)),
        absent
        | {
            "RANK": call.problem.rank,
            "STRIDE": shape.stride,
            "DILATION": shape.dilation,
            "FILTER": loop if unrolled else (0, 0, 0),
            "COUNT": prod(loop) if unrolled else 0,
            "ADAPTIVE": shape.adaptive,
            "MAX": largest,
            "EVEN": shape.scale != 0,
            "UNIT": tuple(steps[-1] == 1 for _, steps in lain),
            "VEC": vec,
            "WIDE": images.is_wide((source, second, *made), tile.bm, prod(own)),
            "BM": tile.bm,
            "BN": tile.bn,
        },
        tile.warps,
        tile.stages,
    )


def _named(kernel: Any, tensors: list[Tensor | None]) -> dict[str, Tensor | None]:
    """Return the tensor of each pointer of a kernel, by its name; None where it goes without."""
    source, second, first, *rest = tensors
    found = {"y": first, "dx": first, "x": source, "dy": source, "y_dot": None, "x_dot": None}
    found |= {"indices": None} | {tensor.role: tensor for tensor in (second, *rest) if tensor}
    names = kernel.arg_names[: kernel.arg_names.index("M")]
    return {name: found[name] for name in names}


def _reach(shape: Form) -> Three:
    """Return how many windows may read one position, along each axis."""
    if shape.adaptive:
        axes = (AdaptiveAxis(o, i) for i, o in zip(shape.big, shape.small))
        return images.three(1 if axis.small % axis.big == 0 else axis.taps for axis in axes)
    return images.three(
        (taps - 1) * dilation // stride + 1
        for taps, dilation, stride in zip(shape.size, shape.dilation, shape.stride)
    )


SPEC = KernelSpec(
    "pool",
    serves=("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool"),
    refusal=pool_refusal,
    tiles=pool_tiles,
    add=add_pool,
    kernels=(pool, spread, pick, whole.whole),
    whole_call=True,
)
