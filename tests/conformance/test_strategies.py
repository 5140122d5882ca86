"""The strategies: valid by construction, as varied as promised, and fast."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from convref import dtypes
from convref.case import FILLS
from convref.conformance.fills import available
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.strategies import calls, cases, problems
from convref.errors import ConvrefError

EVERYTHING = {"ops": ["conv", "conv", "conv", "unfold", "fold"], "dtypes": dtypes.CODES}


def drawn(strategy, count):
    """Return `count` examples in the order in which a campaign would see them."""
    seen = []
    quick = [HealthCheck.too_slow, HealthCheck.large_base_example]

    @settings(
        max_examples=count, phases=[Phase.generate], derandomize=True, suppress_health_check=quick
    )
    @given(strategy)
    def draw(example):
        seen.append(example)

    draw()
    return seen


@pytest.fixture(scope="module")
def sample():
    """Return two thousand conv cases."""
    return drawn(cases(), 2_000)


def test_thousands_of_draws_are_valid(sample):
    assert len(sample) == 2_000  # an invalid draw raises ConvrefError, a rejected one is missing
    assert len(drawn(cases(**EVERYTHING), 1_000)) == 1_000


@given(cases(**EVERYTHING))
def test_every_case_is_valid_and_has_its_fill(case):
    assert all(size >= 1 for size in case.call.problem.output)
    assert available(case.fill, case.call.dtype)
    assert case.call.wanted


def test_cases_differ(sample):
    assert len({str(case) for case in sample}) > 1_950


@pytest.mark.parametrize("max_elements", [1, 10, 300, 4_000])
def test_limits_are_kept(max_elements):
    max_macs = 2 * max_elements
    for problem in drawn(problems(max_elements=max_elements, max_macs=max_macs), 200):
        sizes = {role: problem.shape(role) for role in "xwy"}
        for role, shape in sizes.items():
            count = 1
            for size in shape:
                count *= size
            assert count <= max_elements, (role, problem)
        assert problem.macs("y") <= max_macs


AXIS_FACTS = {
    "window wholly in padding": lambda p, a: p.axes[a].lo > p.dilation[a] * (p.filter[a] - 1),
    "input below the filter": lambda p, a: p.input[a] < p.filter[a],
    "asymmetric padding": lambda p, a: p.padding[a][0] != p.padding[a][1],
    "negative low padding": lambda p, a: p.padding[a][0] < 0,
    "negative high padding": lambda p, a: p.padding[a][1] < 0,
    "dilation with stride": lambda p, a: p.stride[a] > 1 and p.dilation[a] > 1 and p.filter[a] > 1,
    "input that no window reads": lambda p, a: p.axes[a].positions_read < p.axes[a].big,
    "one position": lambda p, a: p.input[a] == 1,
    "one tap": lambda p, a: p.filter[a] == 1,
    "stride above the filter": lambda p, a: p.stride[a] > p.filter[a],
}


@pytest.mark.parametrize("fact", AXIS_FACTS)
@pytest.mark.parametrize("transposed", [False, True])
def test_every_axis_alone_can_be(sample, fact, transposed):
    """Each fact holds on one axis of a 2d problem and not on the other, both ways round."""
    problems_2d = [c.call.conv for c in sample if c.call.problem.rank == 2]
    patterns = Counter(
        tuple(bool(AXIS_FACTS[fact](p, a)) for a in (0, 1))
        for p in problems_2d
        if p.transposed is transposed
    )
    assert patterns[True, False] >= 3
    assert patterns[False, True] >= 3


FACTS = {
    **{f"rank {rank}": lambda c, rank=rank: c.call.problem.rank == rank for rank in (1, 2, 3)},
    **{f"{n} channels": lambda c, n=n: c.call.problem.c == n for n in (0, 1, 6, 7, 9, 17, 33, 64)},
    **{f"{n} out channels": lambda c, n=n: c.call.conv.k == n for n in (0, 1, 6, 7, 9, 17, 33, 64)},
    "no images": lambda c: c.call.problem.n == 0,
    "no input": lambda c: 0 in c.call.problem.input,
    "depthwise": lambda c: c.call.conv.groups == c.call.problem.c > 1,
    "groups of unequal sides": lambda c: c.call.conv.groups > 1 and c.call.conv.k != c.call.conv.c,
    "transposed": lambda c: c.call.conv.transposed,
    "output padding": lambda c: any(c.call.conv.output_padding),
    "output padding above the stride": lambda c: any(
        extra >= s for extra, s in zip(c.call.conv.output_padding, c.call.conv.stride) if extra
    ),
    "flip": lambda c: c.call.conv.flip,
    "no bias": lambda c: not c.call.conv.bias,
    "no tangent": lambda c: c.call.pass_ == "jvp" and not c.call.carried,
    "some tangents": lambda c: len(c.call.carried) in (1, 2),
    "partial mask": lambda c: bool(c.call.mask) and not all(c.call.mask),
    "channels last": lambda c: any(s.order in ("nhwc", "ndhwc", "nwc") for s in c.call.specs),
    "another order": lambda c: any(s.order.startswith("w") for s in c.call.specs),
    "steps": lambda c: any(s.step for s in c.call.specs),
    "expanded": lambda c: any(s.expand for s in c.call.specs),
    "offset": lambda c: any(s.offset for s in c.call.specs),
    "plain memory": lambda c: ":mem=" not in str(c),
    **{f"fill {name}": lambda c, name=name: c.fill == name for name in FILLS},
}


@pytest.mark.parametrize("fact", FACTS)
def test_two_thousand_cases_contain_each_fact(sample, fact):
    assert sum(map(bool, map(FACTS[fact], sample))) >= 5


def test_channels_are_independent_of_filter_and_stride(sample):
    seen = {
        (c.call.conv.c > 5, max(c.call.conv.filter) > 2, max(c.call.conv.stride) > 1)
        for c in sample
    }
    assert seen == set(product([False, True], repeat=3))


def test_most_cases_do_some_work(sample):
    idle = sum(case.call.problem.macs("y") == 0 for case in sample)
    assert 0.02 < idle / len(sample) < 0.2


@given(
    cases(
        passes=["dgrad", "wgrad"],
        dtypes=["f32"],
        fills=["ones"],
        max_rank=1,
        transposed=False,
        flip=False,
        negative_padding=False,
        empty=False,
        memory=False,
    )
)
def test_filters_are_kept(case):
    call, problem = case.call, case.call.conv
    assert call.wanted in (("dx",), ("dw",))
    assert (call.dtype, case.fill, problem.rank) == ("f32", "ones", 1)
    assert not problem.transposed
    assert not problem.flip
    assert min(problem.padding[0]) >= 0
    assert 0 not in (problem.n, problem.c, problem.k, *problem.input)
    assert ":mem=" not in str(case)


@given(cases(["max_pool", "silu"], dtypes=["u8", "c64", "f32"], max_elements=200))
def test_drawn_dtypes_are_supported_by_the_op(case):
    assert case.call.problem.refuses(case.call.dtype) is None
    assert case.call.dtype != "c64"


def test_impossible_axes_are_refused():
    with pytest.raises(ConvrefError, match="pass is 'sideways', needs one of fprop, backward"):
        calls(passes=["sideways"])
    with pytest.raises(ConvrefError, match="needs some of backward, double_backward, fprop, jvp"):
        calls(["relu"], passes=["wgrad"])
    with pytest.raises(
        ConvrefError, match="op is 'pool', needs one of lp_pool, max_pool, avg_pool or "
    ):
        calls(["pool"])
    with pytest.raises(ConvrefError, match="dtype is 'f31', needs one of"):
        calls(dtypes=["f31"])
    with pytest.raises(ConvrefError, match="i8 has none of the fills"):
        cases(dtypes=["i8"], fills=["nan"])


def test_shrinks_to_the_plainest_problem():
    simplest = find(problems(), lambda problem: problem.c >= 2, settings=settings(database=None))
    assert (simplest.n, simplest.k, simplest.c, simplest.groups) == (1, 1, 2, 1)
    assert simplest.filter == simplest.input == simplest.stride == (1, 1)
    assert simplest.padding == ((0, 0), (0, 0))


def test_each_drawn_call_is_run_on_several_data():
    """The calls are those that are drawn without, and the fills suit them."""
    axes = Axes(2, ("lp_pool",), dtypes=("f32",), size=40)
    cases = chunk_cases(replace(axes, data=4), 3)
    assert [case.call for case in cases] == [
        case.call for case in chunk_cases(replace(axes, size=10), 3) for _ in range(4)
    ]
    assert len({(case.fill, case.seed) for case in cases}) == len(cases)
    assert "subnormal" not in {case.fill for case in cases}
    assert len(chunk_cases(replace(axes, size=7, data=4), 0)) == 7
