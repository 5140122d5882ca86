"""Taps that share blocks: the boxes that are cut; numbers by PTX, as in `test_gluon_numbers`."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from convref.case import parse
from convref.conformance.operands import operands as arrays_of
from convref.errors import ConvrefError

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.hopper.ring", reason="another Gluon", exc_type=ImportError)

import test_epilogue
import triton
from forced import facts, nightly
from test_gluon_numbers import FEW, check_case, planned, run, strided

from convref_triton import emulated
from convref_triton.common.geometry import Tensor, geometry, operands
from convref_triton.hopper import gluon, gluon_halo, halo
from convref_triton.plan import archs
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import offered, plan
from convref_triton.plan.task import Fusion, Task

pytestmark = pytest.mark.skipif(
    not gluon.KERNELS, reason=f"the kernels are not for the Gluon of Triton {triton.__version__}"
)
ONE = (gluon_halo.SPEC,)
LINES = (
    "conv.fprop:n2c72k80_i9x10_f3x2_p1,0x2,1_d2x1:dt=f16:mem=nhwc:fill=int",
    "conv.fprop:n2c8k130_i3x4x5_f2x3x1_p1:flip=1:dt=bf16:fill=int",
    "conv.fprop:n1c128k160g2_i5x6_f3x1_p1:flip=1:dt=bf16:fill=int",
    "conv.dgrad:n2c130k64_i9x10_f3x3_p1,0x0,2_d1x2:dt=bf16:mem=nhwc:fill=int",
    "conv.jvp:n9c64k70_i20_f4_p-1,3:dt=bf16:fill=int",
    "conv.fprop:n2c72k80_i9x11_f3x2_s1x3_p1,0x2,1:dt=bf16:mem=nhwc:fill=int",
    "conv.fprop:n2c72k264_i9x6_f1x5_s2x1_p0x1:dt=f16:mem=nhwc:fill=int",
    "conv.fprop:n3c64k66_i7x5x4_f3x1x2_p1,0x0,0x1,1:t=1:flip=1:dt=bf16:mem=nhwc:fill=int",
    "conv.dgrad:n1c128k128g2_i5x2x9_f1x2x3_p1:flip=1:dt=f16:mem=nhwc:fill=int",
    "conv.fprop:n1c136k136_i22x5_f3x1_p1x0:dt=bf16:mem=nhwc:fill=int",
)


def task(line, arch="sm_90"):
    """Return the task of a line with operands on a GPU."""
    call = parse(f"{line}:dev=cuda").call
    return Task(Builder(call, operands(call)), geometry(call.conv), call.wanted[0], arch=arch)


JVP = 4  # two launches, as in test_gluon_numbers.py


@pytest.mark.parametrize("number", [nightly(i) if i == JVP else i for i in range(len(LINES))])
def test_several_tiles_per_program(monkeypatch, number):
    monkeypatch.setattr(archs, "SMS", 1 + number % 2)
    check_case(parse(LINES[number]), number, late=number % 3 > 0, kernels=ONE)


def test_the_lines_go_around_the_rings_of_every_tile():
    around = set()
    for number, line in enumerate(LINES):
        call = parse(f"{line}:dev=cuda").call
        if number == JVP:
            continue
        made, _ = planned(call, operands(call), number, kernels=ONE)
        (launch,) = (step for step in made.launches if step.kernel is gluon_halo.gluon_halo)
        config, given = launch.constants["CONFIG"], launch.arguments
        taps = prod(given[f"taps_{axis}"] for axis in "dhw")
        columns = -(-given["K"] * config.vec[1] // config.bn)
        tiles = given["boxes"] * columns * given["groups"] // (1 + number % 2)
        if tiles * taps * -(-given["C"] // config.bk) > max(config.blocks, config.stages):
            around.add((config.bm, config.bn))
    assert around == {(t.bm, t.bn) for t in gluon_halo.TILES.fitting("bf16", "sm_90")}


def test_64_bit_offsets(monkeypatch):
    monkeypatch.setattr(gluon_halo, "LIMIT", 1)
    check_case(parse(LINES[0]), 3, kernels=ONE)


@st.composite
def shared(draw):
    """Draw cases as of other kernels, in which an axis has taps that are close together."""
    case = draw(strided())
    problem, role = case.call.problem, case.call.wanted[0]
    axis = draw(st.integers(0, problem.rank - 1))

    def put(values, value):
        return (*values[:axis], value, *values[axis + 1 :])

    scatter = Task(Builder(case.call, {}), geometry(problem), role).kind == "scatter"
    strides = (1,) * problem.rank if scatter else put(problem.stride, 1)
    changed = {
        "filter": put(problem.filter, draw(st.integers(2, 4))),
        "dilation": put(problem.dilation, draw(st.integers(1, 3))),
        "padding": put(problem.padding, (draw(st.integers(-1, 9)), draw(st.integers(4, 9)))),
        "stride": strides,
        "output_padding": (0,) * problem.rank,
    }
    try:
        problem = replace(problem, **changed)
    except ConvrefError:
        assume(False)
    return replace(case, call=replace(case.call, problem=problem))


@FEW
@given(shared(), st.integers(0, 99), st.integers(1, 3), st.booleans())
def test_admitted_problems_are_correct(case, pick, sms, late):
    assume(all(map(prod, (case.call.problem.shape(role) for role in case.call.wanted))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archs, "SMS", sms)
        check_case(case, pick, pick, late, ONE)


@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 70), min_size=1, max_size=3),
    st.data(),
)
def test_boxes_fit_shared_memory_and_tensor_maps(n, pixels, data):
    taps = [data.draw(st.integers(2, 5)) for _ in pixels]
    apart = [data.draw(st.integers(1, 9)) for _ in pixels]
    sizes = [p + (t - 1) * d for p, t, d in zip(pixels, taps, apart)]
    text = "conv.fprop:n{}c64k64_i{}_f{}_d{}:dt=bf16"
    line = text.format(n, *("x".join(map(str, values)) for values in (sizes, taps, apart)))
    made = task(line)
    for tile in gluon_halo.TILES.fitting("bf16", "sm_90"):
        if tile not in gluon_halo.SPEC.tiles(made):
            assert max(taps) > 3 or min(apart) > 1  # too far apart, or too much to store
            continue
        found, room = halo.cut(made, tile)
        line_pixels = prod(found.box[1:])
        assert prod(found.box) == tile.bm
        assert found.apart < found.box[0]  # or nothing would be shared
        assert line_pixels % halo.MIN_LINE == 0
        assert max(found.halo, *found.box[1:]) <= 256
        x = room.blocks * found.halo * line_pixels * tile.bk * 2
        w = room.stages * found.taps * tile.bn * tile.bk * 2
        assert room.blocks > 1
        assert room.stages > 0
        assert x + w + halo.SCRATCH < archs.shared("sm_90")


@pytest.mark.parametrize(
    ("line", "box"),
    [  # the shared axis, then images and the other one
        ("conv.fprop:n32c64k64_i56x56_f3x3_p1:dt=bf16:mem=nhwc", (8, 1, 2, 8)),
        ("conv.fprop:n1c512k512_i64x64_f3x3_p1:dt=bf16:mem=nhwc", (16, 1, 1, 8)),
        ("conv.fprop:n32c256k256_i14x14_f3x3_p1:dt=bf16:mem=nhwc", (16, 1, 4, 2)),
    ],
)
def test_chosen_boxes(line, box):
    made = task(line)
    (tile,) = (
        tile
        for tile in gluon_halo.TILES.fitting("bf16", "sm_90")
        if (tile.bm, tile.bn) == (128, 128)
    )
    assert halo.cut(made, tile)[0].box == box


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("conv.fprop:n1c64k64_i9x9_f1x1:dt=bf16", "no axis of stride 1"),
        ("conv.fprop:n1c64k64_i9x9_f3x3_s2:dt=bf16", "no axis of stride 1"),
        ("conv.fprop:n1c64k64_i90x90_f2x2_d40:dt=bf16", "no axis of stride 1"),
        ("conv.dgrad:n1c64k64_i9x9_f3x3_s1x2:dt=bf16", "an adjoint of stride 1"),
        ("conv.fprop:n1c64k64_i30x9_f1x3_s9x1:dt=bf16", "at most 8 apart"),
        ("conv.fprop:n1c64k64_i9x9_f3x3", "f32 is not a 16-bit dtype"),
    ],
)
def test_refusals(line, reason):
    assert reason in gluon_halo.SPEC.refusal(task(line))


def test_silu_with_the_full_epilogue(monkeypatch):
    monkeypatch.setattr(archs, "SMS", 1)
    case = parse("conv.fprop:n2c72k80_i6x5_f3x2_p1:dt=bf16:mem=nhwc:fill=normal:seed=5")
    extra = test_epilogue.drawn(case, test_epilogue.PARTS, 7)
    tensors, known = facts(case.call, arrays_of(case))
    known |= {n: Tensor(n, tuple(t.shape), t.stride(), "bf16") for n, t in extra.items()}
    fusion = Fusion(*test_epilogue.PARTS, activation="silu")
    made, _ = planned(case.call, known, 2, fusion, ONE)
    got = emulated.run(made, tensors | extra, late=True)["y"]
    test_epilogue.assert_within(case, got, *test_epilogue.expected(case, extra, "silu"))


def test_infinities_do_not_spread():
    """Another group's channels, and lines of a block that only other taps read."""
    case = parse("conv.fprop:n2c128k128g2_i9x5_f3x1:bias=0:dt=bf16:mem=nhwc:fill=int")
    x, w, b = arrays_of(case)
    x, w = (array.copy() for array in (x, w))
    x[1, 64:], w[64:, :, 1, 0] = np.inf, np.inf
    x[0, :64, 0] = np.inf  # which the first tap of the first line meets, and nothing else
    y = run(case.call, (x, np.abs(w) + w.dtype.type(1), b), 2, kernels=ONE)[0]["y"].float().numpy()
    assert np.isposinf(y[0, :64, 0]).all()
    assert np.isfinite(y[0, :64, 1:]).all()
    assert np.isfinite(y[1, :64]).all()
    assert not np.isfinite(y[:, 64:]).any()


def test_plan_reason_names_it():
    call = parse(f"{LINES[0]}:dev=cuda").call
    known = operands(call)
    (choice,) = (c for c in offered(call, known) if c.kernel == "gluon_halo" and c.tile.bn == 256)
    made = plan(call, known, choice)
    assert [step.kernel for step in made.launches] == [gluon_halo.gluon_halo]
    assert "gluon_halo 128x256x64" in made.reason
