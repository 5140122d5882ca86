"""The functions that are not rational: exp, log, and the normal distribution.

On Fractions they return the nearest float64; all else in the formulas is exact.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ._erf import erfc, erfc_and_gauss, gauss
from ._windows import Array


def _of_fractions(function: Callable[[float], float]) -> Callable[[Array], Array]:
    def nearest(v: Any) -> Any:
        try:
            found = function(float(v))
        except OverflowError:  # of v itself, or of a function that grows
            return function(math.inf if v > 0 else -math.inf)
        return Fraction(found) if math.isfinite(found) else found

    return np.vectorize(nearest, otypes=[object])


def exp(x: Array) -> Array:
    """Return e to the power x."""
    return _of_fractions(math.exp)(x) if x.dtype == object else np.exp(x)


def expm1(x: Array) -> Array:
    """Return exp(x) - 1; of floats without cancellation."""
    return exp(x) - 1 if x.dtype == object else np.expm1(x)


def log(x: Array) -> Array:
    """Return the natural logarithm of x."""
    return _of_fractions(math.log)(x) if x.dtype == object else np.log(x)


def power(base: Array, exponent: float) -> Array:
    """Return base**exponent for base >= 0; 0 stays 0 even to a power below it.

    Integer powers of Fractions are exact.
    """
    if exponent == 1:
        return base
    if exponent == 2:
        return base * base
    if exponent == 0:
        return np.ones_like(base)
    if base.dtype == object:
        whole = exponent == int(exponent) and exponent > 0
        return base ** int(exponent) if whole else _of_fractions(lambda v: v and v**exponent)(base)
    if exponent == 0.5:
        return np.sqrt(base)
    return np.where(base == 0, base, np.where(base == 0, 1, base) ** exponent)


def normal_cdf(x: Array) -> Array:
    """Return the normal distribution function at x, small values too."""
    if x.dtype == object:
        return _of_fractions(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x)
    return 0.5 * erfc(-x / math.sqrt(2))


def normal(x: Array) -> tuple[Array, Array]:
    """Return (normal_cdf(x), normal_pdf(x)), which share an exponential."""
    if x.dtype == object:
        return normal_cdf(x), normal_pdf(x)
    twice, near = erfc_and_gauss(-x / math.sqrt(2))
    return 0.5 * twice, near / math.sqrt(2 * math.pi)


def normal_pdf(x: Array) -> Array:
    """Return the density of the normal distribution at x."""
    if x.dtype == object:
        return _of_fractions(lambda v: math.exp(-v * v / 2) / math.sqrt(2 * math.pi))(x)
    return gauss(x / math.sqrt(2)) / math.sqrt(2 * math.pi)


def constant(value: float, like: Array) -> Any:
    """Return a constant in the number type of `like`."""
    return Fraction(value) if like.dtype == object else like.dtype.type(value)


def logistic(x: Array) -> tuple[Array, Array]:
    """Return (s, 1 - s) with s = 1 / (1 + exp(-x)), both without cancellation.

    >>> logistic(np.array([0., -800.]))
    (array([0.5, 0. ]), array([0.5, 1. ]))
    """
    with np.errstate(over="ignore", invalid="ignore"):  # 1 / (1 + inf) is 0, as it should be
        e = exp(-x)
        s = 1 / (1 + e)
        if x.dtype == object:
            return s, 1 - s
        e *= s
        return s, np.fmin(e, 1, out=e)  # inf * 0 is 1 here
