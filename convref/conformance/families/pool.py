"""Pools drawn from windows, and indices that a max pool would give."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...case import Case
from ...errors import ConvrefError
from ...ops import (
    AdaptiveMaxPoolProblem,
    AdaptivePoolProblem,
    AvgPoolProblem,
    LpPoolProblem,
    PoolProblem,
    Problem,
    UnpoolProblem,
)
from ...oracle.pool import maxima

NORMS = (2.0, 2.0, 1.0, 3.0, 4.0, 1.5, 2.5)
DIVISORS = (0, 0, 0, 0, 0, 1, 2, 3, 7, -2)


def _windows(
    family: type[PoolProblem], tape: Any, sizes: dict[str, Any], max_elements: int, **more: Any
) -> Problem:
    """Return a pool of the family; often as all libraries have it, else as it was drawn.

    Common are no dilation but in max pooling, and padding alike at both ends up to half a window.
    """
    common, ceil = not tape.chance(30), tape.chance(30)
    if common:
        tame = dict(sizes)
        if family is not PoolProblem:
            tame["dilation"] = (1,) * len(sizes["input"])
        edges = zip(sizes["padding"], _spans(tame))
        tame["padding"] = tuple((max(0, min(lo, span // 2)),) * 2 for (lo, _), span in edges)
        problem = _built(family, {**tame, **more}, ceil, max_elements)
        if problem is not None:
            return problem
    drawn = {**sizes, **more}
    return _built(family, drawn, ceil, max_elements) or family(**drawn)


def _built(
    family: type[PoolProblem], fields: dict[str, Any], ceil: bool, max_elements: int
) -> Problem | None:
    """Return the problem, or None where a window would be lost or the output too large."""
    try:
        problem = family(**fields, ceil=ceil)
    except ConvrefError:
        return None
    return problem if prod(problem.shape("y")) <= max_elements else None


def _max_pool(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    return _windows(PoolProblem, tape, sizes, max_elements)


def _avg_pool(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    more = {"include_pad": not tape.chance(40), "divisor": tape.choose(DIVISORS)}
    return _windows(AvgPoolProblem, tape, sizes, max_elements, **more)


def _lp_pool(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    if not tape.chance(40):
        sizes = {**sizes, "padding": ((0, 0),) * len(sizes["padding"])}
        sizes["input"] = tuple(map(max, sizes["input"], _spans(sizes)))
    return _windows(LpPoolProblem, tape, sizes, max_elements, norm=tape.choose(NORMS))


def _spans(sizes: dict[str, Any]) -> list[int]:
    return [d * (taps - 1) + 1 for d, taps in zip(sizes["dilation"], sizes["filter"])]


def _image(sizes: dict[str, Any]) -> dict[str, Any]:
    """Return what an op without windows takes, with at least one element per axis."""
    input = tuple(max(1, size) for size in sizes["input"])
    return {"n": sizes["n"], "c": sizes["c"], "input": input}


def _outputs(tape: Any, image: dict[str, Any], max_elements: int) -> tuple[int, ...]:
    """Return output sizes about the input's: one, fewer, one off, as many, twice as many."""
    sizes = image["input"]
    found = [
        tape.choose(
            (1, size, max(1, size // 2), size // 2 + 1, max(1, size - 1), size + 1, 2 * size)
        )
        for size in sizes
    ]
    while max(1, image["n"] * image["c"]) * prod(found) > max_elements and max(found) > 1:
        found[found.index(max(found))] //= 2
    return tuple(found)


def _adaptive_max(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    image = _image(sizes)
    return AdaptiveMaxPoolProblem(**image, output=_outputs(tape, image, max_elements))


def _adaptive_avg(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    image = _image(sizes)
    return AdaptivePoolProblem(**image, output=_outputs(tape, image, max_elements))


def _unpool(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    """Return an unpooling with room for every element: which of two stays is no common rule."""
    image = _image(sizes)
    output = tuple(size + tape.choose((0, 1, 2, 3)) for size in image["input"])
    if max(1, image["n"] * image["c"]) * prod(output) > max_elements:
        output = image["input"]
    return UnpoolProblem(**image, output=output)


def indices(case: Case, given: dict[str, Any]) -> Any:
    """Return the indices of a case: of the maxima of x, or for unpooling distinct positions."""
    problem = case.call.problem
    if not isinstance(problem, UnpoolProblem):
        with np.errstate(invalid="ignore"):  # NaN among numbers is what is meant
            return maxima(given["x"], problem)[1]
    room, shape = prod(problem.output), problem.shape("indices")
    words = np.random.Generator(np.random.Philox(key=case.seed)).random((*shape[:2], room))
    return words.argsort(axis=2)[..., : prod(shape[2:])].reshape(shape)


FINISH = {
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "lp_pool": _lp_pool,
    "adaptive_max_pool": _adaptive_max,
    "adaptive_avg_pool": _adaptive_avg,
    "max_unpool": _unpool,
}
UNFIT = {"lp_pool": ("subnormal",)}  # powers of subnormal numbers are zero
