"""The formulas, and the one function that evaluates any of them exactly or in a wider type."""

from collections.abc import Callable

import numpy as np

from .. import dtypes
from ..case import Call
from ..errors import invalid
from ..ops import OWN_TYPE, TERMS
from . import (
    _norm_errors,
    _sample_errors,
    _softmax_errors,
    activation,
    attention,
    conv,
    deform,
    matmul,
    norm,
    pool,
    prelu,
    quantized,
    reduce,
    resize,
    sample,
    scaling,
    softmax,
    unfold,
)
from ._resize_errors import displacement, magnitude, nonfinite_counts, position_error
from ._windows import Array, Results, first_reads

__all__ = [
    "DISPLACEMENTS",
    "FORMULAS",
    "MAGNITUDES",
    "accumulator",
    "displacements",
    "evaluate",
    "first_reads",
    "magnitudes",
    "nonfinite_counts",
    "position_error",
    "selectors",
]


MODULES = (
    activation,
    attention,
    conv,
    deform,
    matmul,
    norm,
    pool,
    prelu,
    quantized,
    reduce,
    resize,
    sample,
    scaling,
    softmax,
    unfold,
)
# One row per pass: a function of the call and its operands, in the dtype of the operands.
FORMULAS: dict[tuple[str, str], Callable[..., Results]] = {
    key: formula for module in MODULES for key, formula in module.FORMULAS.items()
}


# For results whose terms the formula on absolute values does not bound.
MAGNITUDES: dict[tuple[str, str], Callable[..., Results]] = {
    **pool.MAGNITUDES,
    **dict.fromkeys(resize.FORMULAS, magnitude),
    **dict.fromkeys((*sample.FORMULAS, *deform.FORMULAS), _sample_errors.magnitudes),
    **_norm_errors.MAGNITUDES,
    **activation.MAGNITUDES,
    **prelu.MAGNITUDES,
    **_softmax_errors.MAGNITUDES,
    **scaling.MAGNITUDES,
    **attention.MAGNITUDES,
}


def evaluate(
    call: Call, *operands: Array | None, accumulate: str | None = None, out: str | None = None
) -> Results:
    """Return the results of `call` by role, None where the mask is off.

    Parameters
    ----------
    call : Call
    *operands : ndarray or None
        One per role of the pass, in the axis order of the formulas; any strides.
    accumulate : str, optional
        Type in which products are summed; by default exact for integers and objects, float64
        for floats up to 32 bits, the type itself above.
    out : str, optional
        Type to which each result is rounded, once; by default the operands' own.

    Returns
    -------
    tuple of (ndarray or None)

    Examples
    --------
    >>> from convref.case import parse
    >>> call = parse("conv.fprop:n1c1k1_i3_f2:dt=i8:bias=0").call
    >>> evaluate(call, np.full((1, 1, 3), 100, "i1"), np.ones((1, 1, 2), "i1"), None)
    (array([[[-56, -56]]], dtype=int8),)
    """
    wide = dtypes.numpy_dtype(accumulate or accumulator(call))
    widened = (
        a if a is None or role in OWN_TYPE else a.astype(wide, copy=False)
        for role, a in zip(call.roles, operands, strict=True)
    )
    with np.errstate(all="ignore"):
        try:
            results = FORMULAS[call.op, call.pass_](call, *widened)
        except (ArithmeticError, TypeError) as error:
            if wide.kind != "O":
                raise
            raise invalid(call.where, f"objects without a result: {error}", call) from None
    return tuple(
        r if r is None or role in OWN_TYPE else dtypes.rounded(r, out or call.dtype_of(role))
        for role, r in zip(call.signature.results, results, strict=True)
    )


def accumulator(call: Call) -> str:
    """Return the type in which `call` is computed: its own where elements are only copied."""
    rows = (TERMS[call.op, call.pass_, role] for role in call.signature.results)
    copies = all(row.kind == "copy" for row in rows)
    return call.dtype if copies else dtypes.accumulator(call.dtype)


def selectors(call: Call) -> set[str]:
    """Return the operands of `call` that only select elements, and enter no sum."""
    rows = [TERMS[call.op, call.pass_, role] for role in call.signature.results]
    added = {role for row in rows for pair in (*row.products, row.added) for role in pair}
    return {role for row in rows for role in row.by} - added


# For results whose weights depend on positions that a library may round.
DISPLACEMENTS: dict[tuple[str, str], Callable[..., Results]] = {
    **dict.fromkeys(resize.FORMULAS, displacement),
    **dict.fromkeys((*sample.FORMULAS, *deform.FORMULAS), _sample_errors.displacement),
}


def displacements(call: Call, *operands: Array | None, unit: float, kept: float = 0.0) -> Results:
    """Return by how much positions and weights with these unit roundoffs may change each result."""
    return DISPLACEMENTS[call.op, call.pass_](call, *operands, unit, kept)


def magnitudes(call: Call, *operands: Array | None, values: Results | None = None) -> Results:
    """Return S of each result, the scale of its rounding errors, in float64 or wider.

    For sums and products, the formula on absolute values. A formula whose terms may cancel has
    a row of its own in MAGNITUDES, which is given the operands as they are. `values` are the
    results if they are known: without a negative operand, they are their own magnitudes.

    >>> from convref.case import parse
    >>> call = parse("conv.fprop:n1c1k1_i2_f2:bias=0").call
    >>> magnitudes(call, np.array([[[1., -1.]]]), np.ones((1, 1, 2)), None)
    (array([[[2.]]]),)
    """
    wide = dtypes.accumulator(call.dtype)
    real = "f80" if wide in ("f80", "c160") else "f64"
    kept = selectors(call)
    given: list[Array | None] = []
    negative = values is None
    for role, array in zip(call.roles, operands, strict=True):
        if array is not None and role not in OWN_TYPE:
            array = array.astype(dtypes.numpy_dtype(wide), copy=False)
            if role not in kept and (call.op, call.pass_) not in MAGNITUDES:
                negative = negative or array.dtype.kind == "c" or bool((array < 0).any())
                array = np.abs(array)
        given.append(array)
    with np.errstate(all="ignore"):
        if (call.op, call.pass_) in MAGNITUDES:
            return MAGNITUDES[call.op, call.pass_](call, *given)
    sums = values
    if sums is None or negative:
        sums = evaluate(call, *given, accumulate=real, out="f64")
    return tuple(None if s is None else np.abs(s, dtype="f8") for s in sums)  # divisors: any sign
