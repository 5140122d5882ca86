"""What docs/judge.md claims, tried on sums in other orders, and rounded in other ways."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from convref.case import parse
from convref.dtypes import numpy_dtype, rounded
from convref.judge import TF32_UNIT, Numerics, bound, judge, reference

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "judge.md"
F32 = np.float32


def dot(x, w, dtype="f32", bias=None):
    """Return a call with a single output, the dot product of x and w, and its operands."""
    call = parse(f"conv.fprop:n1c{len(x)}k1_i1_f1:dt={dtype}" + ":bias=0" * (bias is None)).call
    b = None if bias is None else rounded(np.full(1, bias), dtype)
    x, w = (rounded(np.asarray(a), dtype).reshape(1, -1, 1) for a in (x, w))
    return call, (x, w, b)


def verdict(call, operands, got, numerics, **options):
    """Return the verdict on the single number `got`."""
    result = rounded(np.asarray(got), call.dtype).reshape(1, 1, 1)
    return judge(call, operands, (result,), numerics, **options)


def in_any_order(rng, terms, add):
    """Return the sum of `terms` over a random binary tree."""
    terms = list(terms)
    while len(terms) > 1:
        i, j = sorted(rng.choice(len(terms), 2, replace=False))
        terms.append(add(terms.pop(j), terms.pop(i)))
    return terms[0]


def left_to_right(terms):
    """Return the sum of float32 `terms`, each addition rounded."""
    return np.add.accumulate(np.asarray(terms, F32), dtype=F32)[-1]


FILLS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "positive": lambda rng, n: rng.random(n) + 0.5,
    "wide": lambda rng, n: rng.standard_normal(n) * 2.0 ** rng.integers(-12, 13, n),
    "constant": lambda rng, n: np.full(n, 0.1),
    "one large": lambda rng, n: np.where(np.arange(n) == 0, 1.0, 2.0**-24 * rng.random(n)),
}
each_fill = pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)


# Tier 1.


def test_integer_sums_are_exact_in_any_order():
    rng = np.random.default_rng(0)
    x, w = rng.integers(-8, 9, 60), np.full(60, 4)
    assert abs(x * w).sum() <= 2**11  # the integers of float16
    call, operands = dot(x, w, "f16")
    for _ in range(50):
        got = in_any_order(rng, (x * w).astype(np.float16), np.add)
        assert verdict(call, operands, got, Numerics("undeclared")).tier == "exact"
        assert verdict(call, operands, got, Numerics("undeclared")).kind == "pass"


def test_a_dropped_product_among_4608_is_caught_on_integers():
    rng = np.random.default_rng(0)
    x, w = rng.choice([-4, -3, -2, -1, 1, 2, 3, 4], (2, 4608))
    call, operands = dot(x, w)
    right = int((x * w).sum())
    ref = reference(call, operands)
    assert verdict(call, operands, right, Numerics("rn32"), ref=ref).kind == "pass"
    for product in np.unique(x * w):  # every dropped product leaves one of these behind
        found = verdict(call, operands, right - product, Numerics("rn32"), ref=ref)
        assert (found.kind, found.tier) == ("wrong", "exact")


def test_a_dropped_product_can_hide_under_the_proven_bound():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4608)).astype(F32)
    call, operands = dot(x, w)
    ref = reference(call, operands)
    products = x.astype(float) * w
    kinds = [
        verdict(call, operands, products.sum() - p, Numerics("rn32"), ref=ref).kind
        for p in products[:100]
    ]
    assert 0 < kinds.count("wrong") < len(kinds)


def test_tf32_keeps_integers_up_to_2_to_the_11():
    kept = np.arange(2**11 + 1, dtype=F32)
    assert (truncated_to_tf32(kept) == kept).all()
    lost = F32(2**11 + 1)
    assert truncated_to_tf32(lost) != lost


# Tier 2: round to nearest.


@each_fill
def test_sums_in_random_orders_stay_within_the_bound(fill):
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 33):
        for _ in range(40):
            x, w = fill(rng, n).astype(F32), fill(rng, n).astype(F32)
            call, operands = dot(x, w)
            got = in_any_order(rng, x * w, np.add)
            assert verdict(call, operands, got, Numerics("rn32")).kind == "pass"


@each_fill
def test_fused_sums_and_a_bias_stay_within_the_bound(fill):
    rng = np.random.default_rng(1)
    for n in (1, 5, 200):
        x, w = fill(rng, n).astype(F32), fill(rng, n).astype(F32)
        call, operands = dot(x, w, bias=0.3)
        bias = operands[2][0]
        for first, last in ((F32(0), bias), (bias, F32(0))):
            got = first
            for a, b in zip(x, w):
                got = F32(float(a) * float(b) + float(got))  # one rounding, by way of float64
            assert verdict(call, operands, F32(got + last), Numerics("rn32")).kind == "pass"


def test_the_bound_is_nearly_reached():
    n = 256
    x = np.full(n, 2.0**-24, F32)  # each is lost against the 1 in front: half a unit, to even
    x[0] = 1
    call, operands = dot(x, np.ones(n))
    found = verdict(call, operands, left_to_right(x), Numerics("rn32"))
    assert found.kind == "pass"
    assert found.worst > 1 - 3 / n


def test_products_that_underflow_are_allowed_for():
    n = 64
    x, w = np.full(n, 2.0**-75, F32), np.full(n, 2.0**-75, F32)  # products are half of eta
    call, operands = dot(x, w)
    assert verdict(call, operands, left_to_right(x * w), Numerics("rn32")).kind == "pass"
    assert verdict(call, operands, 2 * n * 2.0**-149, Numerics("rn32")).kind == "wrong"


def test_the_bound_holds_for_exact_references_too():
    rng = np.random.default_rng(2)
    for _ in range(20):
        x, w = rng.standard_normal((2, 100))
        call, operands = dot(x, w, "f64")
        ref = reference(call, operands)
        exact = sum((Fraction(a) * Fraction(b) for a, b in zip(x, w)), Fraction(0))
        limit = bound(call, "y", ref.values[0], ref.sums[0], Numerics("rn64")).item()
        assert abs(exact - Fraction(ref.values[0].item())) <= Fraction(limit)


def test_rounding_the_result_once_is_allowed_for_and_twice_is_declared():
    rng = np.random.default_rng(3)
    x, w = rng.random((2, 400))
    call, operands = dot(x, w, "bf16")
    products = (operands[0] * operands[1].astype(F32)).ravel()
    assert verdict(call, operands, left_to_right(products), Numerics("rn32")).kind == "pass"
    staged = rounded(np.zeros(1), "bf16")
    for part in products.reshape(8, 50):
        staged = staged + rounded(left_to_right(part).reshape(1), "bf16")
    assert verdict(call, operands, staged, Numerics("rn32")).kind == "wrong"
    assert verdict(call, operands, staged, Numerics("rn32", stages=8)).kind == "pass"


# Tier 2: other arithmetic.


def truncated_to_tf32(a):
    """Return float32 `a` with 10 bits of its fraction left."""
    return (np.asarray(a, F32).view(np.uint32) & np.uint32(0xFFFFE000)).view(F32)


def nearest_tf32(a):
    """Return float32 `a` rounded to 10 bits of fraction, ties away from zero."""
    return truncated_to_tf32((np.asarray(a, F32).view(np.uint32) + np.uint32(0x1000)).view(F32))


@each_fill
@pytest.mark.parametrize("cut", [truncated_to_tf32, nearest_tf32])
def test_tf32_operands_stay_within_the_bound(fill, cut):
    rng = np.random.default_rng(4)
    for n in (1, 50):
        x, w = fill(rng, n).astype(F32), fill(rng, n).astype(F32)
        assert (abs(cut(x) - x) <= TF32_UNIT * abs(x)).all()
        call, operands = dot(x, w)
        got = left_to_right(cut(x) * cut(w))
        assert verdict(call, operands, got, Numerics("rn32", tf32=True)).kind == "pass"


def truncate(values, quantum):
    """Return `values` cut toward zero to multiples of `quantum`."""
    return np.trunc(values / quantum) * quantum


def tensor_core_sum(products, width, bits=23):
    """Return the sum in blocks: terms aligned to the largest, and cut instead of rounded."""
    total = 0.0
    for first in range(0, len(products), width):
        terms = np.append(products[first : first + width], total)
        largest = abs(terms).max()
        if largest:
            quantum = 2.0 ** (np.floor(np.log2(largest)) - bits)
            total = float(truncate(terms, quantum).sum())
            if total:
                total = truncate(total, 2.0 ** (np.floor(np.log2(abs(total))) - bits))
    return total


@each_fill
@pytest.mark.parametrize("width", [1, 4, 16])
def test_truncating_sums_stay_within_the_bound_of_mma32(fill, width):
    rng = np.random.default_rng(5)
    for n in (1, 30, 500):
        call, operands = dot(fill(rng, n), fill(rng, n), "bf16")
        products = (operands[0].astype(float) * operands[1].astype(float)).ravel()
        ref = reference(call, operands)
        limit = Numerics("mma32").gamma(n) * ref.sums[0].item()
        assert abs(tensor_core_sum(products, width) - products.sum()) <= limit


def eight_bits(fill, rng, n):
    """Return the products of n pairs of 8-bit floats."""
    x, w = (fill(rng, n).astype(F32).astype(numpy_dtype("e4m3")) for _ in range(2))
    return np.nan_to_num(x.astype(float) * w.astype(float))


@each_fill
@pytest.mark.parametrize("width", [1, 16, 32])
def test_sums_of_few_bits_stay_within_the_bound(fill, width):
    rng = np.random.default_rng(7)
    for n in (1, 2, 30, 500):
        products = eight_bits(fill, rng, n)
        limit = Numerics("mma32", bits=13).gamma(n) * abs(products).sum()
        assert abs(tensor_core_sum(products, width, 13) - products.sum()) <= limit


@each_fill
def test_promoted_sums_stay_within_the_bound(fill):
    rng, n, each = np.random.default_rng(8), 4608, 128
    products = eight_bits(fill, rng, n)
    parts = (tensor_core_sum(products[k : k + each], 32, 13) for k in range(0, n, each))
    error = abs(left_to_right(np.array(list(parts), F32)) - products.sum())
    declared = Numerics("mma32", bits=13, promoted=each)
    assert error <= declared.gamma(n) * abs(products).sum()


def test_promoted_sums_lose_more_than_rn32_allows():
    n, each = 4608, 128
    products = np.full(n, 2.0**-14)  # below the 13th bit of 1
    products[::each] = 1.0
    got = sum(tensor_core_sum(products[k : k + each], 32, 13) for k in range(0, n, each))
    lost = abs(got - products.sum())
    assert lost > Numerics("rn32").gamma(n) * products.sum()
    assert lost < Numerics("mma32", bits=13, promoted=each).gamma(n) * products.sum()


def test_sums_that_are_not_promoted_lose_more_than_is_declared():
    products = np.full(4608, 0.28)
    error = abs(tensor_core_sum(products, 32, 13) - products.sum())
    assert error > Numerics("mma32", bits=13, promoted=128).gamma(4608) * products.sum()


@pytest.mark.parametrize("bits", [13, 23])
def test_integers_that_tensor_cores_keep_are_exact_and_larger_ones_are_not(bits):
    top = 2.0 ** (bits + 1)
    assert Numerics("mma32", bits=bits).digits == bits + 1
    assert tensor_core_sum(np.array([top - 3.0, 1.0, 1.0]), 32, bits) == top - 1.0
    assert tensor_core_sum(np.array([top, 1.0]), 32, bits) == top


def test_truncating_sums_are_more_than_rn32_allows():
    n = 500
    x = np.full(n, 2.0**-23 * 0.999)  # rounding would count each, cutting counts none
    x[0] = 1.0
    lost = abs(tensor_core_sum(x, 1) - x.sum())
    assert lost > Numerics("rn32").gamma(n) * x.sum()
    assert lost < Numerics("mma32").gamma(n) * x.sum()


def complex_normal(rng, n):
    """Return n complex numbers whose parts are float32."""
    return (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(np.complex64)


@pytest.mark.parametrize("n", [1, 2, 3, 60])
def test_complex_sums_by_four_and_by_three_products(n):
    rng = np.random.default_rng(6)
    for _ in range(60):
        x, w = complex_normal(rng, n), complex_normal(rng, n)
        call, operands = dot(x, w, "c64")
        a, b = left_to_right(x.real * w.real), left_to_right(x.imag * w.imag)
        cross = left_to_right(x.real * w.imag), left_to_right(x.imag * w.real)
        four = complex(a - b, cross[0] + cross[1])
        assert verdict(call, operands, four, Numerics("rn32")).kind == "pass"
        c = left_to_right((x.real + x.imag) * (w.real + w.imag))
        three = complex(a - b, F32(c - a) - b)
        assert verdict(call, operands, three, Numerics("rn32", growth=4.0)).kind == "pass"


def test_a_complex_part_is_a_sum_of_twice_the_products():
    n = 64
    x = np.full(n, 2.0**-24 * (1 + 1j))  # in the imaginary part each loses both its products
    x[0] = 1
    w = np.full(n, 1 + 1j)
    call, operands = dot(x, w, "c64")
    real, imaginary = float((x * w).real.sum()), 1.0
    lost = float((x * w).imag.sum()) - imaginary
    assert lost > Numerics("rn32").gamma(n) * reference(call, operands).sums[0].item()
    assert verdict(call, operands, complex(real, imaginary), Numerics("rn32")).kind == "pass"


def flushed(value):
    """Return a float32 with subnormals put to zero."""
    value = F32(value)
    return F32(0) if abs(value) < np.finfo(F32).tiny else value


def test_flushed_sums_stay_within_the_bound_of_ftz():
    rng = np.random.default_rng(7)
    for n in (1, 4, 40):
        x, w = rng.standard_normal((2, n)) * 2.0**-63.5
        call, operands = dot(x, w)
        products = [flushed(a * b) for a, b in zip(operands[0].ravel(), operands[1].ravel())]
        got = in_any_order(rng, products, lambda a, b: flushed(a + b))
        assert verdict(call, operands, got, Numerics("rn32", ftz=True)).kind == "pass"
    call, operands = dot(np.full(64, 2.0**-64), np.full(64, 2.0**-63))  # each product is lost
    assert verdict(call, operands, 0.0, Numerics("rn32")).kind == "wrong"
    assert verdict(call, operands, 0.0, Numerics("rn32", ftz=True)).kind == "pass"
    call, operands = dot([2.0**-70], [2.0**-70])
    assert verdict(call, operands, 0.0, Numerics("rn32")).kind == "wrong"
    assert verdict(call, operands, 0.0, Numerics("rn32", ftz=True)).kind == "pass"


def test_overflow_needs_the_right_sign():
    huge = float(np.finfo(F32).max)
    call, operands = dot([huge, huge], [1.0, 1.0])
    assert verdict(call, operands, np.inf, Numerics("rn32")).kind == "pass"
    assert verdict(call, operands, huge, Numerics("rn32")).kind == "wrong"
    call, operands = dot([huge / 4], [1.0])
    assert verdict(call, operands, np.inf, Numerics("rn32")).kind == "wrong"
    call, operands = dot([6e4, 6e4], [1.001, 1.001], "f16")
    assert verdict(call, operands, np.inf, Numerics("rn32")).kind == "pass"
    assert verdict(call, operands, -np.inf, Numerics("rn32")).kind == "wrong"
    call, operands = dot([huge, huge, -huge], [1.0, 1.0, 1.0])
    assert verdict(call, operands, np.inf, Numerics("rn32")).kind == "pass"  # on the way
    assert verdict(call, operands, huge, Numerics("rn32")).kind == "pass"


# Tier 3.


def test_likely_bound_passes_random_data_and_fails_what_a_wider_bound_passes():
    rng = np.random.default_rng(8)
    n, suspects = 4608, 0
    for _ in range(20):
        x, w = rng.standard_normal((2, n)).astype(F32)
        call, operands = dot(x, w)
        got = left_to_right(x * w)
        assert verdict(call, operands, got, Numerics("rn32"), zero_mean=True).kind == "pass"
        dropped = got - x[0] * w[0]
        proven = verdict(call, operands, dropped, Numerics("rn32"))
        likely = verdict(call, operands, dropped, Numerics("rn32"), zero_mean=True)
        suspects += proven.kind == "pass" and likely.kind == "suspect"
    assert suspects > 0


def test_constant_data_breaks_the_likely_bound_and_not_the_proven_one():
    n = 1 << 14
    x = np.full(n, 0.1, F32)
    call, operands = dot(x, np.ones(n))
    got = left_to_right(x)
    assert verdict(call, operands, got, Numerics("rn32")).kind == "pass"
    assert verdict(call, operands, got, Numerics("rn32"), zero_mean=True).kind == "suspect"


# Non-finite values.


def test_a_leak_through_an_absent_tap_is_allowed_unless_declared_impossible():
    call = parse("conv.dgrad:n1c1k1_i3_f2_s2_p1,0").call
    dy, x = np.ones((1, 1, 2), F32), np.ones((1, 1, 3), F32)
    w = np.array([[[np.inf, 1]]], F32)
    scattered = np.array([[[1, np.inf, 1]]], F32)
    leaked = np.array([[[np.nan, np.inf, np.nan]]], F32)
    strict = Numerics("rn32", strict_nonfinite=True)
    for got, model, kind in (
        (scattered, Numerics("rn32"), "pass"),
        (scattered, strict, "pass"),
        (leaked, Numerics("rn32"), "pass"),
        (leaked, strict, "wrong"),
        (-scattered, Numerics("rn32"), "wrong"),
        (np.full_like(leaked, np.nan), Numerics("rn32"), "wrong"),
    ):
        assert judge(call, (dy, x, w), (got, None, None), model).kind == kind


def test_infinities_of_both_signs_make_nan():
    call, operands = dot([np.inf, -np.inf, 1.0], [1.0, 1.0, 1.0])
    assert verdict(call, operands, np.nan, Numerics("rn32")).kind == "pass"
    assert verdict(call, operands, np.inf, Numerics("rn32")).kind == "wrong"
    call, operands = dot([np.inf, 2.0], [-1.0, 1.0])
    assert verdict(call, operands, -np.inf, Numerics("rn32")).kind == "pass"
    call, operands = dot([np.inf, 2.0], [0.0, 1.0])
    assert verdict(call, operands, np.nan, Numerics("rn32")).kind == "pass"
