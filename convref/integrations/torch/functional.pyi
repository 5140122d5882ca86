"""Signatures; made by tools/stubs.py."""

# fmt: off
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ... import _Floats, _Ints, _Math, _Mode, _OutputSize, _Padding
from ...api.definition import Definition
from ._kernels import PassConfig

OF_TORCH: list[Definition]
def conv_config(
    rank: int, input: Tensor, weight: Tensor, backend: str | None, *geometry: Any
) -> PassConfig: ...

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "batch_norm", "celu", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "cross_entropy", "elu", "gelu", "grid_sample", "group_norm",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "instance_norm", "interpolate",
    "layer_norm", "leaky_relu", "local_response_norm", "log_softmax", "logsigmoid", "lp_pool1d",
    "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d",
    "max_unpool2d", "max_unpool3d", "mish", "nll_loss", "normalize", "pixel_shuffle",
    "pixel_unshuffle", "prelu", "relu", "relu6", "rms_norm", "selu", "sigmoid", "silu",
    "softmax", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold"
]

def adaptive_avg_pool1d(
    input: Tensor, output_size: _OutputSize, *, backend: str | None = None
) -> Tensor: ...
adaptive_avg_pool2d = adaptive_avg_pool1d
adaptive_avg_pool3d = adaptive_avg_pool1d
@overload
def adaptive_max_pool1d(
    input: Tensor, output_size: _OutputSize, return_indices: Literal[False] = False, *,
    backend: str | None = None
) -> Tensor: ...
@overload
def adaptive_max_pool1d(
    input: Tensor, output_size: _OutputSize, return_indices: Literal[True], *,
    backend: str | None = None
) -> tuple[Tensor, Tensor]: ...
adaptive_max_pool2d = adaptive_max_pool1d
adaptive_max_pool3d = adaptive_max_pool1d
def avg_pool1d(
    input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, *, dilation: _Ints = 1, backend: str | None = None
) -> Tensor: ...
avg_pool2d = avg_pool1d
avg_pool3d = avg_pool1d
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-05, *, backend: str | None = None
) -> Tensor: ...
def celu(
    input: Tensor, alpha: float = 1.0, inplace: bool = False, *, backend: str | None = None
) -> Tensor: ...
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints = 1,
    padding: _Padding = 0, dilation: _Ints = 1, groups: int = 1, *, math: _Math = "ieee",
    flip: bool = False, backend: str | None = None
) -> Tensor: ...
conv2d = conv1d
conv3d = conv1d
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints = 1,
    padding: _Padding = 0, output_padding: _Ints = 0, groups: int = 1, dilation: _Ints = 1, *,
    math: _Math = "ieee", flip: bool = False, backend: str | None = None
) -> Tensor: ...
conv_transpose2d = conv_transpose1d
conv_transpose3d = conv_transpose1d
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    backend: str | None = None
) -> Tensor: ...
def elu(
    input: Tensor, alpha: float = 1.0, inplace: bool = False, *, backend: str | None = None
) -> Tensor: ...
def gelu(
    input: Tensor, approximate: Literal["none", "tanh"] = "none", *, backend: str | None = None
) -> Tensor: ...
def grid_sample(
    input: Tensor, grid: Tensor, mode: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool | None = None, *, backend: str | None = None
) -> Tensor: ...
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-05, *, backend: str | None = None
) -> Tensor: ...
def hardshrink(input: Tensor, lambd: float = 0.5, *, backend: str | None = None) -> Tensor: ...
def hardsigmoid(
    input: Tensor, inplace: bool = False, *, backend: str | None = None
) -> Tensor: ...
def hardswish(
    input: Tensor, inplace: bool = False, *, backend: str | None = None
) -> Tensor: ...
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, *,
    backend: str | None = None
) -> Tensor: ...
def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-05, *, backend: str | None = None
) -> Tensor: ...
def interpolate(
    input: Tensor, size: _Ints | None = None, scale_factor: _Floats | None = None,
    mode: _Mode = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False, *,
    backend: str | None = None
) -> Tensor: ...
def layer_norm(
    input: Tensor, normalized_shape: _Ints, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-05, *, backend: str | None = None
) -> Tensor: ...
def leaky_relu(
    input: Tensor, negative_slope: float = 0.01, inplace: bool = False, *,
    backend: str | None = None
) -> Tensor: ...
def local_response_norm(
    input: Tensor, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0, *,
    backend: str | None = None
) -> Tensor: ...
def log_softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, backend: str | None = None
) -> Tensor: ...
def logsigmoid(input: Tensor, *, backend: str | None = None) -> Tensor: ...
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: _Ints, stride: _Ints | None = None,
    ceil_mode: bool = False, *, padding: _Padding = 0, dilation: _Ints = 1,
    backend: str | None = None
) -> Tensor: ...
lp_pool2d = lp_pool1d
lp_pool3d = lp_pool1d
@overload
def max_pool1d(
    input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
    dilation: _Ints = 1, ceil_mode: bool = False, return_indices: Literal[False] = False, *,
    backend: str | None = None
) -> Tensor: ...
@overload
def max_pool1d(
    input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
    dilation: _Ints = 1, ceil_mode: bool = False, *, return_indices: Literal[True],
    backend: str | None = None
) -> tuple[Tensor, Tensor]: ...
max_pool2d = max_pool1d
max_pool3d = max_pool1d
def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: _Ints, stride: _Ints | None = None,
    padding: _Padding = 0, output_size: _OutputSize | None = None, *, backend: str | None = None
) -> Tensor: ...
max_unpool2d = max_unpool1d
max_unpool3d = max_unpool1d
def mish(input: Tensor, inplace: bool = False, *, backend: str | None = None) -> Tensor: ...
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean", *, backend: str | None = None
) -> Tensor: ...
def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, *,
    backend: str | None = None
) -> Tensor: ...
def pixel_shuffle(
    input: Tensor, upscale_factor: int, *, mode: Literal["CRD", "DCR"] = "CRD",
    backend: str | None = None
) -> Tensor: ...
def pixel_unshuffle(
    input: Tensor, downscale_factor: int, *, mode: Literal["CRD", "DCR"] = "CRD",
    backend: str | None = None
) -> Tensor: ...
def prelu(input: Tensor, weight: Tensor, *, backend: str | None = None) -> Tensor: ...
def relu(input: Tensor, inplace: bool = False, *, backend: str | None = None) -> Tensor: ...
def relu6(input: Tensor, inplace: bool = False, *, backend: str | None = None) -> Tensor: ...
def rms_norm(
    input: Tensor, normalized_shape: _Ints, weight: Tensor | None = None,
    eps: float | None = None, *, backend: str | None = None
) -> Tensor: ...
def selu(input: Tensor, inplace: bool = False, *, backend: str | None = None) -> Tensor: ...
def sigmoid(input: Tensor, *, backend: str | None = None) -> Tensor: ...
def silu(input: Tensor, inplace: bool = False, *, backend: str | None = None) -> Tensor: ...
def softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, backend: str | None = None
) -> Tensor: ...
def softplus(
    input: Tensor, beta: float = 1.0, threshold: float = 20.0, *, backend: str | None = None
) -> Tensor: ...
def softshrink(input: Tensor, lambd: float = 0.5, *, backend: str | None = None) -> Tensor: ...
def softsign(input: Tensor, *, backend: str | None = None) -> Tensor: ...
def tanh(input: Tensor, *, backend: str | None = None) -> Tensor: ...
def tanhshrink(input: Tensor, *, backend: str | None = None) -> Tensor: ...
def threshold(
    input: Tensor, threshold: float, value: float, inplace: bool = False, *,
    backend: str | None = None
) -> Tensor: ...
