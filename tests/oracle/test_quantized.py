"""Convolutions of integers against their loops, against ONNX's evaluator and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings

import convref
from convref import ConvrefError, oracle
from convref.arrays import to_torch
from convref.case import parse
from convref.conformance.examine import examine
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.dispatch import load
from convref.oracle import quantized

OPS = ("conv_integer", "quantized_conv")


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
