"""The second definition as a backend: literal loops, for small problems and for judging the judge."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..arrays import like, to_numpy
from ..case import Call
from ..judge import Numerics
from ..oracle import loops
from ..problem import ConvProblem
from .numpy import NumpyBackend

MAX_PRODUCTS = 10**7  # about ten seconds of Python


class LoopsBackend(NumpyBackend):
    """Computes any small call with `convref.oracle.loops`."""

    name = "loops"

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
            results = _evaluate(call, arrays)
        template = next(a for a in operands if a is not None)
        return tuple(
            None if r is None else like(dtypes.rounded(r, call.dtype), template) for r in results
        )

    def numerics(self, call: Call) -> Numerics:
        """Return the oracle's model: the loops sum in the same wider type."""
        return super().numerics(call)


def _evaluate(call: Call, arrays: list[Any]) -> tuple[Any, ...]:
    if (call.op == "unfold") != (call.pass_ == "backward") and call.op != "conv":
        return (loops.unfold(arrays[0], call.problem),)
    if call.op != "conv":
        return (loops.fold(arrays[0], call.problem),)
    if call.pass_ == "fprop":
        return (loops.conv_fprop(*arrays, call.conv),)
    if call.pass_ == "jvp":
        x, w, b, *dots = arrays
        return loops.conv_fprop(x, w, b, call.conv), loops.conv_jvp(x, w, *dots, call.conv)
    if call.pass_ == "double_backward":
        return loops.conv_double_backward(*arrays, call.conv, call.mask)
    dy, x, w = arrays
    return (
        loops.conv_dgrad(dy, w, call.conv) if call.mask[0] else None,
        loops.conv_wgrad(dy, x, call.conv) if call.mask[1] else None,
        loops.conv_bgrad(dy, call.conv) if call.mask[2] else None,
    )


backend = LoopsBackend()
