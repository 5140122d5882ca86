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


def _eight_bits(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    fields = {"k": draft.k * draft.groups, "groups": draft.groups, **all_drawn(tape, op)}
    fields |= {"bias": draft.bias} if op != "conv_integer" else {}
    return FAMILY[op](**window_sizes(draft), **fields)


def _zero(case: Case, given: dict[str, Any]) -> Any:
    """Return integers from 0 to 3, which both types have."""
    return np.abs(values(case, "zero")) % 4


def _scale(case: Case, given: dict[str, Any]) -> Any:
    """Return 1 to 4 / 64 of integers: products with sums are exact, and some are halves.

    Of floats, return positive numbers, which are 1 to 4 where the fill has integers.
    """
    drawn = np.abs(np.nan_to_num(values(case, "scale"), nan=1.0, posinf=1.0, neginf=1.0))
    if case.call.op == "quantized_conv":
        return np.ldexp(1 + np.rint(drawn) % 4, -6)
    whole = bool((np.rint(drawn) == drawn).all())
    return 1 + drawn % 4 if whole else drawn + np.float32(2**-6)


DRAW = {
    "conv": _conv,
    "unfold": _windows,
    "fold": _windows,
    **dict.fromkeys(("conv_integer", "quantized_conv", "scaled_conv"), _eight_bits),
}
GENERATED = {"zero": _zero, "scale": _scale}
