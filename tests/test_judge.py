"""The judge passes every correct result and fails every wrong one on exact data."""

import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from convref import Numerics, dtypes, judge, oracle, parse
from convref.conformance.examine import ZERO_MEAN
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.judge import exact, reference
from convref.judge.references import Exhibit

FILLS = ("normal", "wide", "positive", "subnormal")
DTYPES = ("f32", "f16", "bf16")
PASSES = ("fprop", "backward", "jvp")
EXAMPLES = 1700 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 30


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", FILLS)
def test_correct_results_pass(dtype, fill):
    """ATen's own loops, oneDNN off: 12 cells of 1,700 examples are 20,400 in the nightly run."""
    module = pytest.importorskip("convref.backends.torch.adapter", exc_type=ImportError)
    backend = module.without_onednn.raw
    axes = Axes(
        seed=20, ops=("conv",), passes=PASSES, dtypes=(dtype,), fills=(fill,), size=EXAMPLES
    )
    judged = 0
    for case in chunk_cases(axes, 0):
        problem = case.call.problem
        if not (problem.n and problem.c and problem.k and all(problem.input)):
            continue  # ATen refuses these; test_peers has them
        given = operands(case)
        try:
            results = backend.run(case.call, *given)
        except RuntimeError:  # a refusal is no result to judge
            continue
        verdict = judge(
            case.call, given, results, backend.numerics(case.call), zero_mean=fill in ZERO_MEAN
        )
        assert verdict.kind == "pass", f"{case}: {verdict.reason}"
        judged += 1
    assert judged > EXAMPLES // 2


LONG = "conv.fprop:n1c512k3_i3x3_f3x3:bias=0"


@pytest.mark.parametrize("seed", range(20))
def test_one_dropped_product_among_4608_is_caught(seed):
    case = replace(parse(LONG), seed=seed)
    x, w, _ = operands(case)
    assert case.call.products("y") == 4608
    assert judge(case.call, (x, w, None), oracle.evaluate(case.call, x, w, None), Numerics())
    index = (
        np.random.default_rng(seed).integers(512),
        *np.random.default_rng(seed).integers(3, size=2),
    )
    spoiled = w.copy()
    spoiled[(1, *index)] = 0
    assert x[(0, *index)] != 0
    assert w[(1, *index)] != 0
    wrong = oracle.evaluate(case.call, x, spoiled, None)
    verdict = judge(case.call, (x, w, None), wrong, Numerics())
    assert (verdict.kind, verdict.tier, verdict.index) == ("wrong", "exact", (0, 1, 0, 0))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_one_dropped_nonzero_product_is_caught_in_16_bits(dtype):
    """Zeros are placed so that sums fit the output type; each product left is visible."""
    case = parse(f"{LONG}:dt={dtype}")
    x, w, _ = operands(case)
    visible = np.argwhere((w[0] != 0) & (x[0] != 0))
    assert 0 < len(visible) < 4608
    for at in visible[:: max(1, len(visible) // 20)]:
        spoiled = w.copy()
        spoiled[(0, *at)] = 0
        wrong = oracle.evaluate(case.call, x, spoiled, None)
        assert judge(case.call, (x, w, None), wrong, Numerics()).tier == "exact"
        assert judge(case.call, (x, w, None), wrong, Numerics()).kind == "wrong"


def test_accumulation_in_bf16_fails_on_exact_data():
    """Summing in bf16 itself loses integers above 256; the declared model does not cover it."""
    case = parse("conv.fprop:n1c300k1_i1_f1:dt=bf16:bias=0:fill=ones")
    x, w, _ = operands(case)
    total = dtypes.rounded(np.zeros(1), "bf16")
    for product in (x[0, :, 0] * w[0, :, 0]).ravel():
        total = dtypes.rounded(total.astype(np.float64) + float(product), "bf16")
    assert float(total[0]) == 256.0
    assert not judge(case.call, (x, w, None), (total.reshape(1, 1, 1),), Numerics("rn32"))
    assert judge(case.call, (x, w, None), (total.reshape(1, 1, 1),), Numerics("rn32", stages=300))


def test_only_the_results_that_are_named_are_judged():
    case = parse("max_pool.fprop:n1c2_i6_f2_s2:fill=ramp")
    y, indices = oracle.evaluate(case.call, *operands(case))
    judge_of = partial(judge, case.call, operands(case), numerics=Numerics("rn32"))
    assert judge_of((y, None), only=("y",))
    assert judge_of((y + 1, None), only=("y",)).role == "y"
    assert judge_of((y, None)).reason == "indices is absent, the mask requires the opposite"
    assert judge_of((None, indices + 1), only=("indices",)).role == "indices"


MODELS = [
    ("rn32", Numerics("rn32")),
    ("mma32", Numerics("mma32", splits=8)),
    ("tf32", Numerics("rn32", tf32=True)),
    ("tf32x3", Numerics("rn32", tf32x3=True)),
    ("staged", Numerics("rn32", stages=3)),
    ("ftz", Numerics("rn32", ftz=True)),
    ("normwise", Numerics("rn32", normwise=1e-5)),
]


@pytest.mark.parametrize(("name", "numerics"), MODELS, ids=[name for name, _ in MODELS])
def test_every_model_explains_more_than_plain_sums(name, numerics):
    case = parse("conv.fprop:n1c64k4_i6x6_f3x3_p1:fill=normal")
    given = operands(case)
    exact = oracle.evaluate(case.call, *given)
    assert judge(case.call, given, exact, numerics)
    spoiled = (exact[0] * np.float32(1.01) + np.float32(1.0),)
    assert not judge(case.call, given, spoiled, numerics)


def test_tf32_rounding_passes_only_where_it_is_declared():
    case = parse("conv.fprop:n1c64k4_i6x6_f3x3_p1:fill=normal")
    x, w, b = operands(case)
    cut = [(a.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for a in (x, w)]
    results = oracle.evaluate(case.call, *cut, b)
    assert judge(case.call, (x, w, b), results, Numerics("rn32", tf32=True))
    assert not judge(case.call, (x, w, b), results, Numerics("rn32"))


def _cut(a):
    return (a.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("fill", ["normal", "positive", "wide", "subnormal", "int"])
def test_three_tf32_products_stay_within_their_bound(fill):
    case = parse(f"conv.fprop:n1c20k2_i30_f1:bias=0:fill={fill}")
    x, w, _ = operands(case)
    high = [_cut(a) for a in (x, w)]
    low = [_cut(a - h) for a, h in zip((x, w), high)]
    products = [(high[0], high[1]), (high[0], low[1]), (low[0], high[1])]
    result = sum(oracle.evaluate(case.call, *pair, None)[0] for pair in products)
    assert judge(case.call, (x, w, None), (result,), Numerics("rn32", tf32x3=True))
    single = oracle.evaluate(case.call, *high, None)
    bad = not judge(case.call, (x, w, None), single, Numerics("rn32", tf32x3=True))
    assert bad == (fill not in ("int", "subnormal"))


def test_an_undeclared_model_is_at_most_suspect_outside_exact_data():
    case = parse("conv.fprop:n1c4k1_i4_f3:fill=normal")
    given = operands(case)
    spoiled = (oracle.evaluate(case.call, *given)[0] + np.float32(1),)
    assert judge(case.call, given, spoiled, Numerics("undeclared")).kind == "suspect"
    exact = replace(case, fill="int")
    given = operands(exact)
    spoiled = (oracle.evaluate(case.call, *given)[0] + np.float32(1),)
    assert judge(case.call, given, spoiled, Numerics("undeclared")).kind == "wrong"


@pytest.mark.parametrize(("dtype", "lower"), [("f64", "f32"), ("c128", "c64"), ("f80", "f64")])
def test_undeclared_arithmetic_is_judged_by_the_type_of_the_data(dtype, lower):
    """A sum that was kept in the type below is suspect."""
    case = parse(f"conv.fprop:n1c8k4_i3x3_f1:dt={dtype}:bias=0:fill=normal")
    given = operands(case)
    (y,) = oracle.evaluate(case.call, *given)
    judge_of = partial(judge, case.call, given, numerics=Numerics("undeclared"))
    assert judge_of((y,))
    assert judge_of((y.astype(dtypes.numpy_dtype(lower)).astype(y.dtype),)).kind == "suspect"


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (3, 1, 0, 2)])
def test_overflow_of_partial_sums_passes_in_any_order(order):
    """The reference itself is NaN where two partial sums of float64 are infinities."""
    case = parse("conv.fprop:n1c2k1_i2_f2:dt=f64:bias=0")
    x = np.array([1e308, 1e308, -1e308, -1e308])[list(order)].reshape(1, 2, 2)
    given = x, np.ones((1, 2, 2)), None
    for got in (0.0, np.inf, -np.inf, np.nan):
        assert judge(case.call, given, (np.full((1, 1, 1), got),), Numerics("rn64"))


def test_tier_3_suspects_what_no_bound_can_prove():
    """Forty percent of the worst case in every element of a long sum is no accident."""
    case = parse("conv.fprop:n1c4096k1_i64_f1:bias=0:fill=normal")
    given = operands(case)
    exact = oracle.evaluate(case.call, *given, out="f64")[0]
    sums = oracle.evaluate(case.call, *(None if a is None else np.abs(a) for a in given))[0]
    drifted = (exact + 0.4 * 4096 * 2.0**-24 * sums).astype(np.float32)
    assert judge(case.call, given, (drifted,), Numerics(), zero_mean=False).kind == "pass"
    assert judge(case.call, given, (drifted,), Numerics(), zero_mean=True).kind == "suspect"


FORMS = [
    ("shape", lambda y: (y[..., :1],), "has shape"),
    ("dtype", lambda y: (y.astype(np.float64),), "has dtype float64"),
    ("absent", lambda y: (None,), "is absent"),
    ("too many", lambda y: (y, y), "got 2 results, needs 1"),
]


@pytest.mark.parametrize(("name", "spoil", "text"), FORMS, ids=[row[0] for row in FORMS])
def test_a_result_of_the_wrong_form_is_wrong(name, spoil, text):
    case = parse("conv.fprop:n1c1k1_i3_f1")
    given = operands(case)
    verdict = judge(case.call, given, spoil(oracle.evaluate(case.call, *given)[0]), Numerics())
    assert (verdict.kind, verdict.tier) == ("wrong", "form")
    assert text in verdict.reason


KINDS = [  # line, position of an inf, result element, what it must or may be
    ("conv.fprop:n1c1k1_i3_f3_p1:bias=0", ("w", 0), (0, 0, 1), {"inf"}),
    ("conv.fprop:n1c1k1_i3_f3_p1:bias=0", ("w", 0), (0, 0, 0), {"finite", "nan"}),
    ("conv.dgrad:n1c1k1_i4_f2_s2", ("w", 1), (0, 0, 1), {"inf"}),
    ("conv.dgrad:n1c1k1_i4_f2_s2", ("w", 1), (0, 0, 0), {"finite", "nan"}),
    ("conv.wgrad:n1c1k1_i3_f3_p1", ("dy", 0), (0, 0, 1), {"inf"}),
    ("conv.wgrad:n1c1k1_i3_f3_p1", ("dy", 0), (0, 0, 0), {"finite", "nan"}),
    ("conv.fprop:n1c2k2g2_i3_f1:bias=0", ("w", 0), (0, 1, 0), {"finite"}),
]


@pytest.mark.parametrize(("line", "where", "at", "allowed"), KINDS)
def test_nan_is_allowed_only_behind_absent_taps(line, where, at, allowed):
    call = parse(line).call
    given = [np.ones(call.problem.shape(r), np.float32) for r in call.roles if call.is_present(r)]
    given[call.roles.index(where[0])].flat[where[1]] = np.inf
    given += [None] * (len(call.roles) - len(given))
    exact = oracle.evaluate(call, *given)
    position = next(i for i, r in enumerate(exact) if r is not None)
    values = {"finite": None, "inf": np.inf, "nan": np.nan}
    scattered = _without_padding(call, given)[position]
    for name, value in values.items():
        results = [
            None if r is None else scattered if i == position else r for i, r in enumerate(exact)
        ]
        results[position] = results[position].copy()
        if value is not None:
            results[position][at] = value
        elif not np.isfinite(results[position][at]):
            results[position][at] = 1
        assert bool(judge(call, given, results, Numerics())) == (name in allowed), name


def _without_padding(call, given):
    """Return the results with absent taps left out: 0 * inf of the padding put back to 0."""
    marked = [None if a is None else np.where(np.isfinite(a), a, 1e30) for a in given]
    values = oracle.evaluate(call, *marked, out="f64")
    return [
        None if v is None else np.where(np.abs(v) > 1e29, np.inf, v).astype(np.float32)
        for v in values
    ]


def test_strict_backends_may_not_leak():
    call = parse("conv.fprop:n1c1k1_i3_f3_p1:bias=0").call
    x, w = np.ones((1, 1, 3), np.float32), np.ones((1, 1, 3), np.float32)
    w[0, 0, 0] = np.inf
    leaked = oracle.evaluate(call, x, w, None)
    assert np.isnan(leaked[0][0, 0, 0])
    assert judge(call, (x, w, None), leaked, Numerics())
    assert not judge(call, (x, w, None), leaked, Numerics(strict_nonfinite=True))


def test_overflow_is_right_only_with_the_right_sign():
    call = parse("conv.fprop:n1c1k1_i1_f1:dt=f16:bias=0").call
    big = np.full((1, 1, 1), 60000, np.float16)
    assert judge(call, (big, big, None), (np.full((1, 1, 1), np.inf, np.float16),), Numerics())
    assert not judge(call, (big, big, None), (np.full((1, 1, 1), -np.inf, np.float16),), Numerics())


def test_integers_wrap_and_nothing_else():
    call = parse("conv.fprop:n1c1k1_i1_f1:dt=i8:bias=0").call
    given = np.full((1, 1, 1), 100, np.int8), np.full((1, 1, 1), 3, np.int8), None
    assert judge(call, given, (np.full((1, 1, 1), 44, np.int8),), Numerics("exact"))
    assert not judge(call, given, (np.full((1, 1, 1), 127, np.int8),), Numerics("exact"))


@pytest.mark.parametrize("op", ["conv", "matmul", "unfold", "avg_pool"])
def test_the_largest_operands_bound_every_sum_of_absolute_values(op):
    """So that exact data need no such sums; convolution's are those of every fill."""
    bounded = 0
    for case in chunk_cases(Axes(3, (op,), size=200), 0):
        given = operands(case)
        ref = reference(case.call, given)
        for role, value in zip(case.call.signature.results, ref.values):
            it = Exhibit(ref, role, value)
            if value is None or not value.size or it.is_discrete or it.kinds is not None:
                continue
            most = exact.largest_sum(it)
            assert it.sums.max() <= most * (1 + 2.0**-50), f"{case}: {role}"
            bounded += most < np.inf
    assert bounded or op != "conv"


def test_exact_data_are_judged_without_sums_of_absolute_values():
    case = parse("conv.backward:n2c3k4_i8x8_f3x3_p1:dt=bf16")
    given = operands(case)
    ref = reference(case.call, given)
    assert judge(case.call, given, oracle.evaluate(case.call, *given), Numerics(), ref=ref)
    assert "sums" not in vars(ref)
    assert all((s is None) == (v is None) for s, v in zip(ref.sums, ref.values))
