"""Large arrays go through formulas in blocks and without branches: to the same bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convref.case import Case, parse
from convref.conformance.operands import operands
from convref.dtypes import numpy_dtype
from convref.oracle import _blocks, activation, evaluate

KINDS = ("i8", "u8", "i32", "f16", "bf16", "f32", "f64", "f80", "obj")
# Bytes of an extended number; the others are arbitrary. A longdouble may be a plain double.
EXTENDED = 10 if np.finfo(np.longdouble).nmant == 63 else None
EDGES = [0.0, -0.0, 1.0, -2.5, 5e-324, np.inf, -np.inf, np.nan]


def bits(array):
    """Return a value that differs for any two arrays, also in signs of zeros."""
    if array.dtype == object:
        return array.tolist()
    held = np.ascontiguousarray(array).view(np.uint8).reshape(-1, array.itemsize)
    return held[:, : EXTENDED if array.dtype == np.longdouble else None].tobytes()


def numbers(code, values):
    with np.errstate(all="ignore"):
        whole = np.nan_to_num(values, posinf=9, neginf=-9) if code[0] in "iu" else np.array(values)
        return whole.astype(numpy_dtype(code))


@pytest.mark.parametrize("code", KINDS)
@given(rows=st.lists(st.tuples(st.booleans(), *[st.sampled_from(EDGES)] * 2), max_size=9))
def test_chosen_equals_numpy_where(code, rows):
    if code == "obj":
        rows = [(w, abs(a) < 2, abs(b) < 2) for w, a, b in rows]  # NaN is no object's equal
    where = np.array([w for w, _, _ in rows], bool)
    a, b = (numbers(code, [row[k] for row in rows]) for k in (1, 2))
    strided = np.repeat(b, 2)[::2]
    assert bits(_blocks.select(where, a, strided)) == bits(np.where(where, a, b))
    one = numbers(code, [1.0])[0]
    assert bits(_blocks.select(where, one, b)) == bits(np.where(where, one, b))
    want = np.where(where, b.dtype.type(0) if code != "obj" else 0, b)
    assert bits(_blocks.zero_where(where, strided)) == bits(want)


LARGE = (
    "silu.backward:n1c3_i97x101",
    "gelu.double_backward:n2c3_i97x101",
    "hardswish.jvp:n1c1_i40000",
    "batch_norm.backward:n1c9_i190x201",
    "batch_norm_eval.backward:n2c9_i190x101:mask=101",
    "group_norm.backward:n2c9g3_i190x101:weight=0",
    "layer_norm.backward:n2c9_i190x101",
)


@pytest.mark.parametrize("line", LARGE)
def test_a_block_at_a_time_is_as_all_at_once(line, monkeypatch):
    call = parse(f"{line}:dt=f64").call
    given = operands(Case(call, fill="normal"))
    parts = evaluate(call, *given)
    for name in ("BLOCK", "GROUP"):
        monkeypatch.setattr(_blocks, name, 1 << 40)
    whole = evaluate(call, *given)
    for one, other in zip(parts, whole, strict=True):
        assert (one is None) == (other is None)
        assert one is None or bits(one) == bits(other)


def test_the_logistic_function_and_its_rest_where_exp_overflows():
    s, rest = activation.logistic(np.array([-np.inf, -710.0, 710.0, np.inf, np.nan]))
    assert s.tolist()[:4] == [0, 0, 1, 1]
    assert rest.tolist()[:2] == [1, 1]
    assert 0 < rest[2] < 1e-300
    assert rest[3] == 0
    assert np.isnan(s[4] * rest[4])
