"""How a tensor core sums products: exactly, or by a bit model of the card.

The models are those of Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (arXiv
2512.07004, with results of cards), and of Xie et al., "MMA-Sim" (arXiv 2511.10909), by instruction.
Exact products are added at once, after each is cut to some bits below the largest.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from convref.errors import invalid

from ..arithmetic import numbers
from ..arithmetic.numbers import Array

LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14}  # exponents of factors
ZERO = -8000  # stands for the exponent of zero: below all others
TILE = 1 << 14  # sums that are made at a time: they stay in the cache
EIGHT_BITS = ("e4m3", "e5m2")
NAN = {"f16": np.uint16(0x7FFF).view(np.float16), "f32": np.uint32(0x7FFFFFFF).view(np.float32)}


class Model(NamedTuple):
    """A sum of products and an accumulator on a card."""

    terms: int  # products that are added at once
    bits: int  # of a term, below the exponent of the largest
    least: int  # that exponent is at least this
    kept: int = 23  # bits of a result in float32, which is truncated; float16 is rounded to nearest
    split: bool = False  # two sums from zero, each of two of four neighbours; c is added by itself


def check(tensor_cores: str) -> None:
    """Raise an error unless it says how tensor cores sum: rounded once, or as a card does."""
    if tensor_cores not in ("exact", "model"):
        what = f"tensor_cores is {tensor_cores!r}, needs 'exact' or 'model'"
        raise invalid("convref_ptx", what)


@cache
def model_of(arch: int, asynchronous: bool, kind: str, to: str) -> Model | None:
    """Return the model of an architecture for a type of factors and of sums; None if unpublished.

    `asynchronous` is that of wgmma, else of mma.sync.
    """
    if arch not in (80, 86, 87, 89, 90, 100, 103, 120, 121):
        return None
    bits, least, terms = (25, -133, 16) if arch >= 90 else (24, -132, 8)
    plain = Model(terms, bits, least if to == "f32" else least + 112)
    if kind == "tf32":
        return plain._replace(terms=terms // 2)
    if kind not in EIGHT_BITS:
        return plain
    if asynchronous or arch == 89:
        return Model(2 * terms, 13, least, 13) if arch in (89, 90) else None
    if arch >= 120:
        return Model(32, bits, least)
    return plain._replace(split=True) if arch >= 90 else None


def summed(a: Array, b: Array, c: Array, kinds: tuple[str, str], to: str, model: Model) -> Array:
    """Return the sums of products in the type of the accumulators, "f32" or "f16".

    Parameters
    ----------
    a, b, c : (N, rows, depth), (N, depth, columns) and (N, rows, columns), float64 but c.
    kinds : types of the two factors.
    """
    step = max(1, TILE // (c.shape[1] * c.shape[2]))
    exponents = [_exponents(x, LEAST[kind]) for x, kind in zip((a, b), kinds)]
    parts = [slice(n, n + step) for n in range(0, len(c), step)]
    whole = [_blocks(*(x[part] for x in (a, b, *exponents, c)), to, model) for part in parts]
    found = np.concatenate(whole)
    return np.where(np.isnan(found), NAN[to], found)


def _blocks(a: Array, b: Array, ea: Array, eb: Array, c: Array, to: str, model: Model) -> Array:
    """Return the sums of some products, one block of terms after the other."""
    if not model.split:
        for first in range(0, a.shape[2], model.terms):
            k = slice(first, first + model.terms)
            c = _added(a[..., k], b[:, k], ea[..., k], eb[:, k], c, to, model)
        return c
    plain, total = model._replace(split=False), np.zeros_like(c)
    for k in (np.arange(a.shape[2]) % 4 // 2 == n for n in (0, 1)):
        total = _added(a[..., k], b[:, k], ea[..., k], eb[:, k], total, to, plain)
    return total + c


def _exponents(x: Array, least: int) -> Array:
    """Return exponents; those of subnormal numbers are `least`."""
    found = np.maximum(np.frexp(x)[1] - 1, least).astype(np.int16)
    return np.where(x == 0, np.int16(ZERO), found)


def _added(a: Array, b: Array, ea: Array, eb: Array, c: Array, to: str, model: Model) -> Array:
    """Return c plus products that are added at once.

    A term is cut towards zero to a multiple of a power of two. So the sum is exact in float64; an
    infinity or NaN stays what it is.
    """
    top = np.maximum(_exponents(c, LEAST["bf16"]), np.int16(model.least))
    for k in range(a.shape[2]):
        np.maximum(top, ea[:, :, k, None] + eb[:, None, k], out=top)
    scale = np.ldexp(1.0, model.bits - top)
    total = np.trunc(c * scale)
    for k in range(a.shape[2]):
        term = a[:, :, k, None] * b[:, None, k]
        term *= scale
        total += np.trunc(term, out=term)
    return _rounded(total / scale, to, model.kept)


def _rounded(value: Array, to: str, kept: int) -> Array:
    """Return float64 to nearest in float16, or truncated to `kept` bits in float32."""
    if to == "f16":
        found = value.astype(np.float16)
    else:
        found = value.astype(np.float32)
        bits = found.view(np.uint32)
        bits -= (np.abs(found) > np.abs(value)) & (np.abs(value) < 2.0**128)
        bits &= np.where(np.isfinite(found), np.uint32(0xFFFFFFFF << 23 - kept & 0xFFFFFFFF), bits)
    return found + np.zeros_like(found)  # zero has no sign


def fused(a: Array, b: Array, c: Array) -> Array:
    """Return sums in float64: each product is added by itself and rounded, in order."""
    for k in range(a.shape[2]):
        c = numbers.fma(*np.broadcast_arrays(a[:, :, k, None], b[:, None, k], c))
    return c
