"""The oracle against its loops, torch, its own adjoints and cases worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from convref import dtypes
from convref.case import Call, Spec, parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.ops import ConvProblem, passes
from convref.oracle import _windows, evaluate
from convref.oracle.conv import conv_dgrad, conv_fprop, conv_wgrad

PASSES = tuple(passes("conv"))
EXACT = {"fills": ["int", "ramp", "ties", "impulse", "ones"]}
SMALL = {"max_elements": 250, "max_macs": 300}  # the loops take some 5 us a product


@pytest.mark.parametrize("dtype", ["i64", "obj", "c128"])
@pytest.mark.parametrize("pass_", PASSES)
def test_loops_bit_for_bit(checks, pass_, dtype):
    @given(cases(passes=[pass_], dtypes=[dtype], **EXACT, **SMALL))
    def check(case):
        checks.loops(case)

    check()


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "bf16", "f32"])
def test_loops_bit_for_bit_in_other_types(checks, dtype):
    @given(cases(dtypes=[dtype], **EXACT, **SMALL))
    def check(case):
        checks.loops(case)

    check()


PARTS = [  # lines whose filters and batches are summed in parts
    "n3c2k3_i5x4_f3x2_p1,0x0,2_s2x1_d1x2",
    "n2c4k6g2_i4x3x3_f2x2x3_p1:t=1",
    "n5c1k2_i9_f4_s3_p2:flip=1",
]


@pytest.mark.parametrize("most", [1, 40, 200])
def test_parts_of_the_filter_and_of_the_batch_are_added(checks, monkeypatch, most):
    monkeypatch.setattr(_windows, "COLUMNS", most)
    monkeypatch.setattr(_windows, "BLOCK", most)
    for line in PARTS:
        for pass_ in PASSES:
            checks.loops(parse(f"conv.{pass_}:{line}:dt=i64"))


@given(cases(dtypes=["obj"], fills=["normal", "wide", "positive"], **SMALL))
def test_loops_bit_for_bit_on_fractions(checks, case):
    checks.loops(case)


@given(cases(dtypes=["f64"], fills=["nan", "inf"], **SMALL))
def test_loops_agree_on_what_is_not_finite(checks, case):
    """Which sums are NaN or infinite does not depend on the order of addition."""
    arrays = operands(case)
    finite = [None if a is None else np.where(np.isfinite(a), np.sign(a), a) for a in arrays]
    got = evaluate(case.call, *finite)
    want = checks.by_loops(case.call, finite)
    for role, one, other in zip(case.call.signature.results, got, want):
        checks.equal(one, other if role in case.call.wanted else None, f"{case} {role}")


@pytest.mark.parametrize("pass_", PASSES)
def test_torch_float64_within_both_bounds(checks, pass_):
    fills = ["int", "normal", "wide", "positive"]

    @given(cases(passes=[pass_], dtypes=["f64"], fills=fills, empty=False))
    def check(case):
        checks.torch(case)

    check()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("pass_", PASSES)
def test_torch_complex_exact(checks, pass_, transposed):
    @given(
        cases(passes=[pass_], dtypes=["c128"], fills=["int"], transposed=transposed, empty=False)
    )
    def check(case):
        checks.torch(case)

    check()


def moderate(dtype):
    """Return limits: Fractions are a hundred times slower than machine numbers."""
    return {"max_macs": 500, "max_elements": 500} if dtype == "obj" else {"max_macs": 5_000}


@pytest.mark.parametrize("dtype", ["i64", "c128", "obj"])
def test_adjoint_identity(checks, dtype):
    @given(cases(passes=["backward"], dtypes=[dtype], **EXACT, **moderate(dtype)))
    def check(case):
        checks.adjoint(case)

    check()


@pytest.mark.parametrize("dtype", ["i64", "c128", "obj"])
def test_jvp_adjoint_identity(checks, dtype):
    @given(cases(passes=["jvp"], dtypes=[dtype], fills=["int", "ties"], **moderate(dtype)))
    def check(case):
        checks.jvp_adjoint(case)

    check()


@pytest.mark.parametrize("dtype", ["i64", "c128", "obj"])
def test_double_backward_adjoint_identity(checks, dtype):
    @given(cases(passes=["double_backward"], dtypes=[dtype], **EXACT, **moderate(dtype)))
    def check(case):
        checks.double_backward_adjoint(case)

    check()


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32", "i64"])
def test_integers_wrap_as_in_torch(checks, dtype):
    transposed = None if dtype == "i64" else False
    fills = ["int", "wide"]

    @given(cases(passes=["fprop"], dtypes=[dtype], fills=fills, transposed=transposed, empty=False))
    def check(case):
        call = case.call
        if dtype != "i64":  # torch dilates and transposes no other integer type
            dense = replace(call.conv, dilation=(1,) * call.conv.rank)
            call = replace(call, problem=dense)
        arrays = operands(replace(case, call=call))
        (got,) = evaluate(call, *arrays)
        want = checks.by_torch(call, arrays)["y"].numpy()
        assert got.dtype == want.dtype
        checks.equal(got, want, str(case))

    check()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "c64"])
@given(data=cases(dtypes=["f64"], fills=["normal"], max_macs=5_000))
def test_narrow_floats_accumulate_wide_and_round_once(checks, dtype, data):
    call = replace(data.call, specs=tuple(replace(s, dtype=dtype) for s in data.call.specs))
    narrow = operands(replace(data, call=call))
    wide = dtypes.accumulator(dtype)
    widened = [None if a is None else a.astype(dtypes.numpy_dtype(wide)) for a in narrow]
    exact = replace(call, specs=tuple(replace(s, dtype=wide) for s in call.specs))
    for one, other in zip(evaluate(call, *narrow), evaluate(exact, *widened)):
        want = None if other is None else dtypes.rounded(other, dtype)
        assert one is None or one.dtype == dtypes.numpy_dtype(dtype)
        checks.equal(one, want, str(call))


def test_longdouble_keeps_its_digits():
    tiny = np.longdouble(2) ** -60  # lost in float64, kept in the 64-bit significand
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("longdouble is float64 on this platform")
    call = parse("conv.fprop:n1c1k1_i2_f2:dt=f80:bias=0").call
    x = np.array([[[1, tiny]]])
    (y,) = evaluate(call, x, np.ones((1, 1, 2), np.longdouble), None)
    assert y[0, 0, 0] - 1 == tiny


def test_accumulate_names_another_type():
    call = parse("conv.fprop:n1c1k1_i2_f2:dt=f16:bias=0").call
    x = np.array([[[2048, 1]]], np.float16)
    ones = np.ones((1, 1, 2), np.float16)
    assert evaluate(call, x, ones, None, out="f32")[0].item() == 2049
    assert evaluate(call, x, ones, None, accumulate="f16", out="f32")[0].item() == 2048


def test_integers_wider_result():
    call = parse("conv.fprop:n1c1k1_i1_f1:dt=i8:bias=0").call
    hundred = np.full((1, 1, 1), 100, np.int8)
    assert evaluate(call, hundred, hundred, None)[0].item() == 16
    assert evaluate(call, hundred, hundred, None, out="i32")[0].item() == 10_000


@given(cases(passes=["fprop", "backward"], dtypes=["f32", "i32"], fills=["int"], memory=True))
def test_results_are_independent_of_strides_and_operands_unchanged(checks, case):
    arrays = operands(case)
    plain = [None if a is None else np.ascontiguousarray(a) for a in arrays]
    before = [None if a is None else a.copy() for a in arrays]
    for one, other in zip(evaluate(case.call, *arrays), evaluate(case.call, *plain)):
        checks.equal(one, other, str(case))
    for array, copy in zip(arrays, before):
        checks.equal(array, copy, f"{case}: operand changed")


def test_mask_false_is_none():
    case = parse("conv.backward:n1c2k2_i4_f2:mask=010")
    dx, dw, db = evaluate(case.call, *operands(case))
    assert dx is None
    assert dw.shape == (2, 2, 2)
    assert db is None


@np.errstate(invalid="ignore")
def quietly(formula, *arguments):
    return formula(*arguments)


def geometry(**fields):
    return ConvProblem(**({"n": 1, "c": 1, "k": 1, "input": (3,), "filter": (2,)} | fields))


def test_padded_zeros_take_part_in_fprop():
    problem = geometry(padding=1)
    y = quietly(conv_fprop, np.ones((1, 1, 3)), np.array([[[np.inf, 1.0]]]), None, problem)
    assert np.isnan(y[0, 0, 0])  # 0 * inf from the padding
    assert np.isposinf(y[0, 0, 1:]).all()


def test_padded_zeros_take_part_in_wgrad():
    problem = geometry(padding=1)
    dy = np.array([[[np.inf, 1.0, 1.0, 1.0]]])
    dw = quietly(conv_wgrad, dy, np.ones((1, 1, 3)), problem)
    assert np.isnan(dw[0, 0, 0])  # tap 0 of window 0 reads the padding
    assert np.isposinf(dw[0, 0, 1])


def test_stride_gaps_take_part_in_nothing():
    problem = geometry(input=(5,), stride=2)
    dx = quietly(conv_dgrad, np.zeros((1, 1, 2)), np.array([[[np.inf, 1.0]]]), problem)
    assert np.isnan(dx[0, 0, [0, 2]]).all()
    assert (dx[0, 0, [1, 3, 4]] == 0).all()


def test_cropped_padding_takes_part_in_nothing_of_dgrad():
    problem = geometry(padding=1)
    dx = quietly(conv_dgrad, np.array([[[np.inf, 0.0, 0.0, 0.0]]]), np.ones((1, 1, 2)), problem)
    assert np.isposinf(dx[0, 0, 0])
    assert (dx[0, 0, 1:] == 0).all()


def test_transposed_stride_gaps_take_part_in_nothing():
    problem = geometry(input=(2,), stride=3, transposed=True)
    y = quietly(conv_fprop, np.zeros((1, 1, 2)), np.array([[[np.inf, 1.0]]]), None, problem)
    assert np.isnan(y[0, 0, [0, 3]]).all()
    assert (y[0, 0, [1, 2, 4]] == 0).all()


HAND = [
    ("conv.fprop:n1c1k1_i4_f2_s2:bias=0", [[1, 2, 3, 4]], [[1, 10]], [21, 43]),
    ("conv.fprop:n1c1k1_i3_f2_p1,0:bias=0", [[1, 2, 3]], [[1, 10]], [10, 21, 32]),
    ("conv.fprop:n1c1k1_i3_f2_p0,1:bias=0", [[1, 2, 3]], [[1, 10]], [21, 32, 3]),
    ("conv.fprop:n1c1k1_i4_f2_p-1,0:bias=0", [[1, 2, 3, 4]], [[1, 10]], [32, 43]),
    ("conv.fprop:n1c1k1_i4_f2_d2:bias=0", [[1, 2, 3, 4]], [[1, 10]], [31, 42]),
    ("conv.fprop:n1c1k1_i3_f2:flip=1:bias=0", [[1, 2, 3]], [[1, 10]], [12, 23]),
    ("conv.fprop:n1c1k1_i2_f2_s3:t=1:op=1:bias=0", [[1, 2]], [[1, 10]], [1, 10, 0, 2, 20, 0]),
    ("conv.fprop:n1c1k1_i2_f2_p1,0:t=1:bias=0", [[1, 2]], [[1, 10]], [12, 20]),
    ("conv.fprop:n1c2k2g2_i2_f1:bias=0", [[1, 2], [3, 4]], [[10], [100]], [10, 20, 300, 400]),
]


@pytest.mark.parametrize(("line", "x", "w", "y"), HAND, ids=[row[0] for row in HAND])
def test_fprop_by_hand(checks, line, x, w, y):
    problem = parse(line).call.problem
    x = np.reshape(x, problem.shape("x"))
    got = conv_fprop(x, np.reshape(w, problem.shape("w")), None, problem)
    checks.equal(got, np.reshape(y, problem.shape("y")), line)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_empty_sums_are_zeros_plus_bias(rank):
    problem = ConvProblem(n=2, c=0, k=3, input=(4,) * rank, filter=(3,) * rank)
    call = Call("conv", "fprop", problem, specs=(Spec("f64"),))
    arrays = [np.ones(problem.shape(role)) for role in "xwb"]
    (y,) = evaluate(call, *arrays)
    assert y.shape == problem.shape("y")
    assert (y == 1).all()
    backward = Call("conv", "backward", problem, specs=(Spec("f64"),))
    dx, dw, db = evaluate(backward, y, *arrays[:2])
    assert dx.size == dw.size == 0
    assert (db == 2 * 2**rank).all()
