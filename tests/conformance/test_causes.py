"""Findings of one cause are one failure, across passes, dtypes, masks and sizes."""

from dataclasses import replace

import pytest

pytest.importorskip("psutil", reason="needs convref[check]")

from convref import parse
from convref.conformance.causes import KINDS, Failure, kind_of, root_cause, root_causes, run_line
from convref.conformance.causes import run_lines as run
from convref.conformance.examine import VERDICTS, Finding
from convref.conformance.report.suggest import suggestions
from convref.conformance.shrink import Shrunk
from convref.conformance.workers.engine import Engine
from convref.knownbugs import refusals

SOURCE = """
import numpy as np
from convref.backends.numpy import NumpyBackend

class Rounds(NumpyBackend):
    checked_by_dispatch = True

    def run(self, call, *operands):
        results = super().run(call, *operands)
        return tuple(r if r is None else r.astype(np.float16).astype(r.dtype) for r in results)

class Careless(NumpyBackend):
    checked_by_dispatch = False

    def run(self, call, *operands):
        return super().run(call, *(
            None if role == "b" and a is not None else np.resize(a, call.problem.shape(role))
            if a is not None else None for role, a in zip(call.roles, operands)
        ))

rounds, careless = Rounds(), Careless()
"""


@pytest.fixture
def backends(tmp_path, monkeypatch):
    (tmp_path / "causeback.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_a_failure_without_padding_has_a_root_cause():
    shrunk = Shrunk(parse("adaptive_max_pool.fprop:n1c1_i3_o2"), ("dtype = f32",), (), 1)
    found = Finding(str(shrunk.case), "wrong", "exact")
    assert root_cause(found, shrunk) == ("wrong", "adaptive_max_pool", "dtype")


def test_every_bad_verdict_is_a_kind():
    harmless = ("pass", "unsupported", "known", "vacuous")
    line = "conv.fprop:n1c1k1_i1_f1"
    kinds = {kind_of(Finding(line, v, "statistical")) for v in VERDICTS if v not in harmless}
    kinds |= {kind_of(Finding(line, "wrong", "exact"))}
    kinds |= {kind_of(Finding(f"{line}:fill=nan", "wrong", "exact"))}
    assert kinds == set(KINDS)


@pytest.mark.usefixtures("backends")
def test_a_rounding_bug_is_one_failure():
    lines = [
        f"conv.{word}:n1c2k2_i4_f2:fill=normal{dtype}"
        for word in ("fprop", "wgrad", "dgrad", "jvp")
        for dtype in ("", ":dt=f64")
    ]
    lines = [
        str(parse(line.replace(":fill=normal:dt=f64", ":dt=f64:fill=normal"))) for line in lines
    ]
    with Engine("causeback:rounds", jobs=1) as engine:
        (failure,) = root_causes(engine, run(engine, lines))
    assert (failure.kind, failure.seen) == ("rounding", len(lines))
    places = {where.partition(": ")[0] for where in failure.also}
    assert {"conv.fprop f64", "conv.backward f32", "conv.backward f64", "conv.jvp f64"} <= places


@pytest.mark.usefixtures("backends")
def test_an_invalid_operand_is_shrunk_and_repeated_by_its_command():
    line = "conv.backward:n3c4k2_i5x4_f2x3:mem=x.nhwc"
    with Engine("causeback:careless", jobs=1) as engine:
        findings = [
            run_line(engine, line, invalid=what) for what in ("dy has smaller n", "dy has larger h")
        ]
        assert {f.verdict for f in findings} == {"accepts-invalid"}
        (failure,) = root_causes(engine, findings)
        assert run_line(engine, line).verdict == "pass"
    assert failure.line == "conv.dgrad:n2c1k1_i1_f1:fill=ones"
    assert "--invalid 'dy has " in failure.command
    assert len(failure.also) == 1


def test_suggestions_are_refusals_of_the_rejected_call():
    line = "conv.jvp:n1c1k1_i3x3_f1_s2x1_p0,1x0,0:dt=f16:mem=x.nhwc:fill=ones"
    needs = ("stride[0] >= 2", "dtype = f16", "mem.x as it is", "padding[0].hi = 1", "fill = ones")
    failure = Failure(line, "rejects-valid", "RuntimeError: a|b", needs, seen=2)
    (text,) = suggestions([failure, replace(failure, seen=1)])
    assert text == (
        "op = conv, pass = jvp, any.s >= 2, dt = f16, order.x != plain, any.hi > 0"
        " | RuntimeError: a/b"
    )
    assert refusals(text)(parse(line).call) == "RuntimeError: a/b"
