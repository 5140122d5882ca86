"""Signatures; made by tools/stubs.py."""

# fmt: off
from typing import Any

from . import api as api
from . import ops as ops
from .api.testing import assert_correct as assert_correct
from .api.testing import case_of as case_of
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

__all__ = [
    "SIGNATURE", "Call", "Case", "ConvrefError", "Numerics", "Spec", "UnsupportedError", "Verdict",
    "adaptive_avg_pool1d", "adaptive_avg_pool1d_backward", "adaptive_avg_pool1d_double_backward",
    "adaptive_avg_pool1d_jvp", "adaptive_avg_pool2d", "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool2d_double_backward", "adaptive_avg_pool2d_jvp", "adaptive_avg_pool3d",
    "adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_double_backward",
    "adaptive_avg_pool3d_jvp", "adaptive_max_pool1d", "adaptive_max_pool1d_backward",
    "adaptive_max_pool1d_double_backward", "adaptive_max_pool1d_jvp", "adaptive_max_pool2d",
    "adaptive_max_pool2d_backward", "adaptive_max_pool2d_double_backward",
    "adaptive_max_pool2d_jvp", "adaptive_max_pool3d", "adaptive_max_pool3d_backward",
    "adaptive_max_pool3d_double_backward", "adaptive_max_pool3d_jvp", "assert_correct",
    "avg_pool1d", "avg_pool1d_backward", "avg_pool1d_double_backward", "avg_pool1d_jvp",
    "avg_pool2d", "avg_pool2d_backward", "avg_pool2d_double_backward", "avg_pool2d_jvp",
    "avg_pool3d", "avg_pool3d_backward", "avg_pool3d_double_backward", "avg_pool3d_jvp",
    "batch_norm", "batch_norm_backward", "batch_norm_double_backward", "batch_norm_jvp",
    "batch_norm_statistics", "case_of", "celu", "celu_backward", "celu_double_backward", "celu_jvp",
    "conv1d", "conv1d_backward", "conv1d_jvp", "conv2d", "conv2d_backward", "conv2d_jvp", "conv3d",
    "conv3d_backward", "conv3d_jvp", "conv_integer", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "convolution", "convolution_backward", "convolution_double_backward",
    "cross_entropy", "cross_entropy_backward", "cross_entropy_double_backward", "cross_entropy_jvp",
    "elu", "elu_backward", "elu_double_backward", "elu_jvp", "explain", "fold", "gelu",
    "gelu_backward", "gelu_double_backward", "gelu_jvp", "global_avg_pool",
    "global_avg_pool_backward", "global_lp_pool", "global_max_pool", "global_max_pool_backward",
    "group_norm", "group_norm_backward", "group_norm_double_backward", "group_norm_jvp", "hardmax",
    "hardshrink", "hardshrink_backward", "hardshrink_double_backward", "hardshrink_jvp",
    "hardsigmoid", "hardsigmoid_backward", "hardsigmoid_double_backward", "hardsigmoid_jvp",
    "hardswish", "hardswish_backward", "hardswish_double_backward", "hardswish_jvp", "hardtanh",
    "hardtanh_backward", "hardtanh_double_backward", "hardtanh_jvp", "instance_norm",
    "instance_norm_backward", "instance_norm_double_backward", "instance_norm_jvp",
    "instance_norm_statistics", "interpolate", "interpolate_backward",
    "interpolate_double_backward", "interpolate_jvp", "judge", "layer_norm", "layer_norm_backward",
    "layer_norm_double_backward", "layer_norm_jvp", "leaky_relu", "leaky_relu_backward",
    "leaky_relu_double_backward", "leaky_relu_jvp", "local_response_norm",
    "local_response_norm_backward", "local_response_norm_double_backward",
    "local_response_norm_jvp", "log_softmax", "log_softmax_backward", "log_softmax_double_backward",
    "log_softmax_jvp", "logsigmoid", "logsigmoid_backward", "logsigmoid_double_backward",
    "logsigmoid_jvp", "lp_pool1d", "lp_pool1d_backward", "lp_pool1d_double_backward",
    "lp_pool1d_jvp", "lp_pool2d", "lp_pool2d_backward", "lp_pool2d_double_backward",
    "lp_pool2d_jvp", "lp_pool3d", "lp_pool3d_backward", "lp_pool3d_double_backward",
    "lp_pool3d_jvp", "max_pool1d", "max_pool1d_backward", "max_pool1d_double_backward",
    "max_pool1d_jvp", "max_pool2d", "max_pool2d_backward", "max_pool2d_double_backward",
    "max_pool2d_jvp", "max_pool3d", "max_pool3d_backward", "max_pool3d_double_backward",
    "max_pool3d_jvp", "max_unpool1d", "max_unpool1d_backward", "max_unpool1d_double_backward",
    "max_unpool1d_jvp", "max_unpool2d", "max_unpool2d_backward", "max_unpool2d_double_backward",
    "max_unpool2d_jvp", "max_unpool3d", "max_unpool3d_backward", "max_unpool3d_double_backward",
    "max_unpool3d_jvp", "mish", "mish_backward", "mish_double_backward", "mish_jvp", "nll_loss",
    "nll_loss_backward", "nll_loss_double_backward", "nll_loss_jvp", "normalize",
    "normalize_backward", "normalize_double_backward", "normalize_jvp", "parse", "parse_problem",
    "pixel_shuffle", "pixel_shuffle_backward", "pixel_shuffle_double_backward", "pixel_shuffle_jvp",
    "pixel_unshuffle", "pixel_unshuffle_backward", "pixel_unshuffle_double_backward",
    "pixel_unshuffle_jvp", "plan", "prelu", "prelu_backward", "prelu_double_backward", "prelu_jvp",
    "quantized_conv", "relu", "relu6", "relu6_backward", "relu6_double_backward", "relu6_jvp",
    "relu_backward", "relu_double_backward", "relu_jvp", "resize", "resize_backward",
    "resize_double_backward", "resize_jvp", "rms_norm", "rms_norm_backward",
    "rms_norm_double_backward", "rms_norm_jvp", "run", "selu", "selu_backward",
    "selu_double_backward", "selu_jvp", "sigmoid", "sigmoid_backward", "sigmoid_double_backward",
    "sigmoid_jvp", "silu", "silu_backward", "silu_double_backward", "silu_jvp",
    "soft_cross_entropy", "soft_cross_entropy_backward", "soft_cross_entropy_double_backward",
    "soft_cross_entropy_jvp", "softmax", "softmax_backward", "softmax_double_backward",
    "softmax_jvp", "softplus", "softplus_backward", "softplus_double_backward", "softplus_jvp",
    "softshrink", "softshrink_backward", "softshrink_double_backward", "softshrink_jvp", "softsign",
    "softsign_backward", "softsign_double_backward", "softsign_jvp", "tanh", "tanh_backward",
    "tanh_double_backward", "tanh_jvp", "tanhshrink", "tanhshrink_backward",
    "tanhshrink_double_backward", "tanhshrink_jvp", "threshold", "threshold_backward",
    "threshold_double_backward", "threshold_jvp", "unfold"
]

def adaptive_avg_pool1d(
    input: Any, output_size: Any, *, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def adaptive_avg_pool1d_backward(
    grad_output: Any, input: Any, output_size: Any, *, layout: str | None = None,
    backend: str = "auto"
) -> Any: ...
def adaptive_avg_pool1d_double_backward(
    grad_grad_input: Any, output_size: Any, *, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def adaptive_avg_pool1d_jvp(
    primals: Any, tangents: Any, output_size: Any, *, layout: str | None = None,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
adaptive_avg_pool2d = adaptive_avg_pool1d
adaptive_avg_pool2d_backward = adaptive_avg_pool1d_backward
adaptive_avg_pool2d_double_backward = adaptive_avg_pool1d_double_backward
adaptive_avg_pool2d_jvp = adaptive_avg_pool1d_jvp
adaptive_avg_pool3d = adaptive_avg_pool1d
adaptive_avg_pool3d_backward = adaptive_avg_pool1d_backward
adaptive_avg_pool3d_double_backward = adaptive_avg_pool1d_double_backward
adaptive_avg_pool3d_jvp = adaptive_avg_pool1d_jvp
def adaptive_max_pool1d(
    input: Any, output_size: Any, return_indices: bool = False, *, layout: str | None = None,
    backend: str = "auto"
) -> Any: ...
def adaptive_max_pool1d_backward(
    grad_output: Any, input: Any, output_size: Any, indices: Any = None, *,
    layout: str | None = None, backend: str = "auto"
) -> Any: ...
def adaptive_max_pool1d_double_backward(
    grad_grad_input: Any, input: Any, output_size: Any, indices: Any = None, *,
    layout: str | None = None, backend: str = "auto"
) -> Any: ...
def adaptive_max_pool1d_jvp(
    primals: Any, tangents: Any, output_size: Any, *, layout: str | None = None,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
adaptive_max_pool2d = adaptive_max_pool1d
adaptive_max_pool2d_backward = adaptive_max_pool1d_backward
adaptive_max_pool2d_double_backward = adaptive_max_pool1d_double_backward
adaptive_max_pool2d_jvp = adaptive_max_pool1d_jvp
adaptive_max_pool3d = adaptive_max_pool1d
adaptive_max_pool3d_backward = adaptive_max_pool1d_backward
adaptive_max_pool3d_double_backward = adaptive_max_pool1d_double_backward
adaptive_max_pool3d_jvp = adaptive_max_pool1d_jvp
def avg_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, dilation: Any = 1,
    layout: str | None = None, backend: str = "auto"
) -> Any: ...
def avg_pool1d_backward(
    grad_output: Any, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    dilation: Any = 1, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def avg_pool1d_double_backward(
    grad_grad_input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    dilation: Any = 1, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def avg_pool1d_jvp(
    primals: Any, tangents: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    dilation: Any = 1, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
avg_pool2d = avg_pool1d
avg_pool2d_backward = avg_pool1d_backward
avg_pool2d_double_backward = avg_pool1d_double_backward
avg_pool2d_jvp = avg_pool1d_jvp
avg_pool3d = avg_pool1d
avg_pool3d_backward = avg_pool1d_backward
avg_pool3d_double_backward = avg_pool1d_double_backward
avg_pool3d_jvp = avg_pool1d_jvp
def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float | None = 0.1, eps: float = 1e-05, *,
    num_batches_tracked: int | None = None, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def batch_norm_backward(
    grad_output: Any, input: Any, weight: Any = None, running_mean: Any = None,
    running_var: Any = None, mean: Any = None, rstd: Any = None, training: bool = True,
    eps: float = 1e-05, output_mask: Any = (True, True, True), *, layout: str | None = None,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def batch_norm_double_backward(
    grad_grad_input: Any, grad_grad_weight: Any, grad_grad_bias: Any, grad_output: Any, input: Any,
    weight: Any = None, running_mean: Any = None, running_var: Any = None, mean: Any = None,
    rstd: Any = None, training: bool = True, eps: float = 1e-05,
    output_mask: Any = (True, True, True), *, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def batch_norm_jvp(
    primals: Any, tangents: Any, running_mean: Any = None, running_var: Any = None,
    training: bool = True, eps: float = 1e-05, *, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def batch_norm_statistics(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
    bias: Any = None, momentum: float | None = 0.1, eps: float = 1e-05, *,
    num_batches_tracked: int | None = None, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def celu(input: Any, alpha: float = 1.0, *, backend: str = "auto") -> Any: ...
def celu_backward(
    grad_output: Any, input: Any, alpha: float = 1.0, *, backend: str = "auto"
) -> Any: ...
def celu_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, alpha: float = 1.0,
    output_mask: Any = (True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def celu_jvp(
    primals: Any, tangents: Any, alpha: float = 1.0, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def conv1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, layout: str = "NCW", weight_layout: str | None = None, math: str = "ieee",
    flip: bool = False, backend: str = "auto"
) -> Any: ...
def conv1d_backward(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Any = None, *, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, transposed: bool = False, output_padding: Any = 0,
    groups: int = 1, output_mask: Any = (True, True, True), layout: str = "NCW",
    weight_layout: str | None = None, math: str = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[Any, ...]: ...
def conv1d_jvp(
    primals: Any, tangents: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    transposed: bool = False, output_padding: Any = 0, groups: int = 1, layout: str = "NCW",
    weight_layout: str | None = None, math: str = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[Any, ...]: ...
def conv2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, layout: str = "NCHW", weight_layout: str | None = None, math: str = "ieee",
    flip: bool = False, backend: str = "auto"
) -> Any: ...
def conv2d_backward(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Any = None, *, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, transposed: bool = False, output_padding: Any = 0,
    groups: int = 1, output_mask: Any = (True, True, True), layout: str = "NCHW",
    weight_layout: str | None = None, math: str = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[Any, ...]: ...
def conv2d_jvp(
    primals: Any, tangents: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    transposed: bool = False, output_padding: Any = 0, groups: int = 1, layout: str = "NCHW",
    weight_layout: str | None = None, math: str = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[Any, ...]: ...
def conv3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, layout: str = "NCDHW", weight_layout: str | None = None, math: str = "ieee",
    flip: bool = False, backend: str = "auto"
) -> Any: ...
def conv3d_backward(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Any = None, *, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, transposed: bool = False, output_padding: Any = 0,
    groups: int = 1, output_mask: Any = (True, True, True), layout: str = "NCDHW",
    weight_layout: str | None = None, math: str = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[Any, ...]: ...
def conv3d_jvp(
    primals: Any, tangents: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    transposed: bool = False, output_padding: Any = 0, groups: int = 1, layout: str = "NCDHW",
    weight_layout: str | None = None, math: str = "ieee", flip: bool = False, backend: str = "auto"
) -> tuple[Any, ...]: ...
def conv_integer(
    input: Any, weight: Any, input_zero_point: int = 0, weight_zero_point: Any = 0, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1, *, backend: str = "auto"
) -> Any: ...
def conv_transpose1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = "NCW",
    weight_layout: str | None = None, math: str = "ieee", flip: bool = False, backend: str = "auto"
) -> Any: ...
def conv_transpose2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = "NCHW",
    weight_layout: str | None = None, math: str = "ieee", flip: bool = False, backend: str = "auto"
) -> Any: ...
def conv_transpose3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = "NCDHW",
    weight_layout: str | None = None, math: str = "ieee", flip: bool = False, backend: str = "auto"
) -> Any: ...
def convolution(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *, flip: bool = False, backend: str = "auto"
) -> Any: ...
def convolution_backward(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, output_mask: Any, *,
    flip: bool = False, backend: str = "auto"
) -> tuple[Any, ...]: ...
def convolution_double_backward(
    grad_grad_input: Any, grad_grad_weight: Any, grad_grad_bias: Any, grad_output: Any, weight: Any,
    input: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int, output_mask: Any, *, flip: bool = False, backend: str = "auto"
) -> tuple[Any, ...]: ...
def cross_entropy(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0, *, backend: str = "auto"
) -> Any: ...
def cross_entropy_backward(
    grad_output: Any, input: Any, target: Any, weight: Any = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0, *, backend: str = "auto"
) -> Any: ...
def cross_entropy_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, target: Any, weight: Any = None,
    ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0,
    output_mask: Any = (True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def cross_entropy_jvp(
    primals: Any, tangents: Any, target: Any, weight: Any = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def elu(input: Any, alpha: float = 1.0, *, backend: str = "auto") -> Any: ...
def elu_backward(
    grad_output: Any, input: Any, alpha: float = 1.0, *, backend: str = "auto"
) -> Any: ...
def elu_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, alpha: float = 1.0,
    output_mask: Any = (True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def elu_jvp(
    primals: Any, tangents: Any, alpha: float = 1.0, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def fold(
    input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
    stride: Any = 1, *, backend: str = "numpy"
) -> Any: ...
def gelu(input: Any, approximate: str = "none", *, backend: str = "auto") -> Any: ...
def gelu_backward(
    grad_output: Any, input: Any, approximate: str = "none", *, backend: str = "auto"
) -> Any: ...
def gelu_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, approximate: str = "none",
    output_mask: Any = (True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def gelu_jvp(
    primals: Any, tangents: Any, approximate: str = "none", *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def global_avg_pool(input: Any, *, backend: str = "auto") -> Any: ...
def global_avg_pool_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def global_lp_pool(input: Any, norm_type: float = 2.0, *, backend: str = "auto") -> Any: ...
def global_max_pool(input: Any, *, backend: str = "auto") -> Any: ...
def global_max_pool_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05,
    return_statistics: bool = False, *, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def group_norm_backward(
    grad_output: Any, input: Any, num_groups: int, weight: Any = None, mean: Any = None,
    rstd: Any = None, eps: float = 1e-05, output_mask: Any = (True, True, True), *,
    layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def group_norm_double_backward(
    grad_grad_input: Any, grad_grad_weight: Any, grad_grad_bias: Any, grad_output: Any, input: Any,
    num_groups: int, weight: Any = None, mean: Any = None, rstd: Any = None, eps: float = 1e-05,
    output_mask: Any = (True, True, True), *, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def group_norm_jvp(
    primals: Any, tangents: Any, num_groups: int, eps: float = 1e-05, *, layout: str | None = None,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def hardmax(input: Any, dim: int = -1, *, backend: str = "auto") -> Any: ...
def hardshrink(input: Any, lambd: float = 0.5, *, backend: str = "auto") -> Any: ...
def hardshrink_backward(
    grad_output: Any, input: Any, lambd: float = 0.5, *, backend: str = "auto"
) -> Any: ...
def hardshrink_double_backward(
    grad_grad_input: Any, input: Any, lambd: float = 0.5, *, backend: str = "auto"
) -> Any: ...
def hardshrink_jvp(
    primals: Any, tangents: Any, lambd: float = 0.5, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def hardsigmoid(input: Any, *, backend: str = "auto") -> Any: ...
def hardsigmoid_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def hardsigmoid_double_backward(
    grad_grad_input: Any, input: Any, *, backend: str = "auto"
) -> Any: ...
def hardsigmoid_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def hardswish(input: Any, *, backend: str = "auto") -> Any: ...
def hardswish_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def hardswish_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def hardswish_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def hardtanh(
    input: Any, min_val: float = -1.0, max_val: float = 1.0, *, backend: str = "auto"
) -> Any: ...
def hardtanh_backward(
    grad_output: Any, input: Any, min_val: float = -1.0, max_val: float = 1.0, *,
    backend: str = "auto"
) -> Any: ...
def hardtanh_double_backward(
    grad_grad_input: Any, input: Any, min_val: float = -1.0, max_val: float = 1.0, *,
    backend: str = "auto"
) -> Any: ...
def hardtanh_jvp(
    primals: Any, tangents: Any, min_val: float = -1.0, max_val: float = 1.0, *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
    bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-05, *,
    layout: str | None = None, backend: str = "auto"
) -> Any: ...
def instance_norm_backward(
    grad_output: Any, input: Any, weight: Any = None, running_mean: Any = None,
    running_var: Any = None, mean: Any = None, rstd: Any = None, use_input_stats: Any = True,
    eps: float = 1e-05, output_mask: Any = (True, True, True), *, layout: str | None = None,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def instance_norm_double_backward(
    grad_grad_input: Any, grad_grad_weight: Any, grad_grad_bias: Any, grad_output: Any, input: Any,
    weight: Any = None, running_mean: Any = None, running_var: Any = None, mean: Any = None,
    rstd: Any = None, use_input_stats: Any = True, eps: float = 1e-05,
    output_mask: Any = (True, True, True), *, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def instance_norm_jvp(
    primals: Any, tangents: Any, running_mean: Any = None, running_var: Any = None,
    use_input_stats: Any = True, eps: float = 1e-05, *, layout: str | None = None,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def instance_norm_statistics(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
    bias: Any = None, momentum: float | None = 0.1, eps: float = 1e-05, *,
    layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False, *, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def interpolate_backward(
    grad_output: Any, input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False, *, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def interpolate_double_backward(
    grad_grad_input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False, *, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def interpolate_jvp(
    primals: Any, tangents: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False, *, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05,
    return_statistics: bool = False, *, backend: str = "auto"
) -> Any: ...
def layer_norm_backward(
    grad_output: Any, input: Any, normalized_shape: Any, weight: Any = None, mean: Any = None,
    rstd: Any = None, eps: float = 1e-05, output_mask: Any = (True, True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def layer_norm_double_backward(
    grad_grad_input: Any, grad_grad_weight: Any, grad_grad_bias: Any, grad_output: Any, input: Any,
    normalized_shape: Any, weight: Any = None, mean: Any = None, rstd: Any = None,
    eps: float = 1e-05, output_mask: Any = (True, True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def layer_norm_jvp(
    primals: Any, tangents: Any, normalized_shape: Any, eps: float = 1e-05, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def leaky_relu(input: Any, negative_slope: float = 0.01, *, backend: str = "auto") -> Any: ...
def leaky_relu_backward(
    grad_output: Any, input: Any, negative_slope: float = 0.01, *, backend: str = "auto"
) -> Any: ...
def leaky_relu_double_backward(
    grad_grad_input: Any, input: Any, negative_slope: float = 0.01, *, backend: str = "auto"
) -> Any: ...
def leaky_relu_jvp(
    primals: Any, tangents: Any, negative_slope: float = 0.01, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def local_response_norm(
    input: Any, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0, *,
    backend: str = "auto"
) -> Any: ...
def local_response_norm_backward(
    grad_output: Any, input: Any, size: int, alpha: float = 0.0001, beta: float = 0.75,
    k: float = 1.0, *, backend: str = "auto"
) -> Any: ...
def local_response_norm_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, size: int, alpha: float = 0.0001,
    beta: float = 0.75, k: float = 1.0, output_mask: Any = (True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def local_response_norm_jvp(
    primals: Any, tangents: Any, size: int, alpha: float = 0.0001, beta: float = 0.75,
    k: float = 1.0, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def log_softmax(input: Any, dim: int, *, dtype: Any = None, backend: str = "auto") -> Any: ...
def log_softmax_backward(
    grad_output: Any, input: Any, dim: int, *, dtype: Any = None, backend: str = "auto"
) -> Any: ...
def log_softmax_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, dim: int, output_mask: Any = (True, True),
    *, dtype: Any = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def log_softmax_jvp(
    primals: Any, tangents: Any, dim: int, *, dtype: Any = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def logsigmoid(input: Any, *, backend: str = "auto") -> Any: ...
def logsigmoid_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def logsigmoid_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def logsigmoid_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def lp_pool1d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False, *,
    padding: Any = 0, dilation: Any = 1, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def lp_pool1d_backward(
    grad_output: Any, input: Any, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False, *, padding: Any = 0, dilation: Any = 1, layout: str | None = None,
    backend: str = "auto"
) -> Any: ...
def lp_pool1d_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, norm_type: float, kernel_size: Any,
    stride: Any = None, ceil_mode: bool = False, output_mask: Any = (True, True), *,
    padding: Any = 0, dilation: Any = 1, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def lp_pool1d_jvp(
    primals: Any, tangents: Any, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False, *, padding: Any = 0, dilation: Any = 1, layout: str | None = None,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
lp_pool2d = lp_pool1d
lp_pool2d_backward = lp_pool1d_backward
lp_pool2d_double_backward = lp_pool1d_double_backward
lp_pool2d_jvp = lp_pool1d_jvp
lp_pool3d = lp_pool1d
lp_pool3d_backward = lp_pool1d_backward
lp_pool3d_double_backward = lp_pool1d_double_backward
lp_pool3d_jvp = lp_pool1d_jvp
def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, layout: str | None = None,
    backend: str = "auto"
) -> Any: ...
def max_pool1d_backward(
    grad_output: Any, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, indices: Any = None, *, layout: str | None = None,
    backend: str = "auto"
) -> Any: ...
def max_pool1d_double_backward(
    grad_grad_input: Any, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, indices: Any = None, *, layout: str | None = None,
    backend: str = "auto"
) -> Any: ...
def max_pool1d_jvp(
    primals: Any, tangents: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, *, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
max_pool2d = max_pool1d
max_pool2d_backward = max_pool1d_backward
max_pool2d_double_backward = max_pool1d_double_backward
max_pool2d_jvp = max_pool1d_jvp
max_pool3d = max_pool1d
max_pool3d_backward = max_pool1d_backward
max_pool3d_double_backward = max_pool1d_double_backward
max_pool3d_jvp = max_pool1d_jvp
def max_unpool1d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    output_size: Any = None, *, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def max_unpool1d_backward(
    grad_output: Any, input: Any, indices: Any, kernel_size: Any, stride: Any = None,
    padding: Any = 0, output_size: Any = None, *, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def max_unpool1d_double_backward(
    grad_grad_input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    output_size: Any = None, *, layout: str | None = None, backend: str = "auto"
) -> Any: ...
def max_unpool1d_jvp(
    primals: Any, tangents: Any, indices: Any, kernel_size: Any, stride: Any = None,
    padding: Any = 0, output_size: Any = None, *, layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
max_unpool2d = max_unpool1d
max_unpool2d_backward = max_unpool1d_backward
max_unpool2d_double_backward = max_unpool1d_double_backward
max_unpool2d_jvp = max_unpool1d_jvp
max_unpool3d = max_unpool1d
max_unpool3d_backward = max_unpool1d_backward
max_unpool3d_double_backward = max_unpool1d_double_backward
max_unpool3d_jvp = max_unpool1d_jvp
def mish(input: Any, *, backend: str = "auto") -> Any: ...
def mish_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def mish_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def mish_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def nll_loss(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
    *, backend: str = "auto"
) -> Any: ...
def nll_loss_backward(
    grad_output: Any, input: Any, target: Any, weight: Any = None, ignore_index: int = -100,
    reduction: str = "mean", *, backend: str = "auto"
) -> Any: ...
def nll_loss_double_backward(
    grad_grad_input: Any, target: Any, weight: Any = None, ignore_index: int = -100,
    reduction: str = "mean", *, backend: str = "auto"
) -> Any: ...
def nll_loss_jvp(
    primals: Any, tangents: Any, target: Any, weight: Any = None, ignore_index: int = -100,
    reduction: str = "mean", *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def normalize(
    input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, *, backend: str = "auto"
) -> Any: ...
def normalize_backward(
    grad_output: Any, input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, *,
    backend: str = "auto"
) -> Any: ...
def normalize_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, p: float = 2.0, dim: int = 1,
    eps: float = 1e-12, output_mask: Any = (True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def normalize_jvp(
    primals: Any, tangents: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def pixel_shuffle(
    input: Any, upscale_factor: int, *, mode: str = "CRD", backend: str = "auto"
) -> Any: ...
def pixel_shuffle_backward(
    grad_output: Any, input: Any, upscale_factor: int, *, mode: str = "CRD", backend: str = "auto"
) -> Any: ...
def pixel_shuffle_double_backward(
    grad_grad_input: Any, upscale_factor: int, *, mode: str = "CRD", backend: str = "auto"
) -> Any: ...
def pixel_shuffle_jvp(
    primals: Any, tangents: Any, upscale_factor: int, *, mode: str = "CRD", backend: str = "auto"
) -> tuple[Any, ...]: ...
def pixel_unshuffle(
    input: Any, downscale_factor: int, *, mode: str = "CRD", backend: str = "auto"
) -> Any: ...
def pixel_unshuffle_backward(
    grad_output: Any, input: Any, downscale_factor: int, *, mode: str = "CRD", backend: str = "auto"
) -> Any: ...
def pixel_unshuffle_double_backward(
    grad_grad_input: Any, downscale_factor: int, *, mode: str = "CRD", backend: str = "auto"
) -> Any: ...
def pixel_unshuffle_jvp(
    primals: Any, tangents: Any, downscale_factor: int, *, mode: str = "CRD", backend: str = "auto"
) -> tuple[Any, ...]: ...
def prelu(input: Any, weight: Any, *, backend: str = "auto") -> Any: ...
def prelu_backward(
    grad_output: Any, input: Any, weight: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def prelu_double_backward(
    grad_grad_input: Any, grad_grad_weight: Any, grad_output: Any, input: Any, weight: Any,
    output_mask: Any = (True, True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def prelu_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def quantized_conv(
    input: Any, input_scale: float, input_zero_point: int, weight: Any, weight_scale: Any,
    weight_zero_point: Any, output_scale: float, output_zero_point: int, bias: Any = None,
    stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, *, backend: str = "auto"
) -> Any: ...
def relu(input: Any, *, backend: str = "auto") -> Any: ...
def relu6(input: Any, *, backend: str = "auto") -> Any: ...
def relu6_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def relu6_double_backward(grad_grad_input: Any, input: Any, *, backend: str = "auto") -> Any: ...
def relu6_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def relu_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def relu_double_backward(grad_grad_input: Any, input: Any, *, backend: str = "auto") -> Any: ...
def relu_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def resize(
    input: Any, sizes: Any = None, scales: Any = None, *, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75, exclude_outside: bool = False, antialias: bool = False,
    roi: Any = None, keep_aspect_ratio_policy: str = "stretch", extrapolation_value: float = 0.0,
    layout: str | None = None, backend: str = "auto"
) -> Any: ...
def resize_backward(
    grad_output: Any, input: Any, sizes: Any = None, scales: Any = None, *, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75, exclude_outside: bool = False, antialias: bool = False,
    roi: Any = None, keep_aspect_ratio_policy: str = "stretch", extrapolation_value: float = 0.0,
    layout: str | None = None, backend: str = "auto"
) -> Any: ...
def resize_double_backward(
    grad_grad_input: Any, sizes: Any = None, scales: Any = None, *, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75, exclude_outside: bool = False, antialias: bool = False,
    roi: Any = None, keep_aspect_ratio_policy: str = "stretch", extrapolation_value: float = 0.0,
    layout: str | None = None, backend: str = "auto"
) -> Any: ...
def resize_jvp(
    primals: Any, tangents: Any, sizes: Any = None, scales: Any = None, *, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75, exclude_outside: bool = False, antialias: bool = False,
    roi: Any = None, keep_aspect_ratio_policy: str = "stretch", extrapolation_value: float = 0.0,
    layout: str | None = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None,
    return_statistics: bool = False, *, backend: str = "auto"
) -> Any: ...
def rms_norm_backward(
    grad_output: Any, input: Any, normalized_shape: Any, weight: Any = None,
    eps: float | None = None, rstd: Any = None, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def rms_norm_double_backward(
    grad_grad_input: Any, grad_grad_weight: Any, grad_output: Any, input: Any,
    normalized_shape: Any, weight: Any = None, eps: float | None = None, rstd: Any = None,
    output_mask: Any = (True, True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def rms_norm_jvp(
    primals: Any, tangents: Any, normalized_shape: Any, eps: float | None = None, *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def selu(input: Any, *, backend: str = "auto") -> Any: ...
def selu_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def selu_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def selu_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def sigmoid(input: Any, *, backend: str = "auto") -> Any: ...
def sigmoid_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def sigmoid_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def sigmoid_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def silu(input: Any, *, backend: str = "auto") -> Any: ...
def silu_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def silu_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def silu_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def soft_cross_entropy(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean",
    label_smoothing: float = 0.0, *, backend: str = "auto"
) -> Any: ...
def soft_cross_entropy_backward(
    grad_output: Any, input: Any, target: Any, weight: Any = None, reduction: str = "mean",
    label_smoothing: float = 0.0, output_mask: Any = (True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def soft_cross_entropy_double_backward(
    grad_grad_input: Any, grad_grad_target: Any, grad_output: Any, input: Any, target: Any,
    weight: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
    output_mask: Any = (True, True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def soft_cross_entropy_jvp(
    primals: Any, tangents: Any, weight: Any = None, reduction: str = "mean",
    label_smoothing: float = 0.0, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def softmax(input: Any, dim: int, *, dtype: Any = None, backend: str = "auto") -> Any: ...
def softmax_backward(
    grad_output: Any, input: Any, dim: int, *, dtype: Any = None, backend: str = "auto"
) -> Any: ...
def softmax_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, dim: int, output_mask: Any = (True, True),
    *, dtype: Any = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def softmax_jvp(
    primals: Any, tangents: Any, dim: int, *, dtype: Any = None, backend: str = "auto"
) -> tuple[Any, ...]: ...
def softplus(
    input: Any, beta: float = 1.0, threshold: float = 20.0, *, backend: str = "auto"
) -> Any: ...
def softplus_backward(
    grad_output: Any, input: Any, beta: float = 1.0, threshold: float = 20.0, *,
    backend: str = "auto"
) -> Any: ...
def softplus_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, beta: float = 1.0, threshold: float = 20.0,
    output_mask: Any = (True, True), *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def softplus_jvp(
    primals: Any, tangents: Any, beta: float = 1.0, threshold: float = 20.0, *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def softshrink(input: Any, lambd: float = 0.5, *, backend: str = "auto") -> Any: ...
def softshrink_backward(
    grad_output: Any, input: Any, lambd: float = 0.5, *, backend: str = "auto"
) -> Any: ...
def softshrink_double_backward(
    grad_grad_input: Any, input: Any, lambd: float = 0.5, *, backend: str = "auto"
) -> Any: ...
def softshrink_jvp(
    primals: Any, tangents: Any, lambd: float = 0.5, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def softsign(input: Any, *, backend: str = "auto") -> Any: ...
def softsign_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def softsign_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def softsign_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def tanh(input: Any, *, backend: str = "auto") -> Any: ...
def tanh_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def tanh_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def tanh_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def tanhshrink(input: Any, *, backend: str = "auto") -> Any: ...
def tanhshrink_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any: ...
def tanhshrink_double_backward(
    grad_grad_input: Any, grad_output: Any, input: Any, output_mask: Any = (True, True), *,
    backend: str = "auto"
) -> tuple[Any, ...]: ...
def tanhshrink_jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]: ...
def threshold(input: Any, threshold: float, value: float, *, backend: str = "auto") -> Any: ...
def threshold_backward(
    grad_output: Any, input: Any, threshold: float, value: float, *, backend: str = "auto"
) -> Any: ...
def threshold_double_backward(
    grad_grad_input: Any, input: Any, threshold: float, value: float, *, backend: str = "auto"
) -> Any: ...
def threshold_jvp(
    primals: Any, tangents: Any, threshold: float, value: float, *, backend: str = "auto"
) -> tuple[Any, ...]: ...
def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1, *,
    backend: str = "numpy"
) -> Any: ...
