"""The second definition as a backend: literal loops, for small problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..arrays import like, to_numpy
from ..case import Call
from ..oracle import loops
from ..problem import ConvProblem
from .numpy import NumpyBackend

MAX_PRODUCTS = 10**7  # about ten seconds of Python


class LoopsBackend(NumpyBackend):
    """Computes any small call with `convref.oracle.loops`."""

    name = "loops"
    checked_by_dispatch = True

    def supports(self, call: Call) -> str | None:
        """Return the reason for a device or a size that loops do not reach."""
        if isinstance(call.problem, ConvProblem):
            products = call.problem.macs("y")
            if products > MAX_PRODUCTS:
                return f"{products} products, loops stop at {MAX_PRODUCTS}"
        return super().supports(call)

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role."""
        wide = dtypes.numpy_dtype(dtypes.accumulator(call.dtype))
        arrays = [None if a is None else to_numpy(a).astype(wide) for a in operands]
        with np.errstate(all="ignore"):
            compute = _PASSES[call.pass_] if call.op == "conv" else _windows
            results = compute(call, *arrays)
        template = next(a for a in operands if a is not None)
        return tuple(
            None if r is None else like(dtypes.rounded(r, call.dtype), template) for r in results
        )


def _windows(call: Call, array: Any) -> tuple[Any, ...]:
    unfolds = (call.op == "unfold") != (call.pass_ == "backward")
    return ((loops.unfold if unfolds else loops.fold)(array, call.problem),)


def _fprop(call: Call, x: Any, w: Any, b: Any) -> tuple[Any, ...]:
    return (loops.conv_fprop(x, w, b, call.conv),)


def _jvp(call: Call, x: Any, w: Any, b: Any, *dots: Any) -> tuple[Any, ...]:
    x_dot, w_dot, b_dot = dots
    y_dot = loops.conv_jvp(x, w, x_dot, w_dot, b_dot, call.conv)
    return loops.conv_fprop(x, w, b, call.conv), y_dot


def _backward(call: Call, dy: Any, x: Any, w: Any) -> tuple[Any, ...]:
    return (
        loops.conv_dgrad(dy, w, call.conv) if call.mask[0] else None,
        loops.conv_wgrad(dy, x, call.conv) if call.mask[1] else None,
        loops.conv_bgrad(dy, call.conv) if call.mask[2] else None,
    )


def _double_backward(call: Call, *operands: Any) -> tuple[Any, ...]:
    ddx, ddw, ddb, dy, x, w = operands
    return loops.conv_double_backward(ddx, ddw, ddb, dy, x, w, call.conv, call.mask)


_PASSES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "fprop": _fprop,
    "backward": _backward,
    "jvp": _jvp,
    "double_backward": _double_backward,
}

backend = LoopsBackend()
