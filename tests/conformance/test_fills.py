"""Data and operands: stable under shrinking, exact where promised, in the layout requested."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from convref import dtypes
from convref.case import FILLS, Case, Spec, axis_letters, parse
from convref.conformance.fills import available, integer_limits, values
from convref.conformance.operands import lay_out, operands, poison
from convref.conformance.strategies import cases
from convref.errors import ConvrefError
from convref.oracle import evaluate

ANY = {"ops": ["conv", "unfold", "fold"], "dtypes": dtypes.CODES}
LEAD = "conv.fprop:n2c3k5_i9x8_f3x2"


def same(left, right):
    """Raise unless both arrays are equal, NaN to NaN and zero to zero of the same sign."""
    assert left.shape == right.shape
    if left.dtype == object:
        assert left.tolist() == right.tolist()
        return
    if left.dtype == dtypes.numpy_dtype("bf16"):  # NumPy's own comparison misses its NaN
        left, right = left.astype(np.float32), right.astype(np.float32)
    np.testing.assert_array_equal(left, right)
    if left.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(left), np.signbit(right))


@given(cases(**ANY))
def test_values_have_shape_and_type_and_repeat(case):
    for role in case.call.roles:
        if case.call.is_present(role):
            array = values(case, role)
            assert array.shape == case.call.problem.shape(role)
            assert array.dtype == dtypes.numpy_dtype(case.call.spec(role).dtype)
            same(array, values(case, role))


@given(cases(dtypes=["f32", "i32", "bf16"], fills=["normal", "positive", "wide", "ties"]))
def test_shrinking_an_extent_keeps_the_rest(case):
    whole = values(case, case.call.roles[0])
    problem = case.call.conv
    grown = replace(problem, n=problem.n + 3, input=tuple(i + 2 for i in problem.input))
    larger = values(
        Case(replace(case.call, problem=grown), case.fill, case.seed), case.call.roles[0]
    )
    corner = larger[tuple(slice(size) for size in whole.shape)]
    same(corner, whole)


def test_bits_do_not_depend_on_the_machine():
    case = parse("conv.fprop:n1c1k1_i3_f1:seed=1:fill=normal:dt=f64")
    assert [v.hex() for v in values(case, "x").ravel()] == BITS
    assert values(parse("conv.fprop:n1c1k1_i5_f1:seed=1"), "x").ravel().tolist() == INTS


BITS = ["0x1.2425ce5b400e0p-3", "0x1.3391fcded7049p-5", "0x1.ae0d33aa70e6fp+0"]
INTS = [-5.0, 8.0, -16.0, -9.0, -5.0]


def test_roles_and_seeds_differ():
    call = parse("conv.jvp:n2c3k2_i4_f1:fill=normal").call
    first = values(Case(call, "normal", 1), "x")
    assert np.mean(first == values(Case(call, "normal", 1), "x_dot")) < 0.1
    assert np.mean(first == values(Case(call, "normal", 2), "x")) < 0.1


@pytest.mark.parametrize("dtype", dtypes.CODES)
@pytest.mark.parametrize("fill", FILLS)
def test_every_available_fill(fill, dtype):
    op = "scaled_" if dtype in dtypes.EIGHT else ""
    case = parse(f"{op}{LEAD}:fill={fill}:dt={dtype}:seed=3")
    if not available(fill, dtype):
        with pytest.raises(ConvrefError, match=f"{dtype} has no fill {fill}"):
            values(case, "x")
        return
    array = values(case, "x")
    assert array.dtype == dtypes.numpy_dtype(dtype)
    if dtype == "obj":
        assert all(type(v) is Fraction for v in array.ravel())


def of(fill, dtype="f32", role="x", line=LEAD):
    return values(parse(f"{line}:fill={fill}:dt={dtype}:seed=3"), role).astype(np.float64)


def test_int_has_no_zero_and_both_signs():
    for dtype, most in (("f32", 16), ("f16", 4), ("bf16", 3), ("i8", 4)):
        array = of("int", dtype)
        assert (array == np.rint(array)).all()
        assert not (array == 0).any()
        assert array.min() < 0 < array.max()
        assert np.abs(array).max() <= most
    assert of("int", "u8").min() == 1


def test_ones_impulse_ramp():
    assert (of("ones") == 1).all()
    impulse = of("impulse")
    assert impulse.sum() == np.count_nonzero(impulse) == 1
    assert np.count_nonzero(of("impulse", role="w")) == of("impulse", role="w").size
    ramp = of("ramp")[0, 0, 0]
    assert (np.diff(ramp) == 1).all()


def test_an_impulse_copies_the_other_operand():
    case = parse("conv.fprop:n1c2k1_i9x9_f2x3_p2:fill=impulse:bias=0:seed=5")
    x, w, _ = operands(case)
    (y,) = evaluate(case.call, x, w, None)
    assert sorted(y[y != 0]) == sorted(w[:, np.argwhere(x)[0][1]].ravel())


def test_random_fills_have_their_moments():
    line = "conv.fprop:n8c8k1_i32x32_f1"
    count = 8 * 8 * 32 * 32
    normal = of("normal", line=line)
    assert abs(normal.mean()) < 5 / np.sqrt(count)
    assert abs(normal.var() - 1) < 10 / np.sqrt(count)
    assert np.abs(normal).max() < 2 * np.sqrt(3)
    positive = of("positive", line=line)
    assert positive.min() > 0
    assert positive.max() <= 1
    wide = np.abs(of("wide", line=line))
    assert wide.max() > 2**11
    assert np.median(wide[wide > 0]) < 2
    assert set(np.unique(of("ties", line=line))) == {-1, 0, 1, 2}


def test_random_bits_reach_the_last_place():
    for dtype in ("f32", "f64"):
        array = values(parse(f"{LEAD}:fill=normal:dt={dtype}"), "x")
        last = np.frombuffer(array.tobytes(), f"u{array.itemsize}") & 1
        assert 0.3 < last.mean() < 0.7


def test_special_values_are_in_one_operand():
    line = "conv.backward:n2c3k5_i9x8_f3x2"
    for fill, count in (("nan", 1), ("inf", 2)):
        for chosen, seed in enumerate((0, 1, 5)):
            case = parse(f"{line}:fill={fill}:seed={seed}")
            special = [np.count_nonzero(~np.isfinite(values(case, r))) for r in case.call.roles]
            assert special == [count if i == chosen else 0 for i in range(3)]


def test_one_seed_of_four_has_several_nan():
    several = [np.isnan(of_seed("nan", seed)).sum() for seed in range(4)]
    assert several[:2] == [1, 1]
    assert several[2] > 9
    assert several[3] == 1


def test_shifted_is_normal_data_about_a_large_mean():
    array = of_seed("shifted", 1)
    assert abs(array.mean() - 1024) < 1
    assert 0.5 < array.std() < 2


def of_seed(fill, seed):
    return values(parse(f"relu.fprop:n2c3_i9x8:fill={fill}:seed={seed}"), "x")


def test_negative_zeros():
    array = of("negzero")
    zeros = array[array == 0]
    assert 0.2 < np.signbit(zeros).mean() < 0.8
    assert set(np.abs(array).ravel()) == {0, 1}


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_subnormal_products(dtype):
    number = dtypes.number(dtype)
    x = np.abs(of("subnormal", dtype))
    assert (x < number.tiny).mean() > 0.3
    assert (x >= number.tiny).any()
    assert (x > 0).mean() > 0.5
    w = np.abs(of("subnormal", dtype, role="w"))
    assert np.median(w) > 0.1
    assert np.abs(of("subnormal", dtype, role="b")).max() < 64 * number.tiny


def test_subnormal_longdoubles_are_not_zero():
    case = parse(f"{LEAD}:fill=subnormal:dt=f80")
    assert np.count_nonzero(values(case, "x")) > 0.5 * values(case, "x").size


def largest_sum(case):
    """Return the largest sum of absolute products of any result element."""
    wide = replace(case.call, specs=tuple(replace(s, dtype="f64") for s in case.call.specs))
    arrays = [None if a is None else np.abs(a.astype(np.float64)) for a in operands(case)]
    results = (r for r in evaluate(wide, *arrays) if r is not None)
    return max((r.max(initial=0) for r in results), default=0)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@given(data=cases(dtypes=["f64"], fills=["int"], memory=False))
def test_int_sums_stay_exact(dtype, data):
    case = replace(data, call=replace(data.call, specs=(Spec(dtype),)))
    assert largest_sum(case) <= 2 ** dtypes.number(dtype).digits


LONG = [
    "conv.fprop:n1c512k8_i3x3_f3x3",
    "conv.backward:n4c128k96_i12x12_f3x3_p1",
    "conv.backward:n4c64k96_i12x12_f3x3_p1_s2:t=1",
    "conv.wgrad:n4c64k96_i12x12_f3x3_p1_s2:t=1",
    "conv.bgrad:n9c1k2_i40x40_f1",
    "conv.backward:n2c96k96g3_i9x9_f5x5_p2_s2",
    "conv.jvp:n1c300k7_i5x5_f3x3_p1",
    "conv.double_backward:n3c120k64_i8x8_f3x3_p1_d2",
    "conv.double_backward:n3c120k64_i8x8_f3x3_s2:t=1",
]


@pytest.mark.parametrize("line", LONG)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "c64"])
def test_long_sums_are_thinned_not_emptied(line, dtype):
    case = parse(f"{line}:dt={dtype}")
    if dtype != "c64":
        assert largest_sum(case) <= 2 ** dtypes.number(dtype).digits
    for role, result in zip(case.call.signature.results, evaluate(case.call, *operands(case))):
        if result is not None:
            assert np.count_nonzero(result) > 0.3 * result.size, role


def test_four_thousand_products_in_f32_need_no_zero():
    case = parse(LONG[0])
    assert case.call.products("y") == 4_609
    assert integer_limits(case.call).magnitude == 16
    assert not any((array == 0).any() for array in operands(case))


@given(cases(**ANY, fills=["int", "normal", "nan", "inf"], passes=["fprop", "backward", "jvp"]))
def test_memory_layout_is_that_of_the_spec(case):
    for role, array in zip(case.call.roles, operands(case)):
        if array is None:
            assert not case.call.is_present(role)
            continue
        spec = case.call.spec(role)
        letters = axis_letters(case.call.problem, role)
        wanted = values(case, role)
        first = tuple(slice(0, 1) if axis in spec.expand else slice(None) for axis in letters)
        same(np.array(array), np.broadcast_to(wanted[first], wanted.shape))
        if array.size:
            assert array.strides == expected_strides(array, spec, letters)


def expected_strides(array, spec, letters):
    """Return the strides of a buffer with the memory layout of `spec`, computed from inside out."""
    steps, strides, pitch = dict(spec.step), {}, array.itemsize
    for axis in reversed(spec.order or letters):
        size = array.shape[letters.index(axis)]
        strides[axis] = 0 if axis in spec.expand else pitch * steps.get(axis, 1)
        pitch *= 1 if axis in spec.expand else max(size, 1) * abs(steps.get(axis, 1))
    return tuple(strides[axis] for axis in letters)


def test_unreachable_elements_are_poisoned():
    array = np.arange(6.0, dtype=np.float32).reshape(1, 2, 3)
    view = lay_out(array, Spec("f32", "nwc", (("w", 2),), offset=3), "ncw")
    same(view, array)
    buffer = view
    while buffer.base is not None:
        buffer = buffer.base
    assert buffer.shape == (3 + 2 * 6,)
    assert np.isnan(buffer).sum() == 3 + 6
    assert np.isnan(buffer[:3]).all()
    assert poison("i8") == 127


def test_bfloat16_operands_have_their_layout():
    case = parse("conv.fprop:n1c2k2_i4_f2:dt=bf16:mem=x.nwc.step2c.off1,w.expando")
    x, w, b = operands(case)
    assert {a.dtype.name for a in (x, w, b)} == {"bfloat16"}
    assert w.strides[0] == 0


def test_absent_operands_are_none():
    x, w, b, x_dot, w_dot, b_dot = operands(parse("conv.jvp:n1c1k1_i2_f1:bias=0:tan=w"))
    assert b is x_dot is b_dot is None
    assert x.shape == (*w_dot.shape[:2], 2)
    assert w.shape == w_dot.shape
