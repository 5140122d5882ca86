"""Resizing: every tile, positions that the sizes and that a scale give, what is compiled."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judged import (
    IS_A_SWEEP,
    NEEDS_A_GPU,
    binaries,
    compiled,
    verdict,
    with_each_tile,
    with_tile,
)

from convref.case import parse
from convref.conformance.strategies import cases
from convref.ops import ResizeProblem
from convref.ops.resize_axis import rows

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common import images
from convref_triton.resize import resize, table

CASES = cases(
    ops=resize.SPEC.serves, dtypes=("f32", "bf16", "f16"), max_elements=300, max_macs=3_000
)
FEW = settings(max_examples=settings.default.max_examples // 4)


def taken(case):
    """Return whether there is a kernel; only a value beyond the image has none."""
    reason = backend.supports(case.call)
    assert reason is None or case.call.problem.extrapolation
    return reason is None


@given(CASES, st.integers(0, 2**16))
def test_every_tile_is_right(case, pick):
    assume(taken(case))
    assert with_tile(case, pick)


PASSES = ("fprop", "backward")
TABULATED = (
    "mode=cubic",
    "mode=cubic:coord=align_corners:xo=1",
    "aa=1:xo=1",
    "mode=cubic:aa=1:xo=1:a=-0.5",
    "mode=area",
    "mode=nearest:coord=asymmetric:near=ceil",
    "coord=half_pixel_symmetric:scale=0.4x2.2",
    "coord=tf_crop_and_resize:roi=-0.5,1x0.25,1.25",
)
LINES = (
    "resize.fprop:n2c3_i4x5_o8x7:dt=f32:fill=normal",
    "resize.fprop:n2c8_i9x7_o4x13:coord=align_corners:dt=bf16:mem=nhwc:fill=inf",
    "resize.fprop:n2c5_i6_o17:coord=asymmetric:dt=f16:mem=x.step2w:fill=nan",
    "resize.fprop:n1c3_i3x4x5_o6x7x2:dt=bf16:fill=normal",
    "resize.fprop:n1c1_i1x1_o3x1:coord=pytorch_half_pixel:dt=f32",
    "resize.fprop:n2c3_i10_o25:scale=2.5:dt=f32:fill=normal",
    "resize.fprop:n2c3_i10x7_o7x19:coord=asymmetric:scale=0.7x2.75:dt=f32:fill=normal",
    "resize.fprop:n2c3_i10x7_o7x19:mode=nearest:scale=0.7x2.75:dt=f32:fill=normal",
    "resize.jvp:n2c16_i5x7_o10x14:mode=nearest:coord=asymmetric:dt=bf16:mem=nhwc",
    "resize.double_backward:n2c3_i4x5_o9x10:mode=nearest:dt=f16",
    "resize.backward:n2c3_i4x5_o8x10:dt=f32:fill=normal",
    "resize.backward:n2c16_i9x4_o4x13:dt=bf16:mem=nhwc:fill=normal",
    "resize.backward:n2c3_i17_o6:coord=align_corners:dt=f32:fill=inf",
    "resize.backward:n1c3_i3x4x5_o6x7x2:dt=f16:fill=normal",
    "resize.backward:n2c3_i10_o25:scale=2.5:dt=f32:fill=normal",
    "resize.backward:n2c3_i3_o40:dt=f32:fill=normal",  # more outputs a position than are unrolled
    "resize.backward:n2c3_i10x7_o7x19:mode=nearest:scale=0.7x2.75:dt=f32:fill=normal",
    "resize.backward:n2c8_i5x7_o10x14:mode=nearest:coord=asymmetric:dt=bf16:mem=nhwc",
    *(f"resize.{p}:n2c9_i9x6_o4x13:{keys}:fill=normal" for p in PASSES for keys in TABULATED),
    "resize.fprop:n2c24_i9x6_o14x13:mode=cubic:dt=f16:mem=nhwc:fill=inf",
    "resize.backward:n1c3_i3x4x5_o6x7x2:mode=cubic:dt=bf16:fill=nan",
    "resize.double_backward:n1c3_i13x4x5_o6x7x2:aa=1:xo=1",
)


@pytest.mark.parametrize("line", LINES)
def test_positions_of_all_kinds(line):
    assert with_each_tile(line)


def test_a_weight_of_zero_reads_nothing():
    """If an output is exactly at a position, infinity beside it must not become NaN."""
    for pass_, keys in product(PASSES, ("", ":xo=1")):  # in the kernel, and by a table
        call = parse(f"resize.{pass_}:n1c2_i3x4_o5x7:coord=align_corners{keys}").call
        infinite = torch.full(call.problem.shape(call.roles[0]), torch.inf)
        assert backend.run(call, infinite)[0].isposinf().all()


@FEW
@given(CASES)
def test_64_bit_offsets(case):
    assume(taken(case))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "LIMIT", 1)
        assert verdict(case)


COORDS = st.sampled_from(resize.EXACT)


@given(st.integers(1, 90), st.integers(1, 90), COORDS, st.booleans())
def test_readers_cover_every_output_that_reads_a_position(size, out, coord, nearest):
    """Every output that reads a position is within the range that the kernel visits."""
    mode = "nearest" if nearest else "linear"
    assume(not nearest or coord in ("half_pixel", "asymmetric"))
    problem = ResizeProblem(n=1, c=1, input=(size,), output=(out,), mode=mode, coord=coord)
    (axis,) = problem.axes
    ratio, before, count = resize.readers(axis, resize.kind(problem), resize.half(problem))
    begin = np.floor(np.arange(size, dtype=np.float32) * np.float32(ratio)).astype(int) - before
    for p, row in enumerate(rows(axis)):
        for i, _ in row:
            assert begin[i] <= p < begin[i] + count


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ("coord=tf_crop_and_resize:ev=2", "no kernel for an extrapolation_value"),
        ("scale=1e9", "a scale that makes 2**30 outputs"),
    ],
)
def test_refusals_have_a_reason(keys, reason):
    assert backend.supports(parse(f"resize.fprop:n1c1_i4_o8:{keys}").call).startswith(reason)


def test_long_axes_have_no_table():
    call = parse("resize.fprop:n1c1_i2000000_o8:mode=cubic").call
    assert backend.supports(call).startswith("an axis of more than 1048576 elements")


def test_a_table_is_as_wide_as_the_axis_needs():
    """Taps of an antialiased reduction, and of the outputs that read a position."""
    problem = ResizeProblem(n=1, c=1, input=(40,), output=(10,), antialias=True, exclude=True)
    positions, weights = table.tabulated(problem.axes[0], back=False)
    assert positions.shape == weights.shape == (8, 10)
    for p, row in enumerate(rows(problem.axes[0])):
        listed = zip(positions[:, p], weights[:, p])
        assert [pair for pair in listed if pair[1]] == [(i, np.float32(float(w))) for i, w in row]
    assert table.tabulated(problem.axes[0], back=True)[0].shape == (2, 40)


CUBIC = ":mode=cubic:aa=1:xo=1:a=-0.5"
STATIC = [
    f"resize.{pass_}:n8c{c}_i40x40_o80x80{keys}"
    for pass_ in ("fprop", "backward")
    for c in (128, 24)
    for keys in ("", ":coord=align_corners", ":mode=nearest:coord=asymmetric", ":scale=2", CUBIC)
]


def held(line, arch, every):
    """Check the compiled code of a line against the rules for every configuration."""
    for _, access, what in compiled(line, arch, every):
        if "nhwc" in line and len(access.shape) > 1:  # tables have one axis
            assert access.vector >= 16, what
            assert access.axis == 1


@pytest.mark.parametrize("line", [STATIC[0], STATIC[4], STATIC[10], STATIC[12], STATIC[14]])
def test_channels_move_16_bytes_at_a_time(line):
    held(f"{line}:dt=bf16:mem=nhwc", "sm_90", every=False)


@IS_A_SWEEP
@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("keys", ["dt=bf16:mem=nhwc", "dt=f16", "dt=f32:mem=nhwc", "dt=f32"])
@pytest.mark.parametrize("line", STATIC)
def test_no_configuration_spills(line, keys, arch):
    held(f"{line}:{keys}", arch, every=True)


@pytest.mark.parametrize("words", ["", CUBIC])
@pytest.mark.parametrize("pass_", PASSES)
def test_an_unseen_shape_compiles_nothing(pass_, words):
    sizes = ("n8c64_i40x40_o80x80", "n3c192_i13x52_o26x104")
    lines = [f"resize.{pass_}:{size}{words}:dt=bf16:mem=nhwc" for size in sizes]
    assert len(binaries(lines)) == 1


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize("line", LINES)
def test_on_a_gpu(line):
    assert verdict(parse(line).on("cuda"))
