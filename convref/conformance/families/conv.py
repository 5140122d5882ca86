"""Convolutions, unfold and fold: the sizes of the draft, unchanged."""

from typing import Any

import numpy as np

from ...case import Case
from ...ops import FAMILY, ConvProblem, Problem
from ..fills import values
from .tape import Tape
from .windows import Draft, all_drawn, window_sizes


def _conv(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    extra = tuple(axis.output_padding() for axis in draft.axes) if draft.transposed else (0,)
    return ConvProblem(
        **window_sizes(draft),
        k=draft.k * draft.groups,
        groups=draft.groups,
        transposed=draft.transposed,
        output_padding=extra,
        flip=draft.flip,
        bias=draft.bias,
    )


def _windows(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    return FAMILY[op](**window_sizes(draft))


def _integers(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    fields = {"k": draft.k * draft.groups, "groups": draft.groups, **all_drawn(tape, op)}
    fields |= {"bias": draft.bias} if op == "quantized_conv" else {}
    return FAMILY[op](**window_sizes(draft), **fields)


def _zero(case: Case, given: dict[str, Any]) -> Any:
    """Return integers from 0 to 3, which both types have."""
    return np.abs(values(case, "zero")) % 4


def _scale(case: Case, given: dict[str, Any]) -> Any:
    """Return 1 to 4 / 64: products with sums are exact in float32, and some are halves."""
    return np.ldexp(1 + np.abs(np.rint(values(case, "scale"))) % 4, -6)


DRAW = {
    "conv": _conv,
    "unfold": _windows,
    "fold": _windows,
    "conv_integer": _integers,
    "quantized_conv": _integers,
}
GENERATED = {"zero": _zero, "scale": _scale}
