"""Batch norm: its passes against the oracle, any memory, any number of threads."""

import pytest
from hypothesis import given

from convref import parse
from convref.conformance.examine import examine
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref_mojo import backend as module
from convref_mojo.backend import MojoBackend
from convref_mojo.passes import NATIVE

DTYPES = ("f32", "f64", "bf16")
OPS = ("batch_norm", "batch_norm_eval")
PASSES = tuple(NATIVE["batch_norm"])


@given(cases(ops=OPS, passes=PASSES, dtypes=DTYPES))
def test_any_case_is_right(case):
    for backend in (module.backend, module.into):
        found = examine(case, backend, repeat=True)
        right = "unsupported" if case.call.problem.parameters else "pass"
        assert found.verdict == right, f"{found.verdict}: {found.reason}\n{found.line}"


# Channels and lines around the vectors of either instruction set and the four of a unit.
LINES = tuple(
    f"{op}.{pass_}:n2c{c}_i{i}{mem}:fill=normal"
    for op in OPS
    for pass_ in PASSES
    for c, i, mem in (
        (35, "3x4", ":mem=nhwc"),
        (115, "3x4", ":mem=nhwc"),
        (3, "2x35", ""),
        (17, "2x3x9", ":mem=x.ncdwh"),
    )
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("line", LINES)
def test_sizes_around_block_boundaries(line, dtype):
    found = examine(parse(f"{line}:dt={dtype}"), module.backend, repeat=True)
    assert (found.verdict, found.reason) == ("pass", ""), found.line


@pytest.mark.parametrize("line", LINES)
def test_results_do_not_depend_on_the_number_of_threads(line):
    case, backend = parse(line), MojoBackend()
    given_, found = operands(case), set()
    for count in (1, 2, 5):
        with backend.threads(count):
            found.add(tuple(r.tobytes() for r in backend.run(case.call, *given_)))
    assert len(found) == 1


def test_operands_are_unchanged():
    case = parse("batch_norm.fprop:n2c5_i3x4")
    given_ = operands(case)
    before = [a.copy() for a in given_]
    module.backend.run(case.call, *given_)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(given_, before))


def test_unsupported_calls_have_a_reason():
    call = parse("batch_norm.double_backward:n2c2_i3").call
    assert module.backend.supports(call) == "no batch_norm.double_backward kernel"
    call = parse("layer_norm.fprop:n2c2_i3").call
    assert module.backend.supports(call) == "no layer_norm kernel"
