"""Filter cotangents of 1x1 filters from NCHW: every tile, loads, choice, refusals."""

import pytest
from forced import (
    copies_of,
    facts,
    judged,
    planned,
    pointwise,
    regrouped,
    verdict,
    verdict_if_admitted,
    with_math,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import NEEDS_A_GPU
from judged import verdict as judged_on

from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton import emulated
from convref_triton.backend import backend
from convref_triton.common.geometry import operands as layouts
from convref_triton.compile import aot
from convref_triton.compile.inspection import inspect
from convref_triton.compile.specialize import specialize
from convref_triton.conv import planes_wgrad
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import expected, plan, tasks

CASES = cases(passes=["wgrad"], dtypes=("f32", "bf16", "f16"), max_elements=200, max_macs=2_000)
LINES = (
    "conv.wgrad:n2c72k200_i9x16_f1x1:dt=bf16:fill=normal",
    "conv.wgrad:n3c15k70_i14x14_f1x1:dt=f16:fill=inf",  # a step has pixels of two images
    "conv.wgrad:n3c70k15_i14x14_f1x1:dt=f16:fill=nan",  # rows are channels of x
    "conv.wgrad:n2c30k14g2_i4x5x2_f1:dt=bf16",
    "conv.wgrad:n3c16k24_i8x9_f1x1:t=1:flip=1:dt=f16:mem=x.step-2n.step2c",
    "conv.wgrad:n3c16k24_i12_f1:dt=bf16:mem=x.expandn.off8,dy.step3n",
    "conv.wgrad:n2c1k1_i4x4_f1x1:dt=bf16",
    "conv.wgrad:n4c40k24_i40x40_f1x1:dt=bf16:fill=normal",  # several splits
    "conv.wgrad:n3c70k15_i14x14_f1x1:fill=nan",
    "conv.wgrad:n3c15k70_i14x14_f1x1:math=tf32:fill=inf",
    "conv.wgrad:n3c72k33_i7x7_f1x1:math=tf32:fill=normal",  # a pixel at a time
    "conv.wgrad:n2c30k14g2_i3x7_f1x1:math=tf32x3:fill=normal",
)
REFUSED = {
    "conv.wgrad:n1c15k17_i4x5_f1x1:dt=bf16": None,
    "conv.wgrad:n0c15k17_i4x5_f1x1:dt=bf16": "no products",
    "conv.wgrad:n1c16k24_i7x7_f1x1": None,
    **dict.fromkeys(
        (
            "conv.wgrad:n2c16k24_i7x7_f1x1:dt=bf16",
            "conv.wgrad:n2c16k24_i4x8_f1x3_p0x1:dt=bf16",
            "conv.wgrad:n2c16k24_i4x8_f1x1_s2:dt=bf16",
            "conv.wgrad:n2c16k24_i4x8_f1x1:dt=bf16:mem=x.step2w",
            "conv.wgrad:n2c16k24_i4x8_f1x1:dt=bf16:mem=dy.step2h",
            "conv.wgrad:n2c16k24_i4x8_f1x1:dt=bf16:mem=dy.expandw",
            "conv.wgrad:n2c16k24_i4x8_f1x1:dt=bf16:mem=dy.off2",
            "conv.wgrad:n2c16k24_i4x8_f1x1:dt=bf16:mem=x.nhwc",
            "conv.wgrad:n2c16k24_i1x1_f1x1:dt=bf16",
            "conv.wgrad:n2c16k24_i3x5_f1x1:mem=dy.off1",
        ),
        "no vectors of pixels of a 1x1 filter",
    ),
}


def task_of(line):
    call = parse(line).call
    (task,) = tasks(Builder(call, layouts(call)))
    return task


@settings(max_examples=settings().max_examples // 4)
@given(CASES, st.tuples(*[st.integers(1, 3)] * 2), st.data(), st.integers(0, 8))
def test_every_tile_is_right(case, sizes, data, pick):
    (groups, images), channels = sizes, [data.draw(st.integers(1, 150)) for _ in range(2)]
    case = with_math(case, data)
    pixels = [data.draw(st.integers(1, 6)) for _ in case.call.problem.input]
    pixels[-1] *= data.draw(st.sampled_from([4, 8]))
    wanted = pointwise(regrouped(case, groups, *channels), images, tuple(pixels))
    assert verdict_if_admitted(wanted, planes_wgrad, pick)


@pytest.mark.parametrize("pick", range(9))
@pytest.mark.parametrize("line", LINES)
def test_lines_are_right(line, pick):
    told, admitted = verdict(parse(line), planes_wgrad, pick)
    assert admitted
    assert told


@pytest.mark.parametrize("pick", [0, 6])
@pytest.mark.parametrize("line", [LINES[0], LINES[2], *LINES[-5:]])
def test_the_ptx_is_right(line, pick):
    case = parse(line)
    arrays = operands(case)
    tensors, known = facts(case.call, arrays)
    made, admitted = planned(case.call, known, planes_wgrad, pick)
    assert admitted
    assert judged(case, arrays, emulated.run(made, tensors, late=pick > 0))


def test_64_bit_offsets(monkeypatch):
    monkeypatch.setattr(planes_wgrad, "LIMIT", 1)
    told, admitted = verdict(parse(LINES[1]), planes_wgrad)
    assert admitted
    assert told


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize(
    ("line", "load"),
    [
        ("i56x56_f1x1:dt=bf16", "16"),
        ("i14x14_f1x1:dt=bf16", "8"),
        ("i14x14_f1x1:math=tf32", "16"),
        ("i7x7_f1x1:math=tf32", "4"),
    ],
)
def test_a_thread_loads_vectors_of_pixels(arch, line, load):
    call = parse(f"conv.wgrad:n32c128k128_{line}").call
    made, _ = planned(call, layouts(call), planes_wgrad)
    assert not copies_of(made)
    found = inspect(aot.compile(specialize(made.launches[0]), arch))
    assert {*found.loop_loads} == {f"cp.async {load}"}
    assert [name[:5] for name in found.mma] == [{"sm_90": "wgmma", "sm_80": "mma.s"}[arch]]
    assert found.operands == ("SS" if arch == "sm_90" else "")
    assert not found.spills


@pytest.mark.parametrize("number", ["dt=bf16", "math=tf32", "math=ieee"])
def test_the_choice_copies_nothing(number):
    call = parse(f"conv.wgrad:n32c64k256_i56x56_f1x1:{number}:dev=cuda").call
    assert expected(task_of(str(call)))[0].kernel == "planes_wgrad"
    assert not copies_of(plan(call, layouts(call)))


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_refusals(line, reason):
    assert planes_wgrad.SPEC.refusal(task_of(line)) == reason


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize("line", LINES)
def test_on_a_gpu(line):
    case = parse(line).on("cuda")
    mine = [c for c in backend.configurations(case.call) if c.kernel == "planes_wgrad"]
    assert mine
    assert all(judged_on(case, configuration=choice) for choice in mine)
