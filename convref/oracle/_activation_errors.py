"""S of every result of an activation: what its rounding errors are relative to (docs/judge.md).

S follows the way in which a library may compute a function: 1 - s by subtraction, exp of a rounded
argument, the derivative from a result that was kept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import dtypes
from ..case import Call
from ..ops import Problem
from ._blocks import in_blocks
from ._norm_errors import FIRST_ORDER, unit
from ._windows import Array, Results
from .activation import (
    SATURATED,
    _inner,
    along,
    constant,
    density,
    logistic,
    normal,
    softmax,
    targets,
)


def _sigmoid(x: Array, problem: Problem) -> tuple[Array, ...]:
    s, _ = logistic(x)
    return s, s * (1 + s), s * (1 + s) * (1 + 2 * s)


def _tanh(x: Array, problem: Problem) -> tuple[Array, ...]:
    t = np.abs(np.tanh(x))
    return t, 1 + t * t, 2 * t * (1 + t * t)


def _silu(x: Array, problem: Problem) -> tuple[Array, ...]:
    s, _ = logistic(x)
    x = np.abs(x)
    return x * s, s * (1 + x * (1 + s)), s * (1 + s) * (2 + x * (1 + 2 * s))


def _gelu(x: Array, problem: Problem) -> tuple[Array, ...]:
    if problem.approximate == "tanh":
        return _gelu_tanh(x)
    below, at = (1 + np.abs(2 * normal(x) - 1)) / 2, density(x)
    near = np.minimum(np.abs(x), SATURATED)
    square = near * near
    first = below + 2 * near * at * (1 + square)
    return np.abs(x) * (below + near * at), first, at * (2 + square) * (1 + square)


def _gelu_tanh(x: Array) -> tuple[Array, ...]:
    u, u1, u2 = map(np.abs, _inner(x))
    s, rest = logistic(2 * u)
    t, steep = s - rest, 4 * s * rest * u
    loss = 1 + t * t + 4 * steep  # of 1 - t^2, found by subtraction at a rounded u
    near, half = np.minimum(np.abs(x), SATURATED), (1 + t) / 2 + steep
    bend = loss * u1 + near * (t * loss * u1 * u1 + loss * u2 / 2)
    return np.abs(x) * half, half + near / 2 * loss * u1, bend


def _hardswish(x: Array, problem: Problem) -> tuple[Array, ...]:
    inside = np.abs(x) < 3
    slope = np.where(inside, (2 * np.abs(x) + 3) / 6, np.where(x >= 3, 1.0, 0.0))
    return np.abs(x) * np.clip(x + 3, 0, 6) / 6, slope, np.where(inside, 1 / 3, 0.0)


SIZES: dict[str, Callable[[Array, Problem], tuple[Array, ...]]] = {
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "silu": _silu,
    "gelu": _gelu,
    "hardswish": _hardswish,
}


def lost(call: Call) -> float:
    """Return what S needs at least, so that numbers may be lost that are too small to be kept.

    Those are what is below the least normal number of the type in which a library computes, and
    below the least of all in that in which it keeps results.
    """
    working = call.dtype if call.dtype in ("f64", "f80") else "f32"
    kept = dtypes.number(call.dtype)
    return max(dtypes.number(working).tiny / unit(call), kept.eta / kept.u if kept.u else 0.0)


def _pointwise(call: Call, *operands: Array) -> Results:
    given = dict(zip(call.roles, operands))
    x, floor = given["x"], lost(call)

    def size(order: int, *factors: Array) -> Array:
        def block(x: Array, *factors: Array) -> Array:
            s = SIZES[call.op](x, call.problem)[order] + floor * (1 + np.abs(x))
            for factor in factors:
                s = s * np.abs(factor)
            return s

        return in_blocks(block, x, *factors)

    rows = _ROWS[call.pass_]
    return tuple(
        size(order, *(given[name] for name in factors)) if role in call.wanted else None
        for role, (order, factors) in rows.items()
    )


# By pass and result: which derivative of the function, and what it is multiplied by.
_ROWS: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {
    "fprop": {"y": (0, ())},
    "backward": {"dx": (1, ("dy",))},
    "jvp": {"y": (0, ()), "y_dot": (1, ("x_dot",))},
    "double_backward": {"ddy": (1, ("ddx",)), "dx": (2, ("ddx", "dy"))},
}


def _leaky(call: Call, *operands: Array) -> Results:
    given = dict(zip(call.roles, operands))
    moved = {"y": "x", "dx": "dy", "y_dot": "x_dot", "ddy": "ddx"}
    return tuple(
        np.abs(along(call.op, given["x"], given[moved[role]], call.problem))
        for role in call.signature.results
    )


def _shares(x: Array, dim: int) -> tuple[Array, Array]:
    """Return S of softmax and of its logarithm."""
    if not x.shape[dim]:
        return x, x
    far = np.abs(x - x.max(axis=dim, keepdims=True))
    p = softmax(x, dim)
    p_far = np.where(p > 0, p * (1 + far), 0.0)
    total = p_far.sum(axis=dim, keepdims=True)
    logs = np.log(np.exp(-far).sum(axis=dim, keepdims=True))
    log = far + np.abs(logs) + total
    return np.where(p > 0, p * (1 + far + total), 0.0), np.where(np.isinf(far), np.inf, log)


def _under(p: Array, v: Array, dim: int) -> Array:
    return v + (p * v).sum(axis=dim, keepdims=True)


def _softmax(call: Call, *operands: Array) -> Results:
    given, dim = dict(zip(call.roles, operands)), call.problem.dim
    s, _ = _shares(given["x"], dim)
    s = s + lost(call)
    v, g = (np.abs(given.get(first, given.get(other, s))) for first, other in _FACTORS)
    found = {
        "y": s,
        "dx": 2 * s * _under(s, g, dim),
        "y_dot": 2 * s * _under(s, v, dim),
        "ddy": 2 * s * _under(s, v, dim),
    }
    if call.pass_ == "double_backward":
        found["dx"] = 4 * s * _under(s, _under(s, v, dim) * _under(s, g, dim), dim)
    return tuple(found[r] if r in call.wanted else None for r in call.signature.results)


_FACTORS = (("ddx", "x_dot"), ("dy", ""))  # what stands for v and for g of a pass


def _log_softmax(call: Call, *operands: Array) -> Results:
    given, dim = dict(zip(call.roles, operands)), call.problem.dim
    _, log = _shares(given["x"], dim)
    p = softmax(given["x"], dim)
    s = np.where(p > 0, p * (1 + log), 0.0) + lost(call)
    v, g = (np.abs(given.get(first, given.get(other, s))) for first, other in _FACTORS)
    total = g.sum(axis=dim, keepdims=True)
    found = {"y": log, "dx": g + s * total, "y_dot": _under(s, v, dim), "ddy": _under(s, v, dim)}
    if call.pass_ == "double_backward":
        found["dx"] = 2 * total * s * _under(s, v, dim)
    return tuple(found[r] if r in call.wanted else None for r in call.signature.results)


def _cross_entropy(call: Call, *operands: Array) -> Results:
    given, problem = dict(zip(call.roles, operands)), call.problem
    x, w = given["x"], given["w"]
    signed, share = targets(given["target"], w, problem, x)
    _, own = targets(given["target"], None if w is None else np.abs(w), problem, x)
    q = np.abs(signed)
    condition = own / np.abs(share)  # of weights of both signs the sum may cancel
    if not problem.products("y") * unit(call) * condition <= FIRST_ORDER:
        condition = constant(np.inf, x)
    _, log = _shares(x, 1)
    p = softmax(x, 1)
    s = np.where(p > 0, p * (1 + log), 0.0) + lost(call)
    total = q.sum(axis=1, keepdims=True)
    slope = 2 * (s * total + q)

    def collected(each: Array) -> Array:
        if problem.reduction == "none":
            return each.sum(axis=1)
        return (each.sum() * (1 + condition) / np.abs(share)).reshape(1)

    def spread(each: Array) -> Array:
        dy = np.abs(given["dy"])
        if problem.reduction == "none":
            return dy[:, None] * each
        return dy * (1 + condition) / np.abs(share) * each

    v = np.abs(given.get("ddx", given.get("x_dot", s)))
    sizes: dict[str, Callable[[], Array]] = {
        "y": lambda: collected(np.where(q > 0, q * log, 0.0)),
        "y_dot": lambda: collected(slope * v),
        "ddy": lambda: collected(slope * v),
        "dx": lambda: spread(slope),
    }
    if call.pass_ == "double_backward":
        sizes["dx"] = lambda: spread(4 * total * s * _under(s, v, 1))
    return tuple(sizes[r]() if r in call.wanted else None for r in call.signature.results)


_OPS: dict[str, Callable[..., Results]] = {
    **dict.fromkeys(SIZES, _pointwise),
    "leaky_relu": _leaky,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "cross_entropy": _cross_entropy,
}
_PASSES = ("fprop", "backward", "jvp", "double_backward")
MAGNITUDES = {(op, name): run for op, run in _OPS.items() for name in _PASSES}
