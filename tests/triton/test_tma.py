"""Boxes through tensor maps: every row of the table, padding, groups, views, no leaks."""

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from forced import planned, run, verdict
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convref.case import Call, Case, Spec, axis_letters, channels_last, parse
from convref.conformance.operands import operands
from convref.conformance.strategies import problems
from convref.errors import ConvrefError

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.common.geometry import Tensor, geometry
from convref_triton.common.geometry import operands as layouts
from convref_triton.compile.specialize import specialize
from convref_triton.conv import tma
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import offered
from convref_triton.plan.launch import Descriptor, Launch
from convref_triton.plan.task import Task

FEW = settings(max_examples=settings.default.max_examples // 2)  # tiles have 64 channels


@st.composite
def wide_cases(draw):
    """Draw cases of stride 1 with as many channels as boxes and tiles need."""
    drawn = draw(problems(max_elements=100, max_macs=400, empty=False))
    groups, dgrad = draw(st.sampled_from([1, 1, 2])), draw(st.booleans())
    reduced = draw(st.sampled_from([8, 16, 40, 64, 72] if groups == 1 else [64, 128]))
    sides = groups * reduced, groups * draw(st.sampled_from([64, 65, 72, 130]))
    c, k = sides[::-1] if dgrad else sides
    ones, zeros = (1,) * drawn.rank, (0,) * drawn.rank
    try:
        problem = replace(drawn, c=c, k=k, groups=groups, stride=ones, output_padding=zeros)
    except ConvrefError:  # stride 1 may leave a transposed convolution no output
        assume(False)
    pass_ = "backward" if dgrad else draw(st.sampled_from(["fprop", "fprop", "jvp"]))
    plain = Call("conv", pass_, problem, (True, False, False) if dgrad else ())
    last, dtype = draw(st.booleans()), draw(st.sampled_from(["bf16", "f16"]))
    orders = [channels_last(axis_letters(problem, role)) if last else "" for role in plain.roles]
    call = replace(plain, specs=tuple(Spec(dtype, order) for order in orders))
    fill = draw(st.sampled_from(["int", "normal", "inf", "nan"]))
    return Case(call, fill, draw(st.integers(0, 99)))


@FEW
@given(wide_cases(), st.integers(0, 2**16))
def test_admitted_problems_are_correct(case, pick):
    told, admitted = verdict(case, tma, pick)
    assert told
    assert admitted == [role for role in case.call.wanted if prod(case.call.problem.shape(role))]


LINES = (
    "conv.fprop:n2c72k80_i5x6_f3x2_p1,0x2,1_d2x1:dt=f16:mem=nhwc:fill=int",
    "conv.fprop:n2c8k64_i3x4x5_f2x3x1_p1:flip=1:dt=bf16:fill=int",
    "conv.fprop:n3c72k65_i5x5_f1x1:dt=bf16:mem=x.nhwc.step2h,w.ohwi:fill=int",
    "conv.fprop:n1c128k160g2_i5x6_f3x3_p1:flip=1:dt=bf16:fill=int",
    "conv.dgrad:n1c160k128g2_i5x6_f3x3_p1:flip=1:dt=bf16:fill=int",
    "conv.dgrad:n2c70k64_i5x6_f3x3_p1,0x0,2_d1x2:dt=bf16:mem=nhwc:fill=int",
    "conv.jvp:n2c64k70_i9_f4_p-1,3:dt=bf16:fill=int",
)


@pytest.mark.parametrize("line", LINES)
def test_every_tile(line):
    case = parse(line)
    for pick in range(len(tma.SPEC.tiles(task(line)))):
        told, admitted = verdict(case, tma, pick)
        assert told
        assert admitted == list(case.call.wanted)


def task(line, arch="sm_90"):
    call = parse(line).call
    return Task(Builder(call, layouts(call)), geometry(call.conv), call.wanted[0], arch=arch)


@pytest.mark.parametrize("line", [LINES[0], LINES[5]])
def test_64_bit_offsets(monkeypatch, line):
    monkeypatch.setattr(tma, "LIMIT", 1)
    assert verdict(parse(line), tma)[0]


def test_infinities_do_not_spread():
    """The last channel of a tap, the first of the next, another group, pixels beyond the box."""
    case = parse("conv.fprop:n2c128k128g2_i3x5_f1x3:bias=0:dt=bf16:mem=nhwc:fill=int")
    x, w, b = operands(case)
    x, w = (array.copy() for array in (x, w))
    x[1, 64:], w[64:, :, 0, 1] = np.inf, np.inf
    found, _, admitted = run(case.call, (x, w, b), tma)
    assert admitted == ["y"]
    y = found["y"].float().numpy()
    assert np.isfinite(y[:, :64]).all()  # neither the other group's x nor its w
    assert not np.isfinite(y[:, 64:]).any()
    short = parse("conv.fprop:n1c72k64_i3x5_f1x3:bias=0:dt=bf16:mem=nhwc:fill=int")
    x, w, b = operands(short)
    w = w.copy()
    w[:, :, 0, 0] = 0
    w[:, :, 0, 1:] = np.inf  # behind the zeros that channel 72 is followed by
    y = run(short.call, (np.abs(x) + x.dtype.type(1), w, b), tma)[0]["y"].float().numpy()
    assert np.isposinf(y).all()


@pytest.mark.parametrize(
    ("line", "arch", "reason"),
    [
        (LINES[0], "sm_80", "sm_80 has no tensor maps"),
        (LINES[0], "gfx942", "gfx942 has no tensor maps"),
        ("conv.fprop:n1c64k64_i8x8_f3x3", "sm_90", "f32 is not a 16-bit dtype"),
        ("conv.fprop:n1c64k64_i8x8_f3x3_s2:dt=bf16", "sm_90", "boxes move with stride 1"),
        ("conv.fprop:n1c64k48_i8x8_f3x3:dt=bf16", "sm_90", "48 result channels"),
        ("conv.fprop:n1c68k64_i8x8_f3x3:dt=bf16", "sm_90", "rows of 68 channels"),
        ("conv.fprop:n1c144k128g2_i8x8_f3x3:dt=bf16", "sm_90", "rows of 72 channels"),
    ],
)
def test_refusals(line, arch, reason):
    assert tma.SPEC.refusal(task(line, arch)).startswith(reason)


@pytest.mark.parametrize(
    ("strides", "aligned", "fits"),
    [
        ((4 * 5 * 64, 1, 5 * 64, 64), True, True),
        ((4 * 5 * 64, 1, 5 * 64, 64), False, False),
        ((4 * 5 * 68, 1, 5 * 68, 68), True, False),  # not a multiple of 16 bytes
        ((4 * 5 * 72, 1, 5 * 72, 72), True, True),  # a slice of wider rows
        ((0, 1, 5 * 64, 64), True, False),  # expanded
        ((4 * 5 * 64, 1, 64, 4 * 64), True, False),  # h within w
        ((4 * 5 * 64, 5 * 4, 5, 1), True, False),
    ],
)
def test_is_mapped(strides, aligned, fits):
    assert tma.is_mapped(Tensor("x", (3, 64, 4, 5), strides, "bf16", aligned)) == fits


@given(st.tuples(*[st.integers(1, 60)] * 4), st.sampled_from([64, 128, 256]), st.integers(0, 3))
def test_boxes_cover_all_pixels_of_the_rank(pixels, size, rank):
    pixels = tuple(n if axis == 0 or axis > 3 - rank else 1 for axis, n in enumerate(pixels))
    box = tma.best_box(size, pixels, rank)
    assert prod(box) == size
    assert max(box) <= 256
    assert all(edge == 1 for axis, edge in enumerate(box) if 0 < axis <= 3 - rank)
    assert all(n * edge >= p for n, edge, p in zip(tma.in_boxes(pixels, box), box, pixels))


def test_few_box_shapes_are_compiled():
    keys = set()
    for n, c, k, d, h in product((1, 8, 64), (64, 192), (64, 128), (7, 28), (9, 40, 56)):
        call = parse(f"conv.fprop:n{n}c{c}k{k}_i{d}x{h}_f3x3_p1:dt=bf16:mem=nhwc").call
        (launch,) = planned(call, layouts(call), tma)[0].steps
        keys.add(specialize(launch).key)
    assert len(keys) <= len(tma.EDGES[2])


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("conv.dgrad:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=nhwc", False),
        ("conv.dgrad:n8c128k136_i28x28_f1x1:dt=bf16:mem=nhwc", False),
        ("conv.dgrad:n8c256k128g2_i28x28_f3x3_p1:dt=bf16:mem=nhwc", False),
        ("conv.fprop:n8c128k128_i28x28_f3x3_p1:t=1:dt=bf16:mem=nhwc", False),
        ("conv.dgrad:n8c100k128_i28x28_f3x3_p1:dt=bf16:mem=nhwc", True),  # taps are not aligned
        ("conv.dgrad:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=x.nhwc,dy.nhwc", True),
    ],
)
def test_filters_of_an_adjoint_are_read_as_they_are_stored(line, copied):
    call = parse(line).call
    copies = planned(call, layouts(call), tma)[0].copies
    assert [step.source for step in copies] == ["w"] * copied


def test_packed_weights_are_not_copied():
    call = parse("conv.fprop:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=nhwc").call
    (launch,) = planned(call, layouts(call), tma)[0].steps
    assert isinstance(launch, Launch)
    assert {type(launch.arguments[name]) for name in "xw"} == {Descriptor}


def test_tma_is_offered_on_sm_90_only():
    call = parse("conv.fprop:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=nhwc").call
    has = {
        arch: "tma" in {choice.kernel for choice in offered(call, layouts(call), arch)}
        for arch in ("sm_90", "sm_80")
    }
    assert has == {"sm_90": True, "sm_80": False}
