"""Gradients of stems with classes of pixels as columns: tiles, non-finite values, what is read."""

import pytest
from forced import regrouped, strided, verdict, verdict_if_admitted
from hypothesis import given, settings
from hypothesis import strategies as st

from convref.case import parse
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.common.geometry import operands
from convref_triton.conv import classes, gather
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import tasks

CASES = cases(passes=["dgrad"], dtypes=("bf16", "f16"), max_elements=200, max_macs=2_000)
LINES = (
    "conv.dgrad:n2c3k64_i13x14_f7x7_s2_p3:dt=bf16:mem=nhwc:fill=normal",
    "conv.dgrad:n2c3k16_i13x14_f3x3_s2_p1:dt=bf16:mem=nhwc:fill=inf",
    "conv.dgrad:n1c3k96_i9x12_f4x4_s4:dt=f16:fill=nan",
    "conv.dgrad:n1c5k24_i12x9_f3x5_s3x2_p1,0x-1,2:dt=f16:fill=inf:seed=1",
    "conv.dgrad:n2c4k72_i40_f2_s3_p1:dt=bf16",  # a class without taps
    "conv.fprop:n2c16k3_i5x6_f4x4_s2_p1:t=1:flip=1:dt=bf16:mem=nhwc",
    "conv.fprop:n1c8k2_i5x6_f2x2_s2_p1:t=1:op=1:dt=f16",
)


@settings(max_examples=settings().max_examples // 4)
@given(CASES, st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**16))
def test_every_tile_is_right(case, big, eights, pick):
    assert verdict_if_admitted(strided(regrouped(case, 1, big, 8 * eights)), classes, pick)


@pytest.mark.parametrize("line", LINES)
def test_lines_are_right(line):
    told, admitted = verdict(parse(line), classes, -1)
    assert admitted
    assert told


def test_64_bit_offsets(monkeypatch):
    monkeypatch.setattr(classes, "LIMIT", 1)
    told, admitted = verdict(parse(LINES[0]), classes)
    assert told
    assert admitted


def task_of(line):
    call = parse(line).call
    (task,) = tasks(Builder(call, operands(call)))
    return task


REFUSED = {
    "conv.dgrad:n1c3k64_i9x9_f7x7_s2_p3:dt=bf16": None,
    "conv.dgrad:n1c3k64_i9x9_f7x7_s2_p3": "float32",
    "conv.dgrad:n1c3k64_i9x9_f7x7_p3:dt=bf16": "one class of pixels",
    "conv.dgrad:n1c3k64_i19x19_f7x7_s2_p3_d2:dt=bf16": "dilated filters",
    "conv.dgrad:n1c6k64g2_i9x9_f7x7_s2_p3:dt=bf16": "groups",
    "conv.dgrad:n1c3k64_i9x9x9_f3x3x3_s2_p1:dt=bf16": "three axes",
    "conv.dgrad:n1c17k64_i9x9_f3x3_s2_p1:dt=bf16": "68 columns, more than 64",
    "conv.dgrad:n1c3k60_i9x9_f3x3_s2_p1:dt=bf16": (
        "reduced channels that fill no vectors of 16 bytes"
    ),
}


def test_refusals():
    for line, reason in REFUSED.items():
        assert classes.SPEC.refusal(task_of(line)) == reason, line


def test_steps_of_all_classes():
    """7x7 by 2 from -3 on: 4 steps, of which class 0 lacks one, and pixel 0 reads from 2 down."""
    shape = task_of("conv.dgrad:n1c3k64_i9x8_f7x3_s2_p3x1:dt=bf16").geometry
    assert classes.taps_of(shape) == ((4, 2), (2, 1), (1, 1))


def test_the_estimate_prefers_it():
    task = task_of("conv.dgrad:n32c3k64_i224x224_f7x7_s2_p3:dt=bf16:mem=nhwc")
    us = {s: s.us(task, s.best(task)) for s in (classes.SPEC, gather.SPEC)}
    assert us[classes.SPEC] < us[gather.SPEC] / 2
