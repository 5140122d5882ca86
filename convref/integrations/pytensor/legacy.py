"""The functions that PyTensor had up to 2.36 and Theano before it, with their names and arguments.

`filter_flip=True`, the default, is a convolution in the mathematical sense. `border_mode` is
"valid", "half", "full", an int, or an int or (lo, hi) per axis. `input_shape` and `filter_shape`
may be None where an array has the sizes; elsewhere their entries may be variables.

Examples
--------
>>> import pytensor.tensor as pt
>>> x = pt.constant(np.arange(9.).reshape(1, 1, 3, 3))
>>> conv2d(x, np.array([[[[0., 1.]]]]), border_mode="valid").eval()
array([[[[0., 1.],
         [3., 4.],
         [6., 7.]]]])
>>> pool_2d(x, (2, 2), ignore_border=False, mode="sum").eval()
array([[[[ 8.,  7.],
         [13.,  8.]]]])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

from ...errors import UnsupportedError, message
from ...ops.sizes import one_of
from .functions import FUNCTIONS, batch_norm

_POOLS = ("max", "sum", "average_inc_pad", "average_exc_pad")


def conv2d(
    input: Any,
    filters: Any,
    input_shape: Any = None,
    filter_shape: Any = None,
    border_mode: Any = "valid",
    subsample: Any = 1,
    filter_flip: bool = True,
    filter_dilation: Any = 1,
    num_groups: int = 1,
    unshared: bool = False,
) -> Any:
    """Return the convolution of images (N, C, H, W) with filters (K, C/G, R, S)."""
    if unshared:
        what = "unshared is True: a filter for each position is not implemented"
        raise UnsupportedError(message("conv2d", what))
    given = border_mode, subsample, filter_flip, filter_dilation, num_groups
    return _conv(2, input, filters, *given)


def conv3d(
    input: Any,
    filters: Any,
    input_shape: Any = None,
    filter_shape: Any = None,
    border_mode: Any = "valid",
    subsample: Any = 1,
    filter_flip: bool = True,
    filter_dilation: Any = 1,
    num_groups: int = 1,
) -> Any:
    """Return the convolution of images (N, C, D, H, W) with filters (K, C/G, T, R, S)."""
    given = border_mode, subsample, filter_flip, filter_dilation, num_groups
    return _conv(3, input, filters, *given)


def conv2d_grad_wrt_inputs(
    output_grad: Any,
    filters: Any,
    input_shape: Any,
    filter_shape: Any = None,
    border_mode: Any = "valid",
    subsample: Any = 1,
    filter_flip: bool = True,
    filter_dilation: Any = 1,
    num_groups: int = 1,
) -> Any:
    """Return the gradient of `conv2d` or `conv3d` in its input, which has shape `input_shape`."""
    dy, w = pt.as_tensor_variable(output_grad), pt.as_tensor_variable(filters)
    sizes = zip(input_shape, (dy.shape[0], w.shape[1] * num_groups, *(None,) * (dy.ndim - 2)))
    x = _variable_of_shape((default if n is None else n for n, default in sizes), dy)
    given = border_mode, subsample, filter_flip, filter_dilation, num_groups
    y = _conv(dy.ndim - 2, x, w, *given)
    return y.owner.op.step("backward", {"dy": dy, "x": x, "w": w}, ("dx",))["dx"]


def conv2d_grad_wrt_weights(
    input: Any,
    output_grad: Any,
    filter_shape: Any,
    input_shape: Any = None,
    border_mode: Any = "valid",
    subsample: Any = 1,
    filter_flip: bool = True,
    filter_dilation: Any = 1,
    num_groups: int = 1,
) -> Any:
    """Return the gradient of `conv2d` or `conv3d` in its filters, of shape `filter_shape`."""
    x, dy = pt.as_tensor_variable(input), pt.as_tensor_variable(output_grad)
    w = _variable_of_shape(filter_shape, x)
    given = border_mode, subsample, filter_flip, filter_dilation, num_groups
    y = _conv(x.ndim - 2, x, w, *given)
    return y.owner.op.step("backward", {"dy": dy, "x": x, "w": w}, ("dw",))["dw"]


conv3d_grad_wrt_inputs, conv3d_grad_wrt_weights = conv2d_grad_wrt_inputs, conv2d_grad_wrt_weights


def conv2d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    filter_shape: Any = None,
    border_mode: Any = "valid",
    input_dilation: Any = 1,
    filter_flip: bool = True,
    filter_dilation: Any = 1,
    num_groups: int = 1,
) -> Any:
    """Return the transposed convolution: the gradient of `conv2d` in an input of `output_shape`."""
    given = filter_shape, border_mode, input_dilation, filter_flip, filter_dilation, num_groups
    return conv2d_grad_wrt_inputs(input, filters, output_shape, *given)


def separable_conv2d(
    input: Any,
    depthwise_filters: Any,
    pointwise_filters: Any,
    num_channels: int,
    input_shape: Any = None,
    depthwise_filter_shape: Any = None,
    pointwise_filter_shape: Any = None,
    border_mode: Any = "valid",
    subsample: Any = 1,
    filter_flip: bool = True,
    filter_dilation: Any = 1,
) -> Any:
    """Return a convolution of each channel, then one of 1x1 filters across channels."""
    given = border_mode, subsample, filter_flip, filter_dilation, num_channels
    rank = pt.as_tensor_variable(input).ndim - 2
    y = _conv(rank, input, depthwise_filters, *given)
    return _conv(rank, y, pointwise_filters, "valid", 1, filter_flip, 1, 1)


separable_conv3d = separable_conv2d


def causal_conv1d(
    input: Any,
    filters: Any,
    filter_shape: Any,
    input_shape: Any = None,
    subsample: int = 1,
    filter_flip: bool = True,
    filter_dilation: int = 1,
    num_groups: int = 1,
) -> Any:
    """Return the convolution of (N, C, W) that is padded at the low end alone."""
    left = filter_dilation * (filter_shape[2] - 1)
    given = ((left, 0),), subsample, filter_flip, filter_dilation, num_groups
    return _conv(1, input, filters, *given)


def bilinear_upsampling(
    input: Any,
    ratio: int | None = None,
    frac_ratio: Any = None,
    batch_size: Any = None,
    num_input_channels: Any = None,
    use_1D_kernel: bool = True,
) -> Any:
    """Return images enlarged by an int, or by a ratio (p, q) for both axes or for each.

    Two elements of the input are joined by a line; the first and last are repeated outside. With
    an even ratio, the last is repeated once more than the first.
    """
    x = pt.as_tensor_variable(input)
    pairs: Any = frac_ratio if ratio is None else (ratio, 1)
    pairs = pairs if isinstance(pairs[0], tuple) else (pairs, pairs)
    reduced = [(p // np.gcd(p, q), q // np.gcd(p, q)) for p, q in pairs]
    n, c, h, w = (x.shape[i] for i in range(4))
    y = x.reshape((n * c, 1, h, w))
    y = pt.concatenate([y[:, :, :1], y, y[:, :, -1:]], axis=2)
    y = pt.concatenate([y[..., :1], y, y[..., -1:]], axis=3)
    up = [int(p) for p, _ in reduced]
    lines = [np.minimum(np.arange(1, 2 * p), np.arange(2 * p - 1, 0, -1)) / p for p in up]
    kernel = np.outer(*lines)[None, None].astype(x.dtype)
    crops = tuple((3 * p // 2, 3 * p - 1 - 3 * p // 2) for p in up)
    y = FUNCTIONS["conv_transpose2d"](y, kernel, stride=tuple(up), padding=crops)
    y = y[:, :, :: int(reduced[0][1]), :: int(reduced[1][1])]
    return y.reshape((n, c, y.shape[2], y.shape[3]))


def pool_2d(
    input: Any,
    ws: Sequence[int],
    ignore_border: bool = False,
    stride: Any = None,
    pad: Any = 0,
    mode: str = "max",
) -> Any:
    """Return pools of the last two axes; without `ignore_border`, of partial windows too."""
    return _pool(2, input, ws, ignore_border, stride, pad, mode)


def pool_3d(
    input: Any,
    ws: Sequence[int],
    ignore_border: bool = False,
    stride: Any = None,
    pad: Any = 0,
    mode: str = "max",
) -> Any:
    """Return pools of the last three axes; without `ignore_border`, of partial windows too."""
    return _pool(3, input, ws, ignore_border, stride, pad, mode)


def batch_normalization_train(
    inputs: Any,
    gamma: Any,
    beta: Any,
    axes: str = "per-activation",
    epsilon: float = 1e-4,
    running_average_factor: float = 0.1,
    running_mean: Any = None,
    running_var: Any = None,
) -> tuple[Any, ...]:
    """Return (output, mean, 1 / standard deviation), then the new running mean and variance.

    `axes` is "per-activation" or "spatial"; statistics have size 1 along the axes that they sum.
    """
    x, enter, leave = _channels(inputs, axes)
    mean, var = (None if a is None else enter(a) for a in (running_mean, running_var))
    w, b = enter(gamma), enter(beta)
    y = batch_norm(x, mean, var, w, b, True, running_average_factor, epsilon)
    y, *new = y if isinstance(y, list | tuple) else (y,)
    _, mean, rstd, *_ = y.owner.outputs
    return y.reshape(pt.as_tensor_variable(inputs).shape), *map(leave, (mean, rstd, *new))


def batch_normalization_test(
    inputs: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    axes: str = "per-activation",
    epsilon: float = 1e-4,
) -> Any:
    """Return `inputs` normalised by statistics that are given."""
    x, enter, _ = _channels(inputs, axes)
    y = batch_norm(x, enter(mean), enter(var), enter(gamma), enter(beta), eps=epsilon)
    return y.reshape(pt.as_tensor_variable(inputs).shape)


def _channels(inputs: Any, axes: str) -> tuple[Any, Any, Any]:
    """Return inputs as (N, C, *spatial), and how statistics become (C,) and come back."""
    one_of("batch_normalization", "axes", axes, ("per-activation", "spatial"))
    x = pt.as_tensor_variable(inputs)
    kept = 2 if axes == "spatial" else x.ndim
    shape = [1, *(x.shape[i] if i < kept else 1 for i in range(1, x.ndim))]
    images = x if axes == "spatial" else x.reshape((x.shape[0], -1))
    return images, lambda a: pt.as_tensor_variable(a).flatten(), lambda a: a.reshape(shape)


def _conv(
    rank: int,
    input: Any,
    filters: Any,
    border_mode: Any,
    subsample: Any,
    flip: bool,
    dilation: Any,
    groups: int,
) -> Any:
    padding = border_mode
    if isinstance(border_mode, list | tuple):
        padding = tuple((p, p) if isinstance(p, int) else tuple(p) for p in border_mode)
    options = {"stride": subsample, "padding": padding, "dilation": dilation, "groups": groups}
    return FUNCTIONS[f"conv{rank}d"](input, filters, flip=flip, **options)


def _variable_of_shape(shape: Any, like: Any) -> Any:
    """Return a variable whose shape alone is read."""
    return pt.zeros(tuple(shape), dtype=like.dtype)


def _pool(
    rank: int, input: Any, ws: Any, ignore_border: bool, stride: Any, pad: Any, mode: str
) -> Any:
    where = f"pool_{rank}d"
    one_of(where, "mode", mode, _POOLS)
    x = pt.as_tensor_variable(input)
    lead = tuple(x.shape[i] for i in range(x.ndim - rank))
    space = tuple(x.shape[i] for i in range(x.ndim - rank, x.ndim))
    images = x.reshape((-1, 1, *space))
    options: dict[str, Any] = {"ceil_mode": not ignore_border}
    if mode != "max":
        options["count_include_pad"] = mode == "average_inc_pad"
    if mode == "sum":
        options["divisor_override"] = 1
    name = f"{'max' if mode == 'max' else 'avg'}_pool{rank}d"
    y = FUNCTIONS[name](images, tuple(ws), stride, pad, **options)
    return y.reshape((*lead, *(y.shape[i] for i in range(2, rank + 2))))
