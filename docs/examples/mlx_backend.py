"""MLX in the court, on the CPU: convolutions, pools and activations, in every pass.

cd docs/examples && convref check mlx_backend:backend --op conv,pool,activation
"""

from importlib.metadata import version

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from convref import Numerics
from convref.backends import Autodiff
from convref.knownbugs import refusals

mx.set_default_device(mx.cpu)


def vjp(function, at, cotangents):
    def results(*tensors):
        return [function(dict(zip(at, tensors)))[role] for role in cotangents]

    return mx.vjp(results, list(at.values()), list(cotangents.values()))[1]


MLX = Autodiff(lambda array: mx.array(np.array(array)), lambda tensor: np.array(tensor), vjp)


def conv(problem, x, w, b):
    pads = [[pair[end] for pair in problem.padding] for end in (0, 1)]
    options = {"kernel_dilation": problem.dilation, "groups": problem.groups, "flip": problem.flip}
    x, w = mx.moveaxis(x, 1, -1), mx.moveaxis(w, 1, -1)  # channels last
    y = mx.conv_general(x, w, problem.stride, pads, **options)
    return {"y": mx.moveaxis(y if b is None else y + b, -1, 1)}


def pool(name):
    def compute(problem, x):
        layer = getattr(nn, f"{name}Pool{problem.rank}d")
        sizes = problem.filter, problem.stride, [lo for lo, _ in problem.padding]
        return {"y": mx.moveaxis(layer(*sizes)(mx.moveaxis(x, 1, -1)), -1, 1)}

    return compute


def plain(name, **options):
    def compute(problem, x):
        given = {key: getattr(problem, field) for key, field in options.items()}
        return {"y": getattr(nn, name)(x, **given)}

    return compute


WORDS = "relu silu mish elu celu selu sigmoid tanh softsign hardswish gelu"
OPS = {"conv": conv, "max_pool": pool("Max"), "avg_pool": pool("Avg")}
OPS |= {name: plain(name) for name in WORDS.split()}
OPS |= {name: plain(name, axis="dim") for name in ("softmax", "log_softmax")}
OPS["softshrink"] = plain("softshrink", lambd="lambd")
supports = refusals("""
dt != f32, dt != f16 | the adapter passes float32 and float16
math != ieee | the CPU computes as it does
op = conv, t = 1 | the adapter has no transposed convolution
op = conv, any.lo < 0 | MLX crops nothing
op = conv, any.hi < 0 | MLX crops nothing
op = max_pool, pass = fprop | MLX returns no indices
op in max_pool avg_pool, any.d >= 2 | MLX dilates no windows
op in max_pool avg_pool, ceil = 1 | MLX rounds sizes down
op in max_pool avg_pool, any.empty_windows >= 1 | the library does not define empty windows
op = avg_pool, cip = 0 | MLX counts padding
op = avg_pool, div != 0 | MLX takes no divisor
op = gelu, approx != none | gelu_approx is another function
op in elu celu, alpha != 1 | the adapter passes no alpha
size = 0 | the adapter does not support empty images
""")


class Mlx:
    name = "mlx"
    chunk = 64  # examples that a worker takes at a time

    def supports(self, call):
        if call.op not in OPS or call.pass_ not in MLX.passes:
            return f"the adapter has no {call.op}.{call.pass_}"
        padding = getattr(call.problem, "padding", ())
        if "pool" in call.op and any(lo != hi for lo, hi in padding):
            return "MLX pads both ends of a pool alike"
        return supports(call)

    def run(self, call, *operands):
        return MLX.run(OPS[call.op], call, *operands)

    def numerics(self, call):
        steps = max(map(call.products, call.wanted)) + 48  # between which float16 is rounded
        return Numerics("rn32", stages=steps if call.dtype == "f16" else 0, growth=8.0)

    def fingerprint(self):
        return {"mlx": version("mlx"), "device": "cpu"}


backend = Mlx()
