"""Kernels that are wrong for some types, or for some values alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

from convref import oracle
from convref.case import Call
from convref.conformance.mutations import Array, Operands, Region, Results, Wrong, oracle_results
from convref.dtypes import COMPLEX
from convref.ops import Problem
from convref.oracle import norm as formulas

from . import mistakes as m
from .base import Fault, only_result, reading, with_functions, writing
from .mistakes import computes, fprop
from .pairs import F16, FPROP, LAST, pair, rows

INTEGERS = ("i8", "i16", "i32", "u8")


def _one_pass(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return statistics in one pass, in float32: the mean of squares less the squared mean."""
    x = x.astype(np.float32)
    mean = formulas.mean_of(x, problem)
    var = formulas.mean_of(x * x, problem) - mean * mean
    return mean.astype(np.float64), np.maximum(var, 0).astype(np.float64)


def _first_nan(call: Call, operands: Operands) -> Results:
    """Let the first NaN of a window give the index."""
    (x,) = operands
    assert x is not None
    y, _ = oracle_results(call, (x,))
    top = np.where(np.isnan(x), np.inf, x).astype(x.dtype)
    return y, oracle_results(call, (top,))[1]


def _in_float32(call: Call, operands: Operands) -> Results:
    """Sum integers in float32."""
    wide = [None if a is None else a.astype(np.float64) for a in operands]
    results, sums = (
        oracle_results(call, operands),
        oracle.evaluate(call, *wide, accumulate="f32", out="f64"),
    )
    return tuple(
        None if r is None else s.astype(np.int64).astype(r.dtype) for r, s in zip(results, sums)
    )


def _saturated(call: Call, operands: Operands) -> Results:
    """Keep sums in the range of the type."""
    wide = oracle.evaluate(call, *operands, out="i64")
    info = np.iinfo(next(a for a in operands if a is not None).dtype)
    return tuple(
        None if r is None else np.clip(r, info.min, info.max).astype(info.dtype) for r in wide
    )


def _as_signed(call: Call, operands: Operands) -> Results:
    """Compare unsigned numbers as signed ones."""
    signed = [None if a is None else (a ^ a.dtype.type(128)) for a in operands]
    y, indices = oracle_results(call, tuple(signed))
    assert y is not None
    return y ^ y.dtype.type(128), indices


def _one_nan(call: Call) -> bool:
    return call.op == "max_pool" and FPROP(call) and call.dtype in ("f32", "f64", "f16", "bf16")


def _pair(
    name: str,
    model: str,
    region: Region,
    wrong: Wrong,
    minimal: str,
    narrow: Region,
    narrow_minimal: str,
    dtypes: tuple[str, ...] = (),
    ops: tuple[str, ...] = ("conv",),
    single: bool = False,
) -> tuple[Fault, Fault]:
    sizes = minimal, narrow, narrow_minimal
    return pair(name, model, ops, region, wrong, *sizes, dtypes=dtypes, single=single)


def _type(*codes: str) -> Callable[[Call], Any]:
    return lambda call: call.dtype in codes


_COMPLEX = _type(*COMPLEX)
ROWS = rows(
    _pair(
        "one_pass_variance",
        "the mean of squares less the squared mean, in float32",
        lambda c: FPROP(c) and c.dtype == "f32",
        with_functions(formulas, statistics=_one_pass),
        "batch_norm.fprop:n2c1_i1:fill=shifted",
        lambda c: c.op == "layer_norm",
        "layer_norm.fprop:n1c2_i1:fill=shifted",
        (),
        ("batch_norm", "layer_norm", "group_norm"),
        True,
    ),
    _pair(
        "first_nan",
        "the first NaN of a window gives the index",
        _one_nan,
        _first_nan,
        "max_pool.fprop:n1c1_i7_f2:fill=nan:seed=6430",
        F16,
        "max_pool.fprop:n1c1_i8_f2:dt=f16:fill=nan:seed=20462",
        (),
        ("max_pool",),
    ),
    _pair(
        "filter_gradient_not_conjugate",
        "complex filter gradient without a conjugate",
        lambda c: computes(c, "dw") and _COMPLEX(c),
        only_result(1, reading("x", m.conjugated)),
        "conv.wgrad:n1c1k1_i1_f1:dt=c128",
        lambda c: c.conv.groups > 1,
        "conv.wgrad:n1c2k2g2_i1_f1:dt=c128",
        ("c64", "c128"),
    ),
    _pair(
        "transposed_gradient_not_conjugate",
        "the same for the input of a transposed one",
        lambda c: computes(c, "dx") and c.conv.transposed and _COMPLEX(c),
        only_result(0, reading("w", m.conjugated)),
        "conv.dgrad:n1c1k1_i1_f1:t=1:dt=c128",
        _type("c128"),
        "conv.dgrad:n1c1k1_i1_f1:t=1:dt=c128",
        ("c64", "c128"),
    ),
    _pair(
        "conjugate_tangent",
        "complex tangents of a conjugated filter",
        lambda c: c.pass_ == "jvp" and _COMPLEX(c),
        writing("y", m.conjugated),
        "conv.jvp:n1c1k1_i1_f1:dt=c128:tan=0",
        lambda c: max(c.problem.stride) > 1,
        "conv.jvp:n1c1k1_i1_f1_s2:dt=c128:tan=0",
        ("c64", "c128"),
    ),
    _pair(
        "second_order_conjugate",
        "complex double backward conjugated",
        lambda c: c.pass_ == "double_backward" and _COMPLEX(c),
        writing("w", m.conjugated),
        "conv.double_backward:n1c1k1_i1_f1:dt=c128:tan=x:mask=001",
        lambda c: c.mask == (False, False, True),
        "conv.double_backward:n1c1k1_i1_f1:dt=c128:tan=x:mask=001",
        ("c64", "c128"),
    ),
    _pair(
        "complex_bias_gradient",
        "complex gradient of the bias conjugated",
        lambda c: computes(c, "db") and _COMPLEX(c),
        writing("b", m.conjugated),
        "conv.bgrad:n1c1k1_i1_f1:dt=c128",
        lambda c: not c.mask[0],
        "conv.bgrad:n1c1k1_i1_f1:dt=c128",
        ("c64", "c128"),
    ),
    _pair(
        "saturates_16",
        "16-bit integer sums saturate",
        _type("i16"),
        _saturated,
        "conv.jvp:n1c1k1_i1_f1:dt=i16:tan=0:fill=wide",
        lambda c: computes(c, "dw"),
        "conv.wgrad:n1c1k1_i1_f1:dt=i16:fill=wide",
        ("i8", "i16"),
    ),
    _pair(
        "integers_in_float32",
        "integer sums in float32",
        lambda c: fprop(c) and c.dtype in ("i16", "i32"),
        _in_float32,
        "conv.fprop:n1c1k1_i1_f1:dt=i16:fill=wide",
        lambda c: c.dtype == "i16" and c.products("y") > 8,
        "conv.fprop:n1c3k1_i1_f3_p1:dt=i16:fill=wide",
        ("i16", "i32"),
    ),
    _pair(
        "unsigned_as_signed",
        "unsigned bytes compared as signed ones",
        lambda c: FPROP(c) and c.dtype == "u8",
        _as_signed,
        "max_pool.fprop:n1c1_i1_f1_p0,1:dt=u8:fill=ones",
        lambda c: c.problem.ceil,
        "max_pool.fprop:n1c1_i0_f1_p1,0:ceil=1:dt=u8:fill=ones",
        ("u8", "i8"),
        ("max_pool",),
    ),
    _pair(
        "sixteen_bit_tail",
        "the last 16-bit integer of an odd number",
        lambda c: fprop(c) and c.dtype == "i16" and c.problem.output[-1] % 2 == 1,
        LAST,
        "conv.fprop:n1c1k1_i1_f1:dt=i16:fill=ones",
        lambda c: c.problem.rank == 1,
        "conv.fprop:n1c1k1_i1_f1:dt=i16:fill=ones",
        INTEGERS,
    ),
)
