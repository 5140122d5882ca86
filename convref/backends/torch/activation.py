"""ATen's ops of the same name in `torch.nn.functional`, derivatives by autograd.

These are the activations and the pixel shuffles.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...case import Call, memory
from ...dtypes import REAL, SIXTEEN
from ...ops import FAMILY, GROUPS, SIGNATURE, TERMS, Problem
from .autograd import Results, derive

FLUSHES = ("bf16",)  # vcvtneps2bf16 does, where the CPU has it
SCALED = ("normalize", "local_response_norm")  # by powers, which exceed float16
_INTEGERS = ("i8", "i16", "i32", "i64", "u8")


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why ATen has no kernel for the call."""
    copies = call.pass_ == "fprop" and TERMS[call.op, "fprop", "y"].kind == "copy"
    known = (*REAL, *_INTEGERS) if copies else REAL
    if call.dtype not in known:
        return f"ATen has no {call.where} kernel for {call.dtype}"
    if call.op == "hardsigmoid" and call.pass_ == "double_backward":
        return "ATen has no derivative of hardsigmoid_backward"
    if call.op == "hardsigmoid" and call.pass_ != "fprop" and call.dtype == "f64":
        return "ATen's hardsigmoid_backward rounds 1 / 6 to float32"
    sixteen = not rules and call.dtype in SIXTEEN
    if sixteen and call.op == "local_response_norm" and call.problem.rank > 1:
        return f"ATen has no 3d avg_pool for {call.dtype}, of which {call.op} consists"
    if call.op == "local_response_norm" and rules:
        padded = call.problem.n * (call.problem.c + call.problem.size) * prod(call.problem.input)
        if 4 * padded > memory.available():
            return "ATen pads the channels by the window, for which memory is too small"
    if call.op in LOSSES and not prod(call.problem.shape("x")):
        return "the adapter does not call ATen for empty images"
    return None


def stages(call: Call) -> int:
    """Return the most roundings of 16-bit values before the last rounding.

    A forward function rounds once. A first derivative may start from a result that was kept, and
    second ones take several tensor operations; a loss takes three.
    """
    steps = {"fprop": 1, "backward": 3, "jvp": 6, "double_backward": 24}[call.pass_]
    return 4 * steps if call.op in (*LOSSES, *SCALED) else steps


def run(call: Call, rules: bool, *tensors: Tensor | None) -> Results:
    """Return the results by role."""
    shapes = {role: call.problem.shape(role) for role in call.wanted}
    if rules and not any(map(prod, shapes.values())):  # ATen's may have another shape
        like = next(t for t in tensors if t is not None)
        return call.results(lambda role: like.new_empty(shapes[role]))
    if rules:  # forward mode refuses expanded tensors
        tensors = tuple(None if t is None else t.contiguous() for t in tensors)
    given = dict(zip(call.roles, tensors))
    forward = _forward(call, rules, given)
    if call.op == "hardsigmoid" and call.pass_ == "jvp":
        x, x_dot = tensors  # `derive` would differentiate ATen's gradient in a caller's jvp
        return F.hardsigmoid(x), torch.ops.aten.hardsigmoid_backward(x_dot, x)
    return derive(call, forward, *tensors)


def _forward(call: Call, rules: bool, given: dict[str, Tensor | None]) -> Callable[..., Tensor]:
    if call.op in LOSSES:
        return partial(_loss, call, given)
    function = FUNCTIONS[call.op]
    if rules and call.pass_ in ("jvp", "double_backward"):
        function = _SMOOTHER.get(call.op, function)
    if rules and call.op in SCALED and call.dtype in SIXTEEN:
        return lambda x: function(call.problem, x.float()).to(x.dtype)
    return partial(function, call.problem)


def _prelu(problem: Problem, x: Tensor, w: Tensor) -> Tensor:
    """Return prelu from operations whose derivatives at 0 agree; those of ATen's do not."""
    return torch.where(x > 0, x, w.reshape(-1, *(1,) * (x.ndim - 2)) * x)


def _normalize(problem: Problem, x: Tensor) -> Tensor:
    """Return normalize without the norm of 0, whose second derivative is NaN."""
    powers = x * x if problem.p == 2 else x.abs() ** problem.p  # |x| has no second derivative
    powers = powers.sum(problem.dim, keepdim=True)
    low = powers.detach() ** (1 / problem.p) < problem.eps
    norm = torch.where(low, 1, powers) ** (1 / problem.p)
    return x / torch.where(low, problem.eps, norm)


# By op: what takes the place of ATen's function where its further derivatives are wrong at 0.
_SMOOTHER: dict[str, Callable[..., Tensor]] = {"prelu": _prelu, "normalize": _normalize}


def _loss(
    call: Call, given: dict[str, Tensor | None], x: Tensor, p: Tensor | None = None
) -> Tensor:
    target, w = given["target"] if p is None else p, given["w"]
    w = None if w is None else w.detach()  # autograd may follow it; ATen has no gradient for it
    y = LOSSES[call.op](x, target, w, **_fields(call.problem))
    return y.reshape(call.problem.shape("y"))


def _by_name(op: str) -> Callable[..., Tensor]:
    function = getattr(F, op)
    return lambda problem, *t: function(*t, **_fields(problem))


def _fields(problem: Problem) -> dict[str, Any]:
    names = (field.name for field in problem.KEYS.values())
    return {name: getattr(problem, name) for name in names if name not in problem.OF_OPERANDS}


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    op: _by_name(op)
    for op in FAMILY
    if hasattr(F, op)
    and SIGNATURE[op, "fprop"].results == ("y",)
    and "target" not in SIGNATURE[op, "fprop"].operands
    and op not in GROUPS["sample"]
}


def _pixel_shuffle(problem: Problem, x: Tensor) -> Tensor:
    r = problem.factor
    return F.pixel_shuffle(_exchanged(x, r * r) if problem.mode == "DCR" else x, r)


def _pixel_unshuffle(problem: Problem, x: Tensor) -> Tensor:
    y = F.pixel_unshuffle(x, problem.factor)
    return _exchanged(y, max(1, problem.c)) if problem.mode == "DCR" else y


def _exchanged(x: Tensor, outer: int) -> Tensor:
    """Return x with the other order of its channels, which are `outer` times some others."""
    return x.unflatten(1, (outer, x.shape[1] // outer)).transpose(1, 2).flatten(1, 2)


FUNCTIONS |= {"pixel_shuffle": _pixel_shuffle, "pixel_unshuffle": _pixel_unshuffle}
FUNCTIONS["leaky_relu"] = lambda problem, x: F.leaky_relu(x, problem.slope)
LOSSES: dict[str, Callable[..., Tensor]] = {
    "nll_loss": F.nll_loss,
    "cross_entropy": F.cross_entropy,
    "soft_cross_entropy": F.cross_entropy,
}
OPS = (*FUNCTIONS, *LOSSES)
