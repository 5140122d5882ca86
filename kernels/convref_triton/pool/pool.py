"""Pools: which kernel computes which pass, and how it is launched."""

from math import prod
from typing import Any

from convref.case import Call

from ..common import images
from ..common.geometry import LIMIT, Tensor
from ..common.images import UNROLLED
from ..common.index import divisors
from ..plan.builder import slots, vector
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile
from .backward import pool_backward_kernel, pool_double_backward_kernel
from .forward import pool_fprop_kernel
from .whole import is_whole, pool_whole_kernel, whole_launch, whole_tiles
from .windows import RUNTIME, Form, form, reach_of

# (whether it is a maximum, pass): kernel, first operand, second operand, results.
PASSES: dict[tuple[bool, str], tuple[Any, str, str, tuple[str, ...]]] = {
    (True, "fprop"): (pool_fprop_kernel, "x", "", ("y", "indices")),
    (True, "jvp"): (pool_fprop_kernel, "x", "x_dot", ("y", "y_dot")),
    (True, "backward"): (pool_backward_kernel, "dy", "indices", ("dx",)),
    (True, "double_backward"): (pool_double_backward_kernel, "ddx", "indices", ("ddy",)),
    (False, "fprop"): (pool_fprop_kernel, "x", "", ("y",)),
    (False, "jvp"): (pool_fprop_kernel, "x_dot", "", ("y_dot",)),
    (False, "backward"): (pool_backward_kernel, "dy", "", ("dx",)),
    (False, "double_backward"): (pool_fprop_kernel, "ddx", "", ("ddy",)),
}


def pool_refusal(task: Task) -> str | None:
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
    kernel, _, beside, _ = _row(call)
    return kernel is pool_fprop_kernel and not beside and is_whole(form(call))


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
            "UNIT": tuple(steps[-1] == 1 for _, steps in layouts),
            "VEC": vec,
            "WIDE": images.is_wide((source, second, *made), tile.bm, prod(own)),
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
    found |= {"indices": None} | {tensor.role: tensor for tensor in (second, *rest) if tensor}
    names = kernel.arg_names[: kernel.arg_names.index("M")]
    return {name: found[name] for name in names}


SPEC = KernelSpec(
    "pool",
    serves=("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool"),
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
)
