"""Activations drawn from windows, and classes for a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...case import Case
from ...ops import (
    ActivationProblem,
    CrossEntropyProblem,
    GeluProblem,
    LeakyReluProblem,
    Problem,
    ReluProblem,
    SoftmaxProblem,
)
from ...ops.activation import REDUCTIONS

SLOPES = (0.01, 0.01, 0.2, 0.0, 1.5, -0.1)
SMOOTHINGS = (0.0, 0.0, 0.1, 0.5, 1.0)
IGNORED_EVERY = 5  # one target in so many is ignored


def _image(sizes: dict[str, Any]) -> dict[str, Any]:
    return {"n": sizes["n"], "c": sizes["c"], "input": sizes["input"]}


def _plain(family: type[Problem]) -> Callable[..., Problem]:
    def build(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
        return family(**_image(sizes))

    return build


def _leaky(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    return LeakyReluProblem(**_image(sizes), slope=tape.choose(SLOPES))


def _gelu(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    return GeluProblem(**_image(sizes), approximate=tape.choose(("none", "tanh")))


def _softmax(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    axes = len(sizes["input"]) + 2
    dim = tape.choose((1, 1, axes - 1, *range(axes)))
    return SoftmaxProblem(**_image(sizes), dim=dim)


def _cross_entropy(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    image = {**_image(sizes), "c": max(1, sizes["c"])}
    return CrossEntropyProblem(
        **image,
        weight=tape.chance(40),
        ignore_index=tape.choose((-100, -100, 0, -1, image["c"] - 1)),
        label_smoothing=tape.choose(SMOOTHINGS),
        reduction=tape.choose(REDUCTIONS),
    )


def _target(case: Case, given: dict[str, Any]) -> Any:
    """Return classes, some of them the one that is ignored, but not the first of all."""
    problem = case.call.problem
    shape = problem.shape("target")
    generator = np.random.Generator(np.random.Philox(key=case.seed))
    target = generator.integers(0, problem.c, shape)
    ignored = generator.integers(0, IGNORED_EVERY, shape) == 0
    target = np.where(ignored, problem.ignore_index, target)
    if target.size and problem.c > 1:  # a mean over no target at all is no number
        target.flat[0] = (problem.ignore_index + 1) % problem.c
    return target


MADE: dict[str, Callable[[Case, dict[str, Any]], Any]] = {"target": _target}
_SMOOTH = ("silu", "hardswish", "sigmoid", "tanh")
UNFIT = {"cross_entropy": ("subnormal",)}  # sums of such weights divide
FINISH = {
    "relu": _plain(ReluProblem),
    "leaky_relu": _leaky,
    "gelu": _gelu,
    **dict.fromkeys(_SMOOTH, _plain(ActivationProblem)),
    "softmax": _softmax,
    "log_softmax": _softmax,
    "cross_entropy": _cross_entropy,
}
