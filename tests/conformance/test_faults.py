"""Every seeded fault is caught, shrinks to a small line, and is right outside its region."""

from __future__ import annotations

from functools import cache
from itertools import islice

import numpy as np
import pytest

from convref.arrays import to_numpy
from convref.case import parse
from convref.conformance import campaign
from convref.conformance.examine import HARMLESS, examine
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.mutations import GENERAL, OF_WINDOWS, mutations, oracle_results, reshaped
from convref.conformance.operands import operands
from convref.conformance.shrink import shrink, weight
from convref.dispatch import load
from convref.errors import ConvrefError
from convref.ops import ConvProblem
from convref_faults import CONV as FAULTS

CHUNKS, SIZE = 20, 300
FAILURES = 8  # that are shrunk until one is as small as the fault's line
REPEAT_EVERY = 16


@cache
def chunk(dtypes, number):
    return chunk_cases(Axes(dtypes=dtypes, size=SIZE), number)


def stream(fault):
    """Yield (number, case) of a campaign's examples that the fault touches; others are right."""
    for number in range(CHUNKS):
        for i, case in enumerate(chunk(fault.dtypes, number)):
            if fault.reaches(case.call):
                yield number * SIZE + i, case


def failures(fault):
    """Yield (case, verdict) of the examples in which the court finds the fault."""
    for number, case in stream(fault):
        finding = examine(case, fault, repeat=number % REPEAT_EVERY == 0)
        assert finding.verdict != "rejects-valid", finding  # a fault computes, it does not fail
        if finding.verdict not in HARMLESS:
            yield case, finding.verdict


@pytest.mark.parametrize("name", FAULTS)
def test_is_caught_and_shrinks(name):
    fault = FAULTS[name]
    shrunk = []
    for case, verdict in islice(failures(fault), FAILURES):
        found = shrunk_case(fault, case, verdict)
        shrunk.append(str(found))
        if weight(found) <= weight(parse(fault.minimal)):
            return
    pytest.fail(f"{name}: of {CHUNKS * SIZE} examples, {shrunk}")


def shrunk_case(fault, case, verdict):
    def fails(cases):
        return [examine(c, fault, repeat=True).verdict == verdict for c in cases]

    return shrink(case, fails, batch=1).case


@pytest.mark.parametrize("name", FAULTS)
def test_minimal_line_fails_the_fault_and_passes_the_oracle(name):
    fault = FAULTS[name]
    case = parse(fault.minimal)
    assert str(case) == fault.minimal
    assert fault.reaches(case.call)
    assert examine(case, fault, repeat=True).verdict not in HARMLESS
    assert examine(case, load("numpy"), repeat=True).verdict == "pass"


def test_the_oracle_passes_the_same_examples():
    examples = [
        *chunk((), 0),
        *chunk((), 1),
        *chunk(("c64", "c128"), 0)[:150],
        *chunk(("i8",), 0)[:150],
    ]
    verdicts = {str(c): examine(c, load("numpy"), repeat=True).verdict for c in examples}
    assert {line: v for line, v in verdicts.items() if v != "pass"} == {}


@pytest.mark.parametrize("name", FAULTS)
def test_is_right_outside_its_region(name):
    fault = FAULTS[name]
    outside = (c for c in chunk(fault.dtypes, 0) if not fault.reaches(c.call))
    for case in islice(outside, 3):
        assert examine(case, fault, repeat=True).verdict == "pass", case


def test_each_loads_by_name_and_names_its_model():
    for name, fault in FAULTS.items():
        assert load(f"convref_faults:{name}") is fault
        assert fault.fingerprint()["fault"] == name
        assert fault.model
    assert len(FAULTS) >= 40
    with pytest.raises(ConvrefError, match="no attribute 'no_such_fault'"):
        load("convref_faults:no_such_fault")


def mutated(ops):
    windows = [*chunk((), 0)[:200], *chunk_cases(Axes(ops=("unfold", "fold"), size=100), 0)]
    return windows if ops == "windows" else chunk_cases(Axes(ops=("relu", "max_pool"), size=100), 0)


@pytest.mark.parametrize(
    ("ops", "name"), [*(("windows", name) for name in OF_WINDOWS), *(("any", n) for n in GENERAL)]
)
def test_each_mutation_changes_results_where_it_applies(ops, name):
    applies, wrong = (OF_WINDOWS | GENERAL)[name]
    cases = mutated(ops)
    touched = [case for case in cases if case.fill == "int" and applies(case.call)]
    changed = 0
    for case in touched:
        given = operands(case)
        with np.errstate(all="ignore"):
            pairs = zip(oracle_results(case.call, given), wrong(case.call, given))
        for good, bad in pairs:
            assert (good is None) == (bad is None)
            assert good is None or good.shape == bad.shape
            changed += good is not None and not np.array_equal(to_numpy(good), to_numpy(bad))
    assert changed > 0.2 * len(touched) > 0


def test_mutations_leave_the_operands_alone():
    case = parse("conv.backward:n2c2k2_i4_f2_p1,0")
    given = operands(case)
    before = [array.copy() for array in given]
    for wrong in mutations(case.call):
        wrong(case.call, given)
    assert all(map(np.array_equal, before, given))


@pytest.mark.parametrize(
    "line",
    [
        "conv.fprop:n1c1k1_i3_f1_p-1:bias=0:fill=impulse:seed=5",  # the impulse is cropped away
        "conv.wgrad:n0c2k2_i3_f1",
        "conv.backward:n0c2k3_i7_f2",
        "conv.double_backward:n1c2k2_i3_f1:tan=0",
        "unfold.fprop:n1c1_i1_f1_s2_p0,1:fill=negzero",
    ],
)
def test_zero_results_are_vacuous(line):
    case = parse(line)
    assert examine(case, load("numpy")).verdict == "pass"
    assert examine(case, load("numpy"), mutate=True).verdict == "vacuous"


@pytest.mark.parametrize(
    "line",
    [
        "conv.fprop:n1c1k1_i1_f1",
        "conv.bgrad:n1c1k1_i1_f1",
        "conv.fprop:n1c1k1_i1_f1_p3,-1",  # the bias alone
        "conv.fprop:n0c1k1_i1_f1",  # empty: shapes are checked
        "unfold.fprop:n1c1_i2_f2",
        "fold.backward:n1c1_i2_f2",
    ],
)
def test_cases_that_a_mutation_changes_are_not_vacuous(line):
    assert examine(parse(line), load("numpy"), mutate=True).verdict == "pass"


def test_a_wrong_result_stays_wrong():
    fault = FAULTS["six_channels"]
    assert examine(parse(fault.minimal), fault, mutate=True).verdict == "wrong"


@pytest.mark.parametrize("transposed", [False, True])
def test_reshaped_keeps_the_sizes(transposed):
    old = ConvProblem(
        n=1,
        c=1,
        k=1,
        input=(7, 5),
        filter=(3, 2),
        stride=(2, 3),
        padding=((1, 2), (0, 3)),
        dilation=(2, 1),
        transposed=transposed,
    )
    for changes in ({"dilation": (1, 1)}, {"stride": (1, 2)}, {"lo": (2, 0)}):
        new = reshaped(old, **changes)
        assert (new.input, new.output) == (old.input, old.output)
        assert new != old


@pytest.mark.nightly(reason="15 minutes in all")
@pytest.mark.parametrize("name", FAULTS)
def test_a_campaign_catches_it_within_a_minute(name):
    fault = FAULTS[name]
    settings = campaign.Settings(
        f"convref_faults:{name}",
        Axes(dtypes=fault.dtypes),
        seconds=60,
        examples=4_000,  # no fault has needed more
    )
    outcome = campaign.run(settings)
    assert outcome.failures, f"{name} escapes {outcome.tally.examples} examples"
    lightest = min(weight(parse(failure.line)) for failure in outcome.failures)
    assert lightest <= weight(parse(fault.minimal)), [f.line for f in outcome.failures]
