"""Convolutions of 8-bit numbers against their loops, against ONNX's evaluator and by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import Phase, given, settings

import convref
from convref import ConvrefError, oracle
from convref.arrays import to_numpy, to_torch
from convref.case import FILLS, parse
from convref.conformance.examine import examine
from convref.conformance.fills import available, values
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.dispatch import load
from convref.dtypes import EIGHT, numpy_dtype
from convref.judge import Numerics, judge
from convref.oracle import quantized

OPS = ("conv_integer", "quantized_conv")
CARD = Numerics("mma32", bits=13, promoted=128)  # of 8-bit floats


def campaign(op, phases=tuple(Phase)):
    """Compare the formula with its loops, bit for bit."""

    @settings(max_examples=settings.default.max_examples // 2, phases=phases)
    @given(cases([op], dtypes=["i8", "u8"], max_elements=60, max_macs=300))
    def run(case):
        arrays = operands(case)
        (got,), (want,) = (
            evaluate(case.call, *arrays) for evaluate in (oracle.evaluate, load("loops").run)
        )
        assert got.dtype == want.dtype, str(case)
        assert np.array_equal(got, want), str(case)

    run()


@pytest.mark.parametrize("op", OPS)
def test_loops(op):
    campaign(op)


WRONG = {
    "halves away from zero": ("rint", lambda v: np.trunc(v + np.copysign(0.5, v))),
    "values that wrap": ("clip", lambda v, least, most: v % 256 - 256 * (v % 256 > most)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rounding_fails(monkeypatch, name):
    function, wrong = WRONG[name]
    monkeypatch.setattr(quantized.np, function, wrong)
    with pytest.raises(AssertionError, match="quantized_conv"):
        campaign("quantized_conv", phases=(Phase.generate,))


def test_halves_go_to_even_and_the_range_ends():
    x, w = np.array([[[1, 3, 5, 255, 0]]], np.uint8), np.array([[[1]]], np.int8)
    y = convref.quantized_conv(x, 0.25, 0, w, 2.0, 0, 1.0, 130, np.array([0], np.int32))
    assert y.tolist() == [[[130, 132, 132, 255, 130]]]
    x = x.astype(np.int8)
    assert convref.quantized_conv(x, 1.0, 0, w, 40.0, 0, 1.0, -100).tolist() == [
        [[-60, 20, 100, -128, -100]]
    ]


def test_types_may_differ_and_channels_have_zero_points():
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (2, 4, 6)), rng.integers(-128, 128, (6, 2, 3))
    zeros = np.array([-7, 0, 9, 127, -128, 3])
    want = convref.conv1d(
        np.pad(x - 5, ((0, 0), (0, 0), (2, 1))), w - zeros[:, None, None], groups=2
    )
    for x_type, w_type in ((np.uint8, np.int8), (np.int8, np.uint8), (np.int8, np.int8)):
        down, up = 128 * (x_type is np.int8), 128 * (w_type is np.uint8)
        given = (x - down).astype(x_type), (w + up).astype(w_type), 5 - down, zeros + up
        got = convref.conv_integer(*given, padding=((2, 1),), groups=2)
        assert got.dtype == np.int32
        assert np.array_equal(got, want)


def test_messages():
    x, w = np.zeros((1, 1, 3), np.uint8), np.zeros((2, 1, 1), np.int8)
    for zero in ([1, 2, 3], 0.5, None):
        with pytest.raises(ConvrefError, match=r"weight_zero_point (has|is) .*, needs"):
            convref.conv_integer(x, w, weight_zero_point=zero)
    with pytest.raises(ConvrefError, match="input_zero_point is 256, needs -128 to 255"):
        convref.conv_integer(x, w, 256)
    with pytest.raises(ConvrefError, match="conv_integer has no f32, needs i8 or u8"):
        convref.conv_integer(x.astype("f4"), w.astype("f4"))
    with pytest.raises(ConvrefError, match="output_scale is 0"):
        convref.quantized_conv(x, 1.0, 0, w, 1.0, 0, 0.0, 0)


def test_scales_and_zero_points_are_checked():
    x, w = np.ones((1, 1, 3), np.uint8), np.ones((1, 1, 2), np.uint8)
    given = x, np.float64(2), np.int64(0), w, np.float32(1), np.int64(0), 1.0, 0
    assert convref.quantized_conv(*given).tolist() == [[[4, 4]]]
    for place, value, text in (
        (4, np.nan, "scales give the multiplier nan, needs finite ones"),
        (4, np.array([np.inf]), "scales give the multiplier inf"),
        (1, 1e300, "scales give the multiplier inf"),
        (5, 2**40, "weight_zero_point is 1099511627776, needs integers from -128 to 255"),
    ):
        wrong = [*given[:place], value, *given[place + 1 :]]
        for backend in ("numpy", "loops"):
            with pytest.raises(ConvrefError) as caught:
                convref.quantized_conv(*wrong, backend=backend)
            assert text in str(caught.value)


TORCH = (
    "n1c1k1_i20_f2:yz=3:bias=0:dt=i8:fill=normal:seed=32788",  # 2 for 3 with the engine x86
    "n2c4k6g2_i5x4_f3x2_s2x1_p1,0x0,2_d1x2:xz=3:yz=100:bias=0:dt=u8",
    "n1c2k3_i5x4x3_f2x1x1_p-2,3x0,0x0,0:bias=0:dt=i8:fill=ties",
)


@pytest.mark.parametrize("shape", TORCH)
def test_torch_computes_it(shape):
    adapter = pytest.importorskip("convref.backends.torch.adapter", exc_type=ImportError)
    import torch

    before, case = torch.backends.quantized.engine, parse(f"quantized_conv.fprop:{shape}")
    found = examine(case, adapter.backend)
    assert (found.verdict, found.reason) == ("pass", "")
    assert torch.backends.quantized.engine == before


def test_torch_refuses_what_it_computes_otherwise():
    adapter = pytest.importorskip("convref.backends.torch.adapter", exc_type=ImportError)
    for ending, reason in (("", "a float32 bias"), (":xz=-1:bias=0", "no zero points beyond")):
        call = parse(f"quantized_conv.fprop:n1c1k1_i4_f1:dt=u8{ending}").call
        assert reason in adapter.backend.supports(call)
    ones = to_torch(np.ones((1, 1, 3), np.uint8))
    given = ones, 1.0, 0, ones[..., :1].char()
    assert convref.quantized_conv(*given, 3.0, 0, 1.0, 0).tolist() == [[[3, 3, 3]]]
    with pytest.raises(convref.UnsupportedError, match="may overflow: backend='numpy' does not"):
        convref.quantized_conv(*given, 1e6, 0, 1.0, 0)


@given(cases(["scaled_conv"], dtypes=EIGHT, max_elements=60, max_macs=300))
def test_sums_of_8_bit_floats_are_those_of_loops(case):
    """Sums in float64 may be in another order, so that both are judged, and exactly on integers."""
    arrays = operands(case)
    for name in ("numpy", "loops"):
        backend = load(name)
        assert judge(
            case.call, arrays, backend.run(case.call, *arrays), backend.numerics(case.call)
        )


def test_8_bit_floats_by_hand_in_every_library():
    x, w = (np.array([[v]], numpy_dtype("e4m3")) for v in ([448.0, 2.0**-9], [0.5]))
    for kind in (np.asarray, to_torch):
        given = kind(x), 0.5, kind(w), 4.0, kind(np.ones(1, np.float32))
        for name in ("float32", "bfloat16", kind(np.ones(1, np.float16)).dtype):
            y = to_numpy(convref.scaled_conv(*given, output_dtype=name))
            assert y.dtype == str(name).removeprefix("torch.")
            assert y.tolist() == [[[449.0, 1 + 2.0**-9]]] or name != "float32"


def test_scales_of_8_bit_floats_are_checked():
    x = np.ones((1, 1, 3), numpy_dtype("e5m2"))
    with pytest.raises(ConvrefError, match=r"multiplier 0\.0, needs numbers above 0"):
        convref.scaled_conv(x, 1.0, x, 0.0)
    with pytest.raises(ConvrefError, match="multiplier inf, needs finite ones"):
        convref.scaled_conv(x, 1e30, x, 1e30)
    with pytest.raises(ConvrefError, match="output_dtype is 'f64', needs one of f32"):
        convref.scaled_conv(x, 1.0, x, 1.0, output_dtype="float64")
    with pytest.raises(ConvrefError, match="scaled_conv has no f32, needs e4m3 or e5m2"):
        convref.scaled_conv(x.astype("f4"), 1.0, x.astype("f4"), 1.0)
    with pytest.raises(ConvrefError, match="conv has no e5m2: only scaled_conv has"):
        convref.conv1d(x, x)
    with pytest.raises(ConvrefError, match="weight has dtype e4m3, needs e5m2"):
        convref.scaled_conv(x, 1.0, x.astype(numpy_dtype("e4m3")), 1.0)


def test_scales_that_are_not_whole_are_not_judged_exactly():
    """Integers with a scale of 1 / 3 have no exact result."""
    call = parse("scaled_conv.fprop:n1c1k1_i1_f1:bias=0:dt=e4m3").call
    one = np.ones((1, 1, 1), numpy_dtype("e4m3"))
    given = one, one, None, np.array([1 / 3], np.float32)
    near = np.nextafter(given[3], np.float32(1)).reshape(1, 1, 1)
    assert judge(call, given, (near,), Numerics("rn32")).tier == "proven"
    whole = (*given[:3], np.array([3.0], np.float32))
    assert judge(call, whole, (np.full((1, 1, 1), 3, "f4"),), Numerics("rn32")).tier == "exact"


def test_drawn_8_bit_floats_do_not_overflow():
    """e4m3 has no infinity: what a fill draws beyond 448 would be NaN."""
    for code, fill in product(EIGHT, FILLS):
        if available(fill, code):
            case = parse(f"scaled_conv.fprop:n2c9k9_i9x9_f3x3:dt={code}:fill={fill}")
            special = [~np.isfinite(values(case, role).astype(float)) for role in "xw"]
            assert sum(map(np.sum, special)) == {"inf": 2, "nan": 1}.get(fill, 0), str(case)
    assert not available("inf", "e4m3")


def test_integers_of_8_bit_floats_are_exact_in_13_bits():
    for size in ("c2k3_i5x5_f3x3", "c512k2_i4x4_f3x3", "c4096k1_i2_f2"):
        case = parse(f"scaled_conv.fprop:n1{size}:dt=e5m2")
        arrays = operands(case)
        found = judge(case.call, arrays, oracle.evaluate(case.call, *arrays), CARD)
        assert (found.kind, found.tier) == ("pass", "exact")
