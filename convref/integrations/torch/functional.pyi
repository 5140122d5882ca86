"""Signatures; made by tools/stubs.py."""

# fmt: off
from typing import Any

import torch
from torch import Tensor

from ...api.definition import Definition

OF_TORCH: list[Definition]
def conv_attributes(
    rank: int, input: Tensor, weight: Tensor, *geometry: Any
) -> tuple[Any, ...]: ...

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "batch_norm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "cross_entropy", "gelu", "group_norm", "hardswish", "interpolate",
    "layer_norm", "leaky_relu", "log_softmax", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "relu", "sigmoid",
    "silu", "softmax", "tanh"
]

def adaptive_avg_pool1d(input: Any, output_size: Any, *, backend: str | None = None) -> Tensor: ...
def adaptive_avg_pool2d(input: Any, output_size: Any, *, backend: str | None = None) -> Tensor: ...
def adaptive_avg_pool3d(input: Any, output_size: Any, *, backend: str | None = None) -> Tensor: ...
def adaptive_max_pool1d(
    input: Any, output_size: Any, return_indices: bool = False, *, backend: str | None = None
) -> Any: ...
def adaptive_max_pool2d(
    input: Any, output_size: Any, return_indices: bool = False, *, backend: str | None = None
) -> Any: ...
def adaptive_max_pool3d(
    input: Any, output_size: Any, return_indices: bool = False, *, backend: str | None = None
) -> Any: ...
def avg_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, dilation: Any = 1,
    backend: str | None = None
) -> Tensor: ...
def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, dilation: Any = 1,
    backend: str | None = None
) -> Tensor: ...
def avg_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, dilation: Any = 1,
    backend: str | None = None
) -> Tensor: ...
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-05, *, backend: str | None = None
) -> Tensor: ...
def conv1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, math: str = "ieee", flip: bool = False, backend: str | None = None
) -> Tensor: ...
def conv2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, math: str = "ieee", flip: bool = False, backend: str | None = None
) -> Tensor: ...
def conv3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, math: str = "ieee", flip: bool = False, backend: str | None = None
) -> Tensor: ...
def conv_transpose1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, math: str = "ieee",
    flip: bool = False, backend: str | None = None
) -> Tensor: ...
def conv_transpose2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, math: str = "ieee",
    flip: bool = False, backend: str | None = None
) -> Tensor: ...
def conv_transpose3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, math: str = "ieee",
    flip: bool = False, backend: str | None = None
) -> Tensor: ...
def cross_entropy(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0, *, backend: str | None = None
) -> Tensor: ...
def gelu(input: Any, approximate: str = "none", *, backend: str | None = None) -> Tensor: ...
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05, *,
    backend: str | None = None
) -> Tensor: ...
def hardswish(input: Any, inplace: bool = False, *, backend: str | None = None) -> Tensor: ...
def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False, *, backend: str | None = None
) -> Tensor: ...
def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05, *,
    backend: str | None = None
) -> Tensor: ...
def leaky_relu(
    input: Any, negative_slope: float = 0.01, inplace: bool = False, *, backend: str | None = None
) -> Tensor: ...
def log_softmax(
    input: Any, dim: int, dtype: torch.dtype | None = None, *, backend: str | None = None
) -> Tensor: ...
def lp_pool1d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False, *,
    padding: Any = 0, dilation: Any = 1, backend: str | None = None
) -> Tensor: ...
def lp_pool2d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False, *,
    padding: Any = 0, dilation: Any = 1, backend: str | None = None
) -> Tensor: ...
def lp_pool3d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False, *,
    padding: Any = 0, dilation: Any = 1, backend: str | None = None
) -> Tensor: ...
def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, backend: str | None = None
) -> Any: ...
def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, backend: str | None = None
) -> Any: ...
def max_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, backend: str | None = None
) -> Any: ...
def max_unpool1d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    output_size: Any = None, *, backend: str | None = None
) -> Tensor: ...
def max_unpool2d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    output_size: Any = None, *, backend: str | None = None
) -> Tensor: ...
def max_unpool3d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    output_size: Any = None, *, backend: str | None = None
) -> Tensor: ...
def relu(input: Any, inplace: bool = False, *, backend: str | None = None) -> Tensor: ...
def sigmoid(input: Any, *, backend: str | None = None) -> Tensor: ...
def silu(input: Any, inplace: bool = False, *, backend: str | None = None) -> Tensor: ...
def softmax(
    input: Any, dim: int, dtype: torch.dtype | None = None, *, backend: str | None = None
) -> Tensor: ...
def tanh(input: Any, *, backend: str | None = None) -> Tensor: ...
