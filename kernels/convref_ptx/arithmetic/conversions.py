"""Conversions between numbers of all widths, 8-bit floating point included."""

from __future__ import annotations

from functools import cache

import numpy as np

from . import numbers
from .numbers import Array
from .table import flush, row

_FLOAT = "f16|bf16|f32|f64"
_INT = "[su](?:8|16|32|64)"
_TOWARD = {"z": 0.0, "m": -np.inf, "p": np.inf}
_TO_INTEGER = {"n": np.rint, "z": np.trunc, "m": np.floor, "p": np.ceil}


def _rounded(value: Array, to: str, mode: str = "n") -> Array:
    """Return float64 rounded as the bits of a type.

    To nearest even, toward zero ("z"), or but for bf16 toward -infinity ("m") or +infinity ("p").
    """
    if to == "f64":
        return value
    if to == "bf16":
        near = value.astype(np.float32)
        odd = numbers.round_to_odd(near, (value - near).astype(np.float32))
        if mode == "z":
            return (odd.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return numbers.rounded(odd, to)
    near = value.astype(numbers.TYPES[to])
    if mode != "n":
        wide, toward = near.astype(np.float64), near.dtype.type(_TOWARD[mode])
        over = {"z": abs(wide) > abs(value), "m": wide > value, "p": wide < value}[mode]
        near = np.where(over, np.nextafter(near, toward), near)
    return numbers.rounded(near, to) if to == "f16" else near


def _to_integer(mode: str, ftz: str | None, to: str, kind: str, a: Array) -> Array:
    """Round to an integer; beyond the type the nearest of its ends, of NaN 0."""
    whole = _TO_INTEGER[mode[1]]((flush(a) if ftz else a).astype(np.float64))
    limits = np.iinfo(numbers.TYPES[to])
    low, high = whole <= limits.min, whole >= limits.max
    inside = np.where(low | high | np.isnan(whole), 0, whole).astype(numbers.TYPES[to])
    found = np.where(low, limits.min, np.where(high, limits.max, inside))
    return found.astype(f"{limits.kind}{max(2, numbers.width(to) // 8)}")  # no registers of 8 bits


def _directed(
    name: str, mode: str, ftz: str | None, sat: str | None, a: Array, b: Array, *c: Array
) -> Array:
    """Return a sum or product of float32, rounded in a direction or saturated."""
    a, b, *c = ((flush(word) if ftz else word).astype(np.float64) for word in (a, b, *c))
    if name == "mul":
        wide = a * b
    else:
        parts = (a * b, *c) if name == "fma" else (a, -b if name == "sub" else b)
        wide = numbers.round_to_odd(*numbers.two_sum(*parts))
        opposite = np.signbit(parts[0]) != np.signbit(parts[1])
        wide = np.where((wide == 0) & opposite, -0.0 if mode == "m" else 0.0, wide)
    found = _rounded(wide, "f32", mode)
    found = np.clip(np.nan_to_num(found, nan=0.0), 0, 1) if sat else found
    return flush(found) if ftz else found


def _to_whole(mode: str, ftz: str | None, kind: str, a: Array) -> Array:
    found = _TO_INTEGER[mode[1]](flush(a) if ftz else a)
    return numbers.rounded(found, kind) if kind in ("f16", "bf16") else found


def _float_to_float(
    mode: str | None, ftz: str | None, sat: str | None, to: str, kind: str, a: Array
) -> Array:
    value = (flush(a) if ftz and kind == "f32" else a).astype(np.float64)
    value = np.clip(np.nan_to_num(value), 0, 1) if sat == ".sat" else value
    value = np.fmax(value, 0) if sat == ".relu" else value
    found = _rounded(value, to, (mode or "rn")[1])
    return flush(found) if ftz and to == "f32" else found


def _from_integer(mode: str, to: str, kind: str, a: Array) -> Array:
    if to in ("f32", "f64"):
        return a.astype(numbers.TYPES[to])  # rounded once, also of 64 bits
    return _rounded(a.astype(np.float64), to)


def _pair(mode: str, relu: str | None, to: str, upper: Array, lower: Array) -> Array:
    words = (np.fmax(a, 0) if relu else a for a in (upper, lower))
    made = [
        numbers.rounded(a, to) if mode == "rn" else _rounded(a.astype(np.float64), to, mode[1])
        for a in words
    ]
    return made[0].astype(np.uint32) << np.uint32(16) | made[1]


@cache
def fp8_values(kind: str) -> Array:
    """Return the 256 values of an 8-bit type as float64."""
    code = np.arange(256)
    bits, bias = (3, 7) if kind == "e4m3" else (2, 15)
    exponent, fraction = code >> bits & (31 if bits == 2 else 15), code & (1 << bits) - 1
    normal = np.ldexp(1 + fraction / (1 << bits), exponent - bias)
    value = np.where(exponent == 0, np.ldexp(fraction / (1 << bits), 1 - bias), normal)
    if kind == "e4m3":
        value[code & 127 == 127] = np.nan
    else:
        value[(exponent == 31) & (fraction == 0)] = np.inf
        value[(exponent == 31) & (fraction != 0)] = np.nan
    return np.where(code >> 7, -value, value)


def _to_small(relu: str | None, kind: str, *parts: Array) -> Array:
    """Return two numbers as 8-bit codes, saturating; the first operand is the upper one."""
    if len(parts) == 1:  # two 16-bit floats in one register
        halves = numbers.as_type(parts[0].view(np.uint16), "f16").reshape(-1, 2)
        parts = (halves[:, 1], halves[:, 0])
    values = fp8_values(kind)[:128]
    top = int(np.flatnonzero(np.isfinite(values))[-1])
    codes = []
    for part in parts:
        a = np.abs(wide := part.astype(np.float64))
        above = np.clip(values[: top + 1].searchsorted(a), 1, top)
        middle = (values[above] + values[above - 1]) / 2
        code = np.where((a > middle) | ((a == middle) & (above % 2 == 0)), above, above - 1)
        code = np.where(np.isnan(a), 127, code) | np.signbit(wide) << 7
        code = np.where((wide < 0) & bool(relu), 0, np.where(np.isnan(a), 127, code))
        codes.append(code.astype(np.uint16))
    return codes[0] << np.uint16(8) | codes[1]


def _from_small(kind: str, a: Array) -> Array:
    wide = fp8_values(kind)[a.view(np.uint8)].astype(np.float16)
    return np.where(np.isnan(wide), np.uint16(0x7FFF), wide.view(np.uint16)).view(np.uint32)


row(rf"cvt\.(rni|rzi|rmi|rpi)(\.ftz)?\.({_INT})\.({_FLOAT})", "{3}", _to_integer)
row(rf"cvt\.(rni|rzi|rmi|rpi)(\.ftz)?\.({_FLOAT})\.\3", "{2}", _to_whole)
row(r"(add|sub|mul|fma)\.r([zmp])(\.ftz)?(\.sat)?\.f32", "f32 f32 f32", _directed)
row(r"(add|sub|mul|fma)\.r(n)(\.ftz)?(\.sat)\.f32", "f32 f32 f32", _directed)
row(rf"cvt(?:\.(rn|rz))?(\.ftz)?(\.sat|\.relu)?\.({_FLOAT})\.({_FLOAT})", "{4}", _float_to_float)
row(rf"cvt\.(rn)\.({_FLOAT})\.({_INT})", "{2}", _from_integer)
row(r"cvt\.(rn|rz)(\.relu)?\.(bf16|f16)x2\.f32", "f32 f32", _pair)
row(r"cvt\.rn\.satfinite(\.relu)?\.(e4m3|e5m2)x2\.f32", "f32 f32", _to_small)
row(r"cvt\.rn\.satfinite(\.relu)?\.(e4m3|e5m2)x2\.f16x2", "b32", _to_small)
row(r"cvt\.rn\.f16x2\.(e4m3|e5m2)x2", "b16", _from_small)
row(r"cvt\.rna\.tf32\.f32", "b32", lambda a: (a + 0x1000) & np.uint32(0xFFFFE000))
