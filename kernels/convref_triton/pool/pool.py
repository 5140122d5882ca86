"""Pools: which kernel computes which pass, and how it is launched."""

from math import prod
from typing import Any

from convref.case import Call

from ..common import images
from ..common.geometry import LIMIT, Tensor
from ..common.images import UNROLLED
from ..common.index import divisors
from ..plan import lines
from ..plan.builder import Builder, slots, vector
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile
from .backward import pool_backward_kernel, pool_double_backward_kernel
from .forward import pool_fprop_kernel
from .whole import is_whole, pool_whole_kernel, whole_launch, whole_tiles
from .windows import RUNTIME, Form, form, reach_of

# (kind of pool, pass): kernel, first operand, second operand, results.
PASSES: dict[tuple[str, str], tuple[Any, str, str, tuple[str, ...]]] = {
    ("max", "fprop"): (pool_fprop_kernel, "x", "", ("y", "indices")),
    ("max", "jvp"): (pool_fprop_kernel, "x", "x_dot", ("y", "y_dot")),
    ("max", "backward"): (pool_backward_kernel, "dy", "indices", ("dx",)),
    ("max", "double_backward"): (pool_double_backward_kernel, "ddx", "indices", ("ddy",)),
    ("mean", "fprop"): (pool_fprop_kernel, "x", "", ("y",)),
    ("mean", "jvp"): (pool_fprop_kernel, "x_dot", "", ("y_dot",)),
    ("mean", "backward"): (pool_backward_kernel, "dy", "", ("dx",)),
    ("mean", "double_backward"): (pool_fprop_kernel, "ddx", "", ("ddy",)),
    ("norm", "fprop"): (pool_fprop_kernel, "x", "", ("y",)),
    ("norm", "jvp"): (pool_fprop_kernel, "x", "x_dot", ("y", "y_dot")),
    ("norm", "backward"): (pool_backward_kernel, "dy", "", ("dx",)),
}
MOST_NORM = 8.0
KINDS = {"max_pool": "max", "adaptive_max_pool": "max", "lp_pool": "norm"}


def kind_of(call: Call) -> str:
    return KINDS.get(call.op, "mean")


def pool_refusal(task: Task) -> str | None:
    call = task.builder.call
    if (kind_of(call), call.pass_) not in PASSES:
        return f"no kernel for {call.where}: there are some for fprop, jvp, backward"
    norm = getattr(call.problem, "norm", 1.0)
    if norm > MOST_NORM or 2 * norm % 1:
        return f"no kernel for norm={norm:g}: there are some for multiples of 0.5 up to 8"
    shape = form(call)
    if call.problem.n * max(prod(shape.big), prod(shape.small)) >= LIMIT:
        return "2**31 pixels or more"
    if any(i * (o + 2) + o >= LIMIT or o * (i + 2) + i >= LIMIT for i, o in zip(*shape[:2])):
        return "an axis whose sizes have a product of 2**31 or more"
    return None


def _row(call: Call) -> tuple[Any, str, str, tuple[str, ...]]:
    return PASSES[kind_of(call), call.pass_]


def _is_whole(call: Call) -> bool:
    kernel, _, beside, _ = _row(call)
    alone = kernel is pool_fprop_kernel and not beside and kind_of(call) != "norm"
    return alone and is_whole(form(call))


def pool_tiles(task: Task) -> tuple[Tile, ...]:
    builder = task.builder
    _, read, _, results = _row(builder.call)
    source = builder.tensors[read]
    if _is_whole(builder.call):
        return whole_tiles(source)
    return images.tiles(images.planned_result(builder, results[0], source))


def add_pool(task: Task, tile: Tile) -> None:
    builder, call = task.builder, task.builder.call
    kernel, read, beside, results = _row(call)
    if kind_of(call) == "norm" and call.pass_ == "backward":
        add_norm_backward(builder, tile)
        return
    source = builder.tensors[read]
    made = [images.result(builder, role, source) for role in results]
    if not prod(made[0].shape):
        return
    shape = form(call)
    if _is_whole(call):
        builder.steps.append(whole_launch(source, made, shape, "max" in call.op, tile))
        return
    second = builder.tensors[beside] if beside else None
    builder.steps.append(pool_launch(kernel, call, shape, (source, second), made, tile))


def add_norm_backward(builder: Builder, tile: Tile) -> None:
    """Add the norms of all windows, and then the launch that gathers from them."""
    call, x = builder.call, builder.tensors["x"]
    dx = images.result(builder, "dx", x)
    if not prod(dx.shape):
        return
    x, shape = builder.in_order(x, images.order_like(x)), form(call)
    norms = builder.new("norms", call.problem.shape("y"), images.order_like(x), "f32")
    builder.steps.append(pool_launch(pool_fprop_kernel, call, shape, (x, None), [norms], tile))
    operands = builder.tensors["dy"], norms
    builder.steps.append(pool_launch(pool_backward_kernel, call, shape, operands, [dx, x], tile))


def pool_launch(
    kernel: Any,
    call: Call,
    shape: Form,
    operands: tuple[Tensor, Tensor | None],
    made: list[Tensor],
    tile: Tile,
) -> Launch:
    """Return the launch of a kernel on its first operand, a second one or None, and its results."""
    source, second = operands
    back, largest = kernel is pool_backward_kernel, "max" in call.op
    twice = round(2 * call.problem.norm) if kind_of(call) == "norm" else 0
    own, other = (shape.big, shape.small) if back else (shape.small, shape.big)
    loop = reach_of(shape) if back else shape.size
    layouts = [images.moves(tensor, call.dtype) for tensor in (source, second, made[0])]
    vec = (*(vec for vec, _ in layouts), vector(call.dtype, call.problem.c))
    rows = call.problem.n * prod(own)
    numbers: tuple[float, ...] = (rows, *own, *other, call.problem.c // vec[3], *shape.end)
    numbers += (*shape.lo, *shape.least, *shape.most, *shape.size, prod(loop), *loop, shape.scale)
    numbers += (*divisors(own), *divisors(other))
    numbers += tuple(step for _, steps in layouts for step in steps)
    unrolled = prod(loop) <= UNROLLED and not shape.adaptive
    d, h, w = ((n - 1) * (1 if back else step) for n, step in zip(loop, shape.dilation))
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
            "TWICE": twice,
            "UNIT": tuple(steps[-1] == 1 for _, steps in layouts),
            "VEC": vec,
            "WIDE": images.is_wide((source, second, *made), tile.bm, prod(own), (d, h, w)),
            "BM": tile.bm,
            "BN": tile.bn,
        },
        tile.warps,
        tile.stages,
    )


def _named(kernel: Any, tensors: list[Tensor | None]) -> dict[str, Tensor | None]:
    """Return the tensor of each pointer of a kernel, by its name; None where it has none."""
    source, second, first, *rest = tensors
    found = {"y": first, "dx": first, "x": source, "dy": source, "y_dot": None, "x_dot": None}
    found |= {"indices": None, "norms": None}
    if kernel is pool_backward_kernel:
        found["x"] = None
    others = (tensor for tensor in (second, *rest) if tensor)
    found |= {tensor.role.partition(".")[0]: tensor for tensor in others}
    names = kernel.arg_names[: kernel.arg_names.index("M")]
    return {name: found[name] for name in names}


SPEC = KernelSpec(
    "pool",
    serves=("max_pool", "avg_pool", "lp_pool", "adaptive_max_pool", "adaptive_avg_pool"),
    refusal=pool_refusal,
    tiles=pool_tiles,
    add=add_pool,
    kernels=(
        pool_fprop_kernel,
        pool_backward_kernel,
        pool_double_backward_kernel,
        pool_whole_kernel,
    ),
    whole_call=True,
    lines={
        f"lp_pool_{pass_}": lines.Line(
            f"lp_pool.{pass_}:{{}}_f3x3_s2_p1:norm=3.0", {"": lines.ELEMENTS}
        )
        for pass_ in ("fprop", "backward")
    },
)
