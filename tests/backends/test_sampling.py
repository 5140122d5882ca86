"""Which positions of a resize a library may round to another element than the exact one."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest

from convref import Numerics, judge, oracle, parse, parse_problem
from convref.conformance.operands import operands
from convref.judge.ties import ties
from convref.ops.resize_axis import NEAREST, reads

F = np.float32
# Each as a library may write it, in float32 from the first operation on.
POSITIONS = {
    "half_pixel": (
        lambda p, size, out: (p + F(0.5)) * (size / out) - F(0.5),
        lambda p, size, out: (p + F(0.5)) * size / out - F(0.5),
        lambda p, size, out: (p + F(0.5)) / (out / size) - F(0.5),
    ),
    "align_corners": (
        lambda p, size, out: p * ((size - 1) / max(F(1), out - 1)),
        lambda p, size, out: p * (size - 1) / max(F(1), out - 1),
    ),
    "asymmetric": (
        lambda p, size, out: p * (size / out),
        lambda p, size, out: p / (out / size),
    ),
}


def moved(axis):
    """Return the outputs that some formula in float32 reads elsewhere, and by how many elements."""
    size, out = F(axis.size), F(axis.out)
    found = {}
    for position in POSITIONS[axis.coord]:
        for p, window in enumerate(reads(axis)):
            read = NEAREST[axis.near](*float(position(F(p), size, out)).as_integer_ratio())
            found |= {p: read - window[0][0]} if read != window[0][0] else {}
    return found


def test_positions_that_float32_rounds_elsewhere_are_in_doubt():
    rng = np.random.default_rng(0)
    seen = {near: [0, 0] for near in NEAREST}
    for _ in range(600):
        size, out = rng.integers(1, 90, 2)
        coord, near = rng.choice(list(POSITIONS)), rng.choice(list(NEAREST))
        line = f"resize:n1c1_i{size}_o{out}:mode=nearest:coord={coord}:near={near}"
        (axis,) = parse_problem(line).axes
        doubts = [dict(ties(axis, unit)) for unit in (2.0**-53, 2.0**-24, 2.0**-11)]
        assert doubts[0].items() <= doubts[1].items() <= doubts[2].items(), line  # the coarser
        assert moved(axis).items() <= doubts[1].items(), line
        doubtful = bool(doubts[1])
        seen[near][doubtful] += 1
    assert all(min(counts) > 20 for counts in seen.values()), seen


# Of 9 elements, each of 3 outputs is on a border in exact arithmetic.
LINES = (
    "resize.fprop:n2c2_i9_o3:mode=nearest:coord=asymmetric:near=floor",
    "resize.backward:n2c2_i9_o3:mode=nearest:coord=asymmetric:near=floor",
    "resize.jvp:n1c2_i9x9_o3x3:mode=nearest:coord=asymmetric:near=ceil:fill=normal",
    "resize.backward:n1c2_i6x9_o4x3:mode=nearest:coord=asymmetric:near=floor:fill=normal",
    "resize.double_backward:n1c1_i6_o9:mode=nearest:near=round_prefer_ceil",
)


def verdict(line, steps, unit=2.0**-24):
    """Return the verdict on results whose outputs on each axis read that many elements on."""
    case = parse(line)
    given, axes = operands(case), case.call.problem.axes
    other = copy(case.call)
    vars(other)["problem"] = copy(case.call.problem)
    vars(other.problem)["axes"] = tuple(
        axis._replace(moved=tuple((p, step) for p, step in steps(axis) if step)) for axis in axes
    )
    results = oracle.evaluate(other, *given)
    return judge(case.call, given, results, Numerics("rn32", positions=unit))


@pytest.mark.parametrize("line", LINES)
def test_either_element_at_a_tie_is_right(line):
    assert verdict(line, lambda axis: list(ties(axis))[::2])
    assert verdict(line, ties)
    assert not verdict(line, ties, unit=None) or not any(
        map(list, map(ties, parse(line).call.problem.axes))
    )


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_element_is_wrong(line):
    assert not verdict(line, lambda axis: [(p, -step) for p, step in ties(axis)])
    assert not verdict(line, lambda axis: [(axis.out - 1, -2)])


def test_no_position_is_near_a_border_if_outputs_are_a_power_of_two_apart():
    for line in (
        "resize:n1c1_i4_o8:mode=nearest:near=ceil",
        "resize:n1c1_i8_o2:mode=nearest:near=floor",
    ):
        assert not any(map(list, map(ties, parse_problem(line).axes)))
