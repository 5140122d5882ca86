"""Signatures; made by tools/stubs.py."""

# fmt: off
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from . import api as api
from . import ops as ops
from .api.testing import assert_close as assert_close
from .api.testing import assert_correct as assert_correct
from .api.testing import case_of as case_of
from .api.testing import check_program as check_program
from .api.testing import program_data as program_data
from .arrays import AnyArray
from .case import Call as Call
from .case import Case as Case
from .case import Spec as Spec
from .case import parse as parse
from .case import parse_problem as parse_problem
from .dispatch import explain as explain
from .dispatch import plan as plan
from .dispatch import run as run
from .errors import ConvrefError as ConvrefError
from .errors import UnsupportedError as UnsupportedError
from .judge import Numerics as Numerics
from .judge import Verdict as Verdict
from .judge import judge as judge
from .ops import SIGNATURE as SIGNATURE

__version__: str
_T = TypeVar("_T")
_Array: TypeAlias = (AnyArray[Any])
_Ints: TypeAlias = (SupportsIndex | Sequence[SupportsIndex])
_Floats: TypeAlias = (float | Sequence[float])
_Padding: TypeAlias = (
    _Ints | Sequence[Sequence[SupportsIndex]] | Literal["valid", "same", "same_upper",
    "same_lower", "half", "full"]
)
_OutputSize: TypeAlias = (int | Sequence[int | None] | None)
_Layout: TypeAlias = (Literal["NCW", "NWC", "NCHW", "NHWC", "NCDHW", "NDHWC"])
_Math: TypeAlias = (Literal["ieee", "tf32", "tf32x3"])
_Mode: TypeAlias = (
    Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "cubic", "bicubic",
    "area"]
)
_Coordinates: TypeAlias = (
    Literal["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
    "asymmetric", "tf_crop_and_resize"]
)
_Nearest: TypeAlias = (
    Literal["float32", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
)
_Aspect: TypeAlias = (Literal["stretch", "not_larger", "not_smaller"])

__all__ = [
    "SIGNATURE", "Call", "Case", "ConvrefError", "Numerics", "Spec", "UnsupportedError",
    "Verdict", "adaptive_avg_pool1d", "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool1d_double_backward", "adaptive_avg_pool1d_jvp", "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward", "adaptive_avg_pool2d_double_backward",
    "adaptive_avg_pool2d_jvp", "adaptive_avg_pool3d", "adaptive_avg_pool3d_backward",
    "adaptive_avg_pool3d_double_backward", "adaptive_avg_pool3d_jvp", "adaptive_max_pool1d",
    "adaptive_max_pool1d_backward", "adaptive_max_pool1d_double_backward",
    "adaptive_max_pool1d_jvp", "adaptive_max_pool2d", "adaptive_max_pool2d_backward",
    "adaptive_max_pool2d_double_backward", "adaptive_max_pool2d_jvp", "adaptive_max_pool3d",
    "adaptive_max_pool3d_backward", "adaptive_max_pool3d_double_backward",
    "adaptive_max_pool3d_jvp", "assert_close", "assert_correct", "avg_pool1d",
    "avg_pool1d_backward", "avg_pool1d_double_backward", "avg_pool1d_jvp", "avg_pool2d",
    "avg_pool2d_backward", "avg_pool2d_double_backward", "avg_pool2d_jvp", "avg_pool3d",
    "avg_pool3d_backward", "avg_pool3d_double_backward", "avg_pool3d_jvp", "batch_norm",
    "batch_norm_backward", "batch_norm_double_backward", "batch_norm_jvp",
    "batch_norm_statistics", "case_of", "celu", "celu_backward", "celu_double_backward",
    "celu_jvp", "check_program", "conv1d", "conv1d_backward", "conv1d_double_backward",
    "conv1d_jvp", "conv2d", "conv2d_backward", "conv2d_double_backward", "conv2d_jvp", "conv3d",
    "conv3d_backward", "conv3d_double_backward", "conv3d_jvp", "conv_integer",
    "conv_transpose1d", "conv_transpose1d_backward", "conv_transpose1d_double_backward",
    "conv_transpose1d_jvp", "conv_transpose2d", "conv_transpose2d_backward",
    "conv_transpose2d_double_backward", "conv_transpose2d_jvp", "conv_transpose3d",
    "conv_transpose3d_backward", "conv_transpose3d_double_backward", "conv_transpose3d_jvp",
    "convolution", "convolution_backward", "convolution_double_backward", "cross_entropy",
    "cross_entropy_backward", "cross_entropy_double_backward", "cross_entropy_jvp", "cumsum",
    "cumsum_backward", "cumsum_double_backward", "cumsum_jvp", "deform_conv2d",
    "deform_conv2d_backward", "deform_conv2d_double_backward", "deform_conv2d_jvp", "elu",
    "elu_backward", "elu_double_backward", "elu_jvp", "explain", "fold", "gelu",
    "gelu_backward", "gelu_double_backward", "gelu_jvp", "global_avg_pool",
    "global_avg_pool_backward", "global_avg_pool_double_backward", "global_avg_pool_jvp",
    "global_lp_pool", "global_lp_pool_backward", "global_lp_pool_double_backward",
    "global_lp_pool_jvp", "global_max_pool", "global_max_pool_backward",
    "global_max_pool_double_backward", "global_max_pool_jvp", "grid_sample",
    "grid_sample_backward", "grid_sample_double_backward", "grid_sample_jvp", "group_norm",
    "group_norm_backward", "group_norm_double_backward", "group_norm_jvp", "hardmax",
    "hardshrink", "hardshrink_backward", "hardshrink_double_backward", "hardshrink_jvp",
    "hardsigmoid", "hardsigmoid_backward", "hardsigmoid_double_backward", "hardsigmoid_jvp",
    "hardswish", "hardswish_backward", "hardswish_double_backward", "hardswish_jvp", "hardtanh",
    "hardtanh_backward", "hardtanh_double_backward", "hardtanh_jvp", "instance_norm",
    "instance_norm_backward", "instance_norm_double_backward", "instance_norm_jvp",
    "instance_norm_statistics", "interpolate", "interpolate_backward",
    "interpolate_double_backward", "interpolate_jvp", "judge", "layer_norm",
    "layer_norm_backward", "layer_norm_double_backward", "layer_norm_jvp", "leaky_relu",
    "leaky_relu_backward", "leaky_relu_double_backward", "leaky_relu_jvp",
    "local_response_norm", "local_response_norm_backward",
    "local_response_norm_double_backward", "local_response_norm_jvp", "log_softmax",
    "log_softmax_backward", "log_softmax_double_backward", "log_softmax_jvp", "logsigmoid",
    "logsigmoid_backward", "logsigmoid_double_backward", "logsigmoid_jvp", "lp_pool1d",
    "lp_pool1d_backward", "lp_pool1d_double_backward", "lp_pool1d_jvp", "lp_pool2d",
    "lp_pool2d_backward", "lp_pool2d_double_backward", "lp_pool2d_jvp", "lp_pool3d",
    "lp_pool3d_backward", "lp_pool3d_double_backward", "lp_pool3d_jvp", "matmul",
    "matmul_backward", "matmul_double_backward", "matmul_jvp", "max_pool1d",
    "max_pool1d_backward", "max_pool1d_double_backward", "max_pool1d_jvp", "max_pool2d",
    "max_pool2d_backward", "max_pool2d_double_backward", "max_pool2d_jvp", "max_pool3d",
    "max_pool3d_backward", "max_pool3d_double_backward", "max_pool3d_jvp", "max_unpool1d",
    "max_unpool1d_backward", "max_unpool1d_double_backward", "max_unpool1d_jvp", "max_unpool2d",
    "max_unpool2d_backward", "max_unpool2d_double_backward", "max_unpool2d_jvp", "max_unpool3d",
    "max_unpool3d_backward", "max_unpool3d_double_backward", "max_unpool3d_jvp", "mean",
    "mean_backward", "mean_double_backward", "mean_jvp", "mish", "mish_backward",
    "mish_double_backward", "mish_jvp", "nll_loss", "nll_loss_backward",
    "nll_loss_double_backward", "nll_loss_jvp", "normalize", "normalize_backward",
    "normalize_double_backward", "normalize_jvp", "parse", "parse_problem", "pixel_shuffle",
    "pixel_shuffle_backward", "pixel_shuffle_double_backward", "pixel_shuffle_jvp",
    "pixel_unshuffle", "pixel_unshuffle_backward", "pixel_unshuffle_double_backward",
    "pixel_unshuffle_jvp", "plan", "prelu", "prelu_backward", "prelu_double_backward",
    "prelu_jvp", "program_data", "quantized_conv", "relu", "relu6", "relu6_backward",
    "relu6_double_backward", "relu6_jvp", "relu_backward", "relu_double_backward", "relu_jvp",
    "resize", "resize_backward", "resize_double_backward", "resize_jvp", "rms_norm",
    "rms_norm_backward", "rms_norm_double_backward", "rms_norm_jvp", "roi_align",
    "roi_align_backward", "roi_align_double_backward", "roi_align_jvp", "run", "scaled_conv",
    "sdpa", "sdpa_backward", "sdpa_double_backward", "sdpa_jvp", "selu", "selu_backward",
    "selu_double_backward", "selu_jvp", "sigmoid", "sigmoid_backward",
    "sigmoid_double_backward", "sigmoid_jvp", "silu", "silu_backward", "silu_double_backward",
    "silu_jvp", "soft_cross_entropy", "soft_cross_entropy_backward",
    "soft_cross_entropy_double_backward", "soft_cross_entropy_jvp", "softmax",
    "softmax_backward", "softmax_double_backward", "softmax_jvp", "softplus",
    "softplus_backward", "softplus_double_backward", "softplus_jvp", "softshrink",
    "softshrink_backward", "softshrink_double_backward", "softshrink_jvp", "softsign",
    "softsign_backward", "softsign_double_backward", "softsign_jvp", "sum", "sum_backward",
    "sum_double_backward", "sum_jvp", "tanh", "tanh_backward", "tanh_double_backward",
    "tanh_jvp", "tanhshrink", "tanhshrink_backward", "tanhshrink_double_backward",
    "tanhshrink_jvp", "threshold", "threshold_backward", "threshold_double_backward",
    "threshold_jvp", "unfold"
]

def adaptive_avg_pool1d(
    input: AnyArray[_T], output_size: _OutputSize, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
def adaptive_avg_pool1d_backward(
    grad_output: AnyArray[_T], input: _Array, output_size: _OutputSize, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def adaptive_avg_pool1d_double_backward(
    grad_grad_input: AnyArray[_T], output_size: _OutputSize, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
def adaptive_avg_pool1d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    output_size: _OutputSize, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
adaptive_avg_pool2d = adaptive_avg_pool1d
adaptive_avg_pool2d_backward = adaptive_avg_pool1d_backward
adaptive_avg_pool2d_double_backward = adaptive_avg_pool1d_double_backward
adaptive_avg_pool2d_jvp = adaptive_avg_pool1d_jvp
adaptive_avg_pool3d = adaptive_avg_pool1d
adaptive_avg_pool3d_backward = adaptive_avg_pool1d_backward
adaptive_avg_pool3d_double_backward = adaptive_avg_pool1d_double_backward
adaptive_avg_pool3d_jvp = adaptive_avg_pool1d_jvp
@overload
def adaptive_max_pool1d(
    input: AnyArray[_T], output_size: _OutputSize, return_indices: Literal[False] = False, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
@overload
def adaptive_max_pool1d(
    input: AnyArray[_T], output_size: _OutputSize, return_indices: Literal[True], *,
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
def adaptive_max_pool1d_backward(
    grad_output: AnyArray[_T], input: _Array, output_size: _OutputSize,
    indices: _Array | None = None, *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def adaptive_max_pool1d_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], output_size: _OutputSize,
    indices: _Array | None = None, *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def adaptive_max_pool1d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    output_size: _OutputSize, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
adaptive_max_pool2d = adaptive_max_pool1d
adaptive_max_pool2d_backward = adaptive_max_pool1d_backward
adaptive_max_pool2d_double_backward = adaptive_max_pool1d_double_backward
adaptive_max_pool2d_jvp = adaptive_max_pool1d_jvp
adaptive_max_pool3d = adaptive_max_pool1d
adaptive_max_pool3d_backward = adaptive_max_pool1d_backward
adaptive_max_pool3d_double_backward = adaptive_max_pool1d_double_backward
adaptive_max_pool3d_jvp = adaptive_max_pool1d_jvp
def avg_pool1d(
    input: AnyArray[_T], kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, *, dilation: _Ints = 1, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
def avg_pool1d_backward(
    grad_output: AnyArray[_T], input: _Array, kernel_size: _Ints, stride: _Ints | None = None,
    padding: _Padding = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, *, dilation: _Ints = 1, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
def avg_pool1d_double_backward(
    grad_grad_input: AnyArray[_T], kernel_size: _Ints, stride: _Ints | None = None,
    padding: _Padding = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, *, dilation: _Ints = 1, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
def avg_pool1d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, *, dilation: _Ints = 1, layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
avg_pool2d = avg_pool1d
avg_pool2d_backward = avg_pool1d_backward
avg_pool2d_double_backward = avg_pool1d_double_backward
avg_pool2d_jvp = avg_pool1d_jvp
avg_pool3d = avg_pool1d
avg_pool3d_backward = avg_pool1d_backward
avg_pool3d_double_backward = avg_pool1d_double_backward
avg_pool3d_jvp = avg_pool1d_jvp
def batch_norm(
    input: AnyArray[_T], running_mean: _Array | None, running_var: _Array | None,
    weight: _Array | None = None, bias: _Array | None = None, training: bool = False,
    momentum: float | None = 0.1, eps: float = 1e-05, *, num_batches_tracked: int | None = None,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
@overload
def batch_norm_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array | None = None,
    running_mean: _Array | None = None, running_var: _Array | None = None,
    mean: _Array | None = None, rstd: _Array | None = None, training: bool = True,
    eps: float = 1e-05, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def batch_norm_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array | None = None,
    running_mean: _Array | None = None, running_var: _Array | None = None,
    mean: _Array | None = None, rstd: _Array | None = None, training: bool = True,
    eps: float = 1e-05, *, output_mask: Sequence[bool], layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def batch_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array,
    weight: _Array | None = None, running_mean: _Array | None = None,
    running_var: _Array | None = None, mean: _Array | None = None, rstd: _Array | None = None,
    training: bool = True, eps: float = 1e-05, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def batch_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array,
    weight: _Array | None = None, running_mean: _Array | None = None,
    running_var: _Array | None = None, mean: _Array | None = None, rstd: _Array | None = None,
    training: bool = True, eps: float = 1e-05, *, output_mask: Sequence[bool],
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def batch_norm_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    running_mean: _Array | None = None, running_var: _Array | None = None,
    training: bool = True, eps: float = 1e-05, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def batch_norm_statistics(
    input: AnyArray[_T], running_mean: _Array | None = None, running_var: _Array | None = None,
    weight: _Array | None = None, bias: _Array | None = None, momentum: float | None = 0.1,
    eps: float = 1e-05, *, num_batches_tracked: int | None = None,
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T, _T, _T | None, _T | None]: ...
def celu(input: AnyArray[_T], alpha: float = 1.0, *, backend: str = "auto") -> _T: ...
def celu_backward(
    grad_output: AnyArray[_T], input: _Array, alpha: float = 1.0, *, backend: str = "auto"
) -> _T: ...
@overload
def celu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    alpha: float = 1.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def celu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    alpha: float = 1.0, *, output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def celu_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    alpha: float = 1.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def conv1d(
    input: AnyArray[_T], weight: _Array, bias: _Array | None = None, stride: _Ints = 1,
    padding: _Padding = 0, dilation: _Ints = 1, groups: int = 1, *, layout: _Layout = "NCW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> _T: ...
@overload
def conv1d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, layout: _Layout = "NCW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv1d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, output_mask: Sequence[bool],
    layout: _Layout = "NCW", weight_layout: str | None = None, math: _Math = "ieee",
    flip: bool = False, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def conv1d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, layout: _Layout = "NCW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv1d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, output_mask: Sequence[bool],
    layout: _Layout = "NCW", weight_layout: str | None = None, math: _Math = "ieee",
    flip: bool = False, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def conv1d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, layout: _Layout = "NCW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def conv2d(
    input: AnyArray[_T], weight: _Array, bias: _Array | None = None, stride: _Ints = 1,
    padding: _Padding = 0, dilation: _Ints = 1, groups: int = 1, *, layout: _Layout = "NCHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> _T: ...
@overload
def conv2d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, layout: _Layout = "NCHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv2d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, output_mask: Sequence[bool],
    layout: _Layout = "NCHW", weight_layout: str | None = None, math: _Math = "ieee",
    flip: bool = False, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def conv2d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, layout: _Layout = "NCHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv2d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, output_mask: Sequence[bool],
    layout: _Layout = "NCHW", weight_layout: str | None = None, math: _Math = "ieee",
    flip: bool = False, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def conv2d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, layout: _Layout = "NCHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def conv3d(
    input: AnyArray[_T], weight: _Array, bias: _Array | None = None, stride: _Ints = 1,
    padding: _Padding = 0, dilation: _Ints = 1, groups: int = 1, *, layout: _Layout = "NCDHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> _T: ...
@overload
def conv3d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, layout: _Layout = "NCDHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv3d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, output_mask: Sequence[bool],
    layout: _Layout = "NCDHW", weight_layout: str | None = None, math: _Math = "ieee",
    flip: bool = False, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def conv3d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, layout: _Layout = "NCDHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv3d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, output_mask: Sequence[bool],
    layout: _Layout = "NCDHW", weight_layout: str | None = None, math: _Math = "ieee",
    flip: bool = False, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def conv3d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, transposed: bool = False,
    output_padding: _Ints = 0, groups: int = 1, layout: _Layout = "NCDHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def conv_integer(
    input: NDArray[Any], weight: _Array, input_zero_point: int = 0,
    weight_zero_point: int | _Array = 0, stride: _Ints = 1, padding: _Padding = 0,
    dilation: _Ints = 1, groups: int = 1, *, backend: str = "auto"
) -> NDArray[np.int32]: ...
@overload
def conv_integer(
    input: AnyArray[_T], weight: _Array, input_zero_point: int = 0,
    weight_zero_point: int | _Array = 0, stride: _Ints = 1, padding: _Padding = 0,
    dilation: _Ints = 1, groups: int = 1, *, backend: str = "auto"
) -> _T: ...
def conv_transpose1d(
    input: AnyArray[_T], weight: _Array, bias: _Array | None = None, stride: _Ints = 1,
    padding: _Padding = 0, output_padding: _Ints = 0, groups: int = 1, dilation: _Ints = 1, *,
    layout: _Layout = "NCW", weight_layout: str | None = None, math: _Math = "ieee",
    flip: bool = False, backend: str = "auto"
) -> _T: ...
@overload
def conv_transpose1d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, layout: _Layout = "NCW", weight_layout: str | None = None,
    math: _Math = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv_transpose1d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, output_mask: Sequence[bool], layout: _Layout = "NCW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def conv_transpose1d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, layout: _Layout = "NCW", weight_layout: str | None = None,
    math: _Math = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv_transpose1d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, output_mask: Sequence[bool], layout: _Layout = "NCW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def conv_transpose1d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, layout: _Layout = "NCW", weight_layout: str | None = None,
    math: _Math = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[_T, _T]: ...
def conv_transpose2d(
    input: AnyArray[_T], weight: _Array, bias: _Array | None = None, stride: _Ints = 1,
    padding: _Padding = 0, output_padding: _Ints = 0, groups: int = 1, dilation: _Ints = 1, *,
    layout: _Layout = "NCHW", weight_layout: str | None = None, math: _Math = "ieee",
    flip: bool = False, backend: str = "auto"
) -> _T: ...
@overload
def conv_transpose2d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, layout: _Layout = "NCHW", weight_layout: str | None = None,
    math: _Math = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv_transpose2d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, output_mask: Sequence[bool], layout: _Layout = "NCHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def conv_transpose2d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, layout: _Layout = "NCHW", weight_layout: str | None = None,
    math: _Math = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv_transpose2d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, output_mask: Sequence[bool], layout: _Layout = "NCHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def conv_transpose2d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, layout: _Layout = "NCHW", weight_layout: str | None = None,
    math: _Math = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[_T, _T]: ...
def conv_transpose3d(
    input: AnyArray[_T], weight: _Array, bias: _Array | None = None, stride: _Ints = 1,
    padding: _Padding = 0, output_padding: _Ints = 0, groups: int = 1, dilation: _Ints = 1, *,
    layout: _Layout = "NCDHW", weight_layout: str | None = None, math: _Math = "ieee",
    flip: bool = False, backend: str = "auto"
) -> _T: ...
@overload
def conv_transpose3d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, layout: _Layout = "NCDHW", weight_layout: str | None = None,
    math: _Math = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv_transpose3d_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None = None,
    *, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, output_mask: Sequence[bool], layout: _Layout = "NCDHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def conv_transpose3d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, layout: _Layout = "NCDHW", weight_layout: str | None = None,
    math: _Math = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def conv_transpose3d_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, weight: _Array, *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, output_mask: Sequence[bool], layout: _Layout = "NCDHW",
    weight_layout: str | None = None, math: _Math = "ieee", flip: bool = False,
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def conv_transpose3d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, output_padding: _Ints = 0,
    groups: int = 1, layout: _Layout = "NCDHW", weight_layout: str | None = None,
    math: _Math = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[_T, _T]: ...
def convolution(
    input: AnyArray[_T], weight: _Array, bias: _Array | None, stride: _Ints, padding: _Padding,
    dilation: _Ints, transposed: bool, output_padding: _Ints, groups: int, *,
    flip: bool = False, backend: str = "auto"
) -> _T: ...
def convolution_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, bias_sizes: _Ints | None,
    stride: _Ints, padding: _Padding, dilation: _Ints, transposed: bool, output_padding: _Ints,
    groups: int, output_mask: Sequence[bool], *, flip: bool = False, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def convolution_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], weight: _Array, input: _Array,
    stride: _Ints, padding: _Padding, dilation: _Ints, transposed: bool, output_padding: _Ints,
    groups: int, output_mask: Sequence[bool], *, flip: bool = False, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def cross_entropy(
    input: AnyArray[_T], target: _Array, weight: _Array | None = None, ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    backend: str = "auto"
) -> _T: ...
def cross_entropy_backward(
    grad_output: AnyArray[_T], input: _Array, target: _Array, weight: _Array | None = None,
    ignore_index: int = -100, reduction: Literal["mean", "sum", "none"] = "mean",
    label_smoothing: float = 0.0, *, backend: str = "auto"
) -> _T: ...
@overload
def cross_entropy_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, target: _Array,
    weight: _Array | None = None, ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def cross_entropy_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, target: _Array,
    weight: _Array | None = None, ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def cross_entropy_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], target: _Array,
    weight: _Array | None = None, ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def cumsum(input: AnyArray[_T], dim: int, *, backend: str = "auto") -> _T: ...
def cumsum_backward(
    grad_output: AnyArray[_T], input: _Array, dim: int, *, backend: str = "auto"
) -> _T: ...
def cumsum_double_backward(
    grad_grad_input: AnyArray[_T], dim: int, *, backend: str = "auto"
) -> _T: ...
def cumsum_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], dim: int, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def deform_conv2d(
    input: AnyArray[_T], offset: _Array, weight: _Array, bias: _Array | None = None,
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, mask: _Array | None = None,
    *, backend: str = "auto"
) -> _T: ...
@overload
def deform_conv2d_backward(
    grad_output: AnyArray[_T], input: _Array, offset: _Array, weight: _Array, stride: _Ints = 1,
    padding: _Padding = 0, dilation: _Ints = 1, mask: _Array | None = None, *,
    backend: str = "auto"
) -> tuple[_T, _T, _T, _T, _T]: ...
@overload
def deform_conv2d_backward(
    grad_output: AnyArray[_T], input: _Array, offset: _Array, weight: _Array, stride: _Ints = 1,
    padding: _Padding = 0, dilation: _Ints = 1, mask: _Array | None = None, *,
    output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None, _T | None, _T | None]: ...
@overload
def deform_conv2d_double_backward(
    grad_grad_input: _Array | None, grad_grad_offset: _Array | None,
    grad_grad_weight: _Array | None, grad_grad_bias: _Array | None,
    grad_grad_mask: _Array | None, grad_output: AnyArray[_T], input: _Array, offset: _Array,
    weight: _Array, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1,
    mask: _Array | None = None, *, backend: str = "auto"
) -> tuple[_T, _T, _T, _T, _T]: ...
@overload
def deform_conv2d_double_backward(
    grad_grad_input: _Array | None, grad_grad_offset: _Array | None,
    grad_grad_weight: _Array | None, grad_grad_bias: _Array | None,
    grad_grad_mask: _Array | None, grad_output: AnyArray[_T], input: _Array, offset: _Array,
    weight: _Array, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1,
    mask: _Array | None = None, *, output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None, _T | None, _T | None]: ...
def deform_conv2d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def elu(input: AnyArray[_T], alpha: float = 1.0, *, backend: str = "auto") -> _T: ...
def elu_backward(
    grad_output: AnyArray[_T], input: _Array, alpha: float = 1.0, *, backend: str = "auto"
) -> _T: ...
@overload
def elu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    alpha: float = 1.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def elu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    alpha: float = 1.0, *, output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def elu_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    alpha: float = 1.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def fold(
    input: AnyArray[_T], output_size: _OutputSize, kernel_size: _Ints, dilation: _Ints = 1,
    padding: _Padding = 0, stride: _Ints = 1, *, backend: str = "numpy"
) -> _T: ...
def gelu(
    input: AnyArray[_T], approximate: Literal["none", "tanh"] = "none", *, backend: str = "auto"
) -> _T: ...
def gelu_backward(
    grad_output: AnyArray[_T], input: _Array, approximate: Literal["none", "tanh"] = "none", *,
    backend: str = "auto"
) -> _T: ...
@overload
def gelu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    approximate: Literal["none", "tanh"] = "none", *, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def gelu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    approximate: Literal["none", "tanh"] = "none", *, output_mask: Sequence[bool],
    backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def gelu_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    approximate: Literal["none", "tanh"] = "none", *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def global_avg_pool(
    input: AnyArray[_T], *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def global_avg_pool_backward(
    grad_output: AnyArray[_T], input: _Array, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
def global_avg_pool_double_backward(
    grad_grad_input: AnyArray[_T], *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def global_avg_pool_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
def global_lp_pool(
    input: AnyArray[_T], norm_type: float = 2.0, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
def global_lp_pool_backward(
    grad_output: AnyArray[_T], input: _Array, norm_type: float = 2.0, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
@overload
def global_lp_pool_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    norm_type: float = 2.0, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def global_lp_pool_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    norm_type: float = 2.0, *, output_mask: Sequence[bool], layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def global_lp_pool_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    norm_type: float = 2.0, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def global_max_pool(
    input: AnyArray[_T], return_indices: Literal[False] = False, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
@overload
def global_max_pool(
    input: AnyArray[_T], return_indices: Literal[True], *, layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def global_max_pool_backward(
    grad_output: AnyArray[_T], input: _Array, indices: _Array | None = None, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def global_max_pool_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], indices: _Array | None = None, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def global_max_pool_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
def grid_sample(
    input: AnyArray[_T], grid: _Array,
    mode: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool | None = None, *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
@overload
def grid_sample_backward(
    grad_output: AnyArray[_T], input: _Array, grid: _Array,
    mode: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool | None = None, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def grid_sample_backward(
    grad_output: AnyArray[_T], input: _Array, grid: _Array,
    mode: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool | None = None, *, output_mask: Sequence[bool],
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
@overload
def grid_sample_double_backward(
    grad_grad_input: _Array | None, grad_grad_grid: _Array | None, grad_output: AnyArray[_T],
    input: _Array, grid: _Array, mode: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool | None = None, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def grid_sample_double_backward(
    grad_grad_input: _Array | None, grad_grad_grid: _Array | None, grad_output: AnyArray[_T],
    input: _Array, grid: _Array, mode: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool | None = None, *, output_mask: Sequence[bool],
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def grid_sample_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    mode: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool | None = None, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def group_norm(
    input: AnyArray[_T], num_groups: int, weight: _Array | None = None,
    bias: _Array | None = None, eps: float = 1e-05, return_statistics: Literal[False] = False,
    *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
@overload
def group_norm(
    input: AnyArray[_T], num_groups: int, weight: _Array | None = None,
    bias: _Array | None = None, eps: float = 1e-05, *, return_statistics: Literal[True],
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def group_norm_backward(
    grad_output: AnyArray[_T], input: _Array, num_groups: int, weight: _Array | None = None,
    mean: _Array | None = None, rstd: _Array | None = None, eps: float = 1e-05, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def group_norm_backward(
    grad_output: AnyArray[_T], input: _Array, num_groups: int, weight: _Array | None = None,
    mean: _Array | None = None, rstd: _Array | None = None, eps: float = 1e-05, *,
    output_mask: Sequence[bool], layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def group_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, num_groups: int,
    weight: _Array | None = None, mean: _Array | None = None, rstd: _Array | None = None,
    eps: float = 1e-05, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def group_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array, num_groups: int,
    weight: _Array | None = None, mean: _Array | None = None, rstd: _Array | None = None,
    eps: float = 1e-05, *, output_mask: Sequence[bool], layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def group_norm_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], num_groups: int,
    eps: float = 1e-05, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
def hardmax(input: AnyArray[_T], dim: int = -1, *, backend: str = "auto") -> _T: ...
def hardshrink(input: AnyArray[_T], lambd: float = 0.5, *, backend: str = "auto") -> _T: ...
def hardshrink_backward(
    grad_output: AnyArray[_T], input: _Array, lambd: float = 0.5, *, backend: str = "auto"
) -> _T: ...
def hardshrink_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], lambd: float = 0.5, *,
    backend: str = "auto"
) -> _T: ...
def hardshrink_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    lambd: float = 0.5, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def hardsigmoid(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def hardsigmoid_backward(
    grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto"
) -> _T: ...
def hardsigmoid_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], *, backend: str = "auto"
) -> _T: ...
def hardsigmoid_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def hardswish(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def hardswish_backward(
    grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto"
) -> _T: ...
@overload
def hardswish_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def hardswish_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def hardswish_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def hardtanh(
    input: AnyArray[_T], min_val: float = -1.0, max_val: float = 1.0, *, backend: str = "auto"
) -> _T: ...
def hardtanh_backward(
    grad_output: AnyArray[_T], input: _Array, min_val: float = -1.0, max_val: float = 1.0, *,
    backend: str = "auto"
) -> _T: ...
def hardtanh_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], min_val: float = -1.0,
    max_val: float = 1.0, *, backend: str = "auto"
) -> _T: ...
def hardtanh_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    min_val: float = -1.0, max_val: float = 1.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def instance_norm(
    input: AnyArray[_T], running_mean: _Array | None = None, running_var: _Array | None = None,
    weight: _Array | None = None, bias: _Array | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-05, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
@overload
def instance_norm_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array | None = None,
    running_mean: _Array | None = None, running_var: _Array | None = None,
    mean: _Array | None = None, rstd: _Array | None = None, use_input_stats: bool = True,
    eps: float = 1e-05, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def instance_norm_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array | None = None,
    running_mean: _Array | None = None, running_var: _Array | None = None,
    mean: _Array | None = None, rstd: _Array | None = None, use_input_stats: bool = True,
    eps: float = 1e-05, *, output_mask: Sequence[bool], layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def instance_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array,
    weight: _Array | None = None, running_mean: _Array | None = None,
    running_var: _Array | None = None, mean: _Array | None = None, rstd: _Array | None = None,
    use_input_stats: bool = True, eps: float = 1e-05, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def instance_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array,
    weight: _Array | None = None, running_mean: _Array | None = None,
    running_var: _Array | None = None, mean: _Array | None = None, rstd: _Array | None = None,
    use_input_stats: bool = True, eps: float = 1e-05, *, output_mask: Sequence[bool],
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def instance_norm_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    running_mean: _Array | None = None, running_var: _Array | None = None,
    use_input_stats: bool = True, eps: float = 1e-05, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def instance_norm_statistics(
    input: AnyArray[_T], running_mean: _Array | None = None, running_var: _Array | None = None,
    weight: _Array | None = None, bias: _Array | None = None, momentum: float | None = 0.1,
    eps: float = 1e-05, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T, _T, _T | None, _T | None]: ...
def interpolate(
    input: AnyArray[_T], size: _Ints | None = None, scale_factor: _Floats | None = None,
    mode: _Mode = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def interpolate_backward(
    grad_output: AnyArray[_T], input: _Array, size: _Ints | None = None,
    scale_factor: _Floats | None = None, mode: _Mode = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False, *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def interpolate_double_backward(
    grad_grad_input: AnyArray[_T], size: _Ints | None = None,
    scale_factor: _Floats | None = None, mode: _Mode = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False, *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def interpolate_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    size: _Ints | None = None, scale_factor: _Floats | None = None, mode: _Mode = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def layer_norm(
    input: AnyArray[_T], normalized_shape: _Ints, weight: _Array | None = None,
    bias: _Array | None = None, eps: float = 1e-05, return_statistics: Literal[False] = False,
    *, backend: str = "auto"
) -> _T: ...
@overload
def layer_norm(
    input: AnyArray[_T], normalized_shape: _Ints, weight: _Array | None = None,
    bias: _Array | None = None, eps: float = 1e-05, *, return_statistics: Literal[True],
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def layer_norm_backward(
    grad_output: AnyArray[_T], input: _Array, normalized_shape: _Ints,
    weight: _Array | None = None, mean: _Array | None = None, rstd: _Array | None = None,
    eps: float = 1e-05, *, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def layer_norm_backward(
    grad_output: AnyArray[_T], input: _Array, normalized_shape: _Ints,
    weight: _Array | None = None, mean: _Array | None = None, rstd: _Array | None = None,
    eps: float = 1e-05, *, output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
@overload
def layer_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array,
    normalized_shape: _Ints, weight: _Array | None = None, mean: _Array | None = None,
    rstd: _Array | None = None, eps: float = 1e-05, *, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def layer_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None,
    grad_grad_bias: _Array | None, grad_output: AnyArray[_T], input: _Array,
    normalized_shape: _Ints, weight: _Array | None = None, mean: _Array | None = None,
    rstd: _Array | None = None, eps: float = 1e-05, *, output_mask: Sequence[bool],
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def layer_norm_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    normalized_shape: _Ints, eps: float = 1e-05, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def leaky_relu(
    input: AnyArray[_T], negative_slope: float = 0.01, *, backend: str = "auto"
) -> _T: ...
def leaky_relu_backward(
    grad_output: AnyArray[_T], input: _Array, negative_slope: float = 0.01, *,
    backend: str = "auto"
) -> _T: ...
def leaky_relu_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], negative_slope: float = 0.01, *,
    backend: str = "auto"
) -> _T: ...
def leaky_relu_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    negative_slope: float = 0.01, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def local_response_norm(
    input: AnyArray[_T], size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0,
    *, backend: str = "auto"
) -> _T: ...
def local_response_norm_backward(
    grad_output: AnyArray[_T], input: _Array, size: int, alpha: float = 0.0001,
    beta: float = 0.75, k: float = 1.0, *, backend: str = "auto"
) -> _T: ...
@overload
def local_response_norm_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, size: int,
    alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def local_response_norm_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, size: int,
    alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0, *, output_mask: Sequence[bool],
    backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def local_response_norm_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], size: int,
    alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def log_softmax(
    input: AnyArray[_T], dim: int, *, dtype: Any | None = None, backend: str = "auto"
) -> _T: ...
def log_softmax_backward(
    grad_output: AnyArray[_T], input: _Array, dim: int, *, dtype: Any | None = None,
    backend: str = "auto"
) -> _T: ...
@overload
def log_softmax_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, dim: int, *,
    dtype: Any | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def log_softmax_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, dim: int,
    output_mask: Sequence[bool], *, dtype: Any | None = None, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def log_softmax_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], dim: int, *,
    dtype: Any | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
def logsigmoid(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def logsigmoid_backward(
    grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto"
) -> _T: ...
@overload
def logsigmoid_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def logsigmoid_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def logsigmoid_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def lp_pool1d(
    input: AnyArray[_T], norm_type: float, kernel_size: _Ints, stride: _Ints | None = None,
    ceil_mode: bool = False, *, padding: _Padding = 0, dilation: _Ints = 1,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def lp_pool1d_backward(
    grad_output: AnyArray[_T], input: _Array, norm_type: float, kernel_size: _Ints,
    stride: _Ints | None = None, ceil_mode: bool = False, *, padding: _Padding = 0,
    dilation: _Ints = 1, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
@overload
def lp_pool1d_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, norm_type: float,
    kernel_size: _Ints, stride: _Ints | None = None, ceil_mode: bool = False, *,
    padding: _Padding = 0, dilation: _Ints = 1, layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def lp_pool1d_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, norm_type: float,
    kernel_size: _Ints, stride: _Ints | None = None, ceil_mode: bool = False, *,
    output_mask: Sequence[bool], padding: _Padding = 0, dilation: _Ints = 1,
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def lp_pool1d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], norm_type: float,
    kernel_size: _Ints, stride: _Ints | None = None, ceil_mode: bool = False, *,
    padding: _Padding = 0, dilation: _Ints = 1, layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
lp_pool2d = lp_pool1d
lp_pool2d_backward = lp_pool1d_backward
lp_pool2d_double_backward = lp_pool1d_double_backward
lp_pool2d_jvp = lp_pool1d_jvp
lp_pool3d = lp_pool1d
lp_pool3d_backward = lp_pool1d_backward
lp_pool3d_double_backward = lp_pool1d_double_backward
lp_pool3d_jvp = lp_pool1d_jvp
def matmul(
    input: AnyArray[_T], weight: _Array, *, math: _Math = "ieee", backend: str = "auto"
) -> _T: ...
@overload
def matmul_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, *, math: _Math = "ieee",
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def matmul_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, output_mask: Sequence[bool], *,
    math: _Math = "ieee", backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
@overload
def matmul_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None, grad_output: AnyArray[_T],
    input: _Array, weight: _Array, *, math: _Math = "ieee", backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def matmul_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None, grad_output: AnyArray[_T],
    input: _Array, weight: _Array, output_mask: Sequence[bool], *, math: _Math = "ieee",
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def matmul_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    math: _Math = "ieee", backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def max_pool1d(
    input: AnyArray[_T], kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
    dilation: _Ints = 1, ceil_mode: bool = False, return_indices: Literal[False] = False, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
@overload
def max_pool1d(
    input: AnyArray[_T], kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
    dilation: _Ints = 1, ceil_mode: bool = False, *, return_indices: Literal[True],
    layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
def max_pool1d_backward(
    grad_output: AnyArray[_T], input: _Array, kernel_size: _Ints, stride: _Ints | None = None,
    padding: _Padding = 0, dilation: _Ints = 1, ceil_mode: bool = False,
    indices: _Array | None = None, *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def max_pool1d_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], kernel_size: _Ints,
    stride: _Ints | None = None, padding: _Padding = 0, dilation: _Ints = 1,
    ceil_mode: bool = False, indices: _Array | None = None, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
def max_pool1d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0, dilation: _Ints = 1,
    ceil_mode: bool = False, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
max_pool2d = max_pool1d
max_pool2d_backward = max_pool1d_backward
max_pool2d_double_backward = max_pool1d_double_backward
max_pool2d_jvp = max_pool1d_jvp
max_pool3d = max_pool1d
max_pool3d_backward = max_pool1d_backward
max_pool3d_double_backward = max_pool1d_double_backward
max_pool3d_jvp = max_pool1d_jvp
def max_unpool1d(
    input: AnyArray[_T], indices: _Array, kernel_size: _Ints, stride: _Ints | None = None,
    padding: _Padding = 0, output_size: _OutputSize | None = None, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def max_unpool1d_backward(
    grad_output: AnyArray[_T], input: _Array, indices: _Array, kernel_size: _Ints,
    stride: _Ints | None = None, padding: _Padding = 0, output_size: _OutputSize | None = None,
    *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def max_unpool1d_double_backward(
    grad_grad_input: AnyArray[_T], indices: _Array, kernel_size: _Ints,
    stride: _Ints | None = None, padding: _Padding = 0, output_size: _OutputSize | None = None,
    *, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def max_unpool1d_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], indices: _Array,
    kernel_size: _Ints, stride: _Ints | None = None, padding: _Padding = 0,
    output_size: _OutputSize | None = None, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
max_unpool2d = max_unpool1d
max_unpool2d_backward = max_unpool1d_backward
max_unpool2d_double_backward = max_unpool1d_double_backward
max_unpool2d_jvp = max_unpool1d_jvp
max_unpool3d = max_unpool1d
max_unpool3d_backward = max_unpool1d_backward
max_unpool3d_double_backward = max_unpool1d_double_backward
max_unpool3d_jvp = max_unpool1d_jvp
def mean(
    input: AnyArray[_T], dim: int | Sequence[int] | None = None, keepdim: bool = False, *,
    backend: str = "auto"
) -> _T: ...
def mean_backward(
    grad_output: AnyArray[_T], input: _Array, dim: int | Sequence[int] | None = None,
    keepdim: bool = False, *, backend: str = "auto"
) -> _T: ...
def mean_double_backward(
    grad_grad_input: AnyArray[_T], dim: int | Sequence[int] | None = None,
    keepdim: bool = False, *, backend: str = "auto"
) -> _T: ...
def mean_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    dim: int | Sequence[int] | None = None, keepdim: bool = False, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def mish(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def mish_backward(grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto") -> _T: ...
@overload
def mish_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def mish_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def mish_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def nll_loss(
    input: AnyArray[_T], target: _Array, weight: _Array | None = None, ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean", *, backend: str = "auto"
) -> _T: ...
def nll_loss_backward(
    grad_output: AnyArray[_T], input: _Array, target: _Array, weight: _Array | None = None,
    ignore_index: int = -100, reduction: Literal["mean", "sum", "none"] = "mean", *,
    backend: str = "auto"
) -> _T: ...
def nll_loss_double_backward(
    grad_grad_input: AnyArray[_T], target: _Array, weight: _Array | None = None,
    ignore_index: int = -100, reduction: Literal["mean", "sum", "none"] = "mean", *,
    backend: str = "auto"
) -> _T: ...
def nll_loss_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], target: _Array,
    weight: _Array | None = None, ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean", *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def normalize(
    input: AnyArray[_T], p: float = 2.0, dim: int = 1, eps: float = 1e-12, *,
    backend: str = "auto"
) -> _T: ...
def normalize_backward(
    grad_output: AnyArray[_T], input: _Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12,
    *, backend: str = "auto"
) -> _T: ...
@overload
def normalize_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, p: float = 2.0,
    dim: int = 1, eps: float = 1e-12, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def normalize_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, p: float = 2.0,
    dim: int = 1, eps: float = 1e-12, *, output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def normalize_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], p: float = 2.0,
    dim: int = 1, eps: float = 1e-12, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def pixel_shuffle(
    input: AnyArray[_T], upscale_factor: int, *, mode: Literal["CRD", "DCR"] = "CRD",
    backend: str = "auto"
) -> _T: ...
def pixel_shuffle_backward(
    grad_output: AnyArray[_T], input: _Array, upscale_factor: int, *,
    mode: Literal["CRD", "DCR"] = "CRD", backend: str = "auto"
) -> _T: ...
def pixel_shuffle_double_backward(
    grad_grad_input: AnyArray[_T], upscale_factor: int, *, mode: Literal["CRD", "DCR"] = "CRD",
    backend: str = "auto"
) -> _T: ...
def pixel_shuffle_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    upscale_factor: int, *, mode: Literal["CRD", "DCR"] = "CRD", backend: str = "auto"
) -> tuple[_T, _T]: ...
def pixel_unshuffle(
    input: AnyArray[_T], downscale_factor: int, *, mode: Literal["CRD", "DCR"] = "CRD",
    backend: str = "auto"
) -> _T: ...
def pixel_unshuffle_backward(
    grad_output: AnyArray[_T], input: _Array, downscale_factor: int, *,
    mode: Literal["CRD", "DCR"] = "CRD", backend: str = "auto"
) -> _T: ...
def pixel_unshuffle_double_backward(
    grad_grad_input: AnyArray[_T], downscale_factor: int, *,
    mode: Literal["CRD", "DCR"] = "CRD", backend: str = "auto"
) -> _T: ...
def pixel_unshuffle_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    downscale_factor: int, *, mode: Literal["CRD", "DCR"] = "CRD", backend: str = "auto"
) -> tuple[_T, _T]: ...
def prelu(input: AnyArray[_T], weight: _Array, *, backend: str = "auto") -> _T: ...
@overload
def prelu_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def prelu_backward(
    grad_output: AnyArray[_T], input: _Array, weight: _Array, output_mask: Sequence[bool], *,
    backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
@overload
def prelu_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None, grad_output: AnyArray[_T],
    input: _Array, weight: _Array, *, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def prelu_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None, grad_output: AnyArray[_T],
    input: _Array, weight: _Array, output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def prelu_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def quantized_conv(
    input: AnyArray[_T], input_scale: float, input_zero_point: int, weight: _Array,
    weight_scale: float | _Array, weight_zero_point: int | _Array, output_scale: float,
    output_zero_point: int, bias: _Array | None = None, stride: _Ints = 1,
    padding: _Padding = 0, dilation: _Ints = 1, groups: int = 1, *, backend: str = "auto"
) -> _T: ...
def relu(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def relu6(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def relu6_backward(
    grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto"
) -> _T: ...
def relu6_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], *, backend: str = "auto"
) -> _T: ...
def relu6_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def relu_backward(grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto") -> _T: ...
def relu_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], *, backend: str = "auto"
) -> _T: ...
def relu_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def resize(
    input: AnyArray[_T], sizes: _Ints | None = None, scales: _Floats | None = None, *,
    mode: Literal["nearest", "linear", "cubic"] = "nearest",
    coordinate_transformation_mode: _Coordinates = "half_pixel",
    nearest_mode: _Nearest = "round_prefer_floor", cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False, antialias: bool = False,
    roi: Sequence[Sequence[float]] | None = None, keep_aspect_ratio_policy: _Aspect = "stretch",
    extrapolation_value: float = 0.0, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def resize_backward(
    grad_output: AnyArray[_T], input: _Array, sizes: _Ints | None = None,
    scales: _Floats | None = None, *, mode: Literal["nearest", "linear", "cubic"] = "nearest",
    coordinate_transformation_mode: _Coordinates = "half_pixel",
    nearest_mode: _Nearest = "round_prefer_floor", cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False, antialias: bool = False,
    roi: Sequence[Sequence[float]] | None = None, keep_aspect_ratio_policy: _Aspect = "stretch",
    extrapolation_value: float = 0.0, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def resize_double_backward(
    grad_grad_input: AnyArray[_T], sizes: _Ints | None = None, scales: _Floats | None = None, *,
    mode: Literal["nearest", "linear", "cubic"] = "nearest",
    coordinate_transformation_mode: _Coordinates = "half_pixel",
    nearest_mode: _Nearest = "round_prefer_floor", cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False, antialias: bool = False,
    roi: Sequence[Sequence[float]] | None = None, keep_aspect_ratio_policy: _Aspect = "stretch",
    extrapolation_value: float = 0.0, layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def resize_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    sizes: _Ints | None = None, scales: _Floats | None = None, *,
    mode: Literal["nearest", "linear", "cubic"] = "nearest",
    coordinate_transformation_mode: _Coordinates = "half_pixel",
    nearest_mode: _Nearest = "round_prefer_floor", cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False, antialias: bool = False,
    roi: Sequence[Sequence[float]] | None = None, keep_aspect_ratio_policy: _Aspect = "stretch",
    extrapolation_value: float = 0.0, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def rms_norm(
    input: AnyArray[_T], normalized_shape: _Ints, weight: _Array | None = None,
    eps: float | None = None, return_statistics: Literal[False] = False, *,
    backend: str = "auto"
) -> _T: ...
@overload
def rms_norm(
    input: AnyArray[_T], normalized_shape: _Ints, weight: _Array | None = None,
    eps: float | None = None, *, return_statistics: Literal[True], backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def rms_norm_backward(
    grad_output: AnyArray[_T], input: _Array, normalized_shape: _Ints,
    weight: _Array | None = None, eps: float | None = None, rstd: _Array | None = None, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def rms_norm_backward(
    grad_output: AnyArray[_T], input: _Array, normalized_shape: _Ints,
    weight: _Array | None = None, eps: float | None = None, rstd: _Array | None = None, *,
    output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
@overload
def rms_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None, grad_output: AnyArray[_T],
    input: _Array, normalized_shape: _Ints, weight: _Array | None = None,
    eps: float | None = None, rstd: _Array | None = None, *, backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def rms_norm_double_backward(
    grad_grad_input: _Array | None, grad_grad_weight: _Array | None, grad_output: AnyArray[_T],
    input: _Array, normalized_shape: _Ints, weight: _Array | None = None,
    eps: float | None = None, rstd: _Array | None = None, *, output_mask: Sequence[bool],
    backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def rms_norm_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    normalized_shape: _Ints, eps: float | None = None, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def roi_align(
    input: AnyArray[_T], boxes: _Array, output_size: _OutputSize, spatial_scale: float = 1.0,
    sampling_ratio: int = -1, aligned: bool = False, *, layout: _Layout | None = None,
    backend: str = "auto"
) -> _T: ...
def roi_align_backward(
    grad_output: AnyArray[_T], input: _Array, boxes: _Array, output_size: _OutputSize,
    spatial_scale: float = 1.0, sampling_ratio: int = -1, aligned: bool = False, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def roi_align_double_backward(
    grad_grad_input: AnyArray[_T], boxes: _Array, output_size: _OutputSize,
    spatial_scale: float = 1.0, sampling_ratio: int = -1, aligned: bool = False, *,
    layout: _Layout | None = None, backend: str = "auto"
) -> _T: ...
def roi_align_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], boxes: _Array,
    output_size: _OutputSize, spatial_scale: float = 1.0, sampling_ratio: int = -1,
    aligned: bool = False, *, layout: _Layout | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def scaled_conv(
    input: NDArray[Any], input_scale: float, weight: _Array, weight_scale: float | _Array,
    bias: _Array | None = None, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1,
    groups: int = 1, *, output_dtype: Any = "float32", backend: str = "auto"
) -> NDArray[Any]: ...
@overload
def scaled_conv(
    input: AnyArray[_T], input_scale: float, weight: _Array, weight_scale: float | _Array,
    bias: _Array | None = None, stride: _Ints = 1, padding: _Padding = 0, dilation: _Ints = 1,
    groups: int = 1, *, output_dtype: Any = "float32", backend: str = "auto"
) -> _T: ...
def sdpa(
    input: AnyArray[_T], key: _Array, value: _Array, bias: _Array | None = None,
    causal: bool = False, scale: float | None = None, *, backend: str = "auto"
) -> _T: ...
@overload
def sdpa_backward(
    grad_output: AnyArray[_T], input: _Array, key: _Array, value: _Array,
    bias: _Array | None = None, causal: bool = False, scale: float | None = None, *,
    backend: str = "auto"
) -> tuple[_T, _T, _T, _T]: ...
@overload
def sdpa_backward(
    grad_output: AnyArray[_T], input: _Array, key: _Array, value: _Array,
    bias: _Array | None = None, causal: bool = False, scale: float | None = None, *,
    output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None, _T | None]: ...
@overload
def sdpa_double_backward(
    grad_grad_input: _Array | None, grad_grad_key: _Array | None,
    grad_grad_value: _Array | None, grad_grad_bias: _Array | None, grad_output: AnyArray[_T],
    input: _Array, key: _Array, value: _Array, bias: _Array | None = None, causal: bool = False,
    scale: float | None = None, *, backend: str = "auto"
) -> tuple[_T, _T, _T, _T, _T]: ...
@overload
def sdpa_double_backward(
    grad_grad_input: _Array | None, grad_grad_key: _Array | None,
    grad_grad_value: _Array | None, grad_grad_bias: _Array | None, grad_output: AnyArray[_T],
    input: _Array, key: _Array, value: _Array, bias: _Array | None = None, causal: bool = False,
    scale: float | None = None, *, output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None, _T | None, _T | None]: ...
def sdpa_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    causal: bool = False, scale: float | None = None, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def selu(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def selu_backward(grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto") -> _T: ...
@overload
def selu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def selu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def selu_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def sigmoid(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def sigmoid_backward(
    grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto"
) -> _T: ...
@overload
def sigmoid_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def sigmoid_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def sigmoid_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def silu(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def silu_backward(grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto") -> _T: ...
@overload
def silu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def silu_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def silu_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def soft_cross_entropy(
    input: AnyArray[_T], target: _Array, weight: _Array | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    backend: str = "auto"
) -> _T: ...
@overload
def soft_cross_entropy_backward(
    grad_output: AnyArray[_T], input: _Array, target: _Array, weight: _Array | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def soft_cross_entropy_backward(
    grad_output: AnyArray[_T], input: _Array, target: _Array, weight: _Array | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
@overload
def soft_cross_entropy_double_backward(
    grad_grad_input: _Array | None, grad_grad_target: _Array | None, grad_output: AnyArray[_T],
    input: _Array, target: _Array, weight: _Array | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    backend: str = "auto"
) -> tuple[_T, _T, _T]: ...
@overload
def soft_cross_entropy_double_backward(
    grad_grad_input: _Array | None, grad_grad_target: _Array | None, grad_output: AnyArray[_T],
    input: _Array, target: _Array, weight: _Array | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean", label_smoothing: float = 0.0, *,
    output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None, _T | None]: ...
def soft_cross_entropy_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    weight: _Array | None = None, reduction: Literal["mean", "sum", "none"] = "mean",
    label_smoothing: float = 0.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def softmax(
    input: AnyArray[_T], dim: int, *, dtype: Any | None = None, backend: str = "auto"
) -> _T: ...
def softmax_backward(
    grad_output: AnyArray[_T], input: _Array, dim: int, *, dtype: Any | None = None,
    backend: str = "auto"
) -> _T: ...
@overload
def softmax_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, dim: int, *,
    dtype: Any | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def softmax_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, dim: int,
    output_mask: Sequence[bool], *, dtype: Any | None = None, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def softmax_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], dim: int, *,
    dtype: Any | None = None, backend: str = "auto"
) -> tuple[_T, _T]: ...
def softplus(
    input: AnyArray[_T], beta: float = 1.0, threshold: float = 20.0, *, backend: str = "auto"
) -> _T: ...
def softplus_backward(
    grad_output: AnyArray[_T], input: _Array, beta: float = 1.0, threshold: float = 20.0, *,
    backend: str = "auto"
) -> _T: ...
@overload
def softplus_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, beta: float = 1.0,
    threshold: float = 20.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def softplus_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, beta: float = 1.0,
    threshold: float = 20.0, *, output_mask: Sequence[bool], backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def softplus_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    beta: float = 1.0, threshold: float = 20.0, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def softshrink(input: AnyArray[_T], lambd: float = 0.5, *, backend: str = "auto") -> _T: ...
def softshrink_backward(
    grad_output: AnyArray[_T], input: _Array, lambd: float = 0.5, *, backend: str = "auto"
) -> _T: ...
def softshrink_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], lambd: float = 0.5, *,
    backend: str = "auto"
) -> _T: ...
def softshrink_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    lambd: float = 0.5, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def softsign(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def softsign_backward(
    grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto"
) -> _T: ...
@overload
def softsign_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def softsign_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def softsign_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def sum(
    input: AnyArray[_T], dim: int | Sequence[int] | None = None, keepdim: bool = False, *,
    backend: str = "auto"
) -> _T: ...
def sum_backward(
    grad_output: AnyArray[_T], input: _Array, dim: int | Sequence[int] | None = None,
    keepdim: bool = False, *, backend: str = "auto"
) -> _T: ...
def sum_double_backward(
    grad_grad_input: AnyArray[_T], dim: int | Sequence[int] | None = None,
    keepdim: bool = False, *, backend: str = "auto"
) -> _T: ...
def sum_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None],
    dim: int | Sequence[int] | None = None, keepdim: bool = False, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def tanh(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def tanh_backward(grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto") -> _T: ...
@overload
def tanh_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def tanh_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def tanh_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def tanhshrink(input: AnyArray[_T], *, backend: str = "auto") -> _T: ...
def tanhshrink_backward(
    grad_output: AnyArray[_T], input: _Array, *, backend: str = "auto"
) -> _T: ...
@overload
def tanhshrink_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array, *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
@overload
def tanhshrink_double_backward(
    grad_grad_input: _Array | None, grad_output: AnyArray[_T], input: _Array,
    output_mask: Sequence[bool], *, backend: str = "auto"
) -> tuple[_T | None, _T | None]: ...
def tanhshrink_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], *,
    backend: str = "auto"
) -> tuple[_T, _T]: ...
def threshold(
    input: AnyArray[_T], threshold: float, value: float, *, backend: str = "auto"
) -> _T: ...
def threshold_backward(
    grad_output: AnyArray[_T], input: _Array, threshold: float, value: float, *,
    backend: str = "auto"
) -> _T: ...
def threshold_double_backward(
    grad_grad_input: _Array | None, input: AnyArray[_T], threshold: float, value: float, *,
    backend: str = "auto"
) -> _T: ...
def threshold_jvp(
    primals: Sequence[AnyArray[_T] | None], tangents: Sequence[_Array | None], threshold: float,
    value: float, *, backend: str = "auto"
) -> tuple[_T, _T]: ...
def unfold(
    input: AnyArray[_T], kernel_size: _Ints, dilation: _Ints = 1, padding: _Padding = 0,
    stride: _Ints = 1, *, backend: str = "numpy"
) -> _T: ...
