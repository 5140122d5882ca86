"""Softmax and the losses drawn from windows, and its targets."""

from typing import Any

import numpy as np

from ...case import Case
from ...ops import Problem
from .tape import Tape
from .windows import Draft, draw_field, image_problem, image_sizes

IGNORED_EVERY = 5  # one target in 5 is ignored


def _softmax(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    axes = len(draft.axes) + 2
    dim = tape.choose((1, 1, axes - 1, *range(axes)))
    return image_problem(tape, op, draft, max_elements, dim=dim)


def _loss(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    classes = image_sizes(op, draft)["c"]
    weight = draw_field(tape, op, "weight")
    ignored = tape.choose((-100, -100, 0, -1, classes - 1))
    return image_problem(tape, op, draft, max_elements, weight=weight, ignore_index=ignored)


def _target(case: Case, given: dict[str, Any]) -> Any:
    """Return classes, some of them the one that is ignored, but not the first of all."""
    problem = case.call.problem
    shape = problem.shape("target")
    generator = np.random.Generator(np.random.Philox(key=case.seed))
    target = generator.integers(0, problem.c, shape)
    ignored = generator.integers(0, IGNORED_EVERY, shape) == 0
    target = np.where(ignored, problem.ignore_index, target)
    if target.size and problem.c > 1:  # a mean over no target is NaN
        target.flat[0] = (problem.ignore_index + 1) % problem.c
    return target


GENERATED = {"target": _target}
DRAW = {
    **dict.fromkeys(("softmax", "log_softmax", "hardmax", "normalize", "cumsum"), _softmax),
    **dict.fromkeys(("nll_loss", "cross_entropy"), _loss),
}
