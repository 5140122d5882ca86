"""Inputs that must be refused: each contradicts the call; a backend that accepts one fails."""

import importlib
import sys

import pytest
from hypothesis import given
from hypothesis.strategies import one_of

from convref.case import parse
from convref.case.operands import argument
from convref.conformance import campaign
from convref.conformance.generate import Axes
from convref.conformance.operands import operands
from convref.conformance.reject import examine_rejection as trial
from convref.conformance.reject import invalid_inputs
from convref.conformance.strategies import cases
from convref.conformance.workers import worker
from convref.conformance.workers.worker import REJECT_EVERY, Task, WriteAhead
from convref.dispatch import load, run
from convref.errors import ConvrefError
from convref.ops import GROUPS

DRAWN = Task(axes=Axes())  # cases that are generated
BACKWARD = "conv.backward:n2c4k6g2_i5x4_f3x2_s2x1_p1"


# A module of its own, for worker processes import it.
WARY = '''
import os
import numpy as np
from convref import oracle
from convref.backends.numpy import NumpyBackend
from convref.dispatch import run
from convref.errors import ConvrefError

class Careless(NumpyBackend):
    """The oracle for whatever shape comes, cut or repeated to fit."""
    checked_by_dispatch = False
    def run(self, call, *arrays):
        fitted = [
            np.resize(a, call.problem.shape(role)) if call.is_present(role) else None
            for role, a in zip(call.roles, arrays)
        ]
        return oracle.evaluate(call, *fitted)

class Careful(Careless):
    """Checks what dispatch would check."""
    def run(self, call, *arrays):
        return run(call, *arrays, backend="numpy")

class Fatal(Careful):
    """Ends the process where another would raise."""
    def run(self, call, *arrays):
        try:
            return super().run(call, *arrays)
        except ConvrefError:
            os._exit(3)

class Exits(Careful):
    """Asks the interpreter to end where another would raise."""
    def run(self, call, *arrays):
        try:
            return super().run(call, *arrays)
        except ConvrefError:
            raise SystemExit(3)

careless, careful, fatal, exits = Careless(), Careful(), Fatal(), Exits()
'''


@pytest.fixture
def wary(tmp_path, monkeypatch):
    """Return a module of backends that do or do not check their operands."""
    (tmp_path / "wary.py").write_text(WARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wary", raising=False)
    return importlib.import_module("wary")


def names(line, seed=0):
    case = parse(line)
    return [what for what, _ in invalid_inputs(case.call, operands(case), seed)]


def test_backward_tries_every_size_of_the_cotangent():
    found = set(names(BACKWARD))
    assert {f"dy has {how} {axis}" for how in ("smaller", "larger") for axis in "nchw"} <= found
    assert {"x has smaller c", "w has larger i", "dy is None", "w lacks an axis"} <= found
    assert not any(what.startswith(("x has smaller n", "w has smaller o")) for what in found)


def test_a_bias_of_another_length():
    found = set(names("conv.fprop:n1c1k2_i1_f1"))
    assert {"b has smaller o", "b has larger o", "b has another dtype"} <= found
    assert not any(what.startswith("b ") for what in names("conv.fprop:n1c1k2_i1_f1:t=1"))
    assert not any(what.startswith("b ") for what in names("conv.fprop:n1c1k2_i1_f1:bias=0"))


@pytest.mark.parametrize(
    "line",
    [
        "conv.bgrad:n1c1k1_i2_f1",
        "conv.fprop:n0c1k1_i2_f1",
        "unfold.fprop:n1c1_i2_f1",
        "silu.fprop:n1c2_i2",
        "relu.backward:n0c2_i2",
        "group_norm.bgrad:n1c2_i3",
        "group_norm.fprop:n1c2_i3:weight=0:bias=0",
    ],
)
def test_a_call_without_products_has_no_invalid_inputs(line):
    assert names(line) == []


def test_operands_that_no_result_reads_are_left_alone():
    assert {what.partition(" ")[0] for what in names("conv.wgrad:n1c1k1_i2_f1")} == {"dy", "x"}


def test_one_slope_for_all_channels_is_no_contradiction():
    found = {what for seed in range(4) for what in names("prelu.fprop:n2c2_i3", seed)}
    assert "w has larger c" in found
    assert "w has smaller c" not in found


def test_operands_that_share_an_extent_contradict_each_other():
    found = set(names("batch_norm.dgrad:n2c3_i4x5"))
    both = {
        f"{role} has {how} {axis}"
        for role in ("dy", "x")
        for how in ("smaller", "larger")
        for axis in "nchw"
    }
    assert found == both | {"w has smaller c", "w has larger c"}
    assert set(names("layer_norm.fprop:n2c3_i4:bias=0")) == {
        f"{role} has {how} {axis}"
        for role in "xw"
        for how in ("smaller", "larger")
        for axis in "cw"
    }
    # a frozen norm multiplies dy by numbers of its channels alone, whatever its other extents
    assert set(names("batch_norm_eval.dgrad:n2c3_i4:weight=0")) == {
        f"{role} has {how} c" for role in ("dy", "rvar") for how in ("smaller", "larger")
    }


def test_a_target_may_name_no_class():
    found = names("cross_entropy.backward:n2c3_i4:red=none")
    assert "target names a class too many" in found
    assert {"target has larger n", "dy has smaller w", "x has larger w"} <= set(found)
    assert not any("class" in what for what in names("cross_entropy.fprop:n2c3_i4:dev=cuda"))


SHARING = GROUPS["norm"] + GROUPS["activation"]


@given(one_of(cases(), cases(SHARING, max_elements=200)))
def test_each_variant_is_wrong_in_one_operand_and_dispatch_refuses_it(case):
    right = operands(case)
    for what, wrong in invalid_inputs(case.call, right, case.seed):
        role = what.partition(" ")[0]
        differing = [r for r, a, b in zip(case.call.roles, right, wrong) if a is not b]
        assert differing == [role]
        with pytest.raises(ConvrefError, match=rf"\b{argument(role)}\b"):
            run(case.call, *wrong, backend="numpy")


def test_returning_on_invalid_input_is_accepts_invalid(wary):
    finding = trial(parse(BACKWARD + ":seed=1"), wary.careless)
    assert finding.verdict == "accepts-invalid"
    assert finding.role == "dy"
    assert finding.reason.startswith(
        "dy has larger n: f32(4, 6, 3, 5) given, f32(2, 6, 3, 5) needed"
    )
    assert "returned a tuple, needs an error" in finding.reason


def test_raising_on_invalid_input_passes(wary):
    assert all(trial(parse(f"{BACKWARD}:seed={seed}"), wary.careful) is None for seed in range(3))


def test_backends_checked_by_dispatch_get_no_invalid_input():
    assert all(
        trial(parse(f"{BACKWARD}:seed=1"), load(name)) is None for name in ("numpy", "loops")
    )


def test_a_worker_tries_an_invalid_input_every_64_cases_and_records_it_first(wary, tmp_path):
    wal, seen = WriteAhead(str(tmp_path / "ahead")), []

    class Watched(wary.Careful):
        def run(self, call, *arrays):
            seen.append(wal.read()[2])
            return super().run(call, *arrays)

    case = parse(BACKWARD)
    for index in range(2 * REJECT_EVERY):
        wal.write(index, str(case))
        assert worker._examine_guarded(case, Watched(), index, wal, DRAWN).verdict == "pass"
    assert [note for note in seen if note] == names(BACKWARD) * 2
    assert wal.read()[:2] == (2 * REJECT_EVERY - 1, str(case))


def test_given_lines_get_no_invalid_input(wary, tmp_path):
    wal = WriteAhead(str(tmp_path / "ahead"))
    case = parse(BACKWARD + ":seed=1")
    at = REJECT_EVERY // 2
    assert worker._examine_guarded(case, wary.careless, at, wal, Task()).verdict == "pass"
    assert worker._examine_guarded(case, wary.careless, at, wal, DRAWN).verdict == "accepts-invalid"


def test_an_exit_on_invalid_input_names_the_input(wary, tmp_path):
    wal = WriteAhead(str(tmp_path / "ahead"))
    found = worker._examine_guarded(parse(BACKWARD), wary.exits, REJECT_EVERY // 2, wal, DRAWN)
    assert (found.verdict, found.reason) == ("crash", "dy has smaller n: raised SystemExit: 3")


def campaign_of(name):
    axes = Axes(passes=("backward",), dtypes=("f32",), size=4 * REJECT_EVERY)
    settings = campaign.Settings(f"wary:{name}", axes, examples=axes.size, jobs=1, shrinks=False)
    return campaign.run(settings).tally


def test_a_campaign_finds_the_backend_that_checks_nothing(wary):
    tally = campaign_of("careless")
    assert tally.count("accepts-invalid") >= 2
    assert all(f.verdict in ("accepts-invalid", "vacuous") for f in tally.findings)
    assert tally.examples == 4 * REJECT_EVERY
    assert campaign_of("careful").count("pass") > 3 * REJECT_EVERY


def test_a_campaign_continues_after_a_crash_on_invalid_input(wary):
    tally = campaign_of("fatal")
    assert tally.count("crash") >= 2
    assert tally.examples == 4 * REJECT_EVERY


def test_a_cotangent_of_other_sizes_has_to_be_refused():
    case = parse("resize.backward:n2c2_i3x4_o5x6")
    given = operands(case)
    variants = invalid_inputs(case.call, given)
    assert {what for what, _ in variants} == {
        *(f"dy has {how} {axis}" for how in ("smaller", "larger") for axis in "nchw"),
        *("dy lacks an axis", "dy has an axis more", "dy is None"),
    }
    torch = pytest.importorskip("convref.backends.torch.adapter", exc_type=ImportError).backend.raw
    assert trial(case, torch) is None
