"""Which positions of a resize a library may round to another element than the exact one."""

from __future__ import annotations

import numpy as np

from convref import parse_problem
from convref.backends import may_round_elsewhere
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
    """Return whether some order of operations in float32 copies another element."""
    size, out = F(axis.size), F(axis.out)
    return any(
        NEAREST[axis.near](*float(position(F(p), size, out)).as_integer_ratio()) != window[0][0]
        for position in POSITIONS[axis.coord]
        for p, window in enumerate(reads(axis))
    )


def test_positions_that_float32_rounds_elsewhere_are_in_doubt():
    rng = np.random.default_rng(0)
    seen = {near: [0, 0] for near in NEAREST}
    for _ in range(600):
        size, out = rng.integers(1, 90, 2)
        coord, near = rng.choice(list(POSITIONS)), rng.choice(list(NEAREST))
        line = f"resize:n1c1_i{size}_o{out}:mode=nearest:coord={coord}:near={near}"
        (axis,) = parse_problem(line).axes
        doubts = [may_round_elsewhere(axis, unit) for unit in (2.0**-53, 2.0**-24, 2.0**-11)]
        doubtful = may_round_elsewhere(axis)
        assert doubts == sorted(doubts), line  # the coarser, the more
        assert doubtful == doubts[1]
        assert doubtful or not moved(axis), line
        seen[near][doubtful] += 1
    assert all(min(counts) > 20 for counts in seen.values()), seen
