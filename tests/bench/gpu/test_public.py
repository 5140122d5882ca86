"""The estimate of time beside published times."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="triton is not installed")

from convref.case import parse
from convref_bench.gpu import public
from convref_triton.plan import cost

PAGE = Path(__file__).parents[3] / "docs" / "triton" / "speed.md"


@pytest.fixture(scope="module")
def rows():
    (path,) = public.FOLDER.glob("*.txt")
    return public.read(path)


def test_a_fit_recovers_its_own_estimates(rows):
    floor = float(public.FLOORS[12])
    made = [replace(row, us=us) for row, us in zip(rows, public.expected_us(rows, floor))]
    found_floor, found = public.held_out(made)
    assert found_floor == floor
    assert public.error(made, found) < 1 + np.finfo("f4").eps


def test_every_kernel_of_a_call_takes_the_floor_and_its_copies(rows):
    call = parse("conv.fprop:n2c3k5_i4x4_f1x1:dt=f16").call
    work = cost.Work("f16", 1, 1, 0.0, 0.0)
    assert public.with_copies(work, call, 1) == work
    x, w, y = (2.0 * 2 * size for size in (2 * 3 * 16, 3 * 5, 2 * 5 * 16))
    assert public.with_copies(work, call, 2) == work._replace(copies=1, copied=x)
    assert public.with_copies(work, call, 4) == work._replace(copies=3, copied=x + w + y)
    few, many = (public.expected_us(rows, floor) for floor in (1.0, 2.0))
    assert (many - few).round(6).tolist() == [
        row.work.launches + row.work.copies for row in rows
    ]  # microseconds


def test_a_network_is_estimated_by_the_others(rows):
    slow = [replace(r, us=3 * r.us) if r.network == "stages" else r for r in rows]
    before, after = public.held_out(rows)[1], public.held_out(slow)[1]
    same = [i for i, row in enumerate(rows) if row.network == "stages"]
    assert len(same) == 5
    assert (before[same] == after[same]).all()
    assert not (before == after).all()


def test_the_page_has_the_error_of_an_estimate(rows):
    *_, text = public.summary(rows).split("standard deviation: ")
    *_, page = PAGE.read_text("utf-8").partition("TileOPs")
    assert re.findall(r"of (\d\.\d+)", text) == re.findall(r"\*\*(\d\.\d+)\*\*", page)[:2]
