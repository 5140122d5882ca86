"""Pools against their loops, torch, adjoints, dual numbers and windows worked by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from numpy.testing import assert_array_equal

from convref import dtypes, oracle
from convref.case import Call, Case, Spec, parse
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.errors import ConvrefError
from convref.judge import Numerics, bound, judge
from convref.ops import GROUPS, passes
from convref.oracle import evaluate, loops, magnitudes
from convref.oracle import pool as formulas
from convref.oracle.loops import pool as loops_pool

RATIONAL = tuple(op for op in GROUPS["pool"] if op != "lp_pool")
EXACT = ["int", "ramp", "ties", "impulse", "ones"]
SMALL = {"max_elements": 150, "max_macs": 300}
EXAMPLES = settings.default.max_examples
PHASES = tuple(Phase)
UNSHRUNK = (Phase.generate,)  # where a check must fail, the first failure is enough


def campaign(check, op, dtypes_, fills=EXACT, pass_=None, phases=PHASES, **more):
    """Run a check on generated cases of one op: 80 of them, thousands under nightly."""

    @settings(max_examples=EXAMPLES, phases=phases, report_multiple_bugs=False)
    @given(cases([op], pass_ and [pass_], dtypes=dtypes_, fills=fills, **{**SMALL, **more}))
    def run(case):
        check(case)

    run()


@pytest.mark.parametrize("dtype", ["i64", "obj"])
@pytest.mark.parametrize("op", RATIONAL)
def test_loops_bit_for_bit(checks, op, dtype):
    campaign(checks.loops, op, [dtype])


@pytest.mark.parametrize("op", ["max_pool", "adaptive_max_pool", "max_unpool"])
def test_loops_bit_for_bit_on_floats_and_nan(checks, op):
    campaign(checks.loops, op, ["f64", "f32", "bf16"], ["ties", "nan", "inf", "negzero", "normal"])


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "c128"])
@pytest.mark.parametrize("op", ["avg_pool", "adaptive_avg_pool"])
def test_means_of_other_numbers(checks, op, dtype):
    def check(case):
        if dtype == "c128":  # quotients of complex numbers are rounded
            case = replace(case, call=doubled(case.call))
        checks.loops(case)

    campaign(check, op, [dtype])


def doubled(call):
    """Return the call with a divisor that every type divides by exactly, where it has one."""
    if "div" in call.problem.KEYS:
        return replace(call, problem=replace(call.problem, divisor=2))
    return replace(call, problem=replace(call.problem, output=call.problem.input))


def within(case, got, want, extra=1):
    """Raise unless two float64 results differ by no more than both may be off."""
    call = case.call
    given = operands(case)
    sums = magnitudes(call, *given)
    for role, one, other, s in zip(call.signature.results, got, want, sums, strict=True):
        assert (one is None) == (other is None), f"{case} {role}"
        if one is None:
            continue
        limit = bound(call, role, other, s, Numerics("rn64")) * extra
        assert np.all(np.abs(one - other) <= limit), f"{case} {role}\n{one}\n{other}"


def test_norms_agree_with_loops():
    def check(case):
        within(case, evaluate(case.call, *operands(case)), loops_of(case))

    campaign(check, "lp_pool", ["f64"], ["int", "normal", "ties", "positive", "ones"])


def loops_of(case):
    with np.errstate(all="ignore"):
        return loops.FORMULAS[case.call.op, case.call.pass_](case.call, *operands(case))


@pytest.mark.parametrize("dtype", ["i64", "obj"])
@pytest.mark.parametrize("pass_", list(passes("lp_pool")))
def test_norm_1_is_rational(checks, pass_, dtype):
    for shape in ("n2c2_i5_f3_s2_p1", "n1c2_i4x5_f3x2_p1,0x0,2_d1x2:ceil=1", "n1c1_i3x3x4_f2x2x3"):
        checks.loops(parse(f"lp_pool.{pass_}:{shape}:norm=1:dt={dtype}:fill=ties"))


@pytest.mark.parametrize("op", GROUPS["pool"])
def test_torch_within_both_bounds(op):
    """All calls that torch computes by the rules; the court tests float32 and 16 bits."""
    pytest.importorskip("torch", reason="torch is not installed")
    from convref.backends.torch.adapter import backend

    seen: Counter[str] = Counter()
    for case in chunk_cases(Axes(7, (op,), dtypes=("f64",), fills=("int", "normal"), size=500), 0):
        if backend.supports(case.call) is None:
            given = operands(case)
            verdict = judge(case.call, given, backend.run(case.call, *given), Numerics("rn64"))
            assert verdict, f"{case}: {verdict.reason}"
            seen[case.call.pass_] += 1
    assert min(seen[pass_] for pass_ in passes(op)) >= 50, seen


def test_torch_on_integers():
    """Integers wrap, means are cut toward zero, an empty maximum is the least integer."""
    pytest.importorskip("torch", reason="torch is not installed")
    from convref.backends.torch.adapter import backend

    for op in ("max_pool", "avg_pool"):
        axes = Axes(3, (op,), ("fprop",), ("i64", "u8", "i8", "i32"), EXACT, 500)
        supported = [c for c in chunk_cases(axes, 0) if backend.supports(c.call) is None]
        assert len(supported) >= 40
        for case in supported:
            given = operands(case)
            verdict = judge(case.call, given, backend.run(case.call, *given), Numerics("exact"))
            assert verdict, f"{case}: {verdict.reason}"


def sibling(call, pass_):
    return Call(call.op, pass_, call.problem, specs=(Spec(call.dtype),))


def inner(a, b):
    return sum((x * y for x, y in zip(a.ravel().tolist(), b.ravel().tolist())), 0)


def tangent_and_gradient(case):
    """Return (dy, y_dot, dx, x_dot) of a jvp case, with dy made of other data of the case."""
    call, given = case.call, dict(zip(case.call.roles, operands(case)))
    y_dot = evaluate(call, *given.values())[-1]
    back = Case(sibling(call, "backward"), case.fill, case.seed + 1)
    if "x" in given and "indices" in back.call.roles:
        dy = operands(back)[0]
        arrays = dy, given["x"], evaluate(sibling(call, "fprop"), given["x"])[1]
    elif "indices" in given:
        arrays = operands(back)[0], given["indices"]
    else:
        arrays = (operands(back)[0], *((given["x"],) if "x" in given else ()))
    (dx,) = evaluate(back.call, *arrays)
    return arrays[0], y_dot, dx, given["x_dot"]


@pytest.mark.parametrize("op", RATIONAL)
def test_adjoint_identity(op):
    """<dy, y_dot> = <dx, x_dot>, in Fractions."""

    def check(case):
        dy, y_dot, dx, x_dot = tangent_and_gradient(case)
        assert inner(dy, y_dot) == inner(dx, x_dot), str(case)

    campaign(check, op, ["obj"], pass_="jvp")


def test_adjoint_identity_of_norms():
    def check(case):
        dy, y_dot, dx, x_dot = tangent_and_gradient(case)
        given = operands(case)
        s = inner(np.abs(dy), magnitudes(case.call, *given)[1])
        n = case.call.products("y_dot") + sibling(case.call, "backward").products("dx")
        slack = 2 * (n + y_dot.size + dx.size) * dtypes.number("f64").u * s
        assert abs(inner(dy, y_dot) - inner(dx, x_dot)) <= slack, str(case)

    campaign(check, "lp_pool", ["f64"], ["normal", "positive"], pass_="jvp")


@pytest.mark.parametrize("op", RATIONAL)
def test_double_backward_is_the_jvp_along_ddx(op):
    """Backward is linear in dy, so its adjoint there maps ddx as the tangent is mapped."""

    def check(case):
        given = dict(zip(case.call.roles, operands(case)))
        (ddy,) = evaluate(case.call, *given.values())
        roles = sibling(case.call, "jvp").roles
        arrays = [given["ddx"] if role == "x_dot" else given[role] for role in roles]
        y_dot = evaluate(sibling(case.call, "jvp"), *arrays)[-1]
        assert_array_equal(ddy, y_dot, strict=True)

    campaign(check, op, ["obj", "i64"], pass_="double_backward")


class Dual:
    """a + b e with e * e = 0: a formula on such numbers gives its own derivative."""

    def __init__(self, a, b=0):
        self.a, self.b = a, b

    def __add__(self, other):
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.a + other.a, self.b + other.b)

    __radd__ = __add__

    def __mul__(self, other):
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.a * other.a, self.a * other.b + self.b * other.a)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return Dual(Fraction(1, other) * self.a, Fraction(1, other) * self.b)

    def __abs__(self):
        return self if self.a > 0 else Dual(-self.a, -self.b)

    def __pow__(self, p):
        return Dual(self.a**p, p * self.a ** (p - 1) * self.b) if self.a else Dual(0.0)

    def __gt__(self, other):
        return self.a > other.a

    def __eq__(self, other):
        return self.a == (other.a if isinstance(other, Dual) else other)

    __hash__ = None


def duals(x, x_dot):
    found = np.empty(x.shape, object)
    for at in np.ndindex(x.shape):
        found[at] = Dual(x[at], x_dot[at])
    return found


@pytest.mark.parametrize("op", ["max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool"])
def test_jvp_is_the_forward_pass_on_dual_numbers(op):
    def check(case):
        x_dot = operands(case)[-1]
        x = operands(Case(sibling(case.call, "fprop"), case.fill, case.seed))[0]
        arrays = (x, x_dot) if "x" in case.call.roles else (x_dot,)
        y_dot = evaluate(case.call, *arrays)[-1]
        y = loops.FORMULAS[op, "fprop"](case.call, duals(x, x_dot))[0]
        want = [getattr(value, "b", 0) for value in y.ravel()]
        assert y_dot.ravel().tolist() == want, str(case)

    campaign(check, op, ["obj"], ["int", "ties", "ramp"], pass_="jvp")


def test_jvp_of_norms_on_dual_numbers():
    def check(case):
        x, x_dot = operands(case)
        got = evaluate(case.call, x, x_dot)
        dual = loops_pool.lp_pool_fprop(duals(x, x_dot), case.call.problem)
        parts = [
            np.array([getattr(v, part, 0.0) for v in dual.ravel()], float).reshape(got[0].shape)
            for part in "ab"
        ]
        within(case, got, parts)

    campaign(check, "lp_pool", ["f64"], ["normal", "positive"], pass_="jvp")


def run(line, *arrays):
    call = parse(line).call
    return evaluate(
        call, *(np.array(a).reshape(call.problem.shape(r)) for r, a in zip(call.roles, arrays))
    )


NAN, INF = float("nan"), float("inf")
WINNERS = [  # the values of a window, its maximum, the index
    ([3, 7, 7], 7, 1),
    ([7, 3, 7], 7, 0),
    ([NAN, 9, 1], NAN, 0),
    ([NAN, 9, NAN], NAN, 2),
    ([INF, NAN, INF], NAN, 1),
    ([-INF, -INF, -INF], -INF, 0),
    ([-0.0, 0.0, 0.0], -0.0, 0),
    ([0.0, -0.0, 0.0], 0.0, 0),
    ([-INF, 5, INF], INF, 2),
]


@pytest.mark.parametrize(("window", "value", "index"), WINNERS, ids=str)
@pytest.mark.parametrize("op", ["max_pool", "adaptive_max_pool"])
def test_max_pool_ties_and_nan(op, window, value, index):
    shape = {"max_pool": "f3", "adaptive_max_pool": "o1"}[op]
    y, indices = run(f"{op}.fprop:n1c1_i3_{shape}:dt=f64", [[window]])
    assert_array_equal(y, [[[value]]])
    assert np.signbit(y[0, 0, 0]) == np.signbit(value) or value != value
    assert indices.tolist() == [[[index]]]


def test_the_order_of_ties_is_row_major_in_two_axes():
    x = np.zeros((1, 1, 3, 3))
    x[0, 0, 1, 2] = x[0, 0, 2, 0] = 1  # the later row has the smaller column
    _, indices = run("max_pool.fprop:n1c1_i3x3_f3x3:dt=f64", x)
    assert indices.item() == 5
    x[0, 0, 1, 2] = x[0, 0, 2, 0] = NAN
    assert run("max_pool.fprop:n1c1_i3x3_f3x3:dt=f64", x)[1].item() == 6


@pytest.mark.parametrize(
    ("dtype", "least"), [("f32", -INF), ("i8", -128), ("u8", 0), ("i64", -(2**63))]
)
def test_a_window_without_positions(dtype, least):
    """Windows 0 and 3 are wholly in padding; they take no cotangent and pass no tangent on."""
    shape = "n1c1_i2_f2_s2_p2,2"
    call = parse(f"max_pool.fprop:{shape}_d1:dt={dtype}").call
    x = np.array([[[5, 7]]], dtypes.numpy_dtype(dtype))
    y, indices = evaluate(call, x)
    assert y.tolist() == [[[least, 7, least]]]
    assert indices.tolist() == [[[-1, 1, -1]]]
    (dx,) = evaluate(sibling(call, "backward"), np.ones_like(y), x, indices)
    assert dx.tolist() == [[[0, 1]]]
    assert evaluate(sibling(call, "jvp"), x, x)[1].tolist() == [[[0, 7, 0]]]
    mean = parse(f"avg_pool.fprop:{shape}:cip=0:dt={dtype}").call
    assert evaluate(mean, x)[0].tolist() == [[[0, 6, 0]]]


CEIL = [  # shape, sizes with and without ceil
    ("n1c1_i5_f2_s2", (3, 2)),
    ("n1c1_i5_f3_s2", (2, 2)),
    ("n1c1_i4_f1_s3", (2, 2)),
    ("n1c1_i4_f1_s4_p1", (2, 2)),
    ("n1c1_i3_f2_s2_p1", (2, 2)),  # a third window would start in the high padding
    ("n1c1_i2_f3_s2", (1, None)),  # cut, but it begins in the input
    ("n1c1_i4_f2_s2_p0,4", (2, 4)),
]


@pytest.mark.parametrize(("shape", "sizes"), CEIL)
def test_the_last_window_starts_inside(shape, sizes):
    for flag, size in zip((":ceil=1", ""), sizes):
        line = f"max_pool.fprop:{shape}{flag}"
        if size is None:
            with pytest.raises(ConvrefError, match="output Q is 0"):
                parse(line)
        else:
            assert parse(line).call.problem.output == (size,)


def test_divisors():
    x = np.arange(1.0, 6.0)
    shape = "avg_pool.fprop:n1c1_i5_f3_s2_p1:ceil=1:dt=f64"
    assert_array_equal(run(shape, x)[0], [[[3 / 3, 9 / 3, 9 / 3]]])
    assert_array_equal(
        run(shape.replace("ceil=1", "ceil=1:cip=0"), x)[0], [[[3 / 2, 9 / 3, 9 / 2]]]
    )
    assert_array_equal(
        run(shape.replace("ceil=1", "ceil=1:div=4"), x)[0], [[[3 / 4, 9 / 4, 9 / 4]]]
    )
    # the last window of i5_f2_s2 is cut by ceil_mode: what is beyond the padding never counts
    assert_array_equal(run("avg_pool.fprop:n1c1_i5_f2_s2:ceil=1:dt=f64", x)[0], [[[1.5, 3.5, 5]]])


@pytest.mark.parametrize("divisor", [2, -2])
def test_means_of_integers_are_cut_toward_zero(divisor):
    x = np.array([3, -3, 5, -5])
    (y,) = run(f"avg_pool.fprop:n1c1_i4_f1:div={divisor}:dt=i64", x)
    assert y.ravel().tolist() == [int(v / divisor) for v in x.tolist()]


def test_adaptive_windows_overlap_and_cover():
    """5 into 3: [0, 2), [1, 4), [3, 5); 2 into 3: each window one or both."""
    (y,) = run("adaptive_avg_pool.fprop:n1c1_i5_o3:dt=f64", [1, 2, 6, 1, 3])
    assert_array_equal(y, [[[1.5, 3, 2]]])
    y, indices = run("adaptive_max_pool.fprop:n1c1_i2_o3:dt=f64", [4, 9])
    assert y.tolist() == [[[4, 9, 9]]]
    assert indices.tolist() == [[[0, 1, 1]]]


def test_unpooling_keeps_the_last_of_two():
    line = "max_unpool.{}:n1c1_i3_o4:dt=f64"
    assert run(line.format("fprop"), [5, 6, 7], [3, 0, 3])[0].tolist() == [[[6, 0, 0, 7]]]
    assert run(line.format("backward"), [1, 2, 3, 4], [3, 0, 3])[0].tolist() == [[[0, 1, 4]]]
    assert run(line.format("fprop"), [5, 6, 7], [-1, 0, 3])[0].tolist() == [[[6, 0, 0, 7]]]


@pytest.mark.parametrize("wrong", [4, -2])
def test_an_index_outside_of_the_image_is_refused(wrong):
    with pytest.raises(
        ConvrefError, match=f"indices: holds {wrong}, needs a position from 0 to 3 or -1"
    ):
        run("max_unpool.fprop:n1c1_i1_o4:dt=f64", [5], [wrong])


def last_of_a_tie(new, old):
    return (new >= old) | (new != new)


FAULTS = {
    "the last of a tie": ("max_pool", "ties", lambda p: max_pool_by(p, last_of_a_tie)),
    "NaN loses": ("max_pool", "nan", lambda p: max_pool_by(p, lambda new, old: new > old)),
    "axes exchanged": ("max_pool", "int", lambda p: replace_max_pool(p, exchanged)),
    "padding always counts": ("avg_pool", "int", lambda p: p.setattr(formulas, "divided", padded)),
    "a cut window as a whole": ("avg_pool", "int", lambda p: p.setattr(formulas, "divided", whole)),
    "gradient to all": (
        "max_pool",
        "ties",
        lambda p: p.setattr(formulas, "scatter_add", scatter_to_first),
    ),
    "one tap short": (
        "adaptive_avg_pool",
        "int",
        lambda p: p.setattr(formulas, "gather_sums", fewer),
    ),
}
RIGHT = {
    name: getattr(formulas, name)
    for name in ("max_pool_fprop", "divided", "scatter_add", "gather_sums")
}


def replace_max_pool(patch, function):
    """Replace the forward pass of max pooling in the table and in its JVP."""
    patch.setattr(formulas, "max_pool_fprop", function)
    formula = lambda call, x: function(x, call.problem)  # noqa: E731
    patch.setitem(oracle.FORMULAS, ("max_pool", "fprop"), formula)


def max_pool_by(patch, wins):
    """Replace the comparison of max pooling by `wins`, in the fold of the loops."""

    def folded(x, problem):
        y, indices = RIGHT["max_pool_fprop"](x, problem)
        for at, read in loops_pool.windows(problem):
            best = None
            for i in read:
                best = i if best is None or wins(x[i], x[best]) else best
            if best is not None:
                y[at], indices[at] = x[best], np.ravel_multi_index(best[2:], problem.input)
        return y, indices

    replace_max_pool(patch, folded)


def exchanged(x, problem):
    y, indices = RIGHT["max_pool_fprop"](x, problem)
    height = problem.input[-1]
    other = (indices // height + indices % height * height) % np.prod(problem.input)
    return y, np.where(indices < 0, -1, other)


def padded(sums, problem):
    return RIGHT["divided"](sums, replace(problem, include_pad=True))


def whole(sums, problem):
    return RIGHT["divided"](sums, replace(problem, divisor=int(np.prod(problem.filter))))


def scatter_to_first(y, indices, sizes):
    return RIGHT["scatter_add"](y, np.zeros_like(indices), sizes)


def fewer(x, axes):
    first = (..., *(slice(0, 1),) * len(axes))  # which no window but the first should lack
    return RIGHT["gather_sums"](x, axes) - x[first]


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_formula_fails(checks, monkeypatch, name):
    op, fill, spoil = FAULTS[name]
    spoil(monkeypatch)
    dtype = "f64" if fill == "nan" else "i64"
    with pytest.raises(AssertionError, match=op):
        campaign(checks.loops, op, [dtype], [fill], phases=UNSHRUNK)
