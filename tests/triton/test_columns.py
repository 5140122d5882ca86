"""Products on tiles of 96 and 192 columns: both blocks, ragged channels, epilogues, refusals."""

import pytest
from forced import regrouped, verdict, verdict_if_admitted
from hypothesis import given, settings
from hypothesis import strategies as st

from convref.case import parse
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.common.geometry import operands
from convref_triton.conv import columns, gather
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import expected, tasks

CASES = cases(
    passes=["fprop", "jvp", "dgrad"], dtypes=("bf16", "f16"), max_elements=200, max_macs=2_000
)
LINES = (
    "conv.fprop:n1c16k104_i9x7_f3x3_p1:dt=bf16:mem=nhwc:fill=normal",
    "conv.fprop:n2c72k200_i9x8_f1x1:dt=f16:fill=inf",
    "conv.dgrad:n1c208k24_i9x8_f3x3_s2_p1:dt=bf16:mem=nhwc:fill=nan",
    "conv.dgrad:n1c96k8_i4x5x6_f2_d2:dt=f16:mem=nhwc",
    "conv.fprop:n1c16k208g2_i5_f3:t=1:flip=1:dt=bf16",
    "conv.jvp:n1c16k104_i9_f3_p1:dt=bf16:fill=normal",
)


def task_of(line):
    call = parse(line).call
    (task,) = tasks(Builder(call, operands(call)))
    return task


@settings(max_examples=settings().max_examples // 4)
@given(CASES, st.integers(1, 2), st.integers(1, 9), st.integers(1, 14), st.integers(0, 1))
def test_every_tile_is_right(case, groups, big, small, pick):
    assert verdict_if_admitted(regrouped(case, groups, 8 * big, 8 * small), columns, pick)


@pytest.mark.parametrize("pick", [0, 1])
@pytest.mark.parametrize("line", LINES)
def test_lines_are_right(line, pick):
    told, admitted = verdict(parse(line), columns, pick)
    assert admitted
    assert told


def test_64_bit_offsets(monkeypatch):
    monkeypatch.setattr(gather, "LIMIT", 1)
    told, admitted = verdict(parse(LINES[2]), columns)
    assert admitted
    assert told


def test_more_multiprocessors_are_busy():
    """78 tiles of 128 columns leave 54 of 132 idle."""
    task = task_of("conv.fprop:n32c3072k768_i7x7_f1x1:dt=bf16:mem=nhwc:dev=cuda")
    narrow, wide = columns.SPEC.tiles(task)
    assert columns.SPEC.work_of(task, narrow).tiles == 104
    assert columns.SPEC.work_of(task, wide).tiles == 52
    assert gather.SPEC.work_of(task, gather.SPEC.tiles(task)[0]).tiles == 78
    assert str(expected(task)[0]) == f"columns {narrow}"


REFUSED = {
    "conv.fprop:n1c16k96_i9_f3:dt=bf16": None,
    "conv.fprop:n1c16k96_i9_f3": "f32: 16-bit products only",
    "conv.fprop:n1c16k100_i9_f3:dt=bf16": "(16, 100) channels share no vector of 16 bytes",
}


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_refusals(line, reason):
    assert columns.SPEC.refusal(task_of(line)) == reason
