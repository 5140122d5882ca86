"""Layer norm, RMS norm and softmax: every tile, layouts, long rows, what is compiled."""

from itertools import product
from operator import le

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import IS_A_SWEEP, NEEDS_A_GPU, compiled, verdict, with_each_tile, with_tile

from convref.case import parse
from convref.conformance.examine import examine
from convref.conformance.strategies import cases
from convref.judge import judge

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton import emulated
from convref_triton.backend import backend
from convref_triton.common.geometry import operands as layouts
from convref_triton.compile.specialize import specialize
from convref_triton.interpreter import MOST_PROGRAMS
from convref_triton.norm import backward, rows
from convref_triton.plan.choose import plan

CASES = cases(
    ops=rows.SPEC.serves,
    passes=("fprop", "backward"),
    dtypes=("f32", "bf16", "f16"),
    max_elements=400,
    max_macs=4_000,
)


@given(CASES, st.integers(0, 2**16))
def test_every_tile_is_right(case, pick):
    assert backend.supports(case.call) is None
    assert with_tile(case, pick)


LINES = (
    "layer_norm.fprop:n5c40_i1:dt=bf16:fill=normal",
    "layer_norm.fprop:n3c5_i4x5:weight=0:mem=nhwc:fill=shifted",
    "layer_norm.fprop:n2c2100_i1:bias=0:fill=normal",  # rows of two blocks
    "layer_norm.backward:n70c9_i2:par=wide:dt=f16:mem=dy.expandn:fill=normal",
    "layer_norm.backward:n3c2100_i1:mask=101:fill=normal",
    "layer_norm.backward:n0c3_i2",
    "rms_norm.fprop:n5c33_i1:dt=bf16:fill=normal",
    "rms_norm.backward:n5c11_i3:fill=positive",
    "softmax.fprop:n4c8_i3:mem=nhwc:fill=normal",
    "softmax.fprop:n2c2100_i1:fill=wide",
    "softmax.fprop:n3c0_i2",
    "softmax.backward:n4c9_i3:dim=2:dt=f16:fill=normal",
    "log_softmax.fprop:n3c5_i1:fill=inf",
    "log_softmax.backward:n4c2100_i1:dim=1:fill=normal",
    "log_softmax.backward:n4c8_i3:dim=0:dt=bf16:fill=normal",
)


@pytest.mark.parametrize("line", LINES)
def test_layouts_and_shapes(line):
    assert with_each_tile(line)


def test_a_block_without_numbers_does_not_affect_the_others():
    """A mask may fill the first block of a row with -inf."""
    call = parse("softmax.fprop:n1c1030_i1").call
    x = np.full((1, 1030, 1), -np.inf, "f4")
    x[:, 1024:, 0] = np.arange(6)
    for choice in backend.configurations(call):
        (y,) = backend.run(call, x, configuration=choice)
        assert judge(call, [x], [y], backend.numerics(call))


def test_a_program_sums_several_blocks_of_rows(monkeypatch):
    monkeypatch.setattr(rows, "SMS", 1)
    assert with_each_tile("layer_norm.backward:n300c40_i1:mask=010:fill=normal")


def test_long_rows_fit_the_grid():
    call = parse("layer_norm.backward:n2c64_i256x257:mask=011").call
    for step in plan(call, layouts(call)).steps:
        assert all(map(le, step.grid, MOST_PROGRAMS)), step.grid


def test_rms_norm_takes_no_sum_of_cotangents():
    """A sum that overflows does not make dx NaN: without a mean there is no such term."""
    call = parse("rms_norm.backward:n1c6_i1:weight=0:mask=10").call
    x, dy = np.resize(np.float32([1, -1]), (1, 6, 1)), np.full((1, 6, 1), 2e38, "f4")
    for choice in backend.configurations(call):
        dx, *_ = backend.run(call, dy, x, None, np.ones(1, "f4"), configuration=choice)
        assert np.array_equal(dx, dy)


@pytest.mark.parametrize(
    "line",
    [
        "layer_norm.backward:n9c24_i1:dt=bf16:fill=normal",
        "rms_norm.backward:n8c3_i29:dt=f16:fill=shifted",  # 32 bits of a longer register
        "layer_norm.backward:n2c1_i32:mask=100:fill=normal",  # rows of 32, two for four warps
        "softmax.backward:n1c4_i1x3:fill=shifted",  # rows that fit into one block
    ],
)
def test_the_ptx_is_right(line):
    found = examine(parse(line), emulated.backend)
    assert (found.verdict, found.reason) == ("pass", "")


def test_a_second_derivative_is_refused():
    line = "layer_norm.jvp:n2c3_i4"
    reason = "no kernel for layer_norm.jvp: there are some for fprop, backward"
    assert backend.supports(parse(line).call) == reason


def test_columns_of_the_last_block_fit_32_bits():
    for columns, reason in ((2**31 - 2049, None), (2**31 - 2048, "2147481600 elements or more")):
        assert backend.supports(parse(f"softmax.fprop:n1c{columns}_i1").call) == reason


STATIC = [
    f"{op}.{pass_}:n4096c{c}_i1" for op in rows.SPEC.serves for pass_ in ("fprop", "backward")
    for c in (1024, 72)
]  # fmt: skip


def held(line, arch, every):
    """Check that no launch spills, and that threads move 16 bytes of a row."""
    for launch, access, what in compiled(line, arch, every):
        if len(access.shape) > 1 and launch.kernel is not backward.norm_wgrad_kernel:
            assert access.vector >= 16, what
            assert access.coalesced or access.row >= 32, what


def test_elements_move_16_bytes_at_a_time():
    for line in STATIC[::4]:
        held(f"{line}:dt=bf16", "sm_90", every=False)


@IS_A_SWEEP
@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
def test_no_configuration_spills(arch):
    for line, keys in product(STATIC, ("dt=bf16", "dt=f16", "dt=f32")):
        held(f"{line}:{keys}", arch, every=True)


def test_an_unseen_shape_compiles_nothing():
    for op in rows.SPEC.serves:
        keys = []
        for n, c in ((4096, 1024), (3000, 776)):
            call = parse(f"{op}.backward:n{n}c{c}_i1:dt=bf16").call
            made = plan(call, layouts(call))
            assert not made.copies
            keys.append([specialize(step).key for step in made.steps])
        assert keys[0] == keys[1]


@pytest.mark.gpu
@NEEDS_A_GPU
def test_on_a_gpu():
    for line in LINES:
        assert verdict(parse(line).on("cuda")), line
