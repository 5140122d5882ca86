"""A recording of a program's calls is enough to judge them, whatever the program does later."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import Phase, given, settings  # noqa: E402

from convref.arrays import to_torch  # noqa: E402
from convref.conformance.operands import operands  # noqa: E402
from convref.conformance.strategies import cases  # noqa: E402
from convref.integrations.torch import functional as F  # noqa: E402
from convref.integrations.torch._autograd import invoke  # noqa: E402
from convref.integrations.torch._kernels import PassConfig  # noqa: E402
from convref.integrations.torch._table import ROWS  # noqa: E402
from convref.integrations.torch.recording import Calls  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.*:DeprecationWarning")
OPS = sorted({op for op, _ in ROWS})


@settings(max_examples=60, phases=[Phase.generate])
@given(cases(OPS, None, dtypes=["f32", "f64"], max_elements=2_000, max_macs=20_000))
def test_every_pass_of_every_op_is_recorded_and_right(case):
    call = case.call
    row, problem = ROWS[call.op, call.pass_], call.problem
    tensors = [None if a is None else to_torch(a.copy()) for a in operands(case)]
    input = problem.input if row.needs_input else ()
    config = PassConfig(
        row, row.attributes_of({**vars(problem), "math": call.math}), call.mask, input, "numpy"
    )
    with Calls() as calls:
        invoke(config, *tensors)
    (seen,) = calls.seen
    assert (seen.call.op, seen.call.pass_, seen.backend) == (call.op, call.pass_, "numpy")
    assert seen.verdict()


def test_a_wrong_result_fails_and_recorded_tensors_are_copies():
    x, w = torch.randn(2, 3, 5, 5).requires_grad_(), torch.randn(4, 3, 3, 3).requires_grad_()
    with Calls() as calls:
        y = F.conv2d(x, w)
        y.sum().backward()
    with torch.no_grad():
        for tensor in (x, w, y):
            tensor.zero_()
    assert [one.call.pass_ for one in calls.seen] == ["fprop", "backward"]
    assert all(one.verdict() for one in calls.seen)
    fprop = calls.seen[0]
    assert fprop.verdict((fprop.results[0] + 1e-3,)).kind == "wrong"
    assert replace(fprop, results=(fprop.results[0] * 2,)).verdict().kind == "wrong"
