"""Batch and group norm: statistics in one reading, then one pass over the image.

mean[c], M2[c]  = mean and sum of squares about it over n and i of x[n, c, i],  var = M2 / m
y[n, c, i]      = act((x - mean) rstd w + b),   rstd = 1 / sqrt(var + eps),   z = (x - mean) rstd
dw[c], db[c]    = sum over n and i of dy z, of dy
dx[n, c, i]     = w rstd (dy - db / m - z dw / m);   w rstd dy where statistics were given

Of group norm, sums of the channels of each image are merged further, by `group`.

A tensor is seen as (images, channels, pixels) with one stride each; what cannot be is copied. A
step is BM pixels of one image, and a split so many steps of BN channels. Each lane of it updates
(mean, M2) by its values in turn (Welford); lanes, then splits meet in a fixed order (Chan). So
results repeat bit for bit, and no difference of large sums is taken.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import triton
import triton.language as tl

from convref.case import Call
from convref.ops import FrozenNormProblem, GroupNormProblem

from ..common import images
from ..common.epilogue import activate
from ..common.geometry import LIMIT, Tensor, merge
from ..plan.archs import PER_SM, SMS
from ..plan.builder import NEW, Builder, dense, is_channels_last, slot, slots, vector
from ..plan.launch import Buffer, Launch
from ..plan.spec import KernelSpec
from ..plan.task import Fusion, Task
from ..plan.tile import Tile
from . import group
from .group import merged

RUNTIME = ["L", "C", "per", "steps", "total", "pieces", "groups", "width"]
RUNTIME += ["x_n", "x_l", "x_c", "v_n", "v_l", "v_c"]
NUMBERS = ["splits", "channels", "count", "eps", "share", "unbiased"]
# Pixels and channels of a step, for sums and for what is written; as many a thread as it holds.
SUMS_LAST = (Tile(32, 64, 1, 4, 1), Tile(64, 32, 1, 4, 1), Tile(128, 16, 1, 4, 1))
SUMS_FIRST = (Tile(1024, 1, 1, 4, 1), Tile(256, 4, 1, 4, 1), Tile(64, 16, 1, 4, 1))
MERGED = Tile(16, 64, 1, 4, 1)  # splits and channels that one program of `settle` merges
SPLIT_STEPS = 4  # of a split at least


@triton.jit
def at_step(s, per, l_step, n_step, VEC: tl.constexpr, BM: tl.constexpr):
    """Return the first pixel of step s, and its offset."""
    n = s // per
    first = (s - n * per) * BM
    return first, n.to(tl.int64) * n_step * VEC[0] + first.to(tl.int64) * l_step


@triton.jit
def portion(steps, total, pieces):
    """Return the image, first step and end of a program, one of the `pieces` of `total` steps.

    Where statistics are of all images, they are one.
    """
    image = tl.program_id(0) // pieces
    begin = image * total + (tl.program_id(0) - image * pieces) * steps
    return image, begin, tl.minimum(begin + steps, (image + 1) * total)


@triton.jit
def tile_of(
    L, C, x_l, x_c, UNIT: tl.constexpr, VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Return pixels, channels, L, C and the strides of both in elements."""
    i, c = tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    L, C = L * VEC[1], C * VEC[2]
    return i, c, L, C, 1 if UNIT[0] else x_l * VEC[0], 1 if UNIT[1] else x_c * VEC[0]


@triton.jit(do_not_specialize=RUNTIME)
def moments(
    x, parts, L, C, per, steps, total, pieces, groups, width, x_n, x_l, x_c, v_n, v_l, v_c,
    UNIT: tl.constexpr, VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Store (mean, M2, count) of BN channels over a split: parts (splits, 3, C)."""
    i, c, L, C, x_l, x_c = tile_of(L, C, x_l, x_c, UNIT, VEC, BM, BN)
    known = (c < C)[None, :]
    x += tl.program_id(1).to(tl.int64) * BN * x_c
    tile = (i * x_l)[:, None] + (tl.arange(0, BN) * x_c)[None, :]
    _, begin, end = portion(steps, total, pieces)
    mean, m2 = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    whole = tl.zeros((), tl.int32)  # steps in which every lane had a value
    short = i < (L - (per - 1) * BM)  # lanes that have one in an image's last step too
    for s in range(begin, end):
        first, far = at_step(s, per, x_l, x_n, VEC, BM)
        on = (first + i < L)[:, None] & known
        value = tl.load(x + far + tile, on, other=0.0).to(tl.float32)
        whole += (first + BM <= L).to(tl.int32)
        share = tl.where(short, 1.0 / (s - begin + 1), 1.0 / tl.maximum(whole, 1))
        off = tl.where(on, value - mean, 0.0)
        mean += off * share[:, None]
        m2 += tl.where(on, off * (value - mean), 0.0)
    count = tl.where(short, tl.maximum(end - begin, 0), whole).to(tl.float32)
    count = count[:, None] + tl.zeros((BM, BN), tl.float32)
    mean, m2, count = tl.reduce((mean, m2, count), 0, merged)
    to = parts + (tl.program_id(0) * 3) * C + c
    tl.store(to, mean, c < C)
    tl.store(to + C, m2, c < C)
    tl.store(to + 2 * C, count, c < C)


@triton.jit(do_not_specialize=NUMBERS)
def settle(
    parts, mean, rstd, rmean, rvar, new_mean, new_var, splits, channels, count, eps, share,
    unbiased, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Merge the splits of BN channels into mean and rstd, and update running statistics."""
    c, z = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BM)
    known = c < channels
    m, m2, n = (tl.zeros((BM, BN), tl.float32),) * 3
    for first in range(0, splits, BM):
        on = (first + z < splits)[:, None] & known[None, :]
        at = parts + ((first + z) * 3 * channels)[:, None] + c[None, :]
        new = tl.load(at, on, other=0.0)
        new_2 = tl.load(at + channels, on, other=0.0)
        new_n = tl.load(at + 2 * channels, on, other=0.0)
        m, m2, n = merged(m, m2, n, new, new_2, new_n)
    m, m2, n = tl.reduce((m, m2, n), 0, merged)
    var = m2 / count
    tl.store(mean + c, m, known)
    one = tl.full(var.shape, 1.0, tl.float32)
    tl.store(rstd + c, tl.div_rn(one, tl.sqrt_rn(var + eps)), known)
    old = tl.load(rmean + c, known, other=0.0).to(tl.float32)
    tl.store(new_mean + c, (1.0 - share) * old + share * m, known)
    old = tl.load(rvar + c, known, other=0.0).to(tl.float32)
    tl.store(new_var + c, (1.0 - share) * old + share * (var * unbiased), known)


@triton.jit
def statistics(mean, rstd, c, known, eps, GIVEN: tl.constexpr):
    """Return (mean, rstd) of channels as rows; of GIVEN statistics, rstd is the variance."""
    m = tl.load(mean + c, known, other=0.0).to(tl.float32)
    r = tl.load(rstd + c, known, other=0.0).to(tl.float32)
    if GIVEN:
        r = tl.div_rn(tl.full(r.shape, 1.0, tl.float32), tl.sqrt_rn(r + eps))
    return m[None, :], r[None, :]


@triton.jit(do_not_specialize=RUNTIME + ["eps"])
def normalise(
    x, w, b, mean, rstd, y,
    L, C, per, steps, total, pieces, groups, width, x_n, x_l, x_c, v_n, v_l, v_c, eps,
    UNIT: tl.constexpr, VEC: tl.constexpr, GIVEN: tl.constexpr, ACTIVATION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write y of BN channels and some steps."""
    v_l, v_c = 1 if UNIT[0] else v_l * VEC[0], 1 if UNIT[1] else v_c * VEC[0]
    i, c, L, C, x_l, x_c = tile_of(L, C, x_l, x_c, UNIT, VEC, BM, BN)
    image, begin, end = portion(steps, total, pieces)
    k = image * groups + c // width  # of statistics
    m, r = statistics(mean, rstd, k, c < C, eps, GIVEN)
    if w is not None:
        w = tl.load(w + c, c < C, other=0.0).to(tl.float32)[None, :]
    if b is not None:
        b = tl.load(b + c, c < C, other=0.0).to(tl.float32)[None, :]
    x += tl.program_id(1).to(tl.int64) * BN * x_c
    y += tl.program_id(1).to(tl.int64) * BN * v_c
    columns = tl.arange(0, BN)
    for s in range(begin, end):
        first, far = at_step(s, per, x_l, x_n, VEC, BM)
        on = (first + i < L)[:, None] & (c < C)[None, :]
        value = tl.load(x + far + ((i * x_l)[:, None] + (columns * x_c)[None, :]), on, other=0.0)
        z = (value.to(tl.float32) - m) * r
        if w is not None:
            z *= w
        if b is not None:
            z += b
        first, far = at_step(s, per, v_l, v_n, VEC, BM)
        to = y + far + ((i * v_l)[:, None] + (columns * v_c)[None, :])
        tl.store(to, activate(z, ACTIVATION).to(y.dtype.element_ty), on)


@triton.jit(do_not_specialize=RUNTIME + ["eps"])
def cosums(
    dy, x, mean, rstd, parts,
    L, C, per, steps, total, pieces, groups, width, x_n, x_l, x_c, v_n, v_l, v_c, eps,
    UNIT: tl.constexpr, VEC: tl.constexpr, GIVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Store the sums of dy z and of dy of BN channels over a split: parts (splits, 2, C)."""
    v_l, v_c = 1 if UNIT[0] else v_l * VEC[0], 1 if UNIT[1] else v_c * VEC[0]
    i, c, L, C, x_l, x_c = tile_of(L, C, x_l, x_c, UNIT, VEC, BM, BN)
    image, begin, end = portion(steps, total, pieces)
    k = image * groups + c // width  # of statistics
    m, r = statistics(mean, rstd, k, c < C, eps, GIVEN)
    x += tl.program_id(1).to(tl.int64) * BN * x_c
    dy += tl.program_id(1).to(tl.int64) * BN * v_c
    columns = tl.arange(0, BN)
    with_z, plain = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for s in range(begin, end):
        first, far = at_step(s, per, x_l, x_n, VEC, BM)
        on = (first + i < L)[:, None] & (c < C)[None, :]
        value = tl.load(x + far + ((i * x_l)[:, None] + (columns * x_c)[None, :]), on, other=0.0)
        first, far = at_step(s, per, v_l, v_n, VEC, BM)
        g = tl.load(dy + far + ((i * v_l)[:, None] + (columns * v_c)[None, :]), on, other=0.0)
        g = g.to(tl.float32)
        plain += g
        with_z += tl.where(on, g * ((value.to(tl.float32) - m) * r), 0.0)
    to = parts + (tl.program_id(0) * 2) * C + c
    tl.store(to, tl.sum(with_z, 0), c < C)
    tl.store(to + C, tl.sum(plain, 0), c < C)


@triton.jit(do_not_specialize=["splits", "channels"])
def total(parts, sums, dw, db, splits, channels, BM: tl.constexpr, BN: tl.constexpr):
    """Add up the splits of BN channels into sums (2, C), and round them to dw and db."""
    c, z = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BM)
    with_z, plain = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for first in range(0, splits, BM):
        on = (first + z < splits)[:, None] & (c < channels)[None, :]
        at = parts + ((first + z) * 2 * channels)[:, None] + c[None, :]
        with_z += tl.load(at, on, other=0.0)
        plain += tl.load(at + channels, on, other=0.0)
    s, p = tl.sum(with_z, 0), tl.sum(plain, 0)
    tl.store(sums + c, s, c < channels)
    tl.store(sums + channels + c, p, c < channels)
    if dw is not None:
        tl.store(dw + c, s.to(dw.dtype.element_ty), c < channels)
    if db is not None:
        tl.store(db + c, p.to(db.dtype.element_ty), c < channels)


@triton.jit(do_not_specialize=RUNTIME + ["eps", "y_n", "y_l", "y_c", "count", "apart"])
def dgrad(
    dy, x, w, mean, rstd, sums, dx,
    L, C, per, steps, total, pieces, groups, width, x_n, x_l, x_c, v_n, v_l, v_c, eps,
    y_n, y_l, y_c, count, apart,
    UNIT: tl.constexpr, VEC: tl.constexpr, GIVEN: tl.constexpr, GROUPED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write dx of BN channels and some steps."""
    v_l, v_c = 1 if UNIT[0] else v_l * VEC[0], 1 if UNIT[1] else v_c * VEC[0]
    y_l, y_c = 1 if UNIT[0] else y_l * VEC[0], 1 if UNIT[1] else y_c * VEC[0]
    i, c, L, C, x_l, x_c = tile_of(L, C, x_l, x_c, UNIT, VEC, BM, BN)
    image, begin, end = portion(steps, total, pieces)
    k = image * groups + c // width  # of statistics
    m, r = statistics(mean, rstd, k, c < C, eps, GIVEN)
    if not GIVEN:
        along = tl.load(sums + k, c < C, other=0.0)[None, :] / count
        level = tl.load(sums + apart + k, c < C, other=0.0)[None, :] / count
        x += tl.program_id(1).to(tl.int64) * BN * x_c
    factor = r
    if w is not None:
        w = tl.load(w + c, c < C, other=0.0).to(tl.float32)[None, :]
        if not GROUPED:
            factor = r * w
    dy += tl.program_id(1).to(tl.int64) * BN * v_c
    dx += tl.program_id(1).to(tl.int64) * BN * y_c
    columns = tl.arange(0, BN)
    for s in range(begin, end):
        first, far = at_step(s, per, v_l, v_n, VEC, BM)
        on = (first + i < L)[:, None] & (c < C)[None, :]
        g = tl.load(dy + far + ((i * v_l)[:, None] + (columns * v_c)[None, :]), on, other=0.0)
        g = g.to(tl.float32)
        if GROUPED and w is not None:  # sums are over channels of other weights too
            g *= w
        if not GIVEN:
            first, far = at_step(s, per, x_l, x_n, VEC, BM)
            at = x + far + ((i * x_l)[:, None] + (columns * x_c)[None, :])
            z = (tl.load(at, on, other=0.0).to(tl.float32) - m) * r
            g = g - level - z * along
        first, far = at_step(s, per, y_l, y_n, VEC, BM)
        to = dx + far + ((i * y_l)[:, None] + (columns * y_c)[None, :])
        tl.store(to, (g * factor).to(dx.dtype.element_ty), on)


class View(NamedTuple):
    """Tensors of one shape as (images, channels, pixels).

    Parameters
    ----------
    n, c, l : int
    steps : mapping of str to tuple of int
        Strides of (n, l, c) by role, counted in vectors where they are not the 1 of `unit`.
    unit : tuple of bool
        Whether pixels lie side by side in all tensors, and whether channels do.
    vec : tuple of int
        What strides count, and vectors of pixels and of channels.
    sections, groups, width : int
        Images that have statistics of their own; of how many groups each, of how many channels.
    """

    n: int
    c: int
    l: int
    steps: dict[str, tuple[int, ...]]
    unit: tuple[bool, bool]
    vec: tuple[int, int, int]
    sections: int = 1
    groups: int = 1
    width: int = 1


def flat(
    builder: Builder, operands: list[Tensor], results: list[Tensor]
) -> tuple[View, list[Tensor]]:
    """Return tensors of one shape as a View; operands are copied where they do not lie so.

    Results are dense, in the order of axes of the first operand.
    """
    first, tensors = operands[0], [*operands, *results]
    if merge(*tensors) is None or len({_side(t) for t in tensors}) > 1 or any(map(_far, tensors)):
        order = images.order_like(first)
        tensors = [*(builder.copied(tensor, order) for tensor in operands), *results]
    found = merge(*tensors)
    assert found is not None  # dense tensors are one axis of pixels
    n, rank, pixels, strides = found
    problem = builder.call.problem
    grouped = isinstance(problem, GroupNormProblem)
    count, length = (1, n) if rank == 0 else (n, pixels[2])
    if grouped:
        count, length = first.shape[0], prod(first.shape[2:])
    steps = {
        tensor.role: (tensor.steps[0] if count > 1 else 0, strides[2 * k + 1], tensor.steps[1])
        for k, tensor in enumerate(tensors)
    }
    c = first.shape[1]
    unit = tuple(all(s[axis] == 1 for s in steps.values()) for axis in (1, 2))
    unit = (unit[0] and (c == 1 or not unit[1]), unit[1] and c > 1)
    apart = [v for s in steps.values() for v, one in zip(s, (False, *unit)) if not one]
    vec = vector(first.dtype, *apart)
    steps = {
        role: tuple(v if one else v // vec for v, one in zip(s, (False, *unit)))
        for role, s in steps.items()
    }
    long = vector(first.dtype, length) if unit[0] else 1
    shape = (count, problem.groups, c // problem.groups) if grouped else (1, 1, 1)
    return View(count, c, length, steps, unit, (vec, long, vector(first.dtype, c)), *shape), tensors


def _side(tensor: Tensor) -> bool:
    return is_channels_last(tensor)


def _far(tensor: Tensor) -> bool:
    """Return whether a tile of any row of the table may span 2**31 elements."""
    _, c, *spatial = map(abs, tensor.steps)
    rows = (*SUMS_LAST, *SUMS_FIRST)
    bm, bn = max(tile.bm for tile in rows), max(tile.bn for tile in rows)
    return max(bm * min(filter(None, spatial), default=0), bn * c) >= LIMIT


OPS = ("batch_norm", "batch_norm_eval", "group_norm")
MOST = 65_535  # programs along y of a grid


def norm_refusal(task: Task) -> str | None:
    """Return why no kernel computes a norm, None if one does."""
    call = task.builder.call
    if call.pass_ not in ("fprop", "backward"):
        return f"no kernel for {call.op}.{call.pass_}: there are some for fprop, backward"
    if call.op == "group_norm" and call.problem.n * call.problem.c * SMS * PER_SM >= LIMIT:
        return "too many images for the sums of each channel"
    if call.problem.n * prod(call.problem.input) >= LIMIT - 2 * MOST:
        return "2**31 pixels or more"
    return f"more than {MOST} channels" if call.problem.c > MOST else None


def norm_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles for a call, the best guess first."""
    builder = task.builder
    x = builder.tensors["x"]
    last = is_channels_last(x) and builder.call.op != "group_norm"
    offered = images.wide_enough(SUMS_LAST, x.dtype) if is_channels_last(x) else SUMS_FIRST
    pixels = x.shape[0] * prod(x.shape[2:]) if last else prod(x.shape[2:])
    times = 1 if last else x.shape[0]
    return images.ranked(
        offered, x.shape[1], lambda t: times * -(-pixels // t.bm) * -(-x.shape[1] // t.bn)
    )


def add_norm(task: Task, tile: Tile) -> None:
    """Add the launches that compute a call."""
    if task.builder.call.pass_ == "fprop":
        _add_fprop(task.builder, tile, task.fusion)
    else:
        _add_backward(task.builder, tile)


def _add_fprop(builder: Builder, tile: Tile, fusion: Fusion) -> None:
    """Add the statistics, which are sums over splits that `settle` merges, and `normalise`."""
    call, x = builder.call, builder.tensors["x"]
    y = images.result(builder, "y", x)
    trains = not isinstance(call.problem, FrozenNormProblem)
    mean, rstd = (_vector(builder, role) for role in ("rmean", "rvar"))
    made = {role: _new_vector(builder, role) for role in call.wanted[1:]}
    if not prod(y.shape):
        return
    view, (x, y) = flat(builder, [x], [y])
    if trains:
        splits = _splits(view, tile)
        _parts(builder, 3 * splits * view.sections)
        builder.steps.append(_launch(moments, view, {"x": x, "parts": _PARTS}, tile, splits))
        if mean is None:
            tensors = {"parts": _PARTS, "mean": made["mean"], "rstd": made["rstd"]}
            builder.steps.append(_of_groups(call, view, tensors, splits))
        else:
            builder.steps.append(_settle(call, view, (mean, rstd), made, splits))
        mean, rstd = made["mean"], made["rstd"]
    operands = {"x": x, "w": _vector(builder, "w"), "b": _vector(builder, "b"), "y": y}
    operands |= {"mean": mean, "rstd": rstd}
    extra = {"GIVEN": not trains, "ACTIVATION": fusion.activation}
    builder.steps.append(
        _launch(normalise, view, operands, tile, _programs(view, tile), (x, y), call, extra)
    )


def _add_backward(builder: Builder, tile: Tile) -> None:
    """Add the sums over dy, with and without z, and dx made of them."""
    call, x = builder.call, builder.tensors["x"]
    trains = not isinstance(call.problem, FrozenNormProblem)
    made = {role: _new_vector(builder, role) for role in ("dw", "db") if role in call.wanted}
    if "dx" in call.wanted:
        made["dx"] = images.result(builder, "dx", x)
    if not call.problem.c:
        return
    mean, rstd = (
        _vector(builder, role) for role in (("mean", "rstd") if trains else ("rmean", "rvar"))
    )
    results = [made["dx"]] if "dx" in made else []
    view, (x, dy, *dx) = flat(builder, [x, builder.tensors["dy"]], results)
    given = {"mean": mean, "rstd": rstd, "dy": dy, "x": x}
    extra = {"GIVEN": not trains}
    if trains or "dw" in made or "db" in made:
        splits = _splits(view, tile) if prod(x.shape) else 0
        _parts(builder, max(2 * splits * view.sections, 1))
        if splits:
            operands = given | {"parts": _PARTS}
            builder.steps.append(
                _launch(cosums, view, operands, tile, splits, (x, dy), call, extra)
            )
        builder.steps.append(_total(builder, view, made, splits * view.sections))
    if dx and prod(x.shape):
        operands = given | {"w": _vector(builder, "w"), "dx": dx[0], "sums": None}
        grouped = isinstance(call.problem, GroupNormProblem)
        if not trains:
            operands["x"] = None
        elif grouped:
            operands["sums"] = _sums(builder, "group sums", view.sections * view.groups)
            tensors = {"parts": _PARTS, "w": operands["w"], "sums": operands["sums"]}
            builder.steps.append(_of_groups(call, view, tensors, splits))
        else:
            operands["sums"] = _sums(builder, "sums", view.c)
        extra["GROUPED"] = grouped
        programs = _programs(view, tile)
        builder.steps.append(
            _launch(dgrad, view, operands, tile, programs, (x, dy, dx[0]), call, extra)
        )


def _sums(builder: Builder, name: str, size: int) -> Tensor:
    """Return sums of dy z and of dy, allocated once."""
    made = Tensor(name, (2, size), (size, 1), "f32")
    builder.buffers[name] = Buffer(made.shape, made.strides, made.dtype)
    return made


def _of_groups(call: Call, view: View, tensors: dict[str, Tensor | None], splits: int) -> Launch:
    sizes = (view.sections, splits, view.c, view.width)
    return group.launch(tensors, sizes, call.problem.eps, call.problem.count)


_PARTS = Tensor("parts", (1,), (1,), "f32")


def _parts(builder: Builder, rows: int) -> None:
    c = builder.call.problem.c
    builder.buffers[_PARTS.role] = Buffer((rows, c), (c, 1), "f32")


def _vector(builder: Builder, role: str) -> Tensor | None:
    """Return an operand of one element a channel or a group, side by side."""
    found = builder.tensors.get(role)
    order = tuple(range(len(found.shape))) if found else ()
    if found is None or found.strides == dense(found.shape, order) or prod(found.shape) < 2:
        return found
    return builder.copied(found, order)


def _new_vector(builder: Builder, role: str) -> Tensor:
    """Return a result of one element a channel; its name differs from any operand's."""
    shape, dtype = builder.call.problem.shape(role), builder.call.dtype_of(role)
    name = f"{role}{NEW}" if role in builder.tensors else role
    return builder.new(name, shape, tuple(range(len(shape))), dtype)


def _steps(view: View, tile: Tile) -> tuple[int, int]:
    """Return the steps of one image, at least 1, and of all that have statistics in common."""
    per = max(-(-view.l // tile.bm), 1)
    return per, per if view.sections == view.n else per * view.n


def _splits(view: View, tile: Tile) -> int:
    """Return into how many parts to cut a sum: about as many as fill a card, none of them empty."""
    _, count = _steps(view, tile)
    wanted = max(SMS * PER_SM // (-(-view.c // tile.bn) * max(view.sections, 1)), 1)
    splits = max(min(wanted, count // SPLIT_STEPS), 1)
    return -(-count // -(-count // splits)) if count else 1


def _programs(view: View, tile: Tile) -> int:
    """Return into how many parts to cut what is written: of four steps where there are many."""
    _, count = _steps(view, tile)
    enough = 2 * SMS * PER_SM
    steps = max(min(count * view.sections * -(-view.c // tile.bn) // enough, 4), 1)
    return -(-count // steps)


def _launch(
    kernel: Any,
    view: View,
    operands: dict[str, Tensor | None],
    tile: Tile,
    splits: int,
    along: tuple[Tensor, ...] = (),
    call: Call | None = None,
    extra: dict[str, Any] | None = None,
) -> Launch:
    """Return the launch of a kernel that sweeps images.

    Parameters
    ----------
    kernel : triton.runtime.JITFunction
    view : View
    operands : dict of str to Tensor
        By the kernel's names; None for what there is not.
    tile : Tile
        Pixels and channels of a step.
    splits : int
        Into how many parts the steps are cut.
    along : tuple of Tensor
        Whose strides are x's, v's and y's.
    call : Call
        Of whose problem eps and the count are wanted.
    extra : dict
        More constants.
    """
    per, count = _steps(view, tile)
    numbers: dict[str, float] = {
        "L": view.l // view.vec[1],
        "C": view.c // view.vec[2],
        "per": per,
        "steps": -(-count // splits),
        "total": count,
        "pieces": splits,
        "groups": view.groups,
        "width": view.width,
    }
    tensors = along or (operands["x"],)
    for letter, tensor in zip("xvy", (*tensors, tensors[-1], tensors[-1])):
        steps = view.steps[tensor.role]
        numbers |= {f"{letter}_{axis}": step for axis, step in zip("nlc", steps)}
    if call is not None:
        numbers |= {"eps": call.problem.eps, "count": float(call.problem.count)}
        sums = operands.get("sums")
        numbers["apart"] = sums.shape[1] if sums else 0
    names = set(kernel.arg_names)
    given, absent = slots({name: t for name, t in operands.items() if name in names})
    constants = {"UNIT": view.unit, "VEC": view.vec, "BM": tile.bm, "BN": tile.bn} | (extra or {})
    return Launch(
        kernel,
        (splits * view.sections, -(-view.c // tile.bn), 1),
        given | {name: value for name, value in numbers.items() if name in names},
        absent | constants,
        tile.warps,
        tile.stages,
    )


def _settle(
    call: Call,
    view: View,
    old: tuple[Tensor | None, Tensor | None],
    made: dict[str, Tensor],
    splits: int,
) -> Launch:
    """Return the launch that merges statistics."""
    problem = call.problem
    tensors = {"parts": _PARTS, "mean": made["mean"], "rstd": made["rstd"]}
    tensors |= {"rmean": old[0], "rvar": old[1]}
    tensors |= {"new_mean": made["rmean"], "new_var": made["rvar"]}
    numbers: dict[str, float] = {"splits": splits, "channels": view.c}
    numbers |= {"count": float(problem.count), "eps": problem.eps, "share": problem.momentum}
    numbers["unbiased"] = problem.count / (problem.count - 1)
    return Launch(
        settle,
        (-(-view.c // MERGED.bn), 1, 1),
        {name: slot(tensor) for name, tensor in tensors.items()} | numbers,
        {"BM": MERGED.bm, "BN": MERGED.bn},
        MERGED.warps,
        MERGED.stages,
    )


def _total(builder: Builder, view: View, made: dict[str, Tensor], splits: int) -> Launch:
    """Return the launch that adds up the splits of `cosums`."""
    sums = _sums(builder, "sums", view.c)
    tensors = {"dw": made.get("dw"), "db": made.get("db")}
    slots = {"parts": slot(_PARTS), "sums": slot(sums)}
    slots |= {name: slot(tensor) for name, tensor in tensors.items() if tensor}
    return Launch(
        total,
        (-(-view.c // MERGED.bn), 1, 1),
        slots | {"splits": splits, "channels": view.c},
        {name: None for name, tensor in tensors.items() if not tensor}
        | {"BM": MERGED.bm, "BN": MERGED.bn},
        MERGED.warps,
        MERGED.stages,
    )


SPEC = KernelSpec(
    "norm",
    serves=OPS,
    refusal=norm_refusal,
    tiles=norm_tiles,
    add=add_norm,
    kernels=(
        moments,
        settle,
        normalise,
        cosums,
        total,
        dgrad,
        group.settle_groups,
        group.total_groups,
    ),
    whole_call=True,
)
