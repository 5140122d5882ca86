"""Scaled dot-product attention, in one piece or in blocks with a running maximum."""

import math
from typing import Any

import torch

from ..pair import Op, Pair, Tensor
from .arithmetic import add, mul
from .products import products
from .softmax import logsumexp, softmax
from .table import rule


@rule("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math")
def attention(
    op: Op,
    q: Pair,
    k: Pair,
    v: Pair,
    *settings: Any,
    attn_mask: Pair | None = None,
    scale: float | None = None,
) -> tuple[Pair, Pair | None]:
    """Return softmax(q k scale + mask) v; probabilities may be rounded to the dtype."""
    flags = [s for s in settings if isinstance(s, bool)]
    held = op.of(op.held)
    factor = 1 / math.sqrt(q.value.shape[-1]) if scale is None else scale
    scores = products(held, _times_transposed, q, k, q.value.shape[-1])
    scores = mul(held, mul(held, scores, factor), 1.0)
    size = scores.value.shape[-2:]
    if flags and flags[0]:
        causal = torch.ones(size, dtype=torch.bool).tril()
        scores = scores._replace(value=scores.value.masked_fill(~causal, -math.inf))
        error = torch.as_tensor(scores.slack).expand(scores.value.shape)
        scores = scores._replace(error=error.masked_fill(~causal, 0.0))
    if attn_mask is not None:
        scores = add(held, scores, attn_mask)
    p = softmax(held, scores, -1, steps=size[-1])  # a block scales what is there by a power
    if op.dtype != op.held:
        p = p._replace(error=p.slack + torch.finfo(op.dtype).eps / 2 * p.magnitude)
    out = products(op, torch.matmul, p, v, size[-1])
    return out, logsumexp(held, scores, -1)


def _times_transposed(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)
