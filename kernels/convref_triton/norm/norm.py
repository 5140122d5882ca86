"""Batch and group norm: statistics in one reading, then one pass over the image.

y[n, c, i] = act((x - mean) rstd w + b),   rstd = 1 / sqrt(var + eps)
"""

from math import prod

import triton
import triton.language as tl

from convref.ops import FrozenNormProblem

from ..common import images
from ..common.epilogue import activate
from ..common.geometry import LIMIT
from ..plan.archs import PER_SM, SMS
from ..plan.builder import is_channels_last
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile
from . import backward, statistics, sweep
from .statistics import add_statistics, load_statistics, new_vector

MOST = 65_535  # programs along y of a grid


@triton.jit(do_not_specialize=sweep.RUNTIME + ["eps"])
def norm_fprop_kernel(
    x, w, b, mean, rstd, y,
    L, C, per, steps, total, pieces, groups, width, x_n, x_l, x_c, v_n, v_l, v_c, eps,
    UNIT: tl.constexpr, VEC: tl.constexpr, GIVEN: tl.constexpr, ACTIVATION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write y of BN channels and some steps."""
    v_l, v_c = 1 if UNIT[0] else v_l * VEC[0], 1 if UNIT[1] else v_c * VEC[0]
    i, c, L, C, x_l, x_c = sweep.tile_of(L, C, x_l, x_c, UNIT, VEC, BM, BN)
    image, begin, end = sweep.portion(steps, total, pieces)
    k = image * groups + c // width  # of statistics
    m, r = load_statistics(mean, rstd, k, c < C, eps, GIVEN)
    if w is not None:
        w = tl.load(w + c, c < C, other=0.0).to(tl.float32)[None, :]
    if b is not None:
        b = tl.load(b + c, c < C, other=0.0).to(tl.float32)[None, :]
    x += tl.program_id(1).to(tl.int64) * BN * x_c
    y += tl.program_id(1).to(tl.int64) * BN * v_c
    columns = tl.arange(0, BN)
    for s in range(begin, end):
        first, far = sweep.at_step(s, per, x_l, x_n, VEC, BM)
        on = (first + i < L)[:, None] & (c < C)[None, :]
        value = tl.load(x + far + ((i * x_l)[:, None] + (columns * x_c)[None, :]), on, other=0.0)
        z = (value.to(tl.float32) - m) * r
        if w is not None:
            z *= w
        if b is not None:
            z += b
        first, far = sweep.at_step(s, per, v_l, v_n, VEC, BM)
        to = y + far + ((i * v_l)[:, None] + (columns * v_c)[None, :])
        tl.store(to, activate(z, ACTIVATION).to(y.dtype.element_ty), on)


def add_norm_fprop(task: Task, tile: Tile) -> None:
    """Add the launches of the statistics, unless they are given, and of y."""
    builder, call, x = task.builder, task.builder.call, task.builder.tensors["x"]
    y = images.result(builder, "y", x)
    mean, rstd = (sweep.vector_of(builder, role) for role in ("rmean", "rvar"))
    made = {role: new_vector(builder, role) for role in call.wanted[1:]}
    if not prod(y.shape):
        return
    view, (x, y) = sweep.view_of(builder, [x], [y])
    trains = not isinstance(call.problem, FrozenNormProblem)
    if trains:
        add_statistics(builder, view, x, (mean, rstd), made, tile)
        mean, rstd = made["mean"], made["rstd"]
    operands = {
        "x": x,
        "w": sweep.vector_of(builder, "w"),
        "b": sweep.vector_of(builder, "b"),
        "y": y,
    }
    swept = (
        operands | {"mean": mean, "rstd": rstd},
        tile,
        sweep.programs_of(view, tile),
        (x, y),
        call,
    )
    constants = {"GIVEN": not trains, "ACTIVATION": task.fusion.activation}
    builder.steps.append(sweep.sweep_launch(norm_fprop_kernel, view, *swept, **constants))


def norm_refusal(task: Task) -> str | None:
    call = task.builder.call
    if call.pass_ not in ("fprop", "backward"):
        return f"no kernel for {call.where}: there are some for fprop, backward"
    if call.op == "group_norm" and call.problem.n * call.problem.c * SMS * PER_SM >= LIMIT:
        return "too many images for the sums of each channel"
    if call.problem.n * prod(call.problem.input) >= LIMIT - 2 * MOST:
        return "2**31 pixels or more"
    return f"more than {MOST} channels" if call.problem.c > MOST else None


def norm_tiles(task: Task) -> tuple[Tile, ...]:
    x = task.builder.tensors["x"]
    together = is_channels_last(x) and task.kind != "group_norm"
    offered = images.wide_enough(sweep.LAST, x.dtype) if is_channels_last(x) else sweep.FIRST
    pixels = x.shape[0] * prod(x.shape[2:]) if together else prod(x.shape[2:])
    times = 1 if together else x.shape[0]
    return images.ranked(
        offered, x.shape[1], lambda t: times * -(-pixels // t.bm) * -(-x.shape[1] // t.bn)
    )


def add_norm(task: Task, tile: Tile) -> None:
    fprop = task.builder.call.pass_ == "fprop"
    (add_norm_fprop if fprop else backward.add_norm_backward)(task, tile)


SPEC = KernelSpec(
    "norm",
    serves=("batch_norm", "batch_norm_eval", "group_norm"),
    refusal=norm_refusal,
    tiles=norm_tiles,
    add=add_norm,
    kernels=(
        norm_fprop_kernel,
        statistics.norm_moments_kernel,
        statistics.norm_settle_kernel,
        statistics.group_norm_settle_kernel,
        backward.norm_sums_kernel,
        backward.norm_wgrad_kernel,
        backward.group_norm_sums_kernel,
        backward.norm_dgrad_kernel,
    ),
    whole_call=True,
)
