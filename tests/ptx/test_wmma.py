"""Matrices that warps load, multiply and store by wmma, beside NumPy's products."""

import numpy as np
import pytest

from convref_ptx import Allocation, Fault, launch, parse

RNG = np.random.default_rng(0)
SHAPES = {"m16n16k16": (16, 16), "m32n8k16": (32, 8)}
MULTIPLY = """.visible .entry f(.param .u64 f_0, .param .u64 f_1, .param .u64 f_2, .param .u64 f_3)
{{ .reg .b32 %r<40>; .reg .b64 %rd<9>; .shared .align 32 .b8 tile[2048];
ld.param.b64 %rd1, [f_0]; ld.param.b64 %rd2, [f_1]; ld.param.b64 %rd3, [f_2];
ld.param.b64 %rd4, [f_3]; mov.b32 %r1, 40;
wmma.load.a.sync.aligned.{a}.{shape}.global.{kind} {{{given_a}}}, [%rd1], %r1;
wmma.load.b.sync.aligned.{b}.{shape}.{kind} {{{given_b}}}, [%rd2+32], {stride};
wmma.load.c.sync.aligned.{c}.{shape}.global.f32 {{{sums}}}, [%rd3], 40;
wmma.mma.sync.aligned.{a}.{b}.{shape}.f32.{types}f32
{{{sums}}}, {{{given_a}}}, {{{given_b}}}, {{{sums}}};
wmma.store.d.sync.aligned.{c}.{shape}.shared.f32 [tile], {{{sums}}}; bar.warp.sync -1;
wmma.load.c.sync.aligned.{c}.{shape}.shared::cta.f32 {{{sums}}}, [tile];
wmma.store.d.sync.aligned.{d}.{shape}.global.f32 [%rd4], {{{sums}}}, 40; ret; }}"""


def registers(first, count):
    return ", ".join(f"%r{n}" for n in range(first, first + count))


def text(shape, kind, a, b, c, d, stride=40):
    count = {"m16n16k16": (4, 4), "m32n8k16": (8, 2)}[shape] if kind == "bf16" else (8, 8)
    return MULTIPLY.format(
        shape=shape, kind=kind, a=a, b=b, c=c, d=d, stride=stride, given_a=registers(2, count[0]),
        given_b=registers(10, count[1]), sums=registers(18, 8),
        types="bf16.bf16." if kind == "bf16" else "",
    )  # fmt: skip


def stored(matrix, order, stride, dtype):
    """Return a matrix with a stride between its rows, or its columns."""
    lines = matrix if order == "row" else matrix.T
    found = np.full((len(lines), stride), np.nan, np.float32)
    found[:, : lines.shape[1]] = lines
    if dtype == "bf16":
        return (found.view(np.uint32) >> 16).astype(np.uint16)
    return found.astype(dtype)


@pytest.mark.parametrize("orders", ["row row row col", "row col col row", "col row row row"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_of_two_warps(shape, kind, orders):
    """Both compute it; the second factor begins 16 elements into its memory."""
    orders, (rows, columns) = orders.split(), SHAPES[shape]
    a, b, c = (RNG.integers(-8, 9, n).astype(np.float32)
               for n in ((rows, 16), (16, columns), (rows, columns)))  # fmt: skip
    dtype = {"f16": np.float16}.get(kind, kind)
    left, right = (stored(x, order, 40, dtype) for x, order in zip((a, b), orders))
    right = np.concatenate([np.zeros(16, right.dtype), right.ravel()])
    sums, out = stored(c, orders[2], 40, np.float32), stored(0 * c, orders[3], 40, np.float32)
    given = [*map(Allocation, (left, right, sums)), Allocation(out, writable=True)]
    launch(parse(text(shape, kind, *orders)), (2,), (32,), given)
    found = out[:, : (rows, columns)[orders[3] == "row"]]
    assert np.array_equal(found if orders[3] == "row" else found.T, a @ b + c)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("[%rd1], %r1", "[%rd1+16], %r1"), "an address is not a multiple of 32"),
        (("[%rd1], %r1", "[%rd1], 20"), "a stride of 16 bytes"),
        (("mov.b32 %r1, 40", "mov.b32 %r1, %laneid"), "lanes have different addresses"),
        (("[%rd1], %r1", "[%rd1], 56"), "outside of every allocation"),
        (("[tile], {", "[tile+256], {"), "undefined bits"),
        (("[%rd3], 40;", "[%rd3], 40; mov.b32 %r18, %r39;"), "undefined bits"),
    ],
)
def test_what_is_wrong_with_a_matrix_is_named(change, reason):
    factor, sums = np.zeros((16, 48), np.float16), np.zeros((16, 40), np.float32)
    given = [Allocation(factor), Allocation(factor.copy()), Allocation(sums)]
    body = text("m16n16k16", "f16", "row", "row", "row", "row")
    assert body.count(change[0]) == 1
    with pytest.raises(Fault, match=reason):
        launch(parse(body.replace(*change)), (1,), (32,), [*given, Allocation(sums.copy(), True)])
