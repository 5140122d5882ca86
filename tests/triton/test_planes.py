"""Results in NCHW, stored as they are: every tile, what is stored, choice, refusals."""

import pytest
from forced import copies_of, facts, judged, regrouped, verdict, verdict_if_admitted
from forced import planned as planned_on
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
from convref_triton.conv import gather, planes
from convref_triton.plan.builder import NEW, Builder
from convref_triton.plan.choose import expected, offered, plan, tasks

CASES = cases(
    passes=["fprop", "jvp", "dgrad"], dtypes=("bf16", "f16"), max_elements=200, max_macs=2_000
)
LINES = (
    "conv.fprop:n2c16k24_i12x12_f3x3_p1:dt=bf16:mem=w.ohwi:fill=normal",  # two tiles an image
    "conv.fprop:n3c72k200_i9x7_f1x1:dt=f16:fill=inf",
    "conv.fprop:n1c16k24_i9x16_f1x1:dt=f16:mem=w.ohwi",
    "conv.dgrad:n2c40k24_i9x8_f3x3_p1:dt=bf16:fill=nan",
    "conv.dgrad:n2c96k8_i4x5x6_f2_d2:dt=f16:mem=w.odhwi",
    "conv.fprop:n2c16k48g2_i5_f3_s2:flip=1:dt=bf16:mem=x.step2w",
    "conv.fprop:n2c8k16_i6x5_f3x3_p1:t=1:dt=bf16:fill=normal",
    "conv.jvp:n2c16k104_i9_f3_p1:dt=bf16:fill=normal",
)


def task_of(line):
    call = parse(line).call
    (task,) = tasks(Builder(call, layouts(call)))
    return task


def planned(line):
    """Return the plan of a line with the kernel on its first tile."""
    call = parse(line).call
    known = layouts(call)
    return plan(call, known, next(c for c in offered(call, known) if c.kernel == "planes"))


@settings(max_examples=settings().max_examples // 4)
@given(CASES, st.integers(1, 2), st.integers(1, 9), st.integers(1, 14), st.integers(0, 4))
def test_every_tile_is_right(case, groups, big, small, pick):
    assert verdict_if_admitted(regrouped(case, groups, 8 * big, 8 * small), planes, pick)


@pytest.mark.parametrize("pick", range(5))
@pytest.mark.parametrize("line", LINES)
def test_lines_are_right(line, pick):
    told, admitted = verdict(parse(line), planes, pick)
    assert admitted
    assert told


@pytest.mark.parametrize("pick", [0, 3])
def test_the_ptx_is_right(pick):
    case = parse(LINES[pick])
    arrays = operands(case)
    tensors, known = facts(case.call, arrays)
    made, admitted = planned_on(case.call, known, planes, pick)
    found = emulated.run(made, tensors, late=pick > 0)
    assert admitted
    assert judged(case, arrays, {name.removesuffix(NEW): t for name, t in found.items()})


def test_64_bit_offsets(monkeypatch):
    monkeypatch.setattr(gather, "LIMIT", 1)
    told, admitted = verdict(parse(LINES[3]), planes)
    assert admitted
    assert told


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
def test_a_thread_stores_16_bytes_of_a_channel(arch):
    made = planned("conv.fprop:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=w.ohwi")
    (launch,) = (step for step in made.launches if step.kernel is planes.planes)
    found = inspect(aot.compile(specialize(launch), arch))
    assert list(found.stores) == ["STG 16"]
    assert not found.spills


def test_the_result_is_not_copied():
    line = "conv.fprop:n8c64k64_i56x56_f3x3_p1:dt=bf16:mem=w.ohwi:dev=cuda"
    assert [source for source, _ in copies_of(planned(line))] == ["x"]
    assert expected(task_of(line))[0].kernel == "planes"


REFUSED = {
    "conv.fprop:n1c16k96_i9_f3:dt=bf16": None,
    "conv.fprop:n1c16k96_i9_f3": "f32: 16-bit products only",
    "conv.fprop:n1c16k100_i9_f3:dt=bf16": "(16, 100) channels share no vector of 16 bytes",
    "conv.fprop:n1c16k96_i9x9_f3x3:dt=bf16:mem=nhwc": "channels of the result are contiguous",
    "conv.dgrad:n1c16k96_i9_f3_s2_p1:dt=bf16": "an adjoint of stride 1",
    "conv.fprop:n1c8k1024_i2048x1024_f1x1:dt=bf16": "2**31 elements of an image or more",
}


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_refusals(line, reason):
    assert planes.SPEC.refusal(task_of(line)) == reason


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize("line", LINES)
def test_on_a_gpu(line):
    case = parse(line).on("cuda")
    mine = [c for c in backend.configurations(case.call) if c.kernel == "planes"]
    assert mine
    assert all(judged_on(case, configuration=choice) for choice in mine)
