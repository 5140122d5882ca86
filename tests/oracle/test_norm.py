"""Norms against their loops, torch, adjoints, dual numbers and values worked by hand."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from numpy.testing import assert_array_equal

from convref import dtypes
from convref.case import Call, Spec, parse
from convref.conformance.examine import examine
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.dispatch import load
from convref.errors import ConvrefError
from convref.judge import Numerics, bound, judge
from convref.ops import GROUPS, passes
from convref.oracle import evaluate, loops, magnitudes
from convref.oracle import norm as formulas
from convref.oracle.loops import norm as loops_norm

EXACT = ["int", "ramp", "ties", "impulse"]
SMALL = {"max_elements": 60, "max_macs": 300}
EXAMPLES = settings.default.max_examples // 2
PHASES = tuple(Phase)
UNSHRUNK = (Phase.generate,)  # where a check must fail, the first failure is enough


def campaign(check, op, dtype, fills=EXACT, pass_=None, phases=PHASES, **more):
    """Run a check on generated cases of one op; under nightly more than a thousand."""

    @settings(max_examples=EXAMPLES, phases=phases, report_multiple_bugs=False)
    @given(cases([op], pass_ and [pass_], dtypes=[dtype], fills=fills, **{**SMALL, **more}))
    def run(case):
        check(case)

    run()


@pytest.mark.parametrize("op", GROUPS["norm"])
def test_loops_exactly_but_for_the_root(checks, op):
    """In Fractions all but 1 / sqrt(var + eps) is rational, and that is the same float in both."""
    campaign(checks.loops, op, "obj")


@pytest.mark.parametrize("op", GROUPS["norm"])
def test_loops_within_the_bounds_of_both(op):
    def check(case):
        given = operands(case)
        got = evaluate(case.call, *given)
        with np.errstate(all="ignore"):
            want = loops.FORMULAS[op, case.call.pass_](case.call, *given)
        sums = magnitudes(case.call, *given)
        for role, one, other, s in zip(case.call.signature.results, got, want, sums, strict=True):
            if one is not None:
                limit = bound(case.call, role, other, s, Numerics("rn64"))
                fine = (np.abs(one - other) <= limit) | ~np.isfinite(s)
                assert np.all(fine), f"{case} {role}\n{one}\n{other}"

    campaign(check, op, "f64", ["normal", "positive", "wide", "int"])


@pytest.mark.parametrize("op", GROUPS["norm"])
def test_torch_within_both_bounds(op):
    pytest.importorskip("torch", reason="torch is not installed")
    from convref.backends.torch.adapter import backend

    seen: Counter[str] = Counter()
    axes = Axes(7, (op,), dtypes=("f64",), fills=("int", "normal"), size=3 * EXAMPLES)
    for case in chunk_cases(axes, 0):
        if backend.supports(case.call) is None:
            given = operands(case)
            verdict = judge(case.call, given, backend.run(case.call, *given), Numerics("rn64"))
            assert verdict, f"{case}: {verdict.reason}"
            seen[case.call.pass_] += 1
    assert min(seen[pass_] for pass_ in passes(op)) >= EXAMPLES // 3, seen


def sibling(call, pass_):
    return Call(call.op, pass_, call.problem, specs=(Spec(call.dtype),))


def inner(a, b):
    if a is None or b is None:
        return 0
    return sum((x * y for x, y in zip(a.ravel(), b.ravel(), strict=True)), 0)


def saved(call, given):
    """Return the statistics that a backward pass may take, by role: of x, or the running ones."""
    if "rmean" in given:
        return {role: given[role] for role in ("rmean", "rvar")}
    mean, var = loops_norm.moments(given["x"], call.problem)
    return {"mean": mean, "rstd": loops_norm.roots(var, call.problem)}


def of_roles(call, given):
    """Return the operands of a call from arrays by role."""
    return [given[role] for role in call.roles]


@pytest.mark.parametrize("op", GROUPS["norm"])
def test_adjoint_identity(op):
    """<dy, y_dot> = <dx, x_dot> + <dw, w_dot> + <db, b_dot>, in Fractions."""

    def check(case):
        call = case.call
        given = dict(zip(call.roles, operands(case)))
        y, y_dot = evaluate(call, *given.values())
        dy = y - 2 * y_dot + 1
        back = sibling(call, "backward")
        cotangents = evaluate(back, *of_roles(back, {**given, "dy": dy, **saved(call, given)}))
        dots = [given[f"{role[1:]}_dot"] for role in back.signature.results]
        assert inner(dy, y_dot) == sum(map(inner, cotangents, dots)), str(case)

    campaign(check, op, "obj", pass_="jvp")


@pytest.mark.parametrize("op", GROUPS["norm"])
def test_jvp_is_the_forward_pass_on_dual_numbers(op, dual_numbers):
    def check(case):
        given = dict(zip(case.call.roles, operands(case)))
        y_dot = evaluate(case.call, *given.values())[1]
        moved = [
            None
            if a is None
            else dual_numbers.make(a, given[f"{role}_dot"])
            if role in "xwb"
            else a
            for role, a in given.items()
            if not role.endswith("_dot")
        ]
        old = () if "rmean" in given else (y_dot[:0],) * (op == "batch_norm") * 2
        y = loops.FORMULAS[op, "fprop"](case.call, *moved, *old)[0] if not old else None
        if old:  # the training pass has running statistics too, which y does not depend on
            statistics = saved(case.call, {"x": moved[0]}).values()
            z = loops_norm.standard(moved[0], *statistics, case.call.problem)
            y = loops_norm.outputs(z, moved[1], moved[2], case.call.problem)
        assert_array_equal(y_dot, dual_numbers.tangent(y), str(case))

    campaign(check, op, "obj", pass_="jvp")


@pytest.mark.parametrize("op", GROUPS["norm"])
def test_double_backward_is_the_gradient_of_backward(op, dual_numbers):
    """Along any direction, <ddx, dx> + <ddw, dw> + <ddb, db> moves as its cotangents say."""

    def check(case):
        call = case.call
        given = dict(zip(call.roles, operands(case)))
        found = evaluate(call, *given.values())
        moving = {role: given[role] for role in ("dy", "x", "w")}
        dots = {r: None if a is None else a[..., ::-1] + 1 for r, a in moving.items()}
        moved = {r: None if a is None else dual_numbers.make(a, dots[r]) for r, a in moving.items()}
        back = sibling(call, "backward")
        moved |= saved(call, {**given, **moved})
        first = loops.FORMULAS[op, "backward"](back, *of_roles(back, moved))
        outer = [given[f"d{role}"] for role in back.signature.results]
        total = sum(
            (inner(o, f) for o, f in zip(outer, first) if o is not None), dual_numbers.Dual(0)
        )
        along = sum(
            inner(f, dots[r]) for f, r in zip(found, ("dy", "x", "w")) if dots[r] is not None
        )
        assert total.b == along, str(case)

    def whole(case):
        if all(case.call.mask):
            check(case)

    campaign(whole, op, "obj", pass_="double_backward")


def run(line, *arrays):
    call = parse(line).call
    shaped = (
        None if a is None else np.array(a, float).reshape(call.problem.shape(r))
        for r, a in zip(call.roles, arrays, strict=True)
    )
    return evaluate(call, *shaped)


def test_the_running_variance_is_unbiased_and_the_other_is_not():
    """Values 1 3 5 7: mean 4, var 5; over 3 instead of 4 it is 20/3."""
    line = "batch_norm.fprop:n2c1_i2:eps=4:mom=0.25:dt=f64"
    y, mean, rstd, rmean, rvar = run(line, [1, 3, 5, 7], [3], [1], [8], [4])
    assert_array_equal(y.ravel(), [-2, 0, 2, 4])
    assert (mean.item(), rstd.item(), rmean.item()) == (4, 1 / 3, 7)
    assert abs(rvar.item() - (0.75 * 4 + 0.25 * 20 / 3)) <= 4 * 2.0**-52


def test_the_running_statistics_of_instances_are_means_over_images():
    """Images 1 3 and 5 9: means 2 and 7, unbiased variances 2 and 8; old ones 8 and 4."""
    line = "instance_norm.fprop:n2c1_i2:eps=0:mom=0.5:dt=f64"
    y, mean, rstd, rmean, rvar = run(line, [1, 3, 5, 9], [1], [0], [8], [4])
    assert_array_equal(y.ravel(), [-1, 1, -1, 1])
    assert (mean.tolist(), rstd.tolist()) == ([[2], [7]], [[1], [0.5]])
    assert (rmean.tolist(), rvar.tolist()) == ([(8 + 4.5) / 2], [(4 + 5) / 2])


def test_the_momentum_is_the_share_of_the_new_statistic():
    for momentum, want in ((0, 8), (1, 4), (0.5, 6)):
        line = f"batch_norm.fprop:n2c1_i2:mom={momentum}:dt=f64"
        assert run(line, [1, 3, 5, 7], [1], [0], [8], [4])[3].item() == want


def test_groups_are_of_neighbouring_channels():
    x = [[0, 2, 10, 14]]
    _, mean, _ = run("group_norm.fprop:n1c4g2_i1:dt=f64", x, [1] * 4, [0] * 4)
    assert mean.tolist() == [[1, 12]]
    _, mean, _ = run("group_norm.fprop:n1c4g4_i1:dt=f64", x, [1] * 4, [0] * 4)
    assert mean.tolist() == x


def test_layer_norm_has_a_weight_per_element():
    w, b = [1, 2, 3, 4], [10, 20, 30, 40]
    y, mean, _ = run("layer_norm.fprop:n1c2_i2:eps=4:dt=f64", [1, 3, 5, 7], w, b)
    assert mean.tolist() == [4]
    assert_array_equal(y.ravel(), [10 - 1, 20 - 2 / 3, 30 + 1, 40 + 4.0])


def test_rms_norm_is_over_the_root_of_the_mean_square():
    """Values 1 7 over the root of 25 and eps = 39 are 1/8 and 7/8; the derivative along x is 0."""
    x, w = [1, 7], [3, 6]
    y, rstd = run("rms_norm.fprop:n1c2_i1:eps=39:dt=f64", x, w)
    assert rstd.item() == 1 / 8
    assert_array_equal(y.ravel(), [3 / 8, 42 / 8])
    y, y_dot = run("rms_norm.jvp:n1c2_i1:eps=0:dt=f64", [2, -2], w, [2, -2], [1, 0])
    assert_array_equal((y.ravel(), y_dot.ravel()), [[3, -6], [1, 0]])


@pytest.mark.parametrize(
    ("dtype", "eps"), [("f16", -23), ("bf16", -23), ("f32", -23), ("f64", -52)]
)
def test_the_eps_of_rms_norm_is_that_of_the_type_in_which_torch_computes(dtype, eps):
    """Its page says torch.finfo(input.dtype).eps, which 16-bit types do not have."""
    call = parse(f"rms_norm.fprop:n1c2_i1:weight=0:dt={dtype}").call
    assert call.problem.eps == 2.0**eps
    assert parse(f"{call}") == parse(f"rms_norm.fprop:n1c2_i1:weight=0:dt={dtype}")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.full((1, 2), 2.0**-12, dtype=getattr(torch, dtypes.numpy_dtype(dtype).name))
    got = torch.nn.functional.rms_norm(x, (2,)).view(1, 2, 1)
    y = evaluate(call, np.full((1, 2, 1), 2.0**-12, dtypes.numpy_dtype(dtype)), None)[0]
    assert (
        abs(got.double().numpy() - y.astype(float)).max() <= 2 * torch.finfo(x.dtype).eps * y.max()
    )


def test_a_mean_much_larger_than_the_deviation_costs_no_digits():
    """Two passes: E[x^2] - mean^2 would give 0 here."""
    x = 2.0**40 + np.array([1.0, 3, 5, 7])
    _, mean, rstd = run("layer_norm.fprop:n1c4_i1:eps=4:dt=f64", x, [1] * 4, [0] * 4)
    assert (mean.item(), rstd.item()) == (2.0**40 + 4, 1 / 3)


def test_one_value_per_channel_is_refused_in_training():
    with pytest.raises(ConvrefError, match="1 values per channel, needs at least 2 in training"):
        parse("batch_norm.fprop:n1c3_i1x1")
    assert parse("batch_norm_eval.fprop:n1c3_i1x1").call.problem.count == 1


def test_an_empty_batch():
    y, mean, rstd = run("layer_norm.fprop:n0c2_i2:dt=f64", [], [1] * 4, [0] * 4)
    assert (y.shape, mean.shape, rstd.shape) == ((0, 2, 2), (0,), (0,))
    dx, dw, db = run("layer_norm.backward:n0c2_i2:dt=f64", [], [], [1] * 4, [], [])
    assert dx.shape == (0, 2, 2)
    assert_array_equal(dw, np.zeros((2, 2)))
    assert_array_equal(db, np.zeros((2, 2)))


def test_nan_spreads_over_its_statistic_and_no_further():
    x = np.arange(8.0).reshape(2, 2, 2)
    x[0, 1, 0] = np.nan
    for line, want in (
        ("group_norm.fprop:n2c2g2_i2", [[False, True], [False, False]]),
        ("group_norm.fprop:n2c2_i2", [[True, True], [False, False]]),
        ("batch_norm.fprop:n2c2_i2", [[False, True], [False, True]]),
    ):
        call = parse(f"{line}:dt=f64").call
        rest = (np.ones(2) for _ in call.roles[1:])
        y = evaluate(call, x, *rest)[0]
        assert np.isnan(y).all(axis=2).tolist() == np.isnan(y).any(axis=2).tolist() == want


RIGHT = {n: getattr(formulas, n) for n in ("running", "per_weight", "plus_eps")}
FAULTS = {
    "biased running variance": (
        "running",
        lambda old, new, problem, unbiased=False: RIGHT["running"](old, new, problem),
    ),
    "momentum swapped": (
        "running",
        lambda old, new, problem, unbiased=False: RIGHT["running"](new, old, problem, unbiased),
    ),
    "instances of the first image alone": (
        "over_images",
        lambda statistic, problem: statistic[0] if statistic.ndim > 1 else statistic,
    ),
    "no share of z": ("project", lambda v, z, problem: v - formulas.mean_of(v, problem)),
    "eps forgotten": ("plus_eps", lambda var, problem: var + Fraction(1, 10**9)),
    "mean subtracted": ("mean_or_zero", lambda v, problem: formulas.mean_of(v, problem)),
    "sums mirrored": ("per_weight", lambda v, problem: RIGHT["per_weight"](v, problem)[..., ::-1]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_formula_fails(checks, monkeypatch, name):
    where, wrong = FAULTS[name]
    op = {"mean_or_zero": "rms_norm", "over_images": "instance_norm"}.get(where, "batch_norm")
    monkeypatch.setattr(formulas, where, wrong)
    with pytest.raises(AssertionError, match=op):
        campaign(checks.loops, op, "obj", ["int"], phases=UNSHRUNK)


# x, eps and the y that binary32 may return: var + eps is 0 or below, or is lost to rounding.
CANCELLING = {
    "zero": ([1.0, 3.0], -1.0, [np.nan, np.inf]),
    "lost": ([1.0, 3.0], -0.99999999, [0.0, -9.0]),
    "below": ([1.0, 3.0], -2.0, [np.nan, np.nan]),
    "beside NaN": ([1.0, 3.0, np.nan, 1.0], -0.99999999, [np.nan, 5.0, 0.0, np.nan]),
}


@pytest.mark.parametrize("name", CANCELLING)
def test_a_sum_of_variance_and_eps_that_cancels_is_not_judged(name):
    data, eps, y = CANCELLING[name]
    x, got = (np.array([[a]], "f4").reshape(-1, 1, 2) for a in (data, y))
    call = parse(f"layer_norm.fprop:n{len(x)}c1_i2:eps={eps}:weight=0:bias=0").call
    statistics = np.array([1.0, 2.0][: len(x)], "f4")
    results = got, np.nanmean(x, (1, 2), dtype="f4"), statistics
    assert judge(call, (x, None, None), results, Numerics("rn32"), only=("y", "rstd"))


def test_a_negative_eps_is_judged_where_nothing_cancels():
    call = parse("layer_norm.fprop:n1c1_i2:eps=-0.75:weight=0:bias=0").call
    x = np.array([[[1.0, 3.0]]], "f4")
    results = [np.array(a, "f4") for a in ([[[-2.0, 2.0]]], [2.0], [2.0])]
    assert judge(call, (x, None, None), results, Numerics("rn32"))
    results[0][0, 0, 0] = -2.001
    assert not judge(call, (x, None, None), results, Numerics("rn32"))


@pytest.mark.parametrize(("eps", "want"), [(-1, [-np.inf, np.inf]), (-2, [np.nan, np.nan])])
def test_fractions_whose_variance_cancels(eps, want):
    call = parse(f"layer_norm.fprop:n1c1_i2:eps={eps}:weight=0:bias=0:dt=obj").call
    x = np.array([[[Fraction(1), Fraction(3)]]])
    for found in (
        evaluate(call, x, None, None),
        loops.FORMULAS["layer_norm", "fprop"](call, x, None, None),
    ):
        assert_array_equal(np.asarray(found[0]).astype(float)[0, 0], want)


def test_a_nan_of_the_input_reaches_no_gradient_of_given_statistics_in_loops():
    assert (
        examine(parse("batch_norm_eval.dgrad:n1c1_i1:fill=nan:seed=52843"), load("loops")).verdict
        == "pass"
    )
