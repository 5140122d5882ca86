"""Norms drawn from windows, and the statistics that a forward pass would have saved."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ... import dtypes
from ...case import Case, role_dtype
from ...ops import (
    BatchNormProblem,
    FrozenNormProblem,
    GroupNormProblem,
    LayerNormProblem,
    NormProblem,
    Problem,
)
from ...oracle.norm import image, plus_eps, reciprocal_root, statistics
from ..fills import values

EPSILONS = (1e-5, 1e-5, 1e-5, 1e-3, 0.5, 1e-6)
MOMENTA = (0.1, 0.1, 0.01, 1.0, 0.25, 0.9)


def _shared(tape: Any, sizes: dict[str, Any], least: int) -> dict[str, Any]:
    """Return the fields that all norms have, with at least `least` on every axis but n."""
    return {
        "n": sizes["n"],
        "c": max(least, sizes["c"]),
        "input": tuple(max(least, size) for size in sizes["input"]),
        "eps": tape.choose(EPSILONS),
        "weight": not tape.chance(25),
        "bias": not tape.chance(25),
    }


def _batch_norm(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    drawn = _shared(tape, sizes, 0)
    if drawn["n"] * prod(drawn["input"]) < 2:  # the least that training takes
        drawn["n"], drawn["input"] = 2, tuple(max(1, size) for size in drawn["input"])
    return BatchNormProblem(**drawn, momentum=tape.choose(MOMENTA))


def _frozen(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    return FrozenNormProblem(**_shared(tape, sizes, 0))


def _group_norm(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    drawn = _shared(tape, sizes, 1)
    divisors = [g for g in range(1, drawn["c"] + 1) if drawn["c"] % g == 0]
    return GroupNormProblem(**drawn, groups=tape.choose(divisors))


def _layer_norm(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    return LayerNormProblem(**_shared(tape, sizes, 1))


def _moments(case: Case, given: dict[str, Any]) -> tuple[Any, Any]:
    """Return mean and rstd of x, in the type in which they are kept."""
    problem: NormProblem = case.call.problem  # type: ignore[assignment]
    wide = dtypes.numpy_dtype(dtypes.accumulator(case.call.dtype))
    with np.errstate(all="ignore"):
        mean, var = statistics(image(given["x"].astype(wide), problem), problem)
        rstd = reciprocal_root(plus_eps(var, problem))
    code = role_dtype("mean", case.call.dtype)
    mean, rstd = (dtypes.rounded(s, code).reshape(problem.shape("mean")) for s in (mean, rstd))
    return mean, rstd


def _variance(case: Case, given: dict[str, Any]) -> Any:
    return np.abs(values(case, "rvar"))


MADE: dict[str, Callable[[Case, dict[str, Any]], Any]] = {
    "mean": lambda case, given: _moments(case, given)[0],
    "rstd": lambda case, given: _moments(case, given)[1],
    "rvar": _variance,
}
FINISH = {
    "batch_norm": _batch_norm,
    "batch_norm_eval": _frozen,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
}
# Ones deviate by 0, and what is lost of subnormal numbers is magnified by rstd.
UNFIT = {
    **dict.fromkeys(FINISH, ("ones", "subnormal")),
    "batch_norm_eval": ("subnormal",),
}
