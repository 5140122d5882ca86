"""ATen's products of matrices, reductions, running sums and attention, derivatives by autograd."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...case import Call
from ...dtypes import COMPLEX, INTEGERS, REAL
from .autograd import Results, derive


def _attention(call: Call, x: Tensor, k: Tensor, v: Tensor, b: Tensor | None = None) -> Tensor:
    problem: Any = call.problem
    if b is not None and problem.causal:  # ATen takes no mask beside is_causal
        later = torch.ones(b.shape[-2:], dtype=torch.bool, device=b.device).triu(1)
        b = b.masked_fill(later, -torch.inf)
    compute = partial(
        F.scaled_dot_product_attention,
        attn_mask=b,
        is_causal=problem.causal and b is None,
        scale=problem.scale,
        enable_gqa=problem.groups > 1,
    )
    if call.pass_ in ("fprop", "backward"):
        return compute(x, k, v)
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have only a first derivative
        return compute(x, k, v)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "matmul": lambda call, x, w: x @ w,
    "sum": lambda call, x: x.sum(call.problem.axes, keepdim=True, dtype=x.dtype),
    "mean": lambda call, x: x.mean(call.problem.axes, keepdim=True),
    "cumsum": lambda call, x: x.cumsum(call.problem.dim, dtype=x.dtype),
    "sdpa": _attention,
}
OPS = tuple(FUNCTIONS)


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why ATen has no kernel for the call."""
    known: tuple[str, ...] = REAL
    if call.op == "sdpa" and not call.problem.n * call.problem.c:
        return "the adapter does not call ATen for empty batches"
    if call.op != "sdpa":
        known = (*known, *COMPLEX, *(INTEGERS if call.pass_ == "fprop" else ()))
    return None if call.dtype in known else f"ATen has no {call.where} kernel for {call.dtype}"


def stages(call: Call) -> int:
    """Return the most roundings of 16-bit values before the last one.

    Tangents add up two rounded products; the second derivative of a mean, terms that are divided.
    Attention may keep its scores and weights.
    """
    if call.op == "matmul":
        return {"jvp": 2, "double_backward": 2}.get(call.pass_, 0)
    if call.op == "sdpa":
        return {"fprop": 6, "backward": 16, "jvp": 24, "double_backward": 64}[call.pass_]
    return int(call.where == "mean.double_backward")


def run(call: Call, rules: bool, *tensors: Tensor | None) -> Results:
    """Return the results by role."""
    if rules:  # forward mode refuses expanded tensors
        tensors = tuple(None if t is None else t.contiguous() for t in tensors)
    forward, primals = partial(FUNCTIONS[call.op], call), None
    if call.op == "sdpa":
        given = {role: t for role, t in zip(call.roles, tensors) if t is not None}
        roles = "xkvb" if "b" in given or "db" in call.wanted else "xkv"
        shapes = call.problem.shape
        primals = {r: given[r] if r in given else given["x"].new_zeros(shapes(r)) for r in roles}
    found = derive(call, forward, *tensors, primals=primals)
    if call.op in ("matmul", "sdpa"):
        return found
    return tuple(None if r is None else r.clone() for r in found)  # some are views of operands
