"""Taps and channels as one reduction axis: every row of its table, stems, many taps, classes."""

import pytest
from forced import copies_of, planned, run, verdict, verdict_if_admitted
from hypothesis import assume, given
from hypothesis import strategies as st

from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common.geometry import geometry
from convref_triton.common.geometry import operands as layouts
from convref_triton.compile.specialize import specialize
from convref_triton.conv import flat, gather
from convref_triton.plan.builder import Builder
from convref_triton.plan.launch import Launch
from convref_triton.plan.task import Task
from convref_triton.plan.tile import Tile

SUMS = ("fprop", "jvp", "dgrad")
SMALL = {"max_elements": 1_000, "max_macs": 10_000}
CASES = cases(passes=SUMS, dtypes=("f32", "bf16", "f16"), maths=("ieee", "tf32"), **SMALL)


def task(line, role="y"):
    call = parse(line).call
    return Task(Builder(call, layouts(call)), geometry(call.conv), role)


@given(CASES, st.integers(0, 2**16))
def test_admitted_tasks_are_right(case, pick):
    assume(backend.supports(case.call) is None)
    assert verdict_if_admitted(case, flat, pick)


STEMS = (
    "conv.fprop:n1c3k20_i9x7_f7x7_s2_p3:dt=bf16:fill=int",  # 49 taps: 64 bits
    "conv.fprop:n1c3k9_i20_f65_p32:dt=f16:fill=int",  # more taps than bits
    "conv.fprop:n1c3k8_i13x13_f11x11_s4_p2:dt=f32:fill=int",
    "conv.jvp:n2c24k17_i9x8_f3x3_p1:dt=bf16:mem=nhwc:fill=int",
    "conv.dgrad:n1c19k24_i9x10_f4x2_s2_p1:dt=f16:mem=nhwc:fill=int",  # classes of 2 taps
    "conv.dgrad:n2c10k12_i9x11_f3x3_s3x2_p2_d3x2:dt=bf16:fill=int",  # classes of 9 taps, or none
    "conv.fprop:n1c12k16g4_i8x8x5_f3x3x3_p1:dt=bf16:fill=int",
    "conv.fprop:n3c20k33_i13_f5_p2:dt=f32:fill=int:seed=3",
)


@pytest.mark.parametrize("line", STEMS)
def test_vectors_of_every_length_compute_stems(line):
    case = parse(line)
    (role, *_) = case.call.wanted
    last = {tile.run: pick for pick, tile in enumerate(flat.SPEC.tiles(task(line, role)))}
    for pick in last.values():
        told, admitted = verdict(case, flat, pick)
        assert told
        assert admitted == list(case.call.wanted)


@pytest.mark.parametrize("line", STEMS[3:6])
def test_64_bit_offsets(monkeypatch, line):
    monkeypatch.setattr(gather, "LIMIT", 1)
    told, admitted = verdict(parse(line), flat)
    assert told
    assert admitted


def test_no_tap_beyond_the_last_wraps_around():
    case = parse("conv.fprop:n2c1k5_i9x9_f5x5_p2:dt=bf16:fill=int")  # a block of 64 has 25 taps
    told, admitted = verdict(case, flat, Tile(32, 32, 64))
    assert told
    assert admitted


def test_rounded_channels_are_zero_in_both_operands():
    case = parse("conv.fprop:n2c3k5_i6x6_f3x3_p1:dt=bf16")
    rows = flat.SPEC.tiles(task("conv.fprop:n2c3k5_i6x6_f3x3_p1:dt=bf16"))
    found, made, _ = run(case.call, operands(case), flat, [t.run for t in rows].index(8))
    copies = dict(copies_of(made))
    assert set(copies) == {"x", "w"}
    for target in copies.values():
        assert found[target].shape[1] == 8
        assert not found[target][:, 3:].any()


def test_only_channels_that_fill_no_vector_are_copied():
    stem = task("conv.fprop:n32c3k64_i224x224_f7x7_s2_p3:dt=bf16:mem=nhwc")
    assert flat.SPEC.best(stem).run in (4, 8)
    line = "conv.fprop:n32c24k64_i56x56_f3x3_p1:dt=bf16:mem=nhwc"
    call = parse(line).call
    made, admitted = planned(call, layouts(call), flat)
    assert admitted == ["y"]
    assert [type(step) for step in made.steps] == [Launch]


@pytest.mark.parametrize(
    ("line", "role", "reason"),
    [
        ("conv.fprop:n1c64k64_i8x8_f3x3:dt=bf16", "y", "64 channels fill blocks of 64"),
        ("conv.fprop:n1c24k64_i8x8_f1x1:dt=bf16", "y", "24 channels fill blocks of 64"),
        ("conv.dgrad:n1c8k8_i8x8_f3x3_s2:dt=bf16", "dx", "classes of pixels have different"),
    ],
)
def test_refusals(line, role, reason):
    assert flat.SPEC.refusal(task(line, role)).startswith(reason)


def test_shapes_of_a_class_share_a_binary():
    keys = set()
    for shape in ("n2c24k40_i9x8", "n7c40k72_i31x5", "n1c8k8_i3x3"):
        call = parse(f"conv.fprop:{shape}_f3x3_p1:dt=bf16:mem=nhwc").call
        made, _ = planned(call, layouts(call), flat)
        (launch,) = made.steps
        keys.add(specialize(launch).key)
    assert len(keys) == 1
    assert {tile.run for tile in flat.TILES.fitting("bf16", "sm_90")} == {1, 4, 8}
