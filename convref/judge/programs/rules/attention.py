"""Scaled dot-product attention, in one piece or in blocks with a running maximum."""

import math
from typing import Any

import torch

from ..pair import Op, Pair, Tensor
from .arithmetic import add, mul, scaled, sub
from .products import products
from .softmax import logsumexp, softmax
from .sums import sums
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
    is_causal = any(s for s in settings if isinstance(s, bool))
    p, scores = _probabilities(op, q, k, is_causal, attn_mask, scale)
    out = products(op, torch.matmul, p, v, k.value.shape[-2])
    return out, logsumexp(op.with_dtype(op.accumulator), scores, -1)


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    op: Op,
    dy: Pair,
    q: Pair,
    k: Pair,
    v: Pair,
    y: Pair,
    logsumexp: Pair,
    dropout: float,
    is_causal: bool,
    *,
    attn_mask: Pair | None = None,
    scale: float | None = None,
) -> tuple[Pair, ...]:
    """Return the derivatives by q, k and v; the sum of p dp is that of dy y."""
    acc, length = op.with_dtype(op.accumulator), k.value.shape[-2]
    p, _ = _probabilities(op, q, k, is_causal, attn_mask, scale)
    dp = products(acc, _times_transposed, dy, v, v.value.shape[-1])
    sums_ = [sums(acc, mul(acc, a, b), [-1], True) for a, b in ((p, dp), (dy, y))]
    error = torch.maximum(*(torch.as_tensor(s.slack) + 0 * sums_[0].wide for s in sums_))
    ds = _rounded(op, mul(acc, p, sub(acc, dp, Pair(sums_[0].value, error))))

    def transposed(a: Tensor, b: Tensor) -> Tensor:
        return a.transpose(-1, -2) @ b

    factor = _factor(q, scale)
    dq = scaled(op, products(acc, torch.matmul, ds, k, length), factor)
    dk = scaled(op, products(acc, transposed, ds, q, q.value.shape[-2]), factor)
    return dq, dk, products(op, transposed, p, dy, q.value.shape[-2])


def _factor(q: Pair, scale: float | None) -> float:
    return 1 / math.sqrt(q.value.shape[-1]) if scale is None else scale


def _rounded(op: Op, p: Pair) -> Pair:
    """Return a pair that may be rounded to the dtype before it is an operand of a product."""
    if op.dtype == op.accumulator:
        return p
    return p._replace(error=p.slack + torch.finfo(op.dtype).eps / 2 * p.magnitude)


def _probabilities(
    op: Op, q: Pair, k: Pair, is_causal: bool, attn_mask: Pair | None, scale: float | None
) -> tuple[Pair, Pair]:
    """Return softmax(q k scale + mask), and its argument."""
    acc = op.with_dtype(op.accumulator)
    scores = products(acc, _times_transposed, q, k, q.value.shape[-1])
    scores = mul(acc, mul(acc, scores, _factor(q, scale)), 1.0)
    size = scores.value.shape[-2:]
    if is_causal:
        causal = scores.value.new_ones(size, dtype=torch.bool).tril()
        scores = scores._replace(value=scores.value.masked_fill(~causal, -math.inf))
        error = torch.as_tensor(scores.slack).expand(scores.value.shape)
        scores = scores._replace(error=error.masked_fill(~causal, 0.0))
    if attn_mask is not None:
        scores = add(acc, scores, attn_mask)
    p = softmax(acc, scores, -1, steps=size[-1])  # a block scales what is there by a power
    return _rounded(op, p), scores


def _times_transposed(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)
