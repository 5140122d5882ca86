"""Activations made of polynomials: exact in Fractions, with corners."""

from fractions import Fraction

import numpy as np

from ..ops import Problem
from ._blocks import select, zero_where
from ._elementary import constant
from ._pointwise import Pointwise
from ._windows import Array


def relu(x: Array, problem: Problem) -> Array:
    """Return max(x, 0)."""
    return np.maximum(x, x.dtype.type(0) if x.dtype != object else 0)


def relu_directional(x: Array, v: Array, problem: Problem) -> Array:
    """Return v where x > 0 or NaN, else 0: nothing is multiplied.

    >>> from convref.ops import ReluProblem
    >>> x, problem = np.array([[[-1., 0., np.nan]]]), ReluProblem(n=1, c=1, input=(3,))
    >>> relu_directional(x, np.full((1, 1, 3), np.inf), problem)
    array([[[ 0.,  0., inf]]])
    """
    return zero_where(x <= 0, v)


def leaky_relu(x: Array, problem: Problem) -> Array:
    """Return x where it is positive, else slope times x."""
    scaled = x * constant(problem.slope, x)
    if 0 < problem.slope <= 1:
        return np.maximum(x, scaled, out=scaled)
    return select(x > 0, x, scaled)


def leaky_relu_directional(x: Array, v: Array, problem: Problem) -> Array:
    """Return v where x > 0, else slope times v."""
    return select(x > 0, v, v * constant(problem.slope, v))


def _sixth(x: Array) -> Array:
    return x * Fraction(1, 6) if x.dtype == object else x / 6


def hardswish(x: Array, problem: Problem) -> Array:
    """Return x min(max(x + 3, 0), 6) / 6."""
    y = x + 3
    np.clip(y, 0, 6, out=y)
    y *= x
    return _sixth(y)


def hardswish_derivative(x: Array, problem: Problem) -> Array:
    """Return (2 x + 3) / 6 inside of (-3, 3), 0 below, 1 above."""
    inside = _sixth(2 * x + 3)
    return zero_where(x <= -3, select(x >= 3, constant(1, x), inside))


def hardswish_second_derivative(x: Array, problem: Problem) -> Array:
    """Return 1 / 3 inside of (-3, 3), else 0."""
    third = 2 * _sixth(np.ones_like(x))
    return select(x != x, x, zero_where(abs(x) >= 3, third))


def hardswish_directional(x: Array, v: Array, problem: Problem) -> Array:
    """Return f'(x) v, and 0 where the derivative is 0, even of an infinite v."""
    derivative = hardswish_derivative(x, problem)
    return zero_where(derivative == 0, derivative * v)


def hardswish_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of hardswish and its derivatives."""
    inside = np.abs(x) < 3
    first = np.where(inside, (2 * np.abs(x) + 3) / 6, np.where(x >= 3, 1.0, 0.0))
    return np.abs(x) * np.clip(x + 3, 0, 6) / 6, first, np.where(inside, 1 / 3, 0.0)


def hardtanh(x: Array, problem: Problem) -> Array:
    """Return min(max(x, min_val), max_val)."""
    low, high = constant(problem.min_val, x), constant(problem.max_val, x)
    return np.minimum(np.maximum(x, low), high)


def hardtanh_directional(x: Array, v: Array, problem: Problem) -> Array:
    """Return v between the bounds, else 0: at the bounds and where x is NaN too."""
    low, high = constant(problem.min_val, x), constant(problem.max_val, x)
    return zero_where(~((x > low) & (x < high)), v)


def hardshrink(x: Array, problem: Problem) -> Array:
    """Return x where |x| > lambd or NaN, else 0."""
    return hardshrink_directional(x, x, problem)


def hardshrink_directional(x: Array, v: Array, problem: Problem) -> Array:
    """Return v where |x| > lambd or NaN, else 0: nothing is multiplied."""
    return zero_where(abs(x) <= constant(problem.lambd, x), v)


def softshrink(x: Array, problem: Problem) -> Array:
    """Return x less the nearest number that is at most lambd from 0."""
    bound = constant(problem.lambd, x)
    return x - np.minimum(np.maximum(x, -bound), bound)


def softshrink_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of softshrink, which may cancel, and of its derivative."""
    size = np.abs(x)
    far = ~(size <= problem.lambd)
    return np.where(far, size + problem.lambd, 0.0), np.where(far, 1.0, 0.0)


def threshold(x: Array, problem: Problem) -> Array:
    """Return x where it is above the threshold or NaN, else the value."""
    return select(x <= constant(problem.threshold, x), constant(problem.value, x), x)


def threshold_directional(x: Array, v: Array, problem: Problem) -> Array:
    """Return v where x is above the threshold or NaN, else 0."""
    return zero_where(x <= constant(problem.threshold, x), v)


def hardsigmoid(x: Array, problem: Problem) -> Array:
    """Return min(max(x + 3, 0), 6) / 6."""
    y = x + 3
    return _sixth(np.clip(y, 0, 6, out=y))


def hardsigmoid_directional(x: Array, v: Array, problem: Problem) -> Array:
    """Return v / 6 inside of (-3, 3), else 0, also where x is NaN."""
    return select((x > -3) & (x < 3), _sixth(v), np.zeros_like(v))


def hardsigmoid_magnitudes(x: Array, problem: Problem) -> tuple[Array, ...]:
    """Return S of hardsigmoid and its derivative."""
    inside = np.abs(x) < 3
    return np.where(inside, (np.abs(x) + 3) / 6, hardsigmoid(x, problem)), np.where(
        inside, 1 / 6, 0.0
    )


POINTWISE: dict[str, Pointwise] = {
    "relu": Pointwise(relu, directional=relu_directional),
    "leaky_relu": Pointwise(leaky_relu, directional=leaky_relu_directional),
    "hardtanh": Pointwise(hardtanh, directional=hardtanh_directional),
    "hardshrink": Pointwise(hardshrink, directional=hardshrink_directional),
    "softshrink": Pointwise(
        softshrink, directional=hardshrink_directional, magnitudes=softshrink_magnitudes
    ),
    "threshold": Pointwise(threshold, directional=threshold_directional),
    "hardsigmoid": Pointwise(
        hardsigmoid, directional=hardsigmoid_directional, magnitudes=hardsigmoid_magnitudes
    ),
    "hardswish": Pointwise(
        hardswish,
        hardswish_derivative,
        hardswish_second_derivative,
        hardswish_directional,
        hardswish_magnitudes,
    ),
}
