"""Signatures; made by tools/stubs.py."""

# fmt: off
# mypy: disable-error-code="misc, override"
from typing import Any, Literal

import torch
from torch import Tensor

from ... import _Floats, _Ints, _Mode, _OutputSize, _Padding
from ._blocks import ConvAct, ConvBNAct
from ._intercept import Intercepted
from ._layers import Layer

ACTIVATIONS: dict[str, type[Layer]]

__all__ = [
    "ACTIVATIONS", "CELU", "ELU", "GELU", "SELU", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
    "Conv1d", "Conv2d", "Conv3d", "ConvAct1d", "ConvAct2d", "ConvAct3d", "ConvBNAct1d",
    "ConvBNAct2d", "ConvBNAct3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "ConvTransposeAct1d", "ConvTransposeAct2d", "ConvTransposeAct3d", "CrossEntropyLoss",
    "GroupNorm", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "InstanceNorm1d",
    "InstanceNorm2d", "InstanceNorm3d", "LPPool1d", "LPPool2d", "LPPool3d", "LayerNorm",
    "LeakyReLU", "LocalResponseNorm", "LogSigmoid", "LogSoftmax", "MaxPool1d", "MaxPool2d",
    "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Mish", "NLLLoss", "PReLU",
    "PixelShuffle", "PixelUnshuffle", "RMSNorm", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax",
    "Softmax2d", "Softplus", "Softshrink", "Softsign", "SyncBatchNorm", "Tanh", "Tanhshrink",
    "Threshold", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"
]

class Conv1d(Layer, torch.nn.Conv1d):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _Ints, stride: _Ints = 1,
        padding: _Padding = 0, dilation: _Ints = 1, groups: int = 1, bias: bool = True,
        padding_mode: Literal["zeros", "border", "reflection"] = "zeros", device: Any = None,
        dtype: Any = None, *, backend: str | None = None
    ) -> None: ...
class Conv2d(Layer, torch.nn.Conv2d):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _Ints, stride: _Ints = 1,
        padding: _Padding = 0, dilation: _Ints = 1, groups: int = 1, bias: bool = True,
        padding_mode: Literal["zeros", "border", "reflection"] = "zeros", device: Any = None,
        dtype: Any = None, *, backend: str | None = None
    ) -> None: ...
class Conv3d(Layer, torch.nn.Conv3d):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _Ints, stride: _Ints = 1,
        padding: _Padding = 0, dilation: _Ints = 1, groups: int = 1, bias: bool = True,
        padding_mode: Literal["zeros", "border", "reflection"] = "zeros", device: Any = None,
        dtype: Any = None, *, backend: str | None = None
    ) -> None: ...
class ConvTranspose1d(Layer, torch.nn.ConvTranspose1d):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _Ints, stride: _Ints = 1,
        padding: _Padding = 0, output_padding: _Ints = 0, groups: int = 1, bias: bool = True,
        dilation: _Ints = 1, padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
        device: Any = None, dtype: Any = None, *, backend: str | None = None
    ) -> None: ...
class ConvTranspose2d(Layer, torch.nn.ConvTranspose2d):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _Ints, stride: _Ints = 1,
        padding: _Padding = 0, output_padding: _Ints = 0, groups: int = 1, bias: bool = True,
        dilation: _Ints = 1, padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
        device: Any = None, dtype: Any = None, *, backend: str | None = None
    ) -> None: ...
class ConvTranspose3d(Layer, torch.nn.ConvTranspose3d):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _Ints, stride: _Ints = 1,
        padding: _Padding = 0, output_padding: _Ints = 0, groups: int = 1, bias: bool = True,
        dilation: _Ints = 1, padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
        device: Any = None, dtype: Any = None, *, backend: str | None = None
    ) -> None: ...
class BatchNorm1d(Layer, torch.nn.BatchNorm1d):
    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True, backend: str | None = None
    ) -> None: ...
class BatchNorm2d(Layer, torch.nn.BatchNorm2d):
    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True, backend: str | None = None
    ) -> None: ...
class BatchNorm3d(Layer, torch.nn.BatchNorm3d):
    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True, backend: str | None = None
    ) -> None: ...
class InstanceNorm1d(Layer, torch.nn.InstanceNorm1d):
    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *,
        bias: bool = True, backend: str | None = None
    ) -> None: ...
class InstanceNorm2d(Layer, torch.nn.InstanceNorm2d):
    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *,
        bias: bool = True, backend: str | None = None
    ) -> None: ...
class InstanceNorm3d(Layer, torch.nn.InstanceNorm3d):
    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *,
        bias: bool = True, backend: str | None = None
    ) -> None: ...
class ReLU(Layer, torch.nn.ReLU):
    def __init__(self, inplace: bool = False, *, backend: str | None = None) -> None: ...
class LeakyReLU(Layer, torch.nn.LeakyReLU):
    def __init__(
        self, negative_slope: float = 0.01, inplace: bool = False, *, backend: str | None = None
    ) -> None: ...
class PReLU(Layer, torch.nn.PReLU):
    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None, *,
        backend: str | None = None
    ) -> None: ...
class ELU(Layer, torch.nn.ELU):
    def __init__(
        self, alpha: float = 1.0, inplace: bool = False, *, backend: str | None = None
    ) -> None: ...
class CELU(Layer, torch.nn.CELU):
    def __init__(
        self, alpha: float = 1.0, inplace: bool = False, *, backend: str | None = None
    ) -> None: ...
class SELU(Layer, torch.nn.SELU):
    def __init__(self, inplace: bool = False, *, backend: str | None = None) -> None: ...
class Hardtanh(Layer, torch.nn.Hardtanh):
    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False,
        min_value: float | None = None, max_value: float | None = None, *,
        backend: str | None = None
    ) -> None: ...
class ReLU6(Layer, torch.nn.ReLU6):
    def __init__(self, inplace: bool = False, *, backend: str | None = None) -> None: ...
class Hardsigmoid(Layer, torch.nn.Hardsigmoid):
    def __init__(self, inplace: bool = False, *, backend: str | None = None) -> None: ...
class Hardswish(Layer, torch.nn.Hardswish):
    def __init__(self, inplace: bool = False, *, backend: str | None = None) -> None: ...
class SiLU(Layer, torch.nn.SiLU):
    def __init__(self, inplace: bool = False, *, backend: str | None = None) -> None: ...
class Mish(Layer, torch.nn.Mish):
    def __init__(self, inplace: bool = False, *, backend: str | None = None) -> None: ...
class GELU(Layer, torch.nn.GELU):
    def __init__(
        self, approximate: Literal["none", "tanh"] = "none", *, backend: str | None = None
    ) -> None: ...
class Hardshrink(Layer, torch.nn.Hardshrink):
    def __init__(self, lambd: float = 0.5, *, backend: str | None = None) -> None: ...
class Softshrink(Layer, torch.nn.Softshrink):
    def __init__(self, lambd: float = 0.5, *, backend: str | None = None) -> None: ...
class Threshold(Layer, torch.nn.Threshold):
    def __init__(
        self, threshold: float, value: float, inplace: bool = False, *, backend: str | None = None
    ) -> None: ...
class Softplus(Layer, torch.nn.Softplus):
    def __init__(
        self, beta: float = 1.0, threshold: float = 20.0, *, backend: str | None = None
    ) -> None: ...
class LogSigmoid(Layer, torch.nn.LogSigmoid):
    def __init__(self, *, backend: str | None = None) -> None: ...
class Softsign(Layer, torch.nn.Softsign):
    def __init__(self, *, backend: str | None = None) -> None: ...
class Tanhshrink(Layer, torch.nn.Tanhshrink):
    def __init__(self, *, backend: str | None = None) -> None: ...
class Sigmoid(Layer, torch.nn.Sigmoid):
    def __init__(self, *, backend: str | None = None) -> None: ...
class Tanh(Layer, torch.nn.Tanh):
    def __init__(self, *, backend: str | None = None) -> None: ...
class Softmax(Layer, torch.nn.Softmax):
    def __init__(self, dim: int | None = None, *, backend: str | None = None) -> None: ...
class LogSoftmax(Layer, torch.nn.LogSoftmax):
    def __init__(self, dim: int | None = None, *, backend: str | None = None) -> None: ...
class NLLLoss(Layer, torch.nn.NLLLoss):
    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
        reduce: Any = None, reduction: Literal["mean", "sum", "none"] = "mean", *,
        backend: str | None = None
    ) -> None: ...
class CrossEntropyLoss(Layer, torch.nn.CrossEntropyLoss):
    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
        reduce: Any = None, reduction: Literal["mean", "sum", "none"] = "mean",
        label_smoothing: float = 0.0, *, backend: str | None = None
    ) -> None: ...
class GroupNorm(Layer, torch.nn.GroupNorm):
    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-05, affine: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True, backend: str | None = None
    ) -> None: ...
class LayerNorm(Layer, torch.nn.LayerNorm):
    def __init__(
        self, normalized_shape: _Ints, eps: float = 1e-05, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None, *, backend: str | None = None
    ) -> None: ...
class RMSNorm(Layer, torch.nn.RMSNorm):
    def __init__(
        self, normalized_shape: _Ints, eps: float | None = None, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None, *, backend: str | None = None
    ) -> None: ...
class MaxPool1d(Layer, torch.nn.MaxPool1d):
    def __init__(
        self, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
        dilation: _Ints = 1, return_indices: bool = False, ceil_mode: bool = False, *,
        backend: str | None = None
    ) -> None: ...
class MaxPool2d(Layer, torch.nn.MaxPool2d):
    def __init__(
        self, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
        dilation: _Ints = 1, return_indices: bool = False, ceil_mode: bool = False, *,
        backend: str | None = None
    ) -> None: ...
class MaxPool3d(Layer, torch.nn.MaxPool3d):
    def __init__(
        self, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
        dilation: _Ints = 1, return_indices: bool = False, ceil_mode: bool = False, *,
        backend: str | None = None
    ) -> None: ...
class MaxUnpool1d(Layer, torch.nn.MaxUnpool1d):
    def __init__(
        self, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0, *,
        backend: str | None = None
    ) -> None: ...
class MaxUnpool2d(Layer, torch.nn.MaxUnpool2d):
    def __init__(
        self, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0, *,
        backend: str | None = None
    ) -> None: ...
class MaxUnpool3d(Layer, torch.nn.MaxUnpool3d):
    def __init__(
        self, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0, *,
        backend: str | None = None
    ) -> None: ...
class AvgPool1d(Layer, torch.nn.AvgPool1d):
    def __init__(
        self, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, *, backend: str | None = None
    ) -> None: ...
class AvgPool2d(Layer, torch.nn.AvgPool2d):
    def __init__(
        self, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None, *, backend: str | None = None
    ) -> None: ...
class AvgPool3d(Layer, torch.nn.AvgPool3d):
    def __init__(
        self, kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None, *, backend: str | None = None
    ) -> None: ...
class LPPool1d(Layer, torch.nn.LPPool1d):
    def __init__(
        self, norm_type: float, kernel_size: _Ints, stride: _Ints | None = None,
        ceil_mode: bool = False, *, backend: str | None = None
    ) -> None: ...
class LPPool2d(Layer, torch.nn.LPPool2d):
    def __init__(
        self, norm_type: float, kernel_size: _Ints, stride: _Ints | None = None,
        ceil_mode: bool = False, *, backend: str | None = None
    ) -> None: ...
class LPPool3d(Layer, torch.nn.LPPool3d):
    def __init__(
        self, norm_type: float, kernel_size: _Ints, stride: _Ints | None = None,
        ceil_mode: bool = False, *, backend: str | None = None
    ) -> None: ...
class AdaptiveMaxPool1d(Layer, torch.nn.AdaptiveMaxPool1d):
    def __init__(
        self, output_size: _OutputSize, return_indices: bool = False, *, backend: str | None = None
    ) -> None: ...
class AdaptiveMaxPool2d(Layer, torch.nn.AdaptiveMaxPool2d):
    def __init__(
        self, output_size: _OutputSize, return_indices: bool = False, *, backend: str | None = None
    ) -> None: ...
class AdaptiveMaxPool3d(Layer, torch.nn.AdaptiveMaxPool3d):
    def __init__(
        self, output_size: _OutputSize, return_indices: bool = False, *, backend: str | None = None
    ) -> None: ...
class AdaptiveAvgPool1d(Layer, torch.nn.AdaptiveAvgPool1d):
    def __init__(self, output_size: _OutputSize, *, backend: str | None = None) -> None: ...
class AdaptiveAvgPool2d(Layer, torch.nn.AdaptiveAvgPool2d):
    def __init__(self, output_size: _OutputSize, *, backend: str | None = None) -> None: ...
class AdaptiveAvgPool3d(Layer, torch.nn.AdaptiveAvgPool3d):
    def __init__(self, output_size: _OutputSize, *, backend: str | None = None) -> None: ...
class Upsample(Layer, torch.nn.Upsample):
    def __init__(
        self, size: _Ints | None = None, scale_factor: _Floats | None = None,
        mode: _Mode = "nearest", align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None, *, backend: str | None = None
    ) -> None: ...
class UpsamplingNearest2d(Layer, torch.nn.UpsamplingNearest2d):
    def __init__(
        self, size: _Ints | None = None, scale_factor: _Floats | None = None, *,
        backend: str | None = None
    ) -> None: ...
class UpsamplingBilinear2d(Layer, torch.nn.UpsamplingBilinear2d):
    def __init__(
        self, size: _Ints | None = None, scale_factor: _Floats | None = None, *,
        backend: str | None = None
    ) -> None: ...
class PixelShuffle(Layer, torch.nn.PixelShuffle):
    def __init__(self, upscale_factor: int, *, backend: str | None = None) -> None: ...
class PixelUnshuffle(Layer, torch.nn.PixelUnshuffle):
    def __init__(self, downscale_factor: int, *, backend: str | None = None) -> None: ...
class LocalResponseNorm(Layer, torch.nn.LocalResponseNorm):
    def __init__(
        self, size: _Ints, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0, *,
        backend: str | None = None
    ) -> None: ...
class ConvBNAct1d(ConvBNAct): ...
class ConvAct1d(ConvAct, Conv1d): ...
class ConvTransposeAct1d(ConvAct, ConvTranspose1d): ...
class ConvBNAct2d(ConvBNAct): ...
class ConvAct2d(ConvAct, Conv2d): ...
class ConvTransposeAct2d(ConvAct, ConvTranspose2d): ...
class ConvBNAct3d(ConvBNAct): ...
class ConvAct3d(ConvAct, Conv3d): ...
class ConvTransposeAct3d(ConvAct, ConvTranspose3d): ...
class Softmax2d(Intercepted, torch.nn.Softmax2d):
    def __init__(self, *, backend: str | None = None) -> None: ...
class SyncBatchNorm(Intercepted, torch.nn.SyncBatchNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, process_group: Any | None = None,
        device: Any = None, dtype: Any = None, *, bias: bool = True, backend: str | None = None
    ) -> None: ...
