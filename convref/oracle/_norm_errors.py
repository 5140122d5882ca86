"""S of every result of a norm, the scale of its rounding errors (docs/judge.md).

Where statistics are found from x, a bound to first order holds while n u K is small; K is the
loss of a variance to a mean that is large relative to it, or of var + eps where eps is negative.
Beyond, S is infinite, and where var + eps is below 0 it is NaN: nothing is judged.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..case import Call
from ..ops import GROUPS, FrozenNormProblem, Problem
from ._passes import by_role
from ._rounding import FIRST_ORDER, unit
from ._windows import Array, Results
from .norm import (
    broadcast,
    image,
    mean_of,
    mean_or_zero,
    over_images,
    per_weight,
    plus_eps,
    reciprocal_root,
    statistics,
)


class _Sizes(NamedTuple):
    """S of z, of P along any v, and rstd with its own error on the same scale."""

    z: Array
    rstd: Array
    level: Array  # mean |x|, 0 where no mean is subtracted
    spread: Array  # S of var: sqrt(var) rms
    call: Call

    def of_projection(self, v: Array) -> Array:
        """Return S of rstd P(v)."""
        v = np.abs(v)
        if isinstance(self.call.problem, FrozenNormProblem):
            return self.rstd * v
        mean, share = mean_or_zero(v, self.call.problem), mean_of(v * self.z, self.call.problem)
        return 2 * self.rstd * (v + mean + self.z * share)


def _sizes(call: Call, x: Array, *given: Array) -> _Sizes:
    problem, x = call.problem, image(x, call.problem)
    if isinstance(problem, FrozenNormProblem):
        level = np.abs(broadcast(given[0], problem))
        rstd = broadcast(reciprocal_root(plus_eps(given[1], problem)), problem)
        return _Sizes((np.abs(x) + level) * rstd, rstd, level, level, call)
    mean, var = statistics(x, problem)
    level, rms = mean_or_zero(np.abs(x), problem), np.sqrt(mean_of(x * x, problem))
    n_u = problem.products("mean") * unit(call)
    spread = np.sqrt(var) * rms + n_u * level * level
    power = plus_eps(var, problem)
    k = (spread + max(0.0, -problem.eps)) / np.abs(power)
    k = np.where(n_u * k > FIRST_ORDER, np.inf, k)
    rstd = reciprocal_root(power)
    z = rstd * (np.abs(x) + level + np.abs(x - mean) * (1 + k))
    return _Sizes(z, rstd * (1 + k), level, spread, call)


def _size(w: Array | None, problem: Problem, absent: float) -> Array:
    """Return |w| in the shape of the blocks, or `absent` if there is no weight."""
    return np.array(absent) if w is None else np.abs(w.reshape(problem.blocks.weight))


def _affine(sizes: _Sizes, w: Array | None, b: Array | None) -> Array:
    problem = sizes.call.problem
    return sizes.z * _size(w, problem, 1.0) + _size(b, problem, 0.0)


def norm_fprop_magnitudes(
    call: Call, x: Array, w: Array | None, b: Array | None, *old: Array
) -> Results:
    """Return S of y, of the statistics, and of the running ones."""
    problem = call.problem
    sizes = _sizes(call, x, *old)
    y = _affine(sizes, w, b).reshape(x.shape)
    if isinstance(problem, FrozenNormProblem):
        return (y,)
    shape = problem.shape("mean")
    level, spread, rstd = (s.reshape(shape) for s in (sizes.level, sizes.spread, sizes.rstd))
    if not old:
        return y, level, rstd
    m, unbiased = problem.momentum, problem.count / (problem.count - 1)
    new = over_images(level, problem), unbiased * over_images(spread, problem)
    updated = (abs(1 - m) * np.abs(o) + abs(m) * s for o, s in zip(old, new))
    return y, level, rstd, *updated


def norm_backward_magnitudes(
    call: Call, dy: Array, x: Array, w: Array | None, *given: Array
) -> Results:
    """Return S of dx, dw and db."""
    problem = call.problem
    sizes, dy = _sizes(call, x, *given), np.abs(image(dy, problem))
    found = (
        sizes.of_projection(dy * _size(w, problem, 1.0)).reshape(x.shape),
        per_weight(dy * sizes.z, problem),
        per_weight(dy, problem),
    )
    return tuple(s if on else None for s, on in zip(found, call.mask))


def _tangent(sizes: _Sizes, w: Array | None, dots: tuple[Array | None, ...]) -> Array:
    problem, (x_dot, w_dot, b_dot) = sizes.call.problem, dots
    assert x_dot is not None
    scaled = sizes.of_projection(image(x_dot, problem)) * _size(w, problem, 1.0)
    return scaled + sizes.z * _size(w_dot, problem, 0.0) + _size(b_dot, problem, 0.0)


def norm_jvp_magnitudes(
    call: Call, x: Array, w: Array | None, b: Array | None, *rest: Array
) -> Results:
    """Return S of y and y_dot."""
    sizes = _sizes(call, x, *rest[:-3])
    y_dot = _tangent(sizes, w, rest[-3:])
    return _affine(sizes, w, b).reshape(x.shape), y_dot.reshape(x.shape)


def _second_order(sizes: _Sizes, v: Array, g: Array) -> Array:
    """Return S of N.5: a product of up to four factors that each carry an error."""
    problem = sizes.call.problem
    if isinstance(problem, FrozenNormProblem):
        return np.zeros_like(v)
    a, b = mean_of(v * sizes.z, problem), mean_of(g * sizes.z, problem)
    v, g = v + mean_or_zero(v, problem), g + mean_or_zero(g, problem)
    inside = sizes.z * (mean_of(v * g, problem) + 3 * a * b) + b * v + a * g
    return 4 * sizes.rstd * sizes.rstd * inside


def norm_double_backward_magnitudes(
    call: Call,
    ddx: Array,
    ddw: Array | None,
    ddb: Array | None,
    dy: Array,
    x: Array,
    w: Array | None,
    *given: Array,
) -> Results:
    """Return S of ddy, dx and dw."""
    problem = call.problem
    sizes = _sizes(call, x, *given)
    v, g = np.abs(image(ddx, problem)), np.abs(image(dy, problem))
    dx = _second_order(sizes, v, g * _size(w, problem, 1.0))
    dx = dx + sizes.of_projection(g * _size(ddw, problem, 0.0))
    found = (
        _tangent(sizes, w, (ddx, ddw, ddb)).reshape(x.shape),
        dx.reshape(x.shape),
        per_weight(g * sizes.of_projection(v), problem),
    )
    return tuple(s if on else None for s, on in zip(found, call.mask))


_PASSES: dict[str, Callable[..., Results]] = {
    "fprop": norm_fprop_magnitudes,
    "backward": norm_backward_magnitudes,
    "jvp": norm_jvp_magnitudes,
    "double_backward": norm_double_backward_magnitudes,
}
MAGNITUDES = {
    (op, name): by_role(op, name, run) for op in GROUPS["norm"] for name, run in _PASSES.items()
}
