"""Activations against their loops, torch, adjoints, dual numbers, and at both tails."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from numpy.testing import assert_array_equal

import convref
from convref.case import parse
from convref.conformance.examine import examine
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.dispatch import load
from convref.errors import ConvrefError
from convref.judge import Numerics, bound, judge
from convref.ops import GROUPS, SIGNATURE, passes
from convref.oracle import FORMULAS, _elementary, evaluate, loops, magnitudes, prelu, softmax
from convref.oracle import activation as formulas
from convref.oracle._erf import erfc

OPS = tuple(op for op in GROUPS["activation"] if "backward" in passes(op))
EXACT = ["int", "ramp", "ties", "impulse"]
LOSSES = ("nll_loss", "cross_entropy", "soft_cross_entropy")
ELUS = ("elu", "celu", "selu")
SMALL = {"max_elements": 40, "max_macs": 300}
EXAMPLES = settings.default.max_examples // 4
PHASES = tuple(Phase)
UNSHRUNK = (Phase.generate,)  # where a check must fail, the first failure is enough


def campaign(check, op, dtype, fills=EXACT, pass_=None, examples=EXAMPLES, phases=PHASES, **more):
    """Run a check on generated cases of one op; under nightly more than a thousand."""

    @settings(max_examples=examples, phases=phases, report_multiple_bugs=False)
    @given(cases([op], pass_ and [pass_], dtypes=[dtype], fills=fills, **{**SMALL, **more}))
    def run(case):
        check(case)

    run()


@pytest.mark.parametrize("op", OPS)
def test_loops_exactly_but_for_exp_and_log(checks, op):
    """In Fractions all but four functions is rational, and those are the same floats in both."""
    campaign(checks.loops, op, "obj", examples=2 * EXAMPLES)  # the same problem comes twice


def test_hardmax_is_1_at_the_first_maximum(checks):
    x = np.array([[[1, 7, 7], [np.nan, 9, np.nan], [-np.inf] * 3]])
    (y,) = evaluate(parse("hardmax.fprop:n1c3_i3:dim=2:dt=f64").call, x)
    assert y.tolist() == [[[0, 1, 0], [1, 0, 0], [1, 0, 0]]]
    for dtype in ("i8", "f32", "obj"):
        campaign(checks.loops, "hardmax", dtype, ["ties", "nan"] if dtype == "f32" else ["ties"])


@pytest.mark.parametrize("dtype", ["i64", "i8", "u8", "bf16", "f32"])
def test_the_rectifier_of_other_numbers(checks, dtype):
    fills = ["ties", "int"] if dtype[0] in "iu" else ["ties", "nan", "inf", "negzero"]
    campaign(checks.loops, "relu", dtype, fills)


@pytest.mark.parametrize("op", OPS)
def test_loops_within_the_bounds_of_both(op):
    def check(case):
        given = operands(case)
        got = evaluate(case.call, *given)
        with np.errstate(all="ignore"):
            want = loops.FORMULAS[op, case.call.pass_](case.call, *given)
        if op == "relu":
            assert all(map(np.array_equal, got, want)), str(case)
            return
        sums = magnitudes(case.call, *given)
        for role, one, other, s in zip(case.call.signature.results, got, want, sums, strict=True):
            if one is not None:
                limit = bound(case.call, role, other, s, Numerics("rn64"))
                fine = (np.abs(one - other) <= limit) | ~np.isfinite(s)
                assert np.all(fine), f"{case} {role}\n{one}\n{other}"

    campaign(check, op, "f64", ["normal", "positive", "int"])


@pytest.mark.parametrize("op", OPS)
def test_the_judge_passes_loops_at_infinities_and_nan(op):
    def check(case):
        given = operands(case)
        with np.errstate(all="ignore"):
            found = loops.FORMULAS[op, case.call.pass_](case.call, *given)
        verdict = judge(case.call, given, found, Numerics("rn64"))
        assert verdict, f"{case}: {verdict.reason}"

    campaign(check, op, "f64", ["nan", "inf"])


@pytest.mark.parametrize("op", OPS)
def test_torch_within_both_bounds(op):
    pytest.importorskip("torch", reason="torch is not installed")
    from convref.backends.torch.adapter import backend

    seen: Counter[str] = Counter()
    fills = ("int", "normal") if op == "mish" else ("int", "normal", "wide")  # ATen overflows
    axes = Axes(7, (op,), dtypes=("f64",), fills=fills, size=4 * EXAMPLES)
    for case in chunk_cases(axes, 0):
        if backend.supports(case.call) is None:
            given = operands(case)
            verdict = judge(case.call, given, backend.run(case.call, *given), Numerics("rn64"))
            assert verdict, f"{case}: {verdict.reason}"
            seen[case.call.pass_] += 1
    computed = [pass_ for pass_ in passes(op) if op != "hardsigmoid" or pass_ == "fprop"]
    assert min(seen[pass_] for pass_ in computed) >= EXAMPLES // 2, seen


@pytest.mark.parametrize("op", OPS)
def test_adjoint_identity(checks, op):
    """<dy, y_dot> = <dx, x_dot>, and <dw, w_dot> besides, in Fractions."""
    campaign(checks.adjoint_identity, op, "obj", pass_="jvp")


def differentiable(case):
    """Return whether a case stays away from corners, and from functions without a slope here."""
    problem = case.call.problem
    if getattr(problem, "approximate", "") == "none":
        return False
    x = dict(zip(case.call.roles, operands(case)))["x"]
    fixed = {"hardswish": (-3, 3), "hardsigmoid": (-3, 3)}
    at_zero = ("relu", "leaky_relu", "prelu", "softsign", *ELUS)
    corners = fixed.get(case.call.op, (0,) if case.call.op in at_zero else ())
    if case.call.op == "softplus":
        corners = (problem.threshold / problem.beta,)
    if case.call.op == "threshold":
        corners = (problem.threshold,)
    if case.call.op in ("hardshrink", "softshrink"):
        corners = (-problem.lambd, problem.lambd)
    if case.call.op == "hardtanh":
        corners = (problem.min_val, problem.max_val)
    return not any(v in corners for v in x.ravel())


@pytest.mark.parametrize("op", OPS)
def test_jvp_is_the_forward_pass_on_dual_numbers(op, checks, derivatives):
    def check(case):
        if differentiable(case):
            checks.dual_jvp(case)

    campaign(check, op, "obj", pass_="jvp")


@pytest.mark.parametrize(
    "op", [op for op in OPS if "dy" in SIGNATURE[op, "double_backward"].operands]
)
def test_double_backward_is_the_gradient_of_backward(op, checks, derivatives):
    def check(case):
        if differentiable(case):
            checks.dual_double_backward(case)

    campaign(check, op, "obj", pass_="double_backward")


def test_the_normal_law_has_its_density_for_a_slope():
    """Phi(b) - Phi(a) by Simpson's rule over the density: off by a fifth power of the step."""
    a = np.linspace(-6, 6, 1201)
    step = a[1] - a[0]
    middle = (a[1:] + a[:-1]) / 2
    d = _elementary.normal_pdf
    area = step / 6 * (d(a[1:]) + 4 * d(middle) + d(a[:-1]))
    error = np.abs(np.diff(_elementary.normal_cdf(a)) - area)
    assert np.all(error <= step**5 / 2880 * 3 * d(np.zeros(1)) + 8 * 2.0**-53)


def spaced(got, want):
    """Return the largest distance in units in the last place of what is right."""
    return float(np.max(np.abs(got - want) / np.spacing(np.abs(want))))


def test_erfc_is_within_8_ulp():
    rng = np.random.default_rng(0)
    uniform, small = rng.uniform(-6, 26, 40_000), 10.0 ** rng.uniform(-300, 0, 5_000)
    x = np.concatenate([uniform, np.linspace(-0.6, 0.6, 9_999), small, -small])
    assert spaced(erfc(x), np.array([math.erfc(v) for v in x])) <= 8
    edges = np.array([0.0, -0.0, 5e-324, 30.0, -30.0, np.inf, -np.inf, np.nan])
    with np.errstate(all="ignore"):
        assert_array_equal(erfc(edges), [math.erfc(v) for v in edges])


def test_gelu_of_extended_precision_takes_the_form_with_tanh():
    """The error function here has the digits of float64."""
    x = np.array([-1.0, 2.0], np.longdouble)
    with pytest.raises(ConvrefError, match="the error function is known to float64"):
        convref.gelu(x)
    assert convref.gelu(x, "tanh").dtype == np.longdouble


TAILS = np.array([-1e300, -1e4, -750.0, -40.0, -1e-300, 0.0, 1e-300, 40.0, 750.0, 1e4, 1e300])
SMOOTH = [f"{op}.{{}}:n1c1_i11:dt=f64" for op in OPS if op not in (*LOSSES, "gelu")]
SMOOTH += [f"gelu.{{}}:n1c1_i11:approx={a}:dt=f64" for a in ("none", "tanh")]


@pytest.mark.parametrize("form", SMOOTH)
def test_both_tails_are_numbers(form):
    """No overflow on the way: raised, were the formula not to hide warnings of its own."""
    op = form.partition(".")[0]
    for pass_ in passes(op):
        case = parse(form.format(pass_).replace(":approx=none", ""))
        call = case.call
        shape = call.problem.shape
        arrays = [TAILS.reshape(shape(r)) if r == "x" else np.ones(shape(r)) for r in call.roles]
        with np.errstate(all="raise", under="ignore"):
            results = FORMULAS[op, pass_](call, *arrays)
        assert all(np.isfinite(r).all() for r in results), case


def run(line, *arrays):
    call = parse(line).call
    shaped = (
        None if a is None else np.array(a).reshape(call.problem.shape(r))
        for r, a in zip(call.roles, arrays, strict=True)
    )
    return [None if r is None else r.ravel().tolist() for r in evaluate(call, *shaped)]


NAN, INF = float("nan"), float("inf")


def test_nan_propagates_and_corners_have_the_slope_of_torch():
    x = [-INF, -1.0, -0.0, 0.0, 2.0, NAN]
    (y,) = run("relu.fprop:n1c1_i6:dt=f64", x)
    assert_array_equal(y, [0, 0, 0, 0, 2, NAN])
    (dx,) = run("relu.backward:n1c1_i6:dt=f64", [7.0] * 6, x)
    assert dx == [0, 0, 0, 0, 7, 7]
    (dx,) = run("leaky_relu.backward:n1c1_i3:slope=0.5:dt=f64", [8.0] * 3, [-1.0, 0.0, 1.0])
    assert dx == [4, 4, 8]
    (dx,) = run("hardtanh.backward:n1c1_i4:max=6:dt=f64", [5.0] * 4, [-1.0, 0.0, 6.0, NAN])
    assert dx == [0, 5, 0, 0]
    (dx,) = run("hardsigmoid.backward:n1c1_i4:dt=f64", [6.0] * 4, [-3.0, 0.0, 3.0, NAN])
    assert dx == [0, 1, 0, 0]
    (dx,) = run("elu.backward:n1c1_i4:alpha=0.5:dt=f64", [4.0] * 4, [-INF, 0.0, 1.0, NAN])
    assert_array_equal(dx, [0, 2, 4, NAN])
    _, dx = run("elu.double_backward:n1c1_i2:dt=f64", [4.0] * 2, [1.0] * 2, [0.0, 1.0])
    assert dx == [0, 0]
    (dx,) = run("hardswish.backward:n1c1_i4:dt=f64", [6.0] * 4, [-3.0, 0.0, 3.0, NAN])
    assert_array_equal(dx, [0, 3, 6, NAN])


@pytest.mark.parametrize("op", [op for op in OPS if op not in LOSSES])
def test_every_output_of_nan_is_nan(op):
    arrays = [[NAN] for _ in SIGNATURE[op, "fprop"].operands]
    assert_array_equal(run(f"{op}.fprop:n1c1_i1:dt=f64", *arrays), [[NAN]])


def test_prelu_has_a_slope_per_channel_or_one():
    x, dy, w = [-2.0, 0.0, NAN, 4.0], [1.0, 1.0, INF, 5.0], [3.0, 10.0]  # two of each channel
    line = "prelu.{}:n1c2_i2:dt=f64"
    assert_array_equal(run(line.format("fprop"), x, w), [[-6, 0, NAN, 4]])
    dx, dw = run(line.format("backward"), dy, x, w)
    assert_array_equal(dx, [3, 3, INF, 5])  # at 0 the slope of the negative side
    assert_array_equal(dw, [-2, NAN])
    shared = line.replace("c2_i2", "c2_i2:shared=1")
    x[2], dy[2] = -7.0, 2.0
    assert run(shared.format("backward"), dy, x, w[:1]) == [[3, 3, 6, 5], [-16]]
    _, y_dot = run(shared.format("jvp"), x, w[:1], [1.0] * 4, [100.0])
    assert y_dot == [-197, 3, -697, 1]
    found = run(shared.format("double_backward"), [1.0] * 4, [100.0], dy, x, w[:1])
    assert found == [y_dot, [100, 100, 200, 0], [4]]


def test_celu_and_selu_are_elu_scaled():
    x, ones = [-3.0, -0.5, 0.0, 0.5], [1.0] * 4
    (half,) = run("elu.fprop:n1c1_i4:dt=f64", [2 * v if v < 0 else v for v in x])
    (y,) = run("celu.fprop:n1c1_i4:alpha=0.5:dt=f64", x)
    assert y == [v / 2 if v < 0 else v for v in half]
    (dx,) = run("celu.backward:n1c1_i4:alpha=0.5:dt=f64", ones, x)
    assert dx == [pytest.approx(math.exp(2 * min(v, 0)), rel=2.0**-50) for v in x]
    for pass_, factors in (("fprop", ()), ("backward", (ones,)), ("double_backward", (ones, ones))):
        got = run(f"selu.{pass_}:n1c1_i4:dt=f64", *factors, x)[-1]
        want = run(f"elu.{pass_}:n1c1_i4:alpha=1.6732632423543772:dt=f64", *factors, x)[-1]
        assert got == [pytest.approx(1.0507009873554805 * v, rel=2.0**-50) for v in want]


def test_softsign_tanhshrink_and_logsigmoid_by_hand():
    line, ones = "{}.{}:n1c1_i3:dt=f64", [1.0] * 3
    x = [-1.0, 0.0, 3.0]
    assert run(line.format("softsign", "fprop"), x) == [[-0.5, 0, 0.75]]
    assert run(line.format("softsign", "backward"), [16.0] * 3, x) == [[4, 16, 1]]
    found = run(line.format("softsign", "double_backward"), ones, [32.0] * 3, x)
    assert found == [[0.25, 1, 0.0625], [8, 0, -1]]
    (y,) = run(line.format("tanhshrink", "fprop"), x)
    assert y == [v - math.tanh(v) for v in x]
    (dx,) = run(line.format("tanhshrink", "backward"), ones, x)
    assert dx == [math.tanh(v) ** 2 for v in x]
    (y,) = run(line.format("logsigmoid", "fprop"), [-800.0, 0.0, 800.0])
    assert y == [-800, -math.log(2), 0]
    assert run(line.format("logsigmoid", "backward"), ones, [-800.0, 0.0, 800.0]) == [[1, 0.5, 0]]


def test_shrinking_and_a_threshold_by_hand():
    x, dy = [-INF, -2.0, -0.5, 0.0, 0.5, 2.0, NAN], [3.0] * 7
    line = "{}.{}:n1c1_i7:dt=f64"
    assert_array_equal(run(line.format("hardshrink", "fprop"), x), [[-INF, -2, 0, 0, 0, 2, NAN]])
    (y,) = run(line.format("softshrink", "fprop"), x)
    assert_array_equal(y, [-INF, -1.5, 0, 0, 0, 1.5, NAN])
    for op in ("hardshrink", "softshrink"):
        assert run(line.format(op, "backward"), dy, x) == [[3, 3, 0, 0, 0, 3, 3]]
    line = "threshold.{}:n1c1_i7:threshold=0.5:value=9:dt=f64"
    assert_array_equal(run(line.format("fprop"), x), [[9, 9, 9, 9, 9, 2, NAN]])
    assert run(line.format("backward"), dy, x) == [[0, 0, 0, 0, 0, 3, 3]]


def test_softplus_at_its_threshold():
    line, x = "softplus.{}:n1c1_i2:beta=2:threshold=4:dt=f64", [2.0, 2.5]
    (y,) = run(line.format("fprop"), x)
    assert y == [pytest.approx(math.log1p(math.exp(4)) / 2, rel=2.0**-50), 2.5]
    (dx,) = run(line.format("backward"), [1.0] * 2, x)
    assert dx == [pytest.approx(1 / (1 + math.exp(-4)), rel=2.0**-50), 1]
    assert run(line.format("double_backward"), [1.0] * 2, [1.0] * 2, x)[1] == [0, 0]


def test_mish_is_x_tanh_of_softplus():
    x = [-30.0, -1.0, 0.0, 2.0, 30.0]
    (y,) = run("mish.fprop:n1c1_i5:dt=f64", x)
    for got, v in zip(y, x, strict=True):
        assert got == pytest.approx(v * math.tanh(math.log1p(math.exp(v))), rel=2.0**-48)


def test_softmax_is_invariant_under_a_shift():
    (low,) = run("softmax.fprop:n1c3_i1:dt=f64", [1.0, 2.0, 3.0])
    (high,) = run("softmax.fprop:n1c3_i1:dt=f64", [100001.0, 100002.0, 100003.0])
    assert low == high
    (logs,) = run("log_softmax.fprop:n1c2_i1:dt=f64", [0.0, -5000.0])
    assert logs == [0, -5000]


def test_an_ignored_target_counts_nowhere():
    x = [0.0, 0.0, 5.0, 1.0]  # two images of two classes
    line = "cross_entropy.fprop:n2c2_i1:ignore=0:dt=f64"
    assert run(line, x, None, [1, 0]) == [[math.log(2)]]
    smoothed = line.replace("ignore=0", "ignore=0:smooth=0.5")
    assert run(smoothed, x, None, [1, 0]) == [[math.log(2)]]
    (dx,) = run(line.replace("fprop", "backward"), [INF], x, None, [1, 0])
    assert_array_equal(dx, [INF, -INF, 0, 0])
    wild = [0.0, 0.0, INF, NAN]  # the logits of the second image
    assert run(line.replace("fprop", "jvp"), wild, None, [1, 0], [2.0] * 4) == [[math.log(2)], [0]]
    assert run(line, x, None, [0, 0])[0] != run(line, x, None, [0, 0])[0]  # 0 over 0


def test_a_mean_is_over_the_weights_of_the_targets():
    """Losses log 2 with weights 1 and 3; smoothed, every class weighs, the divisor stays."""
    x, w = [0.0, 0.0, 0.0, 0.0], [1.0, 3.0]
    half = math.log(2)
    for smooth, want in ((0, (1 + 3) * half / 4), (1, (2 + 2) * half / 4)):
        line = f"cross_entropy.fprop:n2c2_i1:weight=1{f':smooth={smooth}' if smooth else ''}:dt=f64"
        assert run(line, x, w, [0, 1]) == [[want]]


def test_cross_entropy_is_the_likelihood_of_log_softmax():
    """Losses are minus the logarithm at the target; the mean is over the weights of the targets."""
    x, w, target = [-1.0, -2.0, -4.0, -8.0], [1.0, 3.0], [1, 0]  # two images of two classes
    assert run("nll_loss.fprop:n2c2_i1:red=none:dt=f64", x, None, target) == [[2, 4]]
    assert run("nll_loss.fprop:n2c2_i1:weight=1:dt=f64", x, w, target) == [[(3 * 2 + 4) / 4]]
    line = "nll_loss.backward:n2c2_i1:weight=1:ignore=0:dt=f64"
    assert run(line, [INF], x, w, target) == [[0, -INF, 0, 0]]
    (logs,) = run("log_softmax.fprop:n2c2_i1:dt=f64", x)
    line = "{}.fprop:n2c2_i1:weight=1:dt=f64"
    want = run(line.format("cross_entropy"), x, w, target)
    assert run(line.format("nll_loss"), logs, w, target) == want


def test_cross_entropy_of_probabilities_by_hand():
    """Scores are 1/2 each, so logs are -log 2; the mean is over positions, not over weights."""
    x, p, w, log2 = [3.0] * 4, [0.25, 0.75, 1.0, 0.0], [1.0, 3.0], math.log(2)
    line = "soft_cross_entropy.{}:n2c2_i1:weight=1{}:dt=f64"
    assert run(line.format("fprop", ""), x, p, w) == [[(0.25 + 3 * 0.75 + 1) / 2 * log2]]
    assert run(line.format("fprop", ":smooth=1"), x, p, w) == [[2 * log2]]
    dx, dp = run(line.format("backward", ":red=none"), [1.0, 2.0], x, p, w)
    assert dx == [1.0, -1.0, -1.0, 1.0]
    assert dp == [log2, 3 * log2, 2 * log2, 6 * log2]
    (_, dp) = run(line.format("backward", ":smooth=0.5"), [4.0], x, p, w)
    assert dp == [log2, 3 * log2, log2, 3 * log2]


@pytest.mark.parametrize("smooth", ["", ":smooth=0.5"])
def test_probabilities_of_one_class_are_a_target(smooth):
    """One-hot rows give what class indices give, to the last bit: 0 weighs nothing."""
    x, dy, target = [1.0, -2.0, 4.0, 0.5, 0.0, 7.0], [3.0, 5.0], [2, 0]
    line = f"{{}}.backward:n2c3_i1{smooth}:red=none:dt=f64"
    (want,) = run(line.format("cross_entropy"), dy, x, None, target)
    dx, _ = run(line.format("soft_cross_entropy"), dy, x, [0.0, 0, 1, 1, 0, 0], None)
    assert dx == want


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_target_outside_of_the_classes_is_refused(wrong):
    with pytest.raises(ConvrefError, match=f"holds {wrong}, needs a class from 0 to 2 or -100"):
        run("cross_entropy.fprop:n1c3_i1:dt=f64", [0.0] * 3, None, [wrong])


RIGHT_TARGETS, RIGHT_SUMS = softmax.targets, prelu._per_slope
RIGHT_SHARES = softmax.shares
POINTWISE = formulas.POINTWISE
right_slope, constant = formulas.elu_derivative, _elementary.constant


def replaced(op, **functions):
    return {**POINTWISE, op: POINTWISE[op]._replace(**functions)}


FAULTS = {
    "silu' without its second term": (
        "silu",
        formulas,
        "POINTWISE",
        replaced("silu", derivative=lambda x, problem: _elementary.logistic(x)[0]),
    ),
    "tanh'' of the other sign": (
        "tanh",
        formulas,
        "POINTWISE",
        replaced("tanh", second_derivative=lambda x, p: -formulas.tanh_second_derivative(x, p)),
    ),
    "celu' as elu's": (
        "celu",
        formulas,
        "POINTWISE",
        replaced("celu", derivative=lambda x, p: constant(p.alpha, x) * right_slope(x, p)),
    ),
    "selu without its factor above 0": (
        "selu",
        formulas,
        "POINTWISE",
        replaced("selu", value=lambda x, p: np.where(x > 0, x, formulas.elu(x, p))),
    ),
    "softsign' without the square": (
        "softsign",
        formulas,
        "POINTWISE",
        replaced("softsign", derivative=lambda x, p: 1 / (1 + abs(x))),
    ),
    "tanhshrink' as tanh'": (
        "tanhshrink",
        formulas,
        "POINTWISE",
        replaced("tanhshrink", derivative=formulas.tanh_derivative),
    ),
    "logsigmoid' as sigmoid": (
        "logsigmoid",
        formulas,
        "POINTWISE",
        replaced("logsigmoid", derivative=formulas.sigmoid),
    ),
    "hardshrink that keeps its bound": (
        "hardshrink",
        formulas,
        "POINTWISE",
        replaced("hardshrink", value=lambda x, p: np.where(abs(x) < p.lambd, 0, x)),
    ),
    "softshrink as hardshrink": (
        "softshrink",
        formulas,
        "POINTWISE",
        replaced("softshrink", value=POINTWISE["hardshrink"].value),
    ),
    "threshold of 0 in place of the value": (
        "threshold",
        formulas,
        "POINTWISE",
        replaced("threshold", value=lambda x, p: np.where(x <= p.threshold, 0, x)),
    ),
    "prelu's slope by the first image alone": (
        "prelu",
        prelu,
        "_per_slope",
        lambda terms, problem: RIGHT_SUMS(terms[:1], problem),
    ),
    "softmax' as if of one element": (
        "softmax",
        softmax,
        "softmax_along",
        lambda p, v, dim: p * (1 - p) * v,
    ),
    "nll_loss over all positions": (
        "nll_loss",
        softmax,
        "targets",
        lambda target, w, problem, like: (
            RIGHT_TARGETS(target, w, problem, like)[0],
            constant(max(1, target.size), like),
        ),
    ),
    "a mean of probabilities over the batch": (
        "soft_cross_entropy",
        softmax,
        "shares",
        lambda p, w, problem: (
            *RIGHT_SHARES(p, w, problem)[:2],
            constant(max(1, len(p)), p),
        ),
    ),
    "smoothing over ignored targets": (
        "cross_entropy",
        softmax,
        "targets",
        lambda target, w, problem, like: (
            RIGHT_TARGETS(target, w, problem, like)[0] + problem.label_smoothing > 0,
            RIGHT_TARGETS(target, w, problem, like)[1],
        ),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_formula_fails(checks, monkeypatch, name):
    op, module, where, wrong = FAULTS[name]
    monkeypatch.setattr(module, where, wrong)
    with pytest.raises(AssertionError, match=op):
        campaign(checks.loops, op, "obj", ["int"], phases=UNSHRUNK, examples=16 * EXAMPLES)


def test_a_second_derivative_of_0_times_infinity_is_nan_in_loops():
    assert (
        examine(parse("elu.double_backward:n1c1_i1:mask=01:fill=inf"), load("loops")).verdict
        == "pass"
    )


@pytest.mark.parametrize("backend", ["numpy", "loops", "torch"])
def test_a_mean_over_weights_of_0_is_nan_at_the_target_alone(backend):
    if backend == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    x, w, target = np.ones((2, 3)), np.array([0.0, 1.0, 1.0]), np.array([0, -100])
    dx = convref.nll_loss_backward(np.ones(()), x, target, w, backend=backend)
    assert np.isnan(dx).tolist() == [[True, False, False], [False] * 3]
    assert not np.nan_to_num(dx).any()
