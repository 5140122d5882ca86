"""Local response norm and normalize against their loops, their adjoints, torch and ONNX."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings

import convref
from convref import oracle
from convref.case import parse
from convref.conformance.examine import examine
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.dispatch import load
from convref.ops import passes
from convref.oracle import evaluate, scaling

OPS = ("normalize", "local_response_norm")
SMALL = {"max_elements": 30, "max_macs": 300}
EXACT = ("int", "ties", "ramp")


def campaign(check, op, pass_, phases=tuple(Phase)):
    @settings(max_examples=settings.default.max_examples // 2, phases=phases)
    @given(cases([op], [pass_], dtypes=["obj"], fills=EXACT, **SMALL))
    def run(case):
        check(case)

    run()


@pytest.mark.parametrize("pass_", list(passes("normalize")))
@pytest.mark.parametrize("op", OPS)
def test_loops_exactly_but_for_the_power(checks, op, pass_):
    campaign(checks.loops, op, pass_)


def inner(a, b):
    return sum((x * y for x, y in zip(a.ravel().tolist(), b.ravel().tolist())), 0)


@pytest.mark.parametrize("op", OPS)
def test_adjoint_identity(op):
    """<dy, y_dot> = <dx, x_dot> in Fractions, of windows that are not symmetric too."""

    def check(case):
        x, x_dot = operands(case)
        y, y_dot = evaluate(case.call, x, x_dot)
        dy = y - 2 * x_dot + 1
        back = replace(case.call, pass_="backward", specs=())
        back = replace(back, specs=(replace(back.specs[0], dtype="obj"),))
        (dx,) = evaluate(back, dy, x)
        assert inner(dy, y_dot) == inner(dx, x_dot), str(case)

    campaign(check, op, "jvp")


def test_channels_are_divided_by_their_neighbours():
    """With alpha = size and k = 0 of exponent 1, channel c is over the sum of squares around it."""
    x = np.array([[1.0, 2.0, 4.0, 8.0]])
    found = convref.local_response_norm(x, 2, alpha=2.0, beta=1.0, k=0.0)
    assert found.tolist() == [[1 / 1, 2 / 5, 4 / 20, 8 / 80]]
    found = convref.local_response_norm(x, 3, alpha=3.0, beta=1.0, k=0.0)
    assert found.tolist() == [[1 / 5, 2 / 21, 4 / 84, 8 / 80]]


def test_vectors_have_norm_1_or_are_divided_by_eps():
    x = np.array([[3.0, -4.0], [0.0, 0.25]])
    assert convref.normalize(2.5 * x).tolist() == [[3 / 5, -4 / 5], [0, 1]]
    assert convref.normalize(x, 1.0, dim=0).tolist() == [[1, -4 / 4.25], [0, 0.25 / 4.25]]
    assert convref.normalize(x, eps=8.0).tolist() == [[3 / 8, -4 / 8], [0, 1 / 32]]


@pytest.mark.parametrize("op", OPS)
def test_every_pass_is_torchs(op):
    """Its derivatives by autograd, in four types, within the bounds."""
    pytest.importorskip("torch", reason="torch is not installed")
    backend, seen = load("torch"), set()
    for case in chunk_cases(Axes(5, (op,), fills=("int", "normal", "ties"), size=160), 0):
        if backend.supports(case.call) is None:
            found = examine(case, backend)
            assert found.verdict in ("pass", "vacuous"), f"{case}: {found.reason}"
            seen.add((case.call.pass_, case.call.dtype))
    assert len(seen) >= 14, seen


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_onnx_has_the_longer_side_of_an_even_window_after_the_channel(size):
    """Odd windows are the same; even ones are those of the channels in reverse order."""
    reference = pytest.importorskip("onnx.reference.ops.op_lrn", reason="onnx is not installed")
    x = np.arange(1.0, 51).reshape(5, 5, 2) ** 2  # as many images: it loops over these for channels
    given = {"alpha": 0.5, "beta": 1.0, "bias": 2.0, "size": size}
    (want,) = reference.LRN._run(None, x[..., None], **given)
    turn = slice(None, None, 1 if size % 2 else -1)
    got = convref.local_response_norm(x[:, turn], size, 0.5, 1.0, 2.0)[:, turn]
    np.testing.assert_array_max_ulp(got, want[..., 0], 4)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("pass_", ["fprop", "backward", "double_backward"])
def test_a_wrong_sum_fails(checks, monkeypatch, op, pass_):
    """One without its first neighbour, where a formula adds up any."""
    right = scaling.sums

    def wrong(v, problem, adjoint=False):
        return right(v, problem, adjoint) - v[..., :1]

    monkeypatch.setattr(scaling, "sums", wrong)
    with pytest.raises(AssertionError, match=op):
        campaign(checks.loops, op, pass_, phases=(Phase.generate,))


def test_a_bound_beside_eps_is_infinite_in_derivatives_alone():
    call = parse("normalize.backward:n1c2_i1:eps=5:dt=f64").call
    dy, x = np.ones((1, 2, 1)), np.array([[[3.0], [4.0]]])
    assert not np.isfinite(oracle.magnitudes(call, dy, x)[0]).any()
    assert np.isfinite(oracle.magnitudes(call, dy, x + 1)[0]).all()
    forward = replace(call, pass_="fprop", specs=call.specs[:1])
    assert np.isfinite(oracle.magnitudes(forward, x)[0]).all()


@pytest.mark.parametrize("backend", ["numpy", "loops"])
def test_below_eps_an_element_does_not_move_the_others(backend):
    """The divisor is a constant there: a NaN in a direction stays where it is."""
    x, v, given = np.array([[1.0, 2.0]]), np.array([[np.nan, 4.0]]), {"eps": 8.0}
    _, y_dot = convref.normalize_jvp((x,), (v,), **given, backend=backend)
    dx = convref.normalize_backward(v, x, **given, backend=backend)
    ddy, second = convref.normalize_double_backward(v, x, x, **given, backend=backend)
    assert y_dot[0, 1] == dx[0, 1] == ddy[0, 1] == 0.5
    assert np.isnan([y_dot[0, 0], dx[0, 0], ddy[0, 0]]).all()
    assert not second.any()


def test_a_window_beyond_all_channels_costs_no_more():
    x = np.arange(6.0).reshape(1, 3, 2)
    wide = convref.local_response_norm(x, 10**12, alpha=10.0**12)
    assert np.array_equal(wide, convref.local_response_norm(x, 7, alpha=7.0))
