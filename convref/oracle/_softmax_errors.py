"""S of every result of softmax and the loss, the scale of its rounding errors.

docs/judge.md derives them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import Call
from ._elementary import constant
from ._rounding import FIRST_ORDER, underflow, unit
from ._windows import Array, Results
from .softmax import one_hot, shares, softmax, targets


def _values(x: Array, dim: int) -> tuple[Array, Array]:
    if not x.shape[dim]:
        return x, x
    far = np.abs(x - x.max(axis=dim, keepdims=True))
    p = softmax(x, dim)
    p_far = np.where(p > 0, p * (1 + far), 0.0)
    total = p_far.sum(axis=dim, keepdims=True)
    logs = np.log(np.exp(-far).sum(axis=dim, keepdims=True))
    log = far + np.abs(logs) + total
    return np.where(p > 0, p * (1 + far + total), 0.0), np.where(np.isinf(far), np.inf, log)


def _plus_mean(p: Array, v: Array, dim: int) -> Array:
    return v + (p * v).sum(axis=dim, keepdims=True)


def softmax_magnitudes(call: Call, *operands: Array) -> Results:
    """Return S of each wanted result."""
    given, dim = dict(zip(call.roles, operands)), call.problem.dim
    s, _ = _values(given["x"], dim)
    s = s + underflow(call)
    v, g = (np.abs(given.get(first, given.get(other, s))) for first, other in _FACTORS)
    found = {
        "y": s,
        "dx": 2 * s * _plus_mean(s, g, dim),
        "y_dot": 2 * s * _plus_mean(s, v, dim),
        "ddy": 2 * s * _plus_mean(s, v, dim),
    }
    if call.pass_ == "double_backward":
        found["dx"] = 4 * s * _plus_mean(s, _plus_mean(s, v, dim) * _plus_mean(s, g, dim), dim)
    return call.results(lambda role: found[role])


_FACTORS = (("ddx", "x_dot"), ("dy", ""))  # the operands that are v and g of a pass


def log_softmax_magnitudes(call: Call, *operands: Array) -> Results:
    """Return S of each wanted result."""
    given, dim = dict(zip(call.roles, operands)), call.problem.dim
    _, log = _values(given["x"], dim)
    p = softmax(given["x"], dim)
    s = np.where(p > 0, p * (1 + log), 0.0) + underflow(call)
    v, g = (np.abs(given.get(first, given.get(other, s))) for first, other in _FACTORS)
    total = g.sum(axis=dim, keepdims=True)
    moved = _plus_mean(s, v, dim)
    found = {"y": log, "dx": g + s * total, "y_dot": moved, "ddy": moved}
    if call.pass_ == "double_backward":
        found["dx"] = 2 * total * s * moved
    return call.results(lambda role: found[role])


Size = Callable[[Array], Array]


def _reductions(call: Call, given: dict[str, Array]) -> tuple[Array, Size, Size]:
    """Return (|q|, S of a reduction, S of its adjoint); a sum of weights of both signs cancels."""
    problem, w, like = call.problem, given["w"], given.get("x", given.get("ddx"))
    assert like is not None
    signed, share = targets(given["target"], w, problem, like)
    _, own = targets(given["target"], None if w is None else np.abs(w), problem, like)
    condition = own / np.abs(share)
    if not problem.products("y") * unit(call) * condition <= FIRST_ORDER:
        condition = constant(np.inf, like)

    def collected(each: Array) -> Array:
        if problem.reduction == "none":
            return each.sum(axis=1)
        return (each.sum() * (1 + condition) / np.abs(share)).reshape(1)

    def spread(each: Array) -> Array:
        dy = np.abs(given["dy"])
        if problem.reduction == "none":
            return dy[:, None] * each
        return dy * (1 + condition) / np.abs(share) * each

    return np.abs(signed), collected, spread


def nll_loss_magnitudes(call: Call, *operands: Array) -> Results:
    """Return S of each wanted result: sums and products of sizes."""
    given = dict(zip(call.roles, operands))
    q, collected, spread = _reductions(call, given)
    sources = {"y": "x", "y_dot": "x_dot", "ddy": "ddx"}

    def size(role: str) -> Array:
        if role == "dx":
            return np.where(one_hot(given["target"], call.problem), spread(q), 0.0)
        return collected(np.where(q > 0, q * np.abs(given[sources[role]]), 0.0))

    return call.results(size)


def cross_entropy_magnitudes(call: Call, *operands: Array) -> Results:
    """Return S of each wanted result."""
    given = dict(zip(call.roles, operands))
    x, (q, collected, spread) = given["x"], _reductions(call, given)
    _, log = _values(x, 1)
    p = softmax(x, 1)
    s = np.where(p > 0, p * (1 + log), 0.0) + underflow(call)
    total = q.sum(axis=1, keepdims=True)
    slope = 2 * (s * total + q)
    v = np.abs(given.get("ddx", given.get("x_dot", s)))
    sizes: dict[str, Callable[[], Array]] = {
        "y": lambda: collected(np.where(q > 0, q * log, 0.0)),
        "y_dot": lambda: collected(slope * v),
        "ddy": lambda: collected(slope * v),
        "dx": lambda: spread(slope),
    }
    if call.pass_ == "double_backward":
        sizes["dx"] = lambda: spread(4 * total * s * _plus_mean(s, v, 1))
    return call.results(lambda role: sizes[role]())


def soft_cross_entropy_magnitudes(call: Call, *operands: Array) -> Results:
    """Return S of each wanted result: the formula on sizes, with p (1 + log) for softmax."""
    problem, given = call.problem, dict(zip(call.roles, operands))
    size = {role: None if a is None else np.abs(a) for role, a in given.items()}
    p: Any = size["p"]
    q, factor, count = shares(p, size["w"], problem)
    _, log = _values(given["x"], 1)
    scores = softmax(given["x"], 1)
    s = np.where(scores > 0, scores * (1 + log), 0.0) + underflow(call)

    def collected(each: Array) -> Array:
        sums = each.sum(axis=1)
        return sums if problem.reduction == "none" else (sums.sum() / count).reshape(1)

    def spread(each: Array) -> Array:
        dy: Any = size["dy"]
        return (dy[:, None] if problem.reduction == "none" else dy / count) * each

    def slope(of: Array) -> Array:
        return 2 * (s * of.sum(axis=1, keepdims=True) + of)

    v, u = (next((size[r] for r in roles if r in size), s) for roles in _DIRECTIONS)
    moved: Array = slope(q) * v + factor * log * u
    sizes: dict[str, Callable[[], Array]] = {
        "y": lambda: collected(q * log),
        "y_dot": lambda: collected(moved),
        "ddy": lambda: collected(moved),
        "dx": lambda: spread(slope(q)),
        "dp": lambda: spread(factor * log),
    }
    if call.pass_ == "double_backward":
        means = _plus_mean(s, v, 1)
        total = q.sum(axis=1, keepdims=True)
        sizes["dx"] = lambda: spread(4 * total * s * means + slope(factor * u))
        sizes["dp"] = lambda: spread(2 * factor * means)
    return call.results(lambda role: sizes[role]())


_DIRECTIONS = (("ddx", "x_dot"), ("ddp", "p_dot"))  # of x and of p

_OPS: dict[str, Callable[..., Results]] = {
    "softmax": softmax_magnitudes,
    "log_softmax": log_softmax_magnitudes,
    "nll_loss": nll_loss_magnitudes,
    "cross_entropy": cross_entropy_magnitudes,
    "soft_cross_entropy": soft_cross_entropy_magnitudes,
}
_PASSES = ("fprop", "backward", "jvp", "double_backward")
MAGNITUDES = {(op, name): run for op, run in _OPS.items() for name in _PASSES}
