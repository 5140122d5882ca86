"""Tier 2, proven: no order of summation explains an error beyond the bound."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from .. import dtypes, oracle
from ..arrays import Array
from ..case import Call
from .nonfinite import judged_by_bounds
from .numerics import TF32_ETA, UNITS, Numerics, gamma
from .references import Exhibit, finite_part
from .verdicts import Verdict, beyond_limit


@dataclass(frozen=True)
class Distance:
    """The error of each element, and its limit.

    `moved` is the part of the limit due to rounded positions; `fine` marks the elements of
    `judged` whose error the bound explains.
    """

    model: Numerics
    error: Array
    limit: Array
    moved: Array | float
    judged: Array
    fine: Array
    worst: float


def measured(it: Exhibit, numerics: Numerics) -> Distance:
    """Return the errors of the result, their limits and which of them the bound explains."""
    model, among = numerics.held_to(it.call.dtype), judged_by_bounds(it)
    with np.errstate(all="ignore"):
        moved = _position_error(it, model)
        limit = bound(it.call, it.role, it.value, it.sums, model, it.ref.largest, moved)
        error = np.abs(it.got.astype(it.value.dtype) - it.value)
        fine = (error <= limit) | np.isinf(limit) | _overflows(it, limit, model) | ~among
        ratio = np.where(among & np.isfinite(error), error / limit, 0.0)
    return Distance(model, error, limit, moved, among, fine, float(ratio.max()))


def verdict(it: Exhibit, found: Distance, numerics: Numerics) -> Verdict:
    """Return whether the bound explains every error; an undeclared model makes it only suspect."""
    if found.fine.all():
        return Verdict("pass", "proven", it.role, outputs=it.got.size, worst=found.worst)
    kind = "suspect" if numerics.model == "undeclared" else "wrong"
    return beyond_limit(kind, "proven", it, found.error, found.limit, ~found.fine, found.worst)


def bound(
    call: Call,
    role: str,
    value: Array,
    sums: Array,
    numerics: Numerics,
    largest: float = 1.0,
    moved: Array | float = 0.0,
) -> Array:
    """Return, per element, the largest error of a correct result relative to the reference `value`.

    `sums` is the formula on absolute values, `largest` the largest operand in absolute value,
    `moved` by how much rounded sampling positions may change the result. Derivation: docs/judge.md.
    """
    part = real_products(call)
    n = part * call.products(role)
    out = dtypes.number(call.dtype_of(role))
    own = dtypes.number(dtypes.accumulator(call.dtype))
    acc = dtypes.number(accumulator_dtype(numerics))
    sums = sums * numerics.growth * (1 + 2 * gamma(n + 8, 2.0**-53))  # S has an error too
    tiny = max(acc.tiny, out.tiny) * max(1.0, largest) if numerics.ftz else acc.eta
    error: Array = numerics.gamma(n) * sums + n * tiny  # any order; underflow or flush
    if numerics.normwise:  # Winograd and FFT
        error = error + numerics.normwise * sums.max()
    error = error + gamma(n, own.u) * sums + n * own.eta + moved  # the reference is a sum too
    if cut := numerics.cut:  # tf32
        error = error + cut * sums + n * TF32_ETA * max(1.0, largest)
    last = out.tiny if numerics.ftz else out.eta
    if numerics.stages:  # results that are rounded on the way
        error = error + gamma(numerics.stages, out.u) * (sums + error) + numerics.stages * last
    if call.dtype_of(role) == accumulator_dtype(numerics):
        return error  # the last addition was the last rounding
    total: Array = error + out.u * (np.abs(value) + error) + last / (1 if numerics.ftz else 2)
    return total * sqrt(part)


def real_products(call: Call) -> int:
    """Return how many products of real numbers make up each part of a product."""
    return 2 if call.dtype in dtypes.COMPLEX else 1


def accumulator_dtype(numerics: Numerics) -> str:
    """Return the type that holds the partial sums."""
    return numerics.accumulator or "f32"


def _position_error(it: Exhibit, model: Numerics) -> Array | float:
    """Return by how much rounded positions may change the result."""
    ref = it.ref
    if (ref.call.op, ref.call.pass_) not in oracle.DISPLACEMENTS:
        return 0.0
    unit = UNITS[model.model] if model.positions is None else model.positions
    if (unit, model.weights) not in ref.moved:
        wide = dtypes.accumulator(ref.call.dtype)
        finite = (None if a is None else finite_part(a, wide) for a in ref.operands)
        found = oracle.displacements(ref.call, *finite, unit=unit, kept=model.weights)
        ref.moved[unit, model.weights] = found
    moved = ref.moved[unit, model.weights][it.place]
    assert moved is not None
    return moved


def _overflows(it: Exhibit, limit: Array, model: Numerics) -> Array:
    """Return where an infinity or NaN is explained by overflow, at the end or on the way."""
    out = dtypes.number(it.call.dtype_of(it.role))
    if it.call.dtype in dtypes.COMPLEX:
        right_sign: Any = ~np.isfinite(it.got)
    else:
        wide = it.got.astype(it.value.dtype)
        right_sign = np.isinf(wide) & (np.signbit(wide) == np.signbit(it.value))
    at_the_end: Array = right_sign & (np.abs(it.value) + limit >= out.huge * (1 - out.u))
    held = dtypes.number(it.call.dtype if model.stages else accumulator_dtype(model)).huge
    reached = it.sums * model.growth + limit >= held * (1 - out.u)
    return at_the_end | (~np.isfinite(it.got) & reached)
