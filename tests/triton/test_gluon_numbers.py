"""Results of the kernels in Gluon: the PTX for a GPU, run by the interpreter.

A program gets several tiles where there are few multiprocessors, so that the ring of blocks goes
round, tiles begin in any slot of it, and warp groups take turns.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convref.case import Call, Case, Spec, parse
from convref.conformance.operands import operands as arrays_of
from convref.errors import ConvrefError
from convref.ops import ConvProblem

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.hopper.ring", reason="another Gluon", exc_type=ImportError)

import test_epilogue
import triton
from forced import facts, judged, nightly
from test_tma import wide_cases

from convref_triton import emulated
from convref_triton.common.geometry import Tensor, geometry
from convref_triton.conv import tma
from convref_triton.hopper import gluon, gluon_fprop, gluon_wgrad
from convref_triton.plan import archs, cost
from convref_triton.plan.builder import Builder
from convref_triton.plan.task import UNFUSED, Fusion, Task

pytestmark = pytest.mark.skipif(
    not gluon.KERNELS, reason=f"the kernels are not for the Gluon of Triton {triton.__version__}"
)
BOTH = (gluon_fprop.SPEC, gluon_wgrad.SPEC)  # those that take no other's tasks
FEW = settings(max_examples=max(settings.default.max_examples // 40, 2))


def planned(call, known, pick, fusion=UNFUSED, kernels=BOTH):
    """Return the plan for each result of a call that one of the kernels admits, and those."""
    builder, admitted = Builder(call.on("cuda"), known), []
    for role in call.wanted:
        task = Task(builder, geometry(call.conv), role, fusion)
        for kernel in kernels:
            if task.kind in kernel.serves and kernel.refusal(task) is None:
                rows = kernel.tiles(task)
                kernel.add(task, rows[pick % len(rows)])
                admitted.append(role)
    return builder.plan(), admitted


def run(call, arrays, pick=0, seed=0, late=False, kernels=BOTH):
    """Return (results by role, roles that were admitted)."""
    tensors, known = facts(call, arrays)
    plan, admitted = planned(call, known, pick, kernels=kernels)
    return emulated.run(plan, tensors, seed, late), admitted


def check_case(case, pick=0, seed=0, late=False, kernels=BOTH):
    """Judge the one result of a case, computed by one of the kernels."""
    arrays = arrays_of(case)
    found, admitted = run(case.call, arrays, pick, seed, late, kernels)
    assert admitted == list(case.call.wanted)
    assert judged(case, arrays, found)


LINES = (
    "conv.fprop:n2c72k80_i9x10_f3x2_p1,0x2,1_d2x1:dt=f16:mem=nhwc:fill=int",
    "conv.fprop:n2c8k130_i3x4x5_f2x3x1_p1:flip=1:dt=bf16:fill=int",
    "conv.fprop:n3c72k65_i15x15_f1x1:dt=bf16:mem=x.nhwc.step2h,w.ohwi:fill=int",
    "conv.fprop:n1c128k160g2_i5x6_f3x1_p1:flip=1:dt=bf16:fill=int",
    "conv.dgrad:n2c130k64_i9x10_f3x3_p1,0x0,2_d1x2:dt=bf16:mem=nhwc:fill=int",
    "conv.jvp:n2c64k70_i90_f4_p-1,3:dt=bf16:fill=int",
    "conv.fprop:n2c72k80_i9x11_f3x2_s2x3_p1,0x2,1:dt=bf16:mem=nhwc:fill=int",
    "conv.dgrad:n2c70k64_i9x8_f3x2_s2x3_p1,0x0,1_d1x2:flip=1:dt=bf16:mem=nhwc:fill=int",
    "conv.fprop:n2c64k72_i5x6_f1x3_s2_p0x1:t=1:dt=f16:mem=nhwc:fill=int",
    "conv.wgrad:n9c72k64_i15x7_f3x1_s2_p1x0:dt=bf16:mem=nhwc:fill=int",
    "conv.wgrad:n3c72k136_i8x12_f3x2_p1,1x1,0:dt=bf16:mem=nhwc:fill=int",
    "conv.wgrad:n5c80k64_i9x7_f1x1:dt=f16:mem=nhwc:fill=int",
    "conv.wgrad:n6c128k144g2_i2x4x4_f1x1x3_p0,0x0,0x2,0:flip=1:dt=bf16:fill=int",
    "conv.wgrad:n70c64k64_i8_f3_p1:t=1:dt=f16:mem=nhwc:fill=int",
)


@pytest.mark.parametrize("activation", [nightly("relu"), nightly("silu"), "gelu", "hardswish"])
def test_activations_and_parts_of_an_epilogue(monkeypatch, activation):
    monkeypatch.setattr(archs, "SMS", 1)
    case = parse("conv.fprop:n2c72k80_i6x5_f3x2_p1:dt=bf16:mem=nhwc:fill=normal:seed=5")
    extra = test_epilogue.drawn(case, test_epilogue.PARTS, 7)
    tensors, known = facts(case.call, arrays_of(case))
    known |= {n: Tensor(n, tuple(t.shape), t.stride(), "bf16") for n, t in extra.items()}
    fusion = Fusion(*test_epilogue.PARTS, activation=activation)
    plan, _ = planned(case.call, known, 2, fusion)
    got = emulated.run(plan, tensors | extra, late=True)["y"]
    test_epilogue.assert_within(case, got, *test_epilogue.expected(case, extra, activation))


@pytest.mark.parametrize("number", range(len(LINES)))
def test_several_tiles_per_program(monkeypatch, number):
    monkeypatch.setattr(archs, "SMS", 1 + number % 2)
    check_case(parse(LINES[number]), number // 2, late=number % 3 > 0)


@pytest.mark.parametrize("number", [0, 7, 10])
def test_64_bit_offsets(monkeypatch, number):
    for module in (tma, gluon_wgrad):
        monkeypatch.setattr(module, "LIMIT", 1)
    check_case(parse(LINES[number]), 3)


@st.composite
def strided(draw):
    """Draw cases as for boxes, with any stride that leaves a result and at most 16 classes."""
    case = draw(wide_cases())
    rank = case.call.problem.rank
    stride = draw(st.lists(st.integers(1, 4 if rank < 3 else 2), min_size=rank, max_size=rank))
    try:
        problem = replace(case.call.problem, stride=tuple(stride))
    except ConvrefError:
        return case
    return replace(case, call=replace(case.call, problem=problem))


@FEW
@given(strided(), st.integers(0, 99), st.integers(1, 3), st.booleans())
def test_admitted_problems_are_correct(case, pick, sms, late):
    assume(all(map(prod, (case.call.problem.shape(role) for role in case.call.wanted))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archs, "SMS", sms)
        check_case(case, pick, pick, late)


@st.composite
def filters(draw):
    """Draw cases of a filter's cotangent, whose boxes end with the pixels."""
    rank = draw(st.integers(1, 3))
    rows = [edges for edges in tma.EDGES[rank] if prod(edges) <= gluon_wgrad.DEPTH]
    edges = draw(st.sampled_from(rows))[3 - rank :]
    output = [edge * draw(st.integers(1, 2)) for edge in edges]
    taps = draw(st.lists(st.integers(1, 3 if rank == 1 else 2), min_size=rank, max_size=rank))
    lo = draw(st.lists(st.integers(-1, 2), min_size=rank, max_size=rank))
    dilation = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    stride = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    reach = [(t - 1) * d + 1 for t, d in zip(taps, dilation)]
    hi = [max(0, r - 1 - low) for r, low in zip(reach, lo)]
    spans = [(o - 1) * s + r for o, s, r in zip(output, stride, reach)]
    sizes = [span - low - high for span, low, high in zip(spans, lo, hi)]
    assume(min(sizes) > 0)
    images = gluon_wgrad.DEPTH // prod(edges) + draw(st.integers(0, 3))
    c, k = (draw(st.sampled_from([64, 72, 136])) for _ in range(2))
    problem = ConvProblem(
        n=images,
        c=c,
        k=k,
        input=tuple(sizes),
        filter=tuple(taps),
        stride=tuple(stride),
        padding=tuple(zip(lo, hi)),
        dilation=tuple(dilation),
    )
    call = Call("conv", "backward", problem, (False, True, False))
    dtype = draw(st.sampled_from(["bf16", "f16"]))
    call = replace(call, specs=tuple(Spec(dtype) for _ in call.roles))
    return Case(call, draw(st.sampled_from(["int", "normal", "inf"])), draw(st.integers(0, 99)))


@FEW
@given(filters(), st.integers(0, 99), st.integers(1, 3), st.booleans())
def test_wgrad_is_correct(case, pick, sms, late):
    assert gluon_wgrad.boxes_of(geometry(case.call.conv)) is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archs, "SMS", sms)
        check_case(case, pick, pick, late)


def test_bits_repeat_in_any_schedule(monkeypatch):
    """Three parts of five boxes: the last one has a box that is not there."""
    monkeypatch.setattr(cost, "cut", lambda task, whole: (3, whole))
    case = parse("conv.wgrad:n20c64k64_i4x4_f1x3_p0x1:dt=bf16:mem=nhwc:fill=normal")
    check_case(case, 3)
    arrays = arrays_of(case)
    found = [run(case.call, arrays, 3, seed, late)[0] for seed, late in ((0, False), (1, True))]
    assert found[0]["dw.parts"].shape[0] == 3
    for name in ("dw", "dw.parts"):
        assert torch.equal(*(results[name] for results in found))


def test_infinities_do_not_spread():
    """Another group's channels, and pixels of b beyond the last of a."""
    case = parse("conv.fprop:n2c128k128g2_i3x5_f1x3:bias=0:dt=bf16:mem=nhwc:fill=int")
    x, w, b = arrays_of(case)
    x, w = (array.copy() for array in (x, w))
    x[1, 64:], w[64:, :, 0, 1] = np.inf, np.inf
    y = run(case.call, (x, w, b), 2)[0]["y"].float().numpy()
    assert np.isfinite(y[:, :64]).all()
    assert not np.isfinite(y[:, 64:]).any()
    case = parse("conv.wgrad:n9c64k64_i4x6_f3x3:dt=bf16:mem=nhwc:fill=int")
    dy, x = arrays_of(case)[:2]
    x = np.abs(x)
    x[:, :, -1, -1] = np.inf  # which the last tap alone meets, at the last pixel of dy
    dy = np.abs(dy) + dy.dtype.type(1)
    found, admitted = run(case.call, (dy, x, *arrays_of(case)[2:]), 3)
    assert admitted == ["dw"]
    met = np.isposinf(found["dw"].float().numpy())
    assert met[:, :, -1, -1].all()
    assert met.sum() == met[:, :, -1, -1].size
    assert np.isfinite(found["dw"].float().numpy()[~met]).all()


def test_residual():
    case = parse("conv.fprop:n2c8k72_i9x9_f1x1:dt=bf16:mem=nhwc:fill=int")
    tensors, known = facts(case.call, arrays_of(case))
    z = torch.randint(-9, 10, (2, 72, 9, 9)).bfloat16().to(memory_format=torch.channels_last)
    known["z"] = known["x"]._replace(role="z", shape=tuple(z.shape), strides=z.stride())
    plan, _ = planned(case.call, known, 0, Fusion(residual="z"))
    found = emulated.run(plan, {**tensors, "z": z})["y"]
    x, w, b = (tensors[role].double() for role in ("x", "w", "b"))
    sums = torch.nn.functional.conv2d(x, w, b) + z.double()
    assert torch.equal(found, sums.bfloat16())


def test_tiles_are_cooperative_and_ping_pong():
    assert {
        gluon_fprop.ring.readers(tile.bm, tile.bn)
        for tile in gluon_fprop.TILES.fitting("bf16", "sm_90")
    } == {1, 2}
