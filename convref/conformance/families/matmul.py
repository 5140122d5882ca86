"""Products of matrices and attention: sizes from the windows; reductions of the draft's images."""

from typing import Any

from ...ops import FAMILY, SPATIAL, Problem, Sizes
from .tape import Tape
from .windows import Draft, all_drawn, image_problem


def _matmul(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    sizes: dict[str, Any] = {"n": draft.n, "c": draft.c, "k": draft.k}
    empty = not draft.axes[0].least and tape.chance(30)
    sizes["input"] = (0 if empty else draft.axes[0].small,)
    return FAMILY[op](**sizes, **all_drawn(tape, op))


def _reduced(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    space = SPATIAL[len(draft.axes)]
    over = tape.choose((space[-1], space, space[0], space[1:] or space, space[::2], space[:2]))
    return image_problem(tape, op, draft, max_elements, over=over)


def _attention(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    fields, c = all_drawn(tape, op), draft.c
    length, size = (axis.small for axis in draft.axes)
    about = (length, 1, length + 1, max(1, length - 1), 2 * length, 33, 65, 1_025)
    source: Sizes = tape.choose(about), tape.choose((size, 1, size + 1, 8))
    if tape.base == "large" and tape.pick((True, False)):  # many keys of one query
        length, source = 1, (length, source[1])
    arrays = draft.n * c * max(length, size)
    while max(arrays, draft.n * c * source[1]) * source[0] > max_elements and max(source) > 1:
        source = tuple(max(1, extent // 2) for extent in source)
    groups = tape.choose([g for g in range(1, max(1, c) + 1) if c % g == 0])
    fields |= {"input": (length, size), "source": source, "groups": groups}
    return FAMILY[op](n=draft.n, c=c, **fields)


DRAW = {
    "matmul": _matmul,
    **dict.fromkeys(("sum", "mean"), _reduced),
    "sdpa": _attention,
}
