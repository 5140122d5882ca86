"""Kernels that write where they should not, or not at all, when they are given their outputs."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from convref.case import Call
from convref.conformance.mutations import Array, oracle_results

from .base import Fault

Store = Callable[[Array, Array], None]  # an output, and its correct contents


@dataclass(frozen=True)
class OutputFault(Fault):
    """A fault that shows in how results are stored: it takes its outputs.

    Parameters
    ----------
    store : callable
        Puts each result of a call in the region into its output.
    """

    store: Store = np.copyto

    def run_into(self, call: Call, outputs: tuple[Array | None, ...], *operands: Any) -> None:
        """Write the results into `outputs`, by role."""
        store = self.store if self.reaches(call) else np.copyto
        with np.errstate(all="ignore"):
            for output, result in zip(outputs, oracle_results(call, operands)):
                if output is not None and result is not None:
                    store(output, result)


def _past_the_end(output: Array, result: Array) -> None:
    """Store whole vectors of four elements, the last one too."""
    output[...] = result
    tail = -output.size % 4
    ctypes.memset(output.ctypes.data + output.nbytes, 0, tail * output.itemsize)


def _before_the_start(output: Array, result: Array) -> None:
    output[...] = result
    ctypes.memset(output.ctypes.data - output.itemsize, 0, output.itemsize)


def _added(output: Array, result: Array) -> None:
    output += result


def _columns(call: Call) -> int:
    return call.problem.output[-1]


ROWS = (
    OutputFault(
        "tail_stored_whole",
        "stores without a mask: up to three elements past the end",
        "conv.fprop:n1c1k1_i1_f1:fill=ones",
        lambda call: call.pass_ == "fprop",
        oracle_results,
        store=_past_the_end,
    ),
    OutputFault(
        "stored_before_the_start",
        "low padding taken off the address of the output once too often",
        "conv.fprop:n1c1k1_i1_f1_p1,0:fill=ones",
        lambda call: call.pass_ == "fprop" and call.problem.padding[-1][0] > 0,
        oracle_results,
        store=_before_the_start,
    ),
    OutputFault(
        "accumulates_into_output",
        "gradient added to what the output held, as if it were zero",
        "conv.wgrad:n1c1k1_i1_f1:fill=ones",
        lambda call: call.pass_ == "backward" and "dw" in call.wanted,
        oracle_results,
        store=_added,
    ),
)
