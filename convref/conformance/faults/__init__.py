"""Wrong kernels, each modelled on a bug that was shipped: what the court has to find.

A fault is the oracle with one mistake, which it makes in its region and nowhere else. Each is a
backend: ``convref check convref.conformance.faults:six_channels``. `MUTATIONS` are mistakes that
any case should notice; a case that notices none of them is vacuous.
"""

from __future__ import annotations

from . import activation, conv, norm, outputs, resize
from .base import Fault, reshaped, right
from .mutations import MUTATIONS

__all__ = ["FAULTS", "MUTATIONS", "Fault", "reshaped", "right"]

FAULTS = {fault.name: fault for fault in (*conv.ROWS, *outputs.ROWS)}

# Of convolution, and of the other families.
ALL = FAULTS | {fault.name: fault for fault in (*resize.ROWS, *norm.ROWS, *activation.ROWS)}


def __getattr__(name: str) -> Fault:
    """Return the fault of that name: each is an attribute, as `convref.dispatch.load` wants it."""
    try:
        return ALL[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
