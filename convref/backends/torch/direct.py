"""ATen's own kernels of fprop and backward, with arguments computed once per call.

Nothing here goes through autograd or checks sizes. A call that a kernel does not take as it is
(padding that differs at both ends, empty images) has no row.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...case import Call
from ...dtypes import SIXTEEN
from . import activation as _torch_activation
from . import pool as _torch_pool
from . import resize as _torch_resize
from .conv import Geometry

Results = tuple[Tensor | None, ...]
Run = Callable[..., Results]

aten = torch.ops.aten


def direct(call: Call) -> Run | None:
    """Return a function from all operands to all results by role, None where there is no kernel."""
    row = _ROWS.get((call.op, call.pass_))
    if row is None or call.dtype[0] == "c":
        return None
    if not prod(call.problem.shape("x")) * prod(call.problem.shape("y")):
        return None
    mixed = call.dtype in SIXTEEN and call.specs[0].device == "cpu"
    return None if mixed and call.op in _MIXED else row(call)


# Beside 16-bit data on the CPU, ATen requires float32 parameters of these.
_MIXED = ("batch_norm", "batch_norm_eval", "group_norm", "layer_norm")


def _conv(call: Call) -> Run | None:
    geometry, convolution = Geometry(call), torch.convolution
    if geometry.outside or geometry.flips:
        return None
    shape = geometry.arguments
    return lambda x, w, b: (convolution(x, w, b, *shape),)


def _conv_backward(call: Call) -> Run | None:
    geometry, k = Geometry(call), [call.conv.k]
    if geometry.outside or geometry.flips:
        return None
    shape = geometry.arguments
    backward, (x_wanted, w_wanted, b_wanted) = aten.convolution_backward.default, call.mask
    images = [0, *range(2, call.conv.rank + 2)]

    def run(dy: Tensor, x: Tensor, w: Tensor) -> Results:
        dx, dw, _ = backward(dy, x, w, k, *shape, [x_wanted, w_wanted, False])
        db = dy.sum(dim=images) if b_wanted else None
        return dx if x_wanted else None, dw if w_wanted else None, db

    return run


def _as_images(call: Call, run: Callable[..., Any]) -> Run:
    """Return a run of one result; a line is an image of one row, for which ATen has kernels."""
    if call.problem.rank > 1:
        return lambda *tensors: (run(*tensors),)
    return lambda *tensors: (run(*(t.unsqueeze(-2) for t in tensors)).squeeze(-2),)


def _planar(call: Call, *sizes: Any, fill: int = 1) -> list[list[int]]:
    """Return sizes per axis, those of a line with an axis of one row before."""
    lead = [fill] if call.problem.rank == 1 else []
    return [[*lead, *each] for each in sizes]


def _windows(call: Call) -> list[list[int]]:
    problem = call.problem
    sides = [lo for lo, _ in problem.padding]
    filter, stride, dilation = _planar(call, problem.filter, problem.stride, problem.dilation)
    (padding,) = _planar(call, sides, fill=0)
    return [filter, stride, padding, dilation]


def _planes(call: Call) -> int:
    return max(2, call.problem.rank)


def _max_pool(call: Call) -> Run:
    return partial(_torch_pool.with_indices, call.op, call.problem)


def _max_pool_backward(call: Call) -> Run:
    where, ceil = _windows(call), call.problem.ceil
    backward = getattr(aten, f"max_pool{_planes(call)}d_with_indices_backward").default
    return _as_images(call, lambda dy, x, indices: backward(dy, x, *where, ceil, indices))


def _adaptive_max_pool_backward(call: Call) -> Run:
    backward = getattr(aten, f"adaptive_max_pool{_planes(call)}d_backward").default
    if call.problem.rank < 3:
        return _as_images(call, backward)
    # In 3d ATen reads the indices as if they were contiguous.
    return _as_images(call, lambda dy, x, indices: backward(dy, x, indices.contiguous()))


def _avg_pool_backward(call: Call) -> Run:
    problem = call.problem
    filter, stride, padding, _ = _windows(call)
    rest = filter, stride, padding, problem.ceil, problem.include_pad, problem.divisor or None
    backward = getattr(aten, f"avg_pool{_planes(call)}d_backward").default
    sizes = _input(call)
    return _as_images(call, lambda dy: backward(dy, dy.new_empty(()).expand(sizes), *rest))


def _input(call: Call) -> list[int]:
    """Return the shape of an input that a kernel takes but does not read."""
    n, c, *space = call.problem.shape("x")
    return [n, c, *_planar(call, space)[0]]


def _adaptive_avg_pool_backward(call: Call) -> Run:
    backward = getattr(aten, f"_adaptive_avg_pool{_planes(call)}d_backward").default
    sizes = _input(call)
    return _as_images(call, lambda dy: backward(dy, dy.new_empty(()).expand(sizes)))


def _resize_backward(call: Call) -> Run:
    if call.problem.mode == "area":
        return _adaptive_avg_pool_backward(call)
    name, arguments = _torch_resize.kernel(call.problem)
    backward = getattr(aten, f"{name}_backward").default
    output, input = list(call.problem.output), list(call.problem.shape("x"))
    return lambda dy: (backward(dy, output, input, *arguments),)


def _batch_norm(call: Call) -> Run:
    problem, forward = call.problem, aten._native_batch_norm_legit_functional.default
    momentum, eps = problem.momentum, problem.eps
    return lambda x, *vectors: forward(x, *map(_dense, vectors), True, momentum, eps)


def _dense(vector: Tensor | None) -> Tensor | None:
    """Return a contiguous vector: ATen's norms ignore its stride."""
    return None if vector is None else vector.contiguous()


def _batch_norm_backward(call: Call) -> Run:
    backward, eps, mask = aten.native_batch_norm_backward.default, call.problem.eps, [*call.mask]

    def run(dy: Tensor, x: Tensor, *vectors: Tensor | None) -> Results:
        w, mean, rstd = map(_dense, vectors)
        found = backward(*_in_one_order(dy, x), w, None, None, mean, rstd, True, eps, mask)
        return _mask_results(found, mask)

    return run


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _in_one_order(dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in one dense memory order: ATen's norm assumes that they share it."""
    last = _CHANNELS_LAST.get(x.ndim)
    if last is None or x.is_contiguous() or not x.is_contiguous(memory_format=last):
        last = torch.contiguous_format
    if 0 in x.stride():
        x = x.clone(memory_format=last)
    return dy.contiguous(memory_format=last), x.contiguous(memory_format=last)


def _batch_norm_eval(call: Call) -> Run:
    forward, eps = torch.batch_norm, call.problem.eps

    def run(x: Tensor, *vectors: Tensor | None) -> Results:
        return (forward(x, *map(_dense, vectors), False, 0.0, eps, torch.backends.cudnn.enabled),)

    return run


def _batch_norm_eval_backward(call: Call) -> Run:
    backward, eps, mask = aten.native_batch_norm_backward.default, call.problem.eps, [*call.mask]

    def run(dy: Tensor, x: Tensor, *vectors: Tensor | None) -> Results:
        found = backward(*_in_one_order(dy, x), *map(_dense, vectors), None, None, False, eps, mask)
        return _mask_results(found, mask)

    return run


def _mask_results(found: Results, mask: list[bool]) -> Results:
    """Return results with None where the mask is off: ATen may return anything there."""
    return tuple(result if on else None for result, on in zip(found, mask))


def _group_norm(call: Call) -> Run:
    problem, forward = call.problem, aten.native_group_norm.default
    sizes = problem.n, problem.c, prod(problem.input), problem.groups, problem.eps
    return lambda x, *vectors: forward(x.contiguous(), *map(_dense, vectors), *sizes)


def _group_norm_backward(call: Call) -> Run | None:
    if not call.problem.weight:
        return None  # without a weight ATen returns no dw
    problem, backward = call.problem, aten.native_group_norm_backward.default
    sizes, mask = (problem.n, problem.c, prod(problem.input), problem.groups), [*call.mask]
    requested = [True, *mask[1:]]  # without dx some of its loops end in a segmentation fault

    def run(dy: Tensor, x: Tensor, *vectors: Tensor | None) -> Results:
        w, mean, rstd = map(_dense, vectors)
        found = backward(dy.contiguous(), x.contiguous(), mean, rstd, w, *sizes, requested)
        return _mask_results(found, mask)

    return run


def _layer_norm(call: Call) -> Run:
    problem, forward = call.problem, aten.native_layer_norm.default
    shape, eps = list(problem.shape("w")), problem.eps
    kept = problem.shape("mean")

    def run(x: Tensor, *weights: Tensor | None) -> Results:
        y, mean, rstd = forward(x, shape, *map(_dense, weights), eps)
        return y, mean.reshape(kept), rstd.reshape(kept)

    return run


def _layer_norm_backward(call: Call) -> Run | None:
    if not call.problem.weight:
        return None  # without a weight ATen returns no dw
    problem, backward = call.problem, aten.native_layer_norm_backward.default
    shape, mask = list(problem.shape("w")), [*call.mask]
    each = (problem.n, *(1,) * len(shape))

    def run(dy: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> Results:
        saved = mean.reshape(each), rstd.reshape(each)
        w = w.contiguous()
        return _mask_results(backward(*_in_one_order(dy, x), shape, *saved, w, w, mask), mask)

    return run


def _rms_norm(call: Call) -> Run:
    problem, forward = call.problem, aten._fused_rms_norm.default
    shape, eps, kept = list(problem.shape("w")), problem.eps, problem.shape("rstd")

    def run(x: Tensor, w: Tensor | None) -> Results:
        y, rstd = forward(x, shape, w, eps)
        return y, rstd.reshape(kept)

    return run


def _pointwise_backward(call: Call) -> Run:
    slope, problem = _SLOPES[call.op], call.problem
    return lambda dy, x: (slope(problem, dy, x),)


_SLOPES: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "relu": lambda problem, dy, x: aten.threshold_backward.default(dy, x, 0),
    "leaky_relu": lambda problem, dy, x: aten.leaky_relu_backward.default(
        dy, x, problem.slope, False
    ),
    "silu": lambda problem, dy, x: aten.silu_backward.default(dy, x),
    "gelu": lambda problem, dy, x: aten.gelu_backward.default(
        dy, x, approximate=problem.approximate
    ),
    "hardswish": lambda problem, dy, x: aten.hardswish_backward.default(dy, x),
    "hardsigmoid": lambda problem, dy, x: aten.hardsigmoid_backward.default(dy, x),
    "sigmoid": lambda problem, dy, x: aten.sigmoid_backward.default(dy, x.sigmoid()),
    "tanh": lambda problem, dy, x: aten.tanh_backward.default(dy, x.tanh()),
    "softmax": lambda problem, dy, x: aten._softmax_backward_data.default(
        dy, x.softmax(problem.dim), problem.dim, x.dtype
    ),
    "log_softmax": lambda problem, dy, x: aten._log_softmax_backward_data.default(
        dy, x.log_softmax(problem.dim), problem.dim, x.dtype
    ),
}


def _by_function(functions: dict[str, Callable[..., Any]]) -> Callable[[Call], Run]:
    """Return the row of an op whose one result is a function of its problem and x."""

    def row(call: Call) -> Run:
        forward = partial(functions[call.op], call.problem)
        return lambda x: (forward(x),)

    return row


_ROWS: dict[tuple[str, str], Callable[[Call], Run | None]] = {
    ("conv", "fprop"): _conv,
    ("conv", "backward"): _conv_backward,
    ("max_pool", "fprop"): _max_pool,
    ("max_pool", "backward"): _max_pool_backward,
    ("adaptive_max_pool", "fprop"): _max_pool,
    ("adaptive_max_pool", "backward"): _adaptive_max_pool_backward,
    ("avg_pool", "fprop"): _by_function(_torch_pool.FUNCTIONS),
    ("avg_pool", "backward"): _avg_pool_backward,
    ("adaptive_avg_pool", "fprop"): _by_function(_torch_pool.FUNCTIONS),
    ("adaptive_avg_pool", "backward"): _adaptive_avg_pool_backward,
    ("resize", "fprop"): _by_function({"resize": _torch_resize.forward}),
    ("resize", "backward"): _resize_backward,
    ("batch_norm", "fprop"): _batch_norm,
    ("batch_norm", "backward"): _batch_norm_backward,
    ("group_norm", "fprop"): _group_norm,
    ("group_norm", "backward"): _group_norm_backward,
    ("layer_norm", "fprop"): _layer_norm,
    ("layer_norm", "backward"): _layer_norm_backward,
    ("rms_norm", "fprop"): _rms_norm,
    ("batch_norm_eval", "fprop"): _batch_norm_eval,
    ("batch_norm_eval", "backward"): _batch_norm_eval_backward,
    **{(op, "fprop"): _by_function(_torch_activation.FUNCTIONS) for op in _SLOPES},
    **{(op, "backward"): _pointwise_backward for op in _SLOPES},
}
