"""torch.nn.functional's ops of a CNN, with its names, arguments and order, computed by convref.

Tensors on any device, differentiable both ways and twice; traced by torch.compile and torch.export
as the custom ops `torch.ops.convref.*`. Each takes ``backend``: a name, "package.module:object",
"auto", or None for the one that `use_backend` set.

Examples
--------
>>> import torch
>>> image = torch.arange(9.).reshape(1, 1, 3, 3).requires_grad_()
>>> max_pool2d(conv2d(image, torch.ones(1, 1, 2, 2)), 2).item()
24.0
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...errors import ConvrefError, message
from . import _library
from ._arguments import adaptive, pads, per_axis, remembered, sampling, unpooled, windows
from ._autograd import invoke, rule_of
from ._backend import chosen
from ._kernels import How, Tensors
from ._table import ROWS

assert _library  # importing it defines the ops

_RANKS = (1, 2, 3)


def _call(op: str, attributes: tuple[Any, ...], backend: str | None, *operands: Any) -> Tensors:
    row = ROWS[op, "fprop"]
    for tensor in operands:
        if tensor is not None and not isinstance(tensor, Tensor):
            what = f"{type(tensor).__name__} given, needs a tensor"
            raise ConvrefError(message(f"{op}.fprop", what))
    return invoke(How(row, attributes, (), (), chosen(backend)), *operands)


def _image(op: str, rank: int, input: Tensor) -> tuple[Tensor, bool]:
    """Return the input with its N axis, and whether it had none."""
    if input.ndim not in (rank + 1, rank + 2):
        what = f"input has {input.ndim} axes, needs {rank + 2} (or no N)"
        raise ConvrefError(message(f"{op}.fprop", what))
    return (input, False) if input.ndim == rank + 2 else (input[None], True)


def _convolve(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    transposed: bool,
    output_padding: Any,
    flip: bool,
    math: str,
    backend: str | None,
) -> Tensor:
    x, alone = _image("conv", rank, input)
    given = (stride, padding, dilation, groups, transposed, output_padding, flip, math)
    attributes = _geometry(rank, x, weight, *given)
    (y,) = _call("conv", attributes, backend, x, weight, bias)
    assert y is not None
    return y[0] if alone else y


def _geometry(
    rank: int, x: Tensor, weight: Tensor, stride: Any, padding: Any, *rest: Any
) -> tuple[Any, ...]:
    """Return the attributes of a convolution; `rest` is in the order of `_attributes`."""
    if isinstance(padding, str):
        return _worded(x, weight, rank, stride, padding, *rest)
    return remembered(_attributes, rank, stride, padding, *rest)


def _attributes(
    rank: int,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    transposed: bool,
    output_padding: Any,
    flip: bool,
    math: str,
) -> tuple[Any, ...]:
    extra = per_axis(output_padding, rank)
    strides, dilations = per_axis(stride, rank), per_axis(dilation, rank)
    return (strides, pads(padding, rank), dilations, groups, transposed, extra, flip, math)


def _worded(
    x: Tensor, weight: Tensor, rank: int, stride: Any, padding: str, dilation: Any, *rest: Any
) -> tuple[Any, ...]:
    """Return the attributes where a word says the padding."""
    if rest[1] and padding != "valid":
        what = f"padding is {padding!r}, needs numbers or 'valid'"
        raise ConvrefError(message("conv.fprop", what))
    strides, dilations = per_axis(stride, rank), per_axis(dilation, rank)
    geometry = {"input": x.shape[2:], "filter": weight.shape[2:]}
    sides = pads(padding, rank, stride=strides, dilation=dilations, **geometry)
    pairs = tuple(zip(sides[::2], sides[1::2]))
    return _attributes(rank, strides, pairs, dilations, *rest)


def _conv(rank: int) -> Callable[..., Tensor]:
    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        *,
        flip: bool = False,
        math: str = "ieee",
        backend: str | None = None,
    ) -> Tensor:
        return _convolve(
            *(rank, input, weight, bias, stride, padding, dilation, groups),
            *(False, 0, flip, math, backend),
        )

    return _named(conv, f"conv{rank}d", "Return the convolution of `input` with `weight`.")


def _conv_transpose(rank: int) -> Callable[..., Tensor]:
    def conv_transpose(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
        *,
        flip: bool = False,
        math: str = "ieee",
        backend: str | None = None,
    ) -> Tensor:
        return _convolve(
            *(rank, input, weight, bias, stride, padding, dilation, groups),
            *(True, output_padding, flip, math, backend),
        )

    text = "Return the transposed convolution of `input` with `weight`."
    return _named(conv_transpose, f"conv_transpose{rank}d", text)


def _named(function: Callable[..., Any], name: str, text: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text} Arguments as in torch.nn.functional.{name}.\n"
    return function


def _max_pool(rank: int) -> Callable[..., Any]:
    def max_pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        *,
        backend: str | None = None,
    ) -> Any:
        x, alone = _image("max_pool", rank, input)
        space = x.shape[2:]
        attributes = windows(space, kernel_size, stride, padding, dilation, ceil_mode)
        found = _call("max_pool", attributes, backend, x)
        return _with_indices(found, alone, return_indices)

    return _named(max_pool, f"max_pool{rank}d", "Return the maximum of each window.")


def _with_indices(found: Tensors, alone: bool, return_indices: bool) -> Any:
    y, indices = (None if r is None else r[0] if alone else r for r in found)
    return (y, indices) if return_indices else y


def _avg_pool(rank: int) -> Callable[..., Tensor]:
    def avg_pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        backend: str | None = None,
    ) -> Tensor:
        x, alone = _image("avg_pool", rank, input)
        if divisor_override == 0:
            what = "divisor_override is 0, needs another integer or None"
            raise ConvrefError(message("avg_pool.fprop", what))
        shape = windows(x.shape[2:], kernel_size, stride, padding, 1, ceil_mode)
        attributes = (*shape, count_include_pad, divisor_override or 0)
        (y,) = _call("avg_pool", attributes, backend, x)
        assert y is not None
        return y[0] if alone else y

    return _named(avg_pool, f"avg_pool{rank}d", "Return the mean of each window.")


def _lp_pool(rank: int) -> Callable[..., Tensor]:
    def lp_pool(
        input: Tensor,
        norm_type: float,
        kernel_size: Any,
        stride: Any = None,
        ceil_mode: bool = False,
        *,
        backend: str | None = None,
    ) -> Tensor:
        x, alone = _image("lp_pool", rank, input)
        shape = windows(x.shape[2:], kernel_size, stride, 0, 1, ceil_mode)
        (y,) = _call("lp_pool", (*shape, float(norm_type)), backend, x)
        assert y is not None
        return y[0] if alone else y

    return _named(lp_pool, f"lp_pool{rank}d", "Return the p-norm of each window.")


def _adaptive_avg_pool(rank: int) -> Callable[..., Tensor]:
    def adaptive_avg_pool(input: Tensor, output_size: Any, *, backend: str | None = None) -> Tensor:
        x, alone = _image("adaptive_avg_pool", rank, input)
        attributes = (adaptive(x.shape[2:], output_size),)
        (y,) = _call("adaptive_avg_pool", attributes, backend, x)
        assert y is not None
        return y[0] if alone else y

    text = "Return means of windows that are cut to give `output_size`."
    return _named(adaptive_avg_pool, f"adaptive_avg_pool{rank}d", text)


def _adaptive_max_pool(rank: int) -> Callable[..., Any]:
    def adaptive_max_pool(
        input: Tensor,
        output_size: Any,
        return_indices: bool = False,
        *,
        backend: str | None = None,
    ) -> Any:
        x, alone = _image("adaptive_max_pool", rank, input)
        attributes = (adaptive(x.shape[2:], output_size),)
        found = _call("adaptive_max_pool", attributes, backend, x)
        return _with_indices(found, alone, return_indices)

    text = "Return maxima of windows that are cut to give `output_size`."
    return _named(adaptive_max_pool, f"adaptive_max_pool{rank}d", text)


def _max_unpool(rank: int) -> Callable[..., Tensor]:
    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
        *,
        backend: str | None = None,
    ) -> Tensor:
        x, alone = _image("max_unpool", rank, input)
        output = unpooled(x.shape[2:], kernel_size, stride, padding, output_size)
        places = indices[None] if alone else indices
        (y,) = _call("max_unpool", (output,), backend, x, places)
        assert y is not None
        return y[0] if alone else y

    text = "Return `input` put back where `indices` say, zeros elsewhere."
    return _named(max_unpool, f"max_unpool{rank}d", text)


conv1d, conv2d, conv3d = map(_conv, _RANKS)
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_conv_transpose, _RANKS)
max_pool1d, max_pool2d, max_pool3d = map(_max_pool, _RANKS)
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg_pool, _RANKS)
lp_pool1d, lp_pool2d, lp_pool3d = map(_lp_pool, _RANKS)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_adaptive_avg_pool, _RANKS)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_max_pool, _RANKS)
max_unpool1d, max_unpool2d, max_unpool3d = map(_max_unpool, _RANKS)


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
    *,
    backend: str | None = None,
) -> Tensor:
    """Return `input` on a grid of another size. Arguments as in torch.nn.functional.interpolate."""
    attributes = sampling(
        *("resize.fprop", input.shape[2:], size, scale_factor, mode),
        *(align_corners, recompute_scale_factor, antialias),
    )
    (y,) = _call("resize", attributes, backend, input)
    assert y is not None
    return y


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    backend: str | None = None,
) -> Tensor:
    """Return `input` normalised per channel; in training the running statistics are updated.

    Arguments as in torch.nn.functional.batch_norm, which also writes into the running ones.
    """
    x, kept = _wide(input, weight)
    if not training:
        if running_mean is None or running_var is None:
            what = "running statistics are None, needs them in evaluation"
            raise ConvrefError(message("batch_norm_eval.fprop", what))
        given = (x, weight, bias, running_mean, running_var)
        found = _call("batch_norm_eval", (eps,), backend, *given)
        return _narrow(found[0], input, kept)
    absent = running_mean is None or running_var is None
    rmean, rvar = (running_mean, running_var)
    if absent:
        statistic = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        rmean = rvar = x.new_zeros(x.shape[1], dtype=statistic)
    found = _call("batch_norm", (eps, momentum), backend, x, weight, bias, rmean, rvar)
    y, _, _, new_mean, new_var = found
    if not absent:
        with torch.no_grad():
            running_mean.copy_(new_mean)  # type: ignore[union-attr]
            running_var.copy_(new_var)  # type: ignore[union-attr]
    return _narrow(y, input, kept)


def _wide(input: Tensor, weight: Tensor | None) -> tuple[Tensor, bool]:
    """Return the input with an axis of space, in its weight's type if that is the wider one."""
    x = input[..., None] if input.ndim == 2 else input
    sixteen = input.dtype in (torch.float16, torch.bfloat16)
    if sixteen and weight is not None and weight.dtype == torch.float32:
        return x.float(), True  # what autocast leaves: 16-bit images, 32-bit parameters
    return x, False


def _narrow(y: Tensor | None, input: Tensor, widened: bool) -> Tensor:
    assert y is not None
    found = y[..., 0] if input.ndim == 2 else y
    return found.to(input.dtype) if widened else found


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    backend: str | None = None,
) -> Tensor:
    """Return `input` normalised over each image and group of channels."""
    x, widened = _wide(input, weight)
    y, *_ = _call("group_norm", (eps, num_groups), backend, x, weight, bias)
    return _narrow(y, input, widened and rule_of("group_norm", input.device.type) is None)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    backend: str | None = None,
) -> Tensor:
    """Return `input` normalised over its last axes, those of `normalized_shape`."""
    shape = tuple(per_axis(normalized_shape, 1))
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        what = f"input has shape {tuple(input.shape)}, needs {shape} at its end"
        raise ConvrefError(message("layer_norm.fprop", what))
    count = prod(shape)
    x = input.reshape(-1, count, 1)
    x, widened = _wide(x, weight)
    flat = (None if t is None else t.reshape(count, 1) for t in (weight, bias))
    y, *_ = _call("layer_norm", (eps,), backend, x, *flat)
    assert y is not None
    found = y.reshape(input.shape)
    narrow = widened and rule_of("layer_norm", input.device.type) is None
    return found.to(input.dtype) if narrow else found


def _pointwise(op: str, input: Tensor, attributes: tuple[Any, ...], backend: str | None) -> Tensor:
    flat = not 3 <= input.ndim <= 5
    (y,) = _call(op, attributes, backend, input.reshape(1, 1, -1) if flat else input)
    assert y is not None
    return y.reshape(input.shape) if flat else y


def _overwriting(
    op: str, input: Tensor, attributes: tuple[Any, ...], inplace: bool, backend: str | None
) -> Tensor:
    if not inplace:
        return _pointwise(op, input, attributes, backend)
    before = input.clone() if torch.is_grad_enabled() else input  # what derivatives will read
    return input.copy_(_pointwise(op, before, attributes, backend))


def relu(input: Tensor, inplace: bool = False, *, backend: str | None = None) -> Tensor:
    """Return the larger of 0 and each element; NaN stays."""
    return _overwriting("relu", input, (), inplace, backend)


def leaky_relu(
    input: Tensor,
    negative_slope: float = 0.01,
    inplace: bool = False,
    *,
    backend: str | None = None,
) -> Tensor:
    """Return x where it is positive, else `negative_slope` times x."""
    return _overwriting("leaky_relu", input, (float(negative_slope),), inplace, backend)


def silu(input: Tensor, inplace: bool = False, *, backend: str | None = None) -> Tensor:
    """Return x / (1 + exp(-x)) of each element."""
    return _overwriting("silu", input, (), inplace, backend)


def gelu(input: Tensor, approximate: str = "none", *, backend: str | None = None) -> Tensor:
    """Return x times the normal distribution function, or its approximation by tanh."""
    return _pointwise("gelu", input, (approximate,), backend)


def hardswish(input: Tensor, inplace: bool = False, *, backend: str | None = None) -> Tensor:
    """Return x min(max(x + 3, 0), 6) / 6 of each element."""
    return _overwriting("hardswish", input, (), inplace, backend)


def sigmoid(input: Tensor, *, backend: str | None = None) -> Tensor:
    """Return 1 / (1 + exp(-x)) of each element."""
    return _pointwise("sigmoid", input, (), backend)


def tanh(input: Tensor, *, backend: str | None = None) -> Tensor:
    """Return the hyperbolic tangent of each element."""
    return _pointwise("tanh", input, (), backend)


def _along(op: str, input: Tensor, dim: int, dtype: Any, backend: str | None) -> Tensor:
    x = input if dtype is None else input.to(dtype)
    if dim is None:
        raise ConvrefError(message(f"{op}.fprop", "dim is None, needs an axis"))
    axis = dim + x.ndim if dim < 0 else dim
    if not 0 <= axis < max(x.ndim, 1):
        what = f"dim is {dim}, needs {-x.ndim} to {x.ndim - 1}"
        raise ConvrefError(message(f"{op}.fprop", what))
    sizes = tuple(x.shape) or (1,)
    view = (prod(sizes[:axis]), sizes[axis], prod(sizes[axis + 1 :]))
    (y,) = _call(op, (1,), backend, x.reshape(view))
    assert y is not None
    return y.reshape(x.shape)


def softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, backend: str | None = None
) -> Tensor:
    """Return exp(x) over its sum along `dim`."""
    return _along("softmax", input, dim, dtype, backend)


def log_softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, backend: str | None = None
) -> Tensor:
    """Return the logarithm of `softmax`."""
    return _along("log_softmax", input, dim, dtype, backend)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    backend: str | None = None,
) -> Tensor:
    """Return the cross entropy of logits (N, C, *spatial) against classes (N, *spatial)."""
    if not 1 <= input.ndim <= 5 or target.ndim != max(0, input.ndim - 1):
        what = f"input has {input.ndim} axes and target {target.ndim}, needs 1 to 5 and one less"
        raise ConvrefError(message("cross_entropy.fprop", what))
    x = input[None] if input.ndim == 1 else input
    places = target[None] if input.ndim == 1 else target
    if x.ndim == 2:
        x, places = x[..., None], places[..., None]
    attributes = (ignore_index, float(label_smoothing), reduction)
    (y,) = _call("cross_entropy", attributes, backend, x, weight, places)
    assert y is not None
    return y.reshape(target.shape) if reduction == "none" else y[0]
