"""Wrong attention: a mask, a maximum, a factor or a head that is not the right one."""

from functools import partial

import numpy as np

from convref.case import Call
from convref.conformance.mutations import Array
from convref.ops import Problem
from convref.oracle import attention as formulas

from .base import Fault, with_functions

TILE = 4  # keys that a kernel reads at once
AttentionFault = partial(Fault, ops=("sdpa",))
_weights, _scores, _heads = formulas.weights, formulas.scores, formulas.heads


def _softmax(a: Array, kept: Array, top: Array) -> Array:
    powers = np.where(kept, np.exp(np.where(kept, a - top, 0)), 0)
    return powers / powers.sum(axis=-1, keepdims=True)


def _one_more(a: Array, problem: Problem) -> Array:
    if not problem.causal:
        return _weights(a, problem)
    kept = np.tri(*a.shape[-2:], k=1, dtype=bool)
    return _softmax(a, kept, a.max(axis=-1, keepdims=True))


def _stale_maximum(a: Array, problem: Problem) -> Array:
    """Rescale the sum of the first tile, but not the products with its values."""
    p = _weights(a, problem)
    first, rest = a[..., :TILE], a[..., TILE:]
    change = rest.max(axis=-1, keepdims=True) - first.max(axis=-1, keepdims=True)
    return np.concatenate([p[..., :TILE] * np.exp(np.maximum(change, 0)), p[..., TILE:]], -1)


def _without_root(x: Array, k: Array, b: Array | None, problem: Problem) -> Array:
    plain = _scores(x, k, None, problem) / np.sqrt(x.dtype.type(problem.input[1]))
    return plain + (0 if b is None else b)


def _interleaved(a: Array, problem: Problem) -> Array:
    return np.tile(a, (1, problem.groups, 1, 1))


def _masked(call: Call) -> bool:
    length, keys = call.problem.input[0], call.problem.source[0]
    return call.pass_ == "fprop" and call.problem.causal and length > 0 and keys > 1


ROWS = (
    AttentionFault(
        "sdpa_causal_mask",
        "the causal mask lets each query see one key more",
        "sdpa.fprop:n1c1_i1x1_o2x1:causal=1",
        _masked,
        with_functions(formulas, weights=_one_more),
    ),
    AttentionFault(
        "sdpa_stale_maximum",
        "products with the values of a tile keep the maximum before a larger one",
        "sdpa.fprop:n1c1_i1x1_o5x1:seed=1",
        lambda call: (
            call.pass_ == "fprop" and call.problem.source[0] > TILE and not call.problem.causal
        ),
        with_functions(formulas, weights=_stale_maximum),
    ),
    AttentionFault(
        "sdpa_scale",
        "the factor is 1 / E, not its root",
        "sdpa.fprop:n1c1_i1x2_o2x1:seed=19",
        lambda call: (
            call.pass_ == "fprop" and call.problem.scale is None and call.problem.input[1] > 1
        ),
        with_functions(formulas, scores=_without_root),
    ),
    AttentionFault(
        "sdpa_heads",
        "grouped heads are interleaved, not neighbours",
        "sdpa.fprop:n1c4g2_i1x1_o1x1",
        lambda call: (
            call.pass_ == "fprop"
            and call.problem.groups > 1
            and call.problem.groups < call.problem.c
        ),
        with_functions(formulas, heads=_interleaved),
    ),
)
