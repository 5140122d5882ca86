"""ATen's products of matrices, reductions and running sums, derivatives by autograd."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from ...case import Call
from ...dtypes import COMPLEX, INTEGERS, REAL
from .autograd import Results, derive

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "matmul": lambda problem, x, w: x @ w,
    "sum": lambda problem, x: x.sum(problem.axes, keepdim=True, dtype=x.dtype),
    "mean": lambda problem, x: x.mean(problem.axes, keepdim=True),
    "cumsum": lambda problem, x: x.cumsum(problem.dim, dtype=x.dtype),
}
OPS = tuple(FUNCTIONS)


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why ATen has no kernel for the call."""
    known = (*REAL, *COMPLEX, *INTEGERS) if call.pass_ == "fprop" else (*REAL, *COMPLEX)
    return None if call.dtype in known else f"ATen has no {call.where} kernel for {call.dtype}"


def stages(call: Call) -> int:
    """Return the most roundings of 16-bit values before the last one.

    Tangents add up two rounded products; the second derivative of a mean, terms that are divided.
    """
    if call.op == "matmul":
        return {"jvp": 2, "double_backward": 2}.get(call.pass_, 0)
    return int(call.where == "mean.double_backward")


def run(call: Call, rules: bool, *tensors: Tensor | None) -> Results:
    """Return the results by role."""
    if rules:  # forward mode refuses expanded tensors
        tensors = tuple(None if t is None else t.contiguous() for t in tensors)
    return derive(call, partial(FUNCTIONS[call.op], call.problem), *tensors)
