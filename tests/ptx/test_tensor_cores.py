"""Sums of tensor cores: fragments of each type, and models of cards against sums of fractions.

With CONVREF_TENSOR_CORES, the folder `model_validation` of MATLAB-tensor-core (github.com/
north-numerical-computing, the code of arXiv 2512.07004), also against what seven cards computed.
"""

import os
from fractions import Fraction
from itertools import product
from math import frexp, inf, isfinite, isnan, nan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from convref.errors import ConvrefError
from convref_driver import Manifest
from convref_ptx import Allocation, Fault, launch, parse
from convref_ptx.launches import run
from convref_ptx.tensor_cores.sums import model_of, summed

RNG = np.random.default_rng(0)
# Bits of exponent and fraction.
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 10), "e4m3": (4, 3), "e5m2": (5, 2)}
SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1, "f64": 8}
SUMS = {"f16": "f2", "f32": "f4", "f64": "f8", "s32": "i4"}


def value(code, kind):
    """Return the number that a pattern of a type stands for."""
    wide, bits = FORMATS[kind]
    exponent, fraction = code >> bits & (1 << wide) - 1, code & (1 << bits) - 1
    last, sign = exponent == (1 << wide) - 1, 1 - 2 * (code >> wide + bits & 1)
    if last and (kind != "e4m3" or fraction == 7):
        return nan if fraction else sign * inf
    normal = exponent > 0
    scale = Fraction(2) ** (exponent - normal + 2 - (1 << wide - 1) - bits)
    return float(sign * (fraction + (normal << bits)) * scale)


# What is summed at once, by fractions.


def exponent_of(x):
    """Return the exponent of a Fraction other than zero."""
    n, d = abs(x.numerator), x.denominator
    e = n.bit_length() - d.bit_length()
    return e if n >= d * Fraction(2) ** e else e - 1


def rounded(x, to, kept):
    if x == 0:
        return 0.0
    bits, least, top = (kept, -126, 128) if to == "f32" else (10, -14, 16)
    unit = Fraction(2) ** (max(exponent_of(x), least) - bits)
    found = unit * (int(x / unit) if to == "f32" else round(x / unit))
    return float(found) if abs(found) < 2**top else inf if x > 0 else -inf


def added(pairs, c, least, to, model):
    """Return c plus products, each cut to a multiple of a unit."""
    if not all(map(isfinite, [c, *(n for pair in pairs for n in pair)])):
        return float(np.float64(c) + sum(np.float64(x) * y for x, y in pairs))
    terms = [(Fraction(c), exponent_of(Fraction(c)))] if c else []
    for x, y in pairs:
        if x and y:
            ends = [max(frexp(n)[1] - 1, low) for n, low in zip((x, y), least)]
            terms.append((Fraction(x) * Fraction(y), sum(ends)))
    unit = Fraction(2) ** (max([model.least, *(e for _, e in terms)]) - model.bits)
    return rounded(sum(int(x / unit) for x, _ in terms) * unit, to, model.kept)


def on_card(a, b, c, kinds, to, model):
    """Return c plus the sum of products of two rows."""
    least = [2 - (1 << FORMATS[kind][0] - 1) for kind in kinds]
    pairs = list(zip(a, b))
    if model.split:
        total = 0.0
        for n in (0, 2):
            part = [pair for k, pair in enumerate(pairs) if k % 4 in (n, n + 1)]
            total = added(part, total, least, to, model)
        return float(np.dtype(SUMS[to]).type(total) + np.dtype(SUMS[to]).type(c))
    for first in range(0, len(pairs), model.terms):
        c = added(pairs[first : first + model.terms], c, least, to, model)
    return c


CARDS = [
    (arch, False, kind, to)
    for arch in (80, 89, 90, 100, 120)
    for kind, to in product(FORMATS, ("f32", "f16"))
    if to == "f32" or kind not in ("bf16", "tf32")
    if arch >= 89 or kind not in ("e4m3", "e5m2")
]
CARDS += [(90, True, kind, to) for kind, to in product(("e4m3", "e5m2"), ("f32", "f16"))]


def numbers(kind, shape):
    """Return numbers of a type: half of them near each other, the others small or any pattern."""
    wide, bits = FORMATS[kind]
    middle, whole = 1 << wide - 1, 1 << 1 + wide + bits
    sign, f = RNG.integers(0, 2, shape), RNG.integers(0, 1 << bits, shape)
    e = RNG.integers(middle - 5, middle + 5, shape)
    near = sign << wide + bits | e << bits | f
    small, any_ = RNG.integers(0, (3 << bits) + 1, shape), RNG.integers(0, whole, shape)
    code = np.choose(RNG.integers(0, 4, shape), [near, near, small, any_])
    return np.vectorize(lambda n: value(int(n), kind), otypes=[float])(code)


def accumulators(to, shape):
    """Return numbers of the type that sums have: near the products, any pattern, or special."""
    dtype = np.dtype(SUMS[to])
    near = (RNG.standard_normal(shape) * 2.0 ** RNG.integers(-12, 12, shape)).astype(dtype)
    any_ = RNG.integers(0, 1 << 8 * dtype.itemsize, shape).astype(f"u{dtype.itemsize}").view(dtype)
    ends = np.finfo(dtype)
    special = np.array(
        [0.0, -0.0, inf, -inf, nan, ends.max, -ends.max, ends.smallest_subnormal], dtype
    )
    return np.choose(RNG.integers(0, 3, shape), [near, any_, RNG.choice(special, shape)])


@pytest.mark.parametrize("card", CARDS, ids=lambda card: "-".join(map(str, card)))
def test_models_equal_sums_of_fractions(card):
    _, _, kind, to = card
    model, depth, tiles = model_of(*card), 32 // SIZES[kind], settings().max_examples
    a, b = numbers(kind, (tiles, 2, depth)), numbers(kind, (tiles, depth, 2))
    c = accumulators(to, (tiles, 2, 2))
    with np.errstate(all="ignore"):
        found = summed(a, b, c, (kind, kind), to, model)
        for n, row, column in np.ndindex(*c.shape):
            terms = a[n, row].tolist(), b[n, :, column].tolist(), float(c[n, row, column])
            want, got = on_card(*terms, (kind, kind), to, model), found[n, row, column]
            assert isnan(got) if isnan(want) else got == want, terms
            assert not isnan(want) or got.tobytes() == b"\xff" * (got.nbytes - 1) + b"\x7f", terms


def test_large_tiles_are_summed_in_parts():
    a, b = RNG.standard_normal((3, 64, 16)), RNG.standard_normal((3, 16, 256))
    a, b = (x.astype("f2").astype("f8") for x in (a, b))
    c = RNG.standard_normal((3, 64, 256)).astype("f4")
    model = model_of(90, True, "f16", "f32")
    found = summed(a, b, c, ("f16", "f16"), "f32", model)
    for n, row, column in RNG.integers(0, (3, 64, 256), (50, 3)):
        operands = a[n, row].tolist(), b[n, :, column].tolist(), float(c[n, row, column])
        assert found[n, row, column] == on_card(*operands, ("f16", "f16"), "f32", model)


# Facts that are published: (arch, wgmma, kind, sums), c, products, result.
F32 = "f16", "f32"
FACTS = {
    "Ampere keeps 24 bits": ((80, False, *F32), 1.0, [2**-24] * 2, 1 + 2**-23),
    "Ampere cuts the 25th": ((80, False, *F32), 1.0, [2**-25] * 8, 1.0),
    "Hopper keeps 25 bits": ((90, True, *F32), 1.0, [2**-25] * 4, 1 + 2**-23),
    "Hopper cuts the 26th": ((90, True, *F32), 1.0, [2**-26] * 16, 1.0),
    "Blackwell keeps 25 bits": ((100, False, *F32), 1.0, [2**-25] * 4, 1 + 2**-23),
    "a result is truncated": ((90, True, *F32), 1.0, [3 * 2**-25], 1.0),
    "a negative one too": ((90, True, *F32), -1.0, [-3 * 2**-25], -1.0),
    "a float16 is rounded": ((90, True, "f16", "f16"), 1.0, [3 * 2**-12], 1 + 2**-10),
    "Ampere adds eight products at once": (
        (80, False, *F32), 0.0, [1.0, -1.0, *[2**-25] * 14], 8 * 2**-25),
    "Hopper adds sixteen": ((90, False, *F32), 0.0, [1.0, *[2**-26] * 14, -1.0], 0.0),
    "of tf32 Ampere adds four": (
        (80, False, "tf32", "f32"), 0.0, [1.0, 2**-25, 2**-25, -1.0, *[2**-25] * 4], 4 * 2**-25),
    "Hopper keeps 13 bits of fp8": ((90, True, "e4m3", "f32"), 1.0, [2**-13], 1 + 2**-13),
    "Hopper cuts the 14th of fp8": ((90, True, "e4m3", "f32"), 1.0, [2**-14] * 32, 1.0),
    "but not of mma.sync": ((90, False, "e4m3", "f32"), 1.0, [2**-14] * 32, 1 + 2**-9),
    "Hopper aligns to 2^-133 at least": (
        (90, True, "bf16", "f32"), 0.0, [2.0**-149, -(2.0**-160)], 2.0**-149),
    "of float16 to 2^-21": ((90, True, "f16", "f16"), 0.0, [2**-25, 2**-47], 0.0),
    "and keeps 2^-46": ((90, True, "f16", "f16"), 0.0, [2**-25, 2**-45], 2**-24),
    "Ampere aligns to 2^-20": ((80, False, "f16", "f16"), 0.0, [2**-25, 2**-45], 0.0),
    "fp8 products that cancel": ((89, False, "e5m2", "f32"), 0.0, [1.0, 2**-14, -1.0], 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTS)
def test_published_facts(name):
    card, c, products, want = FACTS[name]
    a, b = np.zeros((2, 1, 32 // SIZES[card[2]]))
    for k, x in enumerate(products):
        small = frexp(x)[1] // 2
        a[0, k], b[0, k] = 2.0**small, x / 2.0**small
    kinds = card[2], card[2]
    sums = np.full((1, 1, 1), c, SUMS[card[3]])
    assert summed(a[None], b[..., None], sums, kinds, card[3], model_of(*card)) == want


# Fragments: (sums, factors, depth), after the tables of the manual.
FORMS = [
    ("f32", "bf16", "bf16", 8), ("f32", "tf32", "tf32", 4), ("f16", "f16", "f16", 16),
    ("f16", "f16", "f16", 8), ("f32", "e4m3", "e5m2", 32), ("f32", "e5m2", "e4m3", 16),
    ("f16", "e5m2", "e5m2", 32), ("s32", "s8", "u8", 32), ("s32", "u8", "s8", 16),
    ("f64", "f64", "f64", 4),
]  # fmt: skip


def patterns(values, kind):
    """Return numbers as patterns of a type that represents them."""
    if kind in ("s8", "u8", "f16", "f64"):
        return values.astype({"s8": "i1", "u8": "u1", "f16": "f2", "f64": "f8"}[kind])
    wide = values.astype(np.float32).view(np.uint32)
    if kind in ("bf16", "tf32"):
        return (wide >> 16).astype(np.uint16) if kind == "bf16" else wide
    codes = {value(code, kind): code for code in range(256)}
    return np.array([codes[x] for x in values.ravel().tolist()], "u1").reshape(values.shape)


def of_form(form, a, b, c):
    """Return (text, buffers) of a product of one warp, of matrices of patterns."""
    to, kind, other, depth = form
    rows, width = len(a), 64 if to == "f64" else 32
    each, many = width // 8 // SIZES[kind], rows // 8
    left, right, sums = ([[] for _ in range(32)] for _ in range(3))
    for lane in range(32):
        g, t = divmod(lane, 4)
        for k, part in product(range(t * each, depth, 4 * each), range(many)):
            left[lane].append(a[g + 8 * part, k : k + each])
        for k in range(t * each, depth, 4 * each):
            right[lane].append(b[g, k : k + each])
        for part in range(many):
            sums[lane].append(c[g + 8 * part, 2 * t : 2 * t + 2])
    made = [np.array(x).reshape(32, -1).view(f"u{width // 8}") for x in (left, right, sums)]
    names, loads = [], ""
    for n, words in enumerate(made):
        own = [f"%q{10 * n + i}" for i in range(words.shape[1])]
        names.append("{" + ", ".join(own) + "}")
        loads += f"mad.wide.u32 %rd9, %r0, {words[0].nbytes}, %rd{n};"
        loads += "".join(
            f"ld.global.b{width} {x}, [%rd9+{width // 8 * i}];" for i, x in enumerate(own)
        )
    kinds = f"{to}.{kind}.{other}.{to}"
    stores = "".join(
        f"st.global.b{width} [%rd9+{width // 8 * i}], {x};"
        for i, x in enumerate(names[2][1:-1].split(", "))
    )
    text = f""".visible .entry f(.param .u64 f_0, .param .u64 f_1, .param .u64 f_2) {{
    .reg .b32 %r<9>; .reg .b64 %rd<19>; .reg .b{width} %q<40>;
    mov.u32 %r0, %tid.x; {"".join(f"ld.param.b64 %rd{n}, [f_{n}];" for n in range(3))}
    {loads}
    mma.sync.aligned.m{rows}n8k{depth}.row.col.{kinds}
    {names[2]}, {names[0]}, {names[1]}, {names[2]};
    {stores} ret; }}"""
    return text, [*map(Allocation, made[:2]), Allocation(made[2], writable=True)]


def result_of(form, rows, words):
    """Return the matrix of what of_form's kernel stored."""
    lanes = words.view(SUMS[form[0]]).reshape(8, 4, rows // 8, 2)  # (g, t, half, e)
    return lanes.transpose(2, 0, 1, 3).reshape(rows, 8)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_fragments_of_one_warp(form, execute):
    to, kind, other, depth = form
    rows, low = 8 if to == "f64" else 16, {"u8": 0}
    a = RNG.integers(low.get(kind, -4), 5, (rows, depth))
    b = RNG.integers(low.get(other, -4), 5, (8, depth))
    c = RNG.integers(-99, 99, (rows, 8))
    text, buffers = of_form(form, patterns(a, kind), patterns(b, other), c.astype(SUMS[to]))
    execute(text, (1,), (32,), buffers)
    assert result_of(form, rows, buffers[2].array).tolist() == (a @ b.T + c).tolist()


def test_sums_of_float64_are_rounded_at_each_product(execute):
    tiny = 2.0**-53
    a = np.tile([1.0, tiny, tiny, -1.0], (8, 1))
    form = ("f64", "f64", "f64", 4)
    text, buffers = of_form(form, a, np.ones((8, 4)), np.zeros((8, 8)))
    execute(text, (1,), (32,), buffers)
    assert (result_of(form, 8, buffers[2].array) == 0).all()


@pytest.mark.parametrize(
    ("arch", "to", "kind"),
    [
        *((80, "f32", "bf16"), (80, "f32", "tf32"), (80, "f16", "f16")),
        *((89, "f32", "e4m3"), (90, "f32", "f16"), (90, "f16", "e5m2")),
    ],
)
def test_a_product_is_summed_as_on_a_card(arch, to, kind):
    depth = 32 // SIZES[kind]
    form = to, kind, kind, depth
    codes = 1 << 1 + sum(FORMATS[kind])
    a, b = RNG.integers(0, codes, (16, depth)), RNG.integers(0, codes, (8, depth))
    left, right = ([[value(int(n), kind) for n in row] for row in x] for x in (a, b))
    c = (RNG.standard_normal((16, 8)) * 8).astype(SUMS[to])
    words = [(x << 13 if kind == "tf32" else x).astype(f"u{SIZES[kind]}") for x in (a, b)]
    body, buffers = of_form(form, *words, c)
    manifest, arrays = Manifest("f", ("ptr",) * 3, (32, 1, 1)), [x.array for x in buffers]
    run(f".target sm_{arch}\n{body}", manifest, (1,), arrays, tensor_cores="model")
    found, model = result_of(form, 16, buffers[2].array), model_of(arch, False, kind, to)
    want = [[on_card(x, y, float(c[m, n]), (kind, kind), to, model)
             for n, y in enumerate(right)] for m, x in enumerate(left)]  # fmt: skip
    np.testing.assert_array_equal(found, np.array(want, SUMS[to]))


def test_a_card_without_a_published_model_is_refused():
    form = ("f32", "f16", "f16", 16)
    zeros = np.zeros((16, 16), "f2"), np.zeros((8, 16), "f2"), np.zeros((16, 8), "f4")
    text, buffers = of_form(form, *zeros)
    with pytest.raises(Fault, match=r"no model of its sums on sm_75 is published"):
        launch(parse(f".target sm_75\n{text}"), (1,), (32,), buffers, tensor_cores="model")
    with pytest.raises(Fault, match=r"no model of its sums on an unknown card is published"):
        launch(parse(text), (1,), (32,), buffers, tensor_cores="model")
    assert model_of(100, True, "e4m3", "f32") is None
    with pytest.raises(ConvrefError, match="needs 'exact' or 'model'"):
        launch(parse(text), (1,), (32,), buffers, tensor_cores="low")


PRODUCTS = {"f16": ("float16", "f32"), "e4m3": ("float8_e4m3fn", "f32"), "s8": ("int8", "s32")}


@pytest.mark.parametrize("tensor_cores", ["exact", "model"])
@pytest.mark.parametrize("kind", PRODUCTS)
def test_triton_products_are_summed_as_on_a_card(kind, tensor_cores):
    """Those of wgmma: 32 bytes of depth at once."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from speed import product_of_a_tile

    from convref_ptx import device

    name, to = PRODUCTS[kind]
    a, b = (torch.randint(-9, 9, (64, 64), generator=torch.manual_seed(n)) for n in (0, 1))
    if to == "f32":
        a, b = (torch.randn(64, 64, generator=torch.manual_seed(n)) for n in (0, 1))
    a, b = (x.to(getattr(torch, name)) for x in (a, b))
    found = torch.zeros(64, 64, dtype=torch.int32 if to == "s32" else torch.float32)
    with device("sm_90", cuda=False, tensor_cores=tensor_cores):
        product_of_a_tile[(1,)](a, b, found, 64)
    left, right = (x.double().numpy()[None] for x in (a, b.T))
    want, depth = np.zeros((1, 64, 64), SUMS[to]), 32 // SIZES[kind]
    for k in range(0, 64, depth):
        want = (left[..., k : k + depth] @ right[:, k : k + depth] + want).astype(SUMS[to])
    if tensor_cores == "model" and to == "f32":
        exact, model = want, model_of(90, True, kind, to)
        want = summed(left, right, np.zeros_like(want), (kind, kind), to, model)
        assert (want != exact).mean() > 0.1
    assert np.array_equal(found.numpy(), want[0])


# Results of cards: the folder of each, its architecture and what it was given.
FOLDER = os.environ.get("CONVREF_TENSOR_CORES", "")
MEASURED = {"A100": 80, "A2": 86, "Ada": 89, "L40S": 89, "H100": 90, "H200": 90, "B200": 100}
NAMES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}


def read(path, base):
    words = np.array([int(word, base) for word in path.read_text().split()], np.uint32)
    return words.view(np.float32).astype(np.float64)


@pytest.mark.skipif(not FOLDER, reason="CONVREF_TENSOR_CORES names no folder of results of cards")
@pytest.mark.parametrize("card", MEASURED)
def test_results_of_cards(card):
    """Each file has 5,000 sums; those of float16 that do not exist were not measured."""
    arch, checked = MEASURED[card], 0
    for (name, kind), to in product(NAMES.items(), ("f32", "f16")):
        place = Path(FOLDER) / card / name
        if not (result := place / f"d_{card}_fp{to[1:]}.txt").exists():
            continue
        d = read(result, 2)
        a, b = (read(place / f"{x}_{card}_{name}.txt", 16).reshape(len(d), -1) for x in "ab")
        asynchronous = arch == 90 and kind in ("e4m3", "e5m2") and to == "f32"
        c = read(place / f"c_{card}_fp32.txt", 2) * (not asynchronous)  # wgmma had zeros
        model, sums = model_of(arch, asynchronous, kind, to), c.astype(SUMS[to])[:, None, None]
        found = summed(a[:, None], b[..., None], sums, (kind, kind), to, model).ravel()
        assert np.array_equal(found, d), (name, to)
        checked += len(d)
    assert checked >= 20_000
    print(f"{card}: {checked} sums equal")
