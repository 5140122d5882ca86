"""ATen's quantised convolution, of uint8 images and int8 filters on the CPU."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...case import Call
from ...errors import UnsupportedError, message
from .autograd import Results
from .conv import padded

OPS = ("quantized_conv",)
# Not x86 and onednn: oneDNN adds the zero point before it rounds, so halves go to an odd number.
_ENGINES = ("fbgemm", "qnnpack")
_MOVED = 128  # between the two types: differences from a zero point stay the same


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why ATen has no kernel for the call."""
    problem: Any = call.problem
    if not set(_ENGINES) & set(torch.backends.quantized.supported_engines):
        return f"torch has none of the engines {' and '.join(_ENGINES)}"
    if not hasattr(torch, "_make_per_channel_quantized_tensor"):
        return f"PyTorch {torch.__version__} has no quantised tensors"
    if call.specs[0].device != "cpu":
        return "ATen's quantised convolution is only on the CPU"
    if problem.bias:
        return "ATen adds a float32 bias to the sums, not an integer"
    if not all(0 <= zero <= 255 for zero in _zeros(call)):
        return "ATen has no zero points beyond the range of the type"
    if not prod(problem.shape("x")) * prod(problem.shape("w")):
        return "the adapter does not call ATen for empty images"
    return None


def run(call: Call, rules: bool, *tensors: Tensor | None) -> Results:
    """Return the results by role. Both scales of images are 1: the filter's is the multiplier."""
    problem: Any = call.problem
    x, w, _, zero, scale = tensors
    assert x is not None
    assert w is not None
    assert zero is not None
    assert scale is not None
    if rules and float(scale.abs().max()) * call.products("y") * 255**2 >= 2**31:
        what = (
            "ATen converts scaled sums to int32, where these may overflow: backend='numpy' does not"
        )
        raise UnsupportedError(message(call.where, what, call))
    signed, (x_zero, y_zero), rank = call.dtype == "i8", _zeros(call), problem.rank
    if signed:
        x = (x ^ -_MOVED).view(torch.uint8)
    else:
        w, zero = (w ^ _MOVED).view(torch.int8), zero - _MOVED
    x = padded(x, [side for pair in reversed(problem.padding) for side in pair], x_zero)
    ops, name = torch.ops.quantized, f"conv{rank}d"
    geometry = problem.stride, (0,) * rank, problem.dilation, problem.groups
    with _engine():
        image = torch._make_per_tensor_quantized_tensor(x, 1.0, x_zero)
        weight = torch._make_per_channel_quantized_tensor(w, scale.double(), zero.long(), 0)
        packed = getattr(ops, f"{name}_prepack")(weight, None, *geometry)
        y = getattr(ops, name)(image, packed, 1.0, y_zero).int_repr()
    return ((y ^ _MOVED).view(torch.int8) if signed else y,)


@contextmanager
def _engine() -> Iterator[None]:
    """Set the first engine that torch has, and restore it; torch warns that these will go."""
    chosen = torch.backends.quantized
    before = chosen.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        chosen.engine = next(name for name in _ENGINES if name in chosen.supported_engines)
        try:
            yield
        finally:
            chosen.engine = before


def _zeros(call: Call) -> tuple[int, int]:
    """Return the zero points of images of uint8."""
    moved = _MOVED if call.dtype == "i8" else 0
    problem: Any = call.problem
    return problem.x_zero + moved, problem.y_zero + moved
