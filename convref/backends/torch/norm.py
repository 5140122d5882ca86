"""ATen's norms as `torch.nn.functional` reaches them, and their derivatives by autograd.

The underlying kernels are called only for the statistics that a forward pass saves. Derivatives
recompute the statistics.
"""

from functools import partial
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...arrays import torch_dtype
from ...case import Call
from ...dtypes import REAL, SIXTEEN
from ...ops import (
    GROUPS,
    SIGNATURE,
    BatchNormProblem,
    GroupNormProblem,
    InstanceNormProblem,
    LayerNormProblem,
    NormProblem,
)
from .autograd import Results, derive

aten = torch.ops.aten
OPS = GROUPS["norm"]
FLUSHES = ("bf16",)  # vcvtneps2bf16 does, where the CPU has it
Given = dict[str, Tensor]


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why ATen has no kernel for the call."""
    if call.dtype not in REAL:
        return f"ATen has no {call.op} kernel for {call.dtype}"
    if not prod(call.problem.shape("x")):
        return "the adapter does not call ATen for empty images"
    return None


def stages(call: Call) -> int:
    """Return the most roundings of 16-bit values before the last rounding.

    Forward and backward compute in float32. Autograd's further derivatives take about
    twenty tensor operations, each of which rounds, and some sums of rounded tensors.
    """
    return 48 if call.pass_ in ("jvp", "double_backward") else 2


def run(call: Call, rules: bool, *tensors: Tensor | None) -> Results:
    """Return the results by role."""
    if rules:  # forward mode refuses expanded tensors
        tensors = tuple(None if t is None else t.contiguous() for t in tensors)
    if call.pass_ != "fprop" and call.problem.parameters == "wide":
        # ATen rounds dw and db to 16 bits
        tensors = tuple(None if t is None else t.float() for t in tensors)
    given = {role: t for role, t in zip(call.roles, tensors) if t is not None}
    found = _fprop(call, given) if call.pass_ == "fprop" else _derived(call, given, *tensors)
    shape = call.problem.shape
    return call.results(lambda r: found[r].reshape(shape(r)).to(torch_dtype(call.dtype_of(r))))


def _derived(call: Call, given: Given, *tensors: Tensor | None) -> Given:
    primals = dict(zip("xwb", (given["x"], *_parameters(call, given))))
    forward = partial(_forward, call, given)
    found = derive(call, forward, *tensors, primals=primals)
    return {r: t for r, t in zip(call.signature.results, found) if t is not None}


def _parameters(call: Call, given: Given) -> list[Tensor]:
    """Return weight and bias, if the op has one; ones and zeros where there is none.

    Beside 16-bit data they are float32: so libraries take them, with statistics in float32. ATen's
    RMS norm has them in the type of the data.
    """
    like = next(iter(given.values()))
    wide = call.dtype in SIXTEEN and (call.op != "rms_norm" or call.problem.parameters == "wide")
    kind = torch.float32 if wide else like.dtype
    shape = call.problem.shape("w")
    return [
        given[role].to(kind)
        if role in given
        else torch.full(shape, value, dtype=kind, device=like.device)
        for role, value in (("w", 1.0), ("b", 0.0))
        if role in SIGNATURE[call.op, "fprop"].operands
    ]


def _forward(call: Call, given: Given, x: Tensor, *parameters: Tensor) -> Tensor:
    """Return y."""
    problem: NormProblem = call.problem  # type: ignore[assignment]
    eps = problem.eps
    if isinstance(problem, GroupNormProblem):
        return torch.group_norm(x, problem.groups, *parameters, eps)
    if isinstance(problem, LayerNormProblem):  # and RMS norm, which is one
        return getattr(F, call.op)(x, list(problem.shape("w")), *parameters, eps)
    w, b = parameters
    mean, var = (given[r].detach().to(w.dtype) if r in given else None for r in ("rmean", "rvar"))
    momentum = getattr(problem, "momentum", 0.0)
    if isinstance(problem, InstanceNormProblem):
        return F.instance_norm(x, mean, var, w, b, True, momentum, eps)
    return F.batch_norm(x, mean, var, w, b, call.op == "batch_norm", momentum, eps)


def _forward_with_statistics(call: Call, given: Given) -> tuple[Tensor, ...]:
    """Return y and the statistics of the underlying kernel, called as `group_norm` calls it."""
    problem: NormProblem = call.problem  # type: ignore[assignment]
    x, parameters, eps = given["x"], _parameters(call, given), problem.eps
    if isinstance(problem, InstanceNormProblem):  # writes into the running ones, returns none
        rows = x.reshape(1, problem.n * problem.c, -1)
        ones = parameters[0].new_ones(rows.shape[1])  # statistics are kept in its type
        kept = aten.native_batch_norm(rows, ones, None, None, None, True, 0.0, eps)[1:]
        return _forward(call, given, x, *parameters), *kept
    if isinstance(problem, BatchNormProblem):
        old = given["rmean"], given["rvar"]
        return aten.native_batch_norm(x, *parameters, *old, True, problem.momentum, eps)
    x, *parameters = (t.contiguous() for t in (x, *parameters))
    if isinstance(problem, GroupNormProblem):
        sizes = problem.n, problem.c, prod(problem.input)
        return aten.native_group_norm(x, *parameters, *sizes, problem.groups, eps)
    shape = list(problem.shape("w"))
    if call.op == "rms_norm":  # its kernel leaves the checks of sizes to the function
        y = _forward(call, given, x, *parameters)
        return y, aten._fused_rms_norm(x, shape, *parameters, eps)[1]
    return aten.native_layer_norm(x, shape, *parameters, eps)


def _fprop(call: Call, given: Given) -> Given:
    if call.op == "batch_norm_eval":
        return {"y": _forward(call, given, given["x"], *_parameters(call, given))}
    kind = torch.float32 if call.dtype in SIXTEEN else given["x"].dtype
    running = [role for role in ("rmean", "rvar") if role in given]
    old: Given = {role: given[role].to(kind, copy=True) for role in running}
    found = _forward_with_statistics(call, {**given, **old})  # which writes into old
    return {**dict(zip(call.signature.results, found)), **old}
