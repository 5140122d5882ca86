"""ATen's pools as `torch.nn.functional` calls them, and their derivatives by autograd."""

from collections.abc import Callable
from math import inf, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...case import Call
from ...dtypes import REAL, SIXTEEN
from ...ops import Problem, WindowProblem
from ...oracle import first_reads
from .autograd import Results, derive

_TYPES = {"max_pool": (*REAL, "i8", "i16", "i32", "i64", "u8"), "avg_pool": (*REAL, "i64")}

_NARROW = {"i8": 127, "u8": 255, "i16": 2**15 - 1}


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why ATen has no kernel for the call."""
    if call.op == "lp_pool" and not rules and call.problem.norm % 2:
        return "torch sums powers of signed values, which is a norm only if norm_type is even"
    problem, kind = call.problem, f"rank {call.problem.rank}"
    if call.dtype not in (_TYPES.get(call.op, REAL) if call.pass_ == "fprop" else REAL):
        return f"ATen has no {call.where} kernel for {call.dtype}"
    if call.op in ("avg_pool", "lp_pool") and problem.rank == 3 and call.dtype in SIXTEEN:
        return f"ATen has no {call.op} kernel of {kind} for {call.dtype}"
    if call.op == "avg_pool" and problem.rank == 1 and problem.divisor:
        return f"ATen has no divisor_override in {kind}"
    if not prod(problem.input):
        return "ATen has no kernel for empty images"
    if not isinstance(problem, WindowProblem):
        return None
    # Also channels last, as which ATen takes any image of one channel.
    narrow = rules and (problem.rank == 3 or problem.c == 1)
    if narrow and prod(problem.input) > _NARROW.get(call.dtype, inf):
        return f"ATen computes such indices in {call.dtype}, which cannot represent them"
    if rules and call.op == "max_pool" and any(min(first_reads(axis)) < 0 for axis in problem.axes):
        return "ATen returns an index outside of the image for an empty window"
    is_3d = rules and call.op == "avg_pool" and problem.rank == 3
    if is_3d and any(size < taps for size, taps in zip(problem.input, problem.filter)):
        return "ATen refuses a 3d image smaller than the kernel, even with padding"
    return _unsupported_windows(call.op, problem)


def _unsupported_windows(op: str, problem: Problem) -> str | None:
    """Return why ATen has no such windows, None if it has."""
    if op != "max_pool" and set(problem.dilation) != {1}:
        return f"ATen has no dilation in {op}"
    if any(lo != hi for lo, hi in problem.padding):
        return "ATen supports only equal padding at both ends"
    if op == "lp_pool" and any(map(any, problem.padding)):
        return "ATen has no padding in lp_pool"
    for axis in problem.axes:
        if not 0 <= 2 * axis.lo <= axis.taps:
            return "ATen pads at most half the kernel size"
    return None


def run(call: Call, rules: bool, *tensors: Tensor) -> Results:
    """Return the results by role."""
    if rules and not call.problem.n * call.problem.c:
        return _empty(call, *tensors)
    if rules:  # derivatives of unpooling refuse views, forward mode refuses expanded ones
        tensors = tuple(t.contiguous() for t in tensors)
    if call.pass_ == "fprop" and "indices" in call.signature.results:
        return with_indices(call.op, call.problem, tensors[0])
    given = dict(zip(call.roles, tensors))
    if rules and call.op != "max_unpool" and "indices" in given:
        return (_at_indices(call, given["indices"], tensors[0]),)
    return derive(call, _forward(call, rules, given), *tensors)


def _at_indices(call: Call, indices: Tensor, tensor: Tensor) -> Tensor:
    """Return dx or ddy of a maximum, by the indices that are given; -1 has no position."""
    sizes = call.problem.shape("x")
    count = prod(sizes[2:])
    at = torch.where(indices < 0, count, indices).flatten(2)
    if call.pass_ == "backward":
        dx = tensor.new_zeros((*sizes[:2], count + 1)).scatter_add(2, at, tensor.flatten(2))
        return dx[..., :count].reshape(sizes)
    padded = torch.cat((tensor.flatten(2), tensor.new_zeros((*sizes[:2], 1))), 2)
    return padded.gather(2, at).reshape(indices.shape)


def stages(call: Call) -> int:
    """Return the most roundings of 16-bit values before the last rounding.

    A scatter rounds each cotangent over its divisor and each addition; lp_pool rounds each of its
    steps, and its derivatives multiply rounded values.
    """
    scattered = prod(axis.windows_per_position for axis in call.problem.axes)
    if call.op == "lp_pool":
        return scattered + 24 + 8 * round(call.problem.norm)
    return scattered + 1


def _empty(call: Call, *tensors: Tensor) -> Results:
    """Return the results where there is no image or no channel: arrays without elements."""

    def empty(role: str) -> Tensor:
        dtype = torch.int64 if role == "indices" else None
        return tensors[0].new_zeros(call.problem.shape(role), dtype=dtype)

    return call.results(empty)


def _forward(call: Call, rules: bool, given: dict[str, Tensor]) -> Callable[[Tensor], Tensor]:
    problem = call.problem
    if "indices" in call.signature.results or call.op in ("max_pool", "adaptive_max_pool"):
        return lambda x: with_indices(call.op, problem, x)[0]
    if call.op == "max_unpool":
        return lambda x: _unpool(problem, x, given["indices"])
    if call.op == "lp_pool" and rules:
        return lambda x: _norm(problem, x)
    return lambda x: FUNCTIONS[call.op](problem, x)


def _named(stem: str, rank: int) -> Any:
    return getattr(F, f"{stem}{rank}d")


def _windows(problem: Problem) -> tuple[Any, ...]:
    return problem.filter, problem.stride, tuple(lo for lo, _ in problem.padding)


def with_indices(op: str, problem: Problem, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return y and its indices of a max pool, as torch computes them."""
    if op == "adaptive_max_pool":
        found = _named(op, problem.rank)(x, problem.output, return_indices=True)
    else:
        arguments = (*_windows(problem), problem.dilation, problem.ceil, True)
        found = _named(op, problem.rank)(x, *arguments)
    y, indices = found
    return y, indices


def _avg(problem: Problem, x: Tensor) -> Tensor:
    arguments = (*_windows(problem), problem.ceil, problem.include_pad)
    more = (problem.divisor,) if problem.divisor else ()
    return _named("avg_pool", problem.rank)(x, *arguments, *more)


def _lp(problem: Problem, x: Tensor) -> Tensor:
    kernel, stride, _ = _windows(problem)
    if problem.rank == 1:  # lp_pool1d multiplies by its kernel_size as it is
        (kernel,), (stride,) = kernel, stride
    return _named("lp_pool", problem.rank)(x, problem.norm, kernel, stride, problem.ceil)


def _norm(problem: Problem, x: Tensor) -> Tensor:
    """Return the p-norm itself: of absolute values, whole or cut windows alike, smooth at 0."""
    lifted = problem.rank == 1  # avg_pool1d has no divisor of its own
    kernel, stride, _ = _windows(problem)
    powers = x.abs() ** problem.norm
    if lifted:
        powers, kernel, stride = powers[..., None, :], (1, *kernel), (1, *stride)
    pool = _named("avg_pool", max(2, problem.rank))
    sums = pool(powers, kernel, stride, 0, problem.ceil, True, 1)
    sums = sums.squeeze(-2) if lifted else sums
    none = sums == 0
    return torch.where(none, 0 * sums, torch.where(none, 1, sums) ** (1 / problem.norm))


def _unpool(problem: Problem, x: Tensor, indices: Tensor) -> Tensor:
    if problem.rank == 3:
        return torch._C._nn.max_unpool3d(x, indices, problem.output, (1, 1, 1), (0, 0, 0))
    if problem.rank == 2:
        return torch._C._nn.max_unpool2d(x, indices, problem.output)
    flat = torch._C._nn.max_unpool2d(x[..., None], indices[..., None], (*problem.output, 1))
    return flat.squeeze(-1)


FUNCTIONS: dict[str, Callable[[Problem, Tensor], Tensor]] = {
    "avg_pool": _avg,
    "adaptive_avg_pool": lambda p, x: _named("adaptive_avg_pool", p.rank)(x, p.output),
    "lp_pool": _lp,
}
OPS = ("max_pool", "adaptive_max_pool", "max_unpool", *FUNCTIONS)
