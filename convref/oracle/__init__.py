"""The formulas, and the one function that evaluates any of them exactly or in a wider type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import dtypes
from ..case import Call
from ..problem import INDICES
from . import conv as _conv
from . import unfold as _unfold
from ._windows import Array, Results
from .conv import (
    conv_bgrad,
    conv_dgrad,
    conv_double_backward,
    conv_fprop,
    conv_jvp,
    conv_wgrad,
)
from .unfold import fold, unfold

__all__ = [
    "FORMULAS",
    "conv_bgrad",
    "conv_dgrad",
    "conv_double_backward",
    "conv_fprop",
    "conv_jvp",
    "conv_wgrad",
    "evaluate",
    "fold",
    "unfold",
]


# One row per pass: a function of the call and its operands, in the dtype of the operands.
FORMULAS: dict[tuple[str, str], Callable[..., Results]] = {**_conv.FORMULAS, **_unfold.FORMULAS}


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
    >>> from convref.line import parse
    >>> call = parse("conv.fprop:n1c1k1_i3_f2:dt=i8:bias=0").call
    >>> evaluate(call, np.full((1, 1, 3), 100, "i1"), np.ones((1, 1, 2), "i1"), None)
    (array([[[-56, -56]]], dtype=int8),)
    """
    wide = dtypes.numpy_dtype(accumulate or dtypes.accumulator(call.dtype))
    widened = (
        a if a is None or role in INDICES else a.astype(wide, copy=False)
        for role, a in zip(call.roles, operands, strict=True)
    )
    with np.errstate(all="ignore"):
        results = FORMULAS[call.op, call.pass_](call, *widened)
    out = out or call.dtype
    return tuple(
        r if r is None or role in INDICES else dtypes.rounded(r, out)
        for role, r in zip(call.signature.results, results, strict=True)
    )
