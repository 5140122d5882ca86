"""Convolutions of 8-bit integers: every tile, zero points, rounding, PTX, what is compiled."""

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

from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.judge import judge

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton import emulated
from convref_triton.backend import backend
from convref_triton.conv import integer

CASES = cases(ops=integer.OPS, dtypes=("i8", "u8"), max_elements=300, max_macs=3_000)


@given(CASES, st.integers(0, 2**16))
def test_every_tile_is_right(case, pick):
    assert backend.supports(case.call) is None
    assert with_tile(case, pick)


LINES = (
    "conv_integer.fprop:n2c5k7_i9x8_f3x3_s2_p1:dt=u8:xz=3",
    "conv_integer.fprop:n1c70k33_i6x5_f3x2_p1:dt=i8:xz=-128:mem=nhwc:fill=wide",
    "conv_integer.fprop:n1c6k4g2_i9x8x3_f3x3x1_d2x1x1:dt=u8:xz=255:fill=wide",
    "quantized_conv.fprop:n2c32k48g2_i5x6_f3x3_p1:dt=i8:xz=100:yz=3:mem=nhwc",
    "quantized_conv.fprop:n1c3k4_i9_f3_p4,0_d2:dt=u8:yz=200:fill=wide",
    "quantized_conv.fprop:n1c64k16_i7x7_f1x1:bias=0:dt=u8:mem=x.step2w,w.ohwi:fill=ones",
)


@pytest.mark.parametrize("line", LINES)
def test_zero_points_and_views_of_all_kinds(line):
    assert with_each_tile(line)


def test_halves_are_rounded_to_even():
    case = parse("quantized_conv.fprop:n1c1k1_i8_f1:bias=0:dt=i8")
    x = np.arange(-4, 4, dtype=np.int8).reshape(1, 1, 8)
    one, zero, half = np.ones((1, 1, 1), np.int8), np.zeros(1, np.int32), np.full(1, 0.5, "f4")
    given = x, one, None, zero, half
    (y,) = backend.run(case.call, *given)
    assert y.ravel().tolist() == [-2, -2, -1, 0, 0, 0, 1, 2]
    assert judge(case.call, given, (y,), backend.numerics(case.call))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("conv_integer.fprop:n1c1k1_i4_f1:dt=i8:xz=200", "an input_zero_point of 200"),
        ("conv_integer.fprop:n1c1k1_i4_f1:dt=u8:xz=-3", "an input_zero_point of -3"),
        ("conv_integer.fprop:n1c131072k1_i4_f1:dt=u8", "131072 products or more of a sum"),
        ("max_pool.fprop:n1c1_i4_f1:dt=i8", "i8: kernels take f16, bf16, f32"),
    ],
)
def test_refusals_have_a_reason(line, reason):
    assert backend.supports(parse(line).call).startswith(reason)


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("line", [LINES[0], LINES[3]])
def test_ptx_computes_the_call(line, arch):
    """Products of s8 by wgmma on sm_90, by mma.sync on sm_80."""
    call, arrays, found = emulated_on_first_tile(line, integer.SPEC, arch=arch)
    assert judge(call, arrays, found, backend.numerics(call))


@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_ptx_of_pairs_of_channels_reads_zeros_after_them(dtype):
    """Triton fills absent pairs with 0xff80 where 128, the zero of u8, is their constant."""
    case = parse(f"conv_integer.fprop:n1c2k2_i5_f3:dt={dtype}:mem=nhwc")
    arrays = operands(case)
    assert judge(
        case.call, arrays, emulated.backend.run(case.call, *arrays), backend.numerics(case.call)
    )


STATIC = (
    "conv_integer.fprop:n8c128k128_i28x28_f3x3_p1:dt=i8",
    "quantized_conv.fprop:n8c128k128_i28x28_f3x3_p1:dt=i8",
    "quantized_conv.fprop:n8c128k128_i28x28_f1x1:dt=u8",
    "quantized_conv.fprop:n3c67k35_i29x13_f3x3_p1:dt=u8",
)
LOOP = {"sm_90": 373, "sm_80": 389}  # instructions of a step of the first tile


@pytest.mark.parametrize(("arch", "instruction"), [("sm_90", "wgmma"), ("sm_80", "mma.sync")])
def test_products_of_bytes_are_on_tensor_cores(arch, instruction):
    found = on_first_tile(f"{STATIC[1]}:mem=nhwc", arch)
    assert all(name.startswith(instruction) for name in found.mma)
    assert set(found.loop_loads) == {"cp.async 16"}
    assert not found.spills
    assert found.loop <= LOOP[arch]


@IS_A_SWEEP
@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("line", STATIC)
def test_no_configuration_spills(line, arch):
    assert list(compiled(f"{line}:mem=nhwc", arch, every=True))


def test_an_unseen_shape_compiles_nothing():
    sizes = ("n8c128k128_i28x28", "n3c64k192_i9x33")
    lines = [f"quantized_conv.fprop:{size}_f3x3_p1:dt=i8:mem=nhwc" for size in sizes]
    assert len(binaries(lines)) == 1


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize("line", LINES)
def test_on_a_gpu(line):
    assert verdict(parse(line).on("cuda"))
