"""What a user passes beside arrays: flags, masks, layouts, primals and tangents."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import zeros_like
from ..case import SPATIAL
from ..errors import ConvrefError, message, shorten
from ..ops import SIGNATURE, items


def axes_of(where: str, rank: int, layout: Any) -> tuple[int, ...]:
    """Return, for N, C and space, the user's axes; None is the layout N, C first."""
    space = SPATIAL[rank].upper()
    first, last = "NC" + space, "N" + space + "C"
    name = first if layout is None else layout
    if name not in (first, last):
        what = f"layout is {shorten(repr(layout))}, needs {first!r} or {last!r}"
        raise ConvrefError(message(where, what))
    return tuple(name.index(a) for a in first)


def mask_of(where: str, op: str, pass_: str, mask: Any) -> tuple[bool, ...]:
    """Return the bits of an output_mask, one for each result; none where the pass has no mask."""
    form = SIGNATURE[op, pass_]
    if not form.maskable:
        return ()
    bits, count = items(mask), len(form.results)
    if bits is None or len(bits) != count or not all(map(is_bool, bits)):
        what = f"output_mask is {shorten(repr(mask))}, needs {count} bools"
        raise ConvrefError(message(where, what))
    return tuple(map(bool, bits))


def flag(where: str, name: str, value: Any) -> bool:
    """Return a user's bool, or raise."""
    if not is_bool(value):
        raise ConvrefError(message(where, f"{name} is {shorten(repr(value))}, needs a bool"))
    return bool(value)


def is_bool(bit: Any) -> bool:
    """Return whether a user's value is True or False, as any of Python's and NumPy's kinds."""
    return isinstance(bit, (bool, int, np.bool_)) and bit in (True, False)


def pair_of(where: str, primals: Any, tangents: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return primals and then tangents; of several, a tangent that is None becomes zeros."""
    values, dots = (
        _tuple_of(where, name, given, names)
        for name, given in (("primals", primals), ("tangents", tangents))
    )
    filled = []
    for name, value, dot in zip(names, values, dots):
        if value is None and dot is not None:
            raise ConvrefError(message(where, f"{name} tangent is given, needs a {name}"))
        zero = dot is None and value is not None and len(names) > 1
        filled.append(zeros_like(value) if zero else dot)
    return *values, *filled


def _tuple_of(where: str, name: str, given: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(given, (tuple, list)) or len(given) != len(names):
        needs = f"({', '.join(names)}{',' * (len(names) == 1)})"
        raise ConvrefError(message(where, f"{name} needs a tuple {needs}"))
    return tuple(given)
