"""Sizes as users give them: integers, one per axis or one for all, and padding in its forms."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import islice
from math import inf, nan
from typing import Any

from ..errors import invalid, needs_one, shorten

Sizes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]

MAX_SIZE = 2**40  # elements along one axis; far above any device, far below int64 overflow
MAX_ELEMENTS = 2**60  # elements of one array
MAX_ENTRIES = 9  # read from an iterator: more than 3 (lo, hi) pairs as flat numbers have
RANKS = {1: "W", 2: "HW", 3: "DHW"}
SPATIAL = {rank: letters.lower() for rank, letters in RANKS.items()}
OUTPUT_AXES = {1: "Q", 2: "PQ", 3: "OPQ"}
FILTER_AXES = {1: "S", 2: "RS", 3: "TRS"}


_PLAIN = frozenset((bool, int, float, str, type(None)))


def integer(where: str, name: str, value: Any) -> int:
    """Return `value` as an int, or raise: floats, NaN, bools and strings are not sizes."""
    try:
        if isinstance(value, bool):
            raise TypeError
        result = operator.index(value)
    except TypeError:
        raise invalid(where, f"{name} is {shorten(repr(value))}, needs an integer") from None
    if abs(result) > MAX_SIZE:
        raise invalid(where, f"{name} is {shorten(result)}, needs at most 2**40")
    return result


def real(where: str, name: str, value: Any, least: float = -inf) -> float:
    """Return `value` as a finite float of at least `least`, or raise, also for bools and texts."""
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: torch
        found = nan
    if not (-inf < found < inf and found >= least):  # a compiler traces this, and not `isfinite`
        needs = "a finite number" + (f" of at least {least:g}" if least > -inf else "")
        raise invalid(where, f"{name} is {shorten(repr(value))}, needs {needs}")
    return found


def one_of(where: str, name: str, value: Any, known: Sequence[str]) -> str:
    """Return `value` if it is one of the known words, or raise."""
    if not isinstance(value, str) or value not in known:
        raise invalid(where, f"{name} is {shorten(repr(value))}, {needs_one(value, known)}")
    return value


def items(value: Any) -> list[Any] | None:
    """Return the entries of a sequence, or None for a number, a text, an array without axes."""
    if isinstance(value, (int, float, str, bytes, dict, set, frozenset)):  # a set has no order
        return None
    try:
        return list(value if hasattr(value, "__len__") else islice(value, MAX_ENTRIES))
    except (TypeError, RuntimeError):  # RuntimeError: a nested tensor
        return None


def to_builtins(value: Any, foreign: list[Any], depth: int = 0) -> Any:
    """Return `value` as ints, floats, texts, and lists and tuples of these.

    An iterator is read, an array becomes its numbers. What cannot be converted is returned as it
    is, and is appended to `foreign`.

    >>> to_builtins((1, iter([2, 3]), None), [])
    (1, [2, 3], None)
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > MAX_ENTRIES or kind is type:  # a list that holds itself
        foreign.append(value)
        return value
    if kind in (tuple, list):
        return kind([v if type(v) in _PLAIN else to_builtins(v, foreign, depth + 1) for v in value])
    if hasattr(value, "tolist"):  # arrays and their scalars
        try:
            found = value.tolist()
        except (RuntimeError, TypeError, ValueError):  # the array has no data, or several shapes
            found = value
        if type(found) is not kind:  # longdouble stays
            return to_builtins(found, foreign, depth + 1)
    elif hasattr(value, "__index__"):
        return operator.index(value)
    elif (entries := items(value)) is not None:
        return to_builtins(entries, foreign, depth + 1)
    foreign.append(value)
    return value


def integers(where: str, name: str, value: Any, rank: int) -> Sizes:
    """Return `value`, one integer or one per spatial axis, as `rank` integers."""
    given = items(value)
    if given is None:
        return (integer(where, name, value),) * rank
    if len(given) == 1:
        given *= rank
    if len(given) == rank and all(type(v) is int and -MAX_SIZE <= v <= MAX_SIZE for v in given):
        return tuple(given)
    if len(given) != rank:
        needs = f"1 or {rank} (one per spatial axis)" if rank > 1 else "1"
        raise invalid(where, f"{name} has {len(given)} entries, needs {needs}")
    return tuple(integer(where, f"{name}[{a}]", item) for a, item in enumerate(given))


def pads(where: str, name: str, value: Any, rank: int) -> Pads:
    """Return padding as ((lo, hi), ...): from an int, ints, or (lo, hi) pairs per axis."""
    given = items(value)
    if given is None:
        return ((integer(where, name, value),) * 2,) * rank
    pairs = [items(entry) for entry in given]
    if all(pair is None for pair in pairs):
        return tuple((size, size) for size in integers(where, name, given, rank))
    if len(pairs) == 1:
        pairs *= rank
    if len(pairs) != rank or None in pairs:
        raise invalid(
            where, f"{name} is {shorten(value)}, needs {rank} (lo, hi) pairs or {rank} ints"
        )
    result = []
    for axis, pair in enumerate(pairs):
        assert pair is not None
        if len(pair) != 2:
            raise invalid(where, f"{name}[{axis}] has {len(pair)} entries, needs (lo, hi)")
        result.append(
            (
                integer(where, f"{name}[{axis}] lo", pair[0]),
                integer(where, f"{name}[{axis}] hi", pair[1]),
            )
        )
    return tuple(result)
