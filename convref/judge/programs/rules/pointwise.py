"""Functions of one element."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ..pair import Op, Pair, Tensor, gap, times
from .arithmetic import mul
from .table import RULES, aten, rule

POINTWISE = 16  # roundings of a function of one element, as docs/judge.md counts them
FLUSHED = 2.0**-102  # what a factor that underflows loses, a smallest normal number, in roundings
Function = Callable[..., Tensor]


def spread(f: Function, x: Pair, value: Tensor, turns: tuple[float, ...] = ()) -> Any:
    """Return sup |f(t) - f(x)| for |t - x| <= error: at its ends, or where f turns."""
    if x.error is None:
        return 0.0
    wide = x.wide
    found = torch.maximum(*(gap(f(wide + sign * x.error), value) for sign in (-1, 1)))
    for turn in turns:
        at = gap(f(wide.new_tensor(turn)), value)
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
        if x.error is None:
            scale = largest(x.wide)
            return op.rounded(value, 0.0, scale, n, exact=scale == 0)
        error = spread(g, x, value, turns)
        if size is None:
            scale = value.abs().add_(error)
        else:
            ends = largest(x.wide - x.error), largest(x.wide + x.error)
            scale = torch.maximum(torch.maximum(*ends), largest(x.wide))
        return op.rounded(value, error, scale, n, exact=scale == 0)

    return evaluate


def _exp(t: Tensor) -> Tensor:
    return t.exp() * (1 + t.abs())


def _sigmoid(t: Tensor) -> Tensor:
    return t.sigmoid() * (1 + (-t).relu()) + FLUSHED  # of 1 / (1 + exp(-t))


def _log(t: Tensor) -> Tensor:
    return t.log().abs() + 0.25


def _silu(t: Tensor) -> Tensor:
    return t.abs() * _sigmoid(t)


def _mish(t: Tensor) -> Tensor:
    return aten.mish(t).abs() * (2 + (-t).relu()) + t.abs() * FLUSHED


def _softplus(t: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    z = beta * t
    return aten.softplus(t, beta, threshold).abs() + z.sigmoid() * z.abs() / abs(beta)


def _elu(t: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    z = (t * input_scale).clamp(max=0.0)
    below = abs(alpha) * (z.exp() * (1 + z.abs()) + torch.expm1(z).abs())
    return abs(scale) * torch.where(t > 0, t.abs(), below)


def _gelu(t: Tensor, approximate: str = "none") -> Tensor:
    x = t.abs()
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        s = (2 * inner).sigmoid()
        return x * (s + 4 * s * (1 - s) * inner)
    density = torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return x * ((1 + torch.erf(x / math.sqrt(2))) / 2 + x * density)


def _hardsigmoid(t: Tensor) -> Tensor:
    return torch.where(t.abs() < 3, t.abs() / 6 + 0.5, aten.hardsigmoid(t))


# By name: the function, what its roundings are relative to, and where it turns.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
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
    "atan": (torch.atan,),
    "asinh": (torch.asinh,),
    "sinh": (torch.sinh, lambda t: t.sinh().abs() * (1 + t.abs())),
    "cosh": (torch.cosh, lambda t: t.cosh() * (1 + t.abs()), 0.0),
    "abs": (torch.abs, torch.zeros_like, 0.0),
    "gelu": (aten.gelu, _gelu, -0.7517915246935645, -0.7524614220710162),
    "silu": (aten.silu, _silu, -1.2784645427610738),
    "mish": (aten.mish, _mish, -1.1924312145106397),
    "softplus": (aten.softplus, _softplus),
    "elu": (aten.elu, _elu, 0.0),
    "hardswish": (aten.hardswish, None, -1.5),
    "hardsigmoid": (aten.hardsigmoid, _hardsigmoid),
    "leaky_relu": (aten.leaky_relu, None, 0.0),
    "softshrink": (aten.softshrink, lambda t, limit=0.5: t.abs()),
    "hardshrink": (aten.hardshrink, torch.zeros_like),
    **{name: (getattr(torch, name), torch.zeros_like) for name in ("sign", "sgn")},
    **{name: (getattr(torch, name), torch.zeros_like) for name in ("floor", "ceil", "trunc")},
}
RULES.update({getattr(aten, name): pointwise(*row) for name, row in _FUNCTIONS.items()})
for _name, _function in (("sqrt", torch.sqrt), ("rsqrt", torch.rsqrt)):
    RULES[getattr(aten, _name)] = pointwise(_function, n=4)


@rule("round")
def round_(op: Op, x: Pair, *, decimals: int = 0) -> Pair:
    return pointwise(torch.round, lambda t, decimals: torch.zeros_like(t))(op, x, decimals=decimals)


@rule("log_sigmoid_forward")
def log_sigmoid(op: Op, x: Pair) -> tuple[Pair, None]:
    def size(t: Tensor) -> Tensor:
        return F.logsigmoid(t).abs() + t.abs() * (-t).sigmoid()

    return pointwise(F.logsigmoid, size)(op, x), None


@rule("sin", "cos")
def sin(op: Op, x: Pair) -> Pair:
    """Return a sine, which moves by at most the error of its argument, and by at most 2."""
    value = torch.sin(x.wide) if op.name.endswith("sin") else torch.cos(x.wide)
    error = 0.0 if x.error is None else x.error.clamp(max=2.0)
    size = x.magnitude.clamp(max=1.0) if op.name.endswith("sin") else torch.ones_like(value)
    return op.rounded(value, error, size, POINTWISE)


@rule("pow")
def pow_(op: Op, x: Any, y: Any) -> Pair:
    """Return a power: a product if it is a square, else exp(y log x), at its worst corner."""
    if not isinstance(y, Pair) and y == 2:
        return mul(op, x, x)
    whole = not isinstance(y, Pair) and float(y).is_integer()
    if whole or (not isinstance(y, Pair) and y == 0.5):
        return pointwise(torch.pow, None, 0.0)(op, x, y)
    x, y = op.pair(x), op.pair(y)
    value, error = torch.pow(x.wide, y.wide), 0.0
    if x.error is not None or y.error is not None:
        ends = [(x.wide + i * x.slack, y.wide + j * y.slack) for i in (-1, 1) for j in (-1, 1)]
        error = torch.stack([gap(torch.pow(*end), value) for end in ends]).amax(0)
    size = times(1 + (y.magnitude * x.wide.abs().log()).abs(), value.abs() + error)
    return op.rounded(value, error, size, 2 * POINTWISE)
