"""ATen's own kernels as users reach them: nothing of convref runs while they are timed.

Each function takes a call and returns what computes its wanted results from the present operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from convref.case import Call

Run = Callable[..., Any]
Geometry = tuple[list[int], list[int], list[int], int]

aten = torch.ops.aten


def geometry(call: Call) -> Geometry:
    """Return stride, padding, dilation and groups of a convolution padded alike at both ends."""
    problem = call.conv
    padding = [lo for lo, _ in problem.padding]
    return list(problem.stride), padding, list(problem.dilation), problem.groups


def is_symmetric(call: Call) -> bool:
    """Return whether ATen takes the padding of a convolution as it is."""
    return all(lo == hi >= 0 for lo, hi in call.conv.padding) and not call.conv.flip


def _conv(call: Call) -> Run | None:
    if not is_symmetric(call):
        return None
    stride, padding, dilation, groups = geometry(call)
    extra, k = list(call.conv.output_padding), [call.conv.k]
    shape = (stride, padding, dilation, call.conv.transposed, extra, groups)
    if call.pass_ == "fprop":
        return lambda x, w, b=None: torch.convolution(x, w, b, *shape)
    if call.pass_ != "backward" or sum(call.mask) != 1:
        return None
    mask = list(call.mask)
    slot = mask.index(True)
    return lambda dy, x, w: aten.convolution_backward(dy, x, w, k, *shape, mask)[slot]


def _max_pool(call: Call) -> Run | None:
    problem = call.problem
    where = problem.filter, problem.stride, [lo for lo, _ in problem.padding]
    where += (problem.dilation, problem.ceil)
    if problem.rank == 1:
        return None
    stem = f"max_pool{problem.rank}d_with_indices"
    if call.pass_ == "fprop":
        forward = getattr(aten, stem)
        return lambda x: forward(x, *where)
    backward = getattr(aten, f"{stem}_backward")
    return lambda dy, x, indices: backward(dy, x, *where, indices)


def _adaptive_avg_pool(call: Call) -> Run | None:
    rank, size = call.problem.rank, call.problem.output
    if rank == 1:
        return None
    if call.pass_ == "fprop":
        forward = getattr(aten, f"_adaptive_avg_pool{rank}d")
        return lambda x: forward(x, size)
    backward = getattr(aten, f"_adaptive_avg_pool{rank}d_backward")
    shape = call.problem.shape("x")

    def run(dy: Tensor) -> Any:
        return backward(dy, dy.new_empty(()).expand(shape))

    return run


DIRECT: dict[str, Callable[[Call], Run | None]] = {
    "conv": _conv,
    "max_pool": _max_pool,
    "adaptive_avg_pool": _adaptive_avg_pool,
}


def direct(call: Call) -> Run | None:
    """Return ATen's own call of what fprop and backward compute, None where there is none."""
    if call.pass_ not in ("fprop", "backward") or call.op not in DIRECT:
        return None
    return DIRECT[call.op](call)
