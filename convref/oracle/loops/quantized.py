"""Convolutions of 8-bit numbers as nested loops: of integers in Python's, of floats in theirs."""

from fractions import Fraction

import numpy as np

from ...ops import ConvIntegerProblem, QuantizedConvProblem, ScaledConvProblem
from .._passes import by_name
from ._zeros import Array, zeros
from .conv import terms


def conv_integer_fprop(x: Array, w: Array, zero: Array, problem: ConvIntegerProblem) -> Array:
    acc = np.zeros(problem.shape("acc"), object)
    for x_at, w_at, y_at in terms(problem):
        if x_at is not None and y_at is not None:
            acc[y_at] += (int(x[x_at]) - problem.x_zero) * (int(w[w_at]) - int(zero[w_at[0]]))
    return _wrapped(acc)


def quantized_conv_fprop(
    x: Array, w: Array, b32: Array | None, zero: Array, scale: Array, problem: QuantizedConvProblem
) -> Array:
    acc = conv_integer_fprop(x, w, zero, problem).astype(object)
    least, most = (-128, 127) if x.dtype == np.int8 else (0, 255)
    y = np.zeros(problem.shape("y"), x.dtype)
    for at in np.ndindex(y.shape):
        total = _wrapped(acc[at] + (0 if b32 is None else int(b32[at[1]])))
        product = np.float32(total) * scale[at[1]]
        y[at] = min(max(round(Fraction(float(product))) + problem.y_zero, least), most)
    return y


def scaled_conv_fprop(
    x: Array, w: Array, b: Array | None, scale: Array, problem: ScaledConvProblem
) -> Array:
    y = zeros(problem.shape("y"), x)
    for x_at, w_at, y_at in terms(problem):
        if y_at is not None:
            y[y_at] += (0 if x_at is None else x[x_at]) * w[w_at]
    for at in np.ndindex(y.shape):
        y[at] = y[at] * scale[at[1]] + (0 if b is None else b[at[1]])
    return y


def _wrapped(value: Array) -> Array:
    """Return Python integers modulo 2**32, from -2**31 on."""
    return np.asarray((value + 2**31) % 2**32 - 2**31, np.int32)


FORMULAS = by_name(globals(), ("conv_integer", "quantized_conv", "scaled_conv"), masks=False)
