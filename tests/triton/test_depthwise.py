"""Depthwise and other small groups: row loops, direct sums, filter cotangents."""

import pytest
from forced import channels_innermost, regrouped, strided, verdict, verdict_if_admitted
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judged import NEEDS_A_GPU
from judged import verdict as judged_on

from convref.case import parse
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common.geometry import geometry, operands
from convref_triton.compile import aot
from convref_triton.compile.inspection import inspect
from convref_triton.compile.specialize import specialize
from convref_triton.conv import direct, direct_wgrad
from convref_triton.depthwise import (
    depthwise,
    depthwise_strided,
    depthwise_taps,
    depthwise_wgrad,
)
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import expected, offered, plan, tasks
from convref_triton.plan.task import Task

SUMS = ("fprop", "jvp", "dgrad")
SMALL = {"max_elements": 200, "max_macs": 2_000}
CASES = cases(passes=SUMS, dtypes=("f32", "bf16", "f16"), **SMALL)
GROUPS = st.integers(1, 18)
PICK = st.integers(0, 2**16)


@settings(max_examples=settings().max_examples // 2)
@given(CASES, GROUPS, st.sampled_from([1, 1, 1, 2, 3]), PICK)
def test_row_loops_are_right(case, groups, multiplier, pick):
    assert verdict_if_admitted(regrouped(case, groups, 1, multiplier), depthwise, pick)


@settings(max_examples=settings().max_examples // 2)
@given(cases(passes=["dgrad"], dtypes=("f32", "bf16", "f16"), **SMALL), GROUPS, PICK)
def test_strided_adjoints_are_right(case, groups, pick):
    case = strided(channels_innermost(regrouped(case, groups, 1, 1)))
    assert verdict_if_admitted(case, depthwise_strided, pick)


@settings(max_examples=settings().max_examples // 2)
@given(CASES, GROUPS, st.integers(1, 4), st.integers(1, 4), PICK)
def test_direct_sums_are_right(case, groups, big, small, pick):
    assert verdict_if_admitted(regrouped(case, groups, big, small), direct, pick)


@settings(max_examples=settings().max_examples // 2)
@given(
    cases(passes=["wgrad"], dtypes=("f32", "bf16", "f16"), **SMALL),
    GROUPS,
    st.integers(1, 3),
    st.integers(1, 3),
    PICK,
)
def test_filter_cotangents_are_right(case, groups, big, small, pick):
    assume(groups > 1 or big == 1)
    assert verdict_if_admitted(regrouped(case, groups, big, small), direct_wgrad, pick)


FILTER = st.sampled_from([depthwise_taps, depthwise_wgrad])


@given(cases(passes=["wgrad"], dtypes=("f32", "bf16", "f16"), **SMALL), GROUPS, FILTER, PICK)
def test_depthwise_filter_cotangents_are_right(case, groups, kernel, pick):
    case = channels_innermost(regrouped(case, groups, 1, 1))
    assert verdict_if_admitted(case, kernel, pick)


KERNELS = {
    "depthwise": depthwise,
    "depthwise_strided": depthwise_strided,
    "depthwise_taps": depthwise_taps,
    "depthwise_wgrad": depthwise_wgrad,
    "direct": direct,
    "direct_wgrad": direct_wgrad,
}
LINES = {
    "conv.fprop:n1c6k6g6_i9x7_f7x7_p3:dt=bf16:mem=nhwc": "depthwise",
    "conv.fprop:n1c6k6g6_i9x7_f7x7_p3:dt=bf16": "depthwise",
    "conv.fprop:n2c3k3g3_i2x70_f3x3_p1:mem=nhwc": "depthwise",
    "conv.fprop:n1c9k9g9_i70_f5_p2:dt=f16": "depthwise",
    "conv.fprop:n1c4k4g4_i70x2_f3x1_p1_d9x1:mem=nhwc:fill=normal": "depthwise",
    "conv.jvp:n1c5k10g5_i4x6x5_f3x3x3_p1:fill=normal": "depthwise",
    "conv.dgrad:n1c7k7g7_i9x7_f5x5_p2:fill=inf": "depthwise",
    "conv.fprop:n1c7k7g7_i9x7_f5x5_p2:t=1:flip=1:mem=nhwc": "depthwise",
    "conv.fprop:n1c2k2g2_i9x7_f17x17_p8:mem=nhwc": "direct",
    "conv.dgrad:n1c8k8g8_i9x7_f5x5_s3x2_p2:mem=nhwc:dt=f16": "direct",
    "conv.dgrad:n1c8k16g8_i6x5_f3x3_p1:fill=nan": "direct",
    "conv.dgrad:n1c8k8g8_i9x7_f5x5_s3x2_p2:mem=nhwc:dt=f16:fill=inf": "depthwise_strided",
    "conv.dgrad:n2c40k40g40_i31x14_f3x3_s2_p1:mem=nhwc:dt=bf16": "depthwise_strided",
    "conv.dgrad:n2c4k4g4_i19x7_f2x3_s5x1_p-1:mem=nhwc:fill=nan": "depthwise_strided",
    "conv.dgrad:n1c4k4g4_i20_f5_s2_p1:mem=nhwc": "depthwise_strided",
    "conv.jvp:n2c5k5g5_i5x6_f3x3_s2_p1:t=1:flip=1:mem=nhwc:fill=normal": "depthwise_strided",
    "conv.dgrad:n2c4k0g4_i4x4_f3x3_p1": "direct",
    "conv.wgrad:n2c8k8g8_i14x9_f3x3_p1:dt=bf16:mem=nhwc:fill=normal": "direct_wgrad",
    "conv.wgrad:n2c40k40g40_i9x35_f3x3_p1:dt=bf16:mem=nhwc:fill=normal": "depthwise_wgrad",
    "conv.wgrad:n2c5k5g5_i13x9_f9x13_p4x6:dt=bf16:mem=nhwc": "depthwise_wgrad",
    "conv.wgrad:n1c4k4g4_i9x12_f5x6_s3x4_p2:mem=nhwc:fill=nan": "depthwise_wgrad",
    "conv.wgrad:n2c4k4g4_i9x12_f3x3_s2_d2x1_p1:mem=nhwc:fill=inf": "depthwise_wgrad",
    "conv.wgrad:n1c7k7g7_i9x7_f5x5_p2:t=1:flip=1:mem=nhwc:dt=f16": "depthwise_wgrad",
    "conv.wgrad:n2c3k3g3_i3x5x6_f2x3x3_s1x2x2_p1:mem=nhwc:fill=inf": "depthwise_wgrad",
    "conv.wgrad:n1c3k3g3_i20_f5_p9:mem=nhwc": "depthwise_wgrad",
    "conv.wgrad:n1c3k3g3_i3x2_f1x3_p0x7:mem=nhwc": "depthwise_wgrad",
    "conv.wgrad:n2c3k3g3_i12x70_f3x3_p-2:mem=nhwc:fill=normal": "depthwise_wgrad",
    "conv.wgrad:n2c40k40g40_i9x35_f3x3_p1:dt=bf16:mem=nhwc:fill=inf": "depthwise_taps",
    "conv.wgrad:n2c5k5g5_i13x9_f9x13_p4x6:dt=f16:mem=nhwc": "depthwise_taps",
    "conv.wgrad:n2c3k3g3_i3x5x6_f2x3x3_s1x2x2_p1:mem=nhwc:fill=nan": "depthwise_taps",
    "conv.wgrad:n1c7k7g7_i9x7_f5x5_p2:t=1:mem=nhwc:dt=f16": "depthwise_taps",
    "conv.wgrad:n2c3k3g3_i13x9_f9x7_p4:dt=bf16": "direct_wgrad",
    "conv.wgrad:n2c8k4g4_i9x12_f3x3_s2_d1x2_p1:fill=inf": "direct_wgrad",
}
# More groups than an axis of the grid may have programs.
MANY = {
    "conv.wgrad:n1c70000k70000g70000_i2_f2_p1:dt=f16:fill=ones": "direct_wgrad",
    "conv.wgrad:n1c70000k70000g70000_i2_f2_p1:dt=f16:mem=nhwc:fill=ones": "depthwise_wgrad",
    "conv.fprop:n1c70000k70000g70000_i2_f2_p1:dt=f16:fill=ones": "depthwise",
}


@pytest.mark.parametrize(("line", "kernel"), LINES.items())
def test_lines_are_right(line, kernel):
    case = parse(line)
    told, admitted = verdict(case, KERNELS[kernel])
    assert admitted
    assert told


def test_a_strided_adjoint_costs_less_than_one_class_after_the_other():
    call = parse("conv.dgrad:n32c64k64g64_i112x112_f3x3_s2_p1:dt=bf16:mem=nhwc:dev=cuda").call
    (task,) = tasks(Builder(call, operands(call)))
    one, other = (kernel.SPEC for kernel in (depthwise_strided, direct))
    assert str(expected(task)[0]).startswith("depthwise_strided")
    assert 2 * one.us(task, one.best(task)) < other.us(task, other.best(task))


def test_each_pair_of_pixels_is_added_once():
    """Here a strip that added zeros for its neighbour's pixels would make NaN of an infinity."""
    case = parse("conv.wgrad:n1c2k2g2_i4x70_f3x5_p1x2:mem=nhwc:fill=inf")
    for pick in range(len(depthwise_wgrad.TILES.rows["*"])):
        told, admitted = verdict(case, depthwise_wgrad, pick)
        assert admitted
        assert told


def test_the_sums_of_short_strips_are_added_eight_taps_at_a_time():
    """A program adds 14 columns of a strip, and then the sums of its four warps."""
    call = parse("conv.wgrad:n32c384k384g384_i14x14_f7x7_p3:dt=bf16:mem=nhwc:dev=cuda").call
    task = Task(Builder(call, operands(call)), geometry(call.conv), "dw")
    tile = depthwise_taps.SPEC.best(task)
    one, other = (spec.work_of(task, tile) for spec in (depthwise_taps.SPEC, depthwise_wgrad.SPEC))
    assert one.issued < other.issued
    assert str(expected(task)[0]) == f"depthwise_taps {tile}"
    held = [
        aot.compile(specialize(plan(call, operands(call), choice).steps[0]), "sm_90").metadata
        for choice in offered(call, operands(call))
        if choice.tile == tile and choice.kernel.startswith("depthwise")
    ]
    taps, all_at_once = (metadata["shared"] for metadata in held)
    assert 4 * taps <= all_at_once


LARGE = ("f13x13_p6", "f7x7_s2_p3", "f21x3_p10x1")


def spills_of(filters, arch):
    """Yield (choice, spills) of the filter cotangent on each tile, the chosen one first."""
    call = parse(f"conv.wgrad:n8c128k128g128_i56x56_{filters}:dt=bf16:mem=nhwc").call
    for choice in offered(call, operands(call), arch):
        if choice.kernel in ("depthwise_taps", "depthwise_wgrad"):
            launch = plan(call, operands(call), choice, arch=arch).steps[0]
            yield choice, inspect(aot.compile(specialize(launch), arch)).spills


def test_the_largest_filter_does_not_spill():
    _, spills = next(spills_of(LARGE[0], "sm_90"))
    assert not spills


@pytest.mark.nightly(reason="some hundred compilations")
@pytest.mark.parametrize("arch", aot.ARCHS)
@pytest.mark.parametrize("filters", LARGE)
def test_no_tile_of_large_filters_spills(filters, arch):
    found = dict(spills_of(filters, arch))
    assert found
    assert not {choice: spills for choice, spills in found.items() if spills}


def test_wide_filters_and_dilated_columns_are_refused():
    for line, reason in (
        ("conv.wgrad:n1c8k8g8_i9_f3_d2_p1:mem=nhwc", "dilated columns"),
        ("conv.wgrad:n1c8k8g8_i9_f301_p150:mem=nhwc", "301 columns of taps"),
        ("conv.wgrad:n1c8k8g8_i9_f3_p1", "channels are not innermost"),
        ("conv.wgrad:n1c8k16g8_i9_f3_p1:mem=nhwc", "not depthwise"),
    ):
        call = parse(line).call
        task = Task(Builder(call, operands(call)), geometry(call.conv), "dw")
        assert depthwise_wgrad.SPEC.refusal(task).startswith(reason)


@pytest.mark.nightly(reason="70,000 programs and more, some minutes")
@pytest.mark.parametrize(("line", "kernel"), MANY.items())
def test_groups_may_be_more_than_an_axis_of_the_grid_holds(line, kernel):
    test_lines_are_right(line, kernel)


@pytest.mark.parametrize("line", MANY)
def test_no_axis_of_a_grid_is_too_long(line):
    call = parse(line).call
    launches = plan(call, operands(call)).launches
    assert all(max(launch.grid[1:]) < 2**16 for launch in launches)


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize(("line", "kernel"), LINES.items())
def test_on_a_gpu(line, kernel):
    case = parse(line).on("cuda")
    mine = [c for c in backend.configurations(case.call) if c.kernel == kernel]
    assert mine
    some = mine[:: -(-len(mine) // 4)]  # each is a compilation
    assert all(judged_on(case, configuration=choice) for choice in some)
