"""Pools drawn from windows, and indices that a max pool would give."""

from math import prod
from typing import Any

import numpy as np

from ...case import Case
from ...errors import ConvrefError, invalid
from ...ops import FAMILY, Problem, UnpoolProblem
from ...oracle.pool import max_pool_fprop
from .tape import Tape
from .windows import Draft, all_drawn, image_sizes, output_sizes, window_sizes


def _windows(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    return _pool(tape, op, window_sizes(draft), max_elements, all_drawn(tape, op))


def _lp_pool(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    sizes = window_sizes(draft)
    if not tape.chance(40):
        sizes["padding"] = ((0, 0),) * len(draft.axes)
        sizes["input"] = tuple(map(max, sizes["input"], _spans(sizes)))
    return _pool(tape, op, sizes, max_elements, all_drawn(tape, op))


def _pool(
    tape: Tape, op: str, sizes: dict[str, Any], max_elements: int, fields: dict[str, Any]
) -> Problem:
    """Return a pool: 70 of 100 have windows that all libraries have, the others any windows.

    All libraries have equal padding at both ends up to half a window, and dilation only of maxima.
    """
    common, ceil = not tape.chance(30), tape.chance(30)
    if common:
        plain = dict(sizes)
        if op != "max_pool":
            plain["dilation"] = (1,) * len(sizes["input"])
        edges = zip(sizes["padding"], _spans(plain))
        plain["padding"] = tuple((max(0, min(lo, span // 2)),) * 2 for (lo, _), span in edges)
        problem = _problem_within(op, {**plain, **fields, "ceil": ceil}, max_elements)
        if problem is not None:
            return problem
    drawn = {**sizes, **fields}
    return _problem_within(op, {**drawn, "ceil": ceil}, max_elements) or FAMILY[op](**drawn)


def _problem_within(op: str, fields: dict[str, Any], max_elements: int) -> Problem | None:
    """Return the problem, or None where a window would be lost or the output too large."""
    try:
        problem = FAMILY[op](**fields)
    except ConvrefError:
        return None
    return problem if prod(problem.shape("y")) <= max_elements else None


def _spans(sizes: dict[str, Any]) -> list[int]:
    return [d * (taps - 1) + 1 for d, taps in zip(sizes["dilation"], sizes["filter"])]


def _adaptive(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    image = image_sizes(op, draft)
    image["output"] = output_sizes(tape, image, max_elements)
    return FAMILY[op](**image)


def _unpool(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    """Return an unpooling with room for every element: libraries differ on which of two is kept."""
    image = image_sizes(op, draft)
    output = tuple(max(1, size + tape.choose((0, 1, 2, 3))) for size in image["input"])
    if tape.chance(20):  # smaller than the image along an axis
        output = output[::-1]
    if max(1, image["n"] * image["c"]) * prod(output) > max_elements:
        output = tuple(max(1, size) for size in image["input"])
    return UnpoolProblem(**image, output=output)


def _indices(case: Case, given: dict[str, Any]) -> Any:
    """Return the indices of a case: of the maxima of x, or for unpooling distinct positions."""
    problem = case.call.problem
    if not isinstance(problem, UnpoolProblem):
        with np.errstate(invalid="ignore"):  # NaN among numbers is intended
            return max_pool_fprop(given["x"], problem)[1]
    room, shape = prod(problem.output), problem.shape("indices")
    if prod(shape[2:]) > room:
        text = f"input has {prod(shape[2:])} elements, output has positions for {room} of them"
        raise invalid("max_unpool", text)
    words = np.random.Generator(np.random.Philox(key=case.seed)).random((*shape[:2], room))
    return words.argsort(axis=2)[..., : prod(shape[2:])].reshape(shape)


GENERATED = {"indices": _indices}
DRAW = {
    "max_pool": _windows,
    "avg_pool": _windows,
    "lp_pool": _lp_pool,
    "adaptive_max_pool": _adaptive,
    "adaptive_avg_pool": _adaptive,
    "max_unpool": _unpool,
}
