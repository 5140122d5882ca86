"""The kernel of forward pools: the maximum, the mean or the norm of each window.

y[n, c, p] = max, mean or norm over the positions i of window p of x[n, c, i]

Rows are windows, columns channels, and a loop runs over taps; a tap without a position is masked.
"""

import triton
import triton.language as tl

from ..common.images import in_elements, lanes, offsets, tap_at
from .powers import inverse, root, slope, to_power
from .windows import RUNTIME, first_read, last_read, shares


@triton.jit
def visit(
    x, x_dot, tile, tile_dot, tap, first, stop, real, known, H, W, x_steps, v_steps,
    best, dot, at, DILATION: tl.constexpr, MAX: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """Return (best, dot, at) after one tap of all windows of a tile.

    A later position wins if it is larger or NaN, so that the first maximum stays, and the last NaN.
    """
    t, r, s = tap
    d, h, w = first[0] + t * DILATION[0], first[1] + r * DILATION[1], first[2] + s * DILATION[2]
    on = real & (d >= 0) & (d < stop[0]) & (h >= 0) & (h < stop[1]) & (w >= 0) & (w < stop[2])
    here = (t * DILATION[0]) * x_steps[1] + (r * DILATION[1]) * x_steps[2]
    here += (s * DILATION[2]) * x_steps[3]
    inside = on[:, None] & known
    new = tl.load(x + here + tile, inside, other=0.0).to(tl.float32)  # (BM, BN)
    along = new
    if x_dot is not None:
        here = (t * DILATION[0]) * v_steps[1] + (r * DILATION[1]) * v_steps[2]
        here += (s * DILATION[2]) * v_steps[3]
        along = tl.load(x_dot + here + tile_dot, inside, other=0.0).to(tl.float32)
    if MAX:
        wins = on[:, None] & ((new > best) | (new != new) | (at < 0))
        best, at = tl.where(wins, new, best), tl.where(wins, ((d * H + h) * W + w)[:, None], at)
        if x_dot is not None:
            dot = tl.where(wins, along, dot)
    elif TWICE > 0:
        best += to_power(tl.abs(new), TWICE)
        if x_dot is not None:
            dot += slope(new, TWICE) * along
    else:
        best += new
    return best, dot, at


@triton.jit(do_not_specialize=RUNTIME)
def pool_fprop_kernel(
    x, x_dot, y, y_dot, indices,
    M, O, P, Q, D, H, W, C, end_d, end_h, end_w, lo_d, lo_h, lo_w,
    least_d, least_h, least_w, most_d, most_h, most_w, size_d, size_h, size_w,
    taps, taps_d, taps_h, taps_w, scale,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    d_magic, d_shift, h_magic, h_shift, w_magic, w_shift,
    x_n, x_d, x_h, x_w, x_c, v_n, v_d, v_h, v_w, v_c, y_n, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr, FILTER: tl.constexpr,
    COUNT: tl.constexpr, ADAPTIVE: tl.constexpr, MAX: tl.constexpr, EVEN: tl.constexpr,
    TWICE: tl.constexpr, UNIT: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Pool BM windows of BN channels; also x_dot, and of a maximum the index."""
    image_x, image_v, image_y = x_n.to(tl.int64), v_n.to(tl.int64), y_n.to(tl.int64)
    x_steps = in_elements(x_n, x_d, x_h, x_w, x_c, UNIT[0], VEC[0], WIDE)
    v_steps = in_elements(v_n, v_d, v_h, v_w, v_c, UNIT[1], VEC[1], WIDE)
    y_steps = in_elements(y_n, y_d, y_h, y_w, y_c, UNIT[2], VEC[2], WIDE)
    own, other, lo, end = (O, P, Q), (D, H, W), (lo_d, lo_h, lo_w), (end_d, end_h, end_w)
    least, most = (least_d, least_h, least_w), (most_d, most_h, most_w)
    filter, magic = (size_d, size_h, size_w), (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    c, n, place, top, real, known = lanes(M, own, magic, C * VEC[3], RANK, BM, BN)
    to_y = top * image_y * VEC[2]
    tile_y = offsets(c, n, place, y_steps)
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
    from_x, tile = x + top * image_x * VEC[0], offsets(c, n, first, x_steps)
    x_dots, tile_dot = None, tile
    if x_dot is not None:
        x_dots = x_dot + top * image_v * VEC[1]
        tile_dot = offsets(c, n, first, v_steps)

    best = tl.full((BM, BN), float("-inf") if MAX else 0.0, tl.float32)
    dot, at = tl.zeros((BM, BN), tl.float32), tl.full((BM, BN), -1, tl.int32)
    if COUNT > 0:
        for tap in tl.static_range(COUNT):
            best, dot, at = visit(
                from_x, x_dots, tile, tile_dot, tap_at(tap, FILTER[1], FILTER[2]), first, stop,
                real, known, H, W, x_steps, v_steps, best, dot, at, DILATION, MAX, TWICE,
            )  # fmt: skip
    else:
        for tap in range(taps):
            best, dot, at = visit(
                from_x, x_dots, tile, tile_dot, tap_at(tap, taps_h, taps_w), first, stop,
                real, known, H, W, x_steps, v_steps, best, dot, at, DILATION, MAX, TWICE,
            )  # fmt: skip
    if TWICE > 0:
        best = root(best, TWICE)
        dot *= inverse(best, TWICE)
    elif not MAX:
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
