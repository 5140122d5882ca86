"""Arithmetic of elements: sums, products, quotients and powers."""

from typing import Any

import torch

from ..pair import Op, Pair, Tensor, gap, store, times
from .sums import added, distributed, grain
from .table import rule

DIVISION = 3  # roundings of a quotient: it may be the product with a reciprocal


def scaled(op: Op, x: Pair, factor: Any) -> Pair:
    """Return a product with a Python number, not yet rounded to the dtype."""
    if factor == 1:
        return x
    if factor == -1:
        return x._replace(value=-x.wide)  # an unsigned integer would wrap
    return mul(op.with_dtype(op.accumulator), x, factor)


@rule("add")
def add(op: Op, x: Any, y: Any, *, alpha: float = 1) -> Pair:
    """x + y, rounded once."""
    return added(op, op.pair(x), scaled(op, op.pair(y), alpha))


@rule("sub", "subtract")
def sub(op: Op, x: Any, y: Any, *, alpha: float = 1) -> Pair:
    """x - y, rounded once."""
    return add(op, x, y, alpha=-alpha)


@rule("rsub")
def rsub(op: Op, x: Any, y: Any, *, alpha: float = 1) -> Pair:
    """y - x, rounded once."""
    return add(op, y, x, alpha=-alpha)


@rule("mul", "multiply")
def mul(op: Op, x: Any, y: Any) -> Pair:
    """x y, rounded once; (x + d)(y + e) - x y = x e + y d + d e."""
    x, y = op.pair(x), op.pair(y)
    value = x.wide * y.wide
    error: Any = 0.0
    if y.error is not None:
        error = times(x.wide.abs(), y.error)
    if x.error is not None:
        error = error + times(y.magnitude, x.error)
    x, y = (x, y) if x.value.numel() >= y.value.numel() else (y, x)
    terms = None
    if x.terms is not None:
        error, terms = distributed(op, x, y.magnitude, grain(y), 1, value, error)
    return op.rounded(value, error, exact=True)._replace(terms=terms)


@rule("div", "divide", "true_divide")
def div(op: Op, x: Any, y: Any, *, rounding_mode: str | None = None) -> Pair:
    """x / y, unbounded where y may be 0; rounded to the dtype before `rounding_mode` or not."""
    x, y = op.pair(x), op.pair(y)
    value = x.wide / y.wide
    if y.error is None:
        error = times(1 / y.wide.abs(), x.slack)
    else:
        least = y.wide.abs() - y.error
        error = (x.slack + value.abs() * y.error) / least
        error = torch.where(least > 0, error, torch.inf)
    halved, terms = _is_power_of_two(y.wide), None
    if x.terms is not None and y.error is None:
        exact = halved.numel() == 1 and bool(halved)
        step, n = (1 / abs(float(y.wide)), 1) if exact else (0.0, DIVISION)
        error, terms = distributed(op, x, 1 / y.wide.abs(), step, n, value, error)
    found = op.rounded(value, error, None, DIVISION, halved)._replace(terms=terms)
    if rounding_mode is None:
        return found
    return round_to_integer(store(found, op.dtype, op.numerics), rounding_mode)


def _is_power_of_two(x: Tensor) -> Tensor:
    return torch.frexp(x).mantissa.abs() == 0.5


def round_to_integer(x: Pair, rounding_mode: str) -> Pair:
    """Return a pair after a monotone rounding to integers."""
    f = getattr(torch, rounding_mode)
    value = f(x.value)
    if x.error is None:
        return Pair(value)
    return Pair(value, torch.maximum(*(gap(f(x.wide + s * x.error), value) for s in (-1, 1))))


@rule("reciprocal")
def reciprocal(op: Op, x: Pair) -> Pair:
    return div(op, 1.0, x)


@rule("neg")
def neg(op: Op, x: Pair) -> Pair:
    """-x, exact."""
    return x._replace(value=-x.value)


@rule("addcmul")
def addcmul(op: Op, x: Pair, y: Pair, z: Pair, *, value: float = 1) -> Pair:
    """x + value y z."""
    wide = op.with_dtype(op.accumulator)
    return add(op, x, scaled(wide, mul(wide, y, z), value))


@rule("addcdiv")
def addcdiv(op: Op, x: Pair, y: Pair, z: Pair, *, value: float = 1) -> Pair:
    """x + value y / z."""
    wide = op.with_dtype(op.accumulator)
    return add(op, x, scaled(wide, div(wide, y, z), value))


@rule("lerp")
def lerp(op: Op, x: Pair, y: Pair, weight: Any) -> Pair:
    """x + weight (y - x), or y - (1 - weight) (y - x)."""
    wide, weight = op.with_dtype(op.accumulator), op.pair(weight)
    step = sub(wide, y, x)
    moved = mul(wide, weight, step)
    value = x.wide + moved.wide
    error = x.slack + moved.slack
    size = x.magnitude + y.magnitude * (1 + weight.magnitude)
    return op.rounded(value, error, size + error, 4)
