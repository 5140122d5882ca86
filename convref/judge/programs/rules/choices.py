"""Choices between elements: maxima, comparisons, conditions; they round nothing."""

import math
from collections.abc import Callable
from typing import Any

import torch

from ..pair import Op, Pair, Tensor, gap, is_stored
from .table import RULES, aten, rule

Function = Callable[..., Tensor]


def monotone(f: Function) -> Any:
    """Return the rule of a choice of elements that grows with each of them, and rounds nothing."""

    def evaluate(op: Op, *operands: Any, **named: Any) -> Pair:
        pairs = [op.pair(p) if isinstance(p, (Pair, float)) else p for p in operands]

        def at(sign: int) -> Tensor:
            return f(
                *(p.wide + sign * p.slack if isinstance(p, Pair) else p for p in pairs), **named
            )

        value = f(*(p.wide if isinstance(p, Pair) else p for p in pairs), **named)
        if all(p.error is None for p in pairs if isinstance(p, Pair)):
            return Pair(value)
        return Pair(value, torch.maximum(gap(at(1), value), gap(at(-1), value)))

    return evaluate


for _name in ("relu", "maximum", "minimum", "amax", "amin"):
    RULES[getattr(aten, _name)] = monotone(getattr(torch, _name))


@rule("clamp", "hardtanh", "clamp_min", "clamp_max")
def clamp(op: Op, x: Pair, low: Any = None, high: Any = None) -> Pair:
    """Return x within limits, which may be rounded to the dtype."""
    if op.name.endswith("clamp_max"):
        low, high = None, low
    if op.name.endswith("hardtanh"):
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
    limits = [p for p in (low, high) if p is not None]
    found = x
    if low is not None:
        found = monotone(torch.maximum)(op, found, op.pair(low))
    if high is not None:
        found = monotone(torch.minimum)(op, found, op.pair(high))
    stored = all(isinstance(p, Pair) or _fits(p, op.dtype) for p in limits)
    return found._replace(stored=stored)


def _fits(number: float, dtype: Any) -> bool:
    return math.isinf(number) or bool(is_stored(torch.tensor(number, dtype=torch.float64), dtype))


def comparison_rule(f: Function) -> Any:
    """Return the rule of a comparison; it may go either way where both intervals meet."""

    def evaluate(op: Op, x: Any, y: Any) -> Pair:
        x, y = op.pair(x), op.pair(y)
        reach = torch.as_tensor(x.slack + y.slack)
        either = (reach > 0) & ~((x.wide - y.wide).abs() > reach)
        return Pair(f(x.wide, y.wide), either.to(torch.float64))

    return evaluate


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    RULES[getattr(aten, _name)] = comparison_rule(getattr(torch, _name))


@rule("isnan", "isinf", "isfinite")
def is_finite(op: Op, x: Pair) -> Pair:
    f = getattr(torch, op.name.rpartition(".")[2])
    return Pair(f(x.wide), torch.as_tensor(x.slack).isinf().to(torch.float64).expand(x.value.shape))


@rule("logical_and", "logical_or", "logical_xor", "logical_not")
@rule("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
def logical(op: Op, *operands: Pair) -> Pair:
    """Return a condition of conditions; it is open where changing the open ones changes it."""
    f = getattr(torch, op.name.rpartition(".")[2].replace("bitwise", "logical"))
    pairs = [op.pair(p) for p in operands]
    kept, turned = zip(
        *((p.wide != 0, (p.wide != 0) ^ (torch.as_tensor(p.slack) > 0)) for p in pairs)
    )
    value = f(*kept)
    either = value != f(*turned)
    for place in range(len(pairs)) if len(pairs) > 1 else ():
        either |= value != f(*(turned[i] if i == place else kept[i] for i in range(len(pairs))))
    return Pair(value, either.to(torch.float64))


@rule("where")
def where(op: Op, condition: Pair, x: Any, y: Any) -> Pair:
    x, y = op.pair(x), op.pair(y)
    value = torch.where(condition.value, x.wide, y.wide)
    stored = all(bool(is_stored(p.wide, op.dtype).all()) for p in (x, y) if p.value.ndim == 0)
    if all(p.error is None for p in (condition, x, y)):
        return Pair(value, None, stored)
    slacks = [torch.as_tensor(p.slack, dtype=torch.float64) for p in (x, y)]
    error = torch.where(condition.value, *slacks)
    if condition.error is not None:
        other = gap(torch.where(condition.value, y.wide, x.wide), value)
        other = other + torch.where(condition.value, *reversed(slacks))
        error = torch.where(condition.error > 0, torch.maximum(error, other), error)
    return Pair(value, error.expand(value.shape), stored)


@rule("masked_fill")
def masked_fill(op: Op, x: Pair, mask: Pair, value: Any) -> Pair:
    return where(op, mask, value, x)


@rule("threshold_backward")
def threshold_backward(op: Op, dy: Pair, x: Pair, threshold: float) -> Pair:
    return where(op, RULES[aten.gt](op, x, threshold), dy, 0.0)


@rule("softshrink_backward", "hardshrink_backward")
def shrink_backward(op: Op, dy: Pair, x: Pair, limit: float) -> Pair:
    """Return dy outside of [-limit, limit]."""
    size = Pair(x.wide.abs(), x.error)
    return where(op, RULES[aten.le](op, size, limit), 0.0, dy)


@rule("max", "min")
def extreme(op: Op, x: Pair, dim: Any = None, keepdim: bool = False) -> Any:
    name = op.name.rpartition(".")[2]
    if isinstance(dim, Pair):
        return RULES[getattr(aten, f"{name}imum")](op, x, dim)
    axes = () if dim is None else dim
    values = RULES[getattr(aten, f"a{name}")](op, x, axes, keepdim)
    return values if dim is None else (values, _index_of_extreme(x, dim, keepdim, name))


@rule("argmax", "argmin")
def argument(op: Op, x: Pair, dim: Any = None, keepdim: bool = False) -> Pair:
    if dim is None:
        x, dim = Pair(x.wide.flatten(), None if x.error is None else x.error.flatten()), 0
    return _index_of_extreme(x, dim, keepdim, op.name[-3:])


def _index_of_extreme(x: Pair, dim: int, keepdim: bool, name: str) -> Pair:
    """Return the index of an extreme; it is open where another element may be the extreme."""
    value = getattr(torch, f"arg{name}")(x.wide, dim, keepdim)
    if x.error is None:
        return Pair(value)
    sign = 1 if name == "max" else -1
    at = value if keepdim else value.unsqueeze(dim)
    wide = sign * x.wide
    least = (wide - x.error).gather(dim, at)
    reach = (wide + x.error >= least) & (x.error + x.error.gather(dim, at) > 0)
    rivals = reach.scatter(dim, at, False).any(dim, keepdim)
    return Pair(value, torch.where(rivals, torch.inf, 0.0))


@rule("sort", "topk")
def sort(op: Op, x: Pair, *settings: Any, **named: Any) -> tuple[Pair, Pair]:
    """Return sorted values, each of which grows with every element, and their places.

    The place of one of several equal elements is open, unless the sort is stable.
    """
    name = op.name.rpartition(".")[2]
    f = getattr(torch, name)
    values = monotone(lambda t: f(t, *settings, **named)[0])(op, x)
    places = f(x.wide, *settings, **named)[1]
    if x.error is not None:
        return values, Pair(places, torch.full_like(values.wide, torch.inf))
    if named.get("stable") or not x.value.ndim:
        return values, Pair(places)
    ordered = True
    if name == "topk":
        count, dim, largest, ordered = _filled(settings, (0, -1, True, True))
    else:
        dim, largest = _filled(settings, (named.get("dim", -1), named.get("descending", False)))
        count = x.value.shape[dim]
    if not ordered:
        values = values._replace(error=torch.full_like(values.wide, torch.inf))
    open_ = _tied(x.value.sort(dim, largest).values, dim).narrow(dim, 0, count)
    return values, Pair(places, torch.where(open_, torch.inf, 0.0))


def _filled(given: tuple[Any, ...], defaults: tuple[Any, ...]) -> tuple[Any, ...]:
    return given + defaults[len(given) :]


def _tied(x: Tensor, dim: int) -> Tensor:
    """Return which elements of sorted ones are not the only one of their value."""
    after, before = x.narrow(dim, 1, x.shape[dim] - 1), x.narrow(dim, 0, x.shape[dim] - 1)
    same = (after == before) | (after.isnan() & before.isnan())
    edge = torch.zeros_like(x.narrow(dim, 0, 1), dtype=torch.bool)
    return torch.cat([edge, same], dim) | torch.cat([same, edge], dim)


# Operations that have several right results for the same exact operands.
AMBIGUOUS = {aten.sort, aten.topk}


@rule("any", "all")
def any_(op: Op, x: Pair, *axes: Any) -> Pair:
    """Return whether some or all differ from zero; open where the open elements decide."""
    f = torch.any if op.name.endswith("any") else torch.all
    on = x.wide != 0
    open_ = torch.as_tensor(x.slack) >= x.wide.abs() if x.error is not None else on & False
    open_ = open_ & (torch.as_tensor(x.slack) > 0)
    either = f(on | open_, *axes) != f(on & ~open_, *axes)
    return Pair(f(on, *axes), either.to(torch.float64))
