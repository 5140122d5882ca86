"""A result and its tangent from one kernel: subsets of tangents, both directions, repeatability."""

from dataclasses import replace
from math import prod

import pytest
from forced import facts, verdict
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common.geometry import geometry
from convref_triton.common.geometry import operands as layouts
from convref_triton.conv import dual, gather
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import offered, plan
from convref_triton.plan.task import Task

CASES = cases(
    passes=["jvp"],
    dtypes=("f32", "bf16", "f16"),
    maths=("ieee", "ieee", "tf32"),
    max_elements=600,
    max_macs=5_000,
)
HALF = settings(max_examples=settings.default.max_examples // 2)  # each is two results


@HALF
@given(CASES, st.integers(0, 2**16))
def test_admitted_tasks_are_right(case, pick):
    assume(backend.supports(case.call) is None)
    told, admitted = verdict(case, dual, pick)
    assert told
    both = prod(case.call.problem.shape("y")) and set(case.call.carried) & {"x", "w"}
    _, known = facts(case.call, operands(case))
    task = Task(Builder(case.call, known), geometry(case.call.conv), "y")
    assert admitted == (["y"] if both and dual.dual_tiles(task) else [])


LINES = (
    "conv.jvp:n2c72k33_i5x4_f3x3_p1:dt=bf16:mem=nhwc:fill=int",
    "conv.jvp:n1c40k24g2_i7_f3_s2_d2_p1:dt=f16:fill=int",
    "conv.jvp:n2c6k5_i3x4_f3x3_s2:t=1:dt=f32:fill=int",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("tangents", ["x", "w", "xw", "xb", "wb", "xwb"])
def test_subsets_of_tangents(line, tangents):
    case = parse(line)
    call = replace(case.call, tangents=tangents)
    told, admitted = verdict(replace(case, call=call), dual)
    assert told
    assert admitted == ["y"]


@pytest.mark.parametrize("line", LINES)
def test_64_bit_offsets(monkeypatch, line):
    monkeypatch.setattr(gather, "LIMIT", 1)
    told, admitted = verdict(parse(line), dual)
    assert told
    assert admitted


def launches(line, **options):
    call = parse(line).call
    made = plan(call, layouts(call), **options)
    return [step.kernel.fn.__name__ for step in made.steps]


def test_it_is_chosen_where_both_results_are_wanted_and_read_the_same():
    assert launches("conv.jvp:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=nhwc") == ["dual"]
    assert launches("conv.jvp:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=nhwc:tan=b") != ["dual"]


def test_two_launches_can_be_asked_for():
    line = "conv.jvp:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=nhwc"
    call = parse(line).call
    (choice, *_) = [c for c in offered(call, layouts(call)) if c.kernel == "gather"]
    assert launches(line, choice=choice) == ["gather", "gather"]
