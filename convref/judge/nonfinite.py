"""Non-finite values: which outputs must be NaN or infinite, and where NaN is allowed besides."""

from collections.abc import Iterator

import numpy as np

from ..arrays import Array
from .kinds import Kinds
from .references import Exhibit
from .verdicts import Verdict, element, first_index


def fault(it: Exhibit, strict: bool) -> Verdict | None:
    """Return the verdict on the first output of the wrong kind, or None; proven in any arithmetic.

    A backend that declares `strict_nonfinite` lets no NaN leak from behind absent taps.
    """
    if it.kinds is None:
        return None
    for wrong, needs in _wrong_kinds(it.kinds, it.got, strict):
        if wrong.any():
            at = first_index(wrong)
            reason = f"{element(it.role, at)} is {it.got[at]}, needs {needs}"
            return Verdict(
                "wrong", "proven", it.role, reason, at, it.got[at], needs, np.inf, 0.0, faults=1
            )
    return None


def judged_by_bounds(it: Exhibit) -> Array:
    """Return where the result is a number that the bounds judge."""
    numbers = np.ones(it.got.shape, bool) if it.kinds is None else _numbers(it.kinds, it.got)
    if it.terms.kind == "formula":
        numbers = numbers & np.isfinite(it.sums)
    return numbers


def _wrong_kinds(kinds: Kinds, got: Array, strict: bool) -> Iterator[tuple[Array, str]]:
    """Yield where an output is not of a kind that it must have, with that kind."""
    nan = got != got
    excused = nan & kinds.lenient & (not strict)
    yield kinds.nan & ~nan & ~excused, "NaN"
    yield kinds.plus & ~(got == np.inf) & ~excused, "inf"
    yield kinds.minus & ~(got == -np.inf) & ~excused, "-inf"
    if kinds.wild is not None:
        yield kinds.wild & np.isfinite(got), "NaN or inf"
        excused = excused | kinds.wild
    yield ~(kinds.nan | kinds.plus | kinds.minus) & nan & ~excused, "a number"


def _numbers(kinds: Kinds, got: Array) -> Array:
    numbers: Array = ~(kinds.nan | kinds.plus | kinds.minus)
    for known in (kinds.free, kinds.wild):
        if known is not None:
            numbers = numbers & ~known
    return numbers & ~(kinds.lenient & (got != got))
