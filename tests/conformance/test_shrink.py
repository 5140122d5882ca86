"""The shrinker ends at a case that no smaller neighbour of it fails."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convref import parse
from convref.conformance import strategies
from convref.conformance.examine import examine
from convref.conformance.shrink import candidates, reproducible, shrink, weight
from convref.dispatch import load

CAUSES = [  # name, predicate on a case, the smallest case
    ("always", lambda c: True, "n1c1k1_i1_f1"),
    ("stride", lambda c: max(c.call.problem.stride) >= 2, "n1c1k1_i1_f1_s2"),
    ("channels", lambda c: c.call.problem.c >= 6, "n1c6k1_i1_f1"),
    ("groups", lambda c: c.call.problem.groups >= 2, "n1c2k2g2_i1_f1"),
    ("transposed", lambda c: c.call.problem.transposed, "n1c1k1_i1_f1:t=1"),
    ("low pad", lambda c: any(lo > 0 for lo, _ in c.call.problem.padding), "n1c1k1_i1_f1_p1,0"),
    ("wide filter", lambda c: max(c.call.problem.filter) >= 3, None),
    ("rank 3", lambda c: c.call.problem.rank == 3, "n1c1k1_i1x1x1_f1x1x1"),
    ("dw", lambda c: c.call.pass_ != "backward" or c.call.mask[1], None),
]


@pytest.mark.parametrize(("name", "bad", "smallest"), CAUSES, ids=[row[0] for row in CAUSES])
def test_shrinks_to_the_smallest_case(name, bad, smallest):
    start = parse(
        "conv.fprop:n3c12k8g4_i9x10x11_f3x4x3_s2x3x2_p1,2x3,0x1,1_d1x2x1:t=1:op=1"
        ":dt=bf16:mem=x.ndhwc.off3:fill=wide:seed=99"
    )
    found = shrink(start, lambda cases: [bad(c) for c in cases])
    assert bad(found.case)
    assert all(not bad(c) for c in candidates(found.case))
    if smallest is not None:
        line = str(found.case)
        assert line.startswith(f"conv.fprop:{smallest}"), line


JOINT = [  # of two fields, or of the data: a line, a predicate, the smallest case
    (
        "resize.fprop:n2c3_i39x4_o12x4",
        lambda c: any(i > 3 * o > 3 for i, o in zip(c.call.problem.input, c.call.problem.output)),
        "resize.fprop:n1c1_i7_o2:fill=ones",
    ),
    (
        "conv.fprop:n1c1k1_i33x33_f33x33",
        lambda c: c.call.problem.c * prod(c.call.problem.filter) >= 512,
        "conv.fprop:n1c24k1_i22_f22:fill=ones",
    ),
    (
        "conv.fprop:n1c1k1_i1x1x1_f1x1x1_p2",
        lambda c: prod(c.call.problem.output) % 64 > 8,
        "conv.fprop:n1c1k1_i9_f1:fill=ones",
    ),
    (
        "softmax.fprop:n2c2_i1x9:dim=3",
        lambda c: c.call.problem.shape("x")[c.call.problem.dim] >= 9,
        "softmax.fprop:n1c9_i1:fill=ones",
    ),
    (
        "conv.fprop:n2c2k2_i2_f1:mem=x.step2n.step-1w",
        lambda c: any(k < 0 for spec in c.call.specs for _, k in spec.step),
        "conv.fprop:n1c1k1_i1_f1:mem=x.step-1w:fill=ones",
    ),
    ("conv.fprop:n0c1k1_i2_f1", lambda c: True, "conv.fprop:n1c1k1_i1_f1:fill=ones"),
    (
        "grid_sample.fprop:n2c1_i4x4_o0x2",
        lambda c: 0 in c.call.problem.output,
        "grid_sample.fprop:n1c1_i1x1_o0x1:fill=ones",
    ),
    (
        "relu.fprop:n2c8_i65:fill=ties:seed=26444",
        lambda c: c.fill == "ties" and (c.call.problem.input[0] > 4 or c.seed == 3),
        "relu.fprop:n1c1_i1:fill=ties:seed=3",
    ),
]


@pytest.mark.parametrize(("line", "bad", "smallest"), JOINT, ids=[row[0] for row in JOINT])
def test_fields_that_depend_on_each_other_shrink_together(line, bad, smallest):
    found = shrink(parse(line), lambda cases: [bad(c) for c in cases])
    assert str(found.case) == smallest


@given(strategies.cases(), st.integers(0, 10**6))
def test_candidates_are_smaller_and_parse_back(case, seed):
    for neighbour in candidates(case):
        assert weight(neighbour) < weight(case)
        assert parse(str(neighbour)) == neighbour


def test_needs_lists_the_fields_that_matter():
    start = parse("conv.fprop:n2c8k4_i9x9_f3x3_s2x3_p1:dt=bf16:fill=normal:seed=5")
    found = shrink(
        start,
        lambda cases: [c.call.problem.stride[-1] > 1 and c.call.dtype == "bf16" for c in cases],
    )
    assert set(found.needs) == {"stride >= 2", "dtype = bf16"}
    assert "c" in found.independent
    assert "n" in found.independent


def test_fields_that_were_not_run_are_neither_needed_nor_independent():
    start = parse("conv.fprop:n2c8k4_i9x9_f3x3_s2x3_p1:dt=bf16:fill=normal:seed=5")
    found = shrink(start, lambda cases: [None] * len(cases))
    assert (found.case, found.needs, found.independent) == (start, (), ())


def test_an_unpooling_without_room_for_its_input_has_no_operands():
    start = parse("max_unpool.fprop:n1c1_i4_o5")
    found = {str(c): c for c in candidates(start)}
    finding = examine(found["max_unpool.fprop:n1c1_i4_o1"], load("numpy"))
    assert (finding.verdict, finding.reason) == (
        "unsupported",
        "max_unpool: input has 4 elements, output has positions for 1 of them",
    )


def test_sizes_that_must_be_multiples_shrink_by_steps_of_the_factor():
    start = parse("pixel_unshuffle.fprop:n1c1_i6x2")
    assert str(shrink(start, lambda cases: [True] * len(cases)).case).startswith(
        "pixel_unshuffle.fprop:n1c1_i2x2"
    )


def test_a_failure_that_needs_an_earlier_call_gets_one():
    case = parse("conv.fprop:n1c1k1_i1_f1:around=memory,batch")
    assert reproducible(case, lambda cases: [False]) is None
    found = reproducible(case, lambda cases: ["data" in c.around for c in cases])
    assert found.around == ("data", "memory", "batch")
