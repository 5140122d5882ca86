"""Arrays as Python source: lists, constants with exceptions, packed bytes, or draws."""

from base64 import b85encode
from typing import NamedTuple
from zlib import compress

import numpy as np

from ..arrays import Array
from ..ops import Sizes

LITERAL = 64  # numbers; a larger array is packed
PACKED = 1 << 16  # numbers; a still larger one is drawn by the snippet
WIDTH = 88  # characters of a line of packed data
_EXCEPTIONS = 16  # elements that may differ from an otherwise constant array


class Text(NamedTuple):
    """An array as Python: lines that come first, an expression, whether it is the same array."""

    before: tuple[str, ...]
    expression: str
    exact: bool


def array_text(role: str, array: Array) -> Text:
    """Return `array` as nested lists, a constant with exceptions, packed, or as draws like it."""
    wide: Array = array.astype(python_type(array))
    if 0 < wide.size <= LITERAL:
        return Text((), repr(wide.tolist()), True)
    flat: Array = wide.ravel()
    values, counts = np.unique(flat, return_counts=True)
    common = values[counts.argmax()] if flat.size else flat.dtype.type(0)
    odd = np.flatnonzero(~((flat == common) | (np.isnan(flat) & np.isnan(common))))
    exact = len(odd) <= _EXCEPTIONS
    if exact:
        start = f"np.full({wide.shape}, {common.item()!r})"
    elif wide.size <= PACKED:
        return _packed(role, wide)
    else:
        odd = np.flatnonzero(~np.isfinite(flat))[:_EXCEPTIONS]
        start = _drawn(flat[np.isfinite(flat)], wide.shape)
    if not len(odd):
        return Text((), start, exact)
    name = f"{role}_data"
    put = f"{name}.flat[{odd.tolist()}] = {flat[odd].tolist()!r}"
    return Text((f"{name} = {start}", put), name, exact)


UNPACK = """\
def unpacked(text, dtype, shape):
    return np.frombuffer(decompress(b85decode(text)), dtype).reshape(shape).copy()
"""
_PACKABLE = ("<i1", "<i2", "<f2", "<f4", "<f8", "<i8", "<c8", "<c16")


def _packed(role: str, array: Array) -> Text:
    """Return `array` as compressed bytes of the narrowest type that holds all its numbers."""
    array = np.ascontiguousarray(array)
    kind = next(kind for kind in _PACKABLE if _holds(kind, array))
    data = b85encode(compress(array.astype(kind).tobytes(), 9)).decode()
    rows = [f'    "{data[i : i + WIDTH]}"' for i in range(0, len(data), WIDTH)]
    name = f"{role}_data"
    rows[-1] += ","
    return Text((f"{name} = unpacked(", *rows, f'    "{kind}", {array.shape},', ")"), name, True)


def _holds(kind: str, array: Array) -> bool:
    if array.dtype.kind == "c" and kind[1] != "c":
        return False
    with np.errstate(all="ignore"):
        back = array.astype(kind).astype(array.dtype)
    return bool(np.array_equal(back.view(np.uint64), array.view(np.uint64)))  # -0.0 and NaN too


def python_type(array: Array) -> type:
    """Return the Python type whose numbers hold those of `array`."""
    return {"c": complex, "i": int, "u": int}.get(array.dtype.kind, float)


def _drawn(finite: Array, shape: Sizes) -> str:
    """Return an expression that draws numbers of the same kind and range."""
    if finite.dtype.kind == "c":
        return " + 1j * ".join((_drawn(finite.real, shape), _drawn(finite.imag, shape)))
    low, high = finite.min(), finite.max()
    if np.all(finite == np.floor(finite)) and max(-low, high) < 2**31:
        return f"rng.integers({int(low)}, {int(high) + 1}, {shape})"
    return f"rng.standard_normal({shape})"
