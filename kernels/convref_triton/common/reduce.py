"""The sum of the partial results of splits: y[i] = sum over z of parts[z, i].

The order is fixed: every BZ-th split is added in turn, then the BZ sums as a tree. An epilogue
follows where there is one.
"""

from collections.abc import Callable
from math import prod

import triton
import triton.language as tl

from ..plan.builder import Builder, slots, vector
from ..plan.launch import Launch, Slot
from ..plan.task import PLAIN, Epilogue
from ..plan.tile import Tile
from .epilogue import apply
from .geometry import Tensor
from .index import divisor, quotient

# Parts and elements of a block.
FEW = Tile(8, 128, 1)
MANY = Tile(128, 32, 1, 8)  # for hundreds of parts of a small result: loads are in flight at once
RUNTIME = ["splits", "size", "channels", "c_magic", "c_shift"]


@triton.jit(do_not_specialize=RUNTIME)
def reduce(
    parts, y, bias, scale, shift, residual, splits, size, channels, c_magic, c_shift,
    VEC: tl.constexpr, BZ: tl.constexpr, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Add BLOCK elements of all parts, which are float32; c_magic divides by a channel's stride."""
    size = size * VEC
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    z = tl.arange(0, BZ)  # (BZ,)
    acc = tl.zeros((BZ, BLOCK), tl.float32)
    for first in range(0, splits, BZ):
        inside = (first + z < splits)[:, None] & (i < size)[None, :]
        acc += tl.load(parts + ((first + z) * size)[:, None] + i[None, :], inside, other=0.0)
    channel = quotient(i, c_magic, c_shift) % channels
    if bias is not None:
        bias = tl.load(bias + channel, i < size, other=0.0).to(tl.float32)
    if scale is not None:
        scale = tl.load(scale + channel, i < size, other=0.0).to(tl.float32)
    if shift is not None:
        shift = tl.load(shift + channel, i < size, other=0.0).to(tl.float32)
    if residual is not None:
        residual = tl.load(residual + i, i < size, other=0.0).to(tl.float32)
    done = apply(tl.sum(acc, 0), bias, scale, shift, residual, ACTIVATION)
    tl.store(y + i, done.to(y.dtype.element_ty), i < size)


def add_in_parts(
    builder: Builder,
    y: Tensor,
    splits: int,
    launch_of: Callable[[Tensor], Launch],
    tile: Tile = FEW,
) -> None:
    """Add the launch that computes the parts of y, into the first of them, and their sum.

    One part is y itself.
    """
    first = builder.parts(y, splits)
    builder.steps.append(launch_of(first))
    if splits > 1:
        builder.steps.append(reduce_launch(first.role, splits, y, tile=tile))


def reduce_launch(
    parts: str, splits: int, y: Tensor, epilogue: Epilogue = PLAIN, tile: Tile = FEW
) -> Launch:
    """Return the launch that adds the dense tensors of a workspace, of y's strides, into y.

    The workspace `parts` has less than 2**31 elements, in float32; y is dense, and the vectors of
    the epilogue are along its axis 1.
    """
    size = prod(y.shape)
    vec = vector("f32", size)
    channels, step = (y.shape[1], y.strides[1]) if len(y.shape) > 1 else (1, 1)
    given, absent = slots({"y": y, **epilogue.tensors})
    numbers = dict(zip(RUNTIME, (splits, size // vec, channels, *divisor(step))))
    return Launch(
        reduce,
        (-(-size // tile.bn), 1, 1),
        {"parts": Slot(parts, "f32")} | given | numbers,
        absent | {"VEC": vec, "BZ": tile.bm, "BLOCK": tile.bn, "ACTIVATION": epilogue.activation},
        tile.warps,
        1,
    )
