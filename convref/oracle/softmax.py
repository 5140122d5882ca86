"""Softmax along an axis, its logarithm, and the cross entropy of a classifier."""

from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import invalid
from ..ops import Problem
from ._elementary import constant, exp, log
from ._passes import by_name
from ._windows import Array, Results


def softmax(x: Array, dim: int) -> Array:
    """Return exp(x) over its sum along an axis (A.2), from x less its maximum.

    >>> softmax(np.array([[1000., 1000.]]), 1)
    array([[0.5, 0.5]])
    """
    powers = exp(x - x.max(axis=dim, keepdims=True)) if x.shape[dim] else x
    return powers / powers.sum(axis=dim, keepdims=True)


def log_softmax(x: Array, dim: int) -> Array:
    """Return the logarithm of `softmax`, without ever taking that of a small number (A.3).

    >>> log_softmax(np.array([[0., -1000.]]), 1)
    array([[    0., -1000.]])
    """
    if not x.shape[dim]:
        return x
    shifted = x - x.max(axis=dim, keepdims=True)
    return shifted - log(exp(shifted).sum(axis=dim, keepdims=True))


def softmax_along(p: Array, v: Array, dim: int) -> Array:
    """Return p (v - sum p v): the derivative of softmax along v, and its own adjoint."""
    return p * (v - (p * v).sum(axis=dim, keepdims=True))


def softmax_fprop(x: Array, *, problem: Problem) -> Array:
    """Return y, the softmax of x along ``problem.dim``."""
    return softmax(x, problem.dim)


def softmax_backward(dy: Array, x: Array, *, problem: Problem) -> Array:
    """Return dx = p (dy - sum p dy)."""
    return softmax_along(softmax(x, problem.dim), dy, problem.dim)


def softmax_jvp(x: Array, x_dot: Array, *, problem: Problem) -> Results:
    """Return (y, y_dot = p (x_dot - sum p x_dot))."""
    p = softmax(x, problem.dim)
    return p, softmax_along(p, x_dot, problem.dim)


def softmax_double_backward(
    ddx: Array, dy: Array, x: Array, *, problem: Problem, mask: tuple[bool, ...]
) -> Results:
    """Return (ddy, dx): with <.> the mean under p, dx = p ((ddx - <ddx>)(dy - <dy>) - their <>)."""
    dim = problem.dim
    p = softmax(x, dim)
    ddy = softmax_along(p, ddx, dim) if mask[0] else None
    if not mask[1]:
        return ddy, None
    return ddy, softmax_along(
        p, log_softmax_along(p, ddx, dim) * log_softmax_along(p, dy, dim), dim
    )


def log_softmax_along(p: Array, v: Array, dim: int) -> Array:
    """Return v - sum p v, the derivative of log_softmax along v."""
    return v - (p * v).sum(axis=dim, keepdims=True)


def log_softmax_fprop(x: Array, *, problem: Problem) -> Array:
    """Return y, the logarithm of the softmax of x along ``problem.dim``."""
    return log_softmax(x, problem.dim)


def log_softmax_backward(dy: Array, x: Array, *, problem: Problem) -> Array:
    """Return dx = dy - p sum dy."""
    return dy - softmax(x, problem.dim) * dy.sum(axis=problem.dim, keepdims=True)


def log_softmax_jvp(x: Array, x_dot: Array, *, problem: Problem) -> Results:
    """Return (y, y_dot = x_dot - sum p x_dot)."""
    dim = problem.dim
    return log_softmax(x, dim), log_softmax_along(softmax(x, dim), x_dot, dim)


def log_softmax_double_backward(
    ddx: Array, dy: Array, x: Array, *, problem: Problem, mask: tuple[bool, ...]
) -> Results:
    """Return (ddy = ddx - <ddx>, dx = -sum dy p (ddx - <ddx>))."""
    dim = problem.dim
    p = softmax(x, dim)
    ddy = log_softmax_along(p, ddx, dim) if mask[0] else None
    if not mask[1]:
        return ddy, None
    return ddy, -dy.sum(axis=dim, keepdims=True) * softmax_along(p, ddx, dim)


def targets(target: Array, w: Array | None, problem: Problem, like: Array) -> tuple[Array, Array]:
    """Return (q, total): the weight of each class in each loss, and the divisor of their sum.

    A loss is the sum of -q log_softmax over the classes (A.4). The target's class has its weight w,
    the smoothed part is that of all classes; where the target is ignored, q is 0.

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
        raise invalid("target", f"holds {int(target[wrong][0])}, needs {needs}")
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


def losses(logs: Array, q: Array, total: Any, problem: Problem) -> Array:
    """Return the loss of logarithms at every position, or the sum of all over `total`."""
    each = -np.where(q == 0, constant(0, logs), q * logs).sum(axis=1)
    return _reduced(each, total, problem)


def _reduced(each: Array, total: Any, problem: Problem) -> Array:
    """Return terms of the positions as they are, or their sum over `total`."""
    if problem.reduction == "none":
        return each
    return _divided(each.sum(keepdims=True).reshape(1), total)


def _divided(sums: Array, total: Any) -> Array:
    """Return sums over total; without any target, 0 over 0 is NaN."""
    if sums.dtype == object and not total:
        return np.full(sums.shape, np.nan)
    return sums / total


def _of_positions(dy: Array, total: Any, problem: Problem) -> Array:
    """Return the cotangent of each position's loss."""
    return dy[:, None] if problem.reduction == "none" else _divided(dy, total)


def _counted(target: Array, terms: Array, problem: Problem) -> Array:
    """Return terms with 0 where the target is ignored, even of an infinity."""
    return np.where((target == problem.ignore_index)[:, None], constant(0, terms), terms)


def _derivative(p: Array, q: Array) -> Array:
    """Return the derivative of each loss with respect to x: p sum q - q (A.5)."""
    return p * q.sum(axis=1, keepdims=True) - q


def cross_entropy_fprop(x: Array, w: Array | None, target: Array, *, problem: Problem) -> Array:
    """Return y, the loss of each position, their sum or their mean (A.4)."""
    return losses(log_softmax(x, 1), *targets(target, w, problem, x), problem)


def cross_entropy_backward(
    dy: Array, x: Array, w: Array | None, target: Array, *, problem: Problem
) -> Array:
    """Return dx, the derivative of each loss times the cotangent of its position (A.5)."""
    q, total = targets(target, w, problem, x)
    dx = _of_positions(dy, total, problem) * _derivative(softmax(x, 1), q)
    return _counted(target, dx, problem)


def cross_entropy_jvp(
    x: Array, w: Array | None, target: Array, x_dot: Array, *, problem: Problem
) -> Results:
    """Return (y, y_dot), the derivative of each loss times x_dot, reduced as y is."""
    q, total = targets(target, w, problem, x)
    each = _counted(target, _derivative(softmax(x, 1), q) * x_dot, problem).sum(axis=1)
    return losses(log_softmax(x, 1), q, total, problem), _reduced(each, total, problem)


def cross_entropy_double_backward(
    ddx: Array,
    dy: Array,
    x: Array,
    w: Array | None,
    target: Array,
    *,
    problem: Problem,
    mask: tuple[bool, ...],
) -> Results:
    """Return (ddy, dx): the JVP along ddx, and sum q times that of softmax along ddx."""
    q, total = targets(target, w, problem, x)
    p, ddy = softmax(x, 1), None
    if mask[0]:
        each = _counted(target, _derivative(p, q) * ddx, problem)
        ddy = _reduced(each.sum(axis=1), total, problem)
    if not mask[1]:
        return ddy, None
    second = q.sum(axis=1, keepdims=True) * softmax_along(p, ddx, 1)
    return ddy, _counted(target, _of_positions(dy, total, problem) * second, problem)


def nll_loss_fprop(x: Array, w: Array | None, target: Array, *, problem: Problem) -> Array:
    """Return y: minus x of the target's class times its weight (A.7), reduced as the loss."""
    return losses(x, *targets(target, w, problem, x), problem)


def one_hot(target: Array, problem: Problem) -> Array:
    """Return where a class is the target of its position, and counts."""
    classes = np.arange(problem.c).reshape(-1, *(1,) * problem.rank)
    return (classes == target[:, None]) & (target != problem.ignore_index)[:, None]


def nll_loss_backward(
    dy: Array, x: Array, w: Array | None, target: Array, *, problem: Problem
) -> Array:
    """Return dx: minus the weight at the target's class times the cotangent, else 0."""
    q, total = targets(target, w, problem, dy)
    dx = -q * _of_positions(dy, total, problem)
    return np.where(one_hot(target, problem), dx, constant(0, dx))


def nll_loss_jvp(
    x: Array, w: Array | None, target: Array, x_dot: Array, *, problem: Problem
) -> Results:
    """Return (y, y_dot): the loss is linear in x."""
    q, total = targets(target, w, problem, x)
    return losses(x, q, total, problem), losses(x_dot, q, total, problem)


def hardmax_fprop(x: Array, *, problem: Problem) -> Array:
    """Return 1 at the first maximum of each line along ``problem.dim``, at the first NaN if any.

    Examples
    --------
    >>> from convref.ops import HardmaxProblem
    >>> problem = HardmaxProblem(n=1, c=3, input=(1,))
    >>> hardmax_fprop(np.array([[[1], [7], [7]]]), problem=problem).ravel()
    array([0, 1, 0])
    """
    y, dim = np.zeros_like(x), problem.dim
    if x.shape[dim]:
        np.put_along_axis(y, x.argmax(axis=dim, keepdims=True), y.dtype.type(1), dim)
    return y


def shares(p: Array, w: Array | None, problem: Problem) -> tuple[Array, Array, Any]:
    """Return (q, factor, total): the loss is -sum q log_softmax over total (A.8), dq / dp = factor.

    Examples
    --------
    >>> from convref.ops import SoftCrossEntropyProblem
    >>> problem = SoftCrossEntropyProblem(n=1, c=2, input=(1,), label_smoothing=0.5)
    >>> q, _, total = shares(np.array([[[1.], [0.]]]), None, problem)
    >>> q.ravel().tolist(), total.item()
    ([0.75, 0.25], 1.0)
    """
    one, smooth = constant(1, p), constant(problem.label_smoothing, p)
    per_class = one if w is None else w.reshape(-1, *(1,) * problem.rank)
    spread = smooth * (Fraction(1, problem.c) if p.dtype == object else 1 / problem.c)
    smoothed = (one - smooth) * p + spread if problem.label_smoothing else p
    total = constant(p.size // problem.c if problem.reduction == "mean" else 1, p)
    return per_class * smoothed, (one - smooth) * per_class, total


def soft_cross_entropy_fprop(x: Array, p: Array, w: Array | None, *, problem: Problem) -> Array:
    """Return y, the loss of each position, their sum or their mean (A.8)."""
    q, _, total = shares(p, w, problem)
    return _reduced(-(q * log_softmax(x, 1)).sum(axis=1), total, problem)


def soft_cross_entropy_backward(
    dy: Array, x: Array, p: Array, w: Array | None, *, problem: Problem, mask: tuple[bool, ...]
) -> Results:
    """Return (dx, dp)."""
    q, factor, total = shares(p, w, problem)
    each = _of_positions(dy, total, problem)
    dx = each * _derivative(softmax(x, 1), q) if mask[0] else None
    return dx, -each * factor * log_softmax(x, 1) if mask[1] else None


def soft_cross_entropy_jvp(
    x: Array, p: Array, w: Array | None, x_dot: Array, p_dot: Array, *, problem: Problem
) -> Results:
    """Return (y, y_dot)."""
    q, factor, total = shares(p, w, problem)
    logs = log_softmax(x, 1)
    each = (_derivative(softmax(x, 1), q) * x_dot - factor * logs * p_dot).sum(axis=1)
    return _reduced(-(q * logs).sum(axis=1), total, problem), _reduced(each, total, problem)


def soft_cross_entropy_double_backward(
    ddx: Array,
    ddp: Array,
    dy: Array,
    x: Array,
    p: Array,
    w: Array | None,
    *,
    problem: Problem,
    mask: tuple[bool, ...],
) -> Results:
    """Return (ddy, dx, dp): the loss is linear in p."""
    q, factor, total = shares(p, w, problem)
    each, scores = _of_positions(dy, total, problem), softmax(x, 1)
    ddy, dx, dp = None, None, None
    if mask[0]:
        _, ddy = soft_cross_entropy_jvp(x, p, w, ddx, ddp, problem=problem)
    if mask[1]:
        second = q.sum(axis=1, keepdims=True) * softmax_along(scores, ddx, 1)
        dx = each * (second + _derivative(scores, factor * ddp))
    if mask[2]:
        dp = -each * factor * log_softmax_along(scores, ddx, 1)
    return ddy, dx, dp


OPS = ("softmax", "log_softmax", "hardmax", "nll_loss", "cross_entropy", "soft_cross_entropy")
FORMULAS = by_name(globals(), OPS, masks=True)
