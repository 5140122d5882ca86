"""Wrong calls: each raises one short message with the argument, its value and what it needs."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

import convref
from convref import ConvrefError, UnsupportedError
from convref.backends.numpy import NumpyBackend
from convref.backends.torch.adapter import TorchBackend

LONGEST = 600  # characters of a message


def zeros(*shape: int, dtype: Any = np.float64) -> Any:
    return np.zeros(shape, dtype)


def wide(*shape: int) -> Any:
    """Return an array of any size that takes one element of memory."""
    return np.broadcast_to(np.zeros(1), shape)


x, w, b, dy = zeros(2, 4, 5, 6), zeros(6, 4, 3, 3), zeros(6), zeros(2, 6, 3, 4)
geometry = {"stride": 1, "padding": 0, "dilation": 1, "transposed": False, "output_padding": 0}
every = {"groups": 1, "output_mask": (True,) * 3}

# Right calls, by function; each row below changes one argument or two.
RIGHT: dict[str, dict[str, Any]] = {
    "conv1d": {"input": zeros(2, 4, 6), "weight": zeros(6, 4, 3), "bias": b},
    "conv2d": {"input": x, "weight": w, "bias": b},
    "conv3d": {"input": zeros(2, 4, 5, 6, 7), "weight": zeros(6, 4, 3, 3, 3), "bias": b},
    "conv_transpose1d": {"input": zeros(2, 6, 4), "weight": zeros(6, 4, 3), "bias": zeros(4)},
    "conv_transpose2d": {"input": dy, "weight": w, "bias": zeros(4)},
    "conv_transpose3d": {"input": zeros(2, 6, 3, 4, 5), "weight": zeros(6, 4, 3, 3, 3)},
    "conv1d_backward": {
        "grad_output": zeros(2, 6, 4),
        "input": zeros(2, 4, 6),
        "weight": zeros(6, 4, 3),
    },
    "conv2d_backward": {"grad_output": dy, "input": x, "weight": w},
    "conv3d_backward": {
        "grad_output": zeros(2, 6, 3, 4, 5),
        "input": zeros(2, 4, 5, 6, 7),
        "weight": zeros(6, 4, 3, 3, 3),
    },
    "conv1d_jvp": {
        "primals": (zeros(2, 4, 6), zeros(6, 4, 3)),
        "tangents": (zeros(2, 4, 6), zeros(6, 4, 3)),
    },
    "conv2d_jvp": {"primals": (x, w, b), "tangents": (x, w, b)},
    "conv3d_jvp": {
        "primals": (zeros(2, 4, 5, 6, 7), zeros(6, 4, 3, 3, 3)),
        "tangents": (zeros(2, 4, 5, 6, 7), None),
    },
    "convolution": {"input": x, "weight": w, "bias": b, "groups": 1, **geometry},
    "convolution_backward": {
        "grad_output": dy,
        "input": x,
        "weight": w,
        "bias_sizes": [6],
        **geometry,
        **every,
    },
    "convolution_double_backward": {
        "grad_grad_input": x,
        "grad_grad_weight": w,
        "grad_grad_bias": b,
        "grad_output": dy,
        "weight": w,
        "input": x,
        **geometry,
        **every,
    },
    "unfold": {"input": x, "kernel_size": (3, 3)},
    "fold": {"input": zeros(2, 36, 12), "output_size": (5, 6), "kernel_size": (3, 3)},
    "case_of": {},
    "assert_correct": {"got": dy, "name": "conv.fprop", "operands": (x, w, b), "accuracy": "rn64"},
}


class Wrong(NamedTuple):
    function: str
    changes: dict[str, Any]
    fragments: tuple[str, ...]
    error: type[Exception] = ConvrefError
    label: str = ""


def at_transposed(**changes: Any) -> dict[str, Any]:
    return {"grad_output": zeros(2, 4, 5, 6), "input": dy, "transposed": True, **changes}


nothing = object()
junk = np.full((2, 4, 5, 6), "junk", object)
tx, tw = torch.zeros(2, 4, 5, 6), torch.zeros(6, 4, 3, 3)

ARGUMENTS: tuple[Wrong, ...] = (
    # kinds of array
    Wrong("conv2d", {"input": None}, ("input is None", "needs an array")),
    Wrong("conv2d", {"weight": None}, ("weight is None", "needs an array")),
    Wrong("conv2d_backward", {"grad_output": None}, ("grad_output is None", "needs an array")),
    Wrong("convolution", {"input": None}, ("input is None", "needs an array")),
    Wrong("unfold", {"input": None}, ("input is None", "torch tensor or JAX array")),
    Wrong("conv2d", {"input": x.tolist()}, ("input is a list", "NumPy array")),
    Wrong("conv2d", {"bias": [0.0] * 6}, ("bias is a list", "NumPy array")),
    Wrong("conv2d", {"weight": 3.0}, ("weight is a float", "NumPy array")),
    Wrong("conv2d", {"weight": "w"}, ("weight is a str", "NumPy array")),
    Wrong("conv2d", {"weight": tw.double()}, ("weight has kind torch", "needs numpy")),
    Wrong("conv2d_backward", {"grad_output": tx}, ("grad_output has kind torch", "needs numpy")),
    Wrong("conv2d", {"input": tx.to_sparse()}, ("input has layout sparse_coo", "needs strided")),
    Wrong("unfold", {"input": tx.to_sparse()}, ("input has layout sparse_coo", "needs strided")),
    # dtypes
    Wrong("conv2d", {"input": x.astype(bool)}, ("input has dtype bool", "needs a float")),
    Wrong("conv2d", {"input": x.astype("U1")}, ("input has dtype <U1", "needs a float")),
    Wrong("conv2d", {"input": x.astype("M8[s]")}, ("input has dtype datetime64", "needs a float")),
    Wrong("conv2d", {"input": junk}, ("input holds a str", "needs numbers")),
    Wrong(
        "conv2d",
        {"input": tx.bool(), "weight": tw.bool(), "bias": None},
        ("input has dtype bool", "float32"),
        label="torch",
    ),
    Wrong(
        "conv2d",
        {"input": tx.to(torch.float8_e4m3fn)},
        ("conv has no e4m3", "scaled_conv"),
    ),
    Wrong("conv2d", {"weight": w.astype("f4")}, ("weight has dtype f32", "needs f64")),
    Wrong("conv2d", {"bias": b.astype("i8")}, ("bias has dtype i64", "needs f64")),
    Wrong("conv2d_backward", {"grad_output": dy.astype("f2")}, ("grad_output has dtype f16",)),
    Wrong("fold", {"input": zeros(2, 36, 12, dtype=bool)}, ("input has dtype bool",)),
    Wrong("conv2d_jvp", {"tangents": (x.astype("f4"), None)}, ("input tangent has dtype f32",)),
    # ranks
    Wrong("conv1d", {"input": x}, ("input has 4 axes", "needs 3")),
    Wrong("conv2d", {"input": zeros(4, 5)}, ("input has 2 axes", "needs 4")),
    Wrong("conv2d", {"input": np.array(1.0)}, ("input has 0 axes", "needs 4")),
    Wrong("conv2d", {"weight": zeros(6, 4, 3)}, ("weight has 3 axes", "needs 4")),
    Wrong("conv3d", {"weight": w}, ("weight has 4 axes", "needs 5")),
    Wrong("conv2d", {"bias": zeros(1, 6)}, ("bias has 2 axes", "needs 1")),
    Wrong("conv_transpose3d", {"input": dy[0]}, ("input has 3 axes", "needs 5")),
    Wrong("conv2d_backward", {"grad_output": dy[0]}, ("grad_output has 3 axes", "needs 4")),
    Wrong("convolution", {"input": x[0, 0]}, ("input has 2 axes", "needs 3 to 5")),
    Wrong("convolution", {"input": zeros(1, 1, 1, 1, 1, 1)}, ("input has 6 axes", "needs 3 to 5")),
    Wrong("unfold", {"input": x[0, 0]}, ("input has 2 axes", "needs 3 to 5")),
    Wrong("fold", {"input": x}, ("input has 4 axes", "needs 3")),
    # sizes of each operand
    Wrong("conv2d", {"input": zeros(2, 5, 5, 6)}, ("input has C=5", "needs 4", "groups=1")),
    Wrong("conv2d", {"bias": zeros(5)}, ("bias has K=5", "needs 6")),
    Wrong("conv_transpose2d", {"input": x}, ("input has C=4", "needs 6")),
    Wrong("conv_transpose2d", {"bias": b}, ("bias has K=6", "needs 4")),
    Wrong("conv2d_backward", {"grad_output": dy[:1]}, ("grad_output has N=1", "needs 2")),
    Wrong("conv2d_backward", {"grad_output": zeros(3, 6, 3, 4)}, ("grad_output has N=3",)),
    Wrong("conv2d_backward", {"grad_output": dy[:, :5]}, ("grad_output has K=5", "needs 6")),
    Wrong("conv2d_backward", {"grad_output": dy[:, :, :2]}, ("grad_output has P=2", "needs 3")),
    Wrong("conv2d_backward", {"grad_output": dy[..., :3]}, ("grad_output has Q=3", "needs 4")),
    Wrong("conv3d_backward", {"grad_output": zeros(2, 6, 2, 4, 5)}, ("grad_output has O=2",)),
    Wrong("conv1d_backward", {"grad_output": zeros(2, 6, 5)}, ("grad_output has Q=5", "needs 4")),
    Wrong("conv1d_jvp", {"tangents": (None, zeros(6, 4, 2))}, ("weight tangent has S=2",)),
    Wrong("conv2d_jvp", {"tangents": (x[:1], None)}, ("input tangent has N=1", "needs 2")),
    Wrong("conv2d_jvp", {"tangents": (None, w[:, :3])}, ("weight tangent has C/G=3", "needs 4")),
    Wrong("conv3d_jvp", {"tangents": (zeros(2, 4, 4, 6, 7), None)}, ("input tangent has D=4",)),
    Wrong(
        "conv2d_jvp",
        {"primals": (dy, w), "tangents": (None, w[:, :3]), "transposed": True},
        ("weight tangent has K/G=3", "needs 4"),
    ),
    Wrong("conv2d_jvp", {"primals": (x, w)}, ("bias tangent", "needs a bias")),
    Wrong("conv2d_jvp", {"primals": x}, ("primals", "needs a tuple (input, weight[, bias])")),
    Wrong("conv2d_jvp", {"tangents": None}, ("tangents", "needs a tuple (input, weight[, bias])")),
    Wrong("conv2d_jvp", {"primals": (x,)}, ("primals", "needs a tuple")),
    Wrong("convolution_double_backward", {"grad_grad_input": dy}, ("grad_grad_input has C=6",)),
    Wrong("convolution_double_backward", {"grad_grad_bias": b[:5]}, ("grad_grad_bias has K=5",)),
    Wrong("convolution_double_backward", {"grad_output": dy[:1]}, ("grad_output has N=1",)),
    # groups
    *(
        Wrong("conv2d", {"groups": value}, (f"groups is {value}", "needs at least 1"))
        for value in (0, -1)
    ),
    *(
        Wrong("conv2d", {"groups": value}, (f"groups is {value!r}", "needs an integer"))
        for value in (1.0, True, None, "1", float("nan"))
    ),
    Wrong("conv2d", {"groups": 2}, ("input has C=4", "needs 8", "groups=2")),
    Wrong("conv2d", {"input": zeros(2, 16, 5, 6), "groups": 4}, ("K is 6", "groups=4")),
    Wrong("conv_transpose2d", {"groups": 4}, ("C is 6", "groups=4")),
    # stride and dilation
    *(
        Wrong(function, {name: value}, (f"{name} is ({value}, {value})", "needs at least 1"))
        for name in ("stride", "dilation")
        for value, function in ((0, "conv2d"), (-1, "conv_transpose2d"), (0, "conv2d_backward"))
    ),
    *(
        Wrong("conv2d", {name: value}, (f"{name} is {value!r}", "needs an integer"))
        for name in ("stride", "dilation", "padding")
        for value in (1.0, float("nan"), float("inf"), None, True)
    ),
    *(
        Wrong("conv2d", {name: value}, (f"{name} is '2'", "needs an integer"))
        for name, value in (("stride", "2"), ("dilation", "2"))
    ),
    Wrong("conv2d", {"stride": (1, 2, 3)}, ("stride has 3 entries", "needs 1 or 2")),
    Wrong("conv2d", {"stride": ()}, ("stride has 0 entries", "needs 1 or 2")),
    Wrong("conv1d", {"stride": (1, 2)}, ("stride has 2 entries", "needs 1")),
    Wrong("conv3d", {"dilation": (1, 2)}, ("dilation has 2 entries", "needs 1 or 3")),
    Wrong("conv2d", {"stride": (1, 2.5)}, ("stride[1] is 2.5", "needs an integer")),
    Wrong("conv2d", {"stride": np.array(1.0)}, ("stride is 1.0", "needs an integer")),
    Wrong("conv2d", {"stride": {1: 1}}, ("stride is {1: 1}", "needs an integer")),
    Wrong("conv2d", {"stride": {2, 1}}, ("stride is {1, 2}", "needs an integer")),
    Wrong("conv2d", {"stride": 10**30}, ("stride is 1000", "needs at most 2**40")),
    Wrong("conv2d", {"stride": 10**5000}, ("stride is", "needs at most 2**40"), label="huge"),
    Wrong("conv2d", {"dilation": 2**62}, ("dilation is 4611686018427387904", "at most 2**40")),
    # padding
    Wrong("conv1d", {"padding": (1, 2)}, ("padding has 2 entries", "needs 1")),
    Wrong("conv2d", {"padding": (1, 2, 3, 4)}, ("padding has 4 entries", "needs 1 or 2")),
    Wrong("conv2d", {"padding": ((1, 2), 3)}, ("padding is ((1, 2), 3)", "needs 2 (lo, hi) pairs")),
    Wrong("conv2d", {"padding": ((1, 2, 3), (1, 2))}, ("padding[0] has 3 entries", "(lo, hi)")),
    Wrong("conv2d", {"padding": (((1, 2),), ((1, 2),))}, ("padding[0] has 1 entries",)),
    Wrong("conv3d", {"padding": ((1, 2), (1, 2))}, ("padding is", "needs 3 (lo, hi) pairs")),
    Wrong("conv2d", {"padding": ((1, 2), (1, 0.5))}, ("padding[1] hi is 0.5", "an integer")),
    Wrong("conv2d", {"padding": 10**30}, ("padding is 1000", "needs at most 2**40")),
    Wrong("conv2d", {"padding": "SAME"}, ("padding is 'SAME'", "same_upper")),
    Wrong("conv2d", {"padding": ""}, ("padding is ''", "valid")),
    Wrong("conv2d", {"padding": b"same"}, ("padding is b'same'", "needs an integer")),
    Wrong("conv2d", {"padding": "same", "stride": 2}, ("'same' with stride (2, 2)", "stride 1")),
    *(
        Wrong("conv_transpose2d", {"padding": word}, (f"padding is '{word}'", "one of valid"))
        for word in ("same", "same_upper", "same_lower", "half", "full")
    ),
    Wrong("conv2d_backward", at_transposed(padding="same"), ("padding is 'same'", "valid")),
    # output padding
    Wrong("conv_transpose2d", {"output_padding": 1}, ("output_padding[0] is 1", "needs 0 to 0")),
    Wrong(
        "conv_transpose2d",
        {"output_padding": (1, 3), "stride": 2, "dilation": (1, 3)},
        ("output_padding[1] is 3", "needs 0 to 2"),
    ),
    Wrong("conv_transpose2d", {"output_padding": -1}, ("output_padding[0] is -1", "needs 0")),
    Wrong("conv_transpose2d", {"output_padding": 0.0}, ("output_padding is 0.0", "an integer")),
    Wrong("convolution", {"output_padding": 1}, ("output_padding is (1, 1)", "unless transposed")),
    Wrong("conv2d_backward", {"output_padding": 1}, ("output_padding is (1, 1)", "transposed")),
    # masks, bias sizes, flags and words
    *(
        Wrong("conv2d_backward", {"output_mask": mask}, ("output_mask is", "needs 3 bools"))
        for mask in ((True, True), (True,) * 4, (), 7, None, "111", (2, 0, 1), (None,) * 3)
    ),
    Wrong("conv2d_backward", {"output_mask": (x, x, x)}, ("output_mask is", "needs 3 bools")),
    Wrong("convolution_double_backward", {"output_mask": [True]}, ("output_mask is [True]",)),
    *(
        Wrong("conv2d_backward", {"bias_sizes": sizes}, (f"bias_sizes is {text}", "needs (6,)"))
        for sizes, text in (((5,), "(5,)"), ((0,), "(0,)"), ((6, 6), "(6, 6)"), ((), "()"))
    ),
    Wrong("conv2d_backward", {"bias_sizes": (6.0,)}, ("bias_sizes is 6.0", "needs an integer")),
    Wrong("conv2d_backward", {"bias_sizes": "6"}, ("bias_sizes is '6'", "needs an integer")),
    Wrong("convolution_backward", {"bias_sizes": [4]}, ("bias_sizes is (4,)", "needs (6,)")),
    Wrong("conv2d_backward", {"transposed": "yes"}, ("transposed is 'yes'", "needs a bool")),
    Wrong("convolution", {"transposed": None}, ("transposed is None", "needs a bool")),
    Wrong("conv2d", {"flip": "no"}, ("flip is 'no'", "needs a bool")),
    Wrong("conv2d", {"layout": "NHCW"}, ("layout is 'NHCW'", "needs 'NCHW' or 'NHWC'")),
    Wrong("conv2d", {"layout": "nhwc"}, ("layout is 'nhwc'", "needs 'NCHW' or 'NHWC'")),
    Wrong("conv1d", {"layout": "NCHW"}, ("layout is 'NCHW'", "needs 'NCW' or 'NWC'")),
    Wrong("conv3d", {"layout": 5}, ("layout is 5", "needs 'NCDHW' or 'NDHWC'")),
    Wrong("conv2d", {"weight_layout": "OIH"}, ("weight_layout is 'OIH'", "letters of 'OIHW'")),
    Wrong("conv2d", {"weight_layout": "OIWX"}, ("weight_layout is 'OIWX'", "letters of 'OIHW'")),
    Wrong("conv2d", {"weight_layout": 5}, ("weight_layout is 5", "letters of 'OIHW'")),
    Wrong("conv2d", {"math": "fp32"}, ("math is 'fp32'", "ieee")),
    Wrong("conv2d", {"math": None}, ("math is None", "ieee")),
    # backends
    *(
        Wrong(function, {"backend": name}, ("is unknown", "numpy", "pkg.mod:object"))
        for function in ("conv2d", "unfold", "convolution_backward")
        for name in ("", "nmupy")
    ),
    Wrong("conv2d", {"backend": "m" * 10**6}, ("is unknown", "pkg.mod:object"), label="long"),
    *(
        Wrong(function, {"backend": value}, (f"backend is {value!r}", "needs a name"))
        for function in ("conv2d", "conv2d_jvp", "fold")
        for value in (None, 3)
    ),
    *(
        Wrong("conv2d", {"backend": name}, (f"{name} does not load",))
        for name in (":", ":obj", "nowhere:obj", "math:nothing", "..up:obj", "math:", "a b:c")
    ),
    *(
        Wrong("conv2d", {"backend": name}, (f"{name} is a", needs))
        for name, needs in (
            ("math:pi", "needs an object with name, supports"),
            ("convref.backends.numpy:NumpyBackend", "class, needs an object of it"),
        )
    ),
    Wrong("conv2d", {"backend": "torch", "math": "tf32x3"}, ("math=tf32x3",), UnsupportedError),
    Wrong("unfold", {"backend": "torch"}, ("torch: the adapter has no unfold",), UnsupportedError),
    Wrong(
        "conv2d",
        {"input": tx.to("meta"), "weight": tw.to("meta"), "bias": None},
        ("no backend for torch on meta",),
        UnsupportedError,
    ),
    # extents
    Wrong("conv2d", {"input": x[:, :, :2]}, ("output P is 0", "H is 2", "R spans 3")),
    Wrong("conv2d", {"input": x[..., :1]}, ("output Q is -1", "W is 1", "S spans 3")),
    Wrong("conv2d", {"input": x[:0, :, :2]}, ("output P is 0", "H is 2")),
    Wrong("conv2d", {"dilation": 3}, ("output P is -1", "R spans 7")),
    Wrong("conv2d", {"padding": (-2, 0)}, ("output P is -1", "padding (-2, -2)")),
    Wrong("conv2d", {"weight": zeros(6, 4, 0, 3)}, ("filter R is 0", "needs at least 1")),
    Wrong("conv3d", {"input": zeros(2, 4, 2, 6, 7)}, ("output O is 0", "D is 2", "T spans 3")),
    Wrong("conv_transpose2d", {"padding": 3}, ("output P is -1", "needs at least 1")),
    Wrong("conv_transpose1d", {"padding": 3}, ("output Q is 0", "needs at least 1")),
    Wrong("conv_transpose2d", {"input": dy[:, :, :0]}, ("input is (0, 4)", "when transposed")),
    Wrong("conv_transpose2d", {"input": dy[:0, :, :0]}, ("input is (0, 4)", "when transposed")),
    Wrong("unfold", {"kernel_size": 7}, ("output P is -1", "H is 5")),
    Wrong("conv2d", {"input": wide(2**41, 4, 5, 6)}, ("n is 2199023255552", "at most 2**40")),
    Wrong(
        "conv2d",
        {"input": wide(2**40, 4, 5, 6), "weight": wide(2**20, 4, 3, 3), "bias": None},
        ("y has", "needs at most 2**60"),
        label="wide",
    ),
    # unfold and fold
    *(
        Wrong("unfold", {name: 0}, (f"{name} is (0, 0)", "needs at least 1"))
        for name in ("kernel_size", "stride", "dilation")
    ),
    Wrong("unfold", {"kernel_size": (3, 3, 3)}, ("kernel_size has 3 entries", "needs 1 or 2")),
    Wrong("unfold", {"kernel_size": 3.0}, ("kernel_size is 3.0", "needs an integer")),
    Wrong("unfold", {"padding": "around"}, ("padding is 'around'", "valid")),
    Wrong("fold", {"output_size": None}, ("output_size is None", "needs an integer")),
    Wrong("fold", {"output_size": (5, 6, 7, 8)}, ("output_size has 4 entries", "needs 1 to 3")),
    Wrong("fold", {"output_size": ()}, ("output_size has 0 entries", "needs 1 to 3")),
    Wrong("fold", {"output_size": (5, 7)}, ("input has 12 columns", "needs 15")),
    Wrong("fold", {"kernel_size": (3, 5)}, ("input has 36 rows", "needs a multiple of 15")),
    Wrong("fold", {"kernel_size": 0}, ("kernel_size is (0, 0)", "needs at least 1")),
    # the judge in a user's own test
    Wrong("assert_correct", {"operands": x}, ("operands is an ndarray", "needs a tuple")),
    Wrong("assert_correct", {"accuracy": 0.1}, ("accuracy is 0.1", "needs a Numerics")),
    Wrong("assert_correct", {"accuracy": "fine"}, ("model is 'fine'", "rn32")),
    Wrong("assert_correct", {"got": 3.0}, ("result y is a float", "needs a NumPy array")),
    Wrong("assert_correct", {"name": "conv"}, ("name is conv", "conv.fprop")),
    Wrong("assert_correct", {"stride": 0}, ("stride is (0, 0)", "needs at least 1")),
    Wrong("assert_correct", {"strides": 1}, ("argument strides is unknown", "stride")),
    Wrong("assert_correct", {"operands": (x, w, b, b)}, ("got 4 operands", "needs 3: x, w, b")),
)

line = "conv.fprop:n1c1k1_i3_f3"
call = convref.parse("conv.backward:n1c1k1_i3_f3:dt=f64").call
one = zeros(1, 1, 1)

CALLS: tuple[tuple[str, Any, tuple[Any, ...], dict[str, Any], tuple[str, ...]], ...] = (
    ("case name", convref.case_of, ("conv.forward", x, w), {}, ("conv.forward", "conv.fprop")),
    ("case pool", convref.case_of, ("pool.fprop", x), {}, ("name is pool.fprop", "conv.fprop")),
    ("case number", convref.case_of, (3, x, w), {}, ("name is 3", "conv.fprop")),
    ("case few", convref.case_of, ("conv.fprop", x), {}, ("weight is None", "needs an array")),
    ("case many", convref.case_of, ("conv.fprop", x, w, b, b), {}, ("got 4 operands", "needs 3")),
    (
        "case argument",
        convref.case_of,
        ("conv.fprop", x, w),
        {"pad": 1},
        ("argument pad is unknown", "padding"),
    ),
    (
        "case mask",
        convref.case_of,
        ("conv.fprop", x, w),
        {"output_mask": (True,) * 3},
        ("argument output_mask is unknown", "stride"),
    ),
    ("case like", convref.case_of, ("max_pool2", x), {}, ("max_pool2d", "conv.fprop")),
    ("case itself", convref.case_of, ("case_of", x), {}, ("name is case_of", "conv.fprop")),
    ("case few 2", convref.case_of, ("max_pool2d", x), {}, ("'kernel_size'", "needs (input, ")),
    ("case many 2", convref.case_of, ("relu", x, x), {}, ("too many", "needs (input)")),
    ("case twice", convref.case_of, ("relu", x), {"input": x}, ("'input'", "needs (input)")),
    ("case backend", convref.case_of, ("relu", x), {"backend": "numpy"}, ("backend is unknown",)),
    ("case pass", convref.case_of, ("max_pool.wgrad", x), {}, ("max_pool.wgrad", "max_pool.jvp")),
    ("case none", convref.case_of, ("max_pool.fprop",), {"kernel_size": 1}, ("input is None",)),
    (
        "case roles",
        convref.case_of,
        ("relu.backward", x, x, x),
        {},
        ("relu.backward: got 3 operands", "needs 2: dy, x"),
    ),
    (
        "case fixed",
        convref.case_of,
        ("batch_norm_eval.fprop", x, b, b, b, b),
        {"training": True},
        ("argument training is unknown", "needs one of momentum, eps"),
    ),
    ("case role", convref.case_of, ("relu.jvp", x, x), {"input": x}, ("needs none",)),
    ("case rank", convref.case_of, ("conv.fprop", x[0, 0], w[0, 0]), {}, ("weight has 2 axes",)),
    ("run few", convref.run, (call, one), {}, ("got 1 operands", "needs 3")),
    (
        "run list",
        convref.run,
        (call, [1], one, one),
        {},
        ("grad_output is a list", "needs a NumPy array"),
    ),
    (
        "run none",
        convref.run,
        (call, None, one, one),
        {},
        ("grad_output is None", "needs an array"),
    ),
    ("run shape", convref.run, (call, one, one, one), {}, ("input has W=1", "needs 3")),
    (
        "run dtype",
        convref.run,
        (call, one.astype("f4"), zeros(1, 1, 3), zeros(1, 1, 3)),
        {},
        ("grad_output has dtype f32", "needs f64"),
    ),
    (
        "run kinds",
        convref.run,
        (call, one, zeros(1, 1, 3), torch.zeros(1, 1, 3).double()),
        {},
        ("weight has kind torch", "needs numpy"),
    ),
    ("run line", convref.run, (line, one), {}, ("call is a str", "needs a Call")),
    ("plan case", convref.plan, (convref.parse(line),), {}, ("call is a Case", "needs a Call")),
    ("plan backend", convref.plan, (call, 5), {}, ("backend is 5", "needs a name")),
    ("explain line", convref.explain, (line,), {}, ("call is a str", "needs a Call")),
)

LINES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (None, ("got NoneType", "needs a str")),
    (b"conv", ("got bytes", "needs a str")),
    ("", ("column 1", "one of conv")),
    ("c" * 10**6, ("has 1000000 characters", "needs at most 2000")),
    (line + ":" * 10**6, ("characters", "needs at most 2000")),
    ("pool.fprop:n1c1_i3_f3", ("'pool.fprop'", "one of lp_pool")),
    ("conv.forward:n1c1k1_i3_f3", ("'conv.forward'", "conv.PASS", "fprop")),
    ("conv:n1c1k1_i3_f3", ("conv.PASS",)),
    ("conv.fprop", ("nNcC",)),
    ("conv.fprop:c1n1k1_i3_f3", ("'c1n1k1'", "nNcCkK")),
    ("conv.fprop:n1c1_i3_f3", ("the sizes of this op, nNcCkK[gG]",)),
    ("unfold.fprop:n1c1k1_i3_f3", ("the sizes of this op, nNcC",)),
    ("conv.fprop:n1c1k1_f3", ("i with the sizes of the input",)),
    ("conv.fprop:n1c1k1_i3", ("f with the sizes of the filter",)),
    ("conv.fprop:n1c1k1_i3_f3_f3", ("'f3'", "each of i f s p d once")),
    ("conv.fprop:n1c1k1_i3_f3_z1", ("'z1'", "each of i f s p d once")),
    ("conv.fprop:n1c1k1_i3x_f3", ("'i3x'", "an integer")),
    ("conv.fprop:n1c1k1_i3.0_f3", ("'i3.0'", "an integer")),
    ("conv.fprop:n1c1k1_i٣_f3", ("an integer",)),
    ("conv.fprop:n١c1k1_i3_f3", ("nNcCkK",)),
    ("conv.fprop:n1c1k1_inan_f3", ("an integer",)),
    ("conv.fprop:n1c1k1_i3_f3\n", ("an integer",)),
    ("conv.fprop:n1c1k1_i3_f3_p1,2,3", ("lo,hi on every axis",)),
    ("conv.fprop:n1c1k1_i3x3_f3x3_p1x1,2", ("lo,hi on every axis",)),
    ("conv.fprop:n1c1k1_i3_f3_s0", ("stride W is 0", "needs at least 1")),
    ("conv.fprop:n1c1k1_i3_f3_d-1", ("dilation W is -1", "needs at least 1")),
    ("conv.fprop:n1c1k1_i3_f3x3", ("filter has 2 entries", "needs 1")),
    ("conv.fprop:n1c1k1_i3x3x3x3_f3", ("input has 4 spatial axes", "needs 1 to 3")),
    ("conv.fprop:n1c1k1_i3_f4", ("output Q is 0", "needs at least 1")),
    ("conv.fprop:n1c3k2g2_i3_f3", ("C is 3", "groups=2")),
    ("conv.fprop:n1c1k1g0_i3_f3", ("groups is 0", "needs at least 1")),
    (f"conv.fprop:n1c1k1_i{10**30}_f3", ("an integer",)),
    (f"conv.fprop:n1c1k1_i{2**62}_f3", ("needs at most 2**40",)),
    (f"conv.fprop:n1c1k1_i{2**40}x{2**40}_f3x3", ("x has", "needs at most 2**60")),
    (line + ":op=1", ("output_padding is (1,)", "unless transposed")),
    (line + ":t=2", ("'t=2'", "0 or 1")),
    (line + ":t=", ("'t='", "0 or 1")),
    (line + ":colour=red", ("'colour=red'", "key=value, each key once")),
    (line + ":dt", ("'dt'", "key=value")),
    (line + ":dt=f64:dt=f64", ("'dt=f64'", "each key once")),
    (line + ":dt=f8", ("'dt=f8'", "one of bf16, e4m3, e5m2, f16")),
    (line + ":dev=tpu", ("'dev=tpu'", "cpu or cuda")),
    (line + ":math=fast", ("math is 'fast'", "ieee")),
    (line + ":fill=pink", ("fill is 'pink'", "needs one of int")),
    (line + ":fill=", ("fill is ''", "needs one of int")),
    (line + ":seed=-1", ("seed is -1", "needs an int in [0, 2**63)")),
    (line + f":seed={2**63}", ("seed is 9223372036854775808", "2**63")),
    (line + ":seed=1e3", ("'seed=1e3'", "an integer")),
    (line + ":seed=٣", ("an integer",)),
    (line + ":mask=111", ("mask is given", "needs none")),
    (line + ":tan=x", ("tangents has ['x']", "needs none")),
    ("conv.jvp:n1c1k1_i3_f3:tan=", ("'tan='", "some of x, w, b")),
    ("conv.jvp:n1c1k1_i3_f3:tan=y", ("'tan=y'", "some of x, w, b")),
    ("conv.jvp:n1c1k1_i3_f3:bias=0:tan=b", ("tangents has ['b']", "'xw'")),
    ("conv.backward:n1c1k1_i3_f3:mask=11", ("mask has 2 entries", "needs 3")),
    ("conv.backward:n1c1k1_i3_f3:mask=12x", ("'mask=12x'", "zeros and ones")),
    ("conv.wgrad:n1c1k1_i3_f3:mask=111", ("'mask=111'", "a pass without a mask")),
    (line + ":mem=", ("ROLE.FEATURE",)),
    (line + ":mem=nchw", ("ROLE.FEATURE",)),
    (line + ":mem=dy.ncw", ("'dy.ncw'", "ROLE one of x, w, b")),
    (line + ":mem=x.nhwc", ("order of x is 'nhwc'", "permutation of ncw")),
    (line + ":mem=x.step1w", ("view of x", "needs steps other than 0 and 1")),
    (line + ":mem=x.step2", ("'x.step2'", "stepKa")),
    (line + ":mem=x.expandh", ("view of x names 'h'", "ncw")),
    (line + ":mem=x.off-1", ("'x.off-1'", "offK")),
)


def identity(row: Wrong) -> str:
    return f"{row.function}-{'-'.join(row.changes)}-{row.label or row.fragments[0]}"


@pytest.fixture(autouse=True)
def computing_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Any, call: Any, *operands: Any) -> Any:
        raise RuntimeError(f"computed {call}")

    for backend in (NumpyBackend, TorchBackend):
        monkeypatch.setattr(backend, "run", run)


def arrays_in(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in arrays_in(item)]
    plain = isinstance(value, np.ndarray) and value.size < 10**6 and value.dtype != object
    return [value] if plain else []


def check(error: type[Exception], fragments: tuple[str, ...], function: Any, *a: Any, **k: Any):
    arrays = arrays_in([*a, *k.values()])
    before = [array.tobytes() for array in arrays]
    with pytest.raises(error) as caught:
        function(*a, **k)
    text = str(caught.value)
    assert type(caught.value) is error
    assert [fragment for fragment in fragments if fragment not in text] == [], text
    assert re.match(r"[a-z_0-9.]+: \S", text), text
    assert len(text) < LONGEST, text
    assert [array.tobytes() for array in arrays] == before


@pytest.mark.parametrize("row", ARGUMENTS, ids=identity)
def test_a_wrong_argument_is_named(row: Wrong) -> None:
    arguments = {**RIGHT[row.function], **row.changes}
    check(row.error, row.fragments, getattr(convref, row.function), **arguments)


OF_CALLS = [
    row
    for row in ARGUMENTS
    if row.error is ConvrefError
    and row.function != "assert_correct"
    and "backend" not in row.changes
]


@pytest.mark.parametrize("row", OF_CALLS, ids=identity)
def test_line_of_wrong_call_raises_the_same_message(row: Wrong) -> None:
    arguments = {**RIGHT[row.function], **row.changes}
    with pytest.raises(ConvrefError) as caught:
        getattr(convref, row.function)(**arguments)
    check(ConvrefError, (str(caught.value),), convref.case_of, row.function, **arguments)


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
def test_a_wrong_call_is_named(row: Any) -> None:
    _, function, arguments, keywords, fragments = row
    check(ConvrefError, fragments, function, *arguments, **keywords)


@pytest.mark.parametrize("row", LINES, ids=lambda row: str(row[0])[:50])
def test_message_points_at_the_malformed_token(row: Any) -> None:
    text, fragments = row
    check(ConvrefError, fragments, convref.parse, text)


@pytest.mark.parametrize("text", ["conv.fprop:n1c1k1_i3_f3", "conv.:n1c1k1_i3_f3", "conv:n1"])
def test_a_problem_has_no_pass(text: str) -> None:
    check(ConvrefError, ("column", "needs"), convref.parse_problem, text)


@pytest.mark.parametrize("function", [name for name, right in RIGHT.items() if right])
def test_the_right_call_computes(function: str) -> None:
    if function == "assert_correct":
        getattr(convref, function)(**RIGHT[function])
        return
    with pytest.raises(RuntimeError, match="computed"):
        getattr(convref, function)(**RIGHT[function])


def test_cached_call_does_not_hide_a_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    one = np.ones((1, 1, 3))
    convref.conv1d(one, one, stride=1, groups=1)
    convref.conv1d_backward(one[..., :1], one, one, (1,))
    for wrong in ({"stride": 1.0}, {"stride": True}, {"groups": 1.0}, {"groups": True}):
        with pytest.raises(ConvrefError, match="needs an integer"):
            convref.conv1d(one, one, **wrong)
    with pytest.raises(ConvrefError, match="bias_sizes"):
        convref.conv1d_backward(one[..., :1], one, one, (2,))


def test_object_arrays_are_checked_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    numbers = np.ones((1, 1, 3), object)
    convref.conv1d(numbers, numbers)
    with pytest.raises(ConvrefError, match="input holds a str, needs numbers"):
        convref.conv1d(np.full((1, 1, 3), "junk", object), numbers)
