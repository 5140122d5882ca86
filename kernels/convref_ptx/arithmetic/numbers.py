"""Arithmetic of single instructions on arrays of bit patterns."""

import ctypes
import operator
from collections.abc import Callable
from ctypes.util import find_library
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Undefined = Array | None  # a mask of undefined bits; None if there are none

TYPES = {"pred": np.dtype(bool)} | {
    f"{letter}{8 * n}": np.dtype(f"{numpys}{n}")
    for letter, numpys in zip("subf", "iuuf")
    for n in (1, 2, 4, 8)[numpys == "f" :]
}
BITS = {1: TYPES["pred"], **{n: TYPES[f"b{n}"] for n in (8, 16, 32, 64)}}  # of bit patterns


def distinct(values: Array) -> Array:
    """Return the sorted distinct values of indices of which neighbours are often equal."""
    return np.unique(values[np.flatnonzero(np.diff(values, prepend=-1))])


@cache
def width(kind: str) -> int:
    """Return the bits of a type: "s32" has 32, "bf16" 16, "pred" 1."""
    return 1 if kind == "pred" else int(kind.lstrip("bsuf"))


def as_type(bits: Array, kind: str) -> Array:
    """Return bits as a type; bf16 as float32, which represents it exactly."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits if bits.dtype == TYPES[kind] else bits.view(TYPES[kind])


def rounded(value: Array, to: str) -> Array:
    """Return float32 rounded to nearest even as the bits of a 16-bit type; NaN is canonical."""
    if to == "f16":  # of any other type too
        found = value.astype(np.float16, copy=False).view(np.uint16)
    else:
        bits = value.view(np.uint32).astype(np.uint64)
        odd = (bits >> np.uint64(16)) & np.uint64(1)
        found = ((bits + np.uint64(0x7FFF) + odd) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(value), np.uint16(0x7FFF), found)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b rounded, and the error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def round_to_odd(s: Array, error: Array) -> Array:
    """Return s + error rounded to odd: another rounding then gives the correctly rounded result."""
    even = s.view(BITS[8 * s.itemsize]) & 1 == 0
    far = np.copysign(np.inf, error).astype(s.dtype)
    return np.where((error != 0) & even, np.nextafter(s, far), s)


@cache
def _fma_of_c() -> Any:
    function = ctypes.CDLL(find_library("m")).fma
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    return np.frompyfunc(function, 3, 1)


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c rounded once; in float32 by a sum to odd (Boldo and Melquiond, 2008).

    Only a float64 with 25 significant bits may be halfway between two of float32; one with 24 is
    not, unless it is below their normal numbers.
    """
    if a.dtype == np.float64:
        return np.asarray(_fma_of_c()(a, b, c), np.float64)
    product = a.astype(np.float64) * b
    wide = product + c
    if len(halfway := np.flatnonzero(wide.view(np.uint64) & np.uint64((1 << 28) - 1) == 0)):
        near = wide[halfway]
        small = (near != 0) & (abs(near) < np.finfo(np.float32).tiny)
        halfway = halfway[small | (near.view(np.uint64) >> np.uint64(28) & np.uint64(1) == 1)]
        wide[halfway] = round_to_odd(*two_sum(product[halfway], c[halfway].astype(np.float64)))
    return wide.astype(np.float32)


def short_fma(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c of 16-bit types, rounded to odd in float32."""
    wide = _sum_to_odd(a, b, c)
    return round_to_odd(wide.astype(np.float32), wide - wide.astype(np.float32))


def _sum_to_odd(a: Array, b: Array, c: Array) -> Array:
    return round_to_odd(*two_sum(a.astype(np.float64) * b, c.astype(np.float64)))  # exact product


def divide(a: Array, b: Array) -> Array:
    """Return integer quotients truncated toward zero."""
    if (b == 0).any():
        raise ZeroDivisionError("divides by zero")
    floor = a // b
    return floor + ((floor * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def shift(side: str, kind: str, a: Array, count: Array) -> Array:
    """Return a shift to "l" or "r"; counts past the width give 0 or the sign, as in NumPy."""
    by = np.minimum(count, 64).astype(a.dtype)
    return a >> by if side == "r" else a << by


def field(a: Array, start: Array, length: Array) -> Array:
    """Return bits of a from `start` on; beyond them zeros, or of signed numbers the last bit."""
    wide = a.astype(f"{a.dtype.kind}8")
    low, count = ((n & np.uint32(0xFF)).astype(wide.dtype) for n in (start, length))
    left = 64 - np.minimum(count, 64)
    return (wide >> low << left >> left).astype(a.dtype)


def permute(low: Array, high: Array, selector: Array) -> Array:
    """Return four bytes of eight; bit 3 of a selector replicates the byte's sign instead."""
    both = (high.astype(np.uint64) << np.uint64(32) | low)[:, None]
    choice = selector[:, None].astype(np.uint64) >> np.arange(0, 16, 4, dtype=np.uint64)
    value = both >> choice % 8 * 8 & np.uint64(0xFF)
    value = np.where(choice & np.uint64(8), (value >> np.uint64(7)) * np.uint64(0xFF), value)
    return (value << np.arange(0, 32, 8, dtype=np.uint64)).sum(-1).astype(np.uint32)


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "fma": short_fma,
    **{name: getattr(operator, name) for name in ("add", "sub", "mul")},
    **{name: getattr(np, f"bitwise_{name}") for name in ("and", "or", "xor")},
    "min": np.fmin,  # of a number and NaN the number
    "max": np.fmax,
    "div": divide,
    "rem": lambda a, b: a - divide(a, b) * b,
}

ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
RELATIONS = (*ORDERED, *(f"{name}u" for name in ORDERED), "num", "nan")


def compare(name: str, kind: str, a: Array, b: Array) -> Array:
    """Return a comparison; with NaN only "nan" and those that end with "u" are true."""
    if a.dtype.kind != "f":
        return np.asarray(getattr(operator, name)(a, b))
    unordered = (a != a) | (b != b)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    holds: Array = getattr(operator, name[:2])(a, b)
    return holds & ~unordered if name in ORDERED else holds | unordered
