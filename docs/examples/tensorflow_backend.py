"""TensorFlow in the court: tf.nn and tf.image, eager, on the CPU.

    cd docs/examples && convref check tensorflow_backend:backend --seconds 300

Images go in with channels last, as TensorFlow's CPU kernels have them; padding is a word where it
is one of TensorFlow's, else explicit where the kernel takes that, else tf.pad.
"""

import os
from math import prod

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # what it says of itself when it is imported
import tensorflow as tf

from convref import Numerics
from convref.backends import Autodiff
from convref.dtypes import INTEGERS
from convref.knownbugs import refusals

tf.config.threading.set_intra_op_parallelism_threads(1)
FORMAT = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


def last(x):
    return tf.transpose(x, [0, *range(2, x.shape.rank), 1])


def first(x):
    return tf.transpose(x, [0, x.shape.rank - 1, *range(1, x.shape.rank - 1)])


def word(problem):
    """Return TensorFlow's word for a padding, or None."""
    if not any(map(any, problem.padding)):
        return "VALID"
    for size, taps, stride, dilation, pair in zip(
        problem.input, problem.filter, problem.stride, problem.dilation, problem.padding
    ):
        reach = (-(-size // stride) - 1) * stride + dilation * (taps - 1) + 1
        total = max(reach - size, 0)
        if pair != (total // 2, total - total // 2):
            return None
    return "SAME"


def edges(problem):
    return [(0, 0), *problem.padding, (0, 0)]


def explicit(problem):
    """Return whether kernels take any padding: those of two axes, dense and without groups, do."""
    return problem.rank == 2 and set(problem.dilation) == {1} and getattr(problem, "groups", 1) == 1


def conv(problem, x, w, b):
    rank = problem.rank
    x, w = last(x), tf.transpose(w, [*range(2, rank + 2), 1, 0])
    options = {"data_format": FORMAT[rank]}
    if problem.transposed:
        options |= {"dilations": problem.dilation, "strides": problem.stride}
        sides = zip(problem.output, problem.padding)
        size = [problem.n, *(out + sum(pair) for out, pair in sides), problem.k]
        y = tf.nn.conv_transpose(x, w, size, padding="VALID", **options)
        crop = [slice(lo, lo + out) for out, (lo, _) in zip(problem.output, problem.padding)]
        y = y[(slice(None), *crop)]
    else:
        strides, dilations = problem.stride, problem.dilation
        if rank > 1:
            strides, dilations = (1, *strides, 1), (1, *dilations, 1)
        padding = word(problem) or (edges(problem) if explicit(problem) else "VALID")
        x = x if word(problem) or explicit(problem) else tf.pad(x, edges(problem))
        function = getattr(tf.nn, f"conv{rank}d")
        y = function(x, w, strides, padding, dilations=dilations, **options)
    return {"y": first(y if b is None else tf.nn.bias_add(y, b))}


def pool(problem, x, kind):
    """Dilated windows are tf.nn.pool's."""
    if set(problem.dilation) != {1}:
        options = {"padding": word(problem), "dilations": problem.dilation}
        return first(tf.nn.pool(last(x), problem.filter, kind.upper(), problem.stride, **options))
    function = getattr(tf.nn, f"{kind}_pool{problem.rank}d")
    padding = word(problem) or edges(problem)
    return first(function(last(x), problem.filter, problem.stride, padding))


def max_pool(problem, x):
    found = {"y": pool(problem, x, "max")}
    if explicit(problem) and word(problem):
        window = (problem.filter, problem.stride, word(problem))
        at = tf.nn.max_pool_with_argmax(tf.stop_gradient(last(x)), *window, output_dtype=tf.int64)[
            1
        ]
        found["indices"] = first(at // problem.c)
    return found


def unfold(problem, x):
    x = tf.pad(last(x), edges(problem))
    sizes = ([1, *field, 1] for field in (problem.filter, problem.stride, problem.dilation))
    patches = tf.image.extract_patches(x, *sizes, "VALID")
    parts = tf.reshape(patches, [problem.n, prod(problem.output), prod(problem.filter), problem.c])
    return {"cols": tf.reshape(tf.transpose(parts, [0, 3, 2, 1]), problem.shape("cols"))}


RESIZES = {"linear": "ResizeBilinear", "cubic": "ResizeBicubic", "nearest": "ResizeNearestNeighbor"}
SCALED = {"linear": "bilinear", "cubic": "bicubic"}


def resize(problem, x):
    image, size = last(x), problem.output
    if problem.coord == "tf_crop_and_resize":
        frames = problem.roi or ((0.0, 1.0),) * 2
        boxes = [[frame[end] for end in (0, 1) for frame in frames]] * problem.n
        y = tf.image.crop_and_resize(image, np.reshape(boxes, (-1, 4)), range(problem.n), size)
    elif problem.antialias:
        y = tf.image.resize(image, size, SCALED[problem.mode], antialias=True)
    elif problem.mode == "area":
        y = tf.raw_ops.ResizeArea(images=image, size=size)
    else:
        centers = {"half_pixel_centers": problem.coord == "half_pixel"}
        centers["align_corners"] = problem.coord == "align_corners"
        y = getattr(tf.raw_ops, RESIZES[problem.mode])(images=image, size=size, **centers)
    return {"y": tf.cast(first(y), x.dtype)}


def batch_norm(problem, x, w, b, rmean, rvar):
    """Normalise data of any type in float32, as this kernel does."""
    given = zip((w, b, rmean, rvar), (1.0, 0.0, 0.0, 1.0))
    each = [tf.fill([problem.c], v) if a is None else tf.cast(a, tf.float32) for a, v in given]
    image = tf.reshape(last(x), [problem.n, -1, 1, problem.c])
    options = {"epsilon": problem.eps, "is_training": hasattr(problem, "momentum")}
    if options["is_training"]:
        options["exponential_avg_factor"] = problem.momentum
    names = ("scale", "offset", "mean", "variance")
    y, rmean, rvar, *_ = tf.raw_ops.FusedBatchNormV3(x=image, **dict(zip(names, each)), **options)
    y = first(tf.reshape(y, [problem.n, *problem.input, problem.c]))
    found = {"y": y, "rmean": rmean, "rvar": rvar}
    return found | statistics(problem, tf.cast(image, tf.float32), [0, 1, 2])


def statistics(problem, x, axes):
    mean, variance = tf.nn.moments(x, axes)
    return {"mean": mean, "rstd": tf.math.rsqrt(variance + problem.eps)}


def layer_norm(problem, x, w, b):
    axes = list(range(1, x.shape.rank))
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    y = tf.nn.batch_normalization(x, mean, variance, b, w, problem.eps)
    return {"y": y, **statistics(problem, x, axes)}


def group_norm(problem, x, w, b):
    parts = tf.reshape(x, [problem.n, problem.groups, problem.c // problem.groups, -1])
    mean, variance = tf.nn.moments(parts, [2, 3], keepdims=True)
    w, b = (a if a is None else tf.reshape(a, [problem.groups, -1, 1]) for a in (w, b))
    y = tf.nn.batch_normalization(parts, mean, variance, b, w, problem.eps)
    return {"y": tf.reshape(y, x.shape), **statistics(problem, parts, [2, 3])}


def cross_entropy(problem, x, w, target):
    kept = target != problem.ignore_index
    labels = tf.where(kept, target, tf.zeros_like(target))
    logits = last(tf.where(tf.expand_dims(kept, 1), x, tf.zeros_like(x)))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return {"y": tf.where(kept, losses, tf.zeros_like(losses))}


OPS = {
    "conv": conv,
    "max_pool": max_pool,
    "avg_pool": lambda problem, x: {"y": pool(problem, x, "avg")},
    "unfold": unfold,
    "resize": resize,
    "batch_norm": batch_norm,
    "batch_norm_eval": batch_norm,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "cross_entropy": cross_entropy,
    "leaky_relu": lambda problem, x: {"y": tf.nn.leaky_relu(x, problem.slope)},
    "gelu": lambda problem, x: {"y": tf.nn.gelu(x, problem.approximate == "tanh")},
    "softmax": lambda problem, x: {"y": tf.nn.softmax(x, problem.dim)},
    "log_softmax": lambda problem, x: {"y": tf.nn.log_softmax(x, problem.dim)},
    "relu": lambda problem, x: {"y": tf.nn.relu(x)},
    "silu": lambda problem, x: {"y": tf.nn.silu(x)},
    "sigmoid": lambda problem, x: {"y": tf.sigmoid(x)},
    "tanh": lambda problem, x: {"y": tf.tanh(x)},
}


def vjp(function, at, cotangents):
    with tf.GradientTape() as tape:
        tape.watch(list(at.values()))
        results = function(at)
    y, dy = [results[role] for role in cotangents], list(cotangents.values())
    return tape.gradient(y, list(at.values()), dy)


def jvp(function, at, tangents):
    with tf.autodiff.ForwardAccumulator(list(at.values()), list(tangents.values())) as forward:
        results = function(at)
    moved = {role: forward.jvp(y, tf.UnconnectedGradients.ZERO) for role, y in results.items()}
    return results, moved


TENSORFLOW = Autodiff(tf.convert_to_tensor, lambda tensor: tensor.numpy(), vjp, jvp)
supports = refusals("""
math != ieee | TensorFlow computes as the processor does
dt != f16, dt != bf16, dt != f32, dt != f64, dt != i32 | TensorFlow convolves four floats and int32
dt = i32, op != conv, op != unfold | integers are only convolved here
dt = i32, pass != fprop | integers have no derivative
op = conv, dt = i32, rank = 3 | conv3d takes floats
op = conv, dt = i32, t = 1 | the transposed convolution takes floats
op = conv, c = 0 | TensorFlow's filters need elements
op = conv, k = 0 | TensorFlow's filters need elements
op = conv, flip = 1 | TensorFlow flips no filter
op = conv, rank = 3, g >= 2 | conv3d has no groups
op = conv, dt in f16 f64, rank = 3, any.d >= 2 | conv3d dilates float32 and bfloat16
op = conv, dt in f16 f64, t = 1, any.d >= 2 | gradients dilate float32 and bfloat16
op = conv, dt in f16 f64, t = 1, g >= 2 | gradients have groups of float32 and bfloat16
op = conv, dt in f16 f64, pass in backward double_backward, any.d >= 2 | as above
op = conv, dt in f16 f64, pass in backward double_backward, g >= 2 | as above
op in max_pool avg_pool, ceil = 1 | TensorFlow rounds sizes down
op in max_pool avg_pool, any.empty_windows >= 1 | the library does not define empty windows
op in max_pool avg_pool, rank = 3, dt != f32, dt != bf16 | the kernels take no other
op = avg_pool, div != 0 | TensorFlow takes no divisor
op = max_pool, pass = fprop, rank != 2 | indices are those of two axes
op = unfold, rank != 2 | patches have two axes
op = resize, rank != 2 | TensorFlow resizes images
op = resize, coord = pytorch_half_pixel | TensorFlow has no such coordinates
op = resize, coord = half_pixel_symmetric | TensorFlow has no such coordinates
op = resize, mode = nearest, coord != half_pixel, coord != asymmetric | no such positions
op = resize, mode = nearest, near != float32 | positions are rounded in float32
op = resize, coord = tf_crop_and_resize, mode != linear | crop_and_resize is bilinear
op = resize, coord = tf_crop_and_resize, dt = bf16 | crop_and_resize takes no bfloat16
op = resize, pass in jvp double_backward | TensorFlow's gradients of a resize have no gradient
op = resize, mode = cubic, dt in f16 bf16, pass = backward | gradients of cubics are of float32
op = resize, aa = 1, dt in f16 bf16, pass = backward | gradients of antialias are of float32
op = resize, aa = 1, xo = 0 | TensorFlow leaves out what lies outside
op = resize, aa = 1, coord != half_pixel | TensorFlow stretches half pixels
op = resize, mode = area, pass != fprop | ResizeArea has no gradient
op = resize, dt = f64, mode != nearest | TensorFlow resizes to float32
op in batch_norm batch_norm_eval, dt = f64 | the kernel takes no float64
op = leaky_relu, dt = f64 | the slope is kept in float32
op in layer_norm group_norm, dt in f16 bf16 | moments are of the type of the data
op = cross_entropy, red != none | TensorFlow reduces nothing
size = 0, op != conv | the adapter does not support empty images
""")


IN_FLOAT32 = ("conv", "batch_norm", "batch_norm_eval", "resize")  # what is added, of bfloat16
STEPS = {"fprop": 12, "backward": 24, "jvp": 24, "double_backward": 48}  # more than formulas have


def unlike(call):
    """Return what a table of regions cannot say, or None."""
    problem = call.problem
    if min((min(pair) for pair in getattr(problem, "padding", ())), default=0) < 0:
        return "TensorFlow crops nothing by padding"
    if getattr(problem, "transposed", False):
        if any(op >= s for op, s in zip(problem.output_padding, problem.stride)):
            return "TensorFlow pads the output by less than the stride"
    elif call.op in ("max_pool", "avg_pool"):
        dilated, strided = (set(sizes) != {1} for sizes in (problem.dilation, problem.stride))
        if dilated and (strided or word(problem) != "VALID"):
            return "TensorFlow dilates windows without stride and padding"
        padded = not word(problem)
        if padded and not (
            call.op == "max_pool" and explicit(problem) and call.pass_ == "backward"
        ):
            return "TensorFlow pools with its own padding, max_pool2d with any"
        if call.op == "max_pool" and call.pass_ == "fprop" and dilated:
            return "TensorFlow has no indices of a dilated maximum"
        if call.op == "avg_pool" and word(problem) == "SAME" and problem.include_pad:
            return "TensorFlow's mean leaves out padding"
    elif call.op == "resize":
        cubic = {"half_pixel": (-0.5, True), "asymmetric": (-0.75, False)}
        rule = cubic.get(problem.coord.replace("align_corners", "asymmetric"))
        if problem.mode == "cubic" and (problem.a, problem.exclude) != rule:
            return "TensorFlow has a = -0.5 without what lies outside, or -0.75 with it"
        whole = (max(i, o) % min(i, o) == 0 for i, o in zip(problem.input, problem.output))
        if problem.scale or (problem.mode == "area" and not all(whole)):
            return "TensorFlow has no scale, and weights partly covered elements in mode area"
    elif call.op == "cross_entropy" and (problem.weight or problem.label_smoothing):
        return "TensorFlow's classes have no weights, its labels are not smoothed"
    return None


class TensorFlow:
    name = "tensorflow"

    def supports(self, call):
        if call.op not in OPS or call.pass_ not in TENSORFLOW.passes:
            return f"TensorFlow has no {call.op}.{call.pass_}"
        return supports(call) or unlike(call)

    def run(self, call, *operands):
        return TENSORFLOW.run(OPS[call.op], call, *operands)

    def numerics(self, call):
        if call.dtype in INTEGERS:
            return Numerics("exact")
        if call.dtype == "f64":
            return Numerics("rn64", ftz=True)
        stages = 0
        if call.dtype == "f16" or (call.dtype == "bf16" and call.op not in IN_FLOAT32):
            stages = max(map(call.products, call.wanted)) // 2 + STEPS[call.pass_]
        elif call.dtype == "bf16":  # sums of convolutions, and the bias that is added to them
            stages = STEPS[call.pass_] // 12
        # bicubic weights are those of 1,024 positions between two elements
        table = call.op == "resize" and call.problem.mode == "cubic" and not call.problem.antialias
        return Numerics("rn32", stages=stages, ftz=True, positions=2.0 ** -(11 if table else 24))

    def fingerprint(self):
        return {"tensorflow": tf.__version__, "device": "cpu"}


backend = TensorFlow()
