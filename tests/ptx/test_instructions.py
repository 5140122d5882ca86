"""Each instruction of the interpreter alone, against Python's integers and fractions.

Expected results follow the PTX manual; a GPU that runs the same PTX confirms them.
"""

import operator
import re
import struct
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from micro import COUNT, RNG, floats, kernel, patterns, run

from convref_ptx import Allocation, Fault, launch, parse
from convref_ptx.decode.opcodes import _TABLE, decoded


def number(pattern, kind):
    """Return what a pattern means."""
    bits = int(kind[1:])
    if kind[0] == "s" and pattern >> (bits - 1):
        return int(pattern) - (1 << bits)
    return int(pattern)


def cut(a, b):
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


INTEGER = {
    "add": operator.add,
    "sub": operator.sub,
    "mul.lo": operator.mul,
    "min": min,
    "max": max,
    "div": cut,
    "rem": lambda a, b: a - cut(a, b) * b,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("letter", "su")
@pytest.mark.parametrize("name", INTEGER)
def test_integers_of_two(name, letter, bits, run):
    a, b = patterns(bits), patterns(bits)
    if name in ("div", "rem"):
        b = np.where(b == 0, 3, b).astype(b.dtype)
    kind = f"{'b' if name in ('and', 'or', 'xor') else letter}{bits}"
    got = run(f"{name}.{kind} y, x0, x1;", [a, b], bits)
    kind = f"{letter}{bits}"
    for x, y, z in zip(a, b, got):
        if (x, y) != (1 << (bits - 1), (1 << bits) - 1):
            assert int(z) == INTEGER[name](number(x, kind), number(y, kind)) % (1 << bits)


def test_division_by_zero_is_a_fault():
    zero = np.zeros(COUNT, np.uint32)
    with pytest.raises(Fault, match="divides by zero"):
        run("div.u32 y, x0, x1;", [zero, zero], 32)


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_wide_products(kind, run):
    bits = int(kind[1:])
    a, b = patterns(bits), patterns(bits)
    got = run(f"mul.wide.{kind} y, x0, x1;", [a, b], 2 * bits)
    for x, y, z in zip(a, b, got):
        assert int(z) == number(x, kind) * number(y, kind) % (1 << 2 * bits)


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_high_products_and_sums_of_products(kind, run):
    bits = int(kind[1:])
    a, b, c = patterns(bits), patterns(bits), patterns(bits)
    high = run(f"mul.hi.{kind} y, x0, x1;", [a, b], bits)
    mad = run(f"mad.lo.{kind} y, x0, x1, x2;", [a, b, c], bits)
    for x, y, z, h, m in zip(a, b, c, high, mad):
        product = number(x, kind) * number(y, kind)
        assert int(h) == (product >> bits) % 2**bits
        assert int(m) == (product + int(z)) % 2**bits


def test_a_register_written_by_no_thread_may_be_moved(run):
    a = patterns(32)
    body = """setp.ne.u32 %p1, x0, x0; @%p1 mov.b32 %r20, 7; mov.b32 %r21, %r20;
    selp.b32 y, %r21, x0, %p1;"""
    assert run(body, [a], 32).tolist() == a.tolist()


@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("shl", f"b{n}") for n in (16, 32, 64)),
     *(("shr", f"{k}{n}") for k in "bus" for n in (16, 32, 64))],
)  # fmt: skip
def test_shifts(name, kind, run):
    bits = int(kind[1:])
    a, count = patterns(bits), RNG.integers(0, bits + 3, COUNT).astype(np.uint32)
    got = run(f"{name}.{kind} y, x0, x1;", [a, count], bits)
    for x, n, z in zip(a, count, got):
        value = number(x, kind)
        assert int(z) == (value << int(n) if name == "shl" else value >> int(n)) % (1 << bits)


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_negation_and_complement(kind, run):
    bits = int(kind[1:])
    a = patterns(bits)
    got = run(f"neg.{kind} y, x0;", [a], bits)
    assert [int(z) for z in got] == [-number(x, kind) % (1 << bits) for x in a]
    got = run(f"not.b{bits} y, x0;", [a], bits)
    assert [int(z) for z in got] == [~int(x) % (1 << bits) for x in a]


RELATION = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*product(RELATION, ("s16", "u16", "s32", "u32", "s64", "u64")), ("eq", "b32"), ("ne", "b64")],
)
def test_relations_of_integers(name, kind, run):
    bits = int(kind[1:])
    a = patterns(bits)
    b = np.where(np.arange(COUNT) % 3 == 0, a, patterns(bits)).astype(a.dtype)
    got = run(f"setp.{name}.{kind} y, x0, x1;", [a, b], 1)
    want = [RELATION[name](number(x, kind), number(y, kind)) for x, y in zip(a, b)]
    assert got.tolist() == want


def related(name, x, y):
    """Return a relation of floats: a name with "u" at its end holds of NaN and anything, too."""
    unordered = bool(np.isnan(x) or np.isnan(y))
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if name in RELATION:
        return not unordered and bool(RELATION[name](x, y))
    return unordered or bool(RELATION[name[:-1]](x, y))


RELATIONS = [*RELATION, *(f"{name}u" for name in RELATION), "num", "nan"]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", RELATIONS)
def test_relations_of_floats(name, bits, run):
    a = floats(bits)
    b = np.where(np.arange(COUNT) % 3 == 0, a, floats(bits)).astype(a.dtype)
    got = run(f"setp.{name}.f{bits} y, x0, x1;", [a, b], 1)
    for x, y, z in zip(a.view(f"f{bits // 8}"), b.view(f"f{bits // 8}"), got):
        assert bool(z) == related(name, x, y)


def shorts(kind):
    """Return patterns of pairs of numbers of 16 bits, NaN and infinities of either sign too."""
    ones = {"bf16": 0x7F80, "f16": 0x7C00}[kind]
    edge = [0, 0x8000, 1, 0x8001, ones, ones | 0x8000, ones | 1, ones | 0x8003, 0x7FFF]
    return RNG.choice(np.array([*edge, *patterns(16)[:9]], np.uint16), 2 * COUNT).view(np.uint32)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("name", RELATIONS)
def test_relations_of_numbers_of_16_bits_and_of_pairs(name, kind, run):
    a = shorts(kind)
    b = np.where(np.arange(COUNT) % 3 == 0, a, shorts(kind)).astype(a.dtype)
    pair = f"setp.{name}.{kind}x2 %p1|%p2, x0, x1; selp.b32 %r20, 1, 0, %p1; "
    both = run(pair + "selp.b32 %r21, 2, 0, %p2; or.b32 y, %r20, %r21;", [a, b], 32)
    lower = [n.astype(np.uint16) for n in (a, b)]
    single = run(f"setp.{name}.{kind} y, x0, x1;", lower, 1)
    for x, y, one, two in zip(*(n.view(np.uint16).reshape(-1, 2) for n in (a, b)), single, both):
        want = [related(name, seen(x[n], kind), seen(y[n], kind)) for n in (0, 1)]
        assert (one == 1, int(two)) == (want[0], want[0] + 2 * want[1])


def test_half_of_a_predicate_pair_must_be_declared():
    with pytest.raises(Fault, match="not declared"):
        run("setp.lt.s32 %p1|%q2, x0, 1; mov.b32 y, x0;", [patterns(32)], 32)


def rounded(value, bits):
    """Return the pattern of a fraction rounded to nearest even, by integers alone."""
    digits, least = {16: (8, -133), 32: (24, -149), 64: (53, -1074)}[bits]
    if value == 0:
        return 0
    sign, size = value < 0, abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length() - digits + 1
    exponent = max(exponent, least)
    for e in (exponent - 1, exponent, exponent + 1):  # the lengths may be off by one
        scaled = size / Fraction(2) ** e
        if e >= least and (scaled < 2**digits):
            exponent = e
            break
    scaled = size / Fraction(2) ** exponent
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    # A subnormal's exponent field is 0; adding the fraction carries over by itself.
    pattern = ((exponent - least) << (digits - 1)) + whole
    return pattern | (int(sign) << (bits - 1))


def fraction(pattern, bits):
    """Return what a pattern of a finite number means."""
    form = {32: ("<I", "<f"), 64: ("<Q", "<d")}[bits]
    return Fraction(struct.unpack(form[1], struct.pack(form[0], int(pattern)))[0])


def finite(*arrays):
    """Return which elements are finite in all arrays."""
    return [all(np.isfinite(a.view(f"f{a.itemsize}")[i]) for a in arrays) for i in range(COUNT)]


# By kind: patterns whose product is half way between two numbers, and one that float32 loses.
TIES = {"bf16": (0x3FC0, 0x3F81, 0x0100), "f16": (0x3E00, 0x3C01, 0x0001)}
FLOATING = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


@pytest.mark.parametrize("suffix", ["", ".rn"])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", FLOATING)
def test_floats_of_two(name, bits, suffix, run):
    a, b = floats(bits), floats(bits)
    got = run(f"{name}{suffix}.f{bits} y, x0, x1;", [a, b], bits)
    for i, ordinary in enumerate(finite(a, b, got)):
        if ordinary:
            exact = FLOATING[name](fraction(a[i], bits), fraction(b[i], bits))
            assert exact == 0 or int(got[i]) == rounded(exact, bits)


@pytest.mark.parametrize("bits", [32, 64])
def test_products_and_sums_round_once(bits, run):
    a, b, c = floats(bits), floats(bits), floats(bits)
    kind = f"f{bits // 8}"
    with np.errstate(all="ignore"):
        near = -(a.view(kind).astype(np.float64) * b.view(kind)).astype(kind)  # what cancels
    c = np.where(np.arange(COUNT) % 2 == 0, near.view(c.dtype), c)
    got = run(f"fma.rn.f{bits} y, x0, x1, x2;", [a, b, c], bits)
    checked = 0
    for i, ordinary in enumerate(finite(a, b, c, got)):
        exact = ordinary and fraction(a[i], bits) * fraction(b[i], bits) + fraction(c[i], bits)
        small = bits == 64 and ordinary and abs(exact) < Fraction(2) ** -900
        if ordinary and exact != 0 and not small:
            assert int(got[i]) == rounded(exact, bits)
            checked += 1
    assert checked > COUNT // 2


def test_a_product_near_the_largest_number_cancels_exactly(run):
    a, b = np.array([np.finfo("f8").max]), np.array([1 - 2.0**-53])
    c = -(a * b)
    got = run("fma.rn.f64 y, x0, x1, x2;", [np.resize(n, COUNT).view("u8") for n in (a, b, c)], 64)
    exact = Fraction(a[0]) * Fraction(b[0]) + Fraction(c[0])
    assert exact != 0
    assert set(got.view("f8")) == {float(exact)}


@pytest.mark.parametrize("bits", [32, 64])
def test_minimum_and_maximum_pass_numbers_over_nan(bits, run):
    a, b = floats(bits), floats(bits)
    kind = f"f{bits // 8}"
    for name in ("min", "max"):
        got = run(f"{name}.f{bits} y, x0, x1;", [a, b], bits).view(kind)
        for x, y, z in zip(a.view(kind), b.view(kind), got):
            there = [float(n) for n in (x, y) if not np.isnan(n)]
            want = {"min": min, "max": max}[name](there) if there else None
            assert np.isnan(z) if want is None else z == want


def test_minimum_and_maximum_pass_nan_over_numbers(run):
    a, b = floats(32), floats(32)
    for name, choose in (("min", min), ("max", max)):
        got = run(f"{name}.NaN.f32 y, x0, x1;", [a, b], 32).view("f4")
        for x, y, z in zip(a.view("f4"), b.view("f4"), got):
            assert np.isnan(z) if np.isnan(x) or np.isnan(y) else z == choose(x, y)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("name", FLOATING)
def test_pairs_of_16_bits_round_each_once(name, kind, run):
    a, b = patterns(32), patterns(32)
    got = run(f"{name}.rn.{kind}x2 y, x0, x1;", [a, b], 32)
    plain = run(f"{name}.{kind}x2 y, x0, x1;", [a, b], 32)
    assert got.tolist() == plain.tolist()
    lower = [n.astype(np.uint16) for n in (a, b)]
    single = run(f"{name}.{kind} y, x0, x1;", lower, 16)
    assert single.tolist() == got.astype(np.uint16).tolist()
    checked = 0
    for x, y, z in zip(*(words.view(np.uint16) for words in (a, b, got))):
        if all(np.isfinite(seen(word, kind)) for word in (x, y, z)):
            exact = FLOATING[name](*(Fraction(float(seen(word, kind))) for word in (x, y)))
            assert_nearest(z, exact, kind)
            checked += 1
    assert checked > COUNT // 2


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_products_and_sums_of_16_bits_round_once(kind, run):
    a, b, c = patterns(32), patterns(32), patterns(32)
    numbers = [n.view(np.uint16) for n in (a, b, c)]
    for every, tie in zip(numbers, TIES[kind]):
        every[::3] = tie
    numbers[2][::6] |= 1 << 15
    got = run(f"fma.rn.{kind}x2 y, x0, x1, x2;", [a, b, c], 32).view(np.uint16)
    lower = run(f"fma.rn.{kind} y, x0, x1, x2;", [n[::2].copy() for n in numbers], 16)
    assert lower.tolist() == got[::2].tolist()
    checked = 0
    for x, y, more, z in zip(*numbers, got):
        if all(np.isfinite(seen(word, kind)) for word in (x, y, more, z)):
            exact = Fraction(float(seen(x, kind))) * Fraction(float(seen(y, kind)))
            assert_nearest(z, exact + Fraction(float(seen(more, kind))), kind)
            checked += 1
    assert checked > COUNT // 2


def assert_nearest(word, exact, kind):
    """Check that a pattern of 16 bits is the number nearest to an exact one, ties to even."""
    about = [n for n in range(max(int(word) - 1, 0), int(word) + 2) if n < 1 << 16]
    around = [n for n in about if np.isfinite(seen(n, kind))]
    far = [(abs(Fraction(float(seen(n, kind))) - exact), n & 1) for n in around]
    assert min(far) == far[around.index(int(word))]


def seen(word, kind):
    """Return a pattern of 16 bits as a number."""
    if kind == "bf16":
        return np.uint32(int(word) << 16).view(np.float32)
    return np.uint16(word).view(np.float16)


def flushed(pattern):
    """Return float32 with zero for a subnormal."""
    return pattern & 0x80000000 if pattern & 0x7F800000 == 0 else pattern


def test_subnormals_are_flushed_with_ftz(run):
    a, b, c = floats(32), floats(32), floats(32)
    size = run("abs.ftz.f32 y, x0;", [a], 32)
    keep = ~np.isnan(a.view("f4"))
    assert size[keep].tolist() == [flushed(int(x)) & 0x7FFFFFFF for x in a[keep]]
    zeros = [np.array([flushed(int(x)) for x in n], np.uint32) for n in (a, b, c)]
    got = run("fma.rn.ftz.f32 y, x0, x1, x2;", [a, b, c], 32)
    whole = run("fma.rn.f32 y, x0, x1, x2;", zeros, 32)
    keep = ~np.isnan(whole.view("f4"))
    assert got[keep].tolist() == [flushed(int(x)) for x in whole[keep]]


def test_powers_of_two_are_within_two_units(run):
    a = floats(32)
    about, cut_ = run("ex2.approx.f32 y, x0;", [a], 32), run("ex2.approx.ftz.f32 y, x0;", [a], 32)
    with np.errstate(all="ignore"):
        exact = np.exp2(a.view("f4").astype(np.float64))
    for x, y, z in zip(exact, about.view("f4").astype(np.float64), cut_):
        if np.isnan(x):
            assert np.isnan(y)
        elif 2.0**-120 < x < 2.0**128:
            assert abs(y - x) <= x * 2.0**-22
            assert z == np.float32(y).view(np.uint32)


@pytest.mark.parametrize(
    ("to", "from_"),
    [
        ("s64", "s32"),
        ("u64", "u32"),
        ("u32", "u64"),
        ("s32", "s16"),
        ("u16", "u32"),
        ("s64", "u32"),
    ],
)
def test_integers_change_their_width(to, from_, run):
    a = patterns(int(from_[1:]))
    got = run(f"cvt.{to}.{from_} y, x0;", [a], int(to[1:]))
    assert [int(z) for z in got] == [number(x, from_) % (1 << int(to[1:])) for x in a]


@pytest.mark.parametrize(("to", "from_"), [("s16", "s8"), ("s32", "s8"), ("u64", "u8")])
def test_the_lowest_byte_of_a_register_is_a_number(to, from_, run):
    a = patterns(int(to[1:]))
    got = run(f"cvt.{to}.{from_} y, x0;", [a], int(to[1:]))
    assert [int(z) for z in got] == [number(int(x) & 255, from_) % (1 << int(to[1:])) for x in a]


@pytest.mark.parametrize("from_", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("bits", [32, 64])
def test_integers_become_floats(from_, bits, run):
    a = patterns(int(from_[1:]))
    got = run(f"cvt.rn.f{bits}.{from_} y, x0;", [a], bits)
    assert [int(z) for z in got] == [rounded(Fraction(number(x, from_)), bits) for x in a]


def test_floats_change_their_width(run):
    a = floats(64)
    narrow = run("cvt.rn.f32.f64 y, x0;", [a], 32)
    for i, ordinary in enumerate(finite(a, narrow)):
        if ordinary and fraction(a[i], 64) != 0:
            assert int(narrow[i]) == rounded(fraction(a[i], 64), 32)


def narrowed(pattern, kind):
    """Return float32 rounded to 16 bits; None for NaN, of which only the class is compared."""
    value = pattern.view(np.float32)
    if np.isnan(value):
        return None
    if kind == "f16":
        with np.errstate(over="ignore", under="ignore"):
            return int(value.astype(np.float16).view(np.uint16))
    if np.isinf(value) or value == 0:
        return int(pattern) >> 16
    return rounded(fraction(pattern, 32), 16)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_floats_of_16_bits(kind, run):
    a, b, c = patterns(16), floats(32), floats(32)
    wide = run(f"cvt.f32.{kind} y, x0;", [a], 32)
    for x, z in zip(a, wide):
        value = np.uint32(x << np.uint32(16)) if kind == "bf16" else None
        want = value.view(np.float32) if kind == "bf16" else np.float32(x.view(np.float16))
        assert z.view(np.float32) == want or np.isnan(want)
    single = run(f"cvt.rn.{kind}.f32 y, x0;", [b], 16)
    pairs = run(f"cvt.rn.{kind}x2.f32 y, x0, x1;", [b, c], 32)
    for x, y, one, two in zip(b, c, single, pairs):
        for pattern, got in ((x, one), (x, two >> 16), (y, two & 0xFFFF)):
            want = narrowed(pattern, kind)
            assert int(got) == want if want is not None else int(got) == 0x7FFF


@pytest.mark.parametrize("bits", [32, 64])
def test_quotients_round_once(bits, run):
    a, b = floats(bits), floats(bits)
    quotient = run(f"div.rn.f{bits} y, x0, x1;", [a, b], bits)
    about = run("div.full.f32 y, x0, x1;", [a, b], 32) if bits == 32 else None
    one = np.ones(COUNT, f"f{bits // 8}").view(a.dtype)
    inverse = run(f"rcp.rn.f{bits} y, x1;", [a, b], bits)
    same = run(f"div.rn.f{bits} y, x0, x1;", [one, b], bits)
    assert inverse.tolist() == same.tolist()
    checked = 0
    for i, ordinary in enumerate(finite(a, b, quotient)):
        if ordinary and fraction(b[i], bits) != 0:
            exact = fraction(a[i], bits) / fraction(b[i], bits)
            assert exact == 0 or int(quotient[i]) == rounded(exact, bits)
            far = abs(fraction(b[i], bits)) > 2**126 or abs(exact) < Fraction(2) ** -120
            assert far or bits > 32 or abs(fraction(about[i], 32) - exact) <= abs(exact) / 2**22
            checked += 1
    assert checked > COUNT // 2


@pytest.mark.parametrize("bits", [32, 64])
def test_quotients_of_zeros_infinities_and_nan(bits, run):
    edge = np.array([0.0, -0.0, 2.0, -3.0, np.inf, -np.inf, np.nan], f"f{bits // 8}")
    a, b = (np.resize(n, COUNT).view(f"u{bits // 8}") for n in (edge, np.repeat(edge, len(edge))))
    got = run(f"div.rn.f{bits} y, x0, x1;", [a, b], bits)
    for x, y, z in zip(*(n.view(f"f{bits // 8}").tolist() for n in (a, b, got))):
        sign = np.copysign(1, x) * np.copysign(1, y)
        if np.isnan(x) or np.isnan(y) or (x == 0 == y) or (np.isinf(x) and np.isinf(y)):
            assert np.isnan(z)
        elif y == 0 or np.isinf(x):
            assert z == sign * np.inf
        elif x == 0 or np.isinf(y):
            assert (z, np.copysign(1, z)) == (0, sign)


def test_roots_round_once(run):
    a = floats(32)
    root = run("sqrt.rn.f32 y, x0;", [a], 32)
    for i, ordinary in enumerate(finite(a)):
        if ordinary and fraction(a[i], 32) > 0:
            low, high = (fraction(int(root[i]) + n, 32) for n in (-1, 1))
            at = fraction(root[i], 32)
            assert ((at + low) / 2) ** 2 <= fraction(a[i], 32) <= ((at + high) / 2) ** 2


def test_floats_become_integers(run):
    a = floats(32)
    cut_ = run("cvt.rzi.s32.f32 y, x0;", [a], 32)
    floor = run("cvt.rmi.ftz.f32.f32 y, x0;", [a], 32)
    nearest = run("cvt.rna.tf32.f32 y, x0;", [a], 32)
    for x, z, down, near in zip(a, cut_, floor, nearest):
        value = float(x.view(np.float32))
        want = 0 if np.isnan(value) else max(-(2**31), min(2**31 - 1, value))
        assert int(z) == int(want) % 2**32
        if np.isfinite(value):
            flushed = 0.0 if abs(value) < 2**-126 else value
            assert down.view(np.float32) == np.floor(flushed)
            assert int(near) == ((int(x) + 0x1000) & ~0x1FFF)  # ties go away from zero


def test_permutations_of_bytes(run):
    a, b, choice = patterns(32), patterns(32), patterns(32)
    got = run("prmt.b32 y, x0, x1, x2;", [a, b, choice], 32)
    wrapped = run("shf.l.wrap.b32 y, x0, x1, x2;", [a, b, choice], 32)
    back = run("shf.r.wrap.b32 y, x0, x1, x2;", [a, b, choice], 32)
    for x, y, n, z, left, right in zip(
        *(map(int, part) for part in (a, b, choice, got, wrapped, back))
    ):
        eight = x | y << 32
        for i in range(4):
            byte = eight >> 8 * (n >> 4 * i & 7) & 255
            want = (255 if byte > 127 else 0) if n >> 4 * i & 8 else byte
            assert z >> 8 * i & 255 == want
        assert left == eight << (n & 31) >> 32 & 0xFFFFFFFF
        assert right == eight >> (n & 31) & 0xFFFFFFFF


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_fields_of_bits(kind, run):
    a, start = patterns(32), RNG.integers(0, 40, COUNT).astype(np.uint32)
    length = RNG.integers(0, 40, COUNT).astype(np.uint32)
    got = run(f"bfe.{kind} y, x0, x1, x2;", [a, start, length], 32)
    for x, n, count, z in zip(*(map(int, part) for part in (a, start, length, got))):
        last = x >> min(n + count - 1, 31) & 1 if kind == "s32" and count else 0
        bits = [x >> (n + i) & 1 if i < count and n + i < 32 else last for i in range(32)]
        assert z == sum(bit << i for i, bit in enumerate(bits))


@pytest.mark.parametrize(("kind", "wide"), [("s16", 32), ("u16", 32), ("s32", 64), ("u32", 64)])
def test_wide_sums_of_products(kind, wide, run):
    a, b, c = patterns(int(kind[1:])), patterns(int(kind[1:])), patterns(wide)
    got = run(f"mad.wide.{kind} y, x0, x1, x2;", [a, b, c], wide)
    for x, y, more, z in zip(a, b, c, got):
        assert int(z) == (number(x, kind) * number(y, kind) + int(more)) % (1 << wide)


def test_bytes_are_the_low_ones(run):
    """A register has no 8 bits: the byte is extended by its sign, or with zeros."""
    a = patterns(32)
    for sign, kind in (("s", np.int8), ("u", np.uint8)):
        got = run(f"cvt.{sign}8.s32 %rs1, x0; cvt.{sign}32.{sign}16 y, %rs1;", [a], 32)
        expected = (a & 0xFF).astype(kind).astype(np.int32)
        assert np.array_equal(got.view(np.int32), expected)


def test_bytes_widen(run):
    a = patterns(32)
    body = """mov.b32 %r20, s; add.u32 %r21, %r20, %r30; st.shared.u8 [%r21], x0; bar.sync 0;
    ld.shared.s8 %r22, [%r21]; ld.shared.u8 %r23, [%r21]; mad.lo.u32 y, %r22, 1000, %r23;"""
    got = run(body, [a], 32, shared=SHARED)
    for x, z in zip(a, got):
        byte = int(x) & 255
        assert int(z) == ((byte - 256 * (byte > 127)) * 1000 + byte) % 2**32


def test_predicates_and_selection(run):
    a, b = patterns(32), patterns(32)
    body = "setp.lt.s32 %p1, x0, 0; setp.gt.u32 %p2, x1, 77; {}; selp.b32 y, x0, x1, %p3;"
    for text, meaning in (
        ("and.pred %p3, %p1, %p2", operator.and_),
        ("or.pred %p3, %p1, %p2", operator.or_),
        ("xor.pred %p3, %p1, %p2", operator.xor),
        ("not.pred %p3, %p1", lambda p, q: not p),
        ("mov.pred %p3, %p2", lambda p, q: q),
    ):
        got = run(body.format(text), [a, b], 32)
        want = [x if meaning(x >> 31 == 1, y > 77) else y for x, y in zip(a, b)]
        assert got.tolist() == want


def test_moves_join_and_split_registers(run):
    a, b = patterns(32), patterns(32)
    joined = run("mov.b64 y, {x0, x1};", [a, b], 64)
    assert [int(z) for z in joined] == [int(x) | int(z) << 32 for x, z in zip(a, b)]
    assert run("mov.b64 {_, y}, x0;", [joined], 32).tolist() == b.tolist()
    assert run("mov.b32 y, 0f3F800000;", [a], 32).tolist() == [0x3F800000] * COUNT
    assert run("cvta.to.global.u64 y, x0;", [joined], 64).tolist() == joined.tolist()


# %rs15 is never written: x0 is the lower half of %r20, the upper half %r21 is undefined.
HALF = "mov.b32 %r20, {x0, %rs15}; mov.b32 {_, %rs14}, %r20; mov.b64 %rd18, {%r20, %r30}; "
LOWER = {
    "cvt.u16.u32 y, %r20;": lambda a, n: a,
    "mov.b32 {y, _}, %r20;": lambda a, n: a,
    "mov.b32 {%rs13, y}, %r20; mov.b16 y, x0;": lambda a, n: a,
    "and.b32 %r21, %r20, 65535; cvt.u16.u32 y, %r21;": lambda a, n: a,
    "not.b32 %r21, %r20; or.b32 %r21, %r21, -65536; cvt.u16.u32 y, %r21;": lambda a, n: ~a & 65535,
    "setp.lt.u32 %p1, %r30, 40; selp.b32 %r21, 7, %r20, %p1; cvt.u16.u32 y, %r21;": (
        lambda a, n: 7 if n < 40 else a
    ),
    "mov.b64 {%r21, %r22}, %rd18; cvt.u16.u32 y, %r22;": lambda a, n: n,
    "cvt.u32.u64 %r21, %rd18; cvt.u16.u32 %rs13, %r21; add.u16 y, %rs13, 1;": (
        lambda a, n: (a + 1) & 65535
    ),
    "neg.bf16x2 %r21, %r20; cvt.u16.u32 y, %r21;": lambda a, n: a ^ 0x8000,
    "add.s16x2 %r21, %r20, %r20; cvt.u16.u32 y, %r21;": lambda a, n: 2 * a & 65535,
}


@pytest.mark.parametrize("body", LOWER)
def test_an_undefined_half_may_be_packed(body, run):
    a = patterns(16)
    got = run(HALF + body, [a], 16)
    assert got.tolist() == [LOWER[body](int(x), n) for n, x in enumerate(a)]


TAKEN = (
    "st.shared.b32 [s], %r20;",
    "st.shared.v2.b32 [s], {7, %r20};",
    "ld.shared.b32 %r21, [%r20];",
    "ld.global.b32 %r21, [%rd18];",
    "cp.async.ca.shared.global [%r20], [%a1], 4;",
    "setp.eq.b16 %p1, %rs14, 0; @%p1 bra $END; $END:",
    "setp.lt.bf16x2 %p1|%p2, %r30, %r20; selp.b32 %r21, 1, 2, %p2; st.shared.b32 [%a8], %r21;",
    "and.b32 %r21, %r20, 131071; setp.eq.b32 %p1, %r21, 0; @!%p1 st.shared.b32 [%a8], %r0;",
    "or.b32 %r21, %r20, 65535; add.u32 %r22, %r21, 0; st.shared.b16 [%a8], %r22;",
    "not.b32 %r21, %r20; not.b32 %r22, %r21; st.shared.b32 [%a8], %r22;",
    "shfl.sync.bfly.b32 %r21, %r20, 1, 31, -1; st.shared.b32 [%a8], %r21;",
    "shfl.sync.idx.b32 %r21, %r30, %r20, 31, -1;",
    "xor.b32 %r21, %r20, %r20; st.shared.b32 [%a8], %r21;",
    "add.s16x2 %r21, %r20, %r20; st.shared.b32 [%a8], %r21;",
    "cvt.rn.bf16x2.f32 %r21, %r30, %r20; cvt.u16.u32 %rs13, %r21; st.shared.b16 [%a8], %rs13;",
    "cvt.rn.f16x2.e4m3x2 %r21, %rs15; st.shared.b32 [%a8], %r21;",
    "div.u32 %r21, %r30, %r20; st.global.u32 [%a2], %r21;",
    "cvt.u64.u32 %a8, %r20; ld.shared.b32 %r21, [%a8];",
    "st.global.b32 [%a2], %r20;",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [s], {%r20};",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r21, %r22, %r23, %r24}, "
    "{%r30, %r30, %r20, %r30}, {%r30, %r30}, {%r30, %r30, %r30, %r30};",
    "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
    "{%r20, %r21, %r22, %r23}, %rd0, %rd0, 1, 1, 1, 0, 0;",
    "setp.lt.u32 %p1, %r30, 95; @%p1 mov.b32 %r20, %r30; st.shared.b32 [%a8], %r20;",
)


@pytest.mark.parametrize("taken", TAKEN)
def test_use_of_undefined_bits_is_a_fault(taken):
    body = f"mov.b64 %a8, s; {taken} mov.b16 y, x0;"
    with pytest.raises(Fault, match="undefined bits"):
        run(HALF + body, [patterns(16)], 16, shared=SHARED)


def test_a_register_defined_later_is_defined(run):
    body = "mov.b16 %rs15, x0; mul.lo.u16 %rs14, %rs15, 3; add.u16 y, %rs14, 1;"
    a = patterns(16)
    assert run(HALF + body, [a], 16).tolist() == [(3 * int(x) + 1) & 65535 for x in a]


# Threads below 40 alone write %r20, by a guard or by a branch of their own.
PARTLY = (
    "setp.lt.u32 %p1, %r30, 40; @%p1 mov.b32 %r20, x0; ",
    "setp.lt.u32 %p1, %r30, 40; @!%p1 bra $JOIN; mov.b32 %r20, x0; $JOIN: ",
)


@pytest.mark.parametrize("partly", PARTLY)
@pytest.mark.parametrize(
    "body",
    [
        "mov.b32 y, 7; @%p1 add.u32 y, %r20, 0;",
        "add.u32 %r21, %r20, 0; selp.b32 y, %r21, 7, %p1;",
        "@!%p1 mov.b32 %r20, 7; mul.lo.u32 y, %r20, 1;",
    ],
)
def test_registers_may_be_read_by_the_threads_that_wrote_them(partly, body, run):
    a = patterns(32)
    assert run(partly + body, [a], 32).tolist() == [*a[:40].tolist(), *[7] * (COUNT - 40)]


@pytest.mark.parametrize("partly", PARTLY)
@pytest.mark.parametrize(
    "body",
    [
        "mov.b32 y, %r20;",
        "add.u32 y, %r20, 0;",
        "selp.b32 y, 7, %r20, %p1;",
        "setp.eq.u32 %p2, %r20, 0; mov.b32 y, 0; @%p2 mov.b32 y, 7;",
        "shfl.sync.idx.b32 y, %r20, 8, 31, -1;",
    ],
)
def test_a_register_is_undefined_in_threads_that_did_not_write_it(partly, body):
    with pytest.raises(Fault, match="undefined bits"):
        run(partly + body, [patterns(32)], 32)


def test_threads_diverge_and_reconverge(run):
    a = patterns(32)
    body = """setp.lt.u32 %p1, x0, 1000; @%p1 bra $SMALL; add.u32 y, x0, 5; bra.uni $END;
    $SMALL: mov.b32 %r20, 0; mov.b32 y, x0;
    $LOOP: setp.ge.u32 %p2, %r20, x0; @%p2 bra $END; add.u32 %r20, %r20, 1; add.u32 y, y, 2;
    bra $LOOP; $END: @!%p1 add.u32 y, y, 1;"""
    small = (a % 50).astype(np.uint32)
    mixed = np.where(np.arange(COUNT) % 2 == 0, small, a).astype(np.uint32)
    want = [3 * int(x) if x < 1000 else (int(x) + 6) % 2**32 for x in mixed]
    assert run(body, [mixed], 32).tolist() == want


def test_shuffle_waits_for_the_rest_of_the_warp(run):
    """Even lanes are back at the shuffle before odd ones, which stand behind it, are."""
    body = """mov.b32 y, x0; mov.b32 %r20, 0; and.b32 %r21, %r30, 1; setp.eq.u32 %p1, %r21, 0;
    $LOOP: shfl.sync.bfly.b32 %r22, y, 1, 31, -1; mad.lo.u32 y, %r22, 3, y;
    add.u32 %r20, %r20, 1; setp.eq.u32 %p2, %r20, 3; @%p2 bra $END; @%p1 bra $LOOP;
    add.u32 y, y, 1; bra $LOOP; $END:"""
    a = patterns(32)
    want = [int(x) for x in a]
    for n in range(3):
        want = [x + 3 * want[i ^ 1] + (i % 2 if n < 2 else 0) for i, x in enumerate(want)]
    assert run(body, [a], 32).tolist() == [x % 2**32 for x in want]


SHARED = ".shared .align 16 .b8 s[4096];"


def test_shared_memory_and_barriers():
    a = patterns(32)
    body = """mov.b32 %r20, s; mad.lo.s32 %r21, %r30, 4, %r20; st.shared.b32 [%r21], x0;
    bar.sync 0; sub.s32 %r22, 95, %r30; mad.lo.s32 %r23, %r22, 4, %r20; ld.shared.b32 y, [%r23];"""
    assert run(body, [a], 32, shared=SHARED).tolist() == a[::-1].tolist()
    with pytest.raises(Fault, match="race"):
        run(body.replace("bar.sync 0;", ""), [a], 32, shared=SHARED)


def test_a_write_after_a_read_is_a_race_too():
    body = """mov.b32 %r20, s; st.shared.b32 [%r20], 7; bar.sync 0;
    ld.shared.b32 y, [%r20]; setp.eq.s32 %p1, %r30, 40; @%p1 st.shared.b32 [%r20+4], x0; {}
    @%p1 st.shared.b32 [%r20], x0;"""
    a = patterns(32)
    run(body.format("bar.sync 0;"), [a], 32, shared=SHARED)
    with pytest.raises(Fault, match="race"):
        run(body.format(""), [a], 32, shared=SHARED)


def test_two_warps_that_write_one_place_race():
    with pytest.raises(Fault, match="race"):
        run("mov.b32 %r20, s; st.shared.b32 [%r20], x0; mov.b32 y, x0;", [patterns(32)], 32,
            shared=SHARED)  # fmt: skip


# Into which registers eight bytes are loaded and become one again: (text, what a lane then has).
LOADED = {
    "b64": ("ld.shared.b64 %rd18, [%r21];", lambda a: a),
    "v2.b32": ("ld.shared.v2.b32 {%r22, %r23}, [%r21]; mov.b64 %rd18, {%r22, %r23};", lambda a: a),
    "v4.b16": (
        """ld.shared.v4.b16 {%rs11, %rs12, %rs13, %rs14}, [%r21];
        mov.b64 %rd18, {%rs11, %rs12, %rs13, %rs14};""",
        lambda a: a,
    ),
    "exchanged": (
        """ld.shared.b32 %r22, [%r21]; ld.shared.b32 %r23, [%r21+4];
        shfl.sync.bfly.b32 %r22, %r22, 1, 31, -1; shfl.sync.bfly.b32 %r23, %r23, 1, 31, -1;
        mov.b64 %rd18, {%r22, %r23};""",
        lambda a: a.reshape(-1, 2)[:, ::-1].ravel(),
    ),
    "matrices": (
        """and.b32 %r24, %r30, -32; shl.b32 %r24, %r24, 3; and.b32 %r25, %r30, 15;
        mad.lo.u32 %r24, %r25, 16, %r24; add.u32 %r24, %r24, %r20;
        ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r22, %r23}, [%r24];
        mov.b64 %rd18, {%r22, %r23};""",
        lambda a: np.stack(a.view("u4").reshape(-1, 2, 32).swapaxes(0, 1), -1).view("u8").ravel(),
    ),
}
STORED = {
    1: "cvt.u32.u64 %r26, %rd17; st.shared.b8 [%r21+{n}], %r26;",
    2: "cvt.u16.u64 %rs15, %rd17; st.shared.b16 [%r21+{n}], %rs15;",
    4: "cvt.u32.u64 %r26, %rd17; st.shared.b32 [%r21+{n}], %r26;",
    8: "st.shared.b64 [%r21+{n}], %rd17;",
}


@given(st.sampled_from(sorted(LOADED)), st.sampled_from(sorted(STORED)), st.data())
def test_unwritten_shared_memory_is_tracked_by_byte(form, size, data):
    """Of eight bytes those may be used that were written, however they are loaded and moved."""
    written = data.draw(st.sets(st.sampled_from(range(0, 8, size))))
    used = data.draw(st.sets(st.sampled_from(range(8))))
    text, loaded = LOADED[form]
    stores = " ".join(f"shr.u64 %rd17, x0, {8 * n}; {STORED[size].format(n=n)}" for n in written)
    mask = sum(255 << 8 * n for n in used)
    body = f"""mov.b32 %r20, s; mad.lo.s32 %r21, %r30, 8, %r20; {stores} bar.sync 0; {text}
    and.b64 %rd18, %rd18, {mask}; add.u64 y, %rd18, 1;"""
    a, defined = patterns(64), np.zeros((COUNT, 8), np.uint8)
    for n in written:
        defined[:, n : n + size] = 255
    lacks = ~loaded(defined.view(np.uint64).ravel()) & np.uint64(mask)
    if lacks.any():
        with pytest.raises(Fault, match=r"^st.global.* undefined bits"):
            run(body, [a], 64, shared=SHARED)
    else:
        want = (loaded(a) & np.uint64(mask)) + np.uint64(1)
        assert run(body, [a], 64, shared=SHARED).tolist() == want.tolist()


@pytest.mark.parametrize(("kind", "holds"), [("u8", False), ("s8", True)])
def test_sign_extension_of_unwritten_memory_is_undefined(kind, holds):
    body = f"mov.b32 %r20, s; ld.shared.{kind} %r21, [%r20]; and.b32 %r21, %r21, -256; "
    if holds:
        with pytest.raises(Fault, match=r"^st.global.* undefined bits"):
            run(body + "add.u32 y, %r21, 0;", [patterns(32)], 32, shared=SHARED)
    else:
        got = run(body + "add.u32 y, %r21, 0;", [patterns(32)], 32, shared=SHARED)
        assert not got.any()


@pytest.mark.parametrize("writer", [0, 1])
def test_shared_memory_of_another_block_is_undefined(writer):
    body = f"""mov.u32 %r20, %ctaid.x; setp.eq.u32 %p1, %r20, {writer}; mov.b32 %r21, s;
    @%p1 st.shared.b32 [%r21], 7; bar.sync 0; mov.b32 y, 7; @%p1 ld.shared.b32 y, [%r21];
    mad.lo.u32 %r22, %r20, {COUNT}, %r30; cvt.u64.u32 %i1, %r22;"""
    text = kernel(body, [32], 32, shared=SHARED)
    found = Allocation(np.zeros(2 * COUNT, np.uint32), writable=True)
    buffers = [Allocation(patterns(32)), found]
    launch(parse(text), (2,), (COUNT,), buffers)
    assert set(found.array.tolist()) == {7}
    with pytest.raises(Fault, match=r"^st.global.* undefined bits"):
        launch(parse(text.replace("@%p1 ld", "@!%p1 ld")), (2,), (COUNT,), buffers)


# A lane has four bytes: of its thread in each warp the next, and one that all warps write.
BYTES = """and.b32 %r20, %r30, 31; shr.u32 %r21, %r30, 5; mov.b32 %r22, s;
    mad.lo.u32 %r22, %r20, 4, %r22; add.u32 %r23, %r22, %r21; add.u32 %r24, %r30, x0;
    st.shared.b8 [%r23], %r24; st.shared.b8 [%r22+3], %r20; ld.shared.u8 %r25, [%r23];
    bar.sync 0; ld.shared.b32 y, [%r22]; mad.lo.u32 y, %r25, 256, y;"""
BYTE_SLIPS = {
    "no barrier": ("bar.sync 0; ", ""),
    "bytes of two warps": ("%r22, %r21;", "%r22, 1;"),
    "all warps, but not the same": ("[%r22+3], %r20", "[%r22+3], %r30"),
    "words over bytes": ("st.shared.b8 [%r22+3]", "st.shared.b32 [%r22]"),
    "what another warp will write": ("ld.shared.u8 %r25, [%r23]", "ld.shared.u8 %r25, [%r22+1]"),
}


def test_warps_may_write_adjacent_bytes_and_equal_values(run):
    a = patterns(32)
    threads = np.arange(COUNT, dtype=np.uint32)
    byte = (a + threads) & 255
    words = [[*byte[n::32].tolist(), n] for n in range(32)]
    got = run(BYTES, [a], 32, shared=SHARED)
    for n, z in enumerate(got):
        word = sum(b << 8 * i for i, b in enumerate(words[n % 32]))
        assert int(z) == (word + int(byte[n]) * 256) % 2**32


@pytest.mark.parametrize("name", BYTE_SLIPS)
def test_bytes_race(name):
    right, wrong = BYTE_SLIPS[name]
    assert right in BYTES
    with pytest.raises(Fault, match="race"):
        run(BYTES.replace(right, wrong), [patterns(32)], 32, shared=SHARED)


def test_vectors(run):
    a = patterns(32)
    body = """mov.b32 %r20, s; shl.b32 %r21, %r30, 4; add.s32 %r21, %r21, %r20;
    st.shared.v4.b32 [%r21], {x0, 7, x0, %r30}; ld.shared.v2.b32 {%r22, %r23}, [%r21+8];
    sub.u32 %r22, %r22, x0; add.u32 y, %r22, %r23;"""
    assert run(body, [a], 32, shared=SHARED).tolist() == list(range(COUNT))


MODES = {"bfly": lambda lane, by: lane ^ by, "idx": lambda lane, by: by}


@pytest.mark.parametrize("mode", MODES)
def test_shuffles(mode, run):
    a, by = patterns(32), RNG.integers(0, 1 << 32, COUNT).astype(np.uint32)
    got = run(f"shfl.sync.{mode}.b32 y, x0, x1, 31, -1;", [a, by], 32)
    want = [a[i // 32 * 32 + MODES[mode](i % 32, int(by[i]) % 32)] for i in range(COUNT)]
    assert got.tolist() == want


@pytest.mark.parametrize("mask", ["65535", "x0"])
def test_a_shuffle_of_threads_that_are_not_in_its_mask_is_refused(mask):
    with pytest.raises(Fault, match="a thread is not in its mask"):
        run(f"shfl.sync.bfly.b32 y, x0, 1, 31, {mask};", [patterns(32)], 32)


def test_a_shuffle_needs_all_threads_of_its_mask():
    body = (
        "mov.u32 %r20, %laneid; setp.eq.s32 %p1, %r20, 3; @%p1 shfl.sync.bfly.b32 y, x0, 1, 31, -1;"
    )
    with pytest.raises(Fault, match="threads of its mask are missing"):
        run(body, [patterns(32)], 32)


REFUSED = (
    "div.rz.f32 %r9, %r0, %r0;",
    "add.sat.s32 %r9, %r0, %r0;",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0], 16, [%r0];",
    "setp.lo.f32 %p9, %r0, %r0;",
    "mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%r0}, {%r0}, {%r0}, {%r0};",
    "fence.proxy.tensormap::generic.release.gpu;",
    "red.global.nand.b32 [%a1], %r0;",
    "shfl.sync.around.b32 %r9, %r0, 1, 0, -1;",
)


@pytest.mark.parametrize("text", REFUSED)
def test_an_unknown_instruction_is_refused(text):
    with pytest.raises(Fault, match="unknown instruction"):
        run(text, [patterns(32)], 32)


def test_warps_take_different_branches(run):
    body = """mov.b32 y, x0; setp.lt.s32 %p1, %r30, 32; @%p1 bra.uni $E; add.s32 y, y, 1;
    $E: setp.lt.s32 %p2, %r30, 64; @%p2 bra.uni $F; add.s32 y, y, 1; $F:"""
    a = np.arange(COUNT, dtype=np.uint32)
    assert run(body, [a], 32).tolist() == [n + (n >= 32) + (n >= 64) for n in range(COUNT)]


MISUSED = {
    "ld.global.b32 y, [%a1+100000];": "outside of every allocation",
    "mov.b64 %a5, 0; ld.global.b32 y, [%a5];": "outside of every allocation",
    "mov.b64 %a5, -64; st.global.b32 [%a5], x0; mov.b32 y, x0;": "outside of every allocation",
    "add.s64 %a5, %a1, 2; ld.global.b32 y, [%a5];": "not a multiple of 4",
    "ld.global.v4.b32 {y, %r10, %r11, %r12}, [%a2];": "not a multiple of 16",
    "st.global.b32 [%a2], x0; mov.b32 y, x0;": "writes to an operand",
    "mov.b32 %r20, 4096; ld.shared.b32 y, [%r20];": "outside of shared memory",
    "mov.b32 y, %r25;": "undefined bits",
    "mov.b32 %q1, x0; mov.b32 y, x0;": "not declared",
    "mov.b64 y, %i1;": "not 64 bits wide",
    "mov.b32 y, x0; bar.sync 16;": "no such barrier",
    "mov.b32 y, x0; bar.sync 1, 50;": "not whole warps",
    "mov.b32 y, x0; $L: bra $L;": "does not end",
    "mov.b32 y, x0; setp.eq.s32 %p1, %r30, 3; @%p1 bra.uni $E; $E:": "threads disagree",
    """mov.b32 y, x0; setp.eq.s32 %p1, %r30, 3; @%p1 bra $A; bar.sync 0; bra $E; $A: bar.sync 0;
    $E:""": "different barriers",
    "mov.b32 y, x0; shr.u32 %r20, %r30, 5; bar.sync %r20;": "deadlock",
    "mov.b32 y, x0; bar.sync 1, 128;": r"deadlock, .*; bar.sync 1, 128: warps \[0, 1, 2\]",
}


@pytest.mark.parametrize(("body", "reason"), MISUSED.items())
def test_undefined_behaviour_is_a_fault(body, reason, monkeypatch):
    monkeypatch.setattr("convref_ptx.state.machine.MAX_STEPS", 500)
    with pytest.raises(Fault, match=reason):
        run(body, [patterns(32)], 32, shared=SHARED)


def test_two_threads_may_not_write_one_place():
    out = np.zeros(1, np.uint32)
    text = """.visible .entry f(.param .u64 f_0) { .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.b64 %rd1, [f_0]; mov.u32 %r1, %ctaid.x; st.global.b32 [%rd1], %r1; ret; }"""
    launch(parse(text), (1,), (1,), [Allocation(out, writable=True)])
    with pytest.raises(Fault, match=r"two threads write|another thread wrote"):
        launch(parse(text), (2,), (1,), [Allocation(out, writable=True)])
    same = text.replace("[%rd1], %r1", "[%rd1], 7")
    launch(parse(same), (2,), (1,), [Allocation(out, writable=True)])
    assert out.tolist() == [7]


# What thread 0 does in global memory, and what no other thread may do there.
PAIRS = {
    "a byte of a word": ("st.global.b32 [%rd1], -1;", "st.global.b8 [%rd1+3], 7;"),
    "a word of four": ("st.global.v4.b32 [%rd1], {1, 2, 3, 4};", "st.global.b32 [%rd1+8], 7;"),
    "half of a word is read": ("st.global.b32 [%rd1], 1;", "ld.global.u16 %r2, [%rd1+2];"),
    "a word around a byte is read": ("st.global.b8 [%rd1+5], 7;", "ld.global.b32 %r2, [%rd1+4];"),
    "of what is read a byte is written": (
        "ld.global.v2.b32 {%r3, %r2}, [%rd1];",
        "st.global.b8 [%rd1+7], 7;",
    ),
}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("name", PAIRS)
def test_accesses_of_two_warps_race_by_the_byte(name, order):
    first, second = PAIRS[name][::order]
    reader = {"ld" in first: 1, "ld" in second: 2}.get(True)
    used = f"@%p{reader} st.global.b32 [%rd1+12], %r2;" if reader else ""
    text = f""".visible .entry f(.param .u64 f_0) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>;
    .reg .pred %p<9>; ld.param.b64 %rd1, [f_0]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0;
    setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, OTHER;
    @%p1 {first} @%p2 {second} {used} ret; }}"""

    def execute(other):
        out = Allocation(np.zeros(16, np.uint8), writable=True)
        launch(parse(text.replace("OTHER", str(other))), (1,), (64,), [out])

    execute(0)
    with pytest.raises(Fault, match=r"race, .*another thread"):
        execute(40)


READ_AND_WRITE = """.visible .entry f(.param .u64 f_0) { .reg .b32 %r<9>; .reg .b64 %rd<9>;
    .reg .pred %p<9>; ld.param.b64 %rd1, [f_0]; mov.u32 %r1, %tid.x;
    ld.global.b32 %r2, [%rd1]; add.s32 %r2, %r2, 1; BARRIER
    setp.eq.u32 %p1, %r1, 0; @%p1 st.global.b32 [%rd1], %r2;
    setp.eq.u32 %p2, %r1, READER; @%p2 st.global.b32 [%rd1+4], %r2; ret; }"""


@pytest.mark.parametrize(
    ("barrier", "reader", "races"), [("", 40, True), ("bar.sync 0;", 40, False), ("", 5, False)]
)
def test_value_of_a_racing_read_is_undefined_where_it_is_used(barrier, reader, races):
    """Every warp reads the word that warp 0 writes; only the thread `reader` uses what it read."""
    out = np.array([4, 0], np.uint32)
    text = READ_AND_WRITE.replace("BARRIER", barrier).replace("READER", str(reader))
    if races:
        both = r"writes what another thread read .*, read by ld\.global.*; used by @%p2 st\.global"
        with pytest.raises(Fault, match=both):
            launch(parse(text), (1,), (64,), [Allocation(out, writable=True)])
        return
    launch(parse(text), (1,), (64,), [Allocation(out, writable=True)])
    assert out.tolist() == [5, 5]


def test_arguments_and_threads_must_fit_the_entry():
    text = ".visible .entry f(.param .u64 f_0, .param .b32 f_1) .maxntid 32 { ret; }"
    buffer = Allocation(np.zeros(1))
    launch(parse(text), (1,), (32,), [buffer, b"1234"])
    with pytest.raises(Fault, match=r"got arguments of \[8\] bytes, needs \[8, 4\]"):
        launch(parse(text), (1,), (32,), [buffer])
    with pytest.raises(Fault, match="64 threads, at most 32"):
        launch(parse(text), (1,), (64,), [buffer, b"1234"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".visible .entry f(.param .v2 .f32 f_0) { ret; }",
        ".visible .entry f() { .const .align 4 .b8 x[4]; }",
        ".visible .entry f() { .shared .b8 x; }",
        ".visible .entry f() { .reg .f128 %q<3>; }",
        ".visible .entry f() { mov.b32 %r1, a b; }",
    ],
)
def test_text_of_another_form_is_refused(text):
    with pytest.raises(Fault):
        parse(text)


def test_a_record_of_another_ptx_confirms_nothing(execute, records):
    name, today, current = records
    a = patterns(32)
    run("add.u32 y, x0, x0;", [a], 32, execute=execute)
    one = today[name]
    run("add.u32 y, x0, 1;", [a], 32, execute=execute)
    both = today[name]
    assert one != both
    assert current({name: [both, "results"]}, today) == {name: [both, "results"]}
    assert current({name: [one, "results"]}, today) == {}
    assert current({"another": [one, "results"]}, today) != {}, "it has not run, its PTX may be it"


def test_ptxas_assembles_every_body(assemble):
    assert "error" not in assemble()


def test_every_row_of_the_table_is_tested_here(request):
    """The opcodes in these files' sources reach every pattern of the interpreter's table."""
    source = "".join(path.read_text("utf-8") for path in request.path.parent.glob("*.py"))
    for pattern, _, _ in _TABLE:
        text = pattern.pattern.replace("\\", "")
        stem = re.match(r"[a-z_.:]*", text)[0].rpartition(".")[0]
        names = [stem] if stem else re.findall(r"[a-z]{2,}", text.split(".")[0])
        assert any(name in source for name in names), text


def test_a_decoded_opcode_is_found_once():
    program = parse(".visible .entry f() { .reg .b32 %r<3>; add.s32 %r1, %r1, %r2; ret; }")
    assert decoded(program.code[0].op) is decoded(program.code[0].op)
