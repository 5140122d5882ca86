"""Mistakes that any op can make, which a case has to notice unless it says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import oracle
from ...case import Call

Array = np.ndarray[Any, Any]
Results = tuple[Array | None, ...]
Operands = tuple[Array | None, ...]


def _always(call: Call) -> bool:
    return True


def _shifted(call: Call, operands: Operands) -> Results:
    """Return results of which each element stands one place further on."""
    results = oracle.evaluate(call, *operands)
    return tuple(None if r is None else np.roll(r, 1) for r in results)


def _mirrored(call: Call, operands: Operands) -> Results:
    """Return what becomes of operands that are read backwards along the last axis."""
    turned = [a if a is None or a.dtype.kind == "i" else a[..., ::-1] for a in operands]
    return oracle.evaluate(call, *turned)


def _without_last(call: Call, operands: Operands) -> Results:
    """Return results whose last element was never written."""
    results = oracle.evaluate(call, *operands)
    for result in results:
        if result is not None and result.size:
            result[(-1,) * result.ndim] = 0
    return results


GENERAL: dict[str, tuple[Callable[[Call], bool], Callable[[Call, Operands], Results]]] = {
    "shifted": (_always, _shifted),
    "mirrored": (_always, _mirrored),
    "without its last element": (_always, _without_last),
}
