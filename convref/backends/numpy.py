"""The oracle as a backend: every dtype, every pass, exact or summed in a wider type."""

import platform
from typing import Any

import numpy as np

from .. import dtypes, oracle
from ..arrays import like, to_numpy
from ..case import Call, first_array
from ..judge import Numerics


class NumpyBackend:
    """Computes any call with `convref.oracle`."""

    name = "numpy"
    checked_by_dispatch = True

    def supports(self, call: Call) -> str | None:
        """Return None unless an operand is on another device."""
        devices = {spec.device for spec in call.specs}
        return None if devices == {"cpu"} else f"operands are on {'/'.join(sorted(devices))}"

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role."""
        template = first_array(call, operands)
        arrays = (None if a is None else to_numpy(a) for a in operands)
        results = oracle.evaluate(call, *arrays)
        return tuple(None if r is None else like(r, template) for r in results)

    def numerics(self, call: Call) -> Numerics:
        """Return the model: exact integers, else sums in the oracle's wider type."""
        return declared(call)

    def fingerprint(self) -> dict[str, str]:
        """Return the versions of Python and NumPy."""
        return {"numpy": np.__version__, "python": platform.python_version()}


def declared(call: Call) -> Numerics:
    """Return the model of sums in the type that the oracle takes for the call's dtype."""
    wide = dtypes.accumulator(call.dtype)
    if wide in ("i64", "obj"):
        return Numerics("exact")
    return Numerics("rn80" if wide in ("f80", "c160") else "rn64")


backend = NumpyBackend()
