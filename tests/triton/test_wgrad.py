"""Filter and bias cotangents in the strict interpreter: splits, any views, 64-bit offsets."""

from dataclasses import replace
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convref.arrays import to_numpy, to_torch
from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.judge import judge

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common import geometry
from convref_triton.common.geometry import Tensor
from convref_triton.conv import bgrad, wgrad
from convref_triton.plan import archs, cost
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import plan
from convref_triton.plan.task import Task
from convref_triton.run import interpreted

CASES = cases(
    passes=["backward", "double_backward"],
    dtypes=("f32", "bf16", "f16"),
    max_elements=1_000,
    max_macs=10_000,
)


def planned(case, choice=None):
    """Return the plan of a case, with a choice by its number, and its operands."""
    tensors = {
        role: to_torch(array)
        for role, array in zip(case.call.roles, operands(case))
        if array is not None
    }
    facts = {
        role: Tensor(role, tuple(t.shape), t.stride(), case.call.dtype, t.data_ptr() % 16 == 0)
        for role, t in tensors.items()
    }
    offered = backend.configurations(case.call)
    chosen = offered[choice % len(offered)] if choice is not None and offered else None
    return plan(case.call, facts, chosen), tensors


def results(case, choice=None, seed=0):
    """Return the wanted results by role, computed by programs in the order of `seed`."""
    buffers = interpreted.run(*planned(case, choice), seed)
    return {role: buffers[role] for role in case.call.wanted}


def verdict(case, found):
    arrays = [to_numpy(found[r]) if r in found else None for r in case.call.signature.results]
    numerics, zero_mean = backend.numerics(case.call), case.fill == "normal"
    return judge(case.call, operands(case), arrays, numerics, zero_mean=zero_mean)


def without_pixels(case):
    """Return the case without dx and ddy, which other kernels compute."""
    second = case.call.pass_ == "double_backward"
    mask = (False, False, True) if second else (False, *case.call.mask[1:])
    mask = mask if any(mask) else (False, True, True)
    return replace(case, call=replace(case.call, mask=mask))


WANTED = CASES.map(without_pixels)
PICKS = st.integers(0, 2**16)
HALF = settings(max_examples=settings.default.max_examples // 2)


@given(WANTED, PICKS)
def test_every_tile_is_right(case, choice):
    assert verdict(case, results(case, choice))


@HALF
@given(WANTED, PICKS, st.integers(1, 12))
def test_any_number_of_splits_is_right_and_repeats_bit_for_bit(case, choice, most):
    """In the interpreter, however many programs there are and in whatever order they run."""

    def cut(task, whole):
        splits = min(most, whole.steps) or 1
        return (-(-whole.steps // -(-whole.steps // splits)) if whole.steps else 1), whole

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "cut", cut)
        patch.setattr(bgrad, "blocks", lambda tile, columns, rows: most)
        first, second = (results(case, choice, seed) for seed in (0, 1))
    assert verdict(case, first)
    for role, tensor in first.items():
        assert to_numpy(tensor).tobytes() == to_numpy(second[role]).tobytes()


@HALF
@given(WANTED, PICKS)
def test_views_are_read_in_place(case, choice):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "one_order", lambda task, tensors: tensors)
        patch.setattr(Task, "stored", lambda task, result: result)
        assert verdict(case, results(case, choice))


@HALF
@given(WANTED, PICKS)
def test_offsets_of_64_bits_are_right(case, choice):
    with pytest.MonkeyPatch.context() as patch:
        for kernel in (wgrad, bgrad):
            patch.setattr(kernel, "LIMIT", 1)
        assert verdict(case, results(case, choice))


SIZES = st.integers(0, 2**31 - 1)


@given(WANTED, SIZES, st.integers(1, 10**5), st.sampled_from([*archs.PRODUCTS]))
def test_no_split_is_empty_short_or_too_large(case, steps, tiles, numbers):
    task = Task(Builder(case.call, {}), geometry.geometry(case.call.conv), case.call.wanted[-1])
    whole = cost.Work(numbers, tiles, steps, 64.0**3, 2.0**14)
    splits, work = cost.cut(task, whole)
    if splits == 1:
        assert work == whole
        return
    each = -(-steps // splits)
    assert (work.tiles, work.steps) == (tiles * splits, each)
    assert (splits - 1) * each < steps  # the last one has something to do
    assert each >= cost.FILLED * (whole.ahead + 1)
    assert splits * prod(case.call.problem.shape(task.role)) * 4 <= cost.WORKSPACE
    assert tiles * splits <= 2 * archs.SMS


@pytest.mark.parametrize(
    ("line", "fewest", "most"),
    [
        ("conv.wgrad:n32c256k256_i14x14_f3x3_p1:dt=bf16:mem=nhwc", 2, 8),
        ("conv.wgrad:n32c64k256_i56x56_f1x1:dt=bf16:mem=nhwc", 8, 132),
        ("conv.wgrad:n32c1024k1024_i7x7_f3x3_p1:dt=bf16:mem=nhwc", 1, 1),
        ("conv.wgrad:n1c8k8_i4x4_f3x3_p1:dt=bf16:mem=nhwc", 1, 1),
    ],
)
def test_real_layers_fill_a_card_once_or_twice(line, fewest, most):
    call = parse(line).call
    launch = next(s for s in plan(call, geometry.operands(call)).steps if s.kernel is wgrad.wgrad)
    assert fewest <= launch.grid[2] <= most
    assert prod(launch.grid) <= 2 * archs.SMS or launch.grid[2] == 1


def test_no_sum_has_many_terms_in_a_row():
    """Here one running sum would lose the last bits of most addends, from 2**24 on."""
    count = 2**18
    dy = torch.full((1, 2, count), 129.0)
    dy[..., -1] = 131.0
    facts = Tensor("dy", tuple(dy.shape), dy.stride(), "f32")
    db = Tensor("db", (2,), (1,), "f32")
    tensors = {"dy": dy, "db": torch.full((2,), torch.nan)}
    interpreted.execute(
        bgrad.bgrad_launch(facts, db, bgrad.TILES.fitting("f32", "sm_90")[1]), tensors
    )
    assert torch.equal(tensors["db"], torch.full((2,), 129.0 * count + 2))
