"""Activations alone: y = f(x) and dx = dy f'(x), element by element in the order of memory.

f is as in the epilogues of `common.epilogue` where it has one. sigmoid(x) sigmoid(-x) is its
derivative, without the cancellation of 1 - sigmoid(x).
"""

from math import prod

import triton
import triton.language as tl

from ..common.epilogue import ACTIVATIONS, activate
from ..common.geometry import LIMIT, Tensor
from ..plan import lines
from ..plan.builder import slots, vector
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile

TILES = (Tile(1, 2048, 1, 4, 1), Tile(1, 512, 1, 4, 1))


@triton.jit
def exp(v):
    """Return e**v = 2**n e**r, with |r| below 1: on a GPU, tl.exp errs by |v| units of rounding."""
    n = tl.floor(v * 1.4426950408889634 + 0.5)
    n = tl.minimum(tl.maximum(n, -127.0), 127.0)
    r = v - n * 0.693145751953125 - n * 1.4286068203094173e-06  # the first product is exact
    return tl.exp(r) * tl.exp2(n)


@triton.jit
def sigmoid(v):
    return 1.0 / (1.0 + exp(-v))


@triton.jit
def derivative(v, slope, NAME: tl.constexpr):
    if NAME == "leaky_relu":
        d = tl.where(v > 0.0, 1.0, slope)
    elif NAME == "silu":
        d = sigmoid(v) * (1.0 + v * sigmoid(-v))
    elif NAME == "sigmoid":
        d = sigmoid(v) * sigmoid(-v)
    else:
        d = tl.where(v >= 3.0, 1.0, tl.where(v <= -3.0, 0.0, v * 0.3333333333333333 + 0.5))
    return d


@triton.jit(do_not_specialize=["N", "slope"])
def activation_kernel(x, y, N, slope, NAME: tl.constexpr, VEC: tl.constexpr, BN: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    v = tl.load(x + at, at < N * VEC, other=0.0).to(tl.float32)
    if NAME == "leaky_relu":
        v = tl.where(v > 0.0, v, v * slope)
    elif NAME == "sigmoid":
        v = sigmoid(v)
    elif NAME == "silu":
        v = v / (1.0 + exp(-v))
    else:
        v = activate(v, NAME)
    tl.store(y + at, v.to(y.dtype.element_ty), at < N * VEC)


@triton.jit(do_not_specialize=["N", "slope"])
def activation_dgrad_kernel(
    dy, x, dx, N, slope, NAME: tl.constexpr, VEC: tl.constexpr, BN: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    v = tl.load(x + at, at < N * VEC, other=0.0).to(tl.float32)
    g = tl.load(dy + at, at < N * VEC, other=0.0).to(tl.float32)
    # relu: 0 where x <= 0, even if dy is infinite or NaN.
    out = tl.where(v <= 0.0, 0.0, g) if NAME == "relu" else g * derivative(v, slope, NAME)
    tl.store(dx + at, out.to(dx.dtype.element_ty), at < N * VEC)


def activation_refusal(task: Task) -> str | None:
    call = task.builder.call
    if call.pass_ not in ("fprop", "backward"):
        return f"no kernel for {call.where}: there are some for fprop, backward"
    return "2**31 elements or more" if prod(call.problem.shape("x")) >= LIMIT else None


def activation_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles: where elements are loaded alone, only the small one does not spill."""
    call = task.builder.call
    return TILES if vector(call.dtype, prod(call.problem.shape("x"))) > 1 else TILES[1:]


def order_of(x: Tensor) -> tuple[int, ...]:
    """Return the axes of a tensor, outermost in memory first."""
    return tuple(sorted(range(len(x.shape)), key=lambda axis: -abs(x.strides[axis])))


def add_activation(task: Task, tile: Tile) -> None:
    builder, call = task.builder, task.builder.call
    fprop = call.pass_ == "fprop"
    kernel, role = (activation_kernel, "y") if fprop else (activation_dgrad_kernel, "dx")
    order, shape = order_of(builder.tensors["x"]), call.problem.shape("x")
    result = builder.new(role, shape, order, call.dtype)
    operands: dict[str, Tensor | None] = {
        name: builder.in_order(builder.tensors[name], order) for name in call.roles
    }
    count = prod(shape)
    if not count:
        return
    vec = vector(call.dtype, count)
    given, _ = slots(operands | {role: result})
    numbers = {"N": count // vec, "slope": getattr(call.problem, "slope", 0.0)}
    constants = {"NAME": call.op, "VEC": vec, "BN": tile.bn}
    grid = -(-count // tile.bn), 1, 1
    builder.steps.append(Launch(kernel, grid, given | numbers, constants, tile.warps, tile.stages))


OPS = "leaky_relu", "sigmoid", *(name for name in ACTIVATIONS if name not in ("", "gelu"))
SPEC = KernelSpec(
    "activation",
    serves=OPS,
    refusal=activation_refusal,
    tiles=activation_tiles,
    add=add_activation,
    kernels=(activation_kernel, activation_dgrad_kernel),
    whole_call=True,
    lines=lines.alone(OPS, lines.ELEMENTS),
    expects=Expectation(vectors=True, program=((864, 832),)),
)
