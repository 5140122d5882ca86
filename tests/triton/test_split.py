"""A reduction cut into parts: any number of them, classes of pixels, the same bits every time."""

from math import prod

import pytest
from forced import facts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convref.arrays import like, to_numpy
from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.judge import judge

pytest.importorskip("triton", reason="triton is not installed")

import triton

from convref_triton.backend import backend
from convref_triton.common.geometry import geometry
from convref_triton.common.geometry import operands as layouts
from convref_triton.compile import aot
from convref_triton.compile.inspection import inspect, inspect_all
from convref_triton.compile.specialize import specialize
from convref_triton.conv import gather, split
from convref_triton.plan import archs, cost
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import offered, plan
from convref_triton.plan.task import Task
from convref_triton.plan.tile import Tile
from convref_triton.run import interpreted

CASES = cases(
    passes=("fprop", "jvp", "dgrad"),
    dtypes=("f32", "bf16", "f16"),
    maths=("ieee", "ieee", "tf32"),
    max_elements=200,
    max_macs=1_500,
)


def in_parts(most):
    """Return a stand-in for `cost.cut`: `most` parts, or as many as there are steps."""

    def cut(task, whole):
        parts = max(min(most, whole.steps), 1)
        return (-(-whole.steps // -(-whole.steps // parts)) if whole.steps else 1), whole

    return cut


def results(case, pick, seeds=(0,)):
    """Return the results by role for each order of programs, and how many parts there were."""
    tensors, known = facts(case.call, operands(case))
    builder, parts = Builder(case.call, known), []
    for role in case.call.wanted:
        task = Task(builder, geometry(case.call.conv), role)
        if not prod(case.call.problem.shape(role)):
            task.result()
            continue
        kernel = split.SPEC if split.SPEC.tiles(task) else gather.SPEC
        rows = kernel.tiles(task)
        tile = rows[pick % len(rows)]
        parts.append(split.split_parts(task, tile)[0])
        kernel.add(task, tile)
    made = builder.plan()
    found = [interpreted.run(made, tensors, seed) for seed in seeds]
    return [{role: one[role] for role in case.call.wanted} for one in found], parts


@settings(max_examples=settings.default.max_examples // 4)
@given(CASES, st.integers(0, 2**16), st.integers(2, 9))
def test_any_number_of_parts_is_right_and_repeats_bit_for_bit(case, pick, most):
    assume(backend.supports(case.call) is None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "cut", in_parts(most))
        (first, second), parts = results(case, pick, seeds=(0, 1))
    assume(any(count > 1 for count in parts))
    for role, tensor in first.items():
        assert to_numpy(tensor).tobytes() == to_numpy(second[role]).tobytes()
    arrays = operands(case)
    template = next(a for a in arrays if a is not None)
    found = tuple(
        like(first[role], template) if role in first else None
        for role in case.call.signature.results
    )
    zero_mean = case.fill == "normal"
    assert judge(case.call, arrays, found, backend.numerics(case.call), zero_mean=zero_mean)


LINES = (
    "conv.fprop:n1c640k12_i2x3_f3x3_p1:fill=normal",
    "conv.fprop:n1c4000k12_i2x1_f1x1:dt=bf16:mem=nhwc:fill=normal",
    "conv.dgrad:n1c12k320_i3x3_f3x3_s2_p1:fill=int",  # classes of 1, 2, 2 and 4 taps
    "conv.double_backward:n2c320k12_i2_f3_p1:mask=100:fill=inf",
)


@pytest.mark.parametrize("line", LINES)
def test_the_plan_chooses_the_kernel(line):
    case = parse(line)
    made = plan(case.call, layouts(case.call))
    assert f"{case.call.wanted[-1]}: split " in made.reason
    launches = made.launches
    assert any(step.constants.get("SPLIT") for step in launches)
    arrays = operands(case)
    found = backend.run(case.call, *arrays)
    zero_mean = case.fill == "normal"
    assert judge(case.call, arrays, found, backend.numerics(case.call), zero_mean=zero_mean)


@settings(max_examples=settings.default.max_examples // 4)
@given(CASES, st.integers(0, 2**16))
def test_offsets_of_64_bits_are_right(case, pick):
    assume(backend.supports(case.call) is None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "cut", in_parts(3))
        patch.setattr(gather, "LIMIT", 1)
        (found,), _ = results(case, pick)
    arrays = operands(case)
    template = next(a for a in arrays if a is not None)
    given_ = tuple(
        like(found[r], template) if r in found else None for r in case.call.signature.results
    )
    assert judge(case.call, arrays, given_, backend.numerics(case.call))


SMALL = "conv.fprop:n1c512k512_i7x7_f3x3_p1:dt=bf16:mem=nhwc"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("conv.fprop:n32c512k512_i28x28_f3x3_p1:dt=bf16:mem=nhwc", "tiles fill the card"),
        ("conv.fprop:n1c16k64_i7x7_f3x3_p1:dt=bf16:mem=nhwc", "a short reduction"),
        ("conv.fprop:n8c1024k64_i7x7_f1x1:dt=bf16:mem=nhwc", "parts would cost more"),
        ("conv.fprop:n1c1066k64_i7x7_f3x3_p1:dt=bf16:mem=nhwc", "(1066, 64) channels share no"),
        (SMALL, None),
    ],
)
def test_split_refuses_with_a_reason(line, reason):
    call = parse(line).call
    task = Task(Builder(call, layouts(call)), geometry(call.conv), "y")
    found = split.SPEC.refusal(task)
    assert found is None if reason is None else found.startswith(reason)


def test_a_tuner_is_offered_split_and_unsplit_kernels():
    call = parse(SMALL).call
    kernels = {choice.kernel for choice in offered(call, layouts(call))}
    assert {"split", "tma", "gather"} <= kernels
    choice = next(c for c in offered(call, layouts(call)) if c.kernel == "split")
    launch, total = plan(call, layouts(call), choice).steps
    assert launch.grid[2] == total.arguments["splits"] > 1
    assert launch.grid[0] * launch.grid[2] <= 2 * archs.SMS


def test_an_unseen_shape_compiles_nothing():
    keys = set()
    for sizes in ("n1c512k512_i7x7", "n1c576k640_i6x5", "n2c640k512_i5x4"):
        call = parse(f"conv.fprop:{sizes}_f3x3_p1:dt=bf16:mem=nhwc").call
        task = Task(Builder(call, layouts(call)), geometry(call.conv), "y")
        split.SPEC.add(task, Tile(64, 64, 64, 4, 4))
        keys.add(tuple(specialize(step).key for step in task.builder.steps))
    assert len(keys) == 1


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize(
    "line", [SMALL, SMALL.replace("fprop", "dgrad"), "conv.fprop:n1c640k64_i5"]
)
def test_the_tables_choice_spills_nothing(line, arch):
    line = line if ":dt" in line else f"{line}_f3_p1:mem=nhwc"
    call = parse(line).call
    launches = plan(call, layouts(call)).launches
    found = inspect_all([aot.compile(specialize(one), arch) for one in launches])
    assert [one.kernel for one in found] == ["gather", "reduce"]
    assert not any(one.spills for one in found)


def a_part():
    """Return the inspected binary of a part of a tile of 128x128x64, bf16."""
    call = parse("conv.fprop:n8c1280k1280_i8x8_f3x3_p1:dt=bf16:mem=nhwc").call
    task = Task(Builder(call, layouts(call)), geometry(call.conv), "y")
    split.SPEC.add(task, Tile(128, 128, 64, 8, 4))
    return inspect(aot.compile(specialize(task.builder.steps[0]), "sm_90"))


def test_a_part_multiplies_in_the_strong_form():
    found = a_part()
    assert (found.operands, found.wait, found.spills) == ("SS", 1, 0)
    assert set(found.loop_loads) == {"cp.async 16"}


@pytest.mark.skipif(
    not triton.__version__.startswith("3.6."), reason="the mark is of what Triton 3.6 makes"
)
def test_loop_of_a_part_is_as_short_as_gathers():
    """At most the 124 instructions per step that gather itself takes."""
    assert a_part().loop <= 124
