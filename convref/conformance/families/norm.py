"""Norms drawn from windows, and the statistics that a forward pass would have saved."""

from typing import Any

import numpy as np

from ... import dtypes
from ...case import Case, role_dtype
from ...ops import Problem
from ...oracle.norm import image, plus_eps, reciprocal_root, statistics
from ..fills import values
from .tape import Tape
from .windows import Draft, all_drawn, image_problem, image_sizes


def _group_norm(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    fields, channels = all_drawn(tape, op), image_sizes(op, draft)["c"]
    divisors = [g for g in range(1, channels + 1) if channels % g == 0]
    return image_problem(tape, op, draft, max_elements, **fields, groups=tape.choose(divisors))


def _moments(case: Case, given: dict[str, Any]) -> tuple[Any, Any]:
    """Return mean and rstd of x, in the type in which they are kept."""
    problem = case.call.problem
    wide = dtypes.numpy_dtype(dtypes.accumulator(case.call.dtype))
    with np.errstate(all="ignore"):
        mean, var = statistics(image(given["x"].astype(wide), problem), problem)
        rstd = reciprocal_root(plus_eps(var, problem))
    code = role_dtype("mean", case.call.dtype)
    mean, rstd = (dtypes.rounded(s, code).reshape(problem.shape("mean")) for s in (mean, rstd))
    return mean, rstd


GENERATED = {
    "mean": lambda case, given: _moments(case, given)[0],
    "rstd": lambda case, given: _moments(case, given)[1],
    "rvar": lambda case, given: np.abs(values(case, "rvar")),
}
DRAW = {"group_norm": _group_norm}
