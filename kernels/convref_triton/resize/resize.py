"""Resizing to the nearest position or between the two next to it, and the adjoint by gathering.

y[n, c, p]  = sum over the taps i of p, one or two an axis, of W[p, i] x[n, c, i]
dx[n, c, i] = sum over the outputs p that may read i of W[p, i] dy[n, c, p]

Position x_p of output p is a fraction of integers where the sizes alone give it, so that floor and
the rest that is the weight are exact; where a scale is given x_p is computed in float32. Nearest
positions are one product in float32, rounded down, as in ATen. The adjoint evaluates the same
function for each output that may read a position, to find whether it does and its weight.

Cubic and stretched weights, and the other rules of ONNX, come from a table (`table`). Mode area is
an adaptive average pool.
"""

from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
import triton
import triton.language as tl

from convref.case import Call
from convref.ops import AdaptivePoolProblem, ResizeAxis, ResizeProblem

from ..common import images
from ..common.geometry import LIMIT, Tensor, Three
from ..common.images import UNROLLED, in_elements, lanes, offsets, tap_at
from ..common.index import divisors, quotient
from ..common.windows import MAGIC
from ..plan import lines
from ..plan.builder import slot, vector
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import WARP, Tile
from ..pool import pool
from .table import resize_table_kernel, table_launch

SIZES = "M O P Q D H W C"
RULE = "num_d num_h num_w off_d off_h off_w den_d den_h den_w step_d step_h step_w"
BACK = "ratio_d ratio_h ratio_w before_d before_h before_w reach_d reach_h reach_w"
DIVISION = "d_magic d_shift h_magic h_shift w_magic w_shift"
STEPS = "x_n x_d x_h x_w x_c y_n y_d y_h y_w y_c"
RUNTIME = f"{SIZES} {RULE} {BACK} {MAGIC} {DIVISION} {STEPS}".split()


@triton.jit
def sampled(p, size, num, off, den, magic, shift, step, KIND: tl.constexpr, HALF: tl.constexpr):
    """Return (i, j, f): output p is (1 - f) of position i and f of position j."""
    if KIND == "exact":
        n = p * num + off + den
        i = quotient(n, magic, shift) - 1
        rest = (n - (i + 1) * den).to(tl.float32)
        f = tl.div_rn(rest, den.to(tl.float32) + tl.zeros(p.shape, tl.float32))
    else:
        x = (p.to(tl.float32) + HALF) * step
        if KIND == "float":
            x -= HALF
        x = tl.minimum(x, size.to(tl.float32))  # beyond it, an integer may overflow
        i = tl.floor(x)
        f = x - i
        i = i.to(tl.int32)
    near = tl.minimum(tl.maximum(i, 0), size - 1)
    if KIND == "nearest":
        return near, near, tl.zeros(p.shape, tl.float32)
    else:
        return near, tl.minimum(i + 1, size - 1), f


@triton.jit(do_not_specialize=RUNTIME)
def resize_fprop_kernel(
    x, y, M, O, P, Q, D, H, W, C, num_d, num_h, num_w, off_d, off_h, off_w, den_d, den_h, den_w,
    step_d, step_h, step_w, ratio_d, ratio_h, ratio_w, before_d, before_h, before_w,
    reach_d, reach_h, reach_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    d_magic, d_shift, h_magic, h_shift, w_magic, w_shift,
    x_n, x_d, x_h, x_w, x_c, y_n, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, KIND: tl.constexpr, HALF: tl.constexpr, REACH: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    image_x, image_y = x_n.to(tl.int64) * VEC[0], y_n.to(tl.int64) * VEC[1]
    x_steps = in_elements(x_n, x_d, x_h, x_w, x_c, UNIT[0], VEC[0], WIDE)
    y_steps = in_elements(y_n, y_d, y_h, y_w, y_c, UNIT[1], VEC[1], WIDE)
    magic = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    c, n, place, top, real, known = lanes(M, (O, P, Q), magic, C * VEC[2], RANK, BM, BN)
    rule = (num_d, num_h, num_w, off_d, off_h, off_w, den_d, den_h, den_w)
    division = (d_magic, d_shift, h_magic, h_shift, w_magic, w_shift)
    step, size = (step_d, step_h, step_w), (D, H, W)
    near, far, share = (), (), ()
    for a in tl.static_range(3):
        i, j, f = sampled(
            place[a], size[a], rule[a], rule[3 + a], rule[6 + a],
            division[2 * a], division[2 * a + 1], step[a], KIND, HALF,
        )  # fmt: skip
        near, far = near + (i * x_steps[a + 1],), far + (j * x_steps[a + 1],)
        share += (f,)
    x += top * image_x
    base = offsets(c, n, (n * 0, n * 0, n * 0), x_steps)
    acc = tl.zeros((BM, BN), tl.float32)
    for tap in tl.static_range(1 if KIND == "nearest" else 2**RANK):
        here, weight = n * 0, tl.full((BM,), 1.0, tl.float32)
        for a in tl.static_range(3):
            if (tap >> (2 - a)) & 1:
                here, weight = here + far[a], weight * share[a]
            else:
                here, weight = here + near[a], weight * (1.0 - share[a])
        inside = (real & (weight != 0))[:, None] & known  # 0 * inf is NaN
        value = tl.load(x + here[:, None] + base, inside, other=0.0).to(tl.float32)  # (BM, BN)
        acc += value * weight[:, None]
    to = y + top * image_y + offsets(c, n, place, y_steps)
    tl.store(to, acc.to(y.dtype.element_ty), real[:, None] & known)


@triton.jit
def returned_by(
    dy, base, t, first, place, own, other, rule, division, step, steps, real, known,
    KIND: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Return the contribution of outputs `first` + t to the positions `place`."""
    weight, on = tl.full(place[2].shape, 1.0, tl.float32), real
    for a in tl.static_range(3):
        p = first[a] + t[a]
        there = (p >= 0) & (p < other[a])
        i, j, f = sampled(
            tl.where(there, p, 0), own[a], rule[a], rule[3 + a], rule[6 + a],
            division[2 * a], division[2 * a + 1], step[a], KIND, HALF,
        )  # fmt: skip
        along = tl.where(i == place[a], 1.0 - f, 0.0) + tl.where(j == place[a], f, 0.0)
        on, weight = on & there, weight * along
    here = t[0] * steps[1] + t[1] * steps[2] + t[2] * steps[3]
    inside = (on & (weight != 0))[:, None] & known
    value = tl.load(dy + here + base, inside, other=0.0).to(tl.float32)  # (BM, BN)
    return value * weight[:, None]


@triton.jit(do_not_specialize=RUNTIME)
def resize_backward_kernel(
    x, y, M, O, P, Q, D, H, W, C, num_d, num_h, num_w, off_d, off_h, off_w, den_d, den_h, den_w,
    step_d, step_h, step_w, ratio_d, ratio_h, ratio_w, before_d, before_h, before_w,
    reach_d, reach_h, reach_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    d_magic, d_shift, h_magic, h_shift, w_magic, w_shift,
    x_n, x_d, x_h, x_w, x_c, y_n, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, KIND: tl.constexpr, HALF: tl.constexpr, REACH: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Gather the cotangents of BM positions of BN channels: x is dy, y is dx, (D, H, W) outputs."""
    image_x, image_y = x_n.to(tl.int64) * VEC[0], y_n.to(tl.int64) * VEC[1]
    x_steps = in_elements(x_n, x_d, x_h, x_w, x_c, UNIT[0], VEC[0], WIDE)
    y_steps = in_elements(y_n, y_d, y_h, y_w, y_c, UNIT[1], VEC[1], WIDE)
    magic = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    own, other = (O, P, Q), (D, H, W)
    c, n, place, top, real, known = lanes(M, own, magic, C * VEC[2], RANK, BM, BN)
    rule = (num_d, num_h, num_w, off_d, off_h, off_w, den_d, den_h, den_w)
    division = (d_magic, d_shift, h_magic, h_shift, w_magic, w_shift)
    step, before = (step_d, step_h, step_w), (before_d, before_h, before_w)
    ratio, first = (ratio_d, ratio_h, ratio_w), ()
    for a in tl.static_range(3):
        first += (tl.floor(place[a].to(tl.float32) * ratio[a]).to(tl.int32) - before[a],)
    x += top * image_x
    base = offsets(c, n, first, x_steps)
    acc = tl.zeros((BM, BN), tl.float32)
    if REACH[0] > 0:
        for tap in tl.static_range(REACH[0] * REACH[1] * REACH[2]):
            acc += returned_by(
                x, base, tap_at(tap, REACH[1], REACH[2]), first, place, own, other, rule, division,
                step, x_steps, real, known, KIND, HALF,
            )  # fmt: skip
    else:
        for tap in range(reach_d * reach_h * reach_w):
            acc += returned_by(
                x, base, tap_at(tap, reach_h, reach_w), first, place, own, other, rule, division,
                step, x_steps, real, known, KIND, HALF,
            )  # fmt: skip
    to = y + top * image_y + offsets(c, n, place, y_steps)
    tl.store(to, acc.to(y.dtype.element_ty), real[:, None] & known)


MOST_READ = 64  # values that a thread loads before it uses them
EXACT = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
SCALED = ("half_pixel", "asymmetric")
MOST_TABULATED = 2**20


class Rule(NamedTuple):
    """How an axis samples: x_p = (num p + off) / den, or (p + half) step - half."""

    num: int
    off: int
    den: int
    step: float


def kind(problem: ResizeProblem) -> str:
    """Return how positions are computed: "nearest", "exact" or "float"."""
    if problem.mode == "nearest":
        return "nearest"
    return "float" if problem.scale and problem.coord in SCALED else "exact"


def rule(axis: ResizeAxis) -> Rule:
    size, out = axis.size, axis.out
    step = float(np.float32(1 / axis.scale) if axis.scale else np.float32(size) / out)
    if axis.coord == "align_corners":
        return Rule(size - 1, 0, max(1, out - 1), step)
    if axis.coord == "asymmetric":
        return Rule(size, 0, out, step)
    if axis.coord == "pytorch_half_pixel" and out == 1:
        return Rule(0, 0, 1, step)
    return Rule(2 * size, size - out, 2 * out, step)


def half(problem: ResizeProblem) -> float:
    """Return the offset that is added to p before it is scaled, in float32."""
    return 0.5 if problem.coord.endswith("half_pixel") else 0.0


def reads(axis: ResizeAxis, how: str, shift: float) -> tuple[Any, Any]:
    """Return the first and the last position that each output reads, as the kernel finds them."""
    p, (num, off, den, step) = np.arange(axis.out, dtype=np.int64), rule(axis)
    if how == "exact":
        first = (p * num + off) // den
    else:
        x = (p.astype(np.float32) + np.float32(shift)) * np.float32(step)
        first = np.floor(x - np.float32(shift if how == "float" else 0)).astype(np.int64)
    last = first if how == "nearest" else first + 1
    return np.clip(first, 0, axis.size - 1), np.clip(last, 0, axis.size - 1)


def readers(axis: ResizeAxis, how: str, shift: float) -> tuple[float, int, int]:
    """Return (ratio, before, count): floor(i ratio) - before begins the outputs that may read i.

    The device may round a position differently, so there is one more output at either end.
    """
    first, last = reads(axis, how, shift)
    i = np.arange(axis.size)
    begin, end = np.searchsorted(last, i, "left"), np.searchsorted(first, i, "right")
    read = begin < end
    ratio = np.float32(1 / rule(axis).step)
    about = np.floor(i.astype(np.float32) * ratio).astype(np.int64)
    slack = 1 if how == "float" else 0
    before = int((about - begin)[read].max()) + slack
    return float(ratio), before, int((end - about)[read].max()) + slack + before


def is_tabulated(problem: ResizeProblem) -> bool:
    """Return whether positions and weights come from a table, rather than from the kernel."""
    if problem.mode not in ("nearest", "linear") or problem.antialias or problem.exclude:
        return True
    if problem.mode == "nearest" and problem.near != "float32":
        return True
    known = SCALED if problem.scale and problem.coord != "align_corners" else EXACT
    sizes = zip(problem.input, problem.output)
    if any(2 * (o + 2) * (i + 2) >= LIMIT for i, o in sizes):
        return True
    return problem.coord not in known


def resize_refusal(task: Task) -> str | None:
    problem = task.builder.call.problem
    assert isinstance(problem, ResizeProblem)
    if problem.extrapolation:
        return "no kernel for an extrapolation_value"
    if problem.n * max(prod(problem.input), prod(problem.output)) >= LIMIT:
        return "2**31 pixels or more"
    if any(i * scale >= LIMIT // 2 for i, scale in zip(problem.input, problem.scale)):
        return "a scale that makes 2**30 outputs or more of an axis"
    if is_area(problem):
        return pool.pool_refusal(as_pool(task))
    if is_tabulated(problem) and max(problem.input + problem.output) > MOST_TABULATED:
        return f"an axis of more than {MOST_TABULATED} elements, whose taps a table lists"
    return None


def is_area(problem: ResizeProblem) -> bool:
    return problem.mode == "area"


def as_pool(task: Task) -> Task:
    """Return the task of mode area as one of adaptive average pooling, which computes the same."""
    builder = task.builder
    problem = builder.call.problem
    windows = AdaptivePoolProblem(
        n=problem.n, c=problem.c, input=problem.input, output=problem.output
    )
    call = replace(builder.call, op="adaptive_avg_pool", problem=windows)
    return replace(task, builder=replace(builder, call=call))


def _roles(call: Call) -> tuple[str, str]:
    return call.roles[0], call.wanted[0]


def resize_tiles(task: Task) -> tuple[Tile, ...]:
    builder = task.builder
    call, (read, made) = builder.call, _roles(builder.call)
    if is_area(call.problem):
        return pool.pool_tiles(as_pool(task))
    rows = images.tiles(images.planned_result(builder, made, builder.tensors[read]))
    if is_tabulated(call.problem):
        return rows
    taps = prod(unrolled(images.three(count for _, _, count in gathered(call))))
    return tuple(t for t in rows if taps * t.bm * t.bn <= MOST_READ * t.warps * WARP) or rows


def add_resize(task: Task, tile: Tile) -> None:
    builder = task.builder
    if is_area(builder.call.problem):
        pool.add_pool(as_pool(task), tile)
        return
    read, role = _roles(builder.call)
    source = builder.tensors[read]
    made = images.result(builder, role, source)
    if not prod(made.shape):
        return
    if is_tabulated(builder.call.problem):
        builder.steps.append(table_launch(builder, builder.call, source, made, tile))
    else:
        builder.steps.append(resize_launch(builder.call, source, made, tile))


def gathered(call: Call) -> list[tuple[float, int, int]]:
    problem = call.problem
    assert isinstance(problem, ResizeProblem)
    alone = (0.0, 0, 1)
    if call.pass_ != "backward":
        return [alone] * 3
    how, shift = kind(problem), half(problem)
    return [alone] * (3 - problem.rank) + [readers(axis, how, shift) for axis in problem.axes]


def unrolled(reach: Three) -> Three:
    """Return the outputs along each axis if the loop over them is unrolled, else zeros."""
    return reach if prod(reach) <= UNROLLED else (0, 0, 0)


def resize_launch(call: Call, source: Tensor, made: Tensor, tile: Tile) -> Launch:
    problem = call.problem
    assert isinstance(problem, ResizeProblem)
    back, how, shift = call.pass_ == "backward", kind(problem), half(problem)
    small, big = images.three(problem.output), images.three(problem.input)
    own, other = (big, small) if back else (small, big)
    rules = (Rule(0, 0, 1, 1.0),) * (3 - problem.rank) + tuple(map(rule, problem.axes))
    found = gathered(call)
    (x_vec, x_steps), (y_vec, y_steps) = (images.moves(t, call.dtype) for t in (source, made))
    vec = x_vec, y_vec, vector(call.dtype, problem.c)
    rows = problem.n * prod(own)
    before = images.three(max(outputs, 0) for _, outputs, _ in found)
    numbers: tuple[float, ...] = (rows, *own, *other, problem.c // vec[2])
    numbers += tuple(number for column in zip(*rules) for number in column)
    numbers += tuple(number for column in zip(*found) for number in column)
    numbers += (*divisors(own), *divisors(r.den for r in rules), *x_steps, *y_steps)
    return Launch(
        resize_backward_kernel if back else resize_fprop_kernel,
        (-(-rows // tile.bm) * -(-problem.c // tile.bn), 1, 1),
        {"x": slot(source), "y": slot(made)} | dict(zip(RUNTIME, numbers)),
        {
            "RANK": problem.rank,
            "KIND": how,
            "HALF": shift,
            "REACH": unrolled(images.three(count for _, _, count in found)),
            "UNIT": (x_steps[-1] == 1, y_steps[-1] == 1),
            "VEC": vec,
            "WIDE": images.is_wide((source, made), tile.bm, prod(own), before),
            "BM": tile.bm,
            "BN": tile.bn,
        },
        tile.warps,
        tile.stages,
    )


SPEC = KernelSpec(
    "resize",
    serves=("resize",),
    refusal=resize_refusal,
    tiles=resize_tiles,
    add=add_resize,
    kernels=(resize_fprop_kernel, resize_backward_kernel, resize_table_kernel),
    whole_call=True,
    lines={
        f"resize_{pass_}": lines.Line(
            f"resize.{pass_}:{{}}_o40x40:mode=cubic", {"": lines.ELEMENTS}
        )
        for pass_ in ("fprop", "backward")
    },
)
