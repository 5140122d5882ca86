"""Max unpooling: every pass and tile, views, shared indices, compiled code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import NEEDS_A_GPU, binaries, verdict, with_each_tile, with_tile

from convref.case import parse
from convref.conformance.strategies import cases
from convref.judge import judge

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend

CASES = cases(ops=("max_unpool",), dtypes=("f32", "bf16", "f16"), max_elements=300, max_macs=3_000)


@given(CASES, st.integers(0, 2**16))
def test_every_tile_is_right(case, pick):
    assert backend.supports(case.call) is None
    assert with_tile(case, pick)


LINES = (
    "max_unpool.fprop:n2c5_i4x5_o9x8:dt=bf16:fill=nan",
    "max_unpool.fprop:n2c33_i9x4_o9x19:dt=f16:mem=nhwc:fill=inf",
    "max_unpool.backward:n2c5_i4x5_o9x8:dt=f32:mem=dy.nhwc",
    "max_unpool.backward:n1c3_i4x5x6_o9x8x7:dt=bf16:fill=negzero",
    "max_unpool.jvp:n2c2_i150_o301:dt=f32:mem=x_dot.step2w",  # several tiles of positions
    "max_unpool.double_backward:n2c5_i4x5_o9x8:dt=f32:mem=nhwc",
    "max_unpool.fprop:n2c3_i0x4_o3x3",
)


@pytest.mark.parametrize("line", LINES)
def test_elements_and_views_of_all_kinds(line):
    assert with_each_tile(line)


@pytest.mark.parametrize("memory", ["", ":mem=nhwc"])
@pytest.mark.parametrize("pass_", ["fprop", "backward", "jvp", "double_backward"])
def test_the_last_of_several_elements_stays(pass_, memory):
    """The court draws distinct indices: libraries differ on which of two is kept."""
    line = f"max_unpool.{pass_}:n2c3_i9x8_o11x13{memory}"
    case, draw = parse(line), np.random.default_rng(1)
    problem = case.call.problem
    for most in (-1, 3, 142):
        indices = draw.integers(-1, most + 1, problem.shape("indices"))
        arrays = [
            indices if role == "indices" else draw.normal(size=problem.shape(role)).astype("f4")
            for role in case.call.roles
        ]
        for choice in backend.configurations(case.call):
            found = backend.run(case.call, *arrays, configuration=choice)
            assert judge(case.call, arrays, found, backend.numerics(case.call))


def test_refusals_have_a_reason():
    call = parse("max_unpool.fprop:n1c16_i16384x16384_o16384x16384").call
    assert backend.supports(call).startswith("2**31 elements or more of an image")


@pytest.mark.parametrize("pass_", ["fprop", "backward"])
def test_an_unseen_shape_compiles_nothing(pass_):
    sizes = ("n2c32_i14x14_o28x28", "n3c64_i10x6_o20x12")
    lines = [f"max_unpool.{pass_}:{size}:dt=bf16:mem=nhwc" for size in sizes]
    assert len(binaries(lines)) == 1


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize("line", LINES)
def test_on_a_gpu(line):
    assert verdict(parse(line).on("cuda"))
