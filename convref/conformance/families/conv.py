"""Convolutions, unfold and fold: the sizes of the draft, unchanged."""

from ...ops import FAMILY, ConvProblem, Problem
from .windows import Draft, Tape, window_sizes


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


DRAW = {"conv": _conv, "unfold": _windows, "fold": _windows}
