"""fla-core (pip install fla-core): chunked and fused linear attention beside its own formulas."""

import importlib
import inspect
from functools import partial

import torch
import torch.nn.functional as F
from fla.modules import activations, l2norm, rotary

from corpora import leaf, with_gradients

B, T, H, K = 1, 72, 2, 16
# Name of an operand: how to draw it.
HEADS = (B, T, H)
DRAW = {
    "g": lambda: F.logsigmoid(torch.randn(*HEADS)),
    "gk": lambda: F.logsigmoid(torch.randn(*HEADS, K)),
    "beta": lambda: torch.rand(*HEADS),
    "s": lambda: torch.randn(*HEADS, K),
    "k": lambda: F.normalize(torch.randn(*HEADS, K), dim=-1),
    "u": lambda: torch.randn(H, K),
    "w": lambda: F.logsigmoid(torch.randn(*HEADS, K)),
    "b": lambda: torch.rand(*HEADS, K),
    "hidden": lambda: torch.randn(B, T, K),
    "log_alpha": lambda: F.logsigmoid(torch.randn(*HEADS)),
    "log_mu": lambda: F.logsigmoid(torch.randn(*HEADS)),
}
# Module of the formula, formula, operands, and what is compared with it.
ROWS = (
    ("abc", "naive_recurrent_abc", "q k v s", "chunk.chunk_abc"),
    ("attn", "naive_parallel_attn", "q k v", "parallel.parallel_attn"),
    ("based", "naive_parallel_based", "q k v",
     "parallel.parallel_based fused_chunk.fused_chunk_based"),
    ("comba", "naive_chunk_comba", "q k v p g beta",
     "chunk.chunk_comba fused_recurrent.fused_recurrent_comba"),
    ("delta_rule", "delta_rule_recurrence", "q k v beta",
     "chunk.chunk_delta_rule fused_recurrent.fused_recurrent_delta_rule"),
    ("forgetting_attn", "naive_forgetting_attn", "q k v g", "parallel.parallel_forgetting_attn"),
    ("gated_delta_rule", "naive_recurrent_gated_delta_rule", "q k v beta g",
     "chunk.chunk_gated_delta_rule fused_recurrent.fused_recurrent_gated_delta_rule"),
    ("gla", "naive_recurrent_gla", "q k v gk",
     "fused_recurrent.fused_recurrent_gla"),
    ("gsa", "naive_recurrent_gsa", "q k v s",
     "chunk.chunk_gsa fused_recurrent.fused_recurrent_gsa"),
    ("hgrn", "naive_recurrent_hgrn", "hidden:x hidden:g",
     "chunk.chunk_hgrn fused_recurrent.fused_recurrent_hgrn"),
    ("kda", "naive_recurrent_kda", "q k v gk:g beta",
     "chunk.chunk_kda fused_recurrent.fused_recurrent_kda"),
    ("linear_attn", "naive_recurrent_linear_attn", "q k v",
     "chunk.chunk_linear_attn fused_chunk.fused_chunk_linear_attn "
     "fused_recurrent.fused_recurrent_linear_attn"),
    ("momentum_delta_rule", "recurrent_momentum_delta_rule_ref", "q k v log_alpha log_mu k:p",
     "chunk.chunk_momentum_delta_rule"),
    ("parallax", "naive_parallax", "q q:r k v", "parallel.parallel_parallax"),
    ("rebased", "naive_parallel_rebased", "q k v", "parallel.parallel_rebased"),
    ("retention", "naive_retention", "q k v",
     "chunk.chunk_retention parallel.parallel_retention fused_recurrent.fused_recurrent_retention"
     " fused_chunk.fused_chunk_retention"),
    ("simple_gla", "naive_recurrent_simple_gla", "q k v g",
     "chunk.chunk_simple_gla fused_recurrent.fused_recurrent_simple_gla "
     "parallel.parallel_simple_gla fused_chunk.fused_chunk_simple_gla"),
    ("stickbreaking_attn", "naive_stickbreaking_attn", "q k v",
     "parallel.parallel_stickbreaking_attn"),
    ("wall_attn", "naive_wall_attn", "q k v gk:g", "parallel.parallel_wall_attn"),
    ("gdn2", "naive_recurrent_gdn2", "q k v gk:g b b:w",
     "chunk.chunk_gdn2 fused_recurrent.fused_recurrent_gdn2"),
)  # fmt: skip
HEADS_FIRST = ("abc", "based", "delta_rule", "rebased", "retention")  # the formulas
FORWARD_ONLY = ("fused_recurrent_comba", "fused_recurrent_gated_delta_rule", "fused_recurrent_kda",
                "fused_recurrent_gdn2")  # fmt: skip
SHORT = ("chunk_delta_rule", "chunk_momentum_delta_rule", "parallel_parallax")  # take no float32


def cases():
    """Yield attention of many kinds, forward and backward, then layers."""
    for package, formula, words, names in ROWS:
        for name in names.split():
            module, _, function = name.partition(".")
            yield (
                f"{package}.{function}",
                partial(attention, package, formula, words, module, function),
            )
    yield from ((f"activations.{n}", partial(activation, n)) for n in ACTIVATIONS)
    yield (
        "l2norm",
        lambda: with_gradients(
            l2norm.l2norm,
            lambda a: a * torch.rsqrt((a * a).sum(-1, keepdim=True) + 1e-6),
            leaf(6, 40),
        ),
    )
    yield "rotary", rotation


def drawn(word):
    """Return (name, tensor) of an operand `name`, or of `kind:name` drawn like another."""
    kind, _, name = word.partition(":")
    return name or kind, DRAW.get(kind, lambda: torch.randn(*HEADS, K))()


def attention(package, formula, words, module, function):
    ops = f"fla.ops.{package}"
    reference = getattr(importlib.import_module(f"{ops}.naive"), formula)
    ours = getattr(importlib.import_module(f"{ops}.{module}"), function)
    names, values = zip(*(drawn(word) for word in words.split()))

    def called(run):
        known = inspect.signature(run).parameters
        more = {"scale": K**-0.5, "normalize": False, "use_normalize": True}
        more = {name: value for name, value in more.items() if name in known}

        def call(*given):
            if swaps := run is reference and package in HEADS_FIRST:
                given = [a.transpose(1, 2) for a in given]
            out = run(**{n: a for n, a in zip(names, given) if n in known}, **more)
            out = out[0] if isinstance(out, tuple) else out
            return out.transpose(1, 2) if swaps else out

        return call

    values = [v.bfloat16() if function in SHORT else v for v in values]
    trained = [v.requires_grad_(function not in FORWARD_ONLY) for v in values]
    return with_gradients(called(ours), called(reference), *trained)


ACTIVATIONS = {"swish": F.silu, "sigmoid": torch.sigmoid, "logsigmoid": F.logsigmoid}


def activation(name):
    return with_gradients(getattr(activations, name), ACTIVATIONS[name], leaf(6, 40))


def rotation():
    x, angles = leaf(2, 24, 2, 32), torch.randn(24, 16)
    cos, sin = angles.cos(), angles.sin()

    def reference(a):
        left, right = a.chunk(2, -1)
        c, s = cos[:, None], sin[:, None]
        return torch.cat([left * c - right * s, left * s + right * c], -1)

    return with_gradients(lambda a: rotary.rotary_embedding(a, cos, sin), reference, x)
