"""Activations alone: every tile, layouts, what is compiled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import NEEDS_A_GPU, compiled, verdict, with_each_tile, with_tile

from convref.case import parse
from convref.conformance.examine import examine
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton import emulated
from convref_triton.activation import activation
from convref_triton.backend import backend
from convref_triton.common.geometry import operands
from convref_triton.plan.choose import plan

OPS = activation.SPEC.serves
CASES = cases(
    ops=OPS, passes=("fprop", "backward"), dtypes=("f32", "bf16", "f16"), max_elements=400
)
LINES = tuple(
    f"{op}.{pass_}:n2c24_i9x5:dt=bf16:mem=nhwc:fill={fill}:seed=3"
    for op in OPS
    for pass_ in ("fprop", "backward")
    for fill in ("wide", "inf", "nan")
)


PTX = (
    "silu.fprop:n1c1_i15:fill=wide:seed=33648",  # e**50, of which tl.exp loses 5 bits
    "leaky_relu.fprop:n2c24_i5:dt=bf16:fill=normal",
)


@given(CASES, st.integers(0, 2**16))
def test_every_tile_is_right(case, pick):
    assert backend.supports(case.call) is None
    assert with_tile(case, pick)


def test_large_infinite_and_nan_values():
    for line in (*LINES, "relu.fprop:n0c3_i2", "relu.backward:n3c40_i7x3:mem=dy.nhwc:fill=nan"):
        assert with_each_tile(line), line


def test_the_ptx_is_right():
    for line in PTX:
        found = examine(parse(line), emulated.backend)
        assert (found.verdict, found.reason) == ("pass", "")


def test_elements_move_16_bytes_at_a_time():
    for op in ("silu.backward", "hardswish.fprop"):
        line = f"{op}:n8c64_i28x28:dt=bf16:mem=nhwc"
        for _, access, what in compiled(line, "sm_90", every=True):
            assert access.vector >= 8, what


def test_a_dense_layout_is_not_copied():
    for memory in ("nhwc", "x.cwhn,dy.cwhn"):
        call = parse(f"silu.backward:n8c64_i28x28:dt=bf16:mem={memory}").call
        assert not plan(call, operands(call)).copies


@pytest.mark.gpu
@NEEDS_A_GPU
def test_on_a_gpu():
    for line in LINES:
        assert verdict(parse(line).on("cuda")), line
