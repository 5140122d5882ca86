"""Every wrong norm, activation, resize and product is caught, shrinks, and is right elsewhere."""

from __future__ import annotations

from functools import cache
from itertools import islice

import pytest

from convref.case import parse
from convref.conformance.examine import HARMLESS, examine
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.shrink import shrink, weight
from convref.dispatch import load
from convref.ops import OPS
from convref_faults import FAMILIES

CHUNKS, SIZE, FAILURES = 3, 1000, 6
FAMILY = {fault.name: family for family, rows in FAMILIES.items() for fault in rows}
FAULTS = {fault.name: fault for rows in FAMILIES.values() for fault in rows}
# of 300 examples; fewer are vacuous
VACUOUS = {
    "norm": 40,
    "activation": 40,
    "resize": 10,
    "sample": 75,
    "matmul": 20,
    "attention": 30,
    "others": 40,
}


@cache
def chunk(family, number):
    seeded = {parse(fault.minimal).call.op for fault in FAMILIES[family]}
    ops = tuple(op for op in OPS if op in seeded)
    return chunk_cases(Axes(ops=ops, dtypes=("f32", "f64", "bf16"), size=SIZE), number)


def failures(fault):
    """Yield the cases in which the court finds the fault."""
    for number in range(CHUNKS):
        for case in chunk(FAMILY[fault.name], number):
            if fault.reaches(case.call):
                finding = examine(case, fault)
                assert finding.verdict != "rejects-valid", finding
                if finding.verdict not in HARMLESS:
                    yield case, finding.verdict


@pytest.mark.parametrize("name", FAULTS)
def test_is_caught_and_shrinks(name):
    fault = FAULTS[name]
    shrunk = []
    for case, verdict in islice(failures(fault), FAILURES):
        found = shrunk_case(fault, case, verdict)
        shrunk.append(str(found))
        if weight(found)[:-1] <= weight(parse(fault.minimal))[:-1]:  # whatever the seed
            return
    pytest.fail(f"{name}: of {CHUNKS * SIZE} examples, {shrunk}")


def shrunk_case(fault, case, verdict):
    def fails(cases):
        return [examine(c, fault).verdict == verdict for c in cases]

    return shrink(case, fails, batch=1).case


@pytest.mark.parametrize("name", FAULTS)
def test_minimal_line_fails_the_fault_and_passes_the_oracle(name):
    fault = FAULTS[name]
    case = parse(fault.minimal)
    assert str(case) == fault.minimal
    assert fault.reaches(case.call)
    assert examine(case, fault).verdict not in HARMLESS
    assert examine(case, load("numpy")).verdict == "pass"


@pytest.mark.parametrize("name", FAULTS)
def test_is_right_outside_its_region(name):
    fault = FAULTS[name]
    outside = (c for c in chunk(FAMILY[name], 0) if not fault.reaches(c.call))
    for case in islice(outside, 5):
        assert examine(case, fault).verdict == "pass", case


def test_each_loads_by_name():
    for name, fault in FAULTS.items():
        assert load(f"convref_faults:{name}") is fault
        assert fault.model
    assert len(FAULTS) >= 53


@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_passes_the_same_examples_and_few_say_nothing(family):
    verdicts = [examine(c, load("numpy"), mutate=True).verdict for c in chunk(family, 2)[:300]]
    assert set(verdicts) <= {"pass", "vacuous"}
    assert verdicts.count("vacuous") < VACUOUS[family]
