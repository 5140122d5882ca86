"""PaddlePaddle in the court: paddle.nn.functional, eager, on the CPU.

    cd docs/examples && convref check paddle_backend:backend --seconds 300

Axes are as in PyTorch, and so is what most functions are called.
"""

import paddle

from convref import Numerics
from convref.backends import Autodiff
from convref.knownbugs import refusals

paddle.set_device("cpu")
F = paddle.nn.functional
FORMAT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def of_rank(name, problem):
    return getattr(F, name.format(problem.rank))


def pairs(problem):
    """Return padding as lo, hi of each axis, or one number each where both are the same."""
    if all(lo == hi for lo, hi in problem.padding):
        return [lo for lo, _ in problem.padding]
    return [edge for pair in problem.padding for edge in pair]


def conv(problem, x, w, b):
    options = {"stride": problem.stride, "padding": pairs(problem), "dilation": problem.dilation}
    options["groups"] = problem.groups
    if problem.transposed:
        options["output_padding"] = list(problem.output_padding)
    name = "conv{}d_transpose" if problem.transposed else "conv{}d"
    return {"y": of_rank(name, problem)(x, w, b, **options)}


def windows(problem):
    options = {"kernel_size": problem.filter, "stride": problem.stride, "padding": pairs(problem)}
    return options | {"ceil_mode": problem.ceil}


def max_pool(problem, x):
    y, at = of_rank("max_pool{}d", problem)(x, return_mask=True, **windows(problem))
    return {"y": y, "indices": at}


def avg_pool(problem, x):
    options = windows(problem) | {"exclusive": not problem.include_pad}
    if problem.rank > 1:
        options["divisor_override"] = problem.divisor or None
    return {"y": of_rank("avg_pool{}d", problem)(x, **options)}


def adaptive_max_pool(problem, x):
    y, at = of_rank("adaptive_max_pool{}d", problem)(x, problem.output, return_mask=True)
    return {"y": y, "indices": at}


def adaptive_avg_pool(problem, x):
    return {"y": of_rank("adaptive_avg_pool{}d", problem)(x, problem.output)}


def unfold(problem, x):
    sizes = (problem.filter, problem.stride, [0, 0], problem.dilation)
    lo, hi = ([pair[end] for pair in problem.padding] for end in (0, 1))
    return {"cols": F.unfold(x, *map(list, sizes[:2]), [*lo, *hi], list(problem.dilation))}


MODES = {"linear": ("linear", "bilinear", "trilinear"), "nearest": ("nearest",) * 3}
MODES["cubic"] = (None, "bicubic", None)


def resize(problem, x):
    corners = problem.coord == "align_corners"
    mode = MODES[problem.mode][problem.rank - 1]
    options = {"align_corners": corners, "data_format": FORMAT[problem.rank]}
    if problem.mode == "linear":
        options["align_mode"] = int(problem.coord == "asymmetric")
    return {"y": F.interpolate(x, list(problem.output), mode=mode, **options)}


def batch_norm_eval(problem, x, w, b, rmean, rvar):
    layout = FORMAT[problem.rank].replace("NCW", "NCL")
    return {"y": F.batch_norm(x, rmean, rvar, w, b, False, 0.9, problem.eps, layout)}


def statistics(problem, x, axes):
    variance = paddle.var(x, axes, unbiased=False)
    return {"mean": paddle.mean(x, axes), "rstd": paddle.rsqrt(variance + problem.eps)}


def group_norm(problem, x, w, b):
    y = F.group_norm(
        x, problem.groups, problem.eps, w, b, FORMAT[problem.rank].replace("NCW", "NCL")
    )
    parts = x.reshape([problem.n, problem.groups, -1])
    return {"y": y, **statistics(problem, parts, [2])}


def layer_norm(problem, x, w, b):
    w, b = (a if a is None else a.reshape([-1]) for a in (w, b))
    y = F.layer_norm(x, x.shape[1:], w, b, problem.eps)
    return {"y": y, **statistics(problem, x, list(range(1, x.ndim)))}


def cross_entropy(problem, x, w, target):
    options = {"ignore_index": problem.ignore_index, "reduction": problem.reduction}
    y = F.cross_entropy(x, target, w, axis=1, **options)
    return {"y": y.reshape(problem.shape("y"))}


def plain(name, *fields):
    """Return an op that is a function; fields are those of the problem that it takes."""
    function = getattr(F, name)
    return lambda problem, x: {"y": function(x, *(getattr(problem, f) for f in fields))}


OPS = {
    "conv": conv,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_max_pool": adaptive_max_pool,
    "adaptive_avg_pool": adaptive_avg_pool,
    "unfold": unfold,
    "resize": resize,
    "batch_norm_eval": batch_norm_eval,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "cross_entropy": cross_entropy,
    "leaky_relu": plain("leaky_relu", "slope"),
    "gelu": lambda problem, x: {"y": F.gelu(x, problem.approximate == "tanh")},
    "softmax": plain("softmax", "dim"),
    "log_softmax": plain("log_softmax", "dim"),
    **{name: plain(name) for name in ("relu", "silu", "hardswish", "sigmoid", "tanh")},
}


RUNNING: list[bool] = []  # an entry for each function that is being differentiated


def vjp(function, at, cotangents):
    for tensor in at.values():
        tensor.stop_gradient = False
    RUNNING.append(True)
    try:
        results = function(at)
    finally:
        RUNNING.pop()
    outputs = [(results[role], dy) for role, dy in cotangents.items()]
    outputs = [(y, dy) for y, dy in outputs if not y.stop_gradient]
    if not outputs:
        return [None] * len(at)
    ys, dys = map(list, zip(*outputs))
    options = {"create_graph": bool(RUNNING), "allow_unused": True}
    return paddle.grad(ys, list(at.values()), dys, **options)


PADDLE = Autodiff(paddle.to_tensor, lambda tensor: tensor.numpy(), vjp)
supports = refusals("""
math != ieee | PaddlePaddle computes as the processor does
dt != f32, dt != f64 | the kernels of the CPU are of float32 and float64
op = conv, flip = 1 | PaddlePaddle flips no filter
op = conv, c = 0 | filters need elements
op = conv, k = 0 | filters need elements
op = conv, rank = 3, pass = double_backward | no second derivative
op = conv, t = 1, pass = double_backward | no second derivative
op in max_pool adaptive_max_pool cross_entropy, pass = double_backward | no second derivative
op in gelu softmax log_softmax hardswish, pass = double_backward | no second derivative
op in adaptive_avg_pool avg_pool, pass = double_backward | no second derivative of every rank
op in resize group_norm layer_norm batch_norm_eval, pass = double_backward | no second derivative
op in batch_norm_eval group_norm layer_norm, dt = f64 | epsilon is kept in float32
size = 0 | the adapter does not support empty images
op in max_pool avg_pool, any.d >= 2 | PaddlePaddle dilates no pool
op in max_pool avg_pool, any.empty_windows >= 1 | the library does not define empty windows
op = avg_pool, rank = 1, div != 0 | avg_pool1d takes no divisor
op = unfold, rank != 2 | unfold has two axes
op = resize, aa = 1 | PaddlePaddle has no antialias
op = resize, coord in half_pixel_symmetric tf_crop_and_resize | no such coordinates
op = resize, coord = half_pixel, any.o = 1 | the one output of an axis is its first element
op = resize, mode = area | its area is adaptive_avg_pool
op = resize, mode = cubic, rank != 2 | bicubic has two axes
op = resize, mode = cubic, xo = 1 | the edge is repeated
op = resize, mode = cubic, coord = asymmetric | bicubic has half pixels and corners
op = resize, mode = cubic, any.o = 1 | the one output of an axis is its first element
op = resize, mode = nearest, rank = 1 | nearest has two axes or three
op = resize, mode = nearest, coord != asymmetric | nearest is asymmetric
op = resize, mode = nearest, near != float32 | positions are rounded in float32
op in leaky_relu hardswish, pass != fprop | other slopes at the corners
""")


def unlike(call):
    """Return what a table of regions cannot say, or None."""
    problem = call.problem
    if min((min(pair) for pair in getattr(problem, "padding", ())), default=0) < 0:
        return "PaddlePaddle crops nothing by padding"
    extra = zip(getattr(problem, "output_padding", ()), getattr(problem, "stride", ()))
    if any(size and size >= stride for size, stride in extra):
        return "output padding is below the stride"
    if call.op == "max_pool" and any(lo != hi for lo, hi in problem.padding):
        return "max pooling with indices supports only equal padding at both ends"
    if getattr(problem, "ceil", False):
        sizes = zip(problem.input, problem.padding, problem.filter, problem.stride)
        whole = tuple(-(-(size + sum(pair) - f) // s) + 1 for size, pair, f, s in sizes)
        if whole != problem.output:
            return "PaddlePaddle's last window may begin in the padding"
    if call.op == "conv" and call.pass_ == "double_backward" and problem.groups == problem.c > 1:
        return "depthwise convolutions have no second derivative"
    if call.op == "resize" and (problem.scale or (problem.mode == "cubic" and problem.a != -0.75)):
        return "PaddlePaddle has no scale, and only a = -0.75"
    if call.op == "layer_norm" and problem.eps > 1e-3:
        return "epsilon is at most 0.001"
    if getattr(problem, "label_smoothing", 0):
        return "labels are not smoothed here"
    return None


class Paddle:
    name = "paddle"

    def supports(self, call):
        if call.op not in OPS or call.pass_ not in PADDLE.passes:
            return f"PaddlePaddle has no {call.op}.{call.pass_}"
        return supports(call) or unlike(call)

    def run(self, call, *operands):
        return PADDLE.run(OPS[call.op], call, *operands)

    def numerics(self, call):
        in_float32 = {"positions": 2.0**-24, "weights": 2.0**-24} if call.op == "resize" else {}
        return Numerics("rn64" if call.dtype == "f64" else "rn32", **in_float32)

    def fingerprint(self):
        return {"paddle": paddle.__version__, "device": paddle.get_device()}


backend = Paddle()
