"""Columns and their adjoint: every pass and tile, views, classes of pixels, repeatability."""

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import verdict, with_each_tile, with_tile

from convref.case import parse
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.common.geometry import operands as layouts
from convref_triton.compile import aot
from convref_triton.compile.inspection import inspect
from convref_triton.compile.specialize import specialize
from convref_triton.plan import archs
from convref_triton.plan.choose import plan
from convref_triton.plan.launch import Launch
from convref_triton.unfold import unfold

CASES = cases(
    ops=["unfold", "fold"], dtypes=("f32", "bf16", "f16"), max_elements=300, max_macs=2_000
)


@given(CASES, st.integers(0, 2**16))
def test_every_tile_is_right(case, pick):
    assert with_tile(case, pick)


LINES = (
    "unfold.fprop:n2c3_i5x6x4_f3x2x3_s1x2x1_p1,0x2,1x1,1_d2x1x1:dt=bf16:fill=nan",
    "unfold.jvp:n3c9_i9x8_f3x3_p1:dt=f16:mem=nhwc",  # channels side by side
    "unfold.fprop:n2c5_i0x7_f2x3_p1:dt=f32",  # nothing but padding
    "fold.fprop:n2c3_i7x9_f3x3_s3x2_p1_d2x3:dt=f32:fill=normal",  # classes that no tap meets
    "fold.fprop:n1c2_i13_f5_s3_p-1,4:dt=bf16:fill=inf",  # cropped pixels are zero
    "fold.fprop:n2c3_i6x5_f2x2_p1:dt=f16:mem=cols.lcn",
    "unfold.backward:n2c6_i8x8_f3x3_s2_p1:dt=bf16:fill=normal",
    "fold.backward:n2c6_i8x8_f3x3_s2_p1:dt=bf16:mem=dx.nhwc.step2w",
)


@pytest.mark.parametrize("line", LINES)
def test_views_and_classes(line):
    assert with_each_tile(line)


@settings(max_examples=settings.default.max_examples // 4)
@given(CASES)
def test_64_bit_offsets(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unfold, "LIMIT", 1)
        assert verdict(case)


@pytest.mark.parametrize("line", ["unfold.fprop:n2c9", "fold.fprop:n2c9", "unfold.fprop:n4c32"])
def test_an_unseen_shape_compiles_nothing(line):
    keys = set()
    for extents in ("8x8", "16x24", "32x40"):
        call = parse(f"{line}_i{extents}_f3x3_p1:dt=bf16").call
        (launch,) = plan(call, layouts(call)).steps
        keys.add(specialize(launch).key)
    assert len(keys) <= len(unfold.UNFOLD.fitting("bf16", "sm_90"))


def test_a_card_is_filled_before_tiles_grow():
    for line in ("unfold.fprop:n32c64_i56x56_f3x3_p1:dt=bf16", "fold.fprop:n32c64_i56x56_f3x3_p1"):
        call = parse(line).call
        (launch,) = plan(call, layouts(call)).steps
        assert isinstance(launch, Launch)
        assert prod(launch.grid) >= archs.SMS * archs.PER_SM
        assert launch.constants["BM"] == 256


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize(
    ("line", "loads", "stores"),
    [
        ("unfold.fprop:n32c64_i56x56_f3x3_p1:dt=bf16", "LDG 2", "STG 16"),  # windows are ragged
        ("unfold.fprop:n32c64_i56x56_f3x3_p1:dt=bf16:mem=nhwc", "LDG 16", "STG 16"),
        ("unfold.fprop:n3c67_i29x13_f5x3_s2:dt=bf16", "LDG 2", "STG 2"),
        ("fold.fprop:n32c64_i56x56_f3x3_s2_p1:dt=bf16", "LDG 2", "STG 2"),
    ],
)
def test_spills_registers_and_access_widths(line, loads, stores, arch):
    call = parse(line).call
    (launch,) = plan(call, layouts(call)).steps
    found = inspect(aot.compile(specialize(launch), arch))
    assert found.spills == 0
    assert found.registers <= 128
    assert set(found.loads) == {loads}
    assert set(found.stores) == {stores}
