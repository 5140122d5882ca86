"""Functions of one element, and choices between elements."""

import math
from collections.abc import Callable
from typing import Any

import torch

from ..pair import Op, Pair, Tensor, gap, is_stored
from .table import RULES, aten, rule

POINTWISE = 16  # roundings of a function of one element, as docs/judge.md counts them
Function = Callable[..., Tensor]


def spread(f: Function, x: Pair, value: Tensor, turns: tuple[float, ...] = ()) -> Any:
    """Return sup |f(t) - f(x)| for |t - x| <= error: at its ends, or where f turns."""
    if x.error is None:
        return 0.0
    wide = x.wide
    found = torch.maximum(*(gap(f(wide + sign * x.error), value) for sign in (-1, 1)))
    for turn in turns:
        at = gap(f(torch.full_like(wide, turn)), value)
        found = torch.maximum(found, torch.where((wide - turn).abs() <= x.error, at, 0.0))
    return found


def pointwise(f: Function, size: Function | None = None, *turns: float, n: int = POINTWISE) -> Any:
    """Return the rule of a function that is monotone between `turns`.

    `size` is what its roundings are relative to, by default the absolute value.
    """

    def evaluate(op: Op, x: Pair, *settings: Any, **named: Any) -> Pair:
        def g(t: Tensor) -> Tensor:
            return f(t, *settings, **named)

        def largest(t: Tensor) -> Tensor:
            return g(t).abs() if size is None else size(t, *settings, **named)

        value = g(x.wide)
        error, scale = spread(g, x, value, turns), largest(x.wide)
        if x.error is not None:
            for sign in (-1, 1):
                scale = torch.maximum(scale, largest(x.wide + sign * x.error))
        return op.close(value, error, scale, n, exact=scale == 0)

    return evaluate


def _exp(t: Tensor) -> Tensor:
    return t.exp() * (1 + t.abs())


def _sigmoid(t: Tensor) -> Tensor:
    return t.sigmoid() * (1 + (-t).relu())


def _log(t: Tensor) -> Tensor:
    return t.log().abs() + 0.25


_FUNCTIONS = {
    "exp": (torch.exp, _exp),
    "exp2": (torch.exp2, lambda t: t.exp2() * (1 + t.abs())),
    "expm1": (torch.expm1, lambda t: t.expm1().abs() + t.exp() * t.abs()),
    "log": (torch.log, _log),
    "log2": (torch.log2, lambda t: t.log2().abs() + 0.25),
    "log10": (torch.log10, lambda t: t.log10().abs() + 0.25),
    "log1p": (torch.log1p,),
    "sigmoid": (torch.sigmoid, _sigmoid),
    "tanh": (torch.tanh,),
    "erf": (torch.erf,),
    "erfc": (torch.erfc, lambda t: t.erfc() * (1 + t.square())),
    "sin": (torch.sin, lambda t: t.abs().clamp(max=1.0)),
    "cos": (torch.cos, torch.ones_like),
    "atan": (torch.atan,),
    "sinh": (torch.sinh, lambda t: t.sinh().abs() * (1 + t.abs())),
    "cosh": (torch.cosh, lambda t: t.cosh() * (1 + t.abs()), 0.0),
    "abs": (torch.abs, torch.zeros_like, 0.0),
}
RULES.update({getattr(aten, name): pointwise(*row) for name, row in _FUNCTIONS.items()})
for _name, _function in (("sqrt", torch.sqrt), ("rsqrt", torch.rsqrt)):
    RULES[getattr(aten, _name)] = pointwise(_function, n=4)


def monotone(f: Function) -> Any:
    """Return the rule of a choice of elements that grows with each of them, and rounds nothing."""

    def evaluate(op: Op, *operands: Any, **named: Any) -> Pair:
        pairs = [op.pair(p) if isinstance(p, (Pair, float)) else p for p in operands]

        def at(sign: int) -> Tensor:
            return f(
                *(p.wide + sign * p.slack if isinstance(p, Pair) else p for p in pairs), **named
            )

        value = at(0)
        if all(p.error is None for p in pairs if isinstance(p, Pair)):
            return Pair(value)
        return Pair(value, torch.maximum(gap(at(1), value), gap(at(-1), value)))

    return evaluate


for _name in ("relu", "maximum", "minimum", "amax", "amin", "cummax", "cummin"):
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
