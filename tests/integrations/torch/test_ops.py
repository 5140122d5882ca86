"""Every custom op, on generated problems: against the oracle, and against PyTorch's own checks."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import Phase, given, settings

torch = pytest.importorskip("torch", reason="torch is not installed")

from convref.arrays import to_torch  # noqa: E402
from convref.conformance.operands import operands  # noqa: E402
from convref.conformance.strategies import cases  # noqa: E402
from convref.integrations.torch._autograd import invoke  # noqa: E402
from convref.integrations.torch._kernels import How, call_of, compute, empty  # noqa: E402
from convref.integrations.torch._table import ROWS  # noqa: E402

# torch scripts its own rules of forward mode
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.*:DeprecationWarning")

OPS = sorted({op for op, _ in ROWS})
DERIVED = [op for op in OPS if (op, "backward") in ROWS]
SMALL = {"max_elements": 24, "max_macs": 200, "empty": False}
EXAMPLES = max(3, settings.default.max_examples // 20)
BACKEND = "numpy"  # the oracle: what is tested is the way to it


def campaign(check, op, passes=("fprop",), only=bool, **more):
    """Run a check on generated cases of one op."""
    drawn = cases([op], passes, dtypes=["f64"], fills=["normal"], **{**SMALL, **more})

    @settings(max_examples=EXAMPLES, phases=[Phase.generate])
    @given(drawn.filter(only))
    def run(case):
        check(case)

    run()


def told(case, backend=BACKEND):
    """Return the case as the custom op has it: (How, tensors by role)."""
    call = case.call
    row = ROWS[call.op, call.pass_]
    tensors = tuple(None if a is None else to_torch(a.copy()) for a in operands(case))
    problem = call.problem
    input = problem.input if row.needs_input else ()
    return How(row, row.flat(problem, call.math), call.mask, input, backend), tensors


def is_finite(case):
    """Return whether results have differences: not the maximum of nothing, nor its mean."""
    how, tensors = told(case)
    return all(r is None or bool(r.isfinite().all()) for r in compute(how, tensors))


def differentiable(how, tensors):
    """Return the function of the operands that have a gradient, and these."""
    results = ROWS[how.row.op, "backward"].signature.results
    roles = how.row.signature.operands
    moved = [i for i, r in enumerate(roles) if f"d{r}" in results and tensors[i] is not None]

    def function(*values):
        given = list(tensors)
        for i, value in zip(moved, values):
            given[i] = value
        return invoke(how, *given)[0]

    return function, tuple(tensors[i].clone().requires_grad_() for i in moved)


def _shown(problem):
    """Return what operands show of a problem: of a bias only its gradient may be there."""
    return {f.name: getattr(problem, f.name) for f in fields(problem) if f.name != "bias"}


@pytest.mark.parametrize("op", OPS)
def test_an_op_is_the_call_of_its_case_and_knows_its_sizes(op):
    def check(case):
        how, tensors = told(case)
        found, wanted = call_of(how, tensors).problem, case.call.problem
        assert _shown(found) == _shown(wanted)
        with torch._subclasses.FakeTensorMode() as mode:
            fakes = [None if t is None else mode.from_tensor(t) for t in tensors]
            guessed = empty(how, tuple(fakes))
        for guess, result in zip(guessed, compute(how, tensors), strict=True):
            assert (guess is None) == (result is None)
            if result is not None:
                assert (guess.shape, guess.dtype, guess.stride()) == (
                    result.shape,
                    result.dtype,
                    result.stride(),
                )

    campaign(check, op, None, max_elements=2_000, max_macs=20_000, memory=True, empty=True)


@pytest.mark.parametrize("op", DERIVED)
def test_first_derivatives(op):
    def check(case):
        function, values = differentiable(*told(case))
        assert torch.autograd.gradcheck(
            function,
            values,
            check_forward_ad=True,
            check_batched_grad=True,
            check_batched_forward_grad=True,
        )

    campaign(check, op, only=is_finite)


@pytest.mark.parametrize("op", DERIVED)
def test_second_derivatives(op):
    def check(case):
        function, values = differentiable(*told(case))
        assert torch.autograd.gradgradcheck(
            function,
            values,
            check_fwd_over_rev=True,
            check_rev_over_rev=True,
        )

    campaign(check, op, only=is_finite)


@pytest.mark.parametrize("op", OPS)
def test_opcheck(op):
    def check(case):
        how, tensors = told(case)
        name = getattr(torch.ops.convref, how.row.name)
        torch.library.opcheck(name.default, (*tensors, *how.arguments))

    campaign(check, op, None, only=is_finite)
