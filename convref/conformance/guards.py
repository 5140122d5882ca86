"""Outputs for a backend that takes them: poisoned, each between two bands that must not change."""

from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..arrays import Array
from ..case import Call
from .operands import poison

BAND = 256  # elements on each side
PATTERN = 0xA5  # no poison, no zero, no small number: any write shows


class Guards:
    """Calls `run_into` on fresh outputs, and remembers the memory around them.

    An output is contiguous; its ``base`` is the one-dimensional array of bytes that holds it,
    bands included, so that an adapter for another device can copy all of it there and back.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.buffers: list[tuple[str, int, Array]] = []  # role, bytes of a band, all bytes

    def outputs(self) -> tuple[Array | None, ...]:
        """Return one new output for each result role, None where it is masked off."""
        results = self.call.signature.results
        return tuple(self._output(r) if r in self.call.wanted else None for r in results)

    def _output(self, role: str) -> Array:
        shape = self.call.problem.shape(role)
        dtype = dtypes.numpy_dtype(self.call.dtype_of(role))
        band, size = BAND * dtype.itemsize, prod(shape) * dtype.itemsize
        whole = np.full(size + 2 * band, PATTERN, np.uint8)
        output = np.ndarray(shape, dtype, whole, band)
        output[...] = poison(self.call.dtype_of(role))
        self.buffers.append((role, band, whole))
        return output

    def run(self, backend: Any, call: Call, *operands: Any) -> tuple[Array | None, ...]:
        """Return the results that `backend` writes into new outputs."""
        outputs = self.outputs()
        backend.run_into(call, outputs, *operands)
        return outputs

    def broken(self) -> str:
        """Return which band was written to, and where; empty if none was."""
        for role, band, whole in self.buffers:
            size = dtypes.numpy_dtype(self.call.dtype_of(role)).itemsize
            low = np.flatnonzero(whole[:band] != PATTERN)
            high = np.flatnonzero(whole[-band:] != PATTERN)
            if len(low):
                return f"{role}: wrote {-((int(low[0]) - band) // size)} elements before its start"
            if len(high):
                return f"{role}: wrote {int(high[-1]) // size + 1} elements after its end"
        return ""
