"""Convolutions of 8-bit floats: every tile, special values, PTX, sums, what is compiled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import (
    IS_A_SWEEP,
    NEEDS_A_GPU,
    binaries,
    compiled,
    emulated_on_first_tile,
    on_first_tile,
    verdict,
    with_each_tile,
    with_tile,
)
from test_slips import copied

from convref.case import parse
from convref.conformance.strategies import cases
from convref.dtypes import EIGHT, numpy_dtype
from convref.judge import judge

pytest.importorskip("triton", reason="triton is not installed")

from convref_ptx import Fault
from convref_triton.backend import backend
from convref_triton.conv import gather, scaled
from convref_triton.plan.choose import refusal

CASES = cases(ops=["scaled_conv"], dtypes=EIGHT, max_elements=300, max_macs=3_000)


@given(CASES, st.integers(0, 2**16))
def test_every_tile_is_right(case, pick):
    assert backend.supports(case.call) is None
    assert with_tile(case, pick)


LINES = (
    "scaled_conv.fprop:n2c5k7_i9x8_f3x3_s2_p1:dt=e4m3",
    "scaled_conv.fprop:n1c70k33_i6x5_f3x2_p1:out=bf16:dt=e5m2:mem=nhwc:fill=wide",
    "scaled_conv.fprop:n1c6k4g2_i9x8x3_f3x3x1_d2x1x1:bias=0:dt=e4m3:fill=subnormal",
    "scaled_conv.fprop:n2c32k48g2_i5x6_f3x3_p1:out=f16:dt=e5m2:mem=nhwc:fill=inf:seed=1",
    "scaled_conv.fprop:n1c3k4_i9_f3_p4,0_d2:dt=e4m3:fill=nan:seed=2",
    "scaled_conv.fprop:n1c160k16_i7x7_f1x1:dt=e4m3:mem=x.step2w,w.ohwi:fill=normal",
)


@pytest.mark.parametrize("line", LINES)
def test_types_views_and_special_values(line):
    assert with_each_tile(line)


@pytest.mark.parametrize("code", EIGHT)
def test_every_value_and_nan_of_the_type(code):
    """A product with 1 gives the numbers of all 256 patterns, subnormal ones and NaN among them."""
    case = parse(f"scaled_conv.fprop:n1c1k1_i256_f1:bias=0:dt={code}")
    x = np.arange(256, dtype=np.uint8).view(numpy_dtype(code)).reshape(1, 1, 256)
    one = np.ones((1, 1, 1), x.dtype)
    (y,) = backend.run(case.call, x, one, None, np.ones(1, np.float32))
    assert np.array_equal(y, x.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(
    ("line", "arch", "reason"),
    [
        (LINES[0], "sm_80", "e4m3: kernels are for sm_89 and sm_90, not for sm_80"),
        (LINES[1], "gfx942", "e5m2: kernels are for sm_89 and sm_90, not for gfx942"),
        (LINES[0], "sm_100", "e4m3: kernels are for sm_89 and sm_90, not for sm_100"),
        (LINES[0].replace("e4m3", "e4m3:math=tf32"), "sm_90", "math=tf32 is for f32"),
        (LINES[0], "sm_89", None),
    ],
)
def test_refusals_have_a_reason(line, arch, reason):
    assert refusal(parse(line).call, arch) == reason


@pytest.mark.parametrize("arch", ["sm_90", "sm_89"])
@pytest.mark.parametrize("line", [LINES[0], LINES[3], LINES[5]])
def test_ptx_computes_the_call(line, arch):
    """Products of 8-bit floats by wgmma on sm_90, by mma.sync on sm_89."""
    call, arrays, found = emulated_on_first_tile(line, scaled.SPEC, arch=arch)
    assert judge(call, arrays, found, backend.numerics(call))


LONG = "scaled_conv.fprop:n1c512k64_i8x8_f3x3_p1:bias=0:dt=e4m3:mem=nhwc:fill=positive"


@pytest.mark.parametrize("arch", ["sm_90", "sm_89"])
def test_sums_of_cards_are_as_declared(arch):
    """As cards sum, the result is within the declared bound, and beyond that of float32."""
    call, arrays, found = emulated_on_first_tile(LONG, scaled.SPEC, arch=arch, tensor_cores="model")
    assert judge(call, arrays, found, backend.numerics(call.on("cuda")))
    assert not judge(call, arrays, found, backend.numerics(call))


@pytest.mark.parametrize("arch", ["sm_90", "sm_89"])
def test_sums_that_are_not_promoted_are_found(arch, tmp_path, monkeypatch):
    slip = "acc += tl.dot(a, b, max_num_imprecise_acc=BK)", "acc = tl.dot(a, b, acc)"
    wrong = copied((gather, scaled), tmp_path, monkeypatch, *slip)
    call, arrays, found = emulated_on_first_tile(LONG, wrong.SPEC, arch=arch, tensor_cores="model")
    assert judge(call, arrays, found, backend.numerics(call.on("cuda"))).kind == "wrong"


def test_the_limit_of_a_dot_alone_reads_sums_in_flight(tmp_path, monkeypatch):
    """Why the kernel adds by itself; ptxas repairs it, and sm_89 ignores the limit."""
    slip = "acc += tl.dot(a, b, max", "acc = tl.dot(a, b, acc, max"
    wrong = copied((gather, scaled), tmp_path, monkeypatch, *slip)
    with pytest.raises(Fault, match="in use by work that has not been waited for"):
        emulated_on_first_tile(LONG, wrong.SPEC)


def test_no_tile_has_more_products_in_a_step_than_are_declared():
    rows = {tile for table in (scaled.TILES.rows, scaled.TILES.short) for tile in table["*"]}
    assert max(tile.bk for tile in rows) == scaled.DEEPEST


STATIC = (
    "scaled_conv.fprop:n8c128k128_i28x28_f3x3_p1",
    "scaled_conv.fprop:n8c72k104_i28x28_f3x3_p1",
    "scaled_conv.fprop:n3c67k35_i29x13_f3x3_p1",
)
LOOP = {"sm_90": 184, "sm_89": 295}  # instructions of a step of the first tile


@pytest.mark.parametrize("code", EIGHT)
@pytest.mark.parametrize(
    ("arch", "instruction"), [("sm_90", "wgmma m64n128k32"), ("sm_89", "mma.sync m16n8k32")]
)
def test_products_of_8_bits_are_on_tensor_cores(arch, instruction, code):
    found = on_first_tile(f"{STATIC[0]}:dt={code}:mem=nhwc", arch)
    assert set(found.mma) == {instruction}
    assert set(found.loop_loads) == {"cp.async 16"}
    assert not found.spills
    assert found.loop <= LOOP[arch]


@IS_A_SWEEP
@pytest.mark.parametrize("arch", ["sm_90", "sm_89"])
@pytest.mark.parametrize("line", STATIC)
def test_no_configuration_spills(line, arch):
    for code in EIGHT:
        assert list(compiled(f"{line}:dt={code}:mem=nhwc", arch, every=True))


def test_an_unseen_shape_compiles_nothing():
    sizes = ("n8c128k128_i28x28", "n3c256k192_i9x33")
    assert len(binaries([f"scaled_conv.fprop:{s}_f3x3_p1:dt=e4m3:mem=nhwc" for s in sizes])) == 1


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize("line", LINES)
def test_on_a_gpu(line):
    assert verdict(parse(line).on("cuda"))
