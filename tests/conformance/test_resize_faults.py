"""Every wrong resize is caught, shrinks to a small line, and is right outside its region."""

from __future__ import annotations

from functools import cache
from itertools import islice

import pytest

from convref.conformance.examine import HARMLESS, examine
from convref.conformance.faults.resize import ROWS
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.conformance.reject import trial, wrong_inputs
from convref.conformance.shrink import shrink, weight
from convref.dispatch import load
from convref.line import parse

CHUNKS, FAILURES, SHRUNK = 4, 8, 3
FAULTS = {fault.name: fault for fault in ROWS}


@cache
def chunk(number):
    return chunk_cases(Axes(ops=("resize",), dtypes=("f32", "f64", "bf16")), number)


def failures(fault):
    """Yield the cases that convict the fault."""
    for number in range(CHUNKS):
        for case in chunk(number):
            if fault.reaches(case.call):
                finding = examine(case, fault)
                assert finding.verdict != "rejects-valid", finding
                if finding.verdict not in HARMLESS:
                    yield case, finding.verdict


@pytest.mark.parametrize("name", FAULTS)
def test_is_caught_and_shrinks(name):
    fault = FAULTS[name]
    found = list(islice(failures(fault), FAILURES))
    assert found, f"{name} escapes {CHUNKS}000 examples"
    found.sort(key=lambda item: weight(item[0]))
    least = min(weight(shrunk(fault, *item)) for item in found[:SHRUNK])  # as a campaign does
    assert least <= weight(parse(fault.minimal))


def shrunk(fault, case, verdict):
    return shrink(case, lambda cases: [examine(c, fault).verdict == verdict for c in cases]).case


@pytest.mark.parametrize("name", FAULTS)
def test_minimal_line_convicts_the_fault_and_not_the_oracle(name):
    fault = FAULTS[name]
    case = parse(fault.minimal)
    assert str(case) == fault.minimal
    assert fault.reaches(case.call)
    assert examine(case, fault).verdict not in HARMLESS
    assert examine(case, load("numpy")).verdict == "pass"


@pytest.mark.parametrize("name", FAULTS)
def test_is_right_outside_its_region(name):
    fault = FAULTS[name]
    outside = (c for c in chunk(1) if not fault.reaches(c.call))
    for case in islice(outside, 5):
        assert examine(case, fault).verdict == "pass", case


def test_each_loads_by_name():
    for name, fault in FAULTS.items():
        assert load(f"convref.conformance.faults:{name}") is fault
    assert len(FAULTS) >= 8


def test_the_oracle_passes_the_same_examples():
    for case in chunk(0)[:300]:
        assert examine(case, load("numpy")).verdict == "pass", case


def test_few_examples_say_nothing():
    verdicts = [examine(c, load("numpy"), mutate=True).verdict for c in chunk(2)[:300]]
    assert set(verdicts) <= {"pass", "vacuous"}
    assert verdicts.count("vacuous") < 10


def test_a_cotangent_of_other_sizes_has_to_be_refused():
    case = parse("resize.backward:n2c2_i3x4_o5x6")
    given = operands(case)
    variants = wrong_inputs(case.call, given)
    assert {what for what, _ in variants} == {
        *(f"dy has {how} {axis}" for how in ("smaller", "larger") for axis in "nchw"),
        *("dy lacks an axis", "dy has an axis more", "dy is None"),
    }
    torch = pytest.importorskip("convref.backends.torch").backend.raw
    assert trial(case, torch) is None
