"""Pools: every pass and tile, views, ties and NaN, windows of all kinds, what is compiled."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import IS_A_SWEEP, NEEDS_A_GPU, compiled, verdict, with_each_tile, with_tile

from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common import images
from convref_triton.common.geometry import operands as layouts
from convref_triton.compile import aot
from convref_triton.compile.specialize import specialize
from convref_triton.plan.choose import offered, plan
from convref_triton.pool import pool, whole
from convref_triton.run import interpreted

DTYPES = ("f32", "bf16", "f16")
SERVED = {
    op: [pass_ for kind, pass_ in pool.PASSES if kind == pool.KINDS.get(op, "mean")]
    for op in pool.SPEC.serves
}
CASES = st.one_of(
    cases(ops=(op,), passes=passes, dtypes=DTYPES, max_elements=300, max_macs=3_000)
    for op, passes in SERVED.items()
)


@given(CASES, st.integers(0, 2**16))
def test_every_tile_is_right(case, pick):
    assert backend.supports(case.call) is None
    assert with_tile(case, pick)


NORMS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0)
LINES = (
    "max_pool.fprop:n2c5_i9x8_f3x3_s2_p1:dt=bf16:fill=nan",
    "max_pool.fprop:n2c9_i7x6_f2x3_p1:dt=f16:mem=nhwc:fill=ties",
    "max_pool.fprop:n1c3_i5_f2_p4,4:dt=f32:fill=negzero",  # windows that read nothing
    "max_pool.fprop:n1c3_i0x3_f2x2_p1:dt=f32",
    "max_pool.fprop:n1c8_i6x7x5_f3x2x2_s2x1x2_p1_d1x2x1:ceil=1:dt=bf16:mem=nhwc:fill=inf",
    "max_pool.jvp:n2c4_i9x9_f5x5_p2:dt=bf16:mem=x.nhwc,x_dot.step2w:fill=ties",
    "max_pool.backward:n2c5_i9x8_f3x3_s1x2_p1_d2x1:dt=f32:mem=dy.nhwc",
    "max_pool.backward:n2c5_i9x8_f3x3_s3_p-1,0:dt=bf16:fill=nan",
    "max_pool.double_backward:n2c5_i9x8_f3x3_s2_p1:dt=f16:mem=nhwc",
    "max_pool.fprop:n2c3_i7x7_f7x7:dt=bf16:fill=nan",  # one window is the image
    "adaptive_max_pool.fprop:n3c5_i9x7_o1x1:dt=f32:mem=nhwc:fill=ties",
    "adaptive_max_pool.fprop:n2c3_i7x5_o3x8:dt=bf16:fill=ties",  # more windows than positions
    "adaptive_max_pool.backward:n2c3_i7x5_o3x8:dt=f32",
    "avg_pool.fprop:n2c5_i9x8_f3x3_s2_p1:ceil=1:dt=f32:fill=normal",
    "avg_pool.fprop:n2c16_i9x8_f3x2_s2_p1:ceil=1:cip=0:dt=bf16:mem=nhwc:fill=normal",
    "avg_pool.backward:n2c5_i9x8_f3x3_s2_p1_d2:ceil=1:cip=0:dt=f32:fill=normal",
    "avg_pool.backward:n2c5_i9x8_f3x3_s2_p1:div=-3:dt=f16:mem=nhwc:fill=inf",
    "avg_pool.fprop:n2c3_i9x9_f7x7:dt=f16:fill=positive",  # more taps than are unrolled
    "avg_pool.backward:n1c3_i13_f9_p4:ceil=1:dt=f32:fill=normal",
    "adaptive_avg_pool.fprop:n2c20_i9x7_o1x1:dt=bf16:mem=nhwc:fill=normal",
    "adaptive_avg_pool.fprop:n2c3_i8x16_o1x1:dt=f32:fill=normal",
    "adaptive_avg_pool.fprop:n2c1_i5x4x3_o1x1x1:dt=f32:mem=x.step2w",
    "adaptive_avg_pool.jvp:n2c3_i7x11_o3x4:dt=f32:fill=normal",
    "adaptive_avg_pool.backward:n2c8_i12x8_o4x4:dt=bf16:mem=nhwc",
    "adaptive_avg_pool.backward:n1c3_i5x6x7_o2x4x9:dt=f32:fill=normal",
    *(f"lp_pool.fprop:n2c5_i9x8_f3x3_s2_p1:norm={p}:fill=wide" for p in NORMS),
    *(f"lp_pool.backward:n2c5_i9x8_f3x3_s2_p1:norm={p}:fill=normal" for p in NORMS),
    "lp_pool.fprop:n2c24_i9x8_f2x2_s2:norm=3.0:dt=f16:mem=nhwc:fill=inf",
    "lp_pool.jvp:n2c5_i9x8_f3x3_s2_p1:norm=3.0:dt=bf16:mem=x_dot.nhwc:fill=normal",
    "lp_pool.backward:n2c5_i9x8_f2x2_s3_p-1,0:norm=3.0:fill=nan",  # positions that are not read
    "lp_pool.backward:n2c24_i9x8_f3x3_s2:dt=bf16:mem=x.step2w,dy.nhwc:fill=normal",
    "lp_pool.backward:n1c3_i6x7x5_f3x2x2_s2_d1x2x1:ceil=1:norm=1.0:fill=inf",
    "lp_pool.fprop:n2c3_i9x9_f9x9:fill=ties",  # one window is the image, and zeros
)


@pytest.mark.parametrize("line", LINES)
def test_windows_of_all_kinds(line):
    assert with_each_tile(line)


@settings(max_examples=settings.default.max_examples // 4)
@given(CASES)
def test_64_bit_offsets(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "LIMIT", 1)
        patch.setattr(whole, "LIMIT", 1)
        assert verdict(case)


def test_lane_reduction_keeps_the_first_maximum_and_nan():
    """The lanes of a whole image meet as a tree: ties and NaN between lanes, at every distance."""
    nan = torch.nan
    for values, winner in (((3, 7, nan, 7, nan, 7, 1), 4), ((3, 7, 1, 7, 6, 7), 1), ((1, 7, 7), 1)):
        size = len(values)
        call, x = parse(f"max_pool.fprop:n1c1_i{size}_f{size}").call, torch.tensor(values)
        for choice in backend.configurations(call):
            y, at = backend.run(call, x.float().reshape(1, 1, -1), configuration=choice)
            assert at.item() == winner
            assert torch.equal(y.ravel().isnan(), x[winner : winner + 1].isnan())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("lp_pool.fprop:n1c1_i4_f2:norm=1.25", "no kernel for norm=1.25"),
        ("lp_pool.double_backward:n1c1_i4_f2", "no kernel for lp_pool.double_backward"),
        ("max_pool.fprop:n1c1_i4_f2:dt=f64", "f64: kernels take f16, bf16, f32"),
        ("max_pool.fprop:n2048c1_i1024x1024_f1x1", "2**31 pixels or more"),
        ("adaptive_avg_pool.fprop:n1c1_i50000_o50001", "an axis whose sizes have a product"),
    ],
)
def test_refusals_have_a_reason(line, reason):
    assert backend.supports(parse(line).call).startswith(reason)


def test_order_of_programs_does_not_matter():
    case = parse("max_pool.backward:n2c5_i9x8_f3x3_s1_p1:dt=bf16:fill=normal")
    arrays = {r: torch.as_tensor(a) if r == "indices" else torch.randn(a.shape).bfloat16()
              for r, a in zip(case.call.roles, operands(case))}  # fmt: skip
    made = plan(case.call, layouts(case.call))
    first, second = (interpreted.run(made, arrays, seed=seed)["dx"] for seed in (0, 1))
    assert torch.equal(first, second)


STATIC = (
    *(f"max_pool.{p}:n32c64_i112x112_f3x3_s2_p1" for p in ("fprop", "jvp", "backward")),
    "max_pool.double_backward:n32c64_i112x112_f3x3_s2_p1",
    "max_pool.fprop:n8c128_i20x20_f5x5_p2",
    "avg_pool.fprop:n32c64_i56x56_f3x3_s2_p1:cip=0",
    "avg_pool.backward:n32c64_i56x56_f3x3_s2_p1:cip=0",
    "adaptive_avg_pool.fprop:n32c2048_i7x7_o1x1",
    "adaptive_avg_pool.backward:n32c2048_i7x7_o1x1",
    "adaptive_max_pool.fprop:n32c2048_i7x7_o1x1",
    "adaptive_avg_pool.fprop:n32c24_i20x20_o6x6",
    "lp_pool.fprop:n32c64_i56x56_f3x3_s2_p1:norm=3.0",
    "lp_pool.jvp:n32c64_i56x56_f3x3_s2_p1:norm=1.5",
    "lp_pool.backward:n32c64_i56x56_f3x3_s2_p1",
)


def held(line, arch, every):
    """Check the compiled code of a line against the rules for every configuration."""
    for _, access, what in compiled(line, arch, every):
        picks = "double_backward" in line and access.op == "load"  # each from elsewhere
        if len(access.shape) > 1 and "nhwc" in line and not picks:
            assert access.vector >= 16, what
            assert access.axis == 1


@pytest.mark.parametrize("line", [STATIC[0], STATIC[2], STATIC[7]])
def test_channels_move_16_bytes_at_a_time(line):
    held(f"{line}:dt=bf16:mem=nhwc", "sm_90", every=False)


@IS_A_SWEEP
@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("keys", ["dt=bf16:mem=nhwc", "dt=f16", "dt=f32:mem=nhwc", "dt=f32"])
@pytest.mark.parametrize("line", STATIC)
def test_no_configuration_spills(line, keys, arch):
    held(f"{line}:{keys}", arch, every=True)


def test_a_maximum_lets_nan_through():
    """PTX asks whether a number is one, and has no max that would drop a NaN."""
    call = parse(f"{STATIC[0]}:dt=bf16:mem=nhwc").call
    (step,) = plan(call, layouts(call)).steps
    ptx = aot.compile(specialize(step), "sm_90").asm["ptx"]
    assert "setp.nan.bf16" in ptx
    assert not re.search(r"\bmax\.\w*f", ptx)


@pytest.mark.parametrize("line", STATIC)
def test_an_unseen_shape_compiles_nothing(line):
    call = parse(f"{line}:dt=bf16:mem=nhwc").call
    problem = call.problem
    larger = tuple(2 * size for size in problem.input)
    changes = {"output": tuple(2 * o for o in problem.output)} if "adaptive" in line else {}
    other = replace(call, problem=replace(problem, n=problem.n + 1, c=3 * problem.c, input=larger))
    if max(getattr(problem, "output", ())) > 1 and changes:
        other = replace(other, problem=replace(other.problem, **changes))
    choice = offered(call, layouts(call))[0]
    first, second = (
        [specialize(step).key for step in plan(one, layouts(one), choice).steps]
        for one in (call, other)
    )
    assert first == second


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize("line", LINES)
def test_on_a_gpu(line):
    assert verdict(parse(line).on("cuda"))
