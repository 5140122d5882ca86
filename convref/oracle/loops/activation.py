"""Activations as loops: one element at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops import Problem
from ._elementary import exp, lifted, log, number
from ._zeros import Array, zeros

if TYPE_CHECKING:
    from ...case import Call

Triple = tuple[Any, Any, Any]  # values of a function and of its first two derivatives


def _logistic(x: Any) -> Any:
    return 1 / (1 + exp(-x))


def sigmoid(x: Any, problem: Problem) -> Triple:
    """Return s = 1 / (1 + exp(-x)), and two derivatives."""
    s = _logistic(x)
    return s, s - s * s, s - 3 * s * s + 2 * s * s * s


def tanh(x: Any, problem: Problem) -> Triple:
    """Return t = tanh(x), and two derivatives."""
    t = lifted(math.tanh, x) if isinstance(x, np.floating) else 2 * _logistic(2 * x) - 1
    return t, 1 - t * t, 2 * t * t * t - 2 * t


def silu(x: Any, problem: Problem) -> Triple:
    """Return x s, and two derivatives."""
    s, s1, s2 = sigmoid(x, problem)
    return x * s, s + x * s1, 2 * s1 + x * s2


def gelu(x: Any, problem: Problem) -> Triple:
    """Return x times the normal distribution function, or its tanh form, and two derivatives."""
    if problem.approximate == "none":
        below = lifted(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)), x)
        at = lifted(lambda v: math.exp(-v * v / 2) / math.sqrt(2 * math.pi), x)
        return x * below, below + x * at, 2 * at - x * x * at
    k, cubic = number(math.sqrt(2 / math.pi), x), number(0.044715, x)
    u = k * (x + cubic * x * x * x)
    u1, u2 = k * (1 + 3 * cubic * x * x), 6 * k * cubic * x
    t, t1, t2 = tanh(u, problem)
    first = (1 + t) / 2 + x * t1 * u1 / 2
    return x * (1 + t) / 2, first, t1 * u1 + x * (t2 * u1 * u1 + t1 * u2) / 2


def hardswish(x: Any, problem: Problem) -> Triple:
    """Return x min(max(x + 3, 0), 6) / 6, and two derivatives."""
    nothing, one = number(0, x), number(1, x)
    if x != x:
        return x, x, x
    if x <= -3:
        return x * nothing, 0, nothing
    if x >= 3:
        return x, one, nothing
    return x * (x + 3) / 6, (2 * x + 3) / 6, one / 3


def hardtanh(x: Any, problem: Problem) -> Triple:
    """Return min(max(x, min_val), max_val), and two derivatives."""
    low, high = number(problem.min_val, x), number(problem.max_val, x)
    if low < x < high:
        return x, 1, 0
    return low if x <= low else high if x >= high else x, 0, 0


def hardshrink(x: Any, problem: Problem) -> Triple:
    """Return x, or 0 where it is at most lambd from 0, and two derivatives."""
    bound = number(problem.lambd, x)
    return (number(0, x), 0, 0) if -bound <= x <= bound else (x, 1, 0)


def softshrink(x: Any, problem: Problem) -> Triple:
    """Return x - lambd above, x + lambd below and 0 between, and two derivatives."""
    bound = number(problem.lambd, x)
    if -bound <= x <= bound:
        return number(0, x), 0, 0
    return x + bound if x <= -bound else x - bound, 1, 0


def threshold(x: Any, problem: Problem) -> Triple:
    """Return x, or the value where x is not above the threshold, and two derivatives."""
    if x <= number(problem.threshold, x):
        return number(problem.value, x), 0, 0
    return x, 1, 0


def hardsigmoid(x: Any, problem: Problem) -> Triple:
    """Return min(max(x + 3, 0), 6) / 6, and two derivatives."""
    nothing, one = number(0, x), number(1, x)
    if x != x:
        return x, 0, nothing
    if x <= -3:
        return nothing, 0, nothing
    return (one, 0, nothing) if x >= 3 else ((x + 3) / 6, one / 6, nothing)


def elu(x: Any, problem: Problem) -> Triple:
    """Return x, or alpha (exp(x) - 1) where x is not positive, and two derivatives."""
    alpha = number(problem.alpha, x)
    if x > 0:
        return x, number(1, x), 0
    e, less_1 = exp(x), _expm1(x)
    return alpha * less_1, alpha * e, 0 if x >= 0 else alpha * e


def celu(x: Any, problem: Problem) -> Triple:
    """Return x, or alpha (exp(x / alpha) - 1) where x is not positive, and two derivatives."""
    alpha = number(problem.alpha, x)
    if x > 0:
        return x, number(1, x), 0
    e = exp(x / alpha)
    return alpha * _expm1(x / alpha), e, 0 if x >= 0 else e / alpha


def selu(x: Any, problem: Problem) -> Triple:
    """Return elu of a fixed alpha, times a constant, and two derivatives."""
    alpha, scale = number(1.6732632423543772, x), number(1.0507009873554805, x)
    if x > 0:
        return scale * x, scale, 0
    e = exp(x)
    return scale * alpha * _expm1(x), scale * alpha * e, 0 if x >= 0 else scale * alpha * e


def _expm1(x: Any) -> Any:
    return lifted(math.expm1, x) if isinstance(x, np.floating) else exp(x) - 1


def softplus(x: Any, problem: Problem) -> Triple:
    """Return log(1 + exp(beta x)) / beta, x above the threshold, and two derivatives."""
    beta, threshold = number(problem.beta, x), number(problem.threshold, x)
    z = beta * x
    if z > threshold:
        return x, number(1, x), 0
    if isinstance(x, np.floating):
        y = lifted(math.log1p, exp(z)) if z < 0 else z + lifted(math.log1p, exp(-z))
    else:
        y = z + log(1 + exp(-z))
    s = _logistic(z)
    return y / beta, s, 0 if z >= threshold else beta * (s - s * s)


def logsigmoid(x: Any, problem: Problem) -> Triple:
    """Return -log(1 + exp(-x)), and two derivatives."""
    if not isinstance(x, np.floating):
        y = -log(1 + exp(-x))
    elif x < 0:
        y = x - lifted(math.log1p, exp(x))
    else:
        y = -lifted(math.log1p, exp(-x))
    s = _logistic(x)
    return y, _logistic(-x) if isinstance(x, np.floating) else 1 - s, s * s - s


def softsign(x: Any, problem: Problem) -> Triple:
    """Return x / (1 + |x|), and two derivatives."""
    size = -x if x <= 0 else x
    first = 1 / (1 + size) / (1 + size)
    second = 0 if x == 0 else (2 if x <= 0 else -2) * first / (1 + size)
    return x / (1 + size), first, second


def tanhshrink(x: Any, problem: Problem) -> Triple:
    """Return x - tanh(x), and two derivatives."""
    t, first, second = tanh(x, problem)
    return x - t, 1 - first, -second


def mish(x: Any, problem: Problem) -> Triple:
    """Return x t with t = tanh(log(1 + exp(x))), and two derivatives."""
    if x > 0:
        q = exp(-x)
        bottom = 1 + 2 * q + 2 * q * q
        t, s, rest = (1 + 2 * q) / bottom, 1 / (1 + q), q / (1 + q)
        steep = 4 * q * q * (1 + q) * (1 + q) / bottom / bottom  # 1 - t^2
    else:
        e = exp(x)
        n = e * e + 2 * e
        t, s, rest = n / (n + 2), e / (1 + e), 1 / (1 + e)
        steep = 4 * (n + 1) / (n + 2) / (n + 2)
    first = steep * s
    second = steep * s * rest - 2 * t * first * s
    return x * t, t + x * first, 2 * first + x * second


def relu(x: Any, problem: Problem) -> Triple:
    """Return max(x, 0), and two derivatives."""
    return number(0, x) if x <= 0 else x, 0 if x <= 0 else 1, 0


def leaky_relu(x: Any, problem: Problem) -> Triple:
    """Return x, or slope times x below 0, and two derivatives."""
    slope = number(problem.slope, x)
    return (x, number(1, x), 0) if x > 0 else (x * slope, slope, 0)


TRIPLES: dict[str, Callable[[Any, Problem], Triple]] = {
    "relu": relu,
    "leaky_relu": leaky_relu,
    "hardtanh": hardtanh,
    "hardshrink": hardshrink,
    "softshrink": softshrink,
    "threshold": threshold,
    "hardsigmoid": hardsigmoid,
    "elu": elu,
    "celu": celu,
    "selu": selu,
    "softplus": softplus,
    "logsigmoid": logsigmoid,
    "softsign": softsign,
    "tanhshrink": tanhshrink,
    "mish": mish,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "silu": silu,
    "gelu": gelu,
    "hardswish": hardswish,
}


def _mapped(call: Call, order: int, x: Array, *factors: Array) -> Array:
    """Return the derivative of some order at every element, times the factors there."""
    result = zeros(x.shape, x)
    for at in np.ndindex(x.shape):
        value = TRIPLES[call.op](x[at], call.problem)[order]
        if (
            order == 1 and type(value) is int and not value
        ):  # a constant part gives 0, even of an infinity
            continue
        for factor in factors:
            value = value * factor[at]
        result[at] = value
    return result


def pointwise_fprop(call: Call, x: Array) -> tuple[Any, ...]:
    """Return y = f(x)."""
    return (_mapped(call, 0, x),)


def pointwise_backward(call: Call, dy: Array, x: Array) -> tuple[Any, ...]:
    """Return dx = f'(x) dy."""
    return (_mapped(call, 1, x, dy),)


def pointwise_jvp(call: Call, x: Array, x_dot: Array) -> tuple[Any, ...]:
    """Return (y, y_dot = f'(x) x_dot)."""
    return _mapped(call, 0, x), _mapped(call, 1, x, x_dot)


def pointwise_double_backward(call: Call, ddx: Array, *rest: Array) -> tuple[Any, ...]:
    """Return (ddy = f'(x) ddx, dx = f''(x) ddx dy), the latter where it has a result."""
    ddy = _mapped(call, 1, rest[-1], ddx)
    if len(rest) == 1:
        return (ddy,)
    dx = _mapped(call, 2, rest[-1], ddx, rest[0])
    return tuple(r if on else None for r, on in zip((ddy, dx), call.mask))


_PASSES = ("fprop", "backward", "jvp", "double_backward")
FORMULAS: dict[tuple[str, str], Callable[..., tuple[Any, ...]]] = {
    (op, name): globals()[f"pointwise_{name}"] for op in TRIPLES for name in _PASSES
}
