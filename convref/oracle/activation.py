"""Activations and their first two derivatives, softmax, and the loss of a classifier.

A function f of one element gives all four passes (A.1):

    y = f(x)    dx = f'(x) dy    y_dot = f'(x) x_dot    ddy = f'(x) ddx    dx2 = f''(x) ddx dy

Everything is made of four functions that are no rational ones: exp, log, and the distribution and
density of the normal law. Of Fractions these are the nearest float64, and the rest is exact.
Where exp overflows it stands in a divisor, and what comes out is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ..case import Call
from ..errors import ConvrefError, message
from ..ops import Problem
from ._blocks import chosen, in_blocks, zeroed
from ._erf import erfc, gauss
from ._windows import Array, Results

SATURATED = 40.0  # beyond, every slope here is 0 or 1 in float64, and powers of x are not needed
CUBIC = 0.044715


def _of_fractions(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function of arrays of Fractions: of each, what `function` makes of its float."""
    return np.vectorize(lambda v: Fraction(function(float(v))), otypes=[object])


def exp(x: Array) -> Array:
    """Return e to the power x."""
    return _of_fractions(math.exp)(x) if x.dtype == object else np.exp(x)


def log(x: Array) -> Array:
    """Return the natural logarithm of x."""
    return _of_fractions(math.log)(x) if x.dtype == object else np.log(x)


def normal(x: Array) -> Array:
    """Return the share of a normal law below x, small values too."""
    if x.dtype == object:
        return _of_fractions(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x)
    return 0.5 * erfc(-x / math.sqrt(2))


def density(x: Array) -> Array:
    """Return the density of a normal law at x."""
    if x.dtype == object:
        return _of_fractions(lambda v: math.exp(-v * v / 2) / math.sqrt(2 * math.pi))(x)
    return gauss(x / math.sqrt(2)) / math.sqrt(2 * math.pi)


def constant(value: float, like: Array) -> Any:
    """Return a constant as the numbers of `like` are."""
    return Fraction(value) if like.dtype == object else like.dtype.type(value)


def logistic(x: Array) -> tuple[Array, Array]:
    """Return (s, 1 - s) with s = 1 / (1 + exp(-x)), both without cancellation.

    Examples
    --------
    >>> logistic(np.array([0., -800.]))
    (array([0.5, 0. ]), array([0.5, 1. ]))
    """
    with np.errstate(over="ignore", invalid="ignore"):  # 1 / (1 + inf) is 0, as it should be
        e = exp(-x)
        s = 1 / (1 + e)
        e *= s
        return s, e if x.dtype == object else np.fmin(e, 1, out=e)  # inf * 0 is 1 here


def _sigmoid(x: Array, problem: Problem) -> Array:
    if x.dtype == object:
        return logistic(x)[0]
    with np.errstate(over="ignore"):
        s = np.exp(-x)
        s += 1
        return np.divide(1, s, out=s)


def _sigmoid_slope(x: Array, problem: Problem) -> Array:
    s, rest = logistic(x)
    return s * rest


def _sigmoid_bend(x: Array, problem: Problem) -> Array:
    s, rest = logistic(x)
    return s * rest * (rest - s)


def _tanh(x: Array, problem: Problem) -> Array:
    if x.dtype != object:
        return np.tanh(x)
    s, rest = logistic(2 * x)
    return s - rest


def _tanh_slope(x: Array, problem: Problem) -> Array:
    s, rest = logistic(2 * x)
    return 4 * s * rest


def _tanh_bend(x: Array, problem: Problem) -> Array:
    return -2 * _tanh(x, problem) * _tanh_slope(x, problem)


def _silu(x: Array, problem: Problem) -> Array:
    return x * _sigmoid(x, problem)


def _silu_slope(x: Array, problem: Problem) -> Array:
    s, rest = logistic(x)
    return s * (1 + x * rest)


def _silu_bend(x: Array, problem: Problem) -> Array:
    s, rest = logistic(x)
    return s * rest * (2 + x * (rest - s))


def _within(x: Array) -> Array:
    """Return x where slopes still change, else the end of that range; NaN stays."""
    return np.clip(x, -SATURATED, SATURATED) if x.dtype != object else x


def _inner(x: Array) -> tuple[Array, Array, Array]:
    """Return (u, u', u'') of the tanh form, y = x s(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3)."""
    x = _within(x)
    root, cubic = constant(math.sqrt(2 / math.pi), x), constant(CUBIC, x)
    square = cubic * x * x
    return root * x * (1 + square), root * (1 + 3 * square), 6 * root * cubic * x


def _gelu(x: Array, problem: Problem) -> Array:
    if problem.approximate == "none":
        return x * normal(x)
    return x * logistic(2 * _inner(x)[0])[0]


def _gelu_slope(x: Array, problem: Problem) -> Array:
    near = _within(x)
    if problem.approximate == "none":
        return normal(x) + near * density(x)
    u, u1, _ = _inner(x)
    s, rest = logistic(2 * u)
    return s + 2 * near * s * rest * u1


def _gelu_bend(x: Array, problem: Problem) -> Array:
    near = _within(x)
    if problem.approximate == "none":
        return density(x) * (2 - near * near)
    u, u1, u2 = _inner(x)
    s, rest = logistic(2 * u)
    return 2 * s * rest * (2 * u1 + near * (u2 + 2 * u1 * u1 * (rest - s)))


def _sixth(x: Array) -> Array:
    return x * Fraction(1, 6) if x.dtype == object else x / 6


def _hardswish(x: Array, problem: Problem) -> Array:
    y = x + 3
    np.clip(y, 0, 6, out=y)
    y *= x
    return _sixth(y)


def _hardswish_slope(x: Array, problem: Problem) -> Array:
    inside = _sixth(2 * x + 3)
    return zeroed(x <= -3, chosen(x >= 3, constant(1, x), inside))


def _hardswish_bend(x: Array, problem: Problem) -> Array:
    third = 2 * _sixth(np.ones_like(x))
    return chosen(x != x, x, zeroed(abs(x) >= 3, third))


def _relu(x: Array, problem: Problem) -> Array:
    return np.maximum(x, x.dtype.type(0) if x.dtype != object else 0)


def _leaky(x: Array, problem: Problem) -> Array:
    scaled = x * constant(problem.slope, x)
    if 0 < problem.slope <= 1:
        return np.maximum(x, scaled, out=scaled)
    return chosen(x > 0, x, scaled)


VALUES: dict[str, tuple[Callable[..., Array], ...]] = {
    "sigmoid": (_sigmoid, _sigmoid_slope, _sigmoid_bend),
    "tanh": (_tanh, _tanh_slope, _tanh_bend),
    "silu": (_silu, _silu_slope, _silu_bend),
    "gelu": (_gelu, _gelu_slope, _gelu_bend),
    "hardswish": (_hardswish, _hardswish_slope, _hardswish_bend),
}
OUTPUTS = {**{op: rows[0] for op, rows in VALUES.items()}, "relu": _relu, "leaky_relu": _leaky}


def passed(slope: Array, v: Array) -> Array:
    """Return slope times v, and 0 where the slope is 0, even of an infinity."""
    return zeroed(slope == 0, slope * v)


def along(op: str, x: Array, v: Array, problem: Problem) -> Array:
    """Return f'(x) v. Of the rectifiers, v itself or its share: nothing is multiplied by 1.

    Examples
    --------
    >>> from convref.ops import ReluProblem
    >>> x, problem = np.array([[[-1., 0., np.nan]]]), ReluProblem(n=1, c=1, input=(3,))
    >>> along("relu", x, np.full((1, 1, 3), np.inf), problem)
    array([[[ 0.,  0., inf]]])
    """
    if op == "relu":
        return zeroed(x <= 0, v)
    if op == "leaky_relu":
        return chosen(x > 0, v, v * constant(problem.slope, v))
    if op == "hardswish":
        return passed(_hardswish_slope(x, problem), v)
    return VALUES[op][1](x, problem) * v


def _value(call: Call, x: Array) -> Array:
    if call.op in ("relu", "leaky_relu"):  # so few steps that blocks cost more than they save
        return OUTPUTS[call.op](x, call.problem)
    return in_blocks(lambda part: OUTPUTS[call.op](part, call.problem), x)


def _along(call: Call, x: Array, v: Array) -> Array:
    return in_blocks(lambda a, b: along(call.op, a, b, call.problem), x, v)


def _fprop(call: Call, x: Array) -> Results:
    return (_value(call, x),)


def _backward(call: Call, dy: Array, x: Array) -> Results:
    return (_along(call, x, dy),)


def _jvp(call: Call, x: Array, x_dot: Array) -> Results:
    return _value(call, x), _along(call, x, x_dot)


def _piecewise_double_backward(call: Call, ddx: Array, x: Array) -> Results:
    return (_along(call, x, ddx),)


def _double_backward(call: Call, ddx: Array, dy: Array, x: Array) -> Results:
    bend = VALUES[call.op][2]
    dx = None
    if call.mask[1]:
        dx = in_blocks(lambda x, v, g: bend(x, call.problem) * (v * g), x, ddx, dy)
    return _along(call, x, ddx) if call.mask[0] else None, dx


def softmax(x: Array, dim: int) -> Array:
    """Return exp(x) over its sum along an axis (A.2), from x less its maximum.

    Examples
    --------
    >>> softmax(np.array([[1000., 1000.]]), 1)
    array([[0.5, 0.5]])
    """
    powers = exp(x - x.max(axis=dim, keepdims=True)) if x.shape[dim] else x
    return powers / powers.sum(axis=dim, keepdims=True)


def log_softmax(x: Array, dim: int) -> Array:
    """Return the logarithm of `softmax`, without ever taking that of a small number (A.3).

    Examples
    --------
    >>> log_softmax(np.array([[0., -1000.]]), 1)
    array([[    0., -1000.]])
    """
    if not x.shape[dim]:
        return x
    shifted = x - x.max(axis=dim, keepdims=True)
    return shifted - log(exp(shifted).sum(axis=dim, keepdims=True))


def shares(p: Array, v: Array, dim: int) -> Array:
    """Return p (v - sum p v): the derivative of softmax along v, and its own adjoint."""
    return p * (v - (p * v).sum(axis=dim, keepdims=True))


def _softmax_fprop(call: Call, x: Array) -> Results:
    return (softmax(x, call.problem.dim),)


def _softmax_backward(call: Call, dy: Array, x: Array) -> Results:
    return (shares(softmax(x, call.problem.dim), dy, call.problem.dim),)


def _softmax_jvp(call: Call, x: Array, x_dot: Array) -> Results:
    p = softmax(x, call.problem.dim)
    return p, shares(p, x_dot, call.problem.dim)


def _softmax_double_backward(call: Call, ddx: Array, dy: Array, x: Array) -> Results:
    """Return (ddy, dx): with <.> the mean under p, dx = p ((ddx - <ddx>)(dy - <dy>) - their <>)."""
    dim = call.problem.dim
    p = softmax(x, dim)
    ddy = shares(p, ddx, dim) if call.mask[0] else None
    if not call.mask[1]:
        return ddy, None
    v = ddx - (p * ddx).sum(axis=dim, keepdims=True)
    g = dy - (p * dy).sum(axis=dim, keepdims=True)
    return ddy, shares(p, v * g, dim)


def _centred(p: Array, v: Array, dim: int) -> Array:
    """Return v - sum p v, the derivative of log_softmax along v."""
    return v - (p * v).sum(axis=dim, keepdims=True)


def _log_fprop(call: Call, x: Array) -> Results:
    return (log_softmax(x, call.problem.dim),)


def _log_backward(call: Call, dy: Array, x: Array) -> Results:
    dim = call.problem.dim
    return (dy - softmax(x, dim) * dy.sum(axis=dim, keepdims=True),)


def _log_jvp(call: Call, x: Array, x_dot: Array) -> Results:
    dim = call.problem.dim
    return log_softmax(x, dim), _centred(softmax(x, dim), x_dot, dim)


def _log_double_backward(call: Call, ddx: Array, dy: Array, x: Array) -> Results:
    dim = call.problem.dim
    p = softmax(x, dim)
    ddy = _centred(p, ddx, dim) if call.mask[0] else None
    if not call.mask[1]:
        return ddy, None
    return ddy, -dy.sum(axis=dim, keepdims=True) * shares(p, ddx, dim)


def targets(target: Array, w: Array | None, problem: Problem, like: Array) -> tuple[Array, Array]:
    """Return (q, share): how much each class weighs in each loss, and what a loss is divided by.

    A loss is the sum of -q log_softmax over the classes (A.4). Its own class has the weight w and
    all classes share the smoothed part; where the target is ignored, q is 0.

    Examples
    --------
    >>> from convref.ops import CrossEntropyProblem
    >>> problem = CrossEntropyProblem(n=2, c=3, input=(1,), ignore_index=1)
    >>> q, total = targets(np.array([[2], [1]]), None, problem, np.ones(1))
    >>> q[..., 0].tolist(), total.item()
    ([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], 1.0)
    """
    counted = target != problem.ignore_index
    wrong = counted & ((target < 0) | (target >= problem.c))
    if wrong.any():
        needs = f"a class from 0 to {problem.c - 1} or {problem.ignore_index}"
        raise ConvrefError(message("target", f"holds {int(target[wrong][0])}, needs {needs}"))
    one, smooth = constant(1, like), constant(problem.label_smoothing, like)
    w = np.full(problem.c, one, like.dtype) if w is None else w
    index = np.where(counted, target, 0)
    own = np.where(counted, w[index], constant(0, like))
    per_class = w.reshape(-1, *(1,) * problem.rank)
    of_class = np.arange(problem.c).reshape(-1, *(1,) * problem.rank)
    hit = (index[:, None] == of_class) & counted[:, None]
    spread = smooth * (Fraction(1, problem.c) if like.dtype == object else 1 / problem.c)
    q = np.where(hit, (one - smooth) * per_class, constant(0, like))
    if problem.label_smoothing:
        q = q + np.where(counted[:, None], spread * per_class, constant(0, like))
    return q, own.sum() if problem.reduction == "mean" else one


def _over(total: Array, divisor: Any) -> Array:
    """Return total over divisor; without any target, 0 over 0 is NaN."""
    if total.dtype == object and not divisor:
        return np.full(total.shape, np.nan)
    return total / divisor


def losses(x: Array, q: Array, share: Any, problem: Problem) -> Array:
    """Return the loss at every position, or all of them together over `share`."""
    logs = log_softmax(x, 1)
    each = -np.where(q == 0, constant(0, x), q * logs).sum(axis=1)
    return each if problem.reduction == "none" else _over(each.sum(keepdims=True).reshape(1), share)


def _each(dy: Array, share: Any, problem: Problem) -> Array:
    """Return the cotangent of each position's loss."""
    return dy[:, None] if problem.reduction == "none" else _over(dy, share)


def _counted(target: Array, dx: Array, problem: Problem) -> Array:
    """Return dx with 0 where the target is ignored, whatever stands there."""
    return np.where((target == problem.ignore_index)[:, None], constant(0, dx), dx)


def _given(call: Call, x: Array, w: Array | None, target: Array) -> tuple[Array, Any, Array, Array]:
    """Return (q, share, p, slope): slope is that of each loss, p sum q - q (A.5)."""
    q, share = targets(target, w, call.problem, x)
    p = softmax(x, 1)
    return q, share, p, p * q.sum(axis=1, keepdims=True) - q


def _loss_fprop(call: Call, x: Array, w: Array | None, target: Array) -> Results:
    return (losses(x, *targets(target, w, call.problem, x), call.problem),)


def _loss_backward(call: Call, dy: Array, x: Array, w: Array | None, target: Array) -> Results:
    _, share, _, slope = _given(call, x, w, target)
    return (_counted(target, _each(dy, share, call.problem) * slope, call.problem),)


def _loss_along(call: Call, slope: Array, share: Any, v: Array) -> Array:
    each = (slope * v).sum(axis=1)
    if call.problem.reduction == "none":
        return each
    return _over(each.sum(keepdims=True).reshape(1), share)


def _loss_jvp(call: Call, x: Array, w: Array | None, target: Array, x_dot: Array) -> Results:
    q, share, _, slope = _given(call, x, w, target)
    return losses(x, q, share, call.problem), _loss_along(call, slope, share, x_dot)


def _loss_double_backward(
    call: Call, ddx: Array, dy: Array, x: Array, w: Array | None, target: Array
) -> Results:
    q, share, p, slope = _given(call, x, w, target)
    ddy = _loss_along(call, slope, share, ddx) if call.mask[0] else None
    if not call.mask[1]:
        return ddy, None
    total = q.sum(axis=1, keepdims=True)
    dx = _each(dy, share, call.problem) * (total * shares(p, ddx, 1))
    return ddy, _counted(target, dx, call.problem)


_SMOOTH = {
    "fprop": _fprop,
    "backward": _backward,
    "jvp": _jvp,
    "double_backward": _double_backward,
}
_PIECEWISE = {**_SMOOTH, "double_backward": _piecewise_double_backward}
_OPS: dict[str, dict[str, Any]] = {
    "relu": _PIECEWISE,
    "leaky_relu": _PIECEWISE,
    **dict.fromkeys(VALUES, _SMOOTH),
    "softmax": {
        "fprop": _softmax_fprop,
        "backward": _softmax_backward,
        "jvp": _softmax_jvp,
        "double_backward": _softmax_double_backward,
    },
    "log_softmax": {
        "fprop": _log_fprop,
        "backward": _log_backward,
        "jvp": _log_jvp,
        "double_backward": _log_double_backward,
    },
    "cross_entropy": {
        "fprop": _loss_fprop,
        "backward": _loss_backward,
        "jvp": _loss_jvp,
        "double_backward": _loss_double_backward,
    },
}
FORMULAS = {(op, name): run for op, rows in _OPS.items() for name, run in rows.items()}
