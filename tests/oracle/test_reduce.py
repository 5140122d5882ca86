"""Reductions and running sums against loops, dual numbers and NumPy."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import Phase, given, settings

import convref
from convref.conformance.strategies import cases
from convref.errors import ConvrefError
from convref.oracle import reduce as formulas

OPS = ("sum", "mean", "cumsum")
SMALL = {"fills": ["int", "ramp", "impulse"], "max_elements": 60}


@given(cases(OPS, dtypes=["i64", "obj", "c128"], **SMALL))
def test_loops_bit_for_bit(checks, case):
    checks.loops(case)


@given(cases(OPS, ["backward"], dtypes=["obj"], **SMALL))
def test_backward_is_the_adjoint(checks, case):
    """<dy, fprop(v)> = <dx, v>, with v a function of dx."""
    checks.linear_adjoint(case)


def test_a_reduction_is_over_the_axes_that_dim_names():
    x = np.arange(120.0).reshape(2, 3, 4, 5)
    for dim in chain.from_iterable(combinations(range(4), count) for count in range(1, 5)):
        for keep in (False, True) if dim != (0, 2) else ():
            assert np.array_equal(convref.sum(x, dim, keep), x.sum(dim, keepdims=keep))
    assert convref.sum(x).tolist() == x.sum()
    assert convref.mean(x, (-1, 0)).tolist() == x.mean((0, 3)).tolist()
    assert convref.sum(np.ones((3, 0)), 1).tolist() == [0, 0, 0]
    grad = convref.mean_backward(np.array([5.0, 10.0]), np.ones((2, 5)), 1)
    assert grad.tolist() == [[1] * 5, [2] * 5]


def test_a_running_sum_has_each_element_and_those_before():
    x = np.array([[1, 2, 3], [10, 20, 30]])
    assert convref.cumsum(x, 1).tolist() == [[1, 3, 6], [10, 30, 60]]
    assert convref.cumsum(x, 0).tolist() == [[1, 2, 3], [11, 22, 33]]
    assert convref.cumsum_backward(x, x, -1).tolist() == [[6, 5, 3], [60, 50, 30]]


def test_messages_name_the_axes():
    for dim, text in (
        (5, "dim is 5, needs -5 to 4"),
        ((1, -4), "needs each axis once"),
        ((1, 3), "needs neighbouring axes"),
        ("w", "dim is 'w', needs an integer"),
    ):
        with pytest.raises(ConvrefError, match=text):
            convref.sum(np.ones((2, 3, 4, 5, 2)), dim)
    with pytest.raises(ConvrefError, match="mean: input W is 0, needs at least 1"):
        convref.mean(np.ones((2, 0)), 1)


def exclusive(x, problem):
    return np.add.accumulate(x, axis=problem.dim) - x


def short(x, problem):
    kept = range(x.shape[problem.axes[0]] - 1)
    return x.take(kept, problem.axes[0]).sum(axis=problem.axes, keepdims=True)


@pytest.mark.parametrize(("name", "wrong"), [("cumsum_fprop", exclusive), ("sum_fprop", short)])
def test_a_wrong_sum_fails(checks, monkeypatch, name, wrong):
    op = name.partition("_")[0]
    monkeypatch.setattr(formulas, name, wrong)

    @settings(phases=[Phase.generate], report_multiple_bugs=False)
    @given(cases([op], ["fprop"], dtypes=["i64"], **SMALL))
    def check(case):
        checks.loops(case)

    with pytest.raises(AssertionError, match=op):
        check()
