"""Conversions and approximations, against exact tables of the types and Python's integers."""

from fractions import Fraction

import numpy as np
import pytest
from micro import COUNT, RNG, floats, patterns, run

# Values of a type by its pattern; of infinity the value that it would have, for rounding.
F16 = {int(n): Fraction(float(np.uint16(n).view(np.float16))) for n in range(0x7C00)}
F16[0x7C00] = Fraction(65536)
BF16 = {n: Fraction(float(np.uint32(n << 16).view(np.float32))) for n in range(0x7F80)}
BF16[0x7F80] = Fraction(2) ** 128


def nearest(value, table, codes):
    """Return the code nearest to a positive number, of two the even one."""
    low, high = 0, len(codes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if table[codes[middle]] <= value else (low, middle)
    if value >= table[codes[high]]:
        return codes[high]
    below, above = value - table[codes[low]], table[codes[high]] - value
    if below != above:
        return codes[low if below < above else high]
    return codes[low] if codes[low] % 2 == 0 else codes[high]


def wide(bits):
    """Return finite numbers, midpoints of 16-bit numbers and their neighbours among them."""
    kind = np.dtype(f"f{bits // 8}")
    halves = RNG.integers(0, 0x7C00, COUNT // 3).astype(np.uint16).view(np.float16)
    ties = halves.astype(kind) + np.spacing(halves).astype(kind) / 2
    near = np.nextafter(ties, kind.type(0))
    found = np.concatenate([ties, near, RNG.standard_normal(COUNT - 2 * len(ties)).astype(kind)])
    return (found * RNG.choice([-1, 1], COUNT)).astype(kind).view(f"u{bits // 8}")


@pytest.mark.parametrize("from_", [32, 64])
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_floats_round_to_16_bits(to, from_):
    a, table = wide(from_), {"f16": F16, "bf16": BF16}[to]
    got, codes = run(f"cvt.rn.{to}.f{from_} y, x0;", [a], 16), list(table)
    for bits, code in zip(a, got):
        value = float(bits.view(f"f{from_ // 8}"))
        assert int(code) == nearest(abs(Fraction(value)), table, codes) | (value < 0) << 15


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_floats_round_toward_zero(to):
    a, table = wide(32), {"f16": F16, "bf16": BF16}[to]
    got = run(f"cvt.rz.{to}x2.f32 y, x0, x1;", [a, a[::-1].copy()], 32)
    for upper, lower, word in zip(a, a[::-1], got):
        for bits, code in ((upper, int(word) >> 16), (lower, int(word) & 0xFFFF)):
            value = float(bits.view("f4"))
            size = abs(Fraction(value))
            assert code >> 15 == (value < 0)
            assert table[code & 0x7FFF] <= size < table[(code & 0x7FFF) + 1]


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_floats_become_integers_within_the_type(kind, mode):
    rounded = {"rni": round, "rzi": int, "rmi": lambda x: x // 1, "rpi": lambda x: -(-x // 1)}[mode]
    bits, a = int(kind[1:]), floats(64)
    got = run(f"cvt.{mode}.{kind}.f64 y, x0;", [a], max(16, bits))
    low = -(1 << bits - 1) if kind[0] == "s" else 0
    high = low + (1 << bits) - 1
    for x, y in zip(a.view(np.float64), got):
        whole = 0 if np.isnan(x) else high if x == np.inf else low if x == -np.inf else None
        whole = int(rounded(Fraction(float(x)))) if whole is None else whole
        assert int(y) == min(high, max(low, whole)) % (1 << max(16, bits))


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_floats_round_to_whole_floats(mode):
    a = floats(32)
    got = run(f"cvt.{mode}.f32.f32 y, x0;", [a], 32).view("f4")
    function = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
    assert np.array_equal(got, function(a.view("f4")), equal_nan=True)


def test_clamped_conversions():
    a = floats(32)
    got = run("cvt.sat.f32.f32 y, x0;", [a], 32).view("f4")
    assert np.array_equal(got, np.clip(np.nan_to_num(a.view("f4"), nan=0), 0, 1))
    got = run("cvt.rn.relu.f16.f32 y, x0;", [wide(32)], 16)
    assert (got < 0x7C01).all()


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_integers_become_16_bits(kind, to):
    bits = int(kind[1:])
    a = (patterns(bits) % (1 << 12)).astype(f"u{bits // 8}")
    table, codes = {"f16": (F16, list(F16)), "bf16": (BF16, list(BF16))}[to]
    got = run(f"cvt.rn.{to}.{kind} y, x0;", [a], 16)
    assert [int(n) for n in got] == [nearest(Fraction(int(n)), table, codes) for n in a]


SMALL = {"e4m3": (4, 3, 7, 0x7E), "e5m2": (5, 2, 15, 0x7B)}  # exponent, fraction, bias, largest


def small(kind):
    _, bits, bias, top = SMALL[kind]
    scale = Fraction(1, 1 << bits)

    def value(code):
        exponent, fraction = code >> bits, code & (1 << bits) - 1
        if exponent == 0:
            return Fraction(2) ** (1 - bias) * fraction * scale
        return Fraction(2) ** (exponent - bias) * (1 + fraction * scale)

    return {code: value(code) for code in range(top + 1)}


@pytest.mark.parametrize("kind", SMALL)
def test_8_bit_floats(kind):
    table = small(kind)
    codes = list(table)
    a = (RNG.standard_normal(COUNT) * 2.0 ** RNG.integers(-18, 18, COUNT)).astype(np.float32)
    a[: len(codes) // 2] = [float(table[c] + table[c + 1]) / 2 for c in codes[: len(codes) // 2]]
    got = run(
        f"cvt.rn.satfinite.{kind}x2.f32 y, x0, x1;", [a.view("u4"), a[::-1].copy().view("u4")], 16
    )
    for upper, lower, word in zip(a, a[::-1], got):
        for value, code in ((upper, int(word) >> 8), (lower, int(word) & 0xFF)):
            want = nearest(abs(Fraction(float(value))), table, codes)
            assert code == want | bool(np.signbit(value)) << 7
    pairs = np.array([2 * n | (2 * n + 1) << 8 for n in range(128)][:COUNT], np.uint16)
    back = run(f"cvt.rn.f16x2.{kind}x2 y, x0;", [pairs], 32)
    for pair, word in zip(pairs, back):
        for code, half in (
            (int(pair) & 255, int(word) & 0xFFFF),
            (int(pair) >> 8, int(word) >> 16),
        ):
            if code & 127 in table:
                value = np.uint16(half).view(np.float16)
                assert Fraction(float(value)) == table[code & 127] * (-1 if code >> 7 else 1)


APPROXIMATED = {
    "lg2": np.log2,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", APPROXIMATED)
def test_approximations_are_within_two_units(name):
    a = abs(RNG.standard_normal(COUNT)).astype(np.float32)
    for ftz in ("", ".ftz") if name != "tanh" else ("",):
        got = run(f"{name}.approx{ftz}.f32 y, x0;", [a.view("u4")], 32).view("f4")
        exact = APPROXIMATED[name](a.astype(np.float64))
        assert (abs(got - exact) <= abs(exact) * 2.0**-22).all()


@pytest.mark.parametrize("name", ["ex2", "tanh"])
def test_approximations_of_16_bits(name):
    halves = RNG.standard_normal(2 * COUNT).astype(np.float16)
    got = run(f"{name}.approx.f16x2 y, x0;", [halves.view("u4")], 32).view(np.float16)
    exact = {"ex2": np.exp2, "tanh": np.tanh}[name](halves.astype(np.float64))
    assert (abs(got - exact) <= abs(exact) * 2.0**-10).all()
    one = run(f"{name}.approx.f16 y, x0;", [halves[:COUNT].view("u2")], 16).view(np.float16)
    assert (one == got[:COUNT]).all()


BITS = {
    "popc.b32": (32, lambda n: n.bit_count()),
    "clz.b32": (32, lambda n: 32 - n.bit_length()),
    "popc.b64": (64, lambda n: n.bit_count()),
    "clz.b64": (64, lambda n: 64 - n.bit_length()),
    "brev.b32": (32, lambda n: int(f"{n:032b}"[::-1], 2)),
}


@pytest.mark.parametrize("name", BITS)
def test_counts_and_reversal_of_bits(name):
    bits, function = BITS[name]
    a = patterns(bits)
    assert run(f"{name} y, x0;", [a], 32).tolist() == [function(int(n)) for n in a]


def test_logic_of_three():
    a, b, c = patterns(32), patterns(32), patterns(32)
    assert run("lop3.b32 y, x0, x1, x2, 0x96;", [a, b, c], 32).tolist() == (a ^ b ^ c).tolist()
    got = run("lop3.b32 y, x0, x1, x2, 0xCA;", [a, b, c], 32)
    assert got.tolist() == (a & b | ~a & c).tolist()


def test_insertion_of_bits():
    a, b = patterns(32), patterns(32)
    got = run("bfi.b32 y, x0, x1, 5, 11;", [a, b], 32)
    mask = 0x7FF << 5
    assert got.tolist() == [int(y) & ~mask | int(x) << 5 & mask for x, y in zip(a, b)]


@pytest.mark.parametrize("kind", ["s64", "u64"])
def test_high_products_of_64_bits(kind):
    a, b = patterns(64), patterns(64)
    typed = (a.view("i8"), b.view("i8")) if kind == "s64" else (a, b)
    got = run(f"mul.hi.{kind} y, x0, x1;", [a, b], 64)
    want = [int(x) * int(y) >> 64 for x, y in zip(*typed)]
    assert got.tolist() == [n % (1 << 64) for n in want]


def test_signs():
    a = floats(32)
    sizes = run("abs.f32 y, x0;", [a], 32)
    assert sizes.tolist() == (a & 0x7FFFFFFF).tolist()
    assert (
        run("copysign.f32 y, x0, x1;", [a, sizes], 32).tolist()
        == ((sizes & 0x7FFFFFFF) | (a & 0x80000000)).tolist()
    )
    halves = run("neg.bf16x2 y, x0;", [a], 32)
    assert halves.tolist() == (a ^ 0x80008000).tolist()
    assert run("abs.f16x2 y, x0;", [a], 32).tolist() == (a & 0x7FFF7FFF).tolist()
    numbers = patterns(32)
    sizes = run("abs.s32 y, x0;", [numbers], 32)
    assert sizes.tolist() == [abs(int(n)) for n in numbers.view("i4")]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "min", "max", "div.full", "neg"])
def test_flushed_operations(name):
    """Subnormal operands and results are zeros of their sign."""
    tiny = np.float32(1e-39)
    a = np.full(COUNT, tiny, np.float32)
    a[::2] = 3
    two = f"{name}.ftz.f32 y, x0, x1;" if name != "neg" else "neg.ftz.f32 y, x0;"
    b = np.full(COUNT, 2, np.float32)
    got = run(two, [a.view("u4"), b.view("u4")][: 1 + (name != "neg")], 32).view("f4")
    zeroed = np.where(a == tiny, np.float32(0), a)
    function = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum,
        "max": np.maximum, "div.full": np.divide, "neg": lambda x, _: -x,
    }[name]  # fmt: skip
    assert got.tolist() == function(zeroed, b).tolist()
