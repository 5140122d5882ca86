"""OpenVINO in the court: one node a model, forward, on its CPU plugin.

    cd docs/examples && convref check openvino_backend:backend --seconds 300

The image is an input of the model; filters, weights and statistics are constants in it, as in a
network that is deployed.
"""

from math import prod

import numpy as np
import openvino
from openvino import opset16 as ov

from convref import Numerics
from convref.backends import contiguous
from convref.dtypes import numpy_dtype
from convref.oracle import first_reads

CORE = openvino.Core()
# Where the processor has bfloat16, the plugin computes float32 in it unless an option forbids it.
OPTIONS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
NORMS = ("batch_norm_eval", "group_norm", "layer_norm")
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


def windows(problem):
    """Return what convolutions and pools share, by OpenVINO's names."""
    lo, hi = ([pair[end] for pair in problem.padding] for end in (0, 1))
    strides, dilations = list(problem.stride), list(problem.dilation)
    return {"strides": strides, "dilations": dilations, "pads_begin": lo, "pads_end": hi}


def conv(problem, x, w, b=None):
    groups, options = problem.groups, windows(problem)
    name = "convolution_backprop_data" if problem.transposed else "convolution"
    if problem.transposed:
        options["output_padding"] = list(problem.output_padding)
    if groups > 1:
        name, w = f"group_{name}", w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    y = getattr(ov, name)(x, ov.constant(w), **options)
    return [y if b is None else ov.add(y, ov.constant(b.reshape(-1, *[1] * problem.rank)))]


def pool(problem):
    kinds = {"kernel_shape": list(problem.filter), "auto_pad": "explicit"}
    return windows(problem) | kinds | {"rounding_type": "ceil_torch" if problem.ceil else "floor"}


def max_pool(problem, x):
    return ov.max_pool(x, **pool(problem), index_element_type="i64", axis=2).outputs()


def avg_pool(problem, x):
    return [ov.avg_pool(x, **pool(problem), exclude_pad=not problem.include_pad)]


def adaptive(name, **options):
    return lambda problem, x: getattr(ov, name)(x, np.array(problem.output), **options).outputs()


def resize(problem, x):
    plain = {"linear": "linear_onnx", "cubic": "cubic", "nearest": "nearest"}
    pillow = {"linear": "bilinear_pillow", "cubic": "bicubic_pillow"}
    options = {"mode": (pillow if problem.antialias else plain)[problem.mode]}
    options |= {"coordinate_transformation_mode": problem.coord, "cube_coeff": problem.a}
    if problem.mode == "nearest":
        options["nearest_mode"] = problem.near
    axes = np.arange(2, 2 + problem.rank)
    sizes = np.array(problem.output)
    return [ov.interpolate(x, sizes, shape_calculation_mode="sizes", axes=axes, **options)]


def batch_norm_eval(problem, x, w, b, rmean, rvar):
    return [ov.batch_norm_inference(x, w, b, rmean, rvar, problem.eps)]


def group_norm(problem, x, w, b):
    parts = ov.reshape(x, np.array([problem.n, problem.groups, -1]), special_zero=False)
    y = ov.group_normalization(x, w, b, problem.groups, problem.eps)
    return [y, *statistics(problem, parts, [2])]


def layer_norm(problem, x, w, b):
    axes = list(range(1, len(x.shape)))
    y = ov.mvn(x, ov.constant(np.array(axes)), True, problem.eps, "INSIDE_SQRT")
    return [ov.add(ov.multiply(y, w), b), *statistics(problem, x, axes)]


def statistics(problem, x, axes):
    """Return what the court asks for and no node returns."""
    axes = np.array(axes)
    mean = ov.reduce_mean(x, axes, keep_dims=True)
    variance = ov.reduce_mean(ov.power(ov.subtract(x, mean), np.float32(2)), axes, keep_dims=True)
    rstd = ov.power(ov.add(variance, np.float32(problem.eps)), np.float32(-0.5))
    return [ov.squeeze(mean, axes), ov.squeeze(rstd, axes)]


def element(x):
    return x.output(0).element_type.to_dtype()


def plain(name, *fields):
    """Return an op that is one node; fields are those of the problem that it takes."""
    return lambda problem, x: [getattr(ov, name)(x, *(getattr(problem, f) for f in fields))]


OPS = {
    "conv": conv,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_max_pool": adaptive("adaptive_max_pool", index_element_type="i32"),
    "adaptive_avg_pool": adaptive("adaptive_avg_pool"),
    "resize": resize,
    "batch_norm_eval": batch_norm_eval,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "leaky_relu": lambda problem, x: [ov.prelu(x, np.array([problem.slope], element(x)))],
    "gelu": lambda problem, x: [ov.gelu(x, {"none": "erf"}.get(problem.approximate, "tanh"))],
    "softmax": plain("softmax", "dim"),
    "log_softmax": plain("log_softmax", "dim"),
    "silu": lambda problem, x: [ov.swish(x, np.ones((), element(x)))],
    "hardswish": plain("hswish"),
    **{name: plain(name) for name in ("relu", "sigmoid", "tanh")},
}


def unlike(problem):
    """Return why OpenVINO has no such windows or positions, or None."""
    edges = [edge for pair in getattr(problem, "padding", ()) for edge in pair]
    if min(edges, default=0) < 0:
        return "OpenVINO crops nothing by padding"
    if getattr(problem, "flip", False) or getattr(problem, "divisor", 0):
        return "OpenVINO flips no filter and takes no divisor"
    if getattr(problem, "transposed", False) and not problem.k * problem.c:
        return "OpenVINO has no transposed convolution without channels"
    if problem.ops[0] in ("max_pool", "avg_pool"):
        reads = [axis.dilation * (axis.taps - 1) + 1 for axis in problem.axes]
        if any(axis.big + axis.lo + axis.hi < n for axis, n in zip(problem.axes, reads)):
            return "OpenVINO has no window larger than the padded image"
        if any(max(pair) >= taps for pair, taps in zip(problem.padding, problem.filter)):
            return "OpenVINO pools with less padding than the filter has taps"
        if any(min(first_reads(axis)) < 0 for axis in problem.axes):
            return "OpenVINO does not define empty windows"
    elif problem.ops[0] == "resize":
        if problem.coord not in COORDINATES or problem.scale or problem.mode == "area":
            return "OpenVINO has no scale and no such coordinates"
        if problem.mode == "nearest" and any(o % i for i, o in zip(problem.input, problem.output)):
            return "positions in float32 may round to another element"
        pillow = problem.rank == 2 and problem.coord == "half_pixel" and problem.exclude
        if problem.antialias and not pillow:
            return "OpenVINO has Pillow's antialias of images"
        if problem.exclude and problem.mode == "cubic" and not problem.antialias:
            return "OpenVINO leaves nothing out without antialias"
    return None


class OpenVino:
    name = "openvino"

    def supports(self, call):
        if call.op not in OPS or call.pass_ != "fprop":
            return f"OpenVINO has no {call.op}.{call.pass_}"
        if call.dtype not in ("f32", "f16") or call.math != "ieee":
            return "the CPU plugin computes in float32"
        if call.dtype == "f16" and call.op in (*NORMS, "leaky_relu"):
            return "OpenVINO keeps statistics and slopes in the type of the data"
        if {spec.device for spec in call.specs} != {"cpu"}:
            return "the adapter supports only the CPU"
        if getattr(call.problem, "near", "") == "float32" and call.problem.mode == "nearest":
            return "OpenVINO rounds by ONNX's names"
        if call.op != "conv" and not prod(call.problem.shape("x")):
            return "OpenVINO's nodes need elements"
        return unlike(call.problem)

    def run(self, call, *operands):
        x, *rest = contiguous(call, operands)
        if call.op in NORMS:  # the nodes need a weight and a bias
            filled = zip(call.roles[1:], rest)
            rest = [absent(call, role) if a is None else a for role, a in filled]
        node = ov.parameter(list(x.shape), x.dtype)
        results = OPS[call.op](call.problem, node, *rest)
        model = openvino.Model(results, [node], "convref")
        found = CORE.compile_model(model, "CPU", OPTIONS)([x])
        return tuple(
            found[i].astype(numpy_dtype(call.dtype_of(role)))
            for i, role in enumerate(call.signature.results)
        )

    def numerics(self, call):
        return Numerics("rn32", ftz=True)  # the plugin may flush subnormals

    def fingerprint(self):
        version, cpu = openvino.__version__, CORE.get_property("CPU", "FULL_DEVICE_NAME")
        return {"openvino": version, "device": "cpu", "cpu": cpu, **OPTIONS}


def absent(call, role):
    return np.full(call.problem.shape(role), float(role == "w"), numpy_dtype(call.dtype))


backend = OpenVino()
