"""Products of matrices against loops, dual numbers and PyTorch."""

import numpy as np
import pytest
from hypothesis import given

import convref
from convref.case import parse
from convref.conformance.strategies import cases
from convref.errors import ConvrefError
from convref.oracle import matmul as formulas

SMALL = {"max_elements": 60, "max_macs": 300, "max_rank": 1}
EXACT = {"fills": ["int", "ramp", "impulse"], **SMALL}


@given(cases(["matmul"], dtypes=["i64", "obj", "c128", "f64"], **EXACT))
def test_loops_bit_for_bit(checks, case):
    checks.loops(case)


@given(cases(["matmul"], ["jvp"], dtypes=["obj"], **EXACT))
def test_jvp_is_the_forward_pass_on_dual_numbers_and_adjoint_to_backward(checks, case):
    checks.dual_jvp(case)
    checks.adjoint_identity(case)


@given(cases(["matmul"], ["double_backward"], dtypes=["obj"], **EXACT))
def test_double_backward_is_the_gradient_of_backward(checks, case):
    checks.dual_double_backward(case)


def test_each_element_of_a_batch_has_its_own_matrix_or_all_have_one():
    x = np.array([[[1, 2]], [[3, 4]]])
    w = np.array([[[1, 10], [100, 1000]], [[5, 6], [7, 8]]])
    assert convref.matmul(x, w).tolist() == [[[201, 2010]], [[43, 50]]]
    assert convref.matmul(x, w[0]).tolist() == [[[201, 2010]], [[403, 4030]]]
    assert convref.matmul(x[0, 0], w[0]).tolist() == [201, 2010]
    _, dw = convref.matmul_backward(np.ones((2, 1, 2), int), x, w[0])
    assert dw.tolist() == [[4, 4], [6, 6]]
    assert not convref.matmul(np.ones((2, 3, 0)), np.ones((0, 4))).any()  # an empty sum


def test_any_batch_is_torchs():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(0)
    for lead in ((), (2,), (2, 1, 3), (0, 2)):
        for batch in {lead, ()}:
            x, w = rng.integers(-9, 9, (*lead, 4, 5)), rng.integers(-9, 9, (*batch, 5, 3))
            x, w = torch.tensor(x), torch.tensor(w)
            assert torch.equal(convref.matmul(x, w), x @ w)
            leaves = [t.double().requires_grad_() for t in (x, w)]
            y = torch.matmul(*leaves)
            found = convref.matmul_backward(y.detach(), x.double(), w.double())
            for got, want in zip(found, torch.autograd.grad(y, leaves, y.detach())):
                assert torch.equal(got, want)


def test_messages_name_the_required_batch():
    x = np.ones((2, 3, 4, 5))
    with pytest.raises(ConvrefError, match=r"weight has shape \(3, 5, 6\), needs \(2, 3\) before"):
        convref.matmul(x, np.ones((3, 5, 6)))
    with pytest.raises(ConvrefError, match=r"weight has W=4, needs 5"):
        convref.matmul(x, np.ones((2, 3, 4, 6)))
    with pytest.raises(ConvrefError, match="input has 0 axes, needs at least 1"):
        convref.matmul(np.ones(()), np.ones((1, 1)))


def test_a_wrong_gradient_fails(checks, monkeypatch):
    """One without the sum over the batch of a shared matrix."""
    monkeypatch.setattr(
        formulas, "matmul_wgrad", lambda dy, x, problem: (np.conj(x).swapaxes(-1, -2) @ dy)[-1]
    )

    with pytest.raises(AssertionError, match="dw"):
        checks.loops(parse("matmul.backward:n2c3k4_i5:shared=1:dt=i64"))
