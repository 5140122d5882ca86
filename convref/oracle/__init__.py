"""The formulas, and the one function that evaluates any of them exactly or in a wider type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..case import Call
from .conv import (
    conv_bgrad,
    conv_dgrad,
    conv_double_backward,
    conv_fprop,
    conv_jvp,
    conv_wgrad,
)
from .unfold import fold, unfold

Array = np.ndarray[Any, Any]
Results = tuple[Array | None, ...]

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


def _conv_fprop(call: Call, x: Array, w: Array, b: Array | None) -> Results:
    return (conv_fprop(x, w, b, call.conv),)


def _conv_backward(call: Call, dy: Array, x: Array, w: Array) -> Results:
    want_x, want_w, want_b = call.mask
    return (
        conv_dgrad(dy, w, call.conv) if want_x else None,
        conv_wgrad(dy, x, call.conv) if want_w else None,
        conv_bgrad(dy, call.conv) if want_b else None,
    )


def _conv_jvp(call: Call, x: Array, w: Array, b: Array | None, *dots: Array | None) -> Results:
    x_dot, w_dot, b_dot = dots
    return conv_fprop(x, w, b, call.conv), conv_jvp(x, w, x_dot, w_dot, b_dot, call.conv)


def _conv_double_backward(call: Call, *operands: Any) -> Results:
    ddx, ddw, ddb, dy, x, w = operands
    return conv_double_backward(ddx, ddw, ddb, dy, x, w, call.conv, call.mask)


def _unfold(call: Call, x: Array) -> Results:
    return (unfold(x, call.problem),)


def _fold(call: Call, cols: Array) -> Results:
    return (fold(cols, call.problem),)


# One row per pass: a function of the call and its operands, in the dtype of the operands.
FORMULAS: dict[tuple[str, str], Callable[..., Results]] = {
    ("conv", "fprop"): _conv_fprop,
    ("conv", "backward"): _conv_backward,
    ("conv", "jvp"): _conv_jvp,
    ("conv", "double_backward"): _conv_double_backward,
    ("unfold", "fprop"): _unfold,
    ("unfold", "backward"): _fold,
    ("unfold", "jvp"): _unfold,
    ("fold", "fprop"): _fold,
    ("fold", "backward"): _unfold,
    ("fold", "jvp"): _fold,
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
    >>> from convref.line import parse
    >>> call = parse("conv.fprop:n1c1k1_i3_f2:dt=i8:bias=0").call
    >>> evaluate(call, np.full((1, 1, 3), 100, "i1"), np.ones((1, 1, 2), "i1"), None)
    (array([[[-56, -56]]], dtype=int8),)
    """
    wide = dtypes.numpy_dtype(accumulate or dtypes.accumulator(call.dtype))
    widened = (None if a is None else a.astype(wide, copy=False) for a in operands)
    with np.errstate(all="ignore"):
        results = FORMULAS[call.op, call.pass_](call, *widened)
    out = out or call.dtype
    return tuple(None if r is None else dtypes.rounded(r, out) for r in results)
