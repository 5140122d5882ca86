"""Scaled dot-product attention: y = p v, with p the softmax of scaled products of queries and keys.

With u the tangent of the scores a = scale x k^T + b along some direction and <f> = sum_j p_j f_j
over the keys j,

    y      =  p v                                                                  (AT.1)
    y_dot  =  p (u - <u>) v + p v_dot                                              (AT.2)
    da     =  p (e - <e>),  e = dy v^T                                             (AT.3)

and da determines the gradients of x, k and b as in a product of matrices (AT.4).
"""

from typing import Any

import numpy as np

from ..case import Call
from ..ops import Problem
from ._elementary import constant, exp
from ._passes import by_name
from ._rounding import FIRST_ORDER, underflow, unit
from ._windows import Array, Results


def heads(a: Array, problem: Problem) -> Array:
    """Return keys or values with one head for each head of the queries."""
    return np.repeat(a, problem.groups, axis=1)


def per_group(a: Array, problem: Problem) -> Array:
    """Return the sum over the heads that share keys and values, the adjoint of `heads`."""
    n, _, *sizes = a.shape
    return a.reshape(n, problem.c // problem.groups, problem.groups, *sizes).sum(axis=2)


def scores(x: Array, k: Array, b: Any, problem: Problem) -> Array:
    """Return scale x k^T + b, linear in x and b, and in k and b."""
    return constant(problem.factor, x) * (x @ heads(k, problem).mT) + (0 if b is None else b)


def weights(a: Array, problem: Problem) -> Array:
    """Return the softmax of scores along the keys that are not left out, 0 where all are.

    Examples
    --------
    >>> from convref.ops import AttentionProblem
    >>> problem = AttentionProblem(n=1, c=1, input=(2, 1), source=(2, 1), causal=True)
    >>> weights(np.zeros((1, 1, 2, 2)), problem)[0, 0]
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    kept = np.tri(*a.shape[-2:], dtype=np.bool_) if problem.causal else np.ones(a.shape[-2:], bool)
    top = np.where(kept, a, a.min(axis=-1, keepdims=True)).max(axis=-1, keepdims=True)
    nothing = constant(0, a)
    powers = np.where(kept, exp(np.where(kept, a - np.where(top == -np.inf, 0, top), 0)), nothing)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, constant(1, a), total)


def mean(p: Array, v: Array) -> Array:
    """Return <v>, the sum under p along the keys."""
    return (p * v).sum(axis=-1, keepdims=True)


def softmax_tangent(p: Array, u: Array) -> Array:
    """Return p (u - <u>), the tangent of p along u, and its own adjoint."""
    return p * (u - mean(p, u))


def sdpa_fprop(x: Array, k: Array, v: Array, b: Any, problem: Problem) -> Array:
    """Return y (AT.1)."""
    return weights(scores(x, k, b, problem), problem) @ heads(v, problem)


def sdpa_jvp(
    x: Array, k: Array, v: Array, b: Any, *dots: Any, problem: Problem
) -> tuple[Array, Array]:
    """Return (y, y_dot) (AT.2)."""
    x_dot, k_dot, v_dot, b_dot = dots
    p = weights(scores(x, k, b, problem), problem)
    u = scores(x_dot, k, b_dot, problem) + scores(x, k_dot, None, problem)
    p_dot = softmax_tangent(p, u)
    return p @ heads(v, problem), p_dot @ heads(v, problem) + p @ heads(v_dot, problem)


def by_scores(da: Array, x: Array, k: Array, problem: Problem) -> tuple[Array, Array]:
    """Return the gradients of x and k from those of the scores (AT.4)."""
    da = constant(problem.factor, x) * da
    return da @ heads(k, problem), per_group(da.mT @ x, problem)


def by_bias(da: Array, problem: Problem) -> Array:
    """Return the gradient of the bias: of one for all heads, the sum over them."""
    return da if problem.full else da.sum(axis=(0, 1))


def sdpa_backward(
    dy: Array, x: Array, k: Array, v: Array, b: Any, problem: Problem
) -> tuple[Array, ...]:
    """Return (dx, dk, dv, db)."""
    p = weights(scores(x, k, b, problem), problem)
    da = softmax_tangent(p, dy @ heads(v, problem).mT)
    dv = per_group(p.mT @ dy, problem)
    return *by_scores(da, x, k, problem), dv, by_bias(da, problem)


def sdpa_double_backward(
    ddx: Array, ddk: Array, ddv: Array, ddb: Any, dy: Array, *primals: Any, problem: Problem
) -> tuple[Array, ...]:
    """Return (ddy, dx, dk, dv, db), the gradients of <ddx, dx> + <ddk, dk> + <ddv, dv> + <ddb, db>.

    That sum is <p (u - <u>), e> + <p ddv, dy>, with u the tangent of the scores along ddx, ddk and
    ddb. It depends on x and k through p, and through u besides.
    """
    x, k, v, b = primals
    p = weights(scores(x, k, b, problem), problem)
    u = scores(ddx, k, ddb, problem) + scores(x, ddk, None, problem)
    e = dy @ heads(v, problem).mT
    p_dot = softmax_tangent(p, u)
    ddy = p_dot @ heads(v, problem) + p @ heads(ddv, problem)
    dv = per_group(p_dot.mT @ dy, problem)
    by_p = (u - mean(p, u)) * (e - mean(p, e)) + dy @ heads(ddv, problem).mT
    da = softmax_tangent(p, by_p)
    dx, dk = by_scores(da, x, k, problem)
    by_x, by_k = by_scores(softmax_tangent(p, e), ddx, ddk, problem)
    return ddy, dx + by_x, dk + by_k, dv, by_bias(da, problem)


def sdpa_magnitudes(call: Call, *operands: Any) -> Results:
    """Return S: the formulas on sizes, with p times what an error of the scores makes of it.

    A score is off by its roundings times |scale| |x| |k| + |b|, and so is the largest of its row,
    from which it is subtracted.
    """
    problem = call.problem
    given = dict(zip(call.roles, operands))
    size: dict[str, Any] = {r: None if a is None else np.abs(a) for r, a in given.items()}
    v = heads(size["v"], problem)

    def sizes(x: Any, k: Any, b: Any) -> Array:
        return np.abs(scores(x, k, None, problem)) + (0 if b is None else b)

    a = scores(given["x"], given["k"], given["b"], problem)
    spread = sizes(size["x"], size["k"], size["b"])
    p = weights(a, problem)
    spread = np.where(np.isfinite(spread), spread, 0.0)
    factor = 1 + spread + spread.max(axis=-1, keepdims=True) + np.abs(np.where(p > 0, np.log(p), 0))
    off = (factor + mean(p, factor)).max(axis=-1, keepdims=True)
    few = problem.products("y") * unit(call) * off
    off = np.where(few <= FIRST_ORDER, off, np.inf)
    p = p + underflow(call)
    found: dict[str, Any] = {"y": off * p @ v}
    first = ("x_dot", "k_dot", "v_dot", "b_dot") if call.pass_ == "jvp" else _SECOND
    if first[0] in call.roles:
        x_dot, k_dot, v_dot, b_dot = (size[role] for role in first)
        u = sizes(x_dot, size["k"], b_dot) + sizes(size["x"], k_dot, None)
        moved = 2 * off * p * (u + mean(p, u))
        found["y_dot"] = found["ddy"] = moved @ v + off * p @ heads(v_dot, problem)
    if "dy" in call.roles:
        e = size["dy"] @ v.mT
        dv, da = off * p, 2 * off * p * (e + mean(p, e))
        by_x: Any = 0
        by_k: Any = 0
        if call.pass_ == "double_backward":
            by_x, by_k = by_scores(da, size["ddx"], size["ddk"], problem)
            t = (u + mean(p, u)) * (e + mean(p, e))
            t = t + size["dy"] @ heads(size["ddv"], problem).mT
            dv, da = moved, 4 * off * p * (t + mean(p, t))
        dx, dk = by_scores(da, size["x"], size["k"], problem)
        found |= {"dx": dx + by_x, "dk": dk + by_k, "db": by_bias(da, problem)}
        found["dv"] = per_group(dv.mT @ size["dy"], problem)
    return call.results(lambda role: np.abs(found[role]))


_SECOND = ("ddx", "ddk", "ddv", "ddb")
FORMULAS = by_name(globals(), ("sdpa",), masks=False)
MAGNITUDES = dict.fromkeys(FORMULAS, sdpa_magnitudes)
