"""Mistakes that any case should notice: a case that notices none of them is vacuous."""

from __future__ import annotations

import numpy as np

from .base import (
    Region,
    Wrong,
    both,
    elsewhere,
    zeroed,
)
from .conv_mistakes import (
    any_axis,
    flipped,
    lopsided,
    sides_swapped,
)

# Mistakes that any case should notice, the surest first: where each can be made, and the kernel.
MUTATIONS: dict[str, tuple[Region, Wrong]] = {
    "last column unwritten": (
        lambda call: call.op == "conv",
        both("y", zeroed(lambda call: np.s_[..., -1:])),
    ),
    "last column of windows unwritten": (
        lambda call: call.op != "conv",
        both("cols", zeroed(lambda call: np.s_[..., -1:])),
    ),
    "last channel dropped": (lambda call: True, both("x", zeroed(lambda call: np.s_[:, -1:]))),
    "last tap dropped": (
        lambda call: call.op == "conv",
        both("w", zeroed(lambda call: np.s_[..., -1:])),
    ),
    "filter flipped": (
        lambda call: call.op == "conv" and max(call.problem.filter) > 1,
        both("w", flipped),
    ),
    "padding swapped": (
        lambda call: any_axis(call, lopsided),
        elsewhere(sides_swapped),
    ),
    "bias forgotten": (
        lambda call: call.op == "conv",
        both("b", zeroed(lambda call: ...)),
    ),
}
