"""Sampled images drawn from windows, and the positions at which they are sampled."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...case import Case
from ...ops import FAMILY, Problem
from ..fills import values
from .tape import Tape
from .windows import Draft, all_drawn, image_sizes, output_sizes, window_sizes

SPREAD = 8  # small integers become eighths: positions on and between elements, some beyond


def _grid_sample(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    image, fields = image_sizes(op, draft), all_drawn(tape, op)
    if len(image["input"]) != 2 and fields["mode"] == "bicubic":
        fields["mode"] = "bilinear"
    fields["output"] = output_sizes(tape, image, max_elements)
    if not draft.axes[0].least and tape.chance(30):
        empty = tape.pick(range(len(fields["output"])))
        fields["output"] = tuple(0 if i == empty else o for i, o in enumerate(fields["output"]))
    return FAMILY[op](**image, **fields)


def _eighths(role: str) -> Callable[[Case, dict[str, Any]], Any]:
    def generate(case: Case, given: dict[str, Any]) -> Any:
        found = values(case, role)
        return found / found.dtype.type(SPREAD) if case.fill in ("int", "ramp") else found

    return generate


def _roi_align(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    image, fields = image_sizes(op, draft), all_drawn(tape, op)
    image["input"] = (*image["input"], 1)[:2]
    count = tape.choose((1, 2, 3, 5)) if image["n"] else 0
    one = {**image, "n": max(1, count)}
    fields["output"] = output_sizes(tape, one, max_elements)
    fields["boxes"] = count
    return FAMILY[op](**image, **fields)


def _boxes(case: Case, given: dict[str, Any]) -> Any:
    """Return boxes in images, some partly outside and some of no size, with corners at eighths."""
    problem = case.call.problem
    found = values(replace(case, fill="int"), "boxes")
    step = found.dtype.type(SPREAD) if found.dtype != object else SPREAD
    for axis, size in enumerate(problem.input):
        low, high = 2 - axis, 4 - axis
        span = SPREAD * (size + 1)  # multiples of 13 and 11 spread small integers over it
        found[:, low] = (13 * found[:, low] % span - SPREAD // 2) / step
        found[:, high] = found[:, low] + (11 * found[:, high] % span - SPREAD // 2) / step
    found[:, 1:] /= type(found[:1, 0].item() if len(found) else 1.0)(problem.spatial_scale)
    found[:, 0] = np.arange(problem.boxes) % max(1, problem.n)
    return found


def _deform_conv(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    sizes, fields = window_sizes(draft), all_drawn(tape, op)
    sizes["input"] = tuple(max(1, size) for size in sizes["input"])
    divisors = [g for g in (1, 2, 3, 4, 8) if not sizes["c"] % g and g <= max(1, sizes["c"])]
    fields["groups"], fields["offset_groups"] = tape.choose(divisors), tape.choose(divisors)
    fields["k"] = fields["groups"] * tape.choose((1, 2, 3))
    return FAMILY[op](**sizes, **fields)


GENERATED = {"grid": _eighths("grid"), "offset": _eighths("offset"), "boxes": _boxes}
DRAW = {"grid_sample": _grid_sample, "roi_align": _roi_align, "deform_conv": _deform_conv}
