"""The rectifier with a learnt slope as loops: every element, one at a time."""

from typing import Any

import numpy as np

from ...ops import Problem
from .._passes import by_name
from ._zeros import Array, zeros


def _prelu(x: Array, w: Array, at: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return the value at a position, and its derivatives by x and by the slope."""
    slope = w[at[1] % len(w)]  # of this channel, or the only one
    return (x[at], 1, 0) if x[at] > 0 else (slope * x[at], slope, x[at])


def prelu_fprop(x: Array, w: Array, problem: Problem) -> Array:
    y = zeros(x.shape, x)
    for at in np.ndindex(x.shape):
        y[at] = _prelu(x, w, at)[0]
    return y


def prelu_backward(dy: Array, x: Array, w: Array, problem: Problem) -> tuple[Array, Array]:
    dx, dw = zeros(x.shape, x), zeros(w.shape, x)
    for at in np.ndindex(x.shape):
        _, by_x, by_slope = _prelu(x, w, at)
        dx[at] = by_x * dy[at]
        if not x[at] > 0:
            dw[at[1] % len(w)] += by_slope * dy[at]
    return dx, dw


def prelu_jvp(
    x: Array, w: Array, x_dot: Array, w_dot: Array, problem: Problem
) -> tuple[Array, Array]:
    y_dot = zeros(x.shape, x)
    for at in np.ndindex(x.shape):
        _, by_x, by_slope = _prelu(x, w, at)
        y_dot[at] = by_x * x_dot[at]
        if not x[at] > 0:
            y_dot[at] += by_slope * w_dot[at[1] % len(w)]
    return prelu_fprop(x, w, problem), y_dot


def prelu_double_backward(
    ddx: Array, ddw: Array, dy: Array, x: Array, w: Array, problem: Problem
) -> tuple[Array, Array, Array]:
    _, ddy = prelu_jvp(x, w, ddx, ddw, problem)
    dx, dw = zeros(x.shape, x), zeros(w.shape, x)
    for at in np.ndindex(x.shape):
        if not x[at] > 0:
            channel = at[1] % len(w)
            dx[at] = ddw[channel] * dy[at]
            dw[channel] += ddx[at] * dy[at]
    return ddy, dx, dw


FORMULAS = by_name(globals(), ("prelu",), masks=False)
