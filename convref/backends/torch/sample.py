"""ATen's sampling as `torch.nn.functional` calls it, derivatives by autograd."""

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...case import Call
from .autograd import Results, derive

OPS = ("grid_sample",)
# 2.11 has no derivative of grid_sample's backward, 2.13 has; 2.12 was not tried
DERIVED_TWICE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why ATen has no kernel for the call."""
    if call.dtype in ("f16", "bf16"):
        return f"ATen computes the positions of {call.op} in {call.dtype}"
    if call.dtype not in ("f32", "f64"):
        return f"ATen has no {call.op} kernel for {call.dtype}"
    if call.pass_ == "jvp":
        return f"ATen has no forward-mode derivative of {call.op}"
    if call.pass_ == "double_backward" and not DERIVED_TWICE:
        return f"this version of ATen has no derivative of {call.op}'s backward"
    if not prod(call.problem.shape("x")) * prod(call.problem.shape("y")):
        return "the adapter does not call ATen for empty images"
    return None


def run(call: Call, rules: bool, *tensors: Tensor | None) -> Results:
    """Return the results by role."""
    problem: Any = call.problem
    rule = problem.mode, problem.padding_mode, problem.align_corners
    return derive(call, lambda x, grid: F.grid_sample(x, grid, *rule), *tensors)
