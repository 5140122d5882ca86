"""tinygrad as a third-party backend for the court.

    cd docs/examples && convref check tinygrad_backend:backend --seconds 300

Each op is tinygrad's function or layer of that name, and each derivative is tinygrad's own.
"""

from importlib.metadata import version

import numpy as np
from tinygrad import Context, Device, Tensor, dtypes, nn

from convref import Numerics
from convref.backends import Autodiff
from convref.dtypes import INTEGERS, numpy_dtype
from convref.knownbugs import refusals


def tensor(array):
    if array.dtype.name == "bfloat16":
        return Tensor(array.astype(np.float32)).cast(dtypes.bfloat16)
    return Tensor(array)


def numpy(result):
    if result.dtype == dtypes.bfloat16:
        return result.cast(dtypes.float32).numpy().astype(numpy_dtype("bf16"))
    return result.numpy()


def vjp(function, at, cotangents):
    results = function(at)
    total = sum((results[role] * dy).sum() for role, dy in cotangents.items())
    return total.gradient(*at.values())


TINYGRAD = Autodiff(tensor, numpy, vjp)


def windows(problem):
    """Return what convolutions and pools share; tinygrad pads the last axis first."""
    padding = tuple(edge for pair in reversed(problem.padding) for edge in pair)
    return {"stride": problem.stride, "dilation": problem.dilation, "padding": padding}


def conv(problem, x, w, b):
    options = windows(problem) | {"groups": problem.groups}
    if problem.transposed:
        return {"y": x.conv_transpose2d(w, b, output_padding=problem.output_padding, **options)}
    return {"y": x.conv2d(w, b, **options).cast(x.dtype)}


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


def affine(layer, x, w, b, shape):
    """Give a layer weight and bias: it has both or none."""
    layer.weight = Tensor.ones(shape, dtype=x.dtype) if w is None else w
    layer.bias = Tensor.zeros(shape, dtype=x.dtype) if b is None else b
    return layer


def batch_norm(problem, x, w, b, rmean, rvar):
    training = hasattr(problem, "momentum")
    layer = nn.BatchNorm(problem.c, problem.eps, momentum=problem.momentum if training else 0)
    affine(layer, x, w, b, problem.c)
    kept = [layer.bias if a is None else a for a in (rmean, rvar)]
    layer.running_mean, layer.running_var = (a.detach().clone() for a in kept)
    with Context(TRAINING=int(training)):
        y, (mean, variance) = layer(x), layer.calc_stats(x)
    rstd = (variance + problem.eps).rsqrt()
    running = {"rmean": layer.running_mean, "rvar": layer.running_var}
    return {"y": y, "mean": mean, "rstd": rstd, **running}


def group_norm(problem, x, w, b):
    layer = affine(nn.GroupNorm(problem.groups, problem.c, problem.eps), x, w, b, problem.c)
    return {"y": layer(x), **statistics(problem, x.reshape(problem.n, problem.groups, -1))}


def layer_norm(problem, x, w, b):
    layer = affine(nn.LayerNorm(x.shape[1:], problem.eps), x, w, b, x.shape[1:])
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


supports = refusals("""
dt != f16, dt != bf16, dt != f32, dt != f64, op != conv | only floats are called
dt in f80 c64 c128 c160 obj | tinygrad has no such type
dt in i8 i16 i32 i64 u8 u16 u32 u64, pass != fprop | integers are only convolved here
math != ieee | the processor computes as it does
op = conv, flip = 1 | tinygrad flips no filter
op = conv, t = 1, k = 0 | tinygrad has no transposed convolution without outputs
op != conv, size = 0 | tinygrad's layers need elements
op in batch_norm batch_norm_eval group_norm layer_norm, dt in f16 bf16 | statistics are rounded
op = avg_pool, div != 0 | tinygrad takes no divisor
op in max_pool avg_pool, any.empty_windows >= 1 | the library does not define empty windows
op in leaky_relu hardswish, pass != fprop | tinygrad has another slope at the corners
op = resize, mode != linear, mode != nearest | tinygrad has linear, nearest and nearest-exact
op = resize, mode = linear, coord != half_pixel, coord != align_corners | no such coordinates
op = resize, mode = nearest, near != float32 | tinygrad rounds positions in float32
op = resize, aa = 1 | tinygrad has no antialias
""")


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
    if getattr(problem, "label_smoothing", 0) or getattr(problem, "scale", ()):
        return "tinygrad smooths no labels where it ignores some, and resizes to sizes"
    return None


class Tinygrad:
    name = "tinygrad"
    chunk = 64  # examples that a worker takes at a time: each is compiled

    def supports(self, call):
        if call.op not in OPS or call.pass_ not in TINYGRAD.passes:
            return f"tinygrad has no {call.op}.{call.pass_}"
        return supports(call) or unlike(call)

    def run(self, call, *operands):
        return TINYGRAD.run(OPS[call.op], call, *operands)

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
