"""Convolutions of 8-bit integers, as ONNX calls them, and of 8-bit floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import facts, kind_of, like, short_name, to_numpy
from ..dtypes import numpy_dtype
from ..errors import invalid, shorten
from ..ops import Sizes
from ..ops.sizes import real
from .conv import convolved, rank_of
from .definition import Definition, Fields, Image
from .generate import documented, names


def _geometry(input: Image, weight: Sizes, *given: Any) -> Fields:
    found = convolved(input, weight, None, *given)
    return {name: found[name] for name in ("stride", "padding", "dilation", "groups")}


def _integer(
    input: Image,
    weight: Sizes,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    x_zero: Any = 0,
    y_zero: Any = None,
) -> Fields:
    """Return the fields of a convolution of integers; only a quantised one has `y_zero`."""
    found = _geometry(input, weight, stride, padding, dilation, groups)
    return {**found, "x_zero": x_zero, **({} if y_zero is None else {"y_zero": y_zero})}


def _scaled(
    input: Image,
    weight: Sizes,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    out: Any = "f32",
) -> Fields:
    found = _geometry(input, weight, stride, padding, dilation, groups)
    return {**found, "out": out}


_INTEGER, _QUANTIZED = (
    Definition(_integer, op=op, layouts=False) for op in ("conv_integer", "quantized_conv")
)
_SCALED = Definition(_scaled, op="scaled_conv", layouts=False)


def _integer_weight(where: str, input: Any, weight: Any, zero_point: Any) -> tuple[Any, Any]:
    """Return a weight of the input's type, and a zero point for each of its output channels."""
    rank_of(where, weight)
    code, own = (facts(where, n, a).dtype for n, a in (("input", input), ("weight", weight)))
    zero = _per_channel(where, "weight_zero_point", zero_point, weight, np.int32)
    if {code, own} == {"i8", "u8"}:  # the same differences from the zero point
        shift = 128 if code == "u8" else -128
        moved = (to_numpy(weight).astype(np.int16) + shift).astype(numpy_dtype(code))
        weight, zero = like(moved, weight), zero + np.int32(shift)
    return weight, like(zero, weight)


def _per_channel(where: str, name: str, value: Any, weight: Any, dtype: Any) -> Any:
    """Return an array of one number per output channel from it or from a single number."""
    k, kinds = weight.shape[0], "iuf" if dtype is np.float32 else "iu"
    try:
        found = np.asarray(to_numpy(value) if kind_of(value) else value)
    except (ValueError, TypeError, RuntimeError, AttributeError):  # no array of numbers
        found = np.asarray(None)
    if found.dtype.kind not in kinds:
        needs = "numbers" if "f" in kinds else "integers"
        raise invalid(where, f"{name} is {shorten(repr(value))}, needs {needs}")
    if found.shape not in ((), (1,), (k,)):
        raise invalid(where, f"{name} has shape {found.shape}, needs () or ({k},)")
    if dtype is np.int32 and not (found.min(initial=0) >= -128 and found.max(initial=0) <= 255):
        raise invalid(where, f"{name} is {shorten(repr(value))}, needs integers from -128 to 255")
    return np.array(np.broadcast_to(found, k), dtype)


def _multiplier(where: str, x: Any, weight: Any, w: Any, y: Any = 1.0) -> Any:
    """Return x w[k] / y in float32, the multiplier of each output channel."""
    scale = _per_channel(where, "weight_scale", w, weight, np.float32)
    with np.errstate(all="ignore"):
        scale = np.float32(real(where, "input_scale", x, 0.0)) * scale / np.float32(y)
    if not np.isfinite(scale).all():
        what = f"scales give the multiplier {scale[~np.isfinite(scale)][0]}, needs finite ones"
        raise invalid(where, what)
    return scale


def conv_integer(
    input: Any,
    weight: Any,
    input_zero_point: int = 0,
    weight_zero_point: Any = 0,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    backend: str = "auto",
) -> Any:
    """Return the int32 convolution of 8-bit integers, each minus its zero point, as in ONNX.

    Parameters
    ----------
    input : (N, C, *spatial) array of int8 or uint8
    weight : (K, C/G, *filter) array of int8 or uint8
    input_zero_point : int
        Also the value of the padding.
    weight_zero_point : int or (K,) array
    stride, dilation : int or tuple of int
    padding : int, tuple of int, (lo, hi) pairs or str
        As in `conv2d`.
    groups : int

    >>> x, w = np.array([[[0, 255]]], np.uint8), np.array([[[-3]]], np.int8)
    >>> conv_integer(x, w, input_zero_point=1)
    array([[[   3, -762]]], dtype=int32)
    """
    w, zero = _integer_weight("conv_integer", input, weight, weight_zero_point)
    settings = stride, padding, dilation, groups, input_zero_point, None
    return _INTEGER.compute("fprop", (input, w, zero), settings, None, backend)[0]


def quantized_conv(
    input: Any,
    input_scale: float,
    input_zero_point: int,
    weight: Any,
    weight_scale: Any,
    weight_zero_point: Any,
    output_scale: float,
    output_zero_point: int,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    backend: str = "auto",
) -> Any:
    """Return the convolution of quantised integers, quantised to the type of `input`.

    Arguments are in the order of ONNX's QLinearConv. The int32 sums are scaled in float32 by
    input_scale * weight_scale / output_scale and rounded to nearest, halves to even.

    Parameters
    ----------
    input, weight, input_zero_point, weight_zero_point, stride, padding, dilation, groups
        As in `conv_integer`.
    weight_scale : float or (K,) array
    output_zero_point : int
    bias : (K,) array of int32, optional
        In units of input_scale * weight_scale.

    >>> x, w = np.array([[[1, 3, 200]]], np.uint8), np.array([[[1]]], np.int8)
    >>> quantized_conv(x, 0.5, 0, w, 1.0, 0, 1.0, 180)
    array([[[180, 182, 255]]], dtype=uint8)
    """
    where = "quantized_conv"
    w, zero = _integer_weight(where, input, weight, weight_zero_point)
    if not np.float32(real(where, "output_scale", output_scale, 0.0)):
        raise invalid(where, f"output_scale is {output_scale}, needs a number above 0")
    scale = _multiplier(where, input_scale, weight, weight_scale, output_scale)
    operands = input, w, bias, zero, like(scale, weight)
    settings = stride, padding, dilation, groups, input_zero_point, output_zero_point
    return _QUANTIZED.compute("fprop", operands, settings, None, backend)[0]


def scaled_conv(
    input: Any,
    input_scale: float,
    weight: Any,
    weight_scale: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    output_dtype: Any = "float32",
    backend: str = "auto",
) -> Any:
    """Return the convolution of 8-bit floats, scaled per output channel.

    The sums are multiplied in float32 by input_scale * weight_scale, a bias is added, and the
    result is rounded once.

    Parameters
    ----------
    input : (N, C, *spatial) array of float8_e4m3fn or float8_e5m2
    input_scale : float
    weight : (K, C/G, *filter) array of the type of `input`
    weight_scale : float or (K,) array
        Products with `input_scale` must be above 0.
    bias : (K,) array of float32, optional
    stride, padding, dilation, groups
        As in `conv_integer`.
    output_dtype : {"float32", "bfloat16", "float16"} or such a dtype

    >>> x, w = (np.array([[[v]]], numpy_dtype("e4m3")) for v in (3.0, 0.5))
    >>> scaled_conv(x, 0.25, w, 8.0)
    array([[[3.]]], dtype=float32)
    """
    where = "scaled_conv"
    rank_of(where, weight)
    scale = _multiplier(where, input_scale, weight, weight_scale)
    if not (scale > 0).all():
        what = f"scales give the multiplier {scale[~(scale > 0)][0]}, needs numbers above 0"
        raise invalid(where, what)
    settings = stride, padding, dilation, groups, short_name(output_dtype)
    operands = input, weight, bias, like(scale, weight)
    return _SCALED.compute("fprop", operands, settings, None, backend)[0]


FUNCTIONS = names(documented(conv_integer, quantized_conv, scaled_conv))
__all__ = [*FUNCTIONS]
