"""Sums, means, products, scans, and the mean of squares."""

from typing import Any

import torch

from ..pair import Op, Pair, SumTerms, Tensor, store
from .arithmetic import div, mul, sub
from .sums import exact_sums, grain, largest_number, sums
from .table import rule


@rule("sum")
def sum_(op: Op, x: Pair, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Pair:
    """Return a sum along axes."""
    return sums(op, x, [dim] if isinstance(dim, int) else dim, keepdim)


@rule("mean")
def mean(op: Op, x: Pair, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Pair:
    """Return a mean along axes: a sum divided by its length."""
    dim = [dim] if isinstance(dim, int) else dim
    total = sums(op.with_dtype(op.accumulator), x, dim, keepdim)
    count = float(max(1, x.value.numel()) // max(1, total.value.numel()))
    return div(op, total, Pair(total.value.new_tensor(count)))


@rule("prod", "cumprod")
def prod(op: Op, x: Pair, *axes: Any, dtype: Any = None) -> Pair:
    """Return a product of elements, all or so far; it is linear in each of them.

    Partial products may have the dtype, as PyTorch's have on CPUs.
    """
    f = getattr(torch, op.name.rpartition(".")[2])
    value, largest, error = f(x.wide, *axes), f(x.magnitude, *axes), 0.0
    count = x.value.numel() // max(1, value.numel() if f is torch.prod else 1)
    if x.error is not None:
        error = largest - f(x.wide.abs(), *axes)
        error = error + op.with_dtype(torch.float64).gamma(count) * largest
    step = grain(x)
    exact = step == 1.0 and exact_sums(op, largest, 1.0, stages=1)
    return op.rounded(value, error, largest, count, exact, stages=count)


@rule("cumsum")
def cumsum(op: Op, x: Pair, dim: int, *, dtype: Any = None) -> Pair:
    """Return sums so far, in any order and grouping."""

    def f(t: Tensor) -> Tensor:
        return t.cumsum(dim)

    largest, step = f(x.magnitude), grain(x)
    n = f((x.magnitude != 0).to(torch.float64))
    exact = exact_sums(op, largest, step) if step else n <= 1
    found = op.rounded(f(x.wide), 0.0 if x.error is None else f(x.error), largest, n, exact)
    return found._replace(terms=SumTerms(largest, largest_number(n), 0, step))


@rule("mse_loss")
def mse_loss(op: Op, x: Pair, y: Pair, reduction: int = 1) -> Pair:
    """Return squares of differences, their mean or sum; both may be rounded to the dtype."""
    difference = store(sub(op, x, y), op.dtype, op.numerics)
    squares = mul(op, difference, difference)
    if reduction == 0:
        return squares
    return (mean if reduction == 1 else sums)(op, store(squares, op.dtype, op.numerics))
