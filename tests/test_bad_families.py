"""Wrong calls of pools, norms, resizes and activations: in words, and their lines too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

import convref
from convref import ConvrefError

Rows = list[tuple[str, tuple[Any, ...], dict[str, Any], str]]  # function, arrays, keywords, text

image, pooled, resized = np.ones((2, 3, 6, 7)), np.ones((2, 3, 3, 3)), np.ones((2, 3, 4, 5))
at = convref.max_pool2d(image, 2, return_indices=True)[1]
POOL: Rows = [
    ("max_pool2d", (image, 0), {}, "max_pool2d: kernel_size is (0, 0), needs at least 1"),
    ("max_pool2d", (image, 2.5), {}, "kernel_size is 2.5, needs an integer"),
    ("max_pool2d", (image, (2, 2, 2)), {}, "kernel_size has 3 entries, needs 1 or 2"),
    ("max_pool2d", (image, 2, 0), {}, "stride is (0, 0), needs at least 1"),
    ("max_pool2d", (image, 2), {"dilation": 0}, "dilation is (0, 0), needs at least 1"),
    (
        "max_pool2d",
        (image, 2),
        {"padding": "some"},
        "padding is 'some', needs numbers or one of valid",
    ),
    ("max_pool2d", (image, 9), {}, "output P is 0, needs at least 1: input H is 6"),
    ("max_pool2d", (image, 2), {"ceil_mode": "yes"}, "ceil_mode is 'yes', needs a bool"),
    ("max_pool2d", (image, 2), {"return_indices": 3}, "return_indices is 3, needs a bool"),
    ("max_pool2d", (image, 2), {"layout": "CHWN"}, "layout is 'CHWN', needs 'NCHW' or 'NHWC'"),
    ("max_pool2d", (image[0, 0], 2), {}, "input has 2 axes, needs 4 (or no N)"),
    ("max_pool2d", (None, 2), {}, "input is None, needs an array"),
    ("max_pool2d", ([1.0], 2), {}, "input is a list, needs a NumPy array, torch tensor"),
    ("max_pool2d", (image + 0j, 2), {}, "complex numbers have no maximum"),
    (
        "max_pool2d",
        (image > 0, 2),
        {},
        "input has dtype bool, needs a float, complex or integer type",
    ),
    (
        "avg_pool2d",
        (image, 2),
        {"divisor_override": 0},
        "divisor_override is 0, needs a non-zero integer",
    ),
    ("avg_pool2d", (image, 2), {"count_include_pad": 2}, "count_include_pad is 2, needs a bool"),
    ("lp_pool2d", (image, 0.5, 2), {}, "norm is 0.5, needs a finite number of at least 1"),
    ("lp_pool2d", (image, "inf", 2), {}, "norm is 'inf', needs a finite number of at least 1"),
    (
        "lp_pool2d",
        (image.astype(int), 2, 2),
        {},
        "roots of i64 are not rational, needs floats or norm 1",
    ),
    ("adaptive_avg_pool2d", (image, 0), {}, "output H is 0, needs at least 1"),
    ("adaptive_avg_pool2d", (image, (1, 2, 3)), {}, "output_size has 3 entries, needs 1 or 2"),
    ("adaptive_max_pool2d", (image[:, :, :0], 1), {}, "input H is 0, needs at least 1"),
    (
        "max_pool2d_backward",
        (pooled[..., :2], image, 2),
        {"indices": at},
        "grad_output has Q=2, needs 3",
    ),
    (
        "max_pool2d_backward",
        (pooled[:1], image, 2),
        {"indices": at},
        "grad_output has N=1, needs 2",
    ),
    ("max_pool2d_backward", (pooled, image, 2), {"indices": at[:, :2]}, "indices has C=2, needs 3"),
    (
        "max_pool2d_backward",
        (pooled, image, 2),
        {"indices": 1.0 * at},
        "indices has dtype f64, needs i64",
    ),
    (
        "max_pool2d_backward",
        (pooled, image, 2),
        {"indices": at + 42},
        "needs a position from 0 to 41 or -1",
    ),
    ("avg_pool2d_backward", (pooled[0], image, 2), {}, "grad_output has 3 axes, needs 4"),
    ("avg_pool2d_backward", (pooled.astype("f4"), None, 2), {}, "input is None, needs"),
    ("max_pool2d_jvp", (image, (image,), 2), {}, "primals is an ndarray, needs a tuple (input,)"),
    (
        "max_pool2d_jvp",
        ((image,), (image.astype("f4"),), 2),
        {},
        "input tangent has dtype f32, needs f64",
    ),
    ("max_unpool2d", (pooled, at[:1], 2), {}, "indices has N=1, needs 2"),
    ("max_unpool2d", (pooled, at, 2), {"output_size": (9, 6)}, "output_size H is 9, needs 5 to 7"),
]


RESIZE: Rows = [
    ("interpolate", (image,), {}, "neither of size and scale_factor given, needs one"),
    ("interpolate", (image, 3, 2.0), {}, "both of size and scale_factor given, needs one"),
    (
        "interpolate",
        (image, (3, 3, 3)),
        {},
        "size has 3 entries, needs 1 or 2 (one per spatial axis)",
    ),
    ("interpolate", (image, 2.5), {}, "size is 2.5, needs an integer"),
    ("interpolate", (image, 0), {}, "output P is 0, needs at least 1"),
    ("interpolate", (image, (4, -1)), {}, "output Q is -1, needs at least 1"),
    ("interpolate", (image, None, 0.1), {}, "output P is 0, needs at least 1"),
    ("interpolate", (image, None, 0), {}, "scale_factor is (0.0, 0.0), needs numbers above 0"),
    ("interpolate", (image, None, "2"), {}, "scale_factor is '2', needs a finite number"),
    ("interpolate", (image, None, float("inf")), {}, "scale_factor is inf, needs a finite number"),
    ("interpolate", (image, None, (2, 2, 2)), {}, "scale_factor has 3 entries, needs 1 or 2"),
    ("interpolate", (image, 3), {"mode": "lanczos"}, "mode is 'lanczos', needs one of nearest,"),
    (
        "interpolate",
        (image, 3),
        {"mode": "trilinear"},
        "mode trilinear has 2 spatial axes, needs 3",
    ),
    (
        "interpolate",
        (image, 3),
        {"align_corners": True},
        "align_corners is given with mode nearest, needs None",
    ),
    (
        "interpolate",
        (image, 3),
        {"mode": "bilinear", "align_corners": 2},
        "align_corners is 2, needs a bool",
    ),
    (
        "interpolate",
        (image, 3),
        {"mode": "area", "antialias": True},
        "antialias is True with mode area, needs linear, bilinear",
    ),
    (
        "interpolate",
        (image, 3),
        {"recompute_scale_factor": True},
        "recompute_scale_factor is True with size, needs scale_factor",
    ),
    ("interpolate", (image[0, 0], 3), {}, "input has 2 axes, needs 3 to 5"),
    ("interpolate", (None, 3), {}, "input is None, needs an array"),
    ("interpolate", ([[1.0]], 3), {}, "input is a list, needs a NumPy array, torch tensor"),
    ("interpolate", (image > 0, 3), {}, "input has dtype bool, needs a float"),
    (
        "interpolate",
        (image.astype(int), 3),
        {"mode": "bilinear"},
        "weights of mode linear are not integers, needs u8 or floats, not i64",
    ),
    ("interpolate", (image[:, :, :0], 3), {}, "input H is 0, needs at least 1"),
    ("interpolate", (image, 3), {"layout": "CHWN"}, "layout is 'CHWN', needs 'NCHW' or 'NHWC'"),
    ("interpolate_backward", (resized, image, (4, 6)), {}, "grad_output has Q=5, needs 6"),
    ("interpolate_backward", (resized[:1], image, (4, 5)), {}, "grad_output has N=1, needs 2"),
    ("interpolate_backward", (resized[:, 1:], image, (4, 5)), {}, "grad_output has C=2, needs 3"),
    ("interpolate_backward", (resized[0], image, (4, 5)), {}, "grad_output has 3 axes, needs 4"),
    ("interpolate_jvp", (image, (image,), 3), {}, "primals is an ndarray, needs a tuple (input,)"),
    ("resize", (image, 3), {"mode": "area"}, "mode is 'area', needs one of nearest, linear, cubic"),
    (
        "resize",
        (image, 3),
        {"coordinate_transformation_mode": "tf_half_pixel_for_nn"},
        "coord is 'tf_half_pixel_for_nn', needs one of half_pixel",
    ),
    ("resize", (image, 3), {"nearest_mode": "even"}, "near is 'even', needs one of float32"),
    ("resize", (image, 3), {"cubic_coeff_a": "x"}, "a is 'x', needs a finite number"),
    ("resize", (image, 3), {"roi": ((0, 1),)}, "roi is given with coord half_pixel, needs none"),
    ("resize", (image,), {"scales": -1}, "scales is (-1.0, -1.0), needs numbers above 0"),
]


batch, dy = np.ones((2, 4, 3, 5)), np.ones((2, 4, 3, 5))
weight, bias, mean, var = np.ones((4, 4))
NORM: Rows = [
    ("batch_norm", (batch, None, None), {}, "running_mean is None, needs an array"),
    ("batch_norm", (batch, mean, None), {}, "running_var is None, needs an array"),
    (
        "batch_norm",
        (batch, mean, None, weight, bias, True),
        {},
        "running_var is None, needs an array as the",
    ),
    ("batch_norm", (batch, mean, var, weight, bias, 2), {}, "training is 2, needs a bool"),
    (
        "batch_norm",
        (batch[:1, :, :1, :1], None, None, weight, bias, True),
        {},
        "1 values per channel, needs at least 2",
    ),
    ("batch_norm", (batch, mean[:3], var), {}, "running_mean has C=3, needs 4"),
    ("batch_norm", (batch, mean, var.astype("f4")), {}, "running_var has dtype f32, needs f64"),
    ("batch_norm", (batch, mean, var, weight[:1]), {}, "weight has C=1, needs 4"),
    ("batch_norm", (batch, mean, var, weight, bias[None]), {}, "bias has 2 axes, needs 1"),
    (
        "batch_norm",
        (batch, mean, var),
        {"eps": -1.0},
        "eps is -1.0, needs a finite number of at least",
    ),
    ("batch_norm", (batch, mean, var), {"eps": "a"}, "eps is 'a', needs a finite number"),
    ("batch_norm", (batch, mean, var), {"layout": "NCHWC"}, "needs 'NCHW' or 'NHWC'"),
    ("batch_norm", (batch[..., 0, 0], mean, var), {"layout": "NC"}, "layout is 'NC', needs None"),
    ("batch_norm", (batch[0, 0, 0], mean, var), {}, "input has 1 axes, needs 2 to 5"),
    ("batch_norm", (batch + 0j, mean + 0j, var + 0j), {}, "complex numbers are not in the domain"),
    ("batch_norm", (batch.astype(int), *[np.ones(4, int)] * 2), {}, "needs floats or Fractions"),
    ("batch_norm", ([1.0], mean, var), {}, "input is a list, needs a NumPy array, torch tensor"),
    ("batch_norm", (torch.from_numpy(batch), mean, var), {}, "has kind numpy, needs torch"),
    ("batch_norm_statistics", (batch,), {"momentum": None}, "momentum is None, needs num_batches"),
    (
        "batch_norm_statistics",
        (batch,),
        {"momentum": None, "num_batches_tracked": -1},
        "num_batches_tracked is -1, needs at least 0",
    ),
    (
        "batch_norm_statistics",
        (batch,),
        {"momentum": np.inf},
        "momentum is inf, needs a finite number",
    ),
    ("batch_norm_backward", (dy[:1], batch), {}, "grad_output has N=1, needs 2"),
    (
        "batch_norm_backward",
        (dy, batch),
        {"output_mask": (True,)},
        "output_mask is (True,), needs 3",
    ),
    (
        "batch_norm_backward",
        (dy, batch),
        {"training": False},
        "running_mean is None, needs an array",
    ),
    (
        "batch_norm_backward",
        (dy, batch, weight, None, None, weight[:2], weight),
        {},
        "mean has C=2, needs 4",
    ),
    (
        "batch_norm_jvp",
        ((batch,), (batch,)),
        {},
        "primals has 1 entries, needs a tuple (input, weight",
    ),
    (
        "batch_norm_jvp",
        ((batch, None, None), (batch, weight, None)),
        {},
        "weight tangent is given, needs a weight",
    ),
    (
        "batch_norm_double_backward",
        (dy, None, None, dy, batch, weight),
        {},
        "grad_grad_weight is None, needs an array",
    ),
    ("group_norm", (batch, 3), {}, "input has C=4, needs a multiple of groups=3"),
    ("group_norm", (batch, 0), {}, "groups is 0, needs at least 1"),
    ("group_norm", (batch, 2.0), {}, "groups is 2.0, needs an integer"),
    ("group_norm", (batch[:, :, :0], 2), {}, "input H is 0, needs at least 1"),
    (
        "group_norm_backward",
        (dy, batch, 2, weight, weight, weight),
        {},
        "mean has 1 axes, needs 2",
    ),
    ("layer_norm", (batch, (5, 3)), {}, "needs to end in normalized_shape (5, 3)"),
    ("layer_norm", (batch, ()), {}, "needs to end in normalized_shape ()"),
    ("layer_norm", (batch, 5, weight), {}, "weight has shape (4,), needs (5,)"),
    ("layer_norm", (batch[..., :0], 0), {}, "normalized_shape is (0,), needs sizes of at least 1"),
    (
        "layer_norm_backward",
        (dy[0], batch, 5),
        {},
        "grad_output has shape (4, 3, 5), needs (2, 4, 3",
    ),
]


logits = np.ones((2, 3))
ACTIVATION: Rows = [
    ("relu", (None,), {}, "relu: input is None, needs an array"),
    ("relu", ([1.0],), {}, "input is a list, needs a NumPy array, torch tensor"),
    ("relu", (logits + 0j,), {}, "complex numbers have no order"),
    (
        "silu",
        (logits.astype(int),),
        {},
        "results of i64 are not integers, needs floats or Fractions",
    ),
    ("silu_backward", (logits[:1], logits), {}, "grad_output has shape (1, 3), needs (2, 3)"),
    ("silu_backward", (logits.astype("f4"), logits), {}, "grad_output has dtype f32, needs f64"),
    ("silu_backward", (torch.ones(2, 3), logits), {}, "grad_output has kind torch, needs numpy"),
    ("silu_jvp", (logits, (logits,)), {}, "primals is an ndarray, needs a tuple (input,)"),
    (
        "silu_double_backward",
        (logits, logits, logits, True),
        {},
        "output_mask is True, needs 2 bools",
    ),
    ("leaky_relu", (logits, "a"), {}, "negative_slope is 'a', needs a finite number"),
    ("leaky_relu", (logits, float("nan")), {}, "negative_slope is nan, needs a finite number"),
    ("gelu", (logits, "erf"), {}, "approximate is 'erf', needs one of none, tanh"),
    ("softmax", (logits, 2), {}, "dim is 2, needs -2 to 1"),
    ("softmax", (logits, 1.0), {}, "dim is 1.0, needs an integer"),
    ("softmax", (np.array(1.0), 1), {}, "dim is 1, needs -1 to 0"),
    ("cross_entropy", (logits, np.array([0])), {}, "target has shape (1,), needs (2,)"),
    ("cross_entropy", (logits, np.array([0, 3])), {}, "holds 3, needs a class from 0 to 2 or -100"),
    ("nll_loss", (logits, np.array([0.0, 1])), {}, "target has dtype f64, needs i64"),
    ("cross_entropy", (logits, np.array([0.0, 1])), {}, "target has shape (2,), needs (2, 3)"),
    (
        "cross_entropy",
        (logits, np.array([0, 1]), np.ones(2)),
        {},
        "weight has shape (2,), needs (3,)",
    ),
    (
        "cross_entropy",
        (logits, np.array([0, 1])),
        {"reduction": "max"},
        "needs one of mean, sum, none",
    ),
    (
        "cross_entropy",
        (logits, np.array([0, 1])),
        {"label_smoothing": 1.5},
        "label_smoothing is 1.5, needs 0 to 1",
    ),
    (
        "cross_entropy",
        (logits, np.array([0, 1])),
        {"label_smoothing": -0.5},
        "label_smoothing is -0.5, needs a finite number of at least 0",
    ),
    (
        "cross_entropy",
        (logits, np.array([0, 1])),
        {"ignore_index": 0.5},
        "ignore_index is 0.5, needs an",
    ),
    ("cross_entropy", (np.array(1.0), np.array(0)), {}, "input has 0 axes, needs 1 to 5"),
    (
        "cross_entropy_backward",
        (np.ones(2), logits, np.array([0, 1])),
        {},
        "grad_output has shape (2,), needs ()",
    ),
]


WRONG = [*POOL, *RESIZE, *NORM, *ACTIVATION]
IN_VALUES = ("needs a position from 0 to 41 or -1", "holds 3, needs a class from 0 to 2 or -100")


@pytest.mark.parametrize(
    ("name", "arrays", "keywords", "text"), WRONG, ids=[f"{row[0]}-{row[3]}" for row in WRONG]
)
def test_wrong_call_and_its_line_raise_the_same_message(
    name: str, arrays: tuple[Any, ...], keywords: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConvrefError) as caught:
        getattr(convref, name)(*arrays, **keywords)
    assert text in str(caught.value)
    if text not in IN_VALUES:  # which no line has
        with pytest.raises(ConvrefError) as said:
            convref.case_of(name, *arrays, **keywords)
        assert str(said.value) == str(caught.value)
