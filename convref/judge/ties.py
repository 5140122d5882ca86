"""Ties of nearest resizing: rounded positions may select either of two elements."""

import math
from collections.abc import Callable, Iterator
from copy import copy
from fractions import Fraction
from itertools import chain, combinations

from ..ops import ResizeAxis
from ..ops.resize_axis import NEAREST
from ..oracle import position_error
from .numerics import Numerics
from .references import Reference, reference
from .verdicts import Verdict

Tie = tuple[int, int, int]  # axis, output, steps from the exact element to the other one
# Where the nearest element changes, between elements 0 and 1; other rules turn over halfway.
_BORDERS = {"floor": Fraction(0), "ceil": Fraction(0)}
TRIALS = 400


def ties(axis: ResizeAxis, unit: float = 2.0**-24) -> Iterator[tuple[int, int]]:
    """Yield (output, step): position `output` rounded in this unit may read that many steps on.

    None does if the outputs are a power of two apart: then every formula is exact.

    >>> from convref import parse_problem
    >>> line = "resize:n1c1_i{}_o3:mode=nearest:coord=asymmetric:near=floor"
    >>> [list(ties(parse_problem(line.format(size)).axes[0])) for size in (3, 4, 9)]
    [[], [(0, -1)], [(0, -1), (1, -1), (2, -1)]]
    """
    if all(part & (part - 1) == 0 for part in map(abs, axis.step.as_integer_ratio())):
        return
    border = _BORDERS.get(axis.near, Fraction(1, 2))
    for p in range(axis.out):
        x = axis.position(p)
        turn = round(x - border)
        if abs(x - border - turn) <= position_error(axis, p, unit):
            low = turn - (axis.near == "floor")  # the elements are low and low + 1
            yield p, 2 * (low - NEAREST[axis.near](*x.as_integer_ratio())) + 1


def best_verdict(
    ref: Reference, numerics: Numerics, verdict: Verdict, judged: Callable[[Reference], Verdict]
) -> Verdict:
    """Return the verdict for the best choice of elements at the ties of a nearest resize.

    Each output along an axis reads one of two elements, the same for all images and channels. From
    the exact elements, and from the others of whole axes, ties are exchanged while that leaves
    fewer elements at fault. `judged` returns the verdict against a reference.
    """
    unit, problem = numerics.positions, ref.call.problem
    rounds = ref.call.op == "resize" and problem.mode == "nearest" and problem.near != "float32"
    if unit is None or not rounds:
        return verdict
    listed = [[(a, *tie) for tie in ties(axis, unit)] for a, axis in enumerate(problem.axes)]
    listed, left = list(filter(None, listed)), [TRIALS]
    for size in range(len(listed) + 1):
        for axes in combinations(listed, size):  # whole axes first: their elements are products
            moved = frozenset(chain(*axes))
            first = judged(_with_ties_moved(ref, moved)) if moved else verdict
            if best := _improved(
                lambda m: judged(_with_ties_moved(ref, m)), first, moved, listed, left
            ):
                return best
    return verdict


def _improved(
    judged: Callable[[frozenset[Tie]], Verdict],
    verdict: Verdict,
    moved: frozenset[Tie],
    listed: list[list[Tie]],
    left: list[int],
) -> Verdict:
    """Return the verdict after exchanging blocks of ties, and their halves, while that helps."""
    faults = math.inf
    while not verdict and verdict.faults < faults and left[0] > 0:
        faults, blocks = verdict.faults, list(listed)
        while blocks and left[0] > 0 and not verdict:
            block, left[0] = blocks.pop(0), left[0] - 1
            trial = judged(moved ^ frozenset(block))
            if trial or trial.faults < verdict.faults:
                verdict, moved = trial, moved ^ frozenset(block)
            elif len(block) > 1:
                blocks += [block[: len(block) // 2], block[len(block) // 2 :]]
    return verdict


def _with_ties_moved(ref: Reference, moved: frozenset[Tie]) -> Reference:
    """Return the reference in which some ties read the other element."""
    call, problem = copy(ref.call), copy(ref.call.problem)
    axes = (
        axis._replace(moved=tuple(sorted((p, step) for a, p, step in moved if a == number)))
        for number, axis in enumerate(problem.axes)
    )
    vars(problem)["axes"] = tuple(axes)
    vars(call)["problem"] = problem
    return reference(call, ref.operands)
