"""The laws hold for correct backends, and each of them finds a seeded fault."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import Phase, given, settings

from convref.backends.numpy import NumpyBackend
from convref.case import parse
from convref.conformance import campaign
from convref.conformance.causes import run_line
from convref.conformance.generate import Axes
from convref.conformance.laws import LAWS, examine_laws
from convref.conformance.strategies import cases
from convref.conformance.workers.engine import Engine
from convref.dispatch import load
from convref.errors import ProtocolError
from convref.knownbugs import regions_of
from convref_faults import CONV as FAULTS


@cache
def small(count, dtypes=("f32", "f64"), largest=300):
    """Return small cases, always the same."""
    drawn = []
    limits = {"max_elements": largest, "max_macs": 2 * largest}

    @settings(max_examples=count, phases=[Phase.generate], derandomize=True)
    @given(cases(dtypes=dtypes, **limits))
    def collect(case):
        drawn.append(case)

    collect()
    return drawn


def findings(backend, cases, laws=tuple(LAWS), known=()):
    """Return how often each law held or did not apply, and the findings of those that failed."""
    seen, failed = {"pass": Counter(), "unsupported": Counter()}, []

    def excluded(case):
        facts = backend.fingerprint()
        return next((bug.id for bug in known if bug.contains(case, facts)), None)

    for case in cases:
        for law in laws:
            found = examine_laws(case, backend, excluded, (law,))
            if found.verdict in seen:
                seen[found.verdict][law] += 1
            else:
                failed.append(found)
    return seen["pass"], seen["unsupported"], failed


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("name", "count"), [("numpy", 120), ("convref.backends.torch:without_onednn", 120)]
)
def test_correct_backends_satisfy_the_laws(law, name, count):
    if "torch" in name:
        pytest.importorskip("torch", reason="torch is not installed")
    held, _, failed = findings(load(name), small(count), [law], regions_of(name))
    assert failed == []
    assert held[law] >= 5


def test_most_problems_have_a_transposed_twin():
    held, unsupported, _ = findings(load("numpy"), small(120), ["transposed"])
    assert held.total() > 3 * unsupported.total()


@pytest.mark.parametrize("law", LAWS)
def test_nested_loops_satisfy_the_laws(law):
    held, _, failed = findings(load("loops"), small(90, largest=40), [law])
    assert failed == []
    assert held[law] >= 3


@pytest.mark.parametrize("dtypes", [("f16", "bf16"), ("c64", "c128"), ("i32", "i8"), ("obj",)])
def test_every_dtype_satisfies_the_laws(dtypes):
    held, _, failed = findings(load("numpy"), small(80, dtypes, 80))
    assert failed == []
    assert all(held[law] >= 2 for law in LAWS)


# A fault that each law finds, and the text that says so.
FOUND = [
    ("adjoint", "six_channels", "<dgrad, x> and <dy, y>"),
    ("adjoint", "filter_gradient_shuffled", "<wgrad, w> and <dy, y>"),
    ("adjoint", "bias_gradient_axes", "<bgrad, b> and <dy, b>"),
    ("linear", "last_row_unwritten", "fprop(x + x2, w) and its terms"),
    ("groups", "grouped_outputs", "y"),
    ("groups", "six_channels", "y"),
    ("transposed", "transposed_dilation_with_stride", "dgrad and the transposed fprop"),
    ("transposed", "high_padding_for_low", "dgrad and the transposed fprop"),
    ("dilation", "dilation_with_stride", "y"),
    ("memory", "filter_order_ignored", "y of plain and other memory"),
    ("memory", "channels_last_filter_in_dgrad", "dx of plain and other memory"),
    ("batch", "third_image", "y"),
    ("batch", "filter_gradient_of_one_image", "dw"),
    ("jvp", "tangent_dropped", "y_dot and its terms"),
    ("jvp", "bias_twice", "y of jvp and fprop"),
    ("double_backward", "double_backward_term", "ddy and the JVP"),
    ("double_backward", "second_derivative_padding", "dw and wgrad(dy, ddx)"),
]


@pytest.mark.parametrize(("law", "name", "text"), FOUND)
def test_the_law_finds_the_fault(law, name, text):
    reasons = (examine_laws(case, FAULTS[name], laws=(law,)) for case in small(1_200))
    failed = (found for found in reasons if found.reason.startswith(f"{law} law: {text}: "))
    first = next(failed, None)
    assert first is not None
    again = parse(first.line)
    assert (first.verdict, first.tier, first.role) == ("wrong", "law", law)
    assert examine_laws(again, FAULTS[name], laws=(law,)) == first
    assert examine_laws(again, load("numpy"), laws=(law,)).verdict == "pass"


def test_every_law_finds_something():
    assert {law for law, _, _ in FOUND} == set(LAWS)


@pytest.mark.parametrize(
    ("law", "line", "text"),
    [
        ("groups", "conv.fprop:n1c1k1_i1_f1", "there is one group"),
        ("batch", "conv.fprop:n1c1k1_i1_f1", "there is one image"),
        ("dilation", "conv.fprop:n1c1k1_i1_f1_d2", "the filter is dense"),
        ("transposed", "conv.fprop:n1c1k1_i0_f1_p1", "no transposed problem"),
        ("adjoint", "conv.fprop:n1c64k1_i1_f1:dt=bf16", "may be inexact in bf16"),
        ("adjoint", "conv.fprop:n1c16k1_i1_f1:dt=i8", "may wrap in i8"),
    ],
)
def test_a_law_that_does_not_apply_says_so(law, line, text):
    found = examine_laws(parse(line), load("numpy"), laws=(law,))
    assert found.verdict == "unsupported"
    assert text in found.reason


def test_a_backend_that_refuses_or_raises():
    class Refuses(NumpyBackend):
        def supports(self, call):
            return "not today"

    class Raises(NumpyBackend):
        def run(self, call, *operands):
            raise RuntimeError("no luck")

    case = parse("conv.fprop:n2c2k2g2_i3_f2_d2")
    found = examine_laws(case, Refuses())
    assert (found.verdict, "not today" in found.reason) == ("unsupported", True)
    for law in LAWS:
        found = examine_laws(case, Raises(), laws=(law,))
        assert (found.verdict, found.role) == ("rejects-valid", law)
        assert found.reason == f"{law} law: RuntimeError: no luck"


def test_a_backend_that_gives_no_reason_is_no_backend():
    class Yes(NumpyBackend):
        def supports(self, call):
            return True

    with pytest.raises(ProtocolError, match="supports returned True, needs None for yes"):
        examine_laws(next(iter(small(1))), Yes())


def test_a_known_bug_is_left_out():
    case = parse("conv.fprop:n2c1k1_i4_f1")
    found = examine_laws(case, load("numpy"), lambda case: "bug", ("batch",))
    assert (found.verdict, "bug" in found.reason) == ("unsupported", True)


def test_a_campaign_of_laws_finds_a_fault_and_its_command_repeats_it():
    name = "convref_faults:third_image"
    axes = Axes(ops=("conv",), passes=("fprop",), dtypes=("f32",), size=16, laws=True)
    outcome = campaign.run(campaign.Settings(name, axes, examples=16))
    assert not outcome.good
    failure = outcome.failures[0]
    assert failure.reason.partition(" law: ")[0] in LAWS
    assert failure.command == f"convref run '{failure.line}' --backend {name} --laws"
    with Engine(name) as engine:
        found = run_line(engine, failure.line, laws=True)
        assert (found.verdict, found.reason) == ("wrong", failure.reason)
    with Engine("numpy") as engine:
        assert run_line(engine, failure.line, laws=True).verdict == "pass"
        assert run_line(engine, "conv.fprop:n1c1k1_i1_f1:dt=i8", True).verdict == "pass"
