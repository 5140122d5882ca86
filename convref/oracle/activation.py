"""Activations: functions of one element, with their first two derivatives; smooth ones here.

A function f of one element gives all four passes (A.1):

    y = f(x)    dx = f'(x) dy    y_dot = f'(x) x_dot    ddy = f'(x) ddx    dx2 = f''(x) ddx dy

A row of POINTWISE has f, f', f'' and the scale of their rounding errors. Where exp
overflows, it is in a divisor, and the result is 0.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..case import Call
from ..ops import Problem
from ._blocks import in_blocks, select, zero_where
from ._elementary import constant, exp, expm1, log, logistic, normal, normal_cdf, normal_pdf
from ._pointwise import Pointwise
from ._rounding import underflow
from ._windows import Array, Results
from .piecewise import POINTWISE as PIECEWISE

SATURATED = 40.0  # beyond, every derivative here is 0 or 1 in float64: powers of x are not needed
CUBIC = 0.044715


def sigmoid(x: Array, problem: Problem) -> Array:
    """Return s = 1 / (1 + exp(-x))."""
    if x.dtype == object:
        return logistic(x)[0]
    with np.errstate(over="ignore"):
        s = np.exp(-x)
        s += 1
        return np.divide(1, s, out=s)


def sigmoid_derivative(x: Array, problem: Problem) -> Array:
    """Return s (1 - s), as e / (1 + e)^2 with e = exp(-|x|)."""
    if x.dtype == object:
        s, rest = logistic(x)
        return s * rest
    e = np.abs(x)
    np.exp(np.negative(e, out=e), out=e)
    bottom = 1 + e
    bottom *= bottom
    e /= bottom
    return e


def sigmoid_second_derivative(x: Array, problem: Problem) -> Array:
    """Return s (1 - s) (1 - 2 s)."""
    s, rest = logistic(x)
    return s * rest * (rest - s)


def sigmoid_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of sigmoid and its derivatives; 1 - s may be a subtraction."""
    s, _ = logistic(x)
    return s, s * (1 + s), s * (1 + s) * (1 + 2 * s)


def tanh(x: Array, problem: Problem) -> Array:
    """Return t = tanh(x)."""
    if x.dtype != object:
        return np.tanh(x)
    s, rest = logistic(2 * x)
    return s - rest


def tanh_derivative(x: Array, problem: Problem) -> Array:
    """Return 1 - t^2, as 4 s (1 - s) of 2 x."""
    s, rest = logistic(2 * x)
    return 4 * s * rest


def tanh_second_derivative(x: Array, problem: Problem) -> Array:
    """Return -2 t (1 - t^2)."""
    return -2 * tanh(x, problem) * tanh_derivative(x, problem)


def tanh_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of tanh and its derivatives; 1 - t^2 may be a subtraction."""
    t = np.abs(np.tanh(x))
    return t, 1 + t * t, 2 * t * (1 + t * t)


def tanhshrink(x: Array, problem: Problem) -> Array:
    """Return x - t with t = tanh(x)."""
    return x - tanh(x, problem)


def tanhshrink_derivative(x: Array, problem: Problem) -> Array:
    """Return t^2."""
    t = tanh(x, problem)
    return t * t


def tanhshrink_second_derivative(x: Array, problem: Problem) -> Array:
    """Return 2 t (1 - t^2)."""
    return -tanh_second_derivative(x, problem)


def tanhshrink_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of tanhshrink and its derivatives, differences of x, or 1, and those of tanh."""
    t, first, second = tanh_magnitudes(x, problem)
    return np.abs(x) + t, 1 + first, second


def softsign(x: Array, problem: Problem) -> Array:
    """Return x / (1 + |x|)."""
    return x / (1 + abs(x))


def softsign_derivative(x: Array, problem: Problem) -> Array:
    """Return r^2 with r = 1 / (1 + |x|)."""
    r = 1 / (1 + abs(x))
    return r * r


def softsign_second_derivative(x: Array, problem: Problem) -> Array:
    """Return -2 r^3 of the sign of x, 0 at 0."""
    r = 1 / (1 + abs(x))
    return -2 * np.sign(x) * r * r * r


def softsign_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of softsign and its derivatives; by the quotient rule r - |x| r^2 cancels."""
    r = 1 / (1 + np.abs(x))
    return np.abs(softsign(x, problem)), r * (2 - r), 4 * r * r


def silu(x: Array, problem: Problem) -> Array:
    """Return x s."""
    return x * sigmoid(x, problem)


def silu_derivative(x: Array, problem: Problem) -> Array:
    """Return s (1 + x (1 - s))."""
    s, rest = logistic(x)
    return s * (1 + x * rest)


def silu_second_derivative(x: Array, problem: Problem) -> Array:
    """Return s (1 - s) (2 + x (1 - 2 s))."""
    s, rest = logistic(x)
    return s * rest * (2 + x * (rest - s))


def silu_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of silu and its derivatives."""
    s, _ = logistic(x)
    x = np.abs(x)
    return x * s, s * (1 + x * (1 + s)), s * (1 + s) * (2 + x * (1 + 2 * s))


def _clip_to_range(x: Array) -> Array:
    """Return x where derivatives still change, else the end of that range; NaN stays."""
    return np.clip(x, -SATURATED, SATURATED) if x.dtype != object else x


def _tanh_argument(x: Array) -> tuple[Array, Array, Array]:
    """Return (u, u', u'') of the tanh form, y = x s(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3)."""
    x = _clip_to_range(x)
    root, cubic = constant(math.sqrt(2 / math.pi), x), constant(CUBIC, x)
    square = cubic * x * x
    return root * x * (1 + square), root * (1 + 3 * square), 6 * root * cubic * x


def gelu(x: Array, problem: Problem) -> Array:
    """Return x times the normal distribution function, or its tanh form."""
    if problem.approximate == "none":
        return x * normal_cdf(x)
    return x * logistic(2 * _tanh_argument(x)[0])[0]


def gelu_derivative(x: Array, problem: Problem) -> Array:
    """Return the distribution function plus x times the density, or s + 2 x s (1 - s) u'."""
    near = _clip_to_range(x)
    if problem.approximate == "none":
        below, at = normal(x)
        at *= near
        below += at
        return below
    u, u1, _ = _tanh_argument(x)
    s, rest = logistic(2 * u)
    return s + 2 * near * s * rest * u1


def gelu_second_derivative(x: Array, problem: Problem) -> Array:
    """Return (2 - x^2) times the density, or the derivative of the tanh form once more."""
    near = _clip_to_range(x)
    if problem.approximate == "none":
        return normal_pdf(x) * (2 - near * near)
    u, u1, u2 = _tanh_argument(x)
    s, rest = logistic(2 * u)
    return 2 * s * rest * (2 * u1 + near * (u2 + 2 * u1 * u1 * (rest - s)))


def gelu_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of gelu and its derivatives; arguments of exp and erf are rounded."""
    if problem.approximate == "tanh":
        return _gelu_tanh_magnitudes(x)
    below, at = normal(x)
    below = (1 + np.abs(2 * below - 1)) / 2
    near = np.minimum(np.abs(x), SATURATED)
    square = near * near
    first = below + 2 * near * at * (1 + square)
    return np.abs(x) * (below + near * at), first, at * (2 + square) * (1 + square)


def _gelu_tanh_magnitudes(x: Array) -> tuple[Array, ...]:
    u, u1, u2 = map(np.abs, _tanh_argument(x))
    s, rest = logistic(2 * u)
    t, steep = s - rest, 4 * s * rest * u
    loss = 1 + t * t + 4 * steep  # of 1 - t^2, found by subtraction at a rounded u
    near, half = np.minimum(np.abs(x), SATURATED), (1 + t) / 2 + steep
    second = loss * u1 + near * (t * loss * u1 * u1 + loss * u2 / 2)
    return np.abs(x) * half, half + near / 2 * loss * u1, second


def _exp_terms(x: Array, problem: Problem) -> tuple[Any, Any, Any, Array]:
    """Return (a, c, d, min(x, 0) / d), of which exp is taken; NaN stays."""
    a, c, d = (constant(value, x) for value in problem.constants)
    return a, c, d, np.minimum(x, constant(0, x)) / d


def elu(x: Array, problem: Problem) -> Array:
    """Return c x where x is positive or NaN, else c a (exp(x / d) - 1): elu, celu and selu."""
    a, c, _, z = _exp_terms(x, problem)
    return c * select(x <= 0, a * expm1(z), x)


def elu_derivative(x: Array, problem: Problem) -> Array:
    """Return c where x is positive, else c a / d exp(x / d); NaN stays."""
    a, c, d, z = _exp_terms(x, problem)
    return c * select(x > 0, constant(1, x), a / d * exp(z))


def elu_second_derivative(x: Array, problem: Problem) -> Array:
    """Return 0 where x is not negative, else c a / d^2 exp(x / d); NaN stays."""
    a, c, d, z = _exp_terms(x, problem)
    return zero_where(x >= 0, c * a / d / d * exp(z))


def elu_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of elu and its derivatives; the argument of exp is rounded, perhaps less 1."""
    *constants, z = _exp_terms(x, problem)
    a, c, d = map(abs, constants)
    steep = a * np.exp(z) * (1 + np.abs(z))
    y = np.where(x > 0, np.abs(x), steep + a * np.abs(np.expm1(z)))
    return c * y, c * np.where(x > 0, 1.0, steep / d), np.where(x >= 0, 0.0, c * steep / d / d)


def softplus(x: Array, problem: Problem) -> Array:
    """Return log(1 + exp(beta x)) / beta, or x where beta x is above the threshold."""
    beta = constant(problem.beta, x)
    z = beta * x
    if x.dtype == object:  # the form whose derivative is rational in exp(-z)
        y = (z + log(1 + exp(-z))) / beta
    else:
        y = (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))) / beta
    return select(z > constant(problem.threshold, x), x, y)


def softplus_derivative(x: Array, problem: Problem) -> Array:
    """Return s(beta x), or 1 where beta x is above the threshold."""
    z = constant(problem.beta, x) * x
    return select(z > constant(problem.threshold, x), constant(1, x), logistic(z)[0])


def softplus_second_derivative(x: Array, problem: Problem) -> Array:
    """Return beta s (1 - s) of beta x, or 0 where beta x is not below the threshold."""
    beta = constant(problem.beta, x)
    s, rest = logistic(beta * x)
    return zero_where(beta * x >= constant(problem.threshold, x), beta * s * rest)


def softplus_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of softplus and its derivatives; the argument of exp is rounded."""
    z, beta = problem.beta * x, abs(problem.beta)
    s, rest = logistic(z)
    steep = s * (1 + np.abs(z) * rest)
    y = np.abs(softplus(x, problem)) + s * np.abs(z) / beta
    return y, steep, beta * s * (1 + s) * (1 + np.abs(z) * (1 + s))


def logsigmoid(x: Array, problem: Problem) -> Array:
    """Return -log(1 + exp(-x))."""
    if x.dtype == object:  # the form whose derivative is rational in exp(-x)
        return -log(1 + exp(-x))
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def logsigmoid_derivative(x: Array, problem: Problem) -> Array:
    """Return 1 - s."""
    return logistic(x)[1]


def logsigmoid_second_derivative(x: Array, problem: Problem) -> Array:
    """Return -s (1 - s)."""
    return -sigmoid_derivative(x, problem)


def logsigmoid_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of logsigmoid and its derivatives; 1 - s may be a subtraction in the second."""
    s, rest = logistic(x)
    return np.abs(logsigmoid(x, problem)), rest, s * (1 + s)


def _mish_parts(x: Array) -> tuple[Array, Array, Array]:
    """Return (t, t', t'') of t = tanh(log(1 + exp(x))), a rational function of q = exp(-|x|)."""
    q, positive = exp(-abs(x)), x > 0
    high, low = 1 + 2 * q * (1 + q), 2 + q * (2 + q)  # the denominator over exp(x)^2, and as it is
    bottom = select(positive, high, low)
    t = select(positive, 1 + 2 * q, q * (q + 2)) / bottom
    first = 4 * select(positive, q * q, q) * (1 + q) / (bottom * bottom)
    inner = select(positive, ((2 * q + 2) * q - 3) * q - 2, ((-2 * q - 3) * q + 2) * q + 2)
    return t, first, 4 * select(positive, q * q, q) * inner / (bottom * bottom * bottom)


def mish(x: Array, problem: Problem) -> Array:
    """Return x t with t = tanh(log(1 + exp(x)))."""
    return x * _mish_parts(x)[0]


def mish_derivative(x: Array, problem: Problem) -> Array:
    """Return t + x t'."""
    t, first, _ = _mish_parts(x)
    return t + x * first


def mish_second_derivative(x: Array, problem: Problem) -> Array:
    """Return 2 t' + x t''."""
    _, first, second = _mish_parts(x)
    return 2 * first + x * second


def mish_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of mish and its derivatives; 1 - t^2 may be a subtraction at a rounded argument."""
    t, first, _ = _mish_parts(x)
    s, _ = logistic(x)
    near = np.minimum(np.abs(x), 1000.0)  # exp is 0 before
    value = t + near * first
    slope = s * (1 + t * t) * (1 + near)
    return np.abs(x) * value, value + near * slope, 4 * (1 + near) * (1 + near) * slope


POINTWISE: dict[str, Pointwise] = {
    **PIECEWISE,
    **dict.fromkeys(
        ("elu", "celu", "selu"),
        Pointwise(elu, elu_derivative, elu_second_derivative, magnitudes=elu_magnitudes),
    ),
    "softplus": Pointwise(
        softplus, softplus_derivative, softplus_second_derivative, magnitudes=softplus_magnitudes
    ),
    "logsigmoid": Pointwise(
        logsigmoid,
        logsigmoid_derivative,
        logsigmoid_second_derivative,
        magnitudes=logsigmoid_magnitudes,
    ),
    "softsign": Pointwise(
        softsign, softsign_derivative, softsign_second_derivative, magnitudes=softsign_magnitudes
    ),
    "tanhshrink": Pointwise(
        tanhshrink,
        tanhshrink_derivative,
        tanhshrink_second_derivative,
        magnitudes=tanhshrink_magnitudes,
    ),
    "mish": Pointwise(mish, mish_derivative, mish_second_derivative, magnitudes=mish_magnitudes),
    "sigmoid": Pointwise(
        sigmoid, sigmoid_derivative, sigmoid_second_derivative, magnitudes=sigmoid_magnitudes
    ),
    "tanh": Pointwise(tanh, tanh_derivative, tanh_second_derivative, magnitudes=tanh_magnitudes),
    "silu": Pointwise(silu, silu_derivative, silu_second_derivative, magnitudes=silu_magnitudes),
    "gelu": Pointwise(gelu, gelu_derivative, gelu_second_derivative, magnitudes=gelu_magnitudes),
}


def pointwise_fprop(call: Call, x: Array) -> Results:
    """Return y = f(x)."""
    row = POINTWISE[call.op]
    if row.second_derivative is None:  # so few steps that blocks cost more than they save
        return (row.value(x, call.problem),)
    return (in_blocks(lambda part: row.value(part, call.problem), x),)


def pointwise_backward(call: Call, dy: Array, x: Array) -> Results:
    """Return dx = f'(x) dy."""
    row = POINTWISE[call.op]
    return (in_blocks(lambda x, dy: row.times_derivative(x, dy, call.problem), x, dy),)


def pointwise_jvp(call: Call, x: Array, x_dot: Array) -> Results:
    """Return (y, y_dot = f'(x) x_dot)."""
    return *pointwise_fprop(call, x), *pointwise_backward(call, x_dot, x)


def pointwise_double_backward(call: Call, ddx: Array, *rest: Array) -> Results:
    """Return (ddy = f'(x) ddx, dx = f''(x) ddx dy), the latter where f'' is not zero."""
    second, x = POINTWISE[call.op].second_derivative, rest[-1]
    if second is None:
        return pointwise_backward(call, ddx, x)
    ddy = pointwise_backward(call, ddx, x)[0] if call.mask[0] else None
    if not call.mask[1]:
        return ddy, None
    return ddy, in_blocks(lambda x, v, g: second(x, call.problem) * (v * g), x, ddx, rest[0])


def pointwise_magnitudes(call: Call, *operands: Array) -> Results:
    """Return S of each wanted result."""
    given = dict(zip(call.roles, operands))
    row, x, floor = POINTWISE[call.op], given["x"], underflow(call)

    def of_block(order: int, x: Array, *factors: Array) -> Array:
        if row.magnitudes is None:
            return np.abs(
                row.times_derivative(x, factors[0], call.problem)
                if order
                else row.value(x, call.problem)
            )
        s = row.magnitudes(x, call.problem)[order] + floor * (1 + np.abs(x))
        for factor in factors:
            s = s * np.abs(factor)
        return s

    def magnitude(order: int, factors: tuple[str, ...]) -> Array:
        return in_blocks(partial(of_block, order), x, *(given[name] for name in factors))

    rows = _FACTORS[call.pass_]
    return call.results(lambda role: magnitude(*rows[role]))


# By pass and result: which derivative of the function, and its factors.
_FACTORS: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {
    "fprop": {"y": (0, ())},
    "backward": {"dx": (1, ("dy",))},
    "jvp": {"y": (0, ()), "y_dot": (1, ("x_dot",))},
    "double_backward": {"ddy": (1, ("ddx",)), "dx": (2, ("ddx", "dy"))},
}
_COPIES = ("relu", "hardshrink")
_PASSES: dict[str, Callable[..., Results]] = {
    "fprop": pointwise_fprop,
    "backward": pointwise_backward,
    "jvp": pointwise_jvp,
    "double_backward": pointwise_double_backward,
}
FORMULAS = {(op, name): run for op in POINTWISE for name, run in _PASSES.items()}
# What copies rounds nothing.
MAGNITUDES: dict[tuple[str, str], Callable[..., Results]] = {
    (op, name): pointwise_magnitudes for op in POINTWISE if op not in _COPIES for name in _PASSES
}
