"""ONNX Runtime's pools, norms and activations against the oracle, except known bugs."""

import pytest

from convref import parse
from convref.conformance.examine import examine
from convref.conformance.generate import Axes

module = pytest.importorskip(
    "convref.backends.onnxruntime.adapter",
    reason="needs onnx and onnxruntime",
    exc_type=ImportError,
)
backend = module.backend

CALLED = (
    "max_pool",
    "avg_pool",
    "lp_pool",
    "pixel_shuffle",
    "pixel_unshuffle",
    "batch_norm_eval",
    "layer_norm",
    "group_norm",
    "rms_norm",
    "relu",
    "leaky_relu",
    "prelu",
    "elu",
    "celu",
    "selu",
    "softsign",
    "softplus",
    "mish",
    "hardsigmoid",
    "hardtanh",
    "nll_loss",
    "threshold",
    "gelu",
    "tanh",
    "softmax",
    "log_softmax",
    "hardmax",
    "grid_sample",
    "roi_align",
    "deform_conv",
    "normalize",
)


@pytest.mark.parametrize("op", CALLED)
def test_forward_is_right(op, right):
    fills = ("int", "ties", "normal", "wide")
    right(backend, Axes(8, (op,), ("fprop",), ("f32", "f64"), fills, size=60), 8)


RIGHT = (
    "max_pool.fprop:n2c3_i9x7_f3x2_s2x1_p1,0x0,1_d1x2:ceil=1:fill=ties",
    "max_pool.fprop:n2c3_i9x7x2_f3x2x1_s2x1x1:dt=u8",
    "avg_pool.fprop:n1c2_i9x7_f3x3_s2_p1:ceil=1:cip=0:fill=normal",
    "avg_pool.fprop:n1c2_i9x7_f3x2_s2_p1,2x1,0:fill=normal",
    "lp_pool.fprop:n1c2_i9x7_f3x2_s2:norm=3:fill=normal",
    "adaptive_avg_pool.fprop:n2c3_i7x6_o1x1:fill=normal",
    "group_norm.fprop:n2c4g4_i5x3:bias=0:fill=normal",
    "group_norm.fprop:n2c4g2_i5x3:weight=0:fill=normal",
    "batch_norm_eval.fprop:n2c4_i5:eps=0.5:dt=f64:fill=normal",
    "layer_norm.fprop:n2c4_i5x2:weight=0:bias=0:fill=normal",
    "rms_norm.fprop:n2c4_i5x2:weight=0:fill=normal",
    "relu.fprop:n2c4_i5:dt=i8",
    "gelu.fprop:n2c4_i5:approx=tanh:fill=normal",
    "log_softmax.fprop:n2c4_i5x3:dim=2:fill=normal",
    "local_response_norm.fprop:n2c6_i3x4:size=3:alpha=1:fill=normal",
    "conv_integer.fprop:n2c3k1_i5x4_f3x2_p1:xz=3:dt=u8:fill=wide",
    "quantized_conv.fprop:n2c4k6g2_i5x4_f3x2_s2x1_p1:xz=3:yz=100:dt=u8:fill=normal",
    "quantized_conv.fprop:n2c2k3_i7_f3_d2:xz=3:yz=3:bias=0:dt=i8:fill=ties",
)


@pytest.mark.parametrize("line", RIGHT)
def test_the_same_function_under_other_conventions(line):
    assert backend.supports(parse(line).call) is None
    found = examine(parse(line), backend, repeat=True)
    assert (found.verdict, found.reason) == ("pass", "")


REFUSED = {
    "silu.fprop:n1c1_i4": "no node for silu",
    "relu.jvp:n1c1_i4": "the forward pass of relu",
    "relu.fprop:n1c1_i4:dt=u8": "no relu for u8",
    "layer_norm.fprop:n1c2_i4:dt=f64": "no layer_norm for f64",
    "batch_norm_eval.fprop:n1c2_i4:dt=f64": "epsilon as float32",
    "hardswish.fprop:n1c2_i4": "which cancels near -3",
    "max_pool.fprop:n1c1_i4_f2_p2": "the kernel size minus 1",
    "max_pool.fprop:n1c1_i1_f2_p1_d2": "empty windows",
    "avg_pool.fprop:n1c1_i4_f2:div=3": "no divisor_override",
    "lp_pool.fprop:n1c1_i4_f2:norm=1.5": "only integer norms",
    "adaptive_avg_pool.fprop:n1c1_i4_o2": "to one element",
    "tanh.fprop:n1c0_i4": "empty images",
    "normalize.fprop:n1c2_i4:p=3": "only the norms 1 and 2",
    "normalize.fprop:n1c2_i4:eps=1": "no eps",
    "softplus.fprop:n1c2_i4:beta=2": "no beta",
    "conv_integer.fprop:n1c1k2_i4_f1:dt=u8": "zero point for each channel",
    "local_response_norm.fprop:n1c2_i4x4:size=4": "follows the channel",
    "local_response_norm.fprop:n1c2_i4": "only for 2d images",
    "pixel_unshuffle.fprop:n1c1_i4x4": "only mode DCR",
    "tanh.fprop:n1c1_i4:dev=cuda": "only the CPU",
}


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_unsupported_calls_have_a_reason(line, reason):
    assert reason in (backend.supports(parse(line).call) or "")
