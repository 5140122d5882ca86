"""Results in NCHW, stored as they are: every tile, what is loaded and stored, choice, refusals."""

import pytest
from forced import (
    copies_of,
    facts,
    judged,
    pointwise,
    regrouped,
    verdict,
    verdict_if_admitted,
    with_math,
)
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

TILES = len(planes.TILES.rows["f16 bf16"])
PICKS = st.integers(0, TILES - 1)
CASES = cases(
    passes=["fprop", "jvp", "dgrad"],
    dtypes=("f32", "bf16", "f16"),
    max_elements=200,
    max_macs=2_000,
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
    "conv.fprop:n2c16k24_i12x12_f3x3_p1:fill=inf",
    "conv.dgrad:n2c40k24g2_i9x8_f3x3_p1:math=tf32:fill=nan",
    "conv.jvp:n2c16k104_i9_f3_p1:math=tf32x3:fill=normal",
)
IN_PLACE = (  # 1x1 filters, with the pixels of x that are one vector
    ("conv.fprop:n2c72k24_i9x16_f1x1:dt=bf16:fill=normal", 8),  # two tiles an image
    ("conv.fprop:n3c16k200_i14x14_f1x1:dt=f16:fill=inf", 4),
    ("conv.dgrad:n2c40k24_i5x8_f1x1:dt=bf16:fill=nan", 8),
    ("conv.dgrad:n2c48k32g2_i4x5x2_f1:dt=f16", 8),
    ("conv.fprop:n3c16k24_i8x9_f1x1:t=1:flip=1:dt=f16:mem=x.step-2n.step2c", 8),
    ("conv.fprop:n3c16k24_i12_f1:dt=bf16:mem=x.expandn.off8,b.step2o", 4),
    ("conv.fprop:n2c16k24_i4x4_f1x1:dt=bf16:mem=x.expandc", 8),
    ("conv.jvp:n2c72k104_i20_f1:dt=bf16:fill=inf", 4),
    ("conv.fprop:n3c16k200_i14x14_f1x1:fill=inf", 4),
    ("conv.fprop:n3c72k24_i14x14_f1x1:math=tf32:fill=nan", 4),
    ("conv.fprop:n3c20k36_i7x7_f1x1:t=1:flip=1:math=tf32:fill=normal", 1),
    ("conv.dgrad:n2c48k72g2_i5x6_f1x1:math=tf32:fill=inf", 2),
    ("conv.jvp:n2c36k20_i20_f1:math=tf32:fill=normal", 4),
    ("conv.dgrad:n2c48k72_i7x7_f1x1:math=tf32x3:fill=normal", 1),
)
COPIED = (  # x is copied: pixels are odd, strided, apart, misaligned, innermost channels
    "conv.fprop:n2c16k24_i7x7_f1x1:dt=bf16",
    "conv.fprop:n2c16k24_i4x8_f1x1:dt=bf16:mem=x.step2w",
    "conv.fprop:n2c16k24_i4x8_f1x1:dt=bf16:mem=x.step2h",
    "conv.fprop:n2c16k24_i4x8_f1x1:dt=bf16:mem=x.step-1w.off7",
    "conv.fprop:n2c16k24_i4x8_f1x1:dt=bf16:mem=x.expandw",
    "conv.fprop:n2c16k24_i4x8_f1x1:dt=bf16:mem=x.off2",
    "conv.fprop:n2c16k24_i4x8_f1x1_s2:dt=bf16",
    "conv.dgrad:n2c16k24_i4x8_f1x1_p1:dt=f16",
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
@given(CASES, st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 14)), st.data(), PICKS)
def test_every_tile_is_right(case, sizes, data, pick):
    groups, big, small = sizes
    wanted = regrouped(with_math(case, data), groups, 8 * big, 8 * small)
    assert verdict_if_admitted(wanted, planes, pick)


@settings(max_examples=settings().max_examples // 4)
@given(CASES, st.tuples(*[st.integers(1, 2)] * 2), st.data(), PICKS)
def test_every_tile_is_right_in_place(case, sizes, data, pick):
    (groups, images), channels = sizes, [8 * data.draw(st.integers(1, 14)) for _ in range(2)]
    case = with_math(case, data)
    pixels = [data.draw(st.integers(1, 6)) for _ in case.call.problem.input]
    pixels[-1] *= data.draw(st.sampled_from([4, 8]))
    wanted = pointwise(regrouped(case, groups, *channels), images, tuple(pixels))
    assert verdict_if_admitted(wanted, planes, pick)


@pytest.mark.parametrize("pick", range(TILES))
@pytest.mark.parametrize("line", [*LINES, *(line for line, _ in IN_PLACE), *COPIED])
def test_lines_are_right(line, pick):
    told, admitted = verdict(parse(line), planes, pick)
    assert admitted
    assert told


def launches(line):
    """Return the launches of the kernel for a line, and the operands that are copied."""
    made = planned(line)
    found = [step for step in made.launches if step.kernel is planes.planes]
    return found, [source for source, _ in copies_of(made)]


@pytest.mark.parametrize(("line", "run"), IN_PLACE)
def test_pixels_of_a_plane_are_read_as_they_are(line, run):
    found, copied = launches(line)
    assert not {"x", "dy", "x_dot"} & {*copied}
    assert all(one.constants["ALIKE"] and one.constants["VEC"][0] == run for one in found)


@pytest.mark.parametrize("line", COPIED)
def test_other_pixels_are_copied(line):
    found, copied = launches(line)
    assert {"x", "dy"} & {*copied}
    assert not any(one.constants["ALIKE"] for one in found)


def test_pairs_of_other_strides_are_copied():
    line = "conv.jvp:n2c16k24_i4x8_f1x1:dt=bf16:mem=x.step2c:fill=normal"
    found, copied = launches(line)
    assert [one.constants["ALIKE"] for one in found] == [True, False]
    assert {*copied} == {"x", "x_dot"}
    assert verdict(parse(line), planes)[0]


@pytest.mark.parametrize("pick", [0, 3, 6])
@pytest.mark.parametrize(
    "line",
    [
        LINES[0],
        LINES[3],
        LINES[-2],
        IN_PLACE[0][0],
        IN_PLACE[1][0],
        *(line for line, _ in IN_PLACE[-6:]),
    ],
)
def test_the_ptx_is_right(line, pick):
    case = parse(line)
    arrays = operands(case)
    tensors, known = facts(case.call, arrays)
    made, admitted = planned_on(case.call, known, planes, pick)
    found = emulated.run(made, tensors, late=pick > 0)
    assert admitted
    assert judged(case, arrays, {name.removesuffix(NEW): t for name, t in found.items()})


@pytest.mark.parametrize("line", [LINES[3], IN_PLACE[2][0]])
def test_64_bit_offsets(monkeypatch, line):
    monkeypatch.setattr(gather, "LIMIT", 1)
    told, admitted = verdict(parse(line), planes)
    assert admitted
    assert told


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
def test_a_thread_stores_16_bytes_of_a_channel(arch):
    made = planned("conv.fprop:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=w.ohwi")
    (launch,) = (step for step in made.launches if step.kernel is planes.planes)
    found = inspect(aot.compile(specialize(launch), arch))
    assert list(found.stores) == ["STG 16"]
    assert not found.spills


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize(
    ("line", "load"),
    [
        ("fprop:n8c128k128_i56x56_f1x1:dt=bf16", "16"),
        ("fprop:n8c128k128_i14x14_f1x1:dt=bf16", "8"),
        ("fprop:n8c128k128_i14x14_f1x1:math=tf32", "16"),
        ("dgrad:n8c128k128_i14x14_f1x1:math=tf32", "16"),
        ("dgrad:n8c128k128_i7x7_f1x1:math=tf32", "4"),
    ],
)
def test_a_thread_loads_vectors_of_pixels(arch, line, load):
    (launch,), _ = launches(f"conv.{line}")
    found = inspect(aot.compile(specialize(launch), arch))
    assert {*found.loop_loads} == {f"cp.async {load}", "cp.async 16"}
    assert [name[:5] for name in found.mma] == [{"sm_90": "wgmma", "sm_80": "mma.s"}[arch]]
    if arch == "sm_90":
        assert found.operands == ("RS" if "tf32" in line else "SS")
    assert not found.spills
    assert not found.overwritten


@pytest.mark.parametrize(
    ("pass_", "number", "copied"),
    [
        ("fprop", "dt=bf16", []),
        ("dgrad", "dt=bf16", []),
        ("fprop", "math=ieee", []),
        ("dgrad", "math=ieee", []),
        ("fprop", "math=tf32", []),
        ("dgrad", "math=tf32", ["w"]),  # wgmma takes filters of tf32 along the sum only
    ],
)
def test_1x1_filters_copy_no_pixels(pass_, number, copied):
    line = f"conv.{pass_}:n32c64k256_i56x56_f1x1:{number}:dev=cuda"
    call = parse(line).call
    made = plan(call, layouts(call))
    assert made.launches[-1].kernel is planes.planes
    assert [source for source, _ in copies_of(made)] == copied


def test_the_result_is_not_copied():
    line = "conv.fprop:n8c64k64_i56x56_f3x3_p1:dt=bf16:mem=w.ohwi:dev=cuda"
    assert [source for source, _ in copies_of(planned(line))] == ["x"]
    assert expected(task_of(line))[0].kernel == "planes"


REFUSED = {
    "conv.fprop:n1c16k96_i9_f3:dt=bf16": None,
    "conv.fprop:n1c16k100_i9_f3": None,
    "conv.fprop:n1c16k98_i9_f3": "(16, 98) channels share no vector of 16 bytes",
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
@pytest.mark.parametrize("line", [*LINES, *(line for line, _ in IN_PLACE)])
def test_on_a_gpu(line):
    case = parse(line).on("cuda")
    mine = [c for c in backend.configurations(case.call) if c.kernel == "planes"]
    assert mine
    assert all(judged_on(case, configuration=choice) for choice in mine)
