"""Batch and group norm: every tile, views, statistics that are hard to find, what is compiled."""

import pytest
import torch
from forced import facts, judged
from hypothesis import given
from hypothesis import strategies as st
from judged import IS_A_SWEEP, NEEDS_A_GPU, compiled, verdict, with_each_tile, with_tile

from convref.arrays import to_torch
from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.judge import judge

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend, cached_plan
from convref_triton.common.geometry import Tensor
from convref_triton.common.geometry import operands as layouts
from convref_triton.compile.specialize import specialize
from convref_triton.norm import backward, norm, statistics, sweep
from convref_triton.plan.builder import NEW
from convref_triton.plan.choose import offered, plan
from convref_triton.run import interpreted

CASES = cases(
    ops=norm.SPEC.serves,
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
    "batch_norm.fprop:n3c5_i9x8:dt=f32:fill=normal",
    "batch_norm.fprop:n2c64_i40x13:dt=bf16:mem=nhwc:fill=normal",  # splits that end in an image
    "batch_norm.fprop:n5c3_i300:dt=f32:fill=positive",  # a whole step and a short one an image
    "batch_norm.fprop:n2c16_i3x4x5:bias=0:weight=0:mom=0.9:dt=f16:mem=nhwc:fill=normal",
    "batch_norm.fprop:n4c1_i1x1:dt=f32:fill=wide",
    "batch_norm.fprop:n3c6_i5x4:dt=bf16:mem=x.cwhn,w.step2c,rvar.step2c:fill=normal",
    "batch_norm.backward:n3c5_i9x8:dt=f32:fill=normal",
    "batch_norm.backward:n2c32_i30x9:dt=bf16:mem=nhwc:fill=normal",
    "batch_norm.backward:n2c6_i9x5:weight=0:mask=001:dt=f16:mem=dy.nhwc:fill=normal",
    "batch_norm.dgrad:n2c6_i9x5:dt=f32:mem=x.step2w,dy.expandn:fill=normal",
    "batch_norm_eval.fprop:n3c24_i9x8:dt=bf16:mem=nhwc:fill=normal",
    "batch_norm_eval.fprop:n0c3_i4x4:dt=f32",
    "batch_norm_eval.backward:n3c24_i9x8:dt=f32:mem=nhwc:fill=normal",
    "batch_norm_eval.backward:n0c3_i4x4:dt=f32",
    "group_norm.fprop:n3c6g2_i9x8:dt=f32:fill=normal",
    "group_norm.fprop:n2c40g4_i40x9:dt=bf16:mem=nhwc:fill=normal",
    "group_norm.fprop:n2c6g6_i300:weight=0:dt=f32:mem=b.step2c:fill=positive",  # one channel each
    "group_norm.fprop:n2c9g1_i3x4x5:bias=0:dt=f16:fill=normal",
    "group_norm.fprop:n0c6g2_i4x4:dt=f32",
    "group_norm.backward:n3c6g2_i9x8:dt=f32:mem=mean.ng,dy.nhwc:fill=normal",
    "group_norm.backward:n2c40g4_i40x9:dt=bf16:mem=nhwc:fill=normal",
    "group_norm.backward:n2c6g6_i300:weight=0:mask=101:dt=f32:fill=normal",
    "group_norm.backward:n0c6g2_i4x4:dt=f32",
    "batch_norm.fprop:n2c3_i4x5:par=data:dt=bf16:fill=normal",
    "group_norm.backward:n2c4g2_i3x3:par=wide:dt=f16:fill=normal",
)


@pytest.mark.parametrize("line", LINES)
def test_views_and_shapes(line):
    assert with_each_tile(line)


SMALL = [line for line in LINES if line.startswith("batch_norm.fprop")]


def launches(call, known, choice=None):
    return plan(call, known, choice).launches


@pytest.mark.parametrize("line", SMALL)
def test_three_launches_give_what_one_does(line, monkeypatch):
    """Small tensors are normalised in one launch; here they take the way of large ones."""
    case = parse(line)
    arrays = operands(case)
    tensors, known = facts(case.call, arrays)
    monkeypatch.setattr(norm, "ONCE_STEPS", 0)
    for choice in offered(case.call, known):
        made = plan(case.call, known, choice)
        assert len(launches(case.call, known, choice)) == 3
        found = interpreted.run(made, tensors)
        assert judged(case, arrays, {n.removesuffix(NEW): t for n, t in found.items()})


@pytest.mark.parametrize("line", [LINES[0], LINES[1], LINES[7], LINES[20]])
def test_many_splits_give_what_few_do(line, monkeypatch):
    monkeypatch.setattr(sweep, "SPLIT_STEPS", 1)
    monkeypatch.setattr(norm, "ONCE_STEPS", 0)
    monkeypatch.setattr(statistics, "FEW", statistics.FEW._replace(bm=0))
    case = parse(line)
    arrays = operands(case)
    tensors, known = facts(case.call, arrays)
    for choice in offered(case.call, known):
        made = plan(case.call, known, choice)
        merged = [s for s in made.launches if s.constants.get("BM") == statistics.MANY.bm]
        assert merged or case.call.op == "group_norm"
        found = interpreted.run(made, tensors)
        assert judged(case, arrays, {n.removesuffix(NEW): t for n, t in found.items()})


def test_many_splits_are_merged_in_few_turns():
    """A turn waits for its loads, and one program has all splits of its channels."""
    for pass_ in ("fprop", "backward"):
        call = parse(f"batch_norm.{pass_}:n32c64_i56x56:dt=bf16:mem=nhwc").call
        merge = launches(call, layouts(call))[1]
        assert merge.arguments["splits"] > 500
        assert merge.arguments["splits"] <= 5 * merge.constants["BM"]


def test_a_small_tensor_is_one_launch():
    for size, count in (("n1c512_i7x7", 1), ("n1c512_i14x14", 1), ("n32c64_i56x56", 3)):
        call = parse(f"batch_norm.fprop:{size}:dt=bf16:mem=nhwc").call
        assert len(launches(call, layouts(call))) == count


@pytest.mark.parametrize("once", [0, norm.ONCE_STEPS])
def test_a_large_mean_does_not_affect_the_variance(once, monkeypatch):
    """Offsets of 2^14 on deviations of 1/8: sums of squares in float32 would lose all of them."""
    monkeypatch.setattr(norm, "ONCE_STEPS", once)
    cached_plan.cache_clear()
    call = parse("batch_norm.fprop:n8c4_i16x32").call
    torch.manual_seed(0)
    x = torch.randn(8, 4, 16, 32).mul(0.125).add(2.0**14)
    w, b, old, var = torch.ones(4), torch.zeros(4), torch.zeros(4), torch.ones(4)
    results = backend.run(call, x, w, b, old, var)
    given = [t.numpy() for t in (x, w, b, old, var)]
    assert judge(call, given, [t.numpy() for t in results], backend.numerics(call))
    exact = x.double().var((0, 2, 3), correction=0).add(1e-5).rsqrt()
    near = (results[2].double() / exact - 1).abs().max().item()
    assert near < 2.0**-24 * call.problem.products("rstd")
    cached_plan.cache_clear()


def test_results_repeat_in_any_order_of_programs():
    call = parse("batch_norm.backward:n4c3_i64x33:dt=f32").call
    torch.manual_seed(0)
    tensors = {
        role: torch.rand(call.problem.shape(role)) for role in ("dy", "x", "w", "mean", "rstd")
    }
    known = {r: Tensor(r, tuple(t.shape), t.stride(), "f32") for r, t in tensors.items()}
    made = plan(call, known)
    assert any(s.grid[0] > 1 for s in made.launches)
    first, second = (interpreted.run(made, tensors, seed=seed) for seed in (0, 1))
    assert all(torch.equal(first[role], second[role]) for role in ("dx", "dw", "db"))


@pytest.mark.parametrize("activation", ["relu", "silu"])
@pytest.mark.parametrize("line", [LINES[0], LINES[10], LINES[14]])
def test_a_fused_activation_is_that_of_the_result(line, activation):
    """Sums are rounded once: to the activation of y, not of a y that was rounded before."""
    case = parse(line.split(":fill")[0].replace("bf16", "f32") + ":fill=normal")
    arrays = [None if a is None else to_torch(a) for a in operands(case)]
    y = backend.run(case.call, *arrays)[0]
    got = backend.fused(case.call, activation)(*arrays)
    want = getattr(torch.nn.functional, activation)(y.double())
    few = 2.0**-24 * 8 * want.abs().clamp(min=2.0**-100)
    assert ((got.double() - want).abs() <= few).all()
    if activation == "relu":
        arrays[0] = arrays[0].clone().fill_(torch.nan)
        assert backend.fused(case.call, "relu")(*arrays).isnan().all()


def test_a_batch_norm_adds_no_residual():
    assert backend.fused(parse(LINES[0]).call, "add_relu") is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("batch_norm.jvp:n2c3_i4", "no kernel for batch_norm.jvp: there are some for fprop"),
        ("batch_norm.fprop:n2c65536_i4", "more than 65535 channels"),
        ("batch_norm.fprop:n2048c2_i1024x1024", "2**31 pixels or more"),
    ],
)
def test_refusals_have_a_reason(line, reason):
    assert backend.supports(parse(line).call).startswith(reason)


STATIC = [
    f"{op}.{pass_}:n32c{c}{'g8' if op == 'group_norm' else ''}_i{size}x{size}"
    for op in norm.SPEC.serves
    for pass_ in ("fprop", "backward")
    for c, size in ((64, 56), (24, 28))
]
STATIC.append("batch_norm.fprop:n1c512_i16x16")
MERGES = (
    statistics.norm_settle_kernel,
    statistics.group_norm_settle_kernel,
    backward.norm_wgrad_kernel,
    backward.group_norm_sums_kernel,
)


def held(line, arch, every):
    """Check the compiled code of a line against the rules for every configuration.

    The one pixel that values are taken relative to is read once.
    """
    for launch, access, what in compiled(line, arch, every):
        tile = len(access.shape) > 1 and access.shape[0] > 1
        if tile and launch.kernel not in MERGES:
            assert access.vector >= 16, what
            assert access.coalesced or access.row >= 32


@pytest.mark.parametrize("line", [STATIC[0], STATIC[2], STATIC[10], STATIC[-1]])
@pytest.mark.parametrize("memory", ["nhwc", ""])
def test_elements_move_16_bytes_at_a_time(line, memory):
    held(f"{line}:dt=bf16" + (f":mem={memory}" if memory else ""), "sm_90", every=False)


@IS_A_SWEEP
@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("keys", ["dt=bf16:mem=nhwc", "dt=f16", "dt=f32:mem=nhwc", "dt=f32"])
@pytest.mark.parametrize("line", STATIC)
def test_no_configuration_spills(line, keys, arch):
    held(f"{line}:{keys}", arch, every=True)


@pytest.mark.parametrize("memory", [":mem=nhwc", ""])
@pytest.mark.parametrize("line", ["batch_norm.fprop:n8c64", "group_norm.backward:n8c64g8"])
def test_an_unseen_shape_compiles_nothing(line, memory):
    keys, choice = [], None
    for extents in ("56x56", "24x40"):
        call = parse(f"{line}_i{extents}:dt=bf16{memory}").call
        choice = choice or offered(call, layouts(call))[0]
        made = plan(call, layouts(call), choice)
        keys.append([specialize(step).key for step in made.steps])
        assert not made.copies
    assert keys[0] == keys[1]


@pytest.mark.parametrize("line", ["batch_norm.fprop:n4c64", "group_norm.backward:n4c64g8"])
def test_a_large_image_is_not_copied(line):
    """A tile of it spans far less than 2**31 elements, wherever its channels lie."""
    for memory in ("", ":mem=nhwc"):
        call = parse(f"{line}_i2048x2048:dt=bf16{memory}").call
        assert not plan(call, layouts(call)).copies


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize("line", LINES)
def test_on_a_gpu(line):
    assert verdict(parse(line).on("cuda"))
