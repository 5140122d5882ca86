"""Which kind each output must have (finite, +inf, -inf, NaN) when operands are not finite.

The oracle counts kinds on indicator arrays. Padding is zero there, so only real taps count. Where
an output reaches a non-finite operand through an absent tap (padding, crop, stride gap, outside
dy), NaN is allowed too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import oracle
from ..arrays import Array
from ..case import Call
from ..dtypes import COMPLEX
from ..ops import BASE_ROLE, OWN_TYPE, TERMS, ConvProblem

Indicator = Callable[[Array], Array]


# Of wide operands; where a count is not signed, an indicator is boolean.
_ones, _nan, _infinite, _zero = np.ones_like, np.isnan, np.isinf, np.logical_not


def _sign(a: Array) -> Array:
    return np.nan_to_num(np.sign(a), nan=0.0)


def _positive(a: Array) -> Array:
    return np.abs(_sign(a))


def _signed_infinite(a: Array) -> Array:
    return np.isinf(a) * _sign(a)


def _nonfinite(a: Array) -> Array:
    return (~np.isfinite(a)).astype(float)


@dataclass(frozen=True)
class Kinds:
    """Per output: must it be NaN, +inf or -inf, and may it be NaN by a leak?"""

    nan: Array
    plus: Array
    minus: Array
    lenient: Array
    free: Array | None = None  # not judged at all
    wild: Array | None = None  # must be NaN or infinite


def kinds(call: Call, operands: Sequence[Array | None]) -> dict[str, Kinds]:
    """Return the required kinds of each wanted result."""
    wide = tuple(
        a if a is None or role in OWN_TYPE else _wide(a) for role, a in zip(call.roles, operands)
    )
    with np.errstate(all="ignore"):
        return {
            role: _rule_of(call, TERMS[call.op, call.pass_, role].kind)(call, role, wide)
            for role in call.wanted
        }


def _rule_of(call: Call, kind: str) -> Callable[..., Kinds]:
    if kind == "weighted":
        return _weighted_kinds
    if kind != "sum":
        return _formula_kinds
    return _complex_kinds if call.dtype in COMPLEX else _real_kinds


def _formula_kinds(call: Call, role: str, operands: tuple[Array | None, ...]) -> Kinds:
    """Require the kinds of the formula in float64; of derivatives, only whether they are finite.

    Whether a derivative at infinity is its limit, inf or NaN depends on the order of
    multiplication, and so does an output of parameters that are not finite.
    """
    value = _evaluated(call, role, operands)
    never = np.zeros(value.shape, bool)
    rest = [a for name, a in zip(call.roles, operands) if a is not None and name != "x"]
    if role != "y" or not all(np.isfinite(a).all() for a in rest):
        met = [~np.isfinite(a) for a in operands if a is not None and a.shape == value.shape]
        lenient = np.logical_or.reduce(met) if met and role != "y" else never
        return Kinds(never, never, never, lenient, wild=~np.isfinite(value))
    return Kinds(np.isnan(value), value == np.inf, value == -np.inf, never)


def _weighted_kinds(call: Call, role: str, operands: tuple[Array | None, ...]) -> Kinds:
    """Require the kinds given by weights of certain sign; those of 0 may be skipped or multiplied.

    A tap beyond the image reads the edge again, perhaps with weight 0 or of the other sign. With a
    kernel that has such taps, an infinity may become NaN.
    """
    (operand,) = operands
    assert operand is not None
    plus, minus, nan, perhaps = oracle.nonfinite_counts(
        call, _signed_infinite(operand), np.isnan(operand).astype(float)
    )
    must_nan = (nan > 0) | ((plus > 0) & (minus > 0))
    free = (perhaps > 0) & (plus + minus + nan == 0)
    known = ~must_nan & (call.dtype not in COMPLEX and not call.problem.axes[0].radius)
    wild = (plus + minus > 0) & ~must_nan & ~known
    return Kinds(must_nan, known & (plus > 0), known & (minus > 0), free, free, wild)


def _wide(a: Array) -> Array:
    """Return `a` in float64; of complex numbers the modulus, which is as finite as they are."""
    return (np.abs(a) if a.dtype.kind == "c" else a).astype(np.float64)


def _real_kinds(call: Call, role: str, operands: tuple[Array | None, ...]) -> Kinds:
    def count(f: Indicator, g: Indicator, linear: Indicator = np.zeros_like) -> Array:
        return _count(call, role, operands, f, g, linear)

    nan = np.abs(count(_nan, _ones, _nan)) + count(_ones, _nan)
    nan = nan + count(_infinite, _zero) + count(_zero, _infinite)
    total = np.abs(count(_infinite, _positive, _infinite)) + count(_positive, _infinite)
    signed = count(_signed_infinite, _sign, _signed_infinite) + count(_sign, _signed_infinite)
    plus, minus = total + signed > 0, total - signed > 0
    must_nan = (nan > 0) | (plus & minus)
    return Kinds(must_nan, plus & ~must_nan, minus & ~must_nan, _lenient(call, role, operands))


def _complex_kinds(call: Call, role: str, operands: tuple[Array | None, ...]) -> Kinds:
    """Judge only outputs of finite numbers: products of complex infinities have no rule."""
    met = _count(call, role, operands, _nonfinite, _ones, _nonfinite)
    met = met + _count(call, role, operands, _ones, _nonfinite)
    lenient = _lenient(call, role, operands)
    never = np.zeros_like(lenient)
    return Kinds(never, never, never, lenient | (met > 0), free=(met > 0) | lenient)


def _count(
    call: Call,
    role: str,
    operands: tuple[Array | None, ...],
    f: Indicator,
    g: Indicator,
    linear: Indicator = np.zeros_like,
) -> Array:
    """Return the sum over real taps of f(first factor) * g(second factor), plus linear(added)."""
    terms = call.terms(role)
    maps = dict.fromkeys(terms.added, linear)
    for first, second in terms.products:
        maps |= {first: f, second: g}
    kept = oracle.selectors(call)
    marked = {
        name: a if a is None or name in kept else maps.get(name, np.zeros_like)(a)
        for name, a in zip(call.roles, operands)
    }
    counted = {name for name in maps if (a := marked[name]) is not None and a.any()}
    if not counted.intersection(terms.added) and not any(
        counted.issuperset(pair) for pair in terms.products
    ):
        return np.zeros(call.problem.shape(role))
    return _evaluated(call, role, tuple(marked.values()))


def _evaluated(call: Call, role: str, operands: tuple[Array | None, ...]) -> Array:
    results = call.signature.results
    mask = tuple(r == role for r in results) if call.mask else ()
    wide = {"accumulate": "f64", "out": "f64"}
    values = oracle.evaluate(replace(call, mask=mask), *operands, **wide)
    value = values[results.index(role)]
    assert value is not None
    return value


def _lenient(call: Call, role: str, operands: tuple[Array | None, ...]) -> Array:
    """Return where the taps could reach more non-finite factors than real taps multiply."""
    arrays = dict(zip(call.roles, operands))
    reach, met = np.zeros(call.problem.shape(role)), np.zeros(call.problem.shape(role))
    if not isinstance(call.problem, ConvProblem):  # all taps are real
        return reach > met
    for first, second in TERMS[call.op, call.pass_, role].products:
        behind = (first, second) if BASE_ROLE[role] == "w" else (second,)
        pair = arrays[first], arrays[second]
        if pair[0] is not None and pair[1] is not None:
            reach = sum((_in_reach(call, role, r, arrays[r]) for r in behind), reach)
        else:  # a backend may replace an absent tangent by zeros, which meet the other factor
            reach = reach + sum(bool(_nonfinite(a).any()) for a in pair if a is not None)
    if call.terms(role).products:
        met = _count(call, role, operands, _ones, _nonfinite)
    if BASE_ROLE[role] == "w":
        met = met + _count(call, role, operands, _nonfinite, _ones)
    return reach > met


def _in_reach(call: Call, role: str, name: str, operand: Array | None) -> Any:
    """Return how many non-finite elements any tap, real or absent, could bring to each output."""
    assert operand is not None
    marks, problem, g = _nonfinite(operand), call.conv, call.conv.groups
    space = tuple(range(2, 2 + problem.rank))
    if BASE_ROLE[name] == "w":
        by_group = marks.sum(axis=space).reshape(g, marks.shape[0] // g, marks.shape[1])
        to_columns = (BASE_ROLE[role] == "x") != problem.transposed
        per_channel = by_group.sum(axis=1 if to_columns else 2).ravel()
        return per_channel.reshape(1, per_channel.size, *(1,) * problem.rank)
    summed = marks.sum(axis=(0, *space))  # per channel of x or y
    if (BASE_ROLE[name] == "y") != problem.transposed:  # the channels of w's first axis
        return summed.reshape(summed.size, 1, *(1,) * problem.rank)
    rows, columns = problem.shape("w")[:2]
    by_row = np.repeat(summed.reshape(g, columns), rows // g, axis=0)
    return by_row.reshape(rows, columns, *(1,) * problem.rank)
