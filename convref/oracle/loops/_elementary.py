"""Functions of one number that are not rational, of floats and of Fractions."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np


def lifted(function: Callable[[float], float], v: Any) -> Any:
    """Return function(v): of a Fraction as a Fraction, of NaN NaN, of what overflows inf."""
    if isinstance(v, (Fraction, int)):
        return Fraction(function(float(v)))
    try:
        return type(v)(function(float(v)))
    except OverflowError:
        return type(v)(np.inf)
    except ValueError:  # the logarithm of 0, which is all that math refuses here
        return type(v)(-np.inf)


def exp(v: Any) -> Any:
    """Return e to the power v."""
    return lifted(math.exp, v)


def log(v: Any) -> Any:
    """Return the natural logarithm of v."""
    return lifted(math.log, v)


def power(v: Any, exponent: float) -> Any:
    """Return v**exponent for v >= 0; 0 to any power but 0 is 0."""
    if isinstance(v, Fraction) and exponent == int(exponent):
        return v ** int(exponent) if v or not exponent else v
    return lifted(lambda t: t**exponent if t or not exponent else 0.0, v)


def number(value: float, like: Any) -> Any:
    """Return a constant in the number type of `like`."""
    return Fraction(value) if isinstance(like, (Fraction, int)) else type(like)(value)
