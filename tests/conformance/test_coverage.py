"""What the court draws: pairs and triples of classes, sizes beyond a kernel's tiles, its time."""

from collections import Counter
from functools import cache
from math import prod
from operator import ge

import numpy as np
import pytest

from convref.case import parse
from convref.conformance.examine import examine
from convref.conformance.families.tape import LARGE, MIXTURE, Tape
from convref.conformance.families.windows import Draft, DraftAxis
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.conformance.report.coverage import coverage, coverage_of
from convref.conformance.strategies import FAR, LARGE_ELEMENTS, cases
from convref.dispatch import load
from convref.ops import OPS

# Pairs and triples of classes that the draws of seed 0 have at least, by op and number of draws.
FEW = {"conv": (1_000, 8_500, 197_000), "resize": (600, 7_000, 127_000)}
# Percent of the pairs and of the triples that 20,000 draws have at least, by op.
MANY = {
    "conv": (87, 63),
    "conv_integer": (85, 58),
    "quantized_conv": (86, 60),
    "unfold": (87, 62),
    "fold": (87, 62),
    "max_pool": (88, 63),
    "avg_pool": (88, 63),
    "lp_pool": (87, 61),
    "adaptive_max_pool": (80, 46),
    "adaptive_avg_pool": (80, 46),
    "max_unpool": (78, 40),
    "resize": (85, 57),
    "pixel_shuffle": (83, 51),
    "pixel_unshuffle": (83, 52),
    "grid_sample": (82, 53),
    "roi_align": (82, 53),
    "deform_conv": (90, 71),
    "batch_norm": (85, 58),
    "instance_norm": (86, 60),
    "batch_norm_eval": (86, 58),
    "group_norm": (85, 58),
    "layer_norm": (86, 59),
    "rms_norm": (85, 57),
    "relu": (82, 49),
    "leaky_relu": (83, 51),
    "prelu": (84, 53),
    "silu": (83, 50),
    "gelu": (84, 52),
    "hardswish": (83, 50),
    "hardtanh": (84, 53),
    "hardshrink": (83, 51),
    "softshrink": (83, 51),
    "threshold": (84, 53),
    "hardsigmoid": (82, 49),
    "elu": (84, 52),
    "celu": (84, 52),
    "selu": (83, 50),
    "softplus": (84, 54),
    "logsigmoid": (83, 50),
    "softsign": (83, 50),
    "mish": (83, 50),
    "sigmoid": (83, 50),
    "tanh": (83, 50),
    "tanhshrink": (83, 50),
    "softmax": (84, 52),
    "log_softmax": (84, 52),
    "hardmax": (82, 48),
    "nll_loss": (84, 56),
    "cross_entropy": (86, 59),
    "soft_cross_entropy": (86, 57),
    "normalize": (85, 57),
    "local_response_norm": (85, 58),
    "matmul": (84, 55),
    "sum": (83, 49),
    "mean": (83, 49),
    "cumsum": (83, 51),
    "sdpa": (78, 47),
}


@cache
def few(op):
    """Return the first cases of a campaign of `op`."""
    return chunk_cases(Axes(ops=(op,), size=FEW[op][0], large=True), 0)


@pytest.mark.parametrize("op", FEW)
def test_pairs_and_triples_do_not_become_fewer(op):
    _, pairs, triples = FEW[op]
    found = coverage(op, few(op))
    assert found.sets[1][0] >= pairs, str(found)
    assert found.sets[2][0] >= triples, str(found)


@pytest.mark.nightly(reason="ten seconds per op")
@pytest.mark.parametrize("op", OPS)
def test_a_minute_of_draws_has_every_class(op):
    found = coverage_of(op, 20_000)
    assert not found.missed, str(found)
    percent = tuple(100 * met // every for met, every in found.sets[1:])
    assert all(map(ge, percent, MANY.get(op, (0, 0)))), str(found)


FACTS = {
    "all sizes 1": lambda p: {p.n, p.c, p.k, *p.input, *p.filter, *p.stride} == {1},
    "one tap, stride 2": lambda p: {*p.filter} == {1} and {*p.stride} == {2} and p.rank > 1,
    "groups of images of 1": lambda p: p.groups > 1 and {*p.input} == {1},
    "one input, many outputs": lambda p: {*p.input} == {1} and p.k > 64,
    "many images": lambda p: p.n >= 32,
    "a wide row": lambda p: p.input[-1] > 1024,
    "a filter of 8": lambda p: 8 in p.filter,
    "a stride of 8": lambda p: 8 in p.stride,
    "a dilation of 6": lambda p: 6 in p.dilation,
    "a layer of ResNet": lambda p: {*p.filter, *p.stride} == {3, 2} and {*p.padding} == {(1, 1)},
}


def test_what_networks_and_the_smallest_cases_have_is_drawn():
    problems = [case.call.conv for case in few("conv")]
    met = {fact: sum(map(has, problems)) for fact, has in FACTS.items()}
    assert min(met.values()) >= 3, met
    assert met["all sizes 1"] > 30


def test_every_ratio_of_a_resize_is_drawn():
    problems = [case.call.problem for case in few("resize")]
    pairs = {pair for p in problems for pair in zip(p.input, p.output)}
    assert len({(i, o) for i, o in pairs if o > 1 and 2 * o < i}) > 40
    assert len({(i, o) for i, o in pairs if i < o and o % i}) > 40


def built(count, wanted):
    """Return `count` cases of kinds of draw whose base is wanted, of each op in turn."""
    generator, found = np.random.Generator(np.random.Philox(key=1)), []
    strategies = [cases([op], large=True) for op in OPS]
    while len(found) < count:
        strategy = strategies[len(found) % len(strategies)]
        tape = Tape(generator.bytes(strategy.size), large=True)
        if tape.base == wanted:
            found.append(strategy.build(tape))
    return found


def test_a_size_of_0_does_not_lift_the_limits_of_the_others():
    axes = [DraftAxis(size, 1, 1, 1, 0, 0, 0, 1) for size in (13, 1024, 6147)]
    for n, c in ((128, 0), (0, 1)):
        assert Draft(False, n, c, 1, 1, False, axes).too_big(4_000, 50_000)


def test_large_examples_have_a_share_of_the_time():
    generator = np.random.Generator(np.random.Philox(key=0))
    kinds = Counter(Tape(generator.bytes(2), large=True).base for _ in range(20_000))
    cost = {kind.base: kind.cost for kind in (*MIXTURE, *LARGE)}
    share = kinds["large"] * cost["large"] / sum(n * cost[base] for base, n in kinds.items())
    assert 0.1 < share < 0.2
    assert 0.003 < kinds["large"] / kinds.total() < 0.01
    assert {Tape(generator.bytes(2)).base for _ in range(1_000)} == {"wild", "minimal", "usual"}


def test_large_examples_exceed_a_tile_and_keep_their_limit():
    sizes = []
    for case in built(2 * len(OPS), "large"):
        problem = case.call.problem
        shapes = [prod(problem.shape(role)) for role in (*case.call.roles, *case.call.wanted)]
        assert problem.n * problem.c <= LARGE_ELEMENTS, case
        sizes.append(max(shapes))
    assert sum(size > 65_536 for size in sizes) > 0.6 * len(sizes)
    assert max(sizes) > 100_000


def test_operands_are_stored_far_apart_in_little_memory():
    lengths = []
    for case in built(len(OPS), "far"):
        given = [array for array in operands(case) if array is not None and array.size]
        reach = [sum((n - 1) * s for n, s in zip(a.shape, a.strides)) // a.itemsize for a in given]
        lengths.append(max(reach, default=0))
        assert examine(case, load("numpy")).verdict in ("pass", "unsupported"), case
    assert sum(length >= FAR for length in lengths) > 0.7 * len(lengths)


def test_elements_stored_far_apart_have_the_values_and_poison_behind_them():
    (near,), (far,) = (
        operands(parse(f"relu.fprop:n2c1_i3{m}")) for m in ("", ":mem=x.step800000000n")
    )
    assert np.array_equal(near, far)
    behind = np.lib.stride_tricks.as_strided(far[0, 0], (6,), far.strides[-1:])
    assert np.isnan(behind[3:]).all()
