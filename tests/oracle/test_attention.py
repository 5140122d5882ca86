"""Attention against its loops, dual numbers and hand-computed weights."""

import numpy as np
import pytest
from hypothesis import given

import convref
from convref import oracle
from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.errors import ConvrefError
from convref.judge import Numerics, bound
from convref.oracle import attention as formulas
from convref.oracle import loops

SMALL = {"max_elements": 24, "max_macs": 100}
EXACT = {"dtypes": ["obj"], "fills": ["int", "ties"], **SMALL}


@given(cases(["sdpa"], **EXACT))
def test_loops_exactly_but_for_exp(checks, case):
    checks.loops(case)


@given(cases(["sdpa"], ["jvp"], **EXACT))
def test_jvp_is_the_forward_pass_on_dual_numbers_and_adjoint_to_backward(checks, derivatives, case):
    checks.dual_jvp(case)
    checks.adjoint_identity(case)


@given(cases(["sdpa"], ["double_backward"], **EXACT))
def test_double_backward_is_the_gradient_of_backward(checks, derivatives, case):
    checks.dual_double_backward(case)


@given(cases(["sdpa"], dtypes=["f64"], fills=["normal", "wide"], **SMALL))
def test_loops_within_the_bounds_of_both(case):
    call, given = case.call, operands(case)
    got, sums = oracle.evaluate(call, *given), oracle.magnitudes(call, *given)
    want = loops.FORMULAS["sdpa", call.pass_](call, *given)
    for role, one, other, s in zip(call.signature.results, got, want, sums, strict=True):
        if one is not None:
            fine = np.abs(one - other) <= bound(call, role, other, s, Numerics("rn64"))
            assert np.all(fine | ~np.isfinite(s)), f"{case} {role}"


def test_equal_scores_give_the_mean_of_the_values_that_are_not_masked():
    x, key = np.zeros((1, 2, 3, 4)), np.zeros((1, 1, 3, 4))
    value = np.array([[[[3.0], [6.0], [12.0]]]])
    assert convref.sdpa(x, key, value).ravel().tolist() == [7] * 6
    assert convref.sdpa(x, key, value, causal=True).ravel().tolist() == [3, 4.5, 7] * 2
    out = np.array([0.0, -np.inf, 0.0]) + np.zeros((3, 3))
    assert convref.sdpa(x, key, value, out).ravel().tolist() == [7.5] * 6
    dv = convref.sdpa_backward(np.ones((1, 2, 3, 1)), x, key, value, out)[2]
    assert dv.ravel().tolist() == [3, 0, 3]
    nothing = np.full((3, 3), -np.inf)
    assert convref.sdpa(x, key, value, nothing).ravel().tolist() == [0] * 6


def test_a_head_of_keys_serves_neighbouring_heads_of_queries():
    x, key = np.zeros((1, 4, 1, 1)), np.zeros((1, 2, 1, 1))
    value = np.array([[[[1.0]], [[2.0]]]])
    assert convref.sdpa(x, key, value).ravel().tolist() == [1, 1, 2, 2]
    with pytest.raises(ConvrefError, match="input has C=3, needs a multiple of key's H=2"):
        convref.sdpa(x[:, :3], key, value)
    with pytest.raises(ConvrefError, match="key has 2 axes, needs 4"):
        convref.sdpa(x, key[0, 0], value)


@pytest.mark.parametrize("pass_", ["fprop", "backward"])
def test_wrong_weights_fail(checks, monkeypatch, pass_):
    """A causal mask that lets each query see one key more."""
    right = formulas.weights

    def wrong(a, problem):
        one_more = np.concatenate([np.zeros_like(a[..., :1]), a[..., :-1]], -1)
        return right(one_more if problem.causal else a, problem)

    monkeypatch.setattr(formulas, "weights", wrong)

    with pytest.raises(AssertionError, match="sdpa"):
        checks.loops(parse(f"sdpa.{pass_}:n1c1_i2x3_o3x2:causal=1:dt=obj"))
