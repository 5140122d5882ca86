"""Convolutions of 8-bit numbers: the sums of `convref.oracle.conv`, scaled.

    acc[n,k,p] = sum_c,r (x^[n,c,o_r] - x_zero) (w[k,c,r] - zero[k])                         (Q.1)
    y[n,k,p]   = saturated(round(float32(acc[n,k,p] + b[k]) scale[k]) + y_zero)              (Q.2)
    y[n,k,p]   = scale[k] sum_c,r x^[n,c,o_r] w[k,c,r]  + b[k]                               (Q.3)

The first two are of integers. In (Q.2) the product is rounded to float32 and then to the nearest
integer, halves to even.
"""

import numpy as np

from ..ops import ConvIntegerProblem, QuantizedConvProblem, ScaledConvProblem
from ._passes import by_name
from ._windows import Array
from .conv import conv_fprop


def conv_integer_fprop(x: Array, w: Array, zero: Array, problem: ConvIntegerProblem) -> Array:
    """Return acc (N, K, *output), the exact sums as int32, which wrap (Q.1).

    >>> x, w = np.array([[[0, 255]]], np.uint8), np.array([[[3]]], np.uint8)
    >>> problem = ConvIntegerProblem(n=1, c=1, k=1, input=(2,), filter=(1,), x_zero=1)
    >>> conv_integer_fprop(x, w, np.array([1]), problem)
    array([[[ -2, 508]]], dtype=int32)
    """
    x, w = x.astype(np.int64), w.astype(np.int64)
    zeros = zero.reshape(-1, *(1,) * (w.ndim - 1))
    return conv_fprop(x - problem.x_zero, w - zeros, None, problem).astype(np.int32)


def quantized_conv_fprop(
    x: Array, w: Array, b32: Array | None, zero: Array, scale: Array, problem: QuantizedConvProblem
) -> Array:
    """Return y (N, K, *output), the sums scaled, rounded and saturated to the type of x (Q.2).

    >>> x, w = np.array([[[1, 3, 200]]], np.uint8), np.array([[[1]]], np.uint8)
    >>> problem = QuantizedConvProblem(n=1, c=1, k=1, input=(3,), filter=(1,), y_zero=180)
    >>> quantized_conv_fprop(x, w, None, np.array([0]), np.array([0.5], np.float32), problem)
    array([[[180, 182, 255]]], dtype=uint8)
    """
    per_channel = (-1, *(1,) * problem.rank)
    acc = conv_integer_fprop(x, w, zero, problem)
    acc = acc if b32 is None else acc + b32.reshape(per_channel)
    y = np.rint(acc.astype(np.float32) * scale.reshape(per_channel)) + np.float32(problem.y_zero)
    limits = np.iinfo(x.dtype)
    return np.clip(y, limits.min, limits.max).astype(x.dtype)


def scaled_conv_fprop(
    x: Array, w: Array, b: Array | None, scale: Array, problem: ScaledConvProblem
) -> Array:
    """Return y (N, K, *output), the sums scaled by channel, plus b (Q.3).

    >>> x, w = np.array([[[1.0, 3.0]]]), np.array([[[0.5]], [[2.0]]])
    >>> problem = ScaledConvProblem(n=1, c=1, k=2, input=(2,), filter=(1,))
    >>> scaled_conv_fprop(x, w, np.array([0.0, 1.0]), np.array([2.0, 4.0], np.float32), problem)
    array([[[ 1.,  3.],
            [ 9., 25.]]])
    """
    per_channel = (-1, *(1,) * problem.rank)
    y = conv_fprop(x, w, None, problem) * scale.reshape(per_channel)
    return y if b is None else y + b.reshape(per_channel)


FORMULAS = by_name(globals(), ("conv_integer", "quantized_conv", "scaled_conv"), masks=False)
