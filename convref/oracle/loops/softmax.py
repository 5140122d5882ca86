"""Softmax and the loss of a classifier as loops: every term of every sum one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops import Problem
from .._passes import by_name
from ._elementary import exp, log, number
from ._zeros import Array, zeros

if TYPE_CHECKING:
    from ...case import Call


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
        powers = [exp(x[at] - top) for at in line]
        total = powers[0]
        for power in powers[1:]:
            total = total + power
        for at, power in zip(line, powers):
            p[at] = power / total
            logs[at] = x[at] - top - log(total)
    return p, logs


def _jacobian_product(p: Array, v: Array, dim: int, order: int, adjoint: bool = False) -> Array:
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
    return (_jacobian_product(p, dy, call.problem.dim, call.op == "softmax", adjoint=True),)


def softmax_jvp(call: Call, x: Array, x_dot: Array) -> tuple[Any, ...]:
    p, logs = _normalised(x, call.problem.dim)
    y_dot = _jacobian_product(p, x_dot, call.problem.dim, call.op == "softmax")
    return p if call.op == "softmax" else logs, y_dot


def softmax_double_backward(call: Call, ddx: Array, dy: Array, x: Array) -> tuple[Any, ...]:
    """Return (ddy, dx), dx by differentiating the Jacobian along ddx."""
    _, ddy = softmax_jvp(call, x, ddx)
    p, _ = _normalised(x, call.problem.dim)
    p_dot, dx = _jacobian_product(p, ddx, call.problem.dim, 1), zeros(x.shape, x)
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
    q, share = zeros(x.shape, x), number(0, like)
    smooth = number(problem.label_smoothing, like)
    for at in np.ndindex(target.shape):
        if target[at] == problem.ignore_index:
            continue
        own = number(1, like) if w is None else w[target[at]]
        share = share + own
        for c in range(problem.c):
            weight = number(1, like) if w is None else w[c]
            part = smooth / problem.c * weight if smooth else 0 * smooth
            q[(at[0], c, *at[1:])] = part + ((1 - smooth) * own if c == target[at] else 0)
    return q, share if problem.reduction == "mean" else number(1, like)


def _divide(total: Any, share: Any) -> Any:
    nothing = share == 0 and not isinstance(share, np.floating)  # which gives NaN itself
    return float("nan") if nothing else total / share


def _reduce_loss(each: Array, share: Any, problem: Problem) -> Array:
    """Return terms (N, C, ...) added up over the classes, and as the reduction says."""
    y = zeros(problem.shape("y"), each)
    for at in np.ndindex(each.shape):
        place = (at[0], *at[2:]) if problem.reduction == "none" else (0,)
        y[place] = y[place] + each[at]
    if problem.reduction == "mean":
        y[0] = _divide(y[0], share)
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
    return _reduce_loss(each, share, problem)


def _of_positions(
    dy: Array, each: Array, share: Any, target: Array | None, problem: Problem
) -> Array:
    """Return terms times the cotangent of their position, 0 where the target is ignored."""
    dx = zeros(each.shape, each)
    for at in np.ndindex(each.shape):
        if target is not None and target[(at[0], *at[2:])] == problem.ignore_index:
            continue
        if problem.reduction == "none":
            dx[at] = dy[(at[0], *at[2:])] * each[at]
        else:
            dx[at] = _divide(dy[0], share) * each[at]
    return dx


def _counted(target: Array, each: Array, problem: Problem) -> Array:
    """Return terms without those where the target is ignored."""
    kept = zeros(each.shape, each)
    for at in np.ndindex(each.shape):
        if target[(at[0], *at[2:])] != problem.ignore_index:
            kept[at] = each[at]
    return kept


def cross_entropy_backward(
    dy: Array, x: Array, w: Array | None, target: Array, problem: Problem
) -> Array:
    q, share = _counts(w, target, x, problem)
    return _of_positions(dy, _derivatives(x, q)[0], share, target, problem)


def cross_entropy_jvp(
    x: Array, w: Array | None, target: Array, x_dot: Array, problem: Problem
) -> tuple[Array, Array]:
    q, share = _counts(w, target, x, problem)
    y_dot = _reduce_loss(_counted(target, _derivatives(x, q)[0] * x_dot, problem), share, problem)
    return cross_entropy_fprop(x, w, target, problem), y_dot


def cross_entropy_double_backward(
    ddx: Array, dy: Array, x: Array, w: Array | None, target: Array, problem: Problem
) -> tuple[Array, Array]:
    q, share = _counts(w, target, x, problem)
    derivative, totals, p = _derivatives(x, q)
    ddy = _reduce_loss(_counted(target, derivative * ddx, problem), share, problem)
    return ddy, _of_positions(dy, totals * _jacobian_product(p, ddx, 1, 1), share, target, problem)


def _picked(values: Array, w: Array | None, target: Array, problem: Problem) -> Array:
    q, share = _counts(w, target, values, problem)
    each = zeros(values.shape, values)
    for at in np.ndindex(values.shape):
        if q[at]:
            each[at] = -q[at] * values[at]
    return _reduce_loss(each, share, problem)


def nll_loss_fprop(x: Array, w: Array | None, target: Array, problem: Problem) -> Array:
    """Return y, one class of one position at a time."""
    return _picked(x, w, target, problem)


def nll_loss_backward(
    dy: Array, x: Array, w: Array | None, target: Array, problem: Problem
) -> Array:
    """Return dx, which is 0 but at the targets."""
    q, share = _counts(w, target, x, problem)
    found, dx = _of_positions(dy, -q, share, target, problem), zeros(x.shape, x)
    for at in np.ndindex(x.shape):
        if target[(at[0], *at[2:])] == at[1] != problem.ignore_index:
            dx[at] = found[at]
    return dx


def nll_loss_jvp(
    x: Array, w: Array | None, target: Array, x_dot: Array, problem: Problem
) -> tuple[Array, Array]:
    """Return (y, y_dot)."""
    return _picked(x, w, target, problem), _picked(x_dot, w, target, problem)


def hardmax_fprop(x: Array, problem: Problem) -> Array:
    """Return y; a later NaN or equal number does not win."""
    y = zeros(x.shape, x)
    for line in filter(None, _lines(x.shape, problem.dim)):
        best = line[0]
        for at in line:
            if x[best] == x[best] and not x[at] <= x[best]:
                best = at
        y[best] = 1
    return y


def _soft(p: Array, w: Array | None, problem: Problem) -> tuple[Array, Array, Any]:
    """Return (q, its derivative by p, the divisor of the loss)."""
    like = p.ravel()[0] if p.size else 0.0
    smooth = number(problem.label_smoothing, like)
    q, own, positions = zeros(p.shape, p), zeros(p.shape, p), 0
    for at in np.ndindex(p.shape):
        positions += at[1] == 0
        own[at] = (1 - smooth) * (1 if w is None else w[at[1]])
        q[at] = (smooth / problem.c + (1 - smooth) * p[at]) * (1 if w is None else w[at[1]])
    return q, own, number(positions if problem.reduction == "mean" else 1, like)


def soft_cross_entropy_fprop(x: Array, p: Array, w: Array | None, problem: Problem) -> Array:
    q, _, count = _soft(p, w, problem)
    return _reduce_loss(-q * _normalised(x, 1)[1], count, problem)


def soft_cross_entropy_backward(
    dy: Array, x: Array, p: Array, w: Array | None, problem: Problem
) -> tuple[Array, Array]:
    q, own, count = _soft(p, w, problem)
    logs = _normalised(x, 1)[1]
    dx = _of_positions(dy, _derivatives(x, q)[0], count, None, problem)
    return dx, _of_positions(dy, -own * logs, count, None, problem)


def soft_cross_entropy_jvp(
    x: Array, p: Array, w: Array | None, x_dot: Array, p_dot: Array, problem: Problem
) -> tuple[Array, Array]:
    q, own, count = _soft(p, w, problem)
    each = _derivatives(x, q)[0] * x_dot - own * _normalised(x, 1)[1] * p_dot
    y = soft_cross_entropy_fprop(x, p, w, problem)
    return y, _reduce_loss(each, count, problem)


def soft_cross_entropy_double_backward(
    ddx: Array, ddp: Array, dy: Array, x: Array, p: Array, w: Array | None, problem: Problem
) -> tuple[Array, Array, Array]:
    q, own, count = _soft(p, w, problem)
    _, totals, scores = _derivatives(x, q)
    _, ddy = soft_cross_entropy_jvp(x, p, w, ddx, ddp, problem)
    by_x = totals * _jacobian_product(scores, ddx, 1, 1) + _derivatives(x, own * ddp)[0]
    by_p = -own * _jacobian_product(scores, ddx, 1, 0)
    return (
        ddy,
        _of_positions(dy, by_x, count, None, problem),
        _of_positions(dy, by_p, count, None, problem),
    )


_PASSES = ("fprop", "backward", "jvp", "double_backward")
FORMULAS: dict[tuple[str, str], Callable[..., tuple[Any, ...]]] = {
    (op, name): globals()[f"softmax_{name}"]
    for op in ("softmax", "log_softmax")
    for name in _PASSES
}
OPS = ("hardmax", "nll_loss", "cross_entropy", "soft_cross_entropy")
FORMULAS |= by_name(globals(), OPS, masks=False)
