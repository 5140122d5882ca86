"""Sampled images drawn from windows, and the positions at which they are sampled."""

from __future__ import annotations

from typing import Any

from ...case import Case
from ...ops import FAMILY, Problem
from ..fills import values
from .windows import Draft, Tape, all_drawn, image_sizes, output_sizes

SPREAD = 8  # small integers become eighths: positions on and between elements, some beyond


def _grid_sample(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    image, fields = image_sizes(op, draft), all_drawn(tape, op)
    if len(image["input"]) != 2 and fields["mode"] == "bicubic":
        fields["mode"] = "bilinear"
    fields["output"] = output_sizes(tape, image, max_elements)
    return FAMILY[op](**image, **fields)


def _grid(case: Case, given: dict[str, Any]) -> Any:
    found = values(case, "grid")
    return found / found.dtype.type(SPREAD) if case.fill in ("int", "ramp") else found


GENERATED = {"grid": _grid}
DRAW = {"grid_sample": _grid_sample}
