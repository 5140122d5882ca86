"""Tier 3, likely: an error that random rounding very rarely reaches is suspect."""

from math import log, sqrt
from typing import Any

import numpy as np

from .. import dtypes
from ..arrays import Array
from ..case import Call
from .numerics import UNITS, Numerics, gamma
from .proven import Distance, accumulator_dtype, real_products
from .references import Exhibit
from .verdicts import Verdict, beyond_limit

FALSE_ALARM = 1e-9  # probability with which tier 3 may suspect a correct result


def applies(model: Numerics) -> bool:
    """Return whether errors have mean zero: rounding to nearest, and no intermediate rounding."""
    return model.model.startswith("rn") and not model.stages and not model.normwise


def suspicion(it: Exhibit, found: Distance) -> Verdict | None:
    """Return the verdict on errors that random rounding very rarely reaches, or None."""
    limit = _limit(it.call, it.role, it.value, it.sums, found.model) + found.moved
    odd = (found.error > limit) & found.judged & np.isfinite(found.error)
    if not odd.any():
        return None
    return beyond_limit("suspect", "statistical", it, found.error, limit, odd, found.worst)


def _limit(call: Call, role: str, value: Array, sums: Array, model: Numerics) -> Array:
    part, n = real_products(call), max(1, call.products(role))
    spread = sqrt(2 * log(2 * max(1, value.size) * n / FALSE_ALARM))
    out = dtypes.number(call.dtype_of(role))
    own = dtypes.number(dtypes.accumulator(call.dtype))
    sums = sums * model.growth
    floor: Any = n * dtypes.number(accumulator_dtype(model)).eta + out.eta
    floor = floor + gamma(part * n, own.u) * sums
    if model.cut:  # sums may be infinite
        floor = floor + model.cut * sums
    result: Array = spread * sqrt(part * n) * UNITS[model.model] * sums + out.u * np.abs(value)
    return result * sqrt(part) + floor
