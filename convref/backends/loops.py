"""The second definition as a backend: literal loops, for small problems."""

from typing import Any

import numpy as np

from .. import oracle
from ..arrays import like, to_numpy
from ..case import Call, first_array
from ..dtypes import numpy_dtype, rounded
from ..ops import OWN_TYPE
from ..oracle import loops
from .numpy import NumpyBackend

MAX_PRODUCTS = 10**7  # about ten seconds of Python


class LoopsBackend(NumpyBackend):
    """Computes any small call with `convref.oracle.loops`."""

    name = "loops"
    checked_by_dispatch = True
    large = False  # the court draws no examples of 100,000 elements

    def supports(self, call: Call) -> str | None:
        """Return the reason for a device or a size that loops do not reach."""
        products = call.problem.work()
        if products > MAX_PRODUCTS:
            return f"{products} products, loops stop at {MAX_PRODUCTS}"
        return super().supports(call)

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role."""
        template, wide = first_array(call, operands), oracle.accumulator(call)
        arrays = [
            None if a is None else to_numpy(a).astype(numpy_dtype(OWN_TYPE.get(role, wide)))
            for role, a in zip(call.roles, operands)
        ]
        with np.errstate(all="ignore"):
            results = loops.FORMULAS[call.op, call.pass_](call, *arrays)
        return tuple(
            None if r is None else like(rounded(r, call.dtype_of(role)), template)
            for role, r in zip(call.signature.results, results)
        )


backend = LoopsBackend()
