"""Batch and group norm: statistics in one reading, then one pass over the image.

y[n, c, i] = act((x - mean) rstd w + b),   rstd = 1 / sqrt(var + eps)
"""

from dataclasses import replace
from math import prod

import triton
import triton.language as tl

from convref.ops import FrozenNormProblem

from ..common import images
from ..common.epilogue import activate
from ..common.geometry import LIMIT, Tensor
from ..plan.archs import PER_SM, SMS
from ..plan.builder import is_channels_last
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile
from . import backward, statistics, sweep
from .statistics import add_statistics, load_statistics, new_vector

ONCE_STEPS = 8  # of a program that reads all pixels of its channels, instead of three launches
MOST = 65_535  # programs along y of a grid


@triton.jit
def normalise(
    x, w, b, y, m, r, i, c, L, C, per, x_n, x_l, x_c, v_n, v_l, v_c, begin, end,
    VEC: tl.constexpr, ACTIVATION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write y of BN channels and some steps, given their means and rstd as rows."""
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
    normalise(
        x, w, b, y, m, r, i, c, L, C, per, x_n, x_l, x_c, v_n, v_l, v_c, begin, end,
        VEC, ACTIVATION, BM, BN,
    )  # fmt: skip


@triton.jit(do_not_specialize=sweep.RUNTIME + statistics.NUMBERS[2:])
def norm_once_kernel(
    x, w, b, rmean, rvar, y, mean, rstd, new_mean, new_var,
    L, C, per, steps, total, pieces, groups, width, x_n, x_l, x_c, v_n, v_l, v_c,
    count, eps, share, unbiased,
    UNIT: tl.constexpr, VEC: tl.constexpr, ACTIVATION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute statistics and y of BN channels, reading x twice."""
    v_l, v_c = 1 if UNIT[0] else v_l * VEC[0], 1 if UNIT[1] else v_c * VEC[0]
    i, c, L, C, x_l, x_c = sweep.tile_of(L, C, x_l, x_c, UNIT, VEC, BM, BN)
    m, m2, _ = statistics.moments(x, i, c < C, L, per, x_n, x_l, x_c, 0, total, VEC, BM, BN)
    r = statistics.settle(
        m, m2, c, c < C, mean, rstd, rmean, rvar, new_mean, new_var, count, eps, share, unbiased
    )
    normalise(
        x, w, b, y, m[None, :], r[None, :], i, c, L, C, per, x_n, x_l, x_c, v_n, v_l, v_c,
        0, total, VEC, ACTIVATION, BM, BN,
    )  # fmt: skip


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
    if trains and mean is not None and sweep.steps_of(view, tile) <= ONCE_STEPS:
        running = {"rmean": mean, "rvar": rstd}
        builder.steps.append(once_launch(task, tile, view, (x, y), running, made))
        return
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


def once_launch(
    task: Task,
    tile: Tile,
    view: sweep.View,
    images: tuple[Tensor, Tensor],
    running: dict[str, Tensor],
    made: dict[str, Tensor],
) -> Launch:
    """Return the launch of statistics and y together, each channel by one program."""
    builder, (x, y) = task.builder, images
    tensors = {"x": x, "y": y, "w": sweep.vector_of(builder, "w"), "mean": made["mean"]}
    tensors |= {"b": sweep.vector_of(builder, "b"), "rstd": made["rstd"], **running}
    tensors |= {"new_mean": made["rmean"], "new_var": made["rvar"]}
    constants = {"ACTIVATION": task.fusion.activation}
    launch = sweep.sweep_launch(norm_once_kernel, view, tensors, tile, 1, images, **constants)
    numbers = statistics.running_numbers(builder.call)
    return replace(launch, arguments={**launch.arguments, **numbers})


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
        norm_once_kernel,
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
