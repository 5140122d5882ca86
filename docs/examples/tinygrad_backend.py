"""tinygrad in the court, as somebody outside of convref would bring it there.

    cd docs/examples && convref check tinygrad_backend:backend --seconds 300

Each op is tinygrad's function or layer of that name, and each derivative is tinygrad's own.
"""

from importlib.metadata import version
from math import prod

import numpy as np
from tinygrad import Context, Device, Tensor, dtypes, nn

from convref import Numerics
from convref.backends import contiguous
from convref.dtypes import INTEGERS, numpy_dtype
from convref.oracle import first_reads

WITH_WEIGHTS = ("conv", "batch_norm", "batch_norm_eval", "group_norm", "layer_norm")


def tensor(array):
    if array.dtype.name == "bfloat16":
        return Tensor(array.astype(np.float32)).cast(dtypes.bfloat16)
    return Tensor(array)


def numpy(result, code):
    result = result.cast(dtypes.float32) if result.dtype == dtypes.bfloat16 else result
    return result.numpy().astype(numpy_dtype(code))


def windows(problem):
    """Return what convolutions and pools share; tinygrad pads the last axis first."""
    padding = tuple(edge for pair in reversed(problem.padding) for edge in pair)
    return {"stride": problem.stride, "dilation": problem.dilation, "padding": padding}


def conv(problem, x, w, b):
    options = windows(problem) | {"groups": problem.groups}
    if problem.transposed:
        return {"y": x.conv_transpose2d(w, b, output_padding=problem.output_padding, **options)}
    return {"y": x.conv2d(w, b, **options)}


def max_pool(problem, x):
    options = windows(problem) | {"ceil_mode": problem.ceil, "return_indices": True}
    return dict(zip(("y", "indices"), x.max_pool2d(problem.filter, **options)))


def avg_pool(problem, x):
    options = windows(problem) | {"ceil_mode": problem.ceil}
    return {"y": x.avg_pool2d(problem.filter, count_include_pad=problem.include_pad, **options)}


def resize(problem, x):
    nearest = {"asymmetric": "nearest", "half_pixel": "nearest-exact"}.get(problem.coord)
    mode = nearest if problem.mode == "nearest" else "linear"
    corners = problem.coord == "align_corners"
    return {"y": x.interpolate(problem.output, mode, align_corners=corners)}


def batch_norm(problem, x, w, b, rmean=None, rvar=None):
    training = hasattr(problem, "momentum")
    layer = nn.BatchNorm(problem.c, problem.eps, momentum=problem.momentum if training else 0)
    layer.weight, layer.bias = w, b
    kept = [b if a is None else a for a in (rmean, rvar)]
    layer.running_mean, layer.running_var = (a.detach().clone() for a in kept)
    with Context(TRAINING=int(training)):
        y, (mean, variance) = layer(x), layer.calc_stats(x)
    rstd = (variance + problem.eps).rsqrt()
    running = {"rmean": layer.running_mean, "rvar": layer.running_var}
    return {"y": y, "mean": mean, "rstd": rstd, **running}


def group_norm(problem, x, w, b):
    layer = nn.GroupNorm(problem.groups, problem.c, problem.eps)
    layer.weight, layer.bias = w, b
    return {"y": layer(x), **statistics(problem, x.reshape(problem.n, problem.groups, -1))}


def layer_norm(problem, x, w, b):
    layer = nn.LayerNorm(x.shape[1:], problem.eps)
    layer.weight, layer.bias = w, b
    return {"y": layer(x), **statistics(problem, x.reshape(problem.n, -1))}


def statistics(problem, x):
    """Return what the court asks for and these layers keep to themselves."""
    rstd = (x.var(axis=-1, correction=0) + problem.eps).rsqrt()
    return {"mean": x.mean(axis=-1), "rstd": rstd}


def cross_entropy(problem, x, w, target):
    options = {"ignore_index": problem.ignore_index, "reduction": problem.reduction}
    loss = x.log_softmax(1).nll_loss(target, w, **options)
    return {"y": loss.reshape(problem.shape("y"))}


def plain(name, **options):
    """Return an op that is a method of a tensor; options name the fields that are its arguments."""

    def compute(problem, x):
        given = {key: getattr(problem, field) for key, field in options.items()}
        return {"y": getattr(x, name)(**given)}

    return compute


OPS = {
    "conv": conv,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "max_unpool": lambda p, x, indices: {"y": x.max_unpool2d(indices, output_size=p.output)},
    "resize": resize,
    "batch_norm": batch_norm,
    "batch_norm_eval": batch_norm,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "cross_entropy": cross_entropy,
    "leaky_relu": plain("leaky_relu", neg_slope="slope"),
    "gelu": plain("gelu", approximate="approximate"),
    "softmax": plain("softmax", axis="dim"),
    "log_softmax": plain("log_softmax", axis="dim"),
    **{name: plain(name) for name in ("relu", "silu", "hardswish", "sigmoid", "tanh")},
}
EXPONENTIALS = ("sigmoid", "silu", "tanh", "gelu", "softmax", "log_softmax", "cross_entropy")
STEPS = {"fprop": 12, "backward": 24, "double_backward": 48}  # more than a formula has here
CONSTANTS = {  # operands without a derivative
    "batch_norm": ("rmean", "rvar"),
    "batch_norm_eval": ("rmean", "rvar"),
    "max_unpool": ("indices",),
    "cross_entropy": ("w", "target"),
}


def primals(call, given):
    """Return what y is differentiated by; a linear op has the same derivative at zero."""
    roles = "xwb" if call.op in WITH_WEIGHTS else "x"
    return {role: given[role] if role in given else absent(call, role) for role in roles}


def absent(call, role):
    value = float(role == "w")
    return tensor(np.full(call.problem.shape(role), value, numpy_dtype(call.dtype)))


def forward(call, at, given):
    return OPS[call.op](call.problem, **at, **{r: given.get(r) for r in CONSTANTS.get(call.op, ())})


def fprop(call, given):
    return forward(call, primals(call, given), given)


def backward(call, given):
    at = primals(call, given)
    found = forward(call, at, given)["y"].gradient(*at.values(), gradient=given["dy"])
    return {f"d{role}": gradient for role, gradient in zip(at, found)}


def double_backward(call, given):
    at = primals(call, given)
    dy = given["dy"] if "dy" in given else absent(call, "y")
    first = forward(call, at, given)["y"].gradient(*at.values(), gradient=dy)
    outer = [given.get(f"dd{role}") for role in at]
    total = sum((g * dd).sum() for g, dd in zip(first, outer) if dd is not None)
    if all(dd is None for dd in outer):
        return {f"d{role}": a.zeros_like() for role, a in at.items()} | {"ddy": dy.zeros_like()}
    second = total.gradient(dy, *at.values())
    return dict(zip(("ddy", *(f"d{role}" for role in at)), second))


PASSES = {"fprop": fprop, "backward": backward, "double_backward": double_backward}


def sides(problem):
    """Yield the size and the padding of each axis, as tinygrad gathers from it."""
    for axis, (lo, hi) in enumerate(getattr(problem, "padding", ())):
        size = problem.input[axis]
        if getattr(problem, "transposed", False):
            reach = problem.dilation[axis] * (problem.filter[axis] - 1)
            size = (size - 1) * problem.stride[axis] + 1
            lo, hi = reach - lo, reach - hi + problem.output_padding[axis]
        yield size, lo, hi


def unlike(call):
    """Return where tinygrad's rules are others or it raises an error, or None."""
    problem = call.problem
    if any(-min(lo, 0) - min(hi, 0) > size for size, lo, hi in sides(problem)):
        return "tinygrad crops no more than there is"
    if getattr(problem, "flip", False) or getattr(problem, "divisor", 0):
        return "tinygrad flips no filter and takes no divisor"
    if call.op == "conv":
        empty = problem.transposed and not problem.k
        return "tinygrad has no transposed convolution without outputs" if empty else None
    if not prod(problem.shape("x")):
        return "tinygrad's layers need elements"
    if call.op in WITH_WEIGHTS and call.dtype in ("f16", "bf16"):
        return "tinygrad keeps statistics in the type of the data"
    if call.op in ("max_pool", "avg_pool") and min(map(min, map(first_reads, problem.axes))) < 0:
        return "tinygrad says nothing of a window that reads no element"
    if call.op in ("leaky_relu", "hardswish") and call.pass_ != "fprop":
        return f"tinygrad has another slope at the corners of {call.op}"
    if call.op == "cross_entropy" and problem.label_smoothing:
        return "tinygrad smooths no labels where it ignores some"
    if call.op == "resize":
        kinds = {"linear": ("half_pixel", "align_corners")}
        kinds["nearest"] = ("asymmetric", "half_pixel") if problem.near == "float32" else ()
        if problem.coord not in kinds.get(problem.mode, ()) or problem.antialias or problem.scale:
            return "tinygrad has linear, nearest and nearest-exact, and takes sizes"
    return None


class Tinygrad:
    name = "tinygrad"
    chunk = 64  # examples that a worker takes at a time: each is compiled

    def supports(self, call):
        if call.op not in OPS or call.pass_ not in PASSES:
            return f"tinygrad has no {call.op}.{call.pass_}"
        if call.dtype in INTEGERS and (call.op, call.pass_) != ("conv", "fprop"):
            return "integers are only convolved here"
        if call.dtype not in ("f16", "bf16", "f32", "f64", *INTEGERS):
            return f"tinygrad has no {call.dtype}"
        if call.math != "ieee" or {spec.device for spec in call.specs} != {"cpu"}:
            return "only plain numbers in the memory of the host are called here"
        return unlike(call)

    def run(self, call, *operands):
        arrays = zip(call.roles, contiguous(call, operands))
        given = {role: tensor(array) for role, array in arrays if array is not None}
        found = PASSES[call.pass_](call, given)
        return tuple(
            numpy(found[role], call.dtype_of(role)) if role in call.wanted else None
            for role in call.signature.results
        )

    def numerics(self, call):
        if call.dtype in INTEGERS:
            return Numerics("exact")
        if call.dtype in ("f16", "bf16"):  # products and steps between sums are rounded too
            products = max(map(call.products, call.wanted))
            return Numerics("rn32", stages=products // 2 + STEPS[call.pass_])
        model, reach = ("rn64", 64.0) if call.dtype == "f64" else ("rn32", 8.0)
        # exp(x) is 2**(x / ln 2), whose rounded exponent costs as many units as x is large
        growth = reach if call.op in EXPONENTIALS else 1.0
        weights = 2.0**-24 if call.op == "resize" else 0.0  # in float32, whatever the data are
        return Numerics(model, growth=growth, weights=weights)

    def fingerprint(self):
        return {"tinygrad": version("tinygrad"), "device": Device.DEFAULT}


backend = Tinygrad()
