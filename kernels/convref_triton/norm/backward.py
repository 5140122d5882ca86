"""The cotangents of a norm: two sums over dy for each channel, and dx, computed from them.

dw[c], db[c] = sum over n and i of dy z, of dy,   z = (x - mean) rstd
dx[n, c, i]  = w rstd (dy - db / m - z dw / m);   w rstd dy where statistics were given

For group norm, the sums of w dy z and w dy over the channels of a group take the place of dw, db.
"""

from math import prod

import triton
import triton.language as tl

from convref.ops import FrozenNormProblem, GroupNormProblem

from ..common import images
from ..common.geometry import Tensor
from ..plan.builder import Builder, slot, slots
from ..plan.launch import Buffer, Launch
from ..plan.task import Task
from ..plan.tile import Tile
from . import statistics, sweep


@triton.jit(do_not_specialize=sweep.RUNTIME + ["eps"])
def norm_sums_kernel(
    dy, x, mean, rstd, parts,
    L, C, per, steps, total, pieces, groups, width, x_n, x_l, x_c, v_n, v_l, v_c, eps,
    UNIT: tl.constexpr, VEC: tl.constexpr, GIVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Store the sums of dy z and of dy of BN channels over a split: parts (splits, 2, C)."""
    v_l, v_c = 1 if UNIT[0] else v_l * VEC[0], 1 if UNIT[1] else v_c * VEC[0]
    i, c, L, C, x_l, x_c = sweep.tile_of(L, C, x_l, x_c, UNIT, VEC, BM, BN)
    image, begin, end = sweep.portion(steps, total, pieces)
    k = image * groups + c // width  # of statistics
    m, r = statistics.load_statistics(mean, rstd, k, c < C, eps, GIVEN)
    x += tl.program_id(1).to(tl.int64) * BN * x_c
    dy += tl.program_id(1).to(tl.int64) * BN * v_c
    columns = tl.arange(0, BN)
    with_z, plain = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for s in range(begin, end):
        first, far = sweep.at_step(s, per, x_l, x_n, VEC, BM)
        on = (first + i < L)[:, None] & (c < C)[None, :]
        value = tl.load(x + far + ((i * x_l)[:, None] + (columns * x_c)[None, :]), on, other=0.0)
        first, far = sweep.at_step(s, per, v_l, v_n, VEC, BM)
        g = tl.load(dy + far + ((i * v_l)[:, None] + (columns * v_c)[None, :]), on, other=0.0)
        g = g.to(tl.float32)
        plain += g
        with_z += tl.where(on, g * ((value.to(tl.float32) - m) * r), 0.0)
    to = parts + (tl.program_id(0) * 2) * C + c
    tl.store(to, tl.sum(with_z, 0), c < C)
    tl.store(to + C, tl.sum(plain, 0), c < C)


@triton.jit(do_not_specialize=["splits", "channels"])
def norm_wgrad_kernel(parts, sums, dw, db, splits, channels, BM: tl.constexpr, BN: tl.constexpr):
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


@triton.jit(do_not_specialize=statistics.GROUP_NUMBERS)
def group_norm_sums_kernel(parts, w, sums, pieces, channels, width, count, eps, BN: tl.constexpr):
    """Add up w dy z and w dy over a group: sums (2, images x groups)."""
    with_z, plain = tl.zeros((BN,), tl.float32), tl.zeros((BN,), tl.float32)
    for first in range(0, pieces * width, BN):
        e = first + tl.arange(0, BN)
        on = e < pieces * width
        at, c = statistics.entry(e, pieces, channels, width, 2)
        z, p = tl.load(parts + at, on, other=0.0), tl.load(parts + at + channels, on, other=0.0)
        if w is not None:
            weight = tl.load(w + c, on, other=0.0).to(tl.float32)
            z, p = z * weight, p * weight
        with_z += z
        plain += p
    tl.store(sums + tl.program_id(0), tl.sum(with_z, 0))
    tl.store(sums + tl.num_programs(0) + tl.program_id(0), tl.sum(plain, 0))


@triton.jit(do_not_specialize=sweep.RUNTIME + ["eps", "y_n", "y_l", "y_c", "count", "apart"])
def norm_dgrad_kernel(
    dy, x, w, mean, rstd, sums, dx,
    L, C, per, steps, total, pieces, groups, width, x_n, x_l, x_c, v_n, v_l, v_c, eps,
    y_n, y_l, y_c, count, apart,
    UNIT: tl.constexpr, VEC: tl.constexpr, GIVEN: tl.constexpr, GROUPED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write dx of BN channels and some steps."""
    v_l, v_c = 1 if UNIT[0] else v_l * VEC[0], 1 if UNIT[1] else v_c * VEC[0]
    y_l, y_c = 1 if UNIT[0] else y_l * VEC[0], 1 if UNIT[1] else y_c * VEC[0]
    i, c, L, C, x_l, x_c = sweep.tile_of(L, C, x_l, x_c, UNIT, VEC, BM, BN)
    image, begin, end = sweep.portion(steps, total, pieces)
    k = image * groups + c // width  # of statistics
    m, r = statistics.load_statistics(mean, rstd, k, c < C, eps, GIVEN)
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
        first, far = sweep.at_step(s, per, v_l, v_n, VEC, BM)
        on = (first + i < L)[:, None] & (c < C)[None, :]
        g = tl.load(dy + far + ((i * v_l)[:, None] + (columns * v_c)[None, :]), on, other=0.0)
        g = g.to(tl.float32)
        if GROUPED and w is not None:  # sums are over channels of other weights too
            g *= w
        if not GIVEN:
            first, far = sweep.at_step(s, per, x_l, x_n, VEC, BM)
            at = x + far + ((i * x_l)[:, None] + (columns * x_c)[None, :])
            z = (tl.load(at, on, other=0.0).to(tl.float32) - m) * r
            g = g - level - z * along
        first, far = sweep.at_step(s, per, y_l, y_n, VEC, BM)
        to = dx + far + ((i * y_l)[:, None] + (columns * y_c)[None, :])
        tl.store(to, (g * factor).to(dx.dtype.element_ty), on)


def add_norm_backward(task: Task, tile: Tile) -> None:
    """Add the launches of the sums over dy, with and without z, and of dx."""
    builder, call, x = task.builder, task.builder.call, task.builder.tensors["x"]
    trains = not isinstance(call.problem, FrozenNormProblem)
    made = {
        role: statistics.new_vector(builder, role) for role in ("dw", "db") if role in call.wanted
    }
    results = [images.result(builder, "dx", x)] if "dx" in call.wanted else []
    if not call.problem.c:
        return
    names = ("mean", "rstd") if trains else ("rmean", "rvar")
    mean, rstd = (sweep.vector_of(builder, role) for role in names)
    view, (x, dy, *dx) = sweep.view_of(builder, [x, builder.tensors["dy"]], results)
    given = {"mean": mean, "rstd": rstd, "dy": dy, "x": x}
    splits = sweep.splits_of(view, tile) if prod(x.shape) else 0
    if trains or made:
        statistics.add_parts(builder, max(2 * splits * view.sections, 1))
        if splits:
            operands = given | {"parts": statistics.PARTS}
            along = operands, tile, splits, (x, dy), call
            builder.steps.append(
                sweep.sweep_launch(norm_sums_kernel, view, *along, GIVEN=not trains)
            )
        builder.steps.append(wgrad_launch(builder, view.c, made, splits * view.sections))
    if dx and prod(x.shape):
        operands = given | {"w": sweep.vector_of(builder, "w"), "dx": dx[0], "sums": None}
        _add_dgrad(builder, view, operands, tile, splits)


def _add_dgrad(
    builder: Builder, view: sweep.View, operands: dict[str, Tensor | None], tile: Tile, splits: int
) -> None:
    call, along = builder.call, tuple(operands[name] for name in ("x", "dy", "dx"))
    grouped = isinstance(call.problem, GroupNormProblem)
    frozen = isinstance(call.problem, FrozenNormProblem)
    if frozen:
        operands["x"] = None
    elif grouped:
        operands["sums"] = _sums(builder, "group sums", view.sections * view.groups)
        tensors = {"parts": statistics.PARTS, "w": operands["w"], "sums": operands["sums"]}
        builder.steps.append(
            statistics.group_launch(group_norm_sums_kernel, call, view, tensors, splits)
        )
    else:
        operands["sums"] = _sums(builder, "sums", view.c)
    swept = operands, tile, sweep.programs_of(view, tile), along, call
    builder.steps.append(
        sweep.sweep_launch(norm_dgrad_kernel, view, *swept, GIVEN=frozen, GROUPED=grouped)
    )


def _sums(builder: Builder, name: str, size: int) -> Tensor:
    made = Tensor(name, (2, size), (size, 1), "f32")
    builder.buffers[name] = Buffer(made.shape, made.strides, made.dtype)
    return made


def wgrad_launch(builder: Builder, channels: int, made: dict[str, Tensor], splits: int) -> Launch:
    tensors = {"dw": made.get("dw"), "db": made.get("db")}
    fixed = {"parts": slot(statistics.PARTS), "sums": slot(_sums(builder, "sums", channels))}
    (given, absent), tile = slots(tensors), statistics.merging(splits)
    return Launch(
        norm_wgrad_kernel,
        (-(-channels // tile.bn), 1, 1),
        fixed | given | {"splits": splits, "channels": channels},
        absent | {"BM": tile.bm, "BN": tile.bn},
        tile.warps,
        tile.stages,
    )
