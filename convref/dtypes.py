"""The number types: their short names, rounding units and the wider types that judge them."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .errors import invalid, missing_extra, needs_one, shorten


class Number(NamedTuple):
    """Arithmetic of a type: `u` unit roundoff, `tiny` smallest normal, `eta` smallest subnormal."""

    u: float
    tiny: float
    eta: float
    huge: float

    @property
    def digits(self) -> int:
        """Return the largest p such that all integers up to 2**p are exact."""
        return round(-np.log2(self.u)) if self.u else 62


_NUMPY = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "f80": np.longdouble,
    "c64": np.complex64,
    "c128": np.complex128,
    "c160": np.clongdouble,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "obj": np.object_,
}
# Types of ml_dtypes, and their arithmetic. e4m3 has no infinity: overflow gives NaN.
ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_ML_NUMBERS = {
    "bf16": Number(2.0**-8, 2.0**-126, 2.0**-133, (2 - 2.0**-7) * 2.0**127),
    "e4m3": Number(2.0**-4, 2.0**-6, 2.0**-9, 448.0),
    "e5m2": Number(2.0**-3, 2.0**-14, 2.0**-16, 57344.0),
}
CODES = (*ML_DTYPES, *_NUMPY)
EIGHT = ("e4m3", "e5m2")
SIXTEEN = ("f16", "bf16")
REAL = (*SIXTEEN, "f32", "f64")  # those that other libraries have
FLOATS = (*REAL, "f80")
COMPLEX = ("c64", "c128", "c160")
INTEGERS = tuple(code for code in _NUMPY if code[0] in "iu")

# Their other names, those of NumPy among them.
_ALIASES = {np.dtype(kind).name: code for code, kind in reversed(_NUMPY.items())} | {
    **{name: code for code, name in ML_DTYPES.items()},
    **{"half": "f16", "single": "f32", "double": "f64"},
    **{"fp16": "f16", "fp32": "f32", "fp64": "f64"},
}

_WIDE = {**dict.fromkeys(ML_DTYPES, "f64"), "f16": "f64", "f32": "f64", "c64": "c128"}


def short_name(name: str) -> str:
    """Return the short name of a type by any of its names; an unknown one as it is.

    >>> short_name("fp16"), short_name("float16"), short_name("f16")
    ('f16', 'f16', 'f16')
    """
    return _ALIASES.get(name, name)


@cache
def numpy_dtype(code: str) -> np.dtype[Any]:
    """Return the NumPy dtype called `code`; bf16, e4m3 and e5m2 need ml_dtypes."""
    if code in ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError as error:
            raise missing_extra("bf16", error) from None
        return np.dtype(getattr(ml_dtypes, ML_DTYPES[code]))
    if code not in _NUMPY:
        raise invalid("dtype", f"got {shorten(repr(code))}, {needs_one(code, CODES)}")
    return np.dtype(_NUMPY[code])


@cache
def code_of(dtype: np.dtype[Any]) -> str:
    """Return the short name of a NumPy dtype."""
    if dtype.name in ML_DTYPES.values():
        return short_name(dtype.name)
    for code, kind in _NUMPY.items():
        if isinstance(dtype, np.dtype) and dtype.newbyteorder("=") == np.dtype(kind):
            return code
    raise invalid("dtype", f"got {shorten(dtype)}, needs a float, complex, integer or object type")


def accumulator(code: str) -> str:
    """Return the type in which the oracle sums `code`: exact for integers, wider for floats."""
    return "i64" if code in INTEGERS else _WIDE.get(code, code)


@cache
def number(code: str) -> Number:
    """Return the arithmetic of `code`; integers and objects round nothing."""
    if code in INTEGERS or code == "obj":
        return Number(0.0, 0.0, 0.0, float("inf"))
    if code in _ML_NUMBERS:
        return _ML_NUMBERS[code]
    info = np.finfo(numpy_dtype(code))
    return Number(
        float(info.epsneg), float(info.tiny), float(info.smallest_subnormal), float(info.max)
    )


def rounded(values: np.ndarray[Any, Any], code: str) -> np.ndarray[Any, Any]:
    """Return `values` rounded once, to nearest even, to the type `code`; integers wrap."""
    if code == "bf16" and values.dtype != numpy_dtype("bf16"):
        return _to_bf16(values)
    if values.dtype == (dtype := numpy_dtype(code)):
        return values
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return values.astype(dtype)


def _to_bf16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round through float32 to odd, so that the second rounding sees which side it is on."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        near = values.astype(np.float32)  # nearest: may have landed on a bf16 tie
        exact = near.astype(values.dtype) == values
        down = np.nextafter(near, np.float32(0))
        toward = np.where(np.abs(near.astype(values.dtype)) > np.abs(values), down, near)
        bits = toward.view(np.uint32) | (~exact & np.isfinite(values)).astype(np.uint32)
        return bits.view(np.float32).astype(numpy_dtype("bf16"))
