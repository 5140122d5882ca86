"""What the court draws for ops beyond convolution: a file per family, found by op.

A family turns a draft of windows into its own problem, and makes operands that are no plain data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...case import Case
from ...ops import FAMILY, Problem
from . import activation, norm, pool, resize

# op -> finish(tape, sizes, max_elements), where `sizes` are the fields of a WindowProblem.
FINISH: dict[str, Callable[[Any, dict[str, Any], int], Problem]] = {
    **pool.FINISH,
    **resize.FINISH,
    **norm.FINISH,
    **activation.FINISH,
}
# role -> made(case, operands so far by role): operands that follow from others.
MADE: dict[str, Callable[[Case, dict[str, Any]], Any]] = {
    "indices": pool.indices,
    **norm.MADE,
    **activation.MADE,
}
# op -> fills that say nothing about it.
UNFIT: dict[str, tuple[str, ...]] = {**pool.UNFIT, **norm.UNFIT, **activation.UNFIT}

# op -> fitted(problem, dtype): another problem where numbers of that type have no such result.
FITTED: dict[str, Callable[[Any, str], Problem]] = {**resize.FITTED}


def fitted(problem: Problem, dtype: str) -> Problem:
    """Return the problem, or one like it that numbers of type `dtype` have."""
    op = problem.ops[0]
    return FITTED[op](problem, dtype) if op in FITTED and problem.refuses(dtype) else problem


def finish(tape: Any, op: str, sizes: dict[str, Any], max_elements: int) -> Problem:
    """Return the problem of `op` on drawn windows; `tape` decides what they leave open."""
    return FINISH[op](tape, sizes, max_elements) if op in FINISH else FAMILY[op](**sizes)
