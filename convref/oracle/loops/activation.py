"""Activations as loops: every element, and every sum over classes, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops import Problem
from ._zeros import Array, zeros

if TYPE_CHECKING:
    from ...case import Call

Triple = tuple[Any, Any, Any]  # the value of a function and of its first two derivatives


def _lifted(function: Callable[[float], float], v: Any) -> Any:
    """Return function(v): of a Fraction as a Fraction, of NaN NaN, of what overflows inf."""
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


def _sigmoid(x: Any, problem: Problem) -> Triple:
    s = _logistic(x)
    return s, s - s * s, s - 3 * s * s + 2 * s * s * s


def _tanh(x: Any, problem: Problem) -> Triple:
    t = _lifted(math.tanh, x) if isinstance(x, np.floating) else 2 * _logistic(2 * x) - 1
    return t, 1 - t * t, 2 * t * t * t - 2 * t


def _silu(x: Any, problem: Problem) -> Triple:
    s, s1, s2 = _sigmoid(x, problem)
    return x * s, s + x * s1, 2 * s1 + x * s2


def _gelu(x: Any, problem: Problem) -> Triple:
    if problem.approximate == "none":
        below = _lifted(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)), x)
        at = _lifted(lambda v: math.exp(-v * v / 2) / math.sqrt(2 * math.pi), x)
        return x * below, below + x * at, 2 * at - x * x * at
    k, cubic = _number(math.sqrt(2 / math.pi), x), _number(0.044715, x)
    u = k * (x + cubic * x * x * x)
    u1, u2 = k * (1 + 3 * cubic * x * x), 6 * k * cubic * x
    t, t1, t2 = _tanh(u, problem)
    first = (1 + t) / 2 + x * t1 * u1 / 2
    return x * (1 + t) / 2, first, t1 * u1 + x * (t2 * u1 * u1 + t1 * u2) / 2


def _hardswish(x: Any, problem: Problem) -> Triple:
    nothing, one = _number(0, x), _number(1, x)
    if x != x:
        return x, x, x
    if x <= -3:
        return x * nothing, nothing, nothing
    if x >= 3:
        return x, one, nothing
    return x * (x + 3) / 6, (2 * x + 3) / 6, one / 3


def _relu(x: Any, problem: Problem) -> Triple:
    return _number(0, x) if x <= 0 else x, 0 if x <= 0 else 1, 0


def _leaky(x: Any, problem: Problem) -> Triple:
    slope = _number(problem.slope, x)
    return (x, _number(1, x), 0) if x > 0 else (x * slope, slope, 0)


TRIPLES: dict[str, Callable[[Any, Problem], Triple]] = {
    "relu": _relu,
    "leaky_relu": _leaky,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "silu": _silu,
    "gelu": _gelu,
    "hardswish": _hardswish,
}


def _mapped(call: Call, order: int, x: Array, *factors: Array) -> Array:
    """Return the derivative of some order at every element, times the factors there."""
    result = zeros(x.shape, x)
    for at in np.ndindex(x.shape):
        value = TRIPLES[call.op](x[at], call.problem)[order]
        if order and value == 0:  # a flat part passes nothing on, not even an infinity
            continue
        for factor in factors:
            value = value * factor[at]
        result[at] = value
    return result


def _fprop(call: Call, x: Array) -> tuple[Any, ...]:
    return (_mapped(call, 0, x),)


def _backward(call: Call, dy: Array, x: Array) -> tuple[Any, ...]:
    return (_mapped(call, 1, x, dy),)


def _jvp(call: Call, x: Array, x_dot: Array) -> tuple[Any, ...]:
    return _mapped(call, 0, x), _mapped(call, 1, x, x_dot)


def _second(call: Call, ddx: Array, *rest: Array) -> tuple[Any, ...]:
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


def _moved(p: Array, v: Array, dim: int, order: int) -> Array:
    """Return the derivative along v of the logarithm (0) or of softmax itself (1)."""
    result = zeros(p.shape, p)
    for line in _lines(p.shape, dim):
        for i in line:
            for j in line:
                result[i] += ((i == j) - p[j]) * (p[i] if order else 1) * v[j]
    return result


def _softmax_fprop(call: Call, x: Array) -> tuple[Any, ...]:
    return (_normalised(x, call.problem.dim)[call.op == "log_softmax"],)


def _softmax_jvp(call: Call, x: Array, x_dot: Array) -> tuple[Any, ...]:
    found = _normalised(x, call.problem.dim)
    log = call.op == "log_softmax"
    return found[log], _moved(found[0], x_dot, call.problem.dim, not log)


def _adjoint(call: Call, p: Array, g: Array) -> Array:
    """Return the cotangent of x where g is that of the result, entry by entry of the Jacobian."""
    result = zeros(p.shape, p)
    for line in _lines(p.shape, call.problem.dim):
        for i in line:
            for j in line:
                factor = p[j] if call.op == "softmax" else 1
                result[i] += ((i == j) - p[i]) * factor * g[j]
    return result


def _softmax_backward(call: Call, dy: Array, x: Array) -> tuple[Any, ...]:
    return (_adjoint(call, _normalised(x, call.problem.dim)[0], dy),)


def _softmax_second(call: Call, ddx: Array, dy: Array, x: Array) -> tuple[Any, ...]:
    """Differentiate `_adjoint` along ddx: it is symmetric in the two."""
    dim = call.problem.dim
    p, _ = _normalised(x, dim)
    p_dot = _moved(p, ddx, dim, 1)
    ddy = _moved(p, ddx, dim, int(call.op == "softmax"))
    dx = zeros(x.shape, x)
    for line in _lines(x.shape, dim):
        for i in line:
            for j in line:
                if call.op == "softmax":
                    change = (i == j) * p_dot[j] - p_dot[i] * p[j] - p[i] * p_dot[j]
                else:
                    change = -p_dot[i]
                dx[i] += change * dy[j]
    return tuple(r if on else None for r, on in zip((ddy, dx), call.mask))


def _counts(call: Call, w: Array | None, target: Array, x: Array) -> tuple[Array, Any]:
    """Return (q, what a loss is divided by), one position and class at a time."""
    problem, like = call.problem, x.ravel()[0] if x.size else 0.0
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
    nothing = share == 0 and not isinstance(share, np.floating)  # which would say so itself
    return float("nan") if nothing else total / share


def _collected(call: Call, each: Array, share: Any) -> Array:
    """Return terms (N, C, ...) added up over the classes, and as the reduction says."""
    y = zeros(call.problem.shape("y"), each)
    for at in np.ndindex(each.shape):
        place = (at[0], *at[2:]) if call.problem.reduction == "none" else (0,)
        y[place] = y[place] + each[at]
    if call.problem.reduction == "mean":
        y[0] = _over(y[0], share)
    return y


def _slopes(call: Call, x: Array, q: Array) -> tuple[Array, Array, Array]:
    """Return (slope of each loss, sum of q per position on every class, softmax)."""
    p, _ = _normalised(x, 1)
    totals = zeros(x.shape, x)
    for line in _lines(x.shape, 1):
        for i in line:
            for j in line:
                totals[i] += q[j]
    return totals * p - q, totals, p


def _loss_fprop(call: Call, x: Array, w: Array | None, target: Array) -> tuple[Any, ...]:
    q, share = _counts(call, w, target, x)
    each, (_, logs) = zeros(x.shape, x), _normalised(x, 1)
    for at in np.ndindex(x.shape):
        if q[at]:
            each[at] = -q[at] * logs[at]
    return (_collected(call, each, share),)


def _spread(call: Call, dy: Array, each: Array, share: Any, target: Array) -> Array:
    dx = zeros(each.shape, each)
    for at in np.ndindex(each.shape):
        if target[(at[0], *at[2:])] == call.problem.ignore_index:
            continue
        if call.problem.reduction == "none":
            dx[at] = dy[(at[0], *at[2:])] * each[at]
        else:
            dx[at] = _over(dy[0], share) * each[at]
    return dx


def _loss_backward(
    call: Call, dy: Array, x: Array, w: Array | None, target: Array
) -> tuple[Any, ...]:
    q, share = _counts(call, w, target, x)
    return (_spread(call, dy, _slopes(call, x, q)[0], share, target),)


def _loss_jvp(
    call: Call, x: Array, w: Array | None, target: Array, x_dot: Array
) -> tuple[Any, ...]:
    q, share = _counts(call, w, target, x)
    y_dot = _collected(call, _slopes(call, x, q)[0] * x_dot, share)
    return *_loss_fprop(call, x, w, target), y_dot


def _loss_second(
    call: Call, ddx: Array, dy: Array, x: Array, w: Array | None, target: Array
) -> tuple[Any, ...]:
    q, share = _counts(call, w, target, x)
    slope, totals, p = _slopes(call, x, q)
    ddy = _collected(call, slope * ddx, share)
    dx = _spread(call, dy, totals * _moved(p, ddx, 1, 1), share, target)
    return tuple(r if on else None for r, on in zip((ddy, dx), call.mask))


_PASSES = ("fprop", "backward", "jvp", "double_backward")
_POINTWISE = (_fprop, _backward, _jvp, _second)
_SOFTMAX = (_softmax_fprop, _softmax_backward, _softmax_jvp, _softmax_second)
_OPS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(TRIPLES, _POINTWISE),
    "softmax": _SOFTMAX,
    "log_softmax": _SOFTMAX,
    "cross_entropy": (_loss_fprop, _loss_backward, _loss_jvp, _loss_second),
}
FORMULAS = {(op, name): run for op, rows in _OPS.items() for name, run in zip(_PASSES, rows)}
