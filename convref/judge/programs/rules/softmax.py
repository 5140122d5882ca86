"""Softmax, its logarithm, and the logarithm of a sum of exponentials."""

from typing import Any, NamedTuple

import torch

from ..pair import Op, Pair, Tensor
from .pointwise import POINTWISE
from .table import rule


class _Parts(NamedTuple):
    """What the bounds of all three consist of, along the axes of one sum."""

    p: Tensor  # softmax
    far: Tensor  # how far an element is below the largest, at most
    shift: Any  # by how much errors of the operands may move the logarithm of the sum
    total: Tensor  # the mean of 1 + far, weighted with p
    log: Tensor  # the logarithm of the sum of exp(x - max)
    n: int


def _parts(x: Pair, dim: Any) -> _Parts:
    wide = x.wide
    top = wide.amax(dim, keepdim=True)
    top = torch.where(top.isinf(), 0.0, top)
    powers = (wide - top).exp_()
    sums = powers.sum(dim, keepdim=True)
    p, shift, far = powers / sums, 0.0, (top - wide).abs_()
    if x.error is not None:
        shift = (p * x.error.exp()).sum(dim, keepdim=True).log()
        far = far + 2 * x.error.amax(dim, keepdim=True)
    size = torch.where(p > 0, p * (1 + far), 0.0)
    count = wide.numel() // max(1, sums.numel())
    return _Parts(p, far, shift, size.sum(dim, keepdim=True), sums.log(), 2 * count + POINTWISE)


@rule("_softmax", "_safe_softmax")
def softmax(op: Op, x: Pair, dim: int, *_: Any, steps: int = 0, **__: Any) -> Pair:
    """Return p; log p moves by at most the errors of x and of the logarithm of the sum."""
    parts = _parts(x, dim)
    p, error = parts.p, 0.0
    size = torch.where(p > 0, p * (1 + parts.far + parts.total), 0.0)
    if x.error is not None:
        error = p * torch.expm1(x.error + parts.shift)
        size = torch.where(p > 0, size * torch.exp(x.error + parts.shift), 0.0)
    return op.rounded(p, error, size, parts.n + steps, stages=1)


@rule("_log_softmax")
def log_softmax(op: Op, x: Pair, dim: int, *_: Any) -> Pair:
    parts = _parts(x, dim)
    value = torch.log_softmax(x.wide, dim)
    size = parts.far + parts.log.abs() + parts.total
    return op.rounded(value, x.slack + parts.shift, size, parts.n, stages=1)


@rule("logsumexp")
def logsumexp(op: Op, x: Pair, dim: Any, keepdim: bool = False) -> Pair:
    parts = _parts(x, dim)
    value = torch.logsumexp(x.wide, dim, keepdim=True)
    size = value.abs() + (value - parts.log).abs() + parts.log.abs() + parts.total
    found = op.rounded(value, parts.shift, size, parts.n)
    return found if keepdim else _squeezed(found, dim)


def _squeezed(pair: Pair, dim: Any) -> Pair:
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    error = None if pair.error is None else pair.error.squeeze(dims)
    return Pair(pair.value.squeeze(dims), error, pair.stored)
