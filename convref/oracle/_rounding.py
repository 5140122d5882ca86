"""Shared by the magnitudes of all families: unit roundoff, underflow, limit of first order."""

from .. import dtypes
from ..case import Call

FIRST_ORDER = 0.25  # largest relative error of var + eps to which the proof extends


def unit(call: Call) -> float:
    """Return the unit roundoff of the type in which libraries compute the call's data."""
    return dtypes.number(call.dtype if call.dtype in ("f64", "f80") else "f32").u


def underflow(call: Call) -> float:
    """Return the least S, which allows for numbers that are flushed to zero.

    Those are below the least normal number of the type in which a library computes, or below the
    least of all numbers of the type in which it stores results.
    """
    working = call.dtype if call.dtype in ("f64", "f80") else "f32"
    kept = dtypes.number(call.dtype)
    return max(dtypes.number(working).tiny / unit(call), kept.eta / kept.u if kept.u else 0.0)
