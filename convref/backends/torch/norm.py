"""ATen's norms as `torch.nn.functional` reaches them, and their derivatives by autograd.

Only what a forward pass saves is asked of the kernels beneath. Derivatives find the statistics
again, whatever was saved.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import prod
from typing import Any

from ...case import Call
from ...errors import missing_extra
from ...ops import BatchNormProblem, GroupNormProblem, LayerNormProblem, NormProblem

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
except ImportError as error:
    raise missing_extra("torch", error) from None

aten = torch.ops.aten
OPS = ("batch_norm", "batch_norm_eval", "group_norm", "layer_norm")
_REAL = ("f16", "bf16", "f32", "f64")
FLUSHES = ("bf16",)  # vcvtneps2bf16 does, where the CPU has it
Given = dict[str, Tensor]
Results = tuple[Tensor | None, ...]


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why ATen has no kernel for the call."""
    if call.dtype not in _REAL:
        return f"ATen has no {call.op} kernel for {call.dtype}"
    if not prod(call.problem.shape("x")):
        return "ATen is not asked for the statistics of nothing"
    return None


def stages(call: Call) -> int:
    """Return how often 16-bit values are rounded before the last rounding, at most.

    Forward and backward compute in float32. Autograd's further derivatives are made of twenty or
    so tensor operations, each of which rounds, and some sums of tensors that were rounded.
    """
    return 48 if call.pass_ in ("jvp", "double_backward") else 2


def run(call: Call, rules: bool, *tensors: Tensor | None) -> Results:
    """Return the results by role."""
    if rules:  # forward mode refuses expanded tensors
        tensors = tuple(None if t is None else t.contiguous() for t in tensors)
    given = {role: t for role, t in zip(call.roles, tensors) if t is not None}
    found = _PASSES[call.pass_](call, given)
    return tuple(
        found[role].reshape(call.problem.shape(role)).to(_type(call, role, given))
        if role in call.wanted
        else None
        for role in call.signature.results
    )


def _type(call: Call, role: str, given: Given) -> torch.dtype:
    """Return the type of a result; statistics beside 16-bit data are float32."""
    data = (given["dy"] if "dy" in given else given["x"]).dtype
    return torch.float32 if call.dtype_of(role) == "f32" else data


def _parameters(call: Call, given: Given) -> tuple[Tensor, Tensor]:
    """Return weight and bias, ones and zeros where there is none.

    Beside 16-bit data they are float32: so libraries take them, with statistics in float32.
    """
    like = next(iter(given.values()))
    kind = torch.float32 if call.dtype in ("f16", "bf16") else like.dtype
    shape = call.problem.shape("w")
    w, b = given.get("w"), given.get("b")
    return (
        torch.ones(shape, dtype=kind, device=like.device) if w is None else w.to(kind),
        torch.zeros(shape, dtype=kind, device=like.device) if b is None else b.to(kind),
    )


def _forward(call: Call, x: Tensor, w: Tensor, b: Tensor, given: Given) -> Tensor:
    """Return y."""
    problem: NormProblem = call.problem  # type: ignore[assignment]
    eps = problem.eps
    if isinstance(problem, GroupNormProblem):
        return torch.group_norm(x, problem.groups, w, b, eps)
    if isinstance(problem, LayerNormProblem):
        return F.layer_norm(x, list(problem.shape("w")), w, b, eps)
    old = given.get("rmean"), given.get("rvar")
    momentum = getattr(problem, "momentum", 0.0)
    return F.batch_norm(x, *old, w, b, call.op == "batch_norm", momentum, eps)


def _saving(call: Call, given: Given) -> tuple[Tensor, ...]:
    """Return (y, mean, rstd) of the kernel beneath, given what `group_norm` would hand down."""
    problem: NormProblem = call.problem  # type: ignore[assignment]
    x, (w, b), eps = given["x"], _parameters(call, given), problem.eps
    if isinstance(problem, BatchNormProblem):
        old = given["rmean"], given["rvar"]
        return aten.native_batch_norm(x, w, b, *old, True, problem.momentum, eps)
    x, w, b = x.contiguous(), w.contiguous(), b.contiguous()
    if isinstance(problem, GroupNormProblem):
        sizes = problem.n, problem.c, prod(problem.input)
        return aten.native_group_norm(x, w, b, *sizes, problem.groups, eps)
    return aten.native_layer_norm(x, list(problem.shape("w")), w, b, eps)


def _fprop(call: Call, given: Given) -> Given:
    if call.op == "batch_norm_eval":
        return {"y": _forward(call, given["x"], *_parameters(call, given), given)}
    old: Given = {role: given[role].clone() for role in ("rmean", "rvar") if role in given}
    found = _saving(call, {**given, **old})  # which writes into old
    return {**dict(zip(("y", "mean", "rstd"), found)), **old}


def _backward(call: Call, given: Given) -> Given:
    arguments = given["x"], *_parameters(call, given)
    with torch.enable_grad():
        inputs = [t.detach().requires_grad_(wanted) for t, wanted in zip(arguments, call.mask)]
        x, w, b = inputs
        y = _forward(call, x, w, b, given)
        found = torch.autograd.grad(y, [t for t in inputs if t.requires_grad], given["dy"])
    return dict(zip(call.wanted, found))


def _jvp(call: Call, given: Given) -> Given:
    w, b = _parameters(call, given)
    w_dot, b_dot = given.get("w_dot"), given.get("b_dot")
    dots = (
        given["x_dot"],
        torch.zeros_like(w) if w_dot is None else w_dot.to(w.dtype),
        torch.zeros_like(b) if b_dot is None else b_dot.to(b.dtype),
    )

    def forward(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return _forward(call, x, w, b, given)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch scripts its own rules
        y, y_dot = torch.func.jvp(forward, (given["x"], w, b), dots)
    return {"y": y, "y_dot": y_dot}


def _double_backward(call: Call, given: Given) -> Given:
    with torch.enable_grad():
        arguments = given["x"], given["dy"], *_parameters(call, given)
        x, dy, w, b = (t.detach().requires_grad_() for t in arguments)
        first = torch.autograd.grad(
            _forward(call, x, w, b, given), (x, w, b), dy, create_graph=True
        )
        outer = [given.get(role) for role in ("ddx", "ddw", "ddb")]
        pairs = [(f, o.to(f.dtype)) for f, o in zip(first, outer) if o is not None]
        second = torch.autograd.grad(
            [f for f, _ in pairs], (dy, x, w), [o for _, o in pairs], allow_unused=True
        )
    return {
        role: torch.zeros_like(t) if found is None else found
        for role, t, found in zip(("ddy", "dx", "dw"), (dy, x, w), second)
    }


_PASSES: dict[str, Callable[[Call, Given], Any]] = {
    "fprop": _fprop,
    "backward": _backward,
    "jvp": _jvp,
    "double_backward": _double_backward,
}
