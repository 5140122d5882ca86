"""Derived numbers of problems and calls against brute-force enumeration."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from math import prod

import numpy as np
import pytest
from hypothesis import given

from convref import dtypes
from convref.case import Call, Spec
from convref.conformance.strategies import calls, problems
from convref.errors import ConvrefError
from convref.ops import FAMILY, SIGNATURE, ConvProblem, WindowProblem
from convref.oracle import loops

TINY = {"max_elements": 150, "max_macs": 300}
SIDES = (0, 1, 2)  # positions of x, w, y in a term of the loops


def real_terms(problem):
    """Return the products (x index, w index, y index) that meet no padding."""
    return [term for term in loops.conv.terms(problem) if None not in term]


@given(problems(**TINY))
def test_macs_and_touched_by_enumeration(problem):
    terms = real_terms(problem)
    for role, side in zip("xwy", SIDES):
        assert problem.macs(role) == len(terms)
        seen = {term[side] for term in terms}
        if problem.k and problem.c and role == ("y" if problem.transposed else "x"):
            assert problem.elements_read(role) == len(seen), role
        assert problem.elements_read(role) >= len(seen)
    assert problem.macs("db") == 0


@given(problems(**TINY))
def test_products_bound_every_path(problem):
    """A term with padding counts too: padded zeros are added like any other product."""
    for role, side in zip("xwy", SIDES):
        per_element = Counter(
            term[side] for term in loops.conv.terms(problem) if term[side] is not None
        )
        longest = max(per_element.values(), default=0)
        assert problem.products(role) >= longest + (role == "y" and problem.bias)
    assert problem.products("db") == problem.n * prod(problem.output)


@given(problems(transposed=False, **TINY))
def test_products_are_reached_by_the_output_and_the_filter(problem):
    if 0 in (problem.n, problem.c, problem.k):
        assert problem.macs("y") == 0
        return
    for role, side in (("w", 1), ("y", 2)):
        per_element = Counter(term[side] for term in loops.conv.terms(problem))
        assert problem.products(role) == max(per_element.values()) + (role == "y" and problem.bias)


@given(problems())
def test_output_by_counting_windows(problem):
    for axis, (i, taps, s, d, (lo, hi)) in enumerate(
        zip(problem.input, problem.filter, problem.stride, problem.dilation, problem.padding)
    ):
        span = d * (taps - 1) + 1
        if problem.transposed:
            reached = {p * s + r * d for p in range(i) for r in range(taps)}
            want = max(reached) + 1 + problem.output_padding[axis] - lo - hi
        else:
            want = len(range(-lo, i + hi - span + 1, s))
        assert problem.output[axis] == want


@given(problems(op="unfold", max_elements=300))
def test_windows_by_enumeration(problem):
    ones = np.ones(problem.shape("x"))
    cols = loops.unfold.unfold(ones, problem)
    assert problem.shape("cols") == cols.shape
    reads = loops.unfold.fold(np.ones(problem.shape("cols")), problem)
    assert problem.elements_read("x") == np.count_nonzero(reads)
    assert problem.products("x") >= reads.max(initial=0)
    assert problem.products("cols") == 1


@given(calls(max_elements=150, max_macs=300))
def test_flop_and_bytes(call):
    pairs = len(real_terms(call.conv))
    carried = call.carried
    sums = {
        "fprop": 1,
        "backward": ("dx" in call.wanted) + ("dw" in call.wanted),
        "jvp": 1 + ("x" in carried) + ("w" in carried),
        "double_backward": ("ddy" in call.wanted) * (("x" in carried) + ("w" in carried))
        + ("dx" in call.wanted) * ("w" in carried)
        + ("dw" in call.wanted) * ("x" in carried),
    }[call.pass_]
    assert call.flop() == 2 * pairs * sums
    written = sum(prod(call.problem.shape(role)) for role in call.wanted)
    size = dtypes.numpy_dtype(call.dtype).itemsize
    whole = sum(prod(call.problem.shape(r)) for r in call.roles if call.is_present(r))
    assert written * size <= call.bytes_moved() <= (whole + written) * size


def test_bytes_by_hand():
    problem = ConvProblem(n=1, c=1, k=1, input=(9,), filter=(1,), stride=4, bias=False)
    assert Call("conv", "fprop", problem).bytes_moved() == 4 * (3 + 1 + 3)  # 3 of 9 are read
    assert Call("conv", "backward", problem, mask=(0, 0, 1)).bytes_moved() == 4 * (3 + 1)


def test_bgrad_does_no_products():
    problem = ConvProblem(n=2, c=3, k=4, input=(5, 5), filter=(3, 3))
    assert Call("conv", "backward", problem, mask=(False, False, True)).flop() == 0


def test_jvp_path_has_both_products():
    problem = ConvProblem(n=1, c=2, k=1, input=(3,), filter=(3,))
    assert problem.products("y") == 7
    assert Call("conv", "jvp", problem).products("y_dot") == 15
    assert Call("conv", "jvp", problem, tangents="x").products("y_dot") == 8


REFUSED = [
    ({"input": (2,), "filter": (3,)}, "output Q is 0, needs at least 1: input W is 2"),
    ({"input": (0,), "transposed": True}, "input is (0,), needs at least 1 when transposed"),
    ({"groups": 2}, "C is 3, needs a multiple of groups=2"),
    ({"c": 2, "groups": 2}, "K is 3, needs a multiple of groups=2"),
    ({"stride": 0}, "stride W is 0, needs at least 1"),
    ({"dilation": 0}, "dilation W is 0, needs at least 1"),
    ({"filter": (0,)}, "filter S is 0, needs at least 1"),
    ({"n": -1}, "n is -1, needs at least 0"),
    ({"n": True}, "n is True, needs an integer"),
    ({"c": 1.0}, "c is 1.0, needs an integer"),
    ({"stride": "2"}, "stride is '2', needs an integer"),
    ({"stride": (1, 2)}, "stride has 2 entries, needs 1"),
    ({"padding": ((1, 2, 3),)}, "padding[0] has 3 entries, needs (lo, hi)"),
    ({"output_padding": 1}, "needs 0 unless transposed"),
    (
        {"output_padding": 2, "stride": 2, "transposed": True},
        "output_padding[0] is 2, needs 0 to 1",
    ),
    ({"input": (2**41,)}, "input[0] is 2199023255552, needs at most 2**40"),
    ({"input": (2**40,), "n": 2**30}, "elements, needs at most 2**60"),
    ({"input": (1,) * 4}, "input has 4 spatial axes, needs 1 to 3"),
]


@pytest.mark.parametrize(("change", "text"), REFUSED, ids=[row[1] for row in REFUSED])
def test_refused(change, text):
    fields = {"n": 1, "c": 3, "k": 3, "input": (5,), "filter": (2,)}
    ConvProblem(**fields)
    with pytest.raises(ConvrefError) as caught:
        ConvProblem(**fields | change)
    assert text in str(caught.value)


def test_one_number_serves_every_axis():
    problem = ConvProblem(n=1, c=1, k=1, input=(9, 9), filter=3, stride=2, padding=(1, 2))
    assert problem.filter == (3, 3)
    assert problem.stride == (2, 2)
    assert problem.padding == ((1, 1), (2, 2))


def test_windows_need_no_k():
    problem = WindowProblem(n=1, c=2, input=(4,), filter=(2,))
    assert problem.shape("cols") == (1, 4, 3)


def test_every_result_has_a_shape():
    more = {"k": 3, "filter": 2, "output": 2, "source": (4,)}
    for (op, pass_), signature in SIGNATURE.items():
        needed = {f.name for f in fields(FAMILY[op])} & set(more)
        sizes = {"n": 1, "c": 4, "input": (4,) * FAMILY[op].HAS_RANKS[0]}
        problem = FAMILY[op](**sizes, **{name: more[name] for name in needed})
        code = next(c for c in ("f64", "u8", "e4m3") if problem.refuses(c) is None)
        call = Call(op, pass_, problem, specs=(Spec(code),))
        for role in (*signature.operands, *signature.results):
            assert all(size > 0 for size in problem.shape(role))
        assert all(call.products(role) > 0 for role in signature.results)
