"""The sum of the partial results of splits: y[i] = sum over z of parts[z, i].

The order is fixed: every BZ-th split is added in turn, then the BZ sums as a tree.
"""

from __future__ import annotations

from math import prod

import triton
import triton.language as tl

from .builder import slot, vector
from .geometry import Tensor
from .launch import Launch, Slot
from .table import REDUCE

RUNTIME = ["splits", "size"]


@triton.jit(do_not_specialize=RUNTIME)
def reduce(parts, y, splits, size, VEC: tl.constexpr, BZ: tl.constexpr, BLOCK: tl.constexpr):
    """Add BLOCK elements of all parts, which are float32."""
    size = size * VEC
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    z = tl.arange(0, BZ)  # (BZ,)
    acc = tl.zeros((BZ, BLOCK), tl.float32)
    for first in range(0, splits, BZ):
        inside = (first + z < splits)[:, None] & (i < size)[None, :]
        acc += tl.load(parts + ((first + z) * size)[:, None] + i[None, :], inside, other=0.0)
    tl.store(y + i, tl.sum(acc, 0).to(y.dtype.element_ty), i < size)


def launch(parts: str, splits: int, y: Tensor) -> Launch:
    """Return the launch that adds the dense tensors of a workspace, of y's strides, into y.

    Parameters
    ----------
    parts : str
        The workspace: float32, less than 2**31 elements.
    splits : int
    y : Tensor
        Dense.
    """
    size = prod(y.shape)
    vec = vector("f32", size)
    block = REDUCE.bn
    return Launch(
        reduce,
        (-(-size // block), 1, 1),
        {"parts": Slot(parts, "f32"), "y": slot(y), "splits": splits, "size": size // vec},
        {"VEC": vec, "BZ": REDUCE.bm, "BLOCK": block},
        REDUCE.warps,
        REDUCE.stages,
    )
