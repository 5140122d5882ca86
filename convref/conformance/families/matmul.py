"""Products of matrices: the windows of the draft are the inner size; reductions of its images."""

from typing import Any

from ...ops import FAMILY, SPATIAL, Problem
from .tape import Tape
from .windows import Draft, all_drawn, image_problem


def _matmul(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    sizes: dict[str, Any] = {
        "n": draft.n,
        "c": draft.c,
        "k": draft.k,
        "input": (draft.axes[0].small,),
    }
    return FAMILY[op](**sizes, **all_drawn(tape, op))


def _reduced(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    space = SPATIAL[len(draft.axes)]
    over = tape.choose((space[-1], space, space[0], space[1:] or space, space[::2]))
    return image_problem(tape, op, draft, max_elements, over=over)


DRAW = {"matmul": _matmul, **dict.fromkeys(("sum", "mean"), _reduced)}
