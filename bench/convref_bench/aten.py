"""ATen's own kernels as users reach them: nothing of convref runs while they are timed.

Each function takes a call and returns what computes its wanted results from the present operands.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
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


def _batch_norm(call: Call) -> Run:
    problem = call.problem
    numbers = problem.momentum, problem.eps
    if call.pass_ == "fprop":
        forward = aten._native_batch_norm_legit_functional
        return lambda x, w, b, mean, var: forward(x, w, b, mean, var, True, *numbers)
    rest, backward = (True, problem.eps, [*call.mask]), aten.native_batch_norm_backward
    return lambda dy, x, w, mean, rstd: backward(dy, x, w, None, None, mean, rstd, *rest)


def _group_norm(call: Call) -> Run:
    problem = call.problem
    sizes = problem.n, problem.c, prod(problem.input), problem.groups
    if call.pass_ == "fprop":
        forward, eps = aten.native_group_norm, problem.eps
        return lambda x, w, b: forward(x, w, b, *sizes, eps)
    backward, mask = aten.native_group_norm_backward, [*call.mask]
    return lambda dy, x, w, mean, rstd: backward(dy, x, mean, rstd, w, *sizes, mask)


def _layer_norm(call: Call) -> Run:
    problem = call.problem
    shape, eps = problem.shape("w"), problem.eps
    each = (problem.n, *(1,) * len(shape))

    def forward(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        y, mean, rstd = aten.native_layer_norm(x, shape, w, b, eps)
        return y, mean.reshape(problem.shape("mean")), rstd.reshape(problem.shape("rstd"))

    def backward(dy: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> Any:
        saved = mean.reshape(each), rstd.reshape(each)
        return aten.native_layer_norm_backward(dy, x, shape, *saved, w, w, [*call.mask])

    return forward if call.pass_ == "fprop" else backward


def _resize(call: Call) -> Run | None:
    problem = call.problem
    if (problem.mode, problem.coord, problem.near) != ("nearest", "asymmetric", "float32"):
        return None
    size, shape, stem = problem.output, problem.shape("x"), f"upsample_nearest{problem.rank}d"
    if problem.scale:
        return None
    if call.pass_ == "fprop":
        forward = getattr(aten, stem)
        return lambda x: forward(x, size)
    backward = getattr(aten, f"{stem}_backward")
    return lambda dy: backward(dy, size, shape)


DIRECT: dict[str, Callable[[Call], Run | None]] = {
    "conv": _conv,
    "max_pool": _max_pool,
    "adaptive_avg_pool": _adaptive_avg_pool,
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "resize": _resize,
}


def direct(call: Call) -> Run | None:
    """Return ATen's own call of what fprop and backward compute, None where there is none."""
    if call.pass_ not in ("fprop", "backward") or call.op not in DIRECT:
        return None
    whole = all(map(call.is_present, call.roles)) and all(call.mask)
    return DIRECT[call.op](call) if whole or call.op == "conv" else None
