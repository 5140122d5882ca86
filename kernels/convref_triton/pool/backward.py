"""The kernels of a pool's derivatives, by gathering: each result is written once, by one program.

dx[n, c, i]  = sum over the windows p that read i of dy[n, c, p] / D[p]           of a mean
             = sum over those p whose index is i of dy[n, c, p]                   of a maximum
             = s(x[n, c, i]) * sum over those p of dy[n, c, p] y[n, c, p]^(1-q)   of a norm q
ddy[n, c, p] = ddx[n, c, indices[n, c, p]]                                        of a maximum

with s(x) = sign(x) |x|^(q-1).
"""

import triton
import triton.language as tl

from ..common.images import in_elements, lanes, offsets, tap_at
from ..common.index import quotient
from .powers import inverse, slope
from .windows import RUNTIME, first_read, last_read, shares


@triton.jit
def reads(
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
    dy, beside, tile, tile_at, tap, i, first, stop, own, other, lo, least, most, filter,
    others, real, known, x_steps, v_steps, total, seen, STRIDE: tl.constexpr,
    DILATION: tl.constexpr, ADAPTIVE: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """Return `total` plus the contribution of one window of each position, and whether any reads.

    `beside` are the indices of a maximum or the norms of windows.
    """
    t, r, s = tap
    p = (first[0] + t, first[1] + r, first[2] + s)
    on = real
    for a in tl.static_range(3):
        on = on & reads(
            i[a], p[a], other[a], stop[a], lo[a], filter[a], STRIDE[a], DILATION[a], ADAPTIVE
        )
    inside = on[:, None] & known
    here = t * x_steps[1] + r * x_steps[2] + s * x_steps[3]
    value = tl.load(dy + here + tile, inside, other=0.0).to(tl.float32)  # (BM, BN)
    if TWICE > 0:
        here = t * v_steps[1] + r * v_steps[2] + s * v_steps[3]
        value *= inverse(tl.load(beside + here + tile_at, inside, other=1.0), TWICE)
    elif beside is not None:
        here = t * v_steps[1] + r * v_steps[2] + s * v_steps[3]
        chosen = tl.load(beside + here + tile_at, inside, other=-1)
        mine = ((i[0] * own[1] + i[1]) * own[2] + i[2])[:, None]
        value = tl.where(chosen == mine.to(tl.int64), value, 0.0)
    elif not EVEN:
        share = shares(p, other, own, lo, least, most, filter, others, STRIDE, DILATION, ADAPTIVE)
        value *= share[:, None]
    return total + value, seen | on


@triton.jit(do_not_specialize=RUNTIME)
def pool_backward_kernel(
    dy, indices, norms, x, dx,
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
    """Gather the cotangents of BM positions of BN channels from the windows that read them.

    x has the strides of dx.
    """
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
    others, reach = (d_magic, d_shift, h_magic, h_shift, w_magic, w_shift), (taps_d, taps_h, taps_w)
    written, first, stop = real, (), ()
    for a in tl.static_range(3):
        if ADAPTIVE:  # the windows of a position are the interval that exchanged axes give
            p = first_read(place[a], other[a], 0, magic[2 * a], magic[2 * a + 1], 1, True)
            q = last_read(place[a], own[a], other[a], 0, magic[2 * a], magic[2 * a + 1], True)
            first, stop = first + (p,), stop + (q,)
        else:
            p = (place[a] + lo[a]) // STRIDE[a] - (reach[a] - 1)
            first, stop = first + (p,), stop + (p,)
        real = real & (place[a] < end[a])
    from_dy, tile = dy + top * image_x * VEC[0], offsets(c, n, first, x_steps)
    beside, tile_at = None, tile
    if MAX:
        beside = indices + top * image_v * VEC[1]
        tile_at = offsets(c, n, first, v_steps)
    elif TWICE > 0:
        beside = norms + top * image_v * VEC[1]
        tile_at = offsets(c, n, first, v_steps)
    total, seen = tl.zeros((BM, BN), tl.float32), real & False
    if COUNT > 0:
        for tap in tl.static_range(COUNT):
            total, seen = return_to(
                from_dy, beside, tile, tile_at, tap_at(tap, FILTER[1], FILTER[2]), place, first,
                stop, own, other, lo, least, most, filter, others, real, known, x_steps, v_steps,
                total, seen, STRIDE, DILATION, ADAPTIVE, EVEN, TWICE,
            )  # fmt: skip
    else:
        for tap in range(taps):
            total, seen = return_to(
                from_dy, beside, tile, tile_at, tap_at(tap, taps_h, taps_w), place, first,
                stop, own, other, lo, least, most, filter, others, real, known, x_steps, v_steps,
                total, seen, STRIDE, DILATION, ADAPTIVE, EVEN, TWICE,
            )  # fmt: skip
    inside = written[:, None] & known
    if TWICE > 0:
        at = tl.load(x + to_y + tile_y, inside, other=0.0).to(tl.float32)
        total = tl.where(seen[:, None], total * slope(at, TWICE), 0.0)
    elif EVEN and not MAX:
        total *= scale
    tl.store(dx + to_y + tile_y, total.to(dx.dtype.element_ty), inside)


@triton.jit(do_not_specialize=RUNTIME)
def pool_double_backward_kernel(
    x, indices, y,
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
    """Copy the elements at the indices of BM windows of BN channels, 0 where there is none."""
    image_x, image_v, image_y = x_n.to(tl.int64), v_n.to(tl.int64), y_n.to(tl.int64)
    x_steps = in_elements(x_n, x_d, x_h, x_w, x_c, UNIT[0], VEC[0], WIDE)
    v_steps = in_elements(v_n, v_d, v_h, v_w, v_c, UNIT[1], VEC[1], WIDE)
    y_steps = in_elements(y_n, y_d, y_h, y_w, y_c, UNIT[2], VEC[2], WIDE)
    own, magic = (O, P, Q), (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    c, n, place, top, real, known = lanes(M, own, magic, C * VEC[3], RANK, BM, BN)
    to_y = top * image_y * VEC[2]
    tile_y = offsets(c, n, place, y_steps)
    tile = offsets(c, n, place, v_steps)
    inside = real[:, None] & known
    at = tl.load(indices + top * image_v * VEC[1] + tile, inside, other=-1)  # (BM, BN)
    there = inside & (at >= 0) & (at < D * H * W)
    at = tl.where(there, at, 0).to(tl.int32)
    up = quotient(at, w_magic, w_shift)
    d = quotient(up, h_magic, h_shift)
    tile = (c * x_steps[4])[None, :] + (n * x_steps[0])[:, None]
    tile += d * x_steps[1] + (up - d * H) * x_steps[2] + (at - up * W) * x_steps[3]
    value = tl.load(x + top * image_x * VEC[0] + tile, there, other=0.0)
    tl.store(y + to_y + tile_y, value, inside)
