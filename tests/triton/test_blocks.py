"""Grouped convolutions as block-diagonal products: every tile, non-finite values, refusals."""

import pytest
import torch
from forced import regrouped, verdict, verdict_if_admitted
from hypothesis import given, settings
from hypothesis import strategies as st

from convref.case import parse
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.common.geometry import geometry, operands
from convref_triton.conv import blocks, gather
from convref_triton.plan.builder import Builder
from convref_triton.plan.task import Task
from convref_triton.run.interpreted import copy

CASES = cases(
    passes=("fprop", "jvp", "dgrad"), dtypes=("bf16", "f16"), max_elements=200, max_macs=2_000
)
EACH = st.sampled_from([2, 4, 6, 8, 16])
LINES = (
    "conv.fprop:n2c32k32g16_i5x6_f3x3_p1:dt=bf16:mem=nhwc:fill=inf",
    "conv.dgrad:n1c48k96g8_i5x6_f3x3_s2_p1:dt=f16:fill=nan",
    "conv.fprop:n1c128k128g32_i3x4x5_f2x3x1_p1:flip=1:dt=f16",  # two blocks
    "conv.fprop:n1c24k24g4_i9_f3_p1:t=1:dt=bf16:fill=inf",
    "conv.jvp:n1c40k40g10_i5_f3_p1:dt=bf16:fill=inf:seed=1",
    "conv.fprop:n1c64k32g4_i200_f1:dt=bf16:mem=nwc",
)


@settings(max_examples=settings().max_examples // 6)
@given(CASES, st.integers(1, 4), EACH, EACH, st.integers(0, 2**16))
def test_every_tile_is_right(case, fours, big, small, pick):
    assert verdict_if_admitted(regrouped(case, 4 * fours, big, small), blocks, pick)


@pytest.mark.parametrize("line", LINES)
def test_lines_are_right(line):
    told, admitted = verdict(parse(line), blocks, -1)
    assert admitted
    assert told


def test_64_bit_offsets(monkeypatch):
    monkeypatch.setattr(gather, "LIMIT", 1)
    told, admitted = verdict(parse(LINES[-1]), blocks)
    assert told
    assert admitted


REFUSED = {
    "conv.fprop:n1c12k12g4_i5_f3:dt=bf16": "3 and 3 channels a group, which are not even",
    "conv.fprop:n1c32k32g8_i5_f3": "float32",
    "conv.fprop:n1c66k66g11_i5_f3:dt=bf16": "groups fill no block of at most 64 channels",
    "conv.fprop:n1c64k64g2_i5_f3:dt=bf16": None,
}


def test_refusals():
    for line, reason in REFUSED.items():
        call = parse(line).call
        task = Task(Builder(call, operands(call)), geometry(call.conv), "y")
        assert blocks.SPEC.refusal(task) == reason, line


def test_filters_of_a_block_are_zero_between_groups():
    w = torch.arange(1, 2 * 2 * 3 * 2 * 5 + 1).reshape(12, 2, 5)  # 4 groups of 3 filters
    wide = torch.full((12, 4, 5), -1)
    copy(w, wide, (2, 2))
    for k, j in ((k, j) for k in range(12) for j in range(4)):
        inside = j // 2 == k // 3 % 2
        assert torch.equal(wide[k, j], w[k, j % 2] if inside else torch.zeros(5, dtype=w.dtype))
