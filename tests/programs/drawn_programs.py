"""Random programs of 2 to 8 operations, which PyTorch and JAX can both run."""

from __future__ import annotations

import random
from types import SimpleNamespace

import torch
from torch.nn import functional as F

MATRIX, IMAGE = (24, 40), (2, 4, 12, 10)

# By name: a function of the library, the last result, the first operand and further operands, and
# the shapes of these.
_ANY = {
    "residual": (lambda t, x, first: x + first,),
    "difference": (lambda t, x, first: first - x * 0.5,),
    "gate": (lambda t, x, first: x * t.sigmoid(first),),
    "quotient": (lambda t, x, first: x / (1 + t.abs(first)),),
    "relu": (lambda t, x, first: t.relu(x),),
    "tanh": (lambda t, x, first: t.tanh(x),),
    "gelu": (lambda t, x, first: t.gelu(x),),
    "silu": (lambda t, x, first: t.silu(x),),
    "exp": (lambda t, x, first: t.exp(-t.abs(x)),),
    "sqrt": (lambda t, x, first: t.sqrt(x * x + 1),),
    "softmax": (lambda t, x, first: t.softmax(x, -1),),
    "log_softmax": (lambda t, x, first: t.log_softmax(x, -1),),
    "layer_norm": (lambda t, x, first: t.layer_norm(x),),
    "centered": (lambda t, x, first: x - t.mean(x, axis=-1, keepdims=True),),
    "scan": (lambda t, x, first: t.cumsum(x, axis=-1) * 0.1,),
    "total": (lambda t, x, first: x + t.sum(x, axis=0),),
    "larger": (lambda t, x, first: t.maximum(x, first),),
    "chosen": (lambda t, x, first: t.where(x > 0.1, x, -x),),
}
_OF_MATRICES = {
    "product": (lambda t, x, first, w: x @ w, (40, 40)),
    "linear": (lambda t, x, first, w, b: t.relu(x @ w + b), (40, 40), (40,)),
    "gram": (lambda t, x, first: (x @ x.T) @ first / 40,),
}
_OF_IMAGES = {
    "conv": (lambda t, x, first, w: t.conv(x, w), (4, 4, 3, 3)),
    "max_pool": (lambda t, x, first: t.max_pool(x),),
    "avg_pool": (lambda t, x, first: t.avg_pool(x),),
    "batch_norm": (lambda t, x, first: t.batch_norm(x),),
}


def _named(module, names):
    return {name: getattr(module, name) for name in names.split()}


_TORCH = SimpleNamespace(
    **_named(torch, "sigmoid abs relu tanh exp sqrt mean cumsum sum maximum where"),
    **_named(F, "gelu silu softmax log_softmax"),
    layer_norm=lambda x: F.layer_norm(x, x.shape[-1:]),
    conv=lambda x, w: F.conv2d(x, w, padding=1),
    max_pool=lambda x: F.max_pool2d(x, 3, 1, 1),
    avg_pool=lambda x: F.avg_pool2d(x, 3, 1, 1),
    batch_norm=lambda x: F.batch_norm(x, None, None, training=True),
)


def _of_jax():
    import jax
    from jax import lax
    from jax import numpy as jnp

    def norm(axes):
        def normalized(x):
            far = x - x.mean(axes, keepdims=True)
            return far * lax.rsqrt((far * far).mean(axes, keepdims=True) + 1e-5)

        return normalized

    def pool(start, f):
        return lambda x: lax.reduce_window(
            x, start, f, (1, 1, 3, 3), (1,) * 4, [(0, 0)] * 2 + [(1, 1)] * 2
        )

    return SimpleNamespace(
        **_named(jnp, "abs tanh exp sqrt mean cumsum sum maximum where"),
        **_named(jax.nn, "sigmoid relu silu softmax log_softmax"),
        gelu=lambda x: jax.nn.gelu(x, approximate=False),
        layer_norm=norm((-1,)),
        conv=lambda x, w: lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)]),
        max_pool=pool(-float("inf"), lax.max),
        avg_pool=lambda x: pool(0.0, lax.add)(x) / 9,
        batch_norm=norm((0, 2, 3)),
    )


class Drawn:
    """A program of random operations.

    Parameters
    ----------
    seed : int
        Programs of matrices have even seeds, those of images odd ones.
    """

    def __init__(self, seed):
        chosen = random.Random(seed)
        self.rows = _ANY | (_OF_IMAGES if seed % 2 else _OF_MATRICES)
        self.names = chosen.choices(list(self.rows), k=chosen.randint(2, 8))
        self.shapes = [IMAGE if seed % 2 else MATRIX]
        self.shapes += [shape for name in self.names for shape in self.rows[name][1:]]

    def __call__(self, *operands):
        return self.run(_TORCH, operands)

    def run(self, library, operands):
        x, *rest = operands
        first, more = x, iter(rest)
        for name in self.names:
            f, *shapes = self.rows[name]
            x = f(library, x, first, *(next(more) for _ in shapes))
        return x

    def arguments(self, dtype, seed, kind):
        """Return normal numbers or small integers."""
        made = torch.Generator().manual_seed(seed)
        if kind == "integers":
            return tuple(torch.randint(-3, 4, s, generator=made).to(dtype) for s in self.shapes)
        return tuple(torch.randn(s, generator=made).to(dtype) for s in self.shapes)


def xla(program):
    """Return a program as XLA compiles it for the CPU."""
    import jax
    import numpy as np

    library = _of_jax()
    compiled = jax.jit(lambda *operands: program.run(library, operands))

    def run(_, *args):
        return torch.from_numpy(np.array(compiled(*(a.numpy() for a in args))))

    return run


def inductor(program):
    """Return a program as PyTorch's compiler makes it for the CPU, with a C++ compiler."""
    compiled = torch.compile(lambda *args: program(*args), dynamic=False)
    return lambda _, *args: compiled(*args)
