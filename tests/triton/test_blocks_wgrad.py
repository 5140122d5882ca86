"""Filter cotangents of groups as a block-diagonal product: tiles, channel counts, refusals."""

import pytest
from forced import copies_of, planned, regrouped, verdict, verdict_if_admitted
from hypothesis import given, settings
from hypothesis import strategies as st

from convref.case import parse
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.common.geometry import geometry, operands
from convref_triton.conv import blocks_wgrad, wgrad
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import tasks
from convref_triton.plan.tile import Tile

CASES = cases(passes=["wgrad"], dtypes=("bf16", "f16"), max_elements=200, max_macs=2_000)
EACH = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 16, 31])
LINES = (
    "conv.wgrad:n2c32k32g16_i5x6_f3x3_p1:dt=bf16:mem=nhwc:fill=inf",
    "conv.wgrad:n1c48k96g8_i5x6_f3x3_s2_p1:dt=f16:fill=nan",
    "conv.wgrad:n1c39k65g13_i9x7_f3x3_p1:dt=bf16:mem=nhwc",  # 3 and 5 channels: copies, odd starts
    "conv.wgrad:n1c104k104g13_i5_f3_p1:dt=bf16:mem=nwc:fill=inf",  # the last block is not full
    "conv.wgrad:n1c24k24g4_i9_f3_p1:t=1:dt=bf16",
    "conv.wgrad:n1c128k128g32_i3x4x5_f2x3x1_p1:flip=1:dt=f16",
    "conv.wgrad:n1c64k32g4_i200_f1:dt=bf16:mem=nwc",
    "conv.wgrad:n2c12k24g4_i5x6_f3x3_p1:math=tf32:mem=nhwc",
)


@settings(max_examples=settings().max_examples // 4)
@given(CASES, st.integers(2, 16), EACH, EACH, st.integers(0, 2**16))
def test_every_tile_is_right(case, groups, big, small, pick):
    assert verdict_if_admitted(regrouped(case, groups, big, small), blocks_wgrad, pick)


@pytest.mark.parametrize("line", LINES)
def test_lines_are_right(line):
    told, admitted = verdict(parse(line), blocks_wgrad, -1)
    assert admitted
    assert told


def test_64_bit_offsets(monkeypatch):
    monkeypatch.setattr(blocks_wgrad, "LIMIT", 1)
    told, admitted = verdict(parse(LINES[0]), blocks_wgrad)
    assert told
    assert admitted


REFUSED = {
    "conv.wgrad:n1c12k12g4_i5_f3:dt=bf16": None,
    "conv.wgrad:n1c12k12g4_i5_f3": "float32",
    "conv.wgrad:n1c12k12g4_i5_f3:math=tf32x3": "products of three",
    "conv.wgrad:n1c12k12_i5_f3:dt=bf16": "one group",
    "conv.wgrad:n1c12k12g12_i5_f3:dt=bf16": "depthwise",
    "conv.wgrad:n1c66k66g2_i5_f3:dt=bf16": "33 and 33 channels a group, not 1 to 32",
}


def task_of(line):
    call = parse(line).call
    (task,) = tasks(Builder(call, operands(call)))
    return task


def test_refusals():
    for line, reason in REFUSED.items():
        assert blocks_wgrad.SPEC.refusal(task_of(line)) == reason, line


def test_whole_vectors_of_channels_are_read_in_place():
    for channels, copies in (("c24k32g8", 0), ("c32k32g8", 0), ("c27k36g9", 2)):
        call = parse(f"conv.wgrad:n1{channels}_i5x5_f3x3:dt=bf16:mem=nhwc").call
        made, _ = planned(call, operands(call), blocks_wgrad)
        assert len(copies_of(made)) == copies


GROUPS = {"c128k128g32": 16, "c104k104g13": 5, "c15k15g5": 5, "c64k64g2": 2, "c93k93g3": 1}


@pytest.mark.parametrize("channels", GROUPS)
def test_groups_of_a_block(channels):
    shape = geometry(parse(f"conv.wgrad:n1{channels}_i5_f3").call.conv)
    assert blocks_wgrad.together(shape, Tile(64, 128, 64, run=8)) == GROUPS[channels]


def test_the_estimate_prefers_it_where_groups_are_small():
    task = task_of("conv.wgrad:n32c128k128g32_i56x56_f3x3_p1:dt=bf16:mem=nhwc")
    us = {s: s.us(task, s.best(task)) for s in (blocks_wgrad.SPEC, wgrad.SPEC)}
    assert us[blocks_wgrad.SPEC] < us[wgrad.SPEC] / 2
