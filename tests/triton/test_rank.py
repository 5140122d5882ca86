"""The cost model: bounds that hold for every kernel, and the ranking that it gives."""

from dataclasses import replace
from math import isfinite, prod

import pytest
from forced import copies_of
from hypothesis import assume, given
from hypothesis import strategies as st

from convref.case import parse
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common.geometry import geometry, operands
from convref_triton.plan import cost
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import choices, plan, ranked, refusal
from convref_triton.plan.kernels import BY_NAME
from convref_triton.plan.task import Task

CASES = cases(passes=("fprop", "dgrad", "wgrad"), dtypes=("f32", "bf16", "f16"), max_macs=10**6)
NHWC = "dt=bf16:mem=nhwc:dev=cuda"
LINES = (
    f"conv.fprop:n32c256k256_i14x14_f3x3_p1:bias=0:{NHWC}",
    f"conv.dgrad:n32c64k64_i56x56_f3x3_p1:{NHWC}",
    f"conv.dgrad:n8c64k64_i160x160_f3x3_s2_p1:{NHWC}",
    f"conv.wgrad:n32c64k64_i56x56_f3x3_p1:{NHWC}",
    f"conv.fprop:n4c120k128_i32x32_f3x3_p1:bias=0:{NHWC}",
    f"conv.fprop:n32c64k256_i56x56_f1x1:bias=0:{NHWC}",
    f"conv.fprop:n8c3k16_i640x640_f3x3_s2_p1:bias=0:{NHWC}",
    f"conv.fprop:n32c96k96g96_i56x56_f7x7_p3:bias=0:{NHWC}",
    f"conv.wgrad:n32c96k96g96_i56x56_f7x7_p3:{NHWC}",
    f"conv.fprop:n2c1280k320_i4x4_f3x3_p1:bias=0:{NHWC}",
)


def task_of(call):
    return Task(Builder(call, operands(call)), geometry(call.conv), call.wanted[0])


def expected_us(task, choice):
    return BY_NAME[choice.kernel].us(task, choice.tile)


CALLS = st.sampled_from(LINES).map(lambda line: parse(line).call)


@given(CASES.map(lambda case: case.call.on("cuda")) | CALLS)
def test_every_kernel_counts_the_products_and_no_fewer(call):
    """Tiles times steps times products of a step: at least what the formula multiplies."""
    assume(refusal(call) is None and prod(call.problem.shape(call.wanted[0])))
    task = task_of(call)
    for choice in choices(task):
        if BY_NAME[choice.kernel].work is None:
            continue
        work = BY_NAME[choice.kernel].work_of(task, choice.tile)
        assert work.kernel == choice.kernel
        assert min(work.tiles, work.steps, work.resident, work.launches) >= 0
        if work.products:
            assert work.tiles * work.steps * work.products >= call.flop() // 2, choice
            assert work.loaded > 0
        assert 0 < expected_us(task, choice) < float("inf")


@pytest.mark.parametrize("line", LINES)
def test_one_of_each_kernel_comes_first_and_none_is_lost(line):
    task = task_of(parse(line).call)
    offered = list(choices(task))
    order = ranked(task, offered)
    assert sorted(map(str, order)) == sorted(map(str, offered))
    kernels = {choice.kernel for choice in offered}
    heads, rest = order[: len(kernels)], order[len(kernels) :]
    assert {choice.kernel for choice in heads} == kernels
    for part in (heads, rest):
        us = [expected_us(task, one) for one in part]
        assert us == sorted(us)
    for head in heads:
        mine = [one for one in offered if one.kernel == head.kernel]
        us = [expected_us(task, one) for one in (head, *mine)]
        assert us[0] == min(us)


@pytest.mark.parametrize("line", LINES)
def test_no_choice_gets_faster_with_more_images(line):
    few, many = (task_of(parse(line.replace(":n", more, 1)).call) for more in (":n", ":n1"))
    assert many.geometry.n > few.geometry.n
    both = {str(one): one for one in choices(few)}.keys() & {str(one) for one in choices(many)}
    assert both
    for choice in choices(few):
        if str(choice) in both:
            us = [expected_us(task, choice) for task in (few, many)]
            assert us[0] <= us[1] * 1.000001, choice


def test_configurations_begin_with_the_fastest_estimate():
    for line in LINES:
        call = parse(line.replace(":dev=cuda", "")).call
        offered = backend.configurations(call)
        assert offered == ranked(task_of(call), offered)
        assert len(offered) == len(set(offered)) > 0


WIDE = cost.Work("bf16", 132, 64, 128 * 256 * 64, 48 * 1024)


def test_time_is_bounded_by_the_slowest_resource():
    rates = cost.Rates(l2=64.0, latency=0.0, mhz=1.0)
    assert cost.bound_us(WIDE, rates=rates) == 64 * 1024
    assert cost.bound_us(WIDE._replace(loaded=2 * 64 * 1024), rates=rates) == 64 * 2048
    assert cost.bound_us(WIDE._replace(issued=4 * 3000), rates=rates) == 64 * 3000
    assert cost.bound_us(WIDE._replace(tiles=133), rates=rates) == 2 * 64 * 1024
    assert cost.bound_us(WIDE._replace(tiles=133), sms=133, rates=rates) == 64 * 1024
    slow = replace(rates, latency=1500.0)  # cycles of a step, of one tile or of two
    assert cost.bound_us(WIDE._replace(tiles=264), rates=slow) == 2 * 64 * 1500
    assert cost.bound_us(WIDE._replace(tiles=264, at_once=2), rates=slow) == 64 * 2048
    # With one step ahead rather than three, each of the 63 others waits for its whole load.
    assert cost.bound_us(WIDE._replace(ahead=1), rates=slow) == pytest.approx(63 * 3 * 1500)
    assert cost.bound_us(WIDE._replace(ahead=1, steps=2), rates=slow) == 3 * 1500
    few = WIDE._replace(tiles=264, at_once=4, busy=3.0)
    assert cost.bound_us(few, rates=rates) == 3 * 64 * 1024


def test_ends_of_tiles_overlap_and_stores_do_not():
    rates = cost.Rates(fill=100.0, stored=20.0, mhz=1.0)
    assert cost.ends_us(WIDE._replace(tiles=264), rates=rates) == 2 * 100
    assert cost.ends_us(WIDE._replace(tiles=264, resident=2), rates=rates) == 100
    assert cost.ends_us(WIDE._replace(tiles=264, stored=40.0), rates=rates) == 2 * (100 + 2)


def test_memory_copies_and_parts_add_to_the_estimate():
    rates, alone = cost.ESTIMATED, cost.us(WIDE, 0.0)
    assert isfinite(alone)
    assert cost.us(WIDE, 1000 * rates.memory) > max(alone, 1000.0)
    parts = WIDE._replace(beside=rates.memory, launches=2)
    assert cost.us(parts, 0.0) == pytest.approx(alone + 1.0 + rates.launch_us)
    copies = WIDE._replace(copies=2, copied=rates.copy, reordered=rates.reorder, maps=True)
    assert cost.us(copies, 0.0) == pytest.approx(alone + 2 * rates.copy_us + 2.0 + rates.maps_us)


@pytest.mark.parametrize("line", LINES)
def test_copies_are_those_of_the_plan(line):
    for text in (line, line.replace("mem=nhwc:", "")):
        call = parse(text).call
        task = task_of(call)
        for choice in choices(task):
            made = plan(call, operands(call), choice)
            copies, slow = copies_of(made), [copy.target for copy in made.copies]
            work = BY_NAME[choice.kernel].work_of(task, choice.tile)
            assert work.copies == len(copies), choice
            moved = {target: 2 * 2 * prod(made.buffers[target].shape) for _, target in copies}
            assert work.copied == sum(moved[target] for target in slow), choice
            assert work.copied + work.reordered == sum(moved.values()), choice
