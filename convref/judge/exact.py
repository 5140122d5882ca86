"""Tier 1, exact: integer data whose sums fit have one right result, and so have copies."""

import numpy as np

from .. import dtypes, oracle
from ..arrays import Array
from .numerics import Numerics
from .references import Exhibit
from .verdicts import Verdict, element, first_index


def applies(it: Exhibit, numerics: Numerics) -> bool:
    """Return whether there is one right result in every order of summation."""
    integers = it.ref.integral and it.kinds is None and it.terms.kind != "formula"
    return it.is_discrete or (integers and _is_exact(it, numerics))


def _is_exact(it: Exhibit, numerics: Numerics) -> bool:
    """Return whether every partial sum is representable wherever it may be rounded."""
    ref, code = it.ref, it.call.dtype
    wide = numerics.accumulator
    if wide is None or numerics.stages or numerics.weights:
        wide = code
    if numerics.normwise or ((numerics.tf32 or numerics.tf32x3) and ref.largest > 2**11):
        return False
    if not ref.call.problem.is_exact(code):
        return False
    digits = min(dtypes.number(wide).digits, numerics.digits)
    limit = 2.0 ** min(digits, dtypes.number(dtypes.accumulator(code)).digits)
    scale = numerics.growth * ref.call.problem.grain
    return largest_sum(it) * scale <= limit or float(it.sums.max()) * scale <= limit


def largest_sum(it: Exhibit) -> float:
    """Return a number that no sum of absolute values exceeds: that of the largest operands."""
    scaled = "scale" in it.terms.by or (it.call.op, it.call.pass_) in oracle.MAGNITUDES
    if it.terms.kind != "sum" or scaled:
        return np.inf
    largest = it.ref.largest
    return it.call.products(it.role) * max(largest, largest * largest)  # inf if that overflows


def verdict(it: Exhibit) -> Verdict:
    """Return whether the result is the reference, rounded once."""
    want = dtypes.rounded(it.value, it.call.dtype_of(it.role))
    wrong = ~np.asarray(_same(it, want), bool)
    if not wrong.any():
        return Verdict("pass", "exact", it.role, outputs=it.got.size)
    at, faults = first_index(wrong), int(wrong.sum())
    got, right = it.got[at], want[at]
    reason = (
        f"{element(it.role, at)} is {got}, needs exactly {right} "
        f"({faults} of {it.got.size} elements differ)"
    )
    error = abs(got.item() - right.item()) if it.got.dtype != object else 1.0
    return Verdict(
        "wrong", "exact", it.role, reason, at, got, right, error, 0.0, faults, it.got.size, np.inf
    )


def _same(it: Exhibit, want: Array) -> Array:
    """Return where got and wanted are equal; of copies of x the sign of a zero counts too."""
    got, terms = it.got, it.terms
    signed = terms.kind == "copy" and terms.signed and it.role == "y"
    with np.errstate(invalid="ignore"):  # memory that was never written may hold signalling NaN
        same: Array = (got == want) | ((got != got) & (want != want))
    if signed and want.dtype.kind not in "iuOc":
        same = same & ((np.signbit(got) == np.signbit(want)) | (got != got))
    return same
