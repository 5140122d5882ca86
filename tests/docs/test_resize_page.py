"""docs/resize.md: its counts are right."""

from __future__ import annotations

import re
from pathlib import Path

from convref.ops import ResizeProblem
from convref.ops.resize_axis import COORDINATES, entries

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "resize.md").read_text("utf-8")


def test_every_coordinate_is_on_the_page():
    assert set(COORDINATES) <= set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))


def test_page_counts_the_sizes_that_round_across_a_border():
    text = re.sub(r"\s+", " ", PAGE)
    found = [
        sum(differs(i, o, coord) for i in range(1, 65) for o in range(1, 129))
        for coord in ("asymmetric", "half_pixel")
    ]
    assert f"of all 8,192 pairs of up to 64 inputs and 128 outputs, {found[0]} have such an" in text
    assert f"in mode `nearest` and {found[1]} in" in text


def differs(size, out, coord):
    """Return whether exact positions copy other elements, found without Fractions."""
    sizes = {"input": (size,), "output": (out,)}
    (axis,) = ResizeProblem(n=1, c=1, **sizes, mode="nearest", coord=coord).axes
    exact = {
        "asymmetric": [p * size // out for p in range(out)],
        "half_pixel": [min((2 * p + 1) * size // (2 * out), size - 1) for p in range(out)],
    }
    return entries(axis).position.tolist() != exact[coord]


def test_doubling_by_linear_weights_has_a_grain_of_4_on_each_axis():
    assert ResizeProblem(n=1, c=1, input=(5, 6), output=(10, 12)).grain == 16
