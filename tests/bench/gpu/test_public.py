"""The estimate of time beside published times."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="triton is not installed")

from convref_bench.gpu import public

PAGE = Path(__file__).parents[3] / "docs" / "performance.md"


@pytest.fixture(scope="module")
def rows():
    (path,) = public.FOLDER.glob("*.txt")
    return public.read(path)


def test_a_fit_recovers_its_own_estimates(rows):
    grid = public.Grid(rows)
    at = 4, 10, 5
    made = [replace(row, us=us) for row, us in zip(rows, grid.estimates[at])]
    fit, found = public.held_out(made)
    assert fit == grid.fit(at)
    assert public.error(made, found) < 1 + np.finfo("f4").eps


def test_a_network_is_estimated_by_the_others(rows):
    slow = [replace(r, us=3 * r.us) if r.network == "stages" else r for r in rows]
    before, after = public.held_out(rows)[1], public.held_out(slow)[1]
    same = [i for i, row in enumerate(rows) if row.network == "stages"]
    assert len(same) == 5
    assert (before[same] == after[same]).all()
    assert not (before == after).all()


def test_the_page_has_the_error_of_an_estimate(rows):
    *_, text = public.summary(rows).split("standard deviation: ")
    page = PAGE.read_text("utf-8")
    for factor in (word.strip(",") for word in text.split() if word[0].isdigit()):
        assert factor in page
