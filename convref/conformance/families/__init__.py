"""The draw rules of the court, by op: one file per family.

A draw rule takes the sizes of a draft (`windows.sizes_of`) and returns a problem of the op. An op
without a row is an image whose fields are drawn from their `convref.ops.Field.draws`.
"""

from collections.abc import Callable
from typing import Any

from ...case import Case
from ...ops import Problem
from . import activation, conv, matmul, norm, pool, resize, sample
from .tape import Tape
from .windows import Draft, image_problem

# op -> rule(tape, op, draft, max_elements)
DRAW: dict[str, Callable[[Tape, str, Draft, int], Problem]] = {
    **conv.DRAW,
    **pool.DRAW,
    **resize.DRAW,
    **sample.DRAW,
    **norm.DRAW,
    **activation.DRAW,
    **matmul.DRAW,
}
# role -> generate(case, operands so far by role): operands that follow from others.
GENERATED: dict[str, Callable[[Case, dict[str, Any]], Any]] = {
    **conv.GENERATED,
    **pool.GENERATED,
    **sample.GENERATED,
    **norm.GENERATED,
    **activation.GENERATED,
}


def draw(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    """Return a problem of `op` with the sizes of a draft; `tape` decides the rest."""
    return DRAW.get(op, image_problem)(tape, op, draft, max_elements)
