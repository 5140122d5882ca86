"""Cotangents of filters whose taps share blocks: boxes, and numbers by PTX."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from convref.case import Call, Case, Spec, parse
from convref.conformance.operands import operands as arrays_of
from convref.ops import ConvProblem

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.hopper.ring", reason="another Gluon", exc_type=ImportError)

import torch
import triton
from test_gluon_halo import task
from test_gluon_numbers import FEW, check_case, run

from convref_triton.common.geometry import geometry, operands
from convref_triton.compile import aot
from convref_triton.compile.specialize import specialize
from convref_triton.hopper import gluon, gluon_halo_wgrad, gluon_wgrad
from convref_triton.plan import archs, cost
from convref_triton.plan.choose import offered, plan

pytestmark = pytest.mark.skipif(
    not gluon.KERNELS, reason=f"the kernels are not for the Gluon of Triton {triton.__version__}"
)
ONE = (gluon_halo_wgrad.SPEC,)
LINES = (
    "conv.wgrad:n5c72k64_i8x7_f3x1_p1x0:dt=bf16:mem=nhwc:fill=int",
    "conv.wgrad:n2c72k136_i8x8_f3x2_p1,1x1,0:dt=bf16:mem=nhwc:fill=int",
    "conv.wgrad:n6c128k144g2_i2x4x4_f1x1x3_p0,0x0,0x1,1:flip=1:dt=bf16:fill=int",
    "conv.wgrad:n70c64k64_i8_f3_p1:t=1:dt=f16:mem=nhwc:fill=int",
    "conv.wgrad:n20c64k64_i4x4_f1x5_p0x2:dt=bf16:mem=nhwc:fill=int",
    "conv.wgrad:n5c64k72_i11x14_f2x1_s1x2_p0x0_d3x1:dt=bf16:mem=nhwc:fill=int",
)


@pytest.mark.parametrize("number", range(len(LINES)))
def test_several_tiles_per_program(monkeypatch, number):
    monkeypatch.setattr(archs, "SMS", 1 + number % 2)
    check_case(parse(LINES[number]), number // 2, late=number % 3 > 0, kernels=ONE)


@pytest.mark.parametrize("pick", range(2))
def test_every_tile_wraps_around_its_ring_with_two_splits(monkeypatch, pick):
    """The second of two parts has seven boxes, of which one is not there."""
    monkeypatch.setattr(archs, "SMS", 1)
    monkeypatch.setattr(cost, "cut", lambda task, whole: (2, whole))
    case = parse("conv.wgrad:n100c72k72_i8_f2_p1,0:dt=bf16:mem=nhwc:fill=int")
    check_case(case, pick, seed=pick, late=bool(pick), kernels=ONE)


@pytest.mark.parametrize("size", [8, 14, 56])
def test_partial_sums_fit_shared_memory_beside_the_ring(size):
    """Those of a filter in several parts are stored as float32."""
    line = f"conv.wgrad:n32c256k256_i{size}x{size}_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda"
    call, known = parse(line).call, operands(parse(line).call)
    for choice in offered(call, known):
        if choice.kernel in ("gluon_wgrad", "gluon_halo_wgrad"):
            made = plan(call, known, choice).steps
            sizes = [aot.compile_ptx(specialize(s), "sm_90").metadata["shared"] for s in made]
            assert max(sizes) <= archs.shared("sm_90"), choice


def test_64_bit_offsets(monkeypatch):
    monkeypatch.setattr(gluon_wgrad, "LIMIT", 1)
    check_case(parse(LINES[0]), kernels=ONE)


def test_bits_repeat_in_any_schedule():
    case = parse(LINES[3].replace("fill=int", "fill=normal"))
    check_case(case, 1, kernels=ONE)
    found = [run(case.call, arrays_of(case), 1, seed, bool(seed), ONE)[0]["dw"] for seed in (0, 1)]
    assert torch.equal(*found)


def test_infinities_do_not_spread():
    """A halo's line that one tap reads, and pixels of images that there are not."""
    case = parse("conv.wgrad:n9c64k64_i10x1_f3x1:dt=bf16:mem=nhwc:fill=int")
    dy, x = arrays_of(case)[:2]
    x = np.abs(x)
    x[:, :, -1] = np.inf  # which the last tap alone meets
    dy = np.abs(dy) + dy.dtype.type(1)  # 1 alone makes float32 of it in ml_dtypes 0.4
    found, admitted = run(case.call, (dy, x, *arrays_of(case)[2:]), kernels=ONE)
    assert admitted == ["dw"]
    met = np.isposinf(found["dw"].float().numpy())
    assert met[:, :, -1].all()
    assert met.sum() == met[:, :, -1].size
    assert np.isfinite(found["dw"].float().numpy()[~met]).all()


@st.composite
def shared(draw):
    """Draw cases whose boxes end with the pixels."""
    rank = draw(st.integers(1, 3))
    axis = draw(st.integers(0, rank - 1))
    first = draw(st.sampled_from([4, 8]))
    edges = [draw(st.sampled_from([1, 2])) for _ in range(rank)]
    edges[axis] = first
    output = [edge * draw(st.integers(1, 2)) for edge in edges]
    taps = [draw(st.integers(1, 2)) for _ in range(rank)]
    stride = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 3)) for _ in range(rank)]
    taps[axis], stride[axis] = draw(st.integers(2, 4)), 1
    reach = [(t - 1) * d + 1 for t, d in zip(taps, dilation)]
    lo = [draw(st.integers(-1, 2)) for _ in range(rank)]
    hi = [max(0, r - 1 - low) for r, low in zip(reach, lo)]
    spans = [(o - 1) * s + r for o, s, r in zip(output, stride, reach)]
    sizes = [span - low - high for span, low, high in zip(spans, lo, hi)]
    assume(min(sizes) > 0)
    c, k = (draw(st.sampled_from([64, 72, 136])) for _ in range(2))
    problem = ConvProblem(
        n=64 // prod(edges) + draw(st.integers(0, 1)),
        c=c,
        k=k,
        input=tuple(sizes),
        filter=tuple(taps),
        stride=tuple(stride),
        padding=tuple(zip(lo, hi)),
        dilation=tuple(dilation),
    )
    dtype = draw(st.sampled_from(["bf16", "f16"]))
    call = Call("conv", "backward", problem, (False, True, False))
    call = replace(call, specs=tuple(Spec(dtype) for _ in call.roles))
    return Case(call, draw(st.sampled_from(["int", "normal", "inf"])), draw(st.integers(0, 99)))


@FEW
@given(shared(), st.integers(0, 99), st.integers(1, 3), st.booleans())
def test_admitted_problems_are_correct(case, pick, sms, late):
    found = gluon_halo_wgrad.sharing(geometry(case.call.conv))
    assert found is not None
    assert prod(found.box) == gluon_wgrad.DEPTH
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archs, "SMS", sms)
        check_case(case, pick, pick, late, ONE)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("conv.wgrad:n64c64k64_i8x8_f1x1:dt=bf16", "no axis of stride 1"),
        ("conv.wgrad:n64c64k64_i9x9_f3x3_s2_p1:dt=bf16", "no axis of stride 1"),
        ("conv.wgrad:n64c64k64_i7x7_f3x3_p1:dt=bf16", "no axis of stride 1"),  # no box ends with 7
        ("conv.wgrad:n64c64k64_i13_f6:dt=bf16", "no axis of stride 1"),  # sums of six taps
        ("conv.wgrad:n64c32k64_i8x8_f3x3_p1:dt=bf16", "do not fill a tile"),
        ("conv.wgrad:n64c64k64_i8x80_f3x3_s1x9_p1:dt=bf16", "at most 8 apart"),
    ],
)
def test_refusals(line, reason):
    assert reason in gluon_halo_wgrad.SPEC.refusal(task(line))
