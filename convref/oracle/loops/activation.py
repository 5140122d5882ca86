"""Activations as loops: every element, and every sum over classes, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops import Problem
from .._passes import by_name
from ._zeros import Array, zeros

if TYPE_CHECKING:
    from ...case import Call

Triple = tuple[Any, Any, Any]  # values of a function and of its first two derivatives


def _lifted(function: Callable[[float], float], v: Any) -> Any:
    """Return function(v): of a Fraction as a Fraction, of NaN NaN, and inf on overflow."""
    if isinstance(v, (Fraction, int)):
        return Fraction(function(float(v)))
    try:
        return type(v)(function(float(v)))
    except OverflowError:
        return type(v)(np.inf)
    except ValueError:  # the logarithm of 0, which is all that math refuses here
        return type(v)(-np.inf)


def _exp(v: Any) -> Any:
    return _lifted(math.exp, v)


def _number(value: float, like: Any) -> Any:
    return Fraction(value) if isinstance(like, (Fraction, int)) else type(like)(value)


def _logistic(x: Any) -> Any:
    return 1 / (1 + _exp(-x))


def sigmoid(x: Any, problem: Problem) -> Triple:
    """Return s = 1 / (1 + exp(-x)), and two derivatives."""
    s = _logistic(x)
    return s, s - s * s, s - 3 * s * s + 2 * s * s * s


def tanh(x: Any, problem: Problem) -> Triple:
    """Return t = tanh(x), and two derivatives."""
    t = _lifted(math.tanh, x) if isinstance(x, np.floating) else 2 * _logistic(2 * x) - 1
    return t, 1 - t * t, 2 * t * t * t - 2 * t


def silu(x: Any, problem: Problem) -> Triple:
    """Return x s, and two derivatives."""
    s, s1, s2 = sigmoid(x, problem)
    return x * s, s + x * s1, 2 * s1 + x * s2


def gelu(x: Any, problem: Problem) -> Triple:
    """Return x times the normal distribution function, or its tanh form, and two derivatives."""
    if problem.approximate == "none":
        below = _lifted(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)), x)
        at = _lifted(lambda v: math.exp(-v * v / 2) / math.sqrt(2 * math.pi), x)
        return x * below, below + x * at, 2 * at - x * x * at
    k, cubic = _number(math.sqrt(2 / math.pi), x), _number(0.044715, x)
    u = k * (x + cubic * x * x * x)
    u1, u2 = k * (1 + 3 * cubic * x * x), 6 * k * cubic * x
    t, t1, t2 = tanh(u, problem)
    first = (1 + t) / 2 + x * t1 * u1 / 2
    return x * (1 + t) / 2, first, t1 * u1 + x * (t2 * u1 * u1 + t1 * u2) / 2


def hardswish(x: Any, problem: Problem) -> Triple:
    """Return x min(max(x + 3, 0), 6) / 6, and two derivatives."""
    nothing, one = _number(0, x), _number(1, x)
    if x != x:
        return x, x, x
    if x <= -3:
        return x * nothing, nothing, nothing
    if x >= 3:
        return x, one, nothing
    return x * (x + 3) / 6, (2 * x + 3) / 6, one / 3


def hardtanh(x: Any, problem: Problem) -> Triple:
    """Return min(max(x, min_val), max_val), and two derivatives."""
    low, high = _number(problem.min_val, x), _number(problem.max_val, x)
    if low < x < high:
        return x, 1, 0
    return low if x <= low else high if x >= high else x, 0, 0


def hardsigmoid(x: Any, problem: Problem) -> Triple:
    """Return min(max(x + 3, 0), 6) / 6, and two derivatives."""
    nothing, one = _number(0, x), _number(1, x)
    if x != x:
        return x, nothing, nothing
    if x <= -3:
        return nothing, nothing, nothing
    return (one, nothing, nothing) if x >= 3 else ((x + 3) / 6, one / 6, nothing)


def elu(x: Any, problem: Problem) -> Triple:
    """Return x, or alpha (exp(x) - 1) where x is not positive, and two derivatives."""
    alpha = _number(problem.alpha, x)
    if x > 0:
        return x, _number(1, x), 0
    e = _exp(x)
    less_1 = _lifted(math.expm1, x) if isinstance(x, np.floating) else e - 1
    return alpha * less_1, alpha * e, 0 if x >= 0 else alpha * e


def softplus(x: Any, problem: Problem) -> Triple:
    """Return log(1 + exp(beta x)) / beta, x above the threshold, and two derivatives."""
    beta, threshold = _number(problem.beta, x), _number(problem.threshold, x)
    z = beta * x
    if z > threshold:
        return x, _number(1, x), 0
    if isinstance(x, np.floating):
        y = _lifted(math.log1p, _exp(z)) if z < 0 else z + _lifted(math.log1p, _exp(-z))
    else:
        y = z + _lifted(math.log, 1 + _exp(-z))
    s = _logistic(z)
    return y / beta, s, 0 if z >= threshold else beta * (s - s * s)


def mish(x: Any, problem: Problem) -> Triple:
    """Return x t with t = tanh(log(1 + exp(x))), and two derivatives."""
    if x > 0:
        q = _exp(-x)
        bottom = 1 + 2 * q + 2 * q * q
        t, s, rest = (1 + 2 * q) / bottom, 1 / (1 + q), q / (1 + q)
        steep = 4 * q * q * (1 + q) * (1 + q) / bottom / bottom  # 1 - t^2
    else:
        e = _exp(x)
        n = e * e + 2 * e
        t, s, rest = n / (n + 2), e / (1 + e), 1 / (1 + e)
        steep = 4 * (n + 1) / (n + 2) / (n + 2)
    first = steep * s
    second = steep * s * rest - 2 * t * first * s
    return x * t, t + x * first, 2 * first + x * second


def relu(x: Any, problem: Problem) -> Triple:
    """Return max(x, 0), and two derivatives."""
    return _number(0, x) if x <= 0 else x, 0 if x <= 0 else 1, 0


def leaky_relu(x: Any, problem: Problem) -> Triple:
    """Return x, or slope times x below 0, and two derivatives."""
    slope = _number(problem.slope, x)
    return (x, _number(1, x), 0) if x > 0 else (x * slope, slope, 0)


TRIPLES: dict[str, Callable[[Any, Problem], Triple]] = {
    "relu": relu,
    "leaky_relu": leaky_relu,
    "hardtanh": hardtanh,
    "hardsigmoid": hardsigmoid,
    "elu": elu,
    "softplus": softplus,
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
        if order == 1 and value == 0:  # a constant part gives 0, even of an infinity
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


def _lines(shape: tuple[int, ...], dim: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield the indices of each line along an axis."""
    rest = [1 if axis == dim else size for axis, size in enumerate(shape)]
    for start in np.ndindex(*rest):
        yield [(*start[:dim], i, *start[dim + 1 :]) for i in range(shape[dim])]


def _normalised(x: Array, dim: int) -> tuple[Array, Array]:
    """Return (softmax, its logarithm)."""
    p, logs = zeros(x.shape, x), zeros(x.shape, x)
    for line in _lines(x.shape, dim):
        if not line:
            continue
        top = x[line[0]]
        for at in line:
            if not x[at] <= top:
                top = x[at]
        powers = [_exp(x[at] - top) for at in line]
        total = powers[0]
        for power in powers[1:]:
            total = total + power
        for at, power in zip(line, powers):
            p[at] = power / total
            logs[at] = x[at] - top - _lifted(math.log, total)
    return p, logs


def _moved(p: Array, v: Array, dim: int, order: int, adjoint: bool = False) -> Array:
    """Return the Jacobian of the logarithm (0) or of softmax (1), or its adjoint, times v."""
    result = zeros(p.shape, p)
    for line in _lines(p.shape, dim):
        for at in line:
            for other in line:
                i, j = (other, at) if adjoint else (at, other)
                result[at] += ((i == j) - p[j]) * (p[i] if order else 1) * v[other]
    return result


def softmax_fprop(call: Call, x: Array) -> tuple[Any, ...]:
    """Return y, softmax or its logarithm."""
    return (_normalised(x, call.problem.dim)[call.op == "log_softmax"],)


def softmax_backward(call: Call, dy: Array, x: Array) -> tuple[Any, ...]:
    p, _ = _normalised(x, call.problem.dim)
    return (_moved(p, dy, call.problem.dim, call.op == "softmax", adjoint=True),)


def softmax_jvp(call: Call, x: Array, x_dot: Array) -> tuple[Any, ...]:
    p, logs = _normalised(x, call.problem.dim)
    y_dot = _moved(p, x_dot, call.problem.dim, call.op == "softmax")
    return p if call.op == "softmax" else logs, y_dot


def softmax_double_backward(call: Call, ddx: Array, dy: Array, x: Array) -> tuple[Any, ...]:
    """Return (ddy, dx), dx by differentiating the Jacobian along ddx."""
    _, ddy = softmax_jvp(call, x, ddx)
    p, _ = _normalised(x, call.problem.dim)
    p_dot, dx = _moved(p, ddx, call.problem.dim, 1), zeros(x.shape, x)
    for line in _lines(x.shape, call.problem.dim):
        for i in line:
            for j in line:
                change = -p_dot[i]
                if call.op == "softmax":
                    change = (i == j) * p_dot[j] - p_dot[i] * p[j] - p[i] * p_dot[j]
                dx[i] += change * dy[j]
    return tuple(r if on else None for r, on in zip((ddy, dx), call.mask))


def _counts(w: Array | None, target: Array, x: Array, problem: Problem) -> tuple[Array, Any]:
    """Return (q, the divisor of the loss), one position and class at a time."""
    like = x.ravel()[0] if x.size else 0.0
    q, share = zeros(x.shape, x), _number(0, like)
    smooth = _number(problem.label_smoothing, like)
    for at in np.ndindex(target.shape):
        if target[at] == problem.ignore_index:
            continue
        own = _number(1, like) if w is None else w[target[at]]
        share = share + own
        for c in range(problem.c):
            weight = _number(1, like) if w is None else w[c]
            part = smooth / problem.c * weight
            q[(at[0], c, *at[1:])] = part + ((1 - smooth) * own if c == target[at] else 0)
    return q, share if problem.reduction == "mean" else _number(1, like)


def _over(total: Any, share: Any) -> Any:
    nothing = share == 0 and not isinstance(share, np.floating)  # which gives NaN itself
    return float("nan") if nothing else total / share


def _collected(each: Array, share: Any, problem: Problem) -> Array:
    """Return terms (N, C, ...) added up over the classes, and as the reduction says."""
    y = zeros(problem.shape("y"), each)
    for at in np.ndindex(each.shape):
        place = (at[0], *at[2:]) if problem.reduction == "none" else (0,)
        y[place] = y[place] + each[at]
    if problem.reduction == "mean":
        y[0] = _over(y[0], share)
    return y


def _derivatives(x: Array, q: Array) -> tuple[Array, Array, Array]:
    """Return (derivative of each loss, sum of q per position on every class, softmax)."""
    p, _ = _normalised(x, 1)
    totals = zeros(x.shape, x)
    for line in _lines(x.shape, 1):
        for i in line:
            for j in line:
                totals[i] += q[j]
    return totals * p - q, totals, p


def cross_entropy_fprop(x: Array, w: Array | None, target: Array, problem: Problem) -> Array:
    q, share = _counts(w, target, x, problem)
    each, (_, logs) = zeros(x.shape, x), _normalised(x, 1)
    for at in np.ndindex(x.shape):
        if q[at]:
            each[at] = -q[at] * logs[at]
    return _collected(each, share, problem)


def _of_positions(dy: Array, each: Array, share: Any, target: Array, problem: Problem) -> Array:
    dx = zeros(each.shape, each)
    for at in np.ndindex(each.shape):
        if target[(at[0], *at[2:])] == problem.ignore_index:
            continue
        if problem.reduction == "none":
            dx[at] = dy[(at[0], *at[2:])] * each[at]
        else:
            dx[at] = _over(dy[0], share) * each[at]
    return dx


def cross_entropy_backward(
    dy: Array, x: Array, w: Array | None, target: Array, problem: Problem
) -> Array:
    q, share = _counts(w, target, x, problem)
    return _of_positions(dy, _derivatives(x, q)[0], share, target, problem)


def cross_entropy_jvp(
    x: Array, w: Array | None, target: Array, x_dot: Array, problem: Problem
) -> tuple[Array, Array]:
    q, share = _counts(w, target, x, problem)
    y_dot = _collected(_derivatives(x, q)[0] * x_dot, share, problem)
    return cross_entropy_fprop(x, w, target, problem), y_dot


def cross_entropy_double_backward(
    ddx: Array, dy: Array, x: Array, w: Array | None, target: Array, problem: Problem
) -> tuple[Array, Array]:
    q, share = _counts(w, target, x, problem)
    derivative, totals, p = _derivatives(x, q)
    ddy = _collected(derivative * ddx, share, problem)
    return ddy, _of_positions(dy, totals * _moved(p, ddx, 1, 1), share, target, problem)


_PASSES = ("fprop", "backward", "jvp", "double_backward")
FORMULAS: dict[tuple[str, str], Callable[..., tuple[Any, ...]]] = {
    (op, name): globals()[f"{stem}_{name}"]
    for stem, ops in (("pointwise", tuple(TRIPLES)), ("softmax", ("softmax", "log_softmax")))
    for op in ops
    for name in _PASSES
}
FORMULAS |= by_name(globals(), ("cross_entropy",), masks=False)
