"""The rectifier with a learnt slope per channel, or one for all."""

import numpy as np

from ..case import Call
from ..ops import Problem
from ._blocks import select, zero_where
from ._passes import by_name
from ._windows import Array, Results


def prelu_fprop(x: Array, w: Array, problem: Problem) -> Array:
    """Return x where it is positive, else w x."""
    return select(x > 0, x, _slopes(w, x) * x)


def prelu_backward(dy: Array, x: Array, w: Array, problem: Problem) -> Results:
    """Return dx, dy times 1 or w, and dw, the sum of dy x where x is not positive."""
    dx = select(x > 0, dy, _slopes(w, x) * dy)
    return dx, _per_slope(zero_where(x > 0, dy * x), problem)


def prelu_jvp(x: Array, w: Array, x_dot: Array, w_dot: Array, problem: Problem) -> Results:
    """Return (y, y_dot)."""
    below = _slopes(w, x) * x_dot + _slopes(w_dot, x) * x
    return prelu_fprop(x, w, problem), select(x > 0, x_dot, below)


def prelu_double_backward(
    ddx: Array, ddw: Array, dy: Array, x: Array, w: Array, problem: Problem
) -> Results:
    """Return (ddy, dx, dw): y is linear in x and in w."""
    _, ddy = prelu_jvp(x, w, ddx, ddw, problem)
    dx = zero_where(x > 0, _slopes(ddw, x) * dy)
    return ddy, dx, _per_slope(zero_where(x > 0, ddx * dy), problem)


def _slopes(w: Array, x: Array) -> Array:
    """Return slopes with the axes of an image, to be repeated along all but channels."""
    return w.reshape(-1, *(1,) * (x.ndim - 2))  # (C, 1, ...) or (1, 1, ...)


def _per_slope(terms: Array, problem: Problem) -> Array:
    """Return the sum of terms (N, C, ...) that belong to each slope."""
    sums = terms.sum(axis=(0, *range(2, terms.ndim)))  # (C,)
    return sums.sum(keepdims=True) if problem.shared else sums


def prelu_magnitudes(call: Call, *operands: Array) -> Results:
    """Return S: the formula on operands whose terms do not cancel.

    Where x is a factor, it is not positive; so the factor of w has the other sign.
    """
    sizes = {"x": operands[call.roles.index("x")]}
    for role, array in zip(call.roles, operands):
        sizes.setdefault(role, -np.abs(array) if role in ("w_dot", "ddw") else np.abs(array))
    found = FORMULAS[call.op, call.pass_](call, *(sizes[role] for role in call.roles))
    return tuple(None if s is None else np.abs(s) for s in found)


FORMULAS = by_name(globals(), ("prelu",), masks=False)
MAGNITUDES = dict.fromkeys(FORMULAS, prelu_magnitudes)
