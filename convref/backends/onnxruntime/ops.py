"""Calls as ONNX models, and the calls that ONNX or ONNX Runtime's CPU provider lacks."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ...arrays import Array
from ...case import Call
from ...oracle import first_reads
from . import resize

# Opset and IR version: where a node has not changed, as old as it takes older releases too.
OPSET = (22, 10)
_OPSETS = {
    "conv": (13, 8),
    "resize": (19, 9),
    "roi_align": (16, 8),
    "rms_norm": (23, 11),
}  # antialias came with 18
TYPES = {
    "f16": TensorProto.FLOAT16,
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
    "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
    "i32": TensorProto.INT32,
    "i64": TensorProto.INT64,
}
_FLOATS = ("f32", "f64")


Graph = tuple[list[Any], dict[str, Array]]  # nodes, and constants by name
Builder = Callable[[Call], Graph]


def supports(call: Call) -> str | None:
    """Return None, or why there is no such node or kernel."""
    if call.pass_ != "fprop":
        return f"ONNX Runtime computes only the forward pass of {call.op}"
    if call.op == "hardswish":
        return "ONNX's HardSwish computes x / 6 + 1 / 2, which cancels near -3"
    if call.op not in _NODES:
        return f"the adapter has no node for {call.op}"
    kernel = _kernel(call)
    if call.dtype not in _KERNELS.get(kernel, _FLOATS):
        return f"the CPU provider has no {kernel} for {call.dtype}"
    if call.math != "ieee":
        return f"math={call.math} is not supported on the CPU"
    if call.op != "conv" and not prod(call.problem.shape("x")):
        return "the adapter does not support empty images"
    if call.problem.line_value("par"):
        return f"the adapter does not support par={call.problem.line_value('par')}"
    reason = _UNLIKE.get(call.op)
    return reason(call) if reason else None


def _kernel(call: Call) -> str:
    if call.op == "conv":
        return "ConvTranspose" if call.conv.transposed else "Conv"
    return f"Resize of mode {call.problem.mode}" if call.op == "resize" else call.op


def _crops(problem: Any) -> bool:
    """Return whether some padding is negative."""
    return any(edge < 0 for pair in problem.padding for edge in pair)


def _unlike_conv(call: Call) -> str | None:
    problem = call.conv
    if problem.flip:
        return "ONNX has no flipped convolution"
    if _crops(problem):
        return "ONNX has no negative padding"
    if call.op == "conv_integer" and problem.k != 1:
        return "the CPU provider has no ConvInteger with a zero point for each channel"
    extra = zip(problem.output_padding, problem.stride)
    if problem.transposed and any(size >= stride for size, stride in extra if size):
        return "ONNX Runtime has no output padding as large as the stride"
    return None


def _unlike_windows(call: Call) -> str | None:
    if any(not 0 <= edge < axis.taps for axis in call.problem.axes for edge in (axis.lo, axis.hi)):
        return "the CPU provider supports only padding from 0 to the kernel size minus 1"
    if any(min(first_reads(axis)) < 0 for axis in call.problem.axes):
        return "ONNX does not define empty windows"
    return None


def _unlike_avg_pool(call: Call) -> str | None:
    if call.problem.divisor:
        return "ONNX has no divisor_override"
    return _unlike_windows(call)


def _unlike_normalize(call: Call) -> str | None:
    problem = call.problem
    if problem.p not in (1.0, 2.0):
        return "ONNX's LpNormalization has only the norms 1 and 2"
    return "ONNX's LpNormalization has no eps" if problem.eps > 1e-12 else None


def _unlike_response_norm(call: Call) -> str | None:
    if call.problem.size % 2 == 0:
        return "in ONNX the longer side of an even window follows the channel"
    return None if call.problem.rank == 2 else "the CPU provider has LRN only for 2d images"


def _unlike_lp_pool(call: Call) -> str | None:
    norm = call.problem.norm
    fraction = None if norm == int(norm) else "ONNX supports only integer norms"
    return _unlike_windows(call) or fraction


def _not_global(call: Call) -> str | None:
    is_global = set(call.problem.output) == {1}
    return None if is_global else "ONNX supports only adaptive pooling to one element"


def _rounds_eps(call: Call) -> str | None:
    eps = call.problem.eps
    if call.dtype == "f64" and float(np.float32(eps)) != eps:
        return "ONNX stores epsilon as float32"
    return None


_UNLIKE: dict[str, Callable[[Call], str | None]] = {
    **dict.fromkeys(("conv", "conv_integer", "quantized_conv"), _unlike_conv),
    "max_pool": _unlike_windows,
    "avg_pool": _unlike_avg_pool,
    "deform_conv": lambda call: "ONNX has no negative padding" if _crops(call.problem) else None,
    "lp_pool": _unlike_lp_pool,
    "resize": resize.unsupported,
    "pixel_unshuffle": lambda call: (
        "ONNX's SpaceToDepth has only mode DCR" if call.problem.mode == "CRD" else None
    ),
    "threshold": lambda call: "ONNX's ThresholdedRelu is 0 below" if call.problem.value else None,
    "normalize": _unlike_normalize,
    "softplus": lambda call: (
        None if (call.problem.beta, call.problem.threshold) == (1, 20) else "ONNX has no beta"
    ),
    "local_response_norm": _unlike_response_norm,
    "adaptive_avg_pool": _not_global,
    "batch_norm_eval": _rounds_eps,
}


def model(call: Call) -> Any:
    """Return the call as an ONNX model: one node, and more for results that it does not return."""
    nodes, constants = _NODES[call.op](call)
    opset, ir_version = _OPSETS.get(call.op, OPSET)
    given = [role for role in call.roles if call.is_present(role)]
    results = [_value(call, role, f"_{role}") for role in call.signature.results]
    made = helper.make_graph(
        nodes,
        "convref",
        [_value(call, role, role) for role in given],
        results,
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(made, opset_imports=opsets, ir_version=ir_version)


def _value(call: Call, role: str, name: str) -> Any:
    shape = call.problem.shape(role)
    return helper.make_tensor_value_info(name, TYPES[call.dtype_of(role)], shape)


def convert_results(call: Call, found: Sequence[Array]) -> list[Array]:
    """Return the results by role: ONNX counts the positions of all images, convref those of one."""
    if "indices" not in call.signature.results:
        return list(found)
    y, indices = found
    n, c, *sizes = call.problem.shape("x")
    before = np.arange(n * c).reshape(n, c, *(1,) * len(sizes)) * prod(sizes)
    return [y, indices - before]


def _node(name: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(name, list(inputs), list(outputs), **attributes)


def _windows(call: Call) -> dict[str, Any]:
    problem: Any = call.problem
    return {
        "kernel_shape": problem.filter,
        "strides": problem.stride,
        "dilations": problem.dilation,
        "pads": [*(lo for lo, _ in problem.padding), *(hi for _, hi in problem.padding)],
    }


def _conv(call: Call) -> Graph:
    problem = call.conv
    more = {"output_padding": problem.output_padding} if problem.transposed else {}
    given = [role for role in call.roles if call.is_present(role)]
    node = _node(_kernel(call), given, ["_y"], **_windows(call), group=problem.groups, **more)
    return [node], {}


def _integer_conv(call: Call) -> Graph:
    """Return the node, whose scales of input and output are 1; zero points are 8-bit."""
    problem: Any = call.problem
    eight, one = np.uint8 if call.dtype == "u8" else np.int8, np.array(1, np.float32)
    constants: dict[str, Array] = {"xz": np.array(problem.x_zero).astype(eight)}
    cast = _node("Cast", ["zero"], ["wz"], to=TYPES[call.dtype])
    geometry = {**_windows(call), "group": problem.groups}
    if call.op == "conv_integer":
        return [cast, _node("ConvInteger", ["x", "w", "xz", "wz"], ["_acc"], **geometry)], constants
    constants |= {"one": one, "yz": np.array(problem.y_zero).astype(eight)}
    given = ["x", "one", "xz", "w", "scale", "wz", "one", "yz", *(["b32"] if problem.bias else [])]
    return [cast, _node("QLinearConv", given, ["_y"], **geometry)], constants


def _pool(name: str, outputs: Sequence[str] = ("_y",), **attributes: str) -> Builder:
    """Return the builder of a pool; attributes are fields of the problem, as integers."""

    def build(call: Call) -> Graph:
        fields = {"ceil_mode": "ceil", **attributes}
        given = {key: int(getattr(call.problem, field)) for key, field in fields.items()}
        return [_node(name, ["x"], outputs, **_windows(call), **given)], {}

    return build


def _parameters(call: Call, shape: tuple[int, ...]) -> dict[str, Array]:
    dtype = np.float64 if call.dtype == "f64" else np.float32
    rows = (("w", np.ones(shape, dtype)), ("b", np.zeros(shape, dtype)))
    return {r: array for r, array in rows if r in call.roles and not call.is_present(r)}


def _batch_norm_eval(call: Call) -> Graph:
    names = ("x", "w", "b", "rmean", "rvar")
    node = _node("BatchNormalization", names, ["_y"], epsilon=call.problem.eps)
    return [node], _parameters(call, call.problem.shape("w"))


def _layer_norm(call: Call) -> Graph:
    problem = call.problem
    shape = np.array(problem.shape("mean"), np.int64)
    rows = [("mean", "kept_mean"), ("rstd", "kept_rstd")]
    nodes = [
        _node(
            "LayerNormalization",
            ("x", "w", "b"),
            ("_y", "kept_mean", "kept_rstd"),
            axis=1,
            epsilon=problem.eps,
        ),
        *(_node("Reshape", (name, "shape"), (f"_{role}",)) for role, name in rows),
    ]
    return nodes, {**_parameters(call, problem.shape("w")), "shape": shape}


def _group_norm(call: Call) -> Graph:
    """Return the node of a norm (instance norm for groups of one channel), and of its statistics.

    Neither node returns statistics: other nodes compute mean and deviation.
    """
    problem: Any = call.problem
    if problem.groups == problem.c:
        node = _node("InstanceNormalization", ("x", "w", "b"), ("_y",), epsilon=problem.eps)
    else:
        more = {"num_groups": problem.groups, "epsilon": problem.eps}
        node = _node("GroupNormalization", ("x", "w", "b"), ("_y",), **more)
    nodes = [
        node,
        _node("Reshape", ("x", "grouped"), ("image",)),
        _node("ReduceMean", ("image", "last"), ("mean",)),
        _node("Sub", ("image", "mean"), ("centred",)),
        _node("Reshape", ("mean", "kept"), ("_mean",)),
    ]
    deviation, constants = _deviation(call, "centred", problem.groups)
    return [*nodes, *deviation], {**_parameters(call, problem.shape("w")), **constants}


def _rms_norm(call: Call) -> Graph:
    problem: Any = call.problem
    nodes = [
        _node("RMSNormalization", ("x", "w"), ("_y",), axis=1, epsilon=problem.eps),
        _node("Reshape", ("x", "grouped"), ("image",)),
    ]
    deviation, constants = _deviation(call, "image", 1)
    return [*nodes, *deviation], {**_parameters(call, problem.shape("w")), **constants}


def _deviation(call: Call, image: str, groups: int) -> Graph:
    """Return the nodes of rstd, from elements that are grouped along the last of three axes."""
    problem: Any = call.problem
    nodes = [
        _node("ReduceSumSquare", (image, "last"), ("squares",)),
        _node("Div", ("squares", "count"), ("var",)),
        _node("Add", ("var", "eps"), ("power",)),
        _node("Sqrt", ("power",), ("root",)),
        _node("Reciprocal", ("root",), ("rstd",)),
        _node("Reshape", ("rstd", "kept"), ("_rstd",)),
    ]
    dtype = np.float64 if call.dtype == "f64" else np.float32
    return nodes, {
        "grouped": np.array([problem.n, groups, problem.count], np.int64),
        "last": np.array([2], np.int64),
        "count": np.array(problem.count, dtype),
        "eps": np.array(problem.eps, dtype),
        "kept": np.array(problem.shape("rstd"), np.int64),
    }


def _prelu(call: Call) -> Graph:
    """Return the node, whose slopes have the axes that follow channels too."""
    shape = np.array([-1, *(1,) * call.problem.rank], np.int64)
    nodes = [
        _node("Reshape", ("w", "shape"), ("slopes",)),
        _node("PRelu", ("x", "slopes"), ("_y",)),
    ]
    return nodes, {"shape": shape}


def _normalize(call: Call) -> Graph:
    problem = call.problem
    return [_node("LpNormalization", ["x"], ["_y"], axis=problem.dim, p=int(problem.p))], {}


def _plain(name: str, **attributes: str) -> Builder:
    """Return the node `name` whose attributes are the problem's fields of these names."""

    def build(call: Call) -> Graph:
        given = {key: getattr(call.problem, field) for key, field in attributes.items()}
        return [_node(name, ["x"], ["_y"], **given)], {}

    return build


def _grid_sample(call: Call) -> Graph:
    problem = call.problem
    given = {"mode": _SAMPLED[problem.mode], "padding_mode": problem.padding_mode}
    node = _node("GridSample", ("x", "grid"), ["_y"], **given, align_corners=problem.align_corners)
    return [node], {}


def _deform_conv(call: Call) -> Graph:
    problem, present = call.problem, call.is_present
    roles = [role if present(role) else "" for role in ("x", "w", "offset", "b", "mod")]
    attributes = {"group": problem.groups, "offset_group": problem.offset_groups}
    return [_node("DeformConv", roles, ["_y"], **_windows(call), **attributes)], {}


def _roi_align(call: Call) -> Graph:
    problem = call.problem
    at = {"_0": np.array([0]), "_1": np.array([1]), "_5": np.array([5])}
    given: dict[str, Any] = {
        "coordinate_transformation_mode": "half_pixel" if problem.aligned else "output_half_pixel",
        "sampling_ratio": problem.sampling_ratio,
        "spatial_scale": problem.spatial_scale,
        **dict(zip(("output_height", "output_width"), problem.output)),
    }
    return [
        _node("Slice", ("boxes", "_1", "_5", "_1"), ["_corners"]),
        _node("Slice", ("boxes", "_0", "_1", "_1"), ["_column"]),
        _node("Squeeze", ("_column", "_1"), ["_numbers"]),
        _node("Cast", ("_numbers",), ["_images"], to=TensorProto.INT64),
        _node("RoiAlign", ("x", "_corners", "_images"), ["_y"], **given),
    ], at


_SAMPLED = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


def _hardsigmoid(call: Call) -> Graph:
    return [_node("HardSigmoid", ["x"], ["_y"], alpha=1 / 6, beta=0.5)], {}


def _clip(call: Call) -> Graph:
    ends = {name: np.array(getattr(call.problem, name)) for name in ("min_val", "max_val")}
    dtype = np.float64 if call.dtype == "f64" else np.float32
    constants = {name: end.astype(dtype) for name, end in ends.items()}
    return [_node("Clip", ["x", *constants], ["_y"])], constants


def _nll_loss(call: Call) -> Graph:
    problem = call.problem
    given = ["x", "target", *(["w"] if problem.weight else [])]
    fields = {"reduction": problem.reduction, "ignore_index": problem.ignore_index}
    loss = _node("NegativeLogLikelihoodLoss", given, ["loss"], **fields)
    shape = np.array(problem.shape("y"), np.int64)
    return [loss, _node("Reshape", ["loss", "shape"], ["_y"])], {"shape": shape}


_NODES: dict[str, Builder] = {
    "grid_sample": _grid_sample,
    "roi_align": _roi_align,
    "deform_conv": _deform_conv,
    "conv": _conv,
    "conv_integer": _integer_conv,
    "quantized_conv": _integer_conv,
    "max_pool": _pool("MaxPool", ("_y", "_indices")),
    "avg_pool": _pool("AveragePool", count_include_pad="include_pad"),
    "lp_pool": _pool("LpPool", p="norm"),
    "resize": resize.graph,
    "pixel_shuffle": _plain("DepthToSpace", blocksize="upscale_factor", mode="mode"),
    "pixel_unshuffle": _plain("SpaceToDepth", blocksize="downscale_factor"),
    "adaptive_avg_pool": _plain("GlobalAveragePool"),
    "batch_norm_eval": _batch_norm_eval,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    "normalize": _normalize,
    "local_response_norm": _plain("LRN", size="size", alpha="alpha", beta="beta", bias="k"),
    "relu": _plain("Relu"),
    "leaky_relu": _plain("LeakyRelu", alpha="slope"),
    "prelu": _prelu,
    "elu": _plain("Elu", alpha="alpha"),
    "celu": _plain("Celu", alpha="alpha"),
    "selu": _plain("Selu"),
    "softsign": _plain("Softsign"),
    "softplus": _plain("Softplus"),
    "mish": _plain("Mish"),
    "hardsigmoid": _hardsigmoid,
    "hardtanh": _clip,
    "hardshrink": _plain("Shrink", lambd="lambd"),
    "softshrink": _plain("Shrink", lambd="lambd", bias="lambd"),
    "nll_loss": _nll_loss,
    "threshold": _plain("ThresholdedRelu", alpha="threshold"),
    "gelu": _plain("Gelu", approximate="approximate"),
    "sigmoid": _plain("Sigmoid"),
    "tanh": _plain("Tanh"),
    "softmax": _plain("Softmax", axis="dim"),
    "log_softmax": _plain("LogSoftmax", axis="dim"),
    "hardmax": _plain("Hardmax", axis="dim"),
}
_KERNELS = {  # the types of a kernel that has not both of _FLOATS and no other
    "Conv": ("f16", "f32"),
    "ConvTranspose": ("f32",),
    "Resize of mode nearest": ("f32", "i8", "u8"),
    **{f"Resize of mode {mode}": ("f32",) for mode in ("linear", "cubic", "area")},
    "max_pool": ("f32", "f64", "i8", "u8"),
    "conv_integer": ("u8",),
    "quantized_conv": ("i8", "u8"),
    "avg_pool": ("f32",),
    "lp_pool": ("f32",),
    "adaptive_avg_pool": ("f32",),
    "group_norm": ("f32",),
    "layer_norm": ("f32",),
    "rms_norm": ("f32",),
    "relu": ("f32", "f64", "i8", "i32"),
    "leaky_relu": ("f32",),
    **dict.fromkeys(("prelu", "elu", "celu", "selu", "softsign", "threshold"), ("f32",)),
    **dict.fromkeys(("gelu", "hardmax", "local_response_norm"), ("f32",)),
    **dict.fromkeys(("softplus", "mish", "hardsigmoid"), ("f32",)),
}
