"""Normalisation as loops: the elements of a mean, and of a weight, are lists of indices."""

from collections import defaultdict
from fractions import Fraction
from math import inf, nan, sqrt
from typing import Any

import numpy as np

from ...ops import (
    GROUPS,
    BatchNormProblem,
    FrozenNormProblem,
    GroupNormProblem,
    InstanceNormProblem,
    LayerNormProblem,
    Problem,
)
from .._passes import by_name
from ._zeros import Array, zeros

Index = tuple[int, ...]


def statistic_of(problem: Problem, at: Index) -> Index:
    """Return which mean the element at (n, c, ...) belongs to."""
    if isinstance(problem, InstanceNormProblem):
        return at[:2]
    if isinstance(problem, (BatchNormProblem, FrozenNormProblem)):
        return (at[1],)
    if isinstance(problem, GroupNormProblem):
        return at[0], at[1] // (problem.c // problem.groups)
    return (at[0],)


def weight_of(problem: Problem, at: Index) -> Index:
    """Return which weight the element at (n, c, ...) is multiplied by."""
    return at[1:] if isinstance(problem, LayerNormProblem) else (at[1],)


def members(problem: Problem) -> dict[Index, list[Index]]:
    """Return the elements of each mean."""
    found = defaultdict(list)
    for at in np.ndindex(problem.shape("x")):
        found[statistic_of(problem, at)].append(at)
    return found


def _share(total: Any, count: int) -> Any:
    return total * Fraction(1, count) if isinstance(total, Fraction) else total / count


def _number(value: float, like: Array) -> Any:
    return Fraction(value) if like.dtype == object else like.dtype.type(value)


def _root(value: Any) -> Any:
    if isinstance(value, Fraction):
        return Fraction(1 / sqrt(value)) if value > 0 else inf if value == 0 else nan
    return 1 / np.sqrt(value)


def moments(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return (mean, var), the variance about the computed mean, or about 0."""
    mean, var = zeros(problem.shape("mean"), x), zeros(problem.shape("mean"), x)
    for s, elements in members(problem).items():
        if problem.SUBTRACTS_MEAN:
            for at in elements:
                mean[s] += x[at]
            mean[s] = _share(mean[s], len(elements))
        for at in elements:
            var[s] += (x[at] - mean[s]) * (x[at] - mean[s])
        var[s] = _share(var[s], len(elements))
    return mean, var


def roots(var: Array, problem: Problem) -> Array:
    """Return 1 / sqrt(var + eps), one by one."""
    rstd = zeros(var.shape, var)
    for s in np.ndindex(var.shape):
        rstd[s] = _root(var[s] + _number(problem.eps, var))
    return rstd


def standard(x: Array, mean: Array, rstd: Array, problem: Problem) -> Array:
    z = zeros(x.shape, x)
    for at in np.ndindex(x.shape):
        s = statistic_of(problem, at)
        z[at] = (x[at] - mean[s]) * rstd[s]
    return z


def outputs(z: Array, w: Array | None, b: Array | None, problem: Problem) -> Array:
    y = zeros(z.shape, z)
    for at in np.ndindex(z.shape):
        k = weight_of(problem, at)
        y[at] = z[at] if w is None else z[at] * w[k]
        y[at] = y[at] if b is None else y[at] + b[k]
    return y


def derivative(v: Array, z: Array, rstd: Array, problem: Problem) -> Array:
    """Return the derivative of z along v, from that of each mean and variance."""
    z_dot = zeros(v.shape, v)
    for s, elements in members(problem).items():
        if isinstance(problem, FrozenNormProblem):  # z is not read: NaN stays in it
            for at in elements:
                z_dot[at] = v[at] * rstd[s]
            continue
        mean_dot = var_dot = v.dtype.type(0) if v.dtype != object else 0
        for at in elements:
            mean_dot = mean_dot + v[at]
            var_dot = var_dot + v[at] * z[at]  # half of it, and times rstd
        mean_dot, var_dot = _share(mean_dot, len(elements)), _share(var_dot, len(elements))
        mean_dot = mean_dot if problem.SUBTRACTS_MEAN else 0
        for at in elements:
            z_dot[at] = (v[at] - mean_dot - z[at] * var_dot) * rstd[s]
    return z_dot


def second_derivative(v: Array, g: Array, z: Array, rstd: Array, problem: Problem) -> Array:
    """Return the derivative of <v, derivative(g)> along x, by the product rule."""
    dx = zeros(v.shape, v)
    if isinstance(problem, FrozenNormProblem):
        return dx
    for s, elements in members(problem).items():
        nothing = Fraction(0) if v.dtype == object else v.dtype.type(0)
        sum_v = sum_g = sum_vz = sum_gz = sum_vg = nothing
        for at in elements:
            if problem.SUBTRACTS_MEAN:
                sum_v, sum_g = sum_v + v[at], sum_g + g[at]
            sum_vz, sum_gz = sum_vz + v[at] * z[at], sum_gz + g[at] * z[at]
            sum_vg = sum_vg + v[at] * g[at]
        count, r = len(elements), rstd[s]
        mean_v, mean_g = _share(sum_v, count), _share(sum_g, count)
        along_v, along_g = _share(sum_vz, count), _share(sum_gz, count)
        inner = _share(sum_vg, count) - mean_v * mean_g - along_v * along_g  # <v, P(g)> / M
        for at in elements:
            of_root = -r * z[at] * inner  # r moves by -r^2 z / M
            z_v = r * (v[at] - mean_v) - r * z[at] * along_v  # M times the change of along_v
            z_g = r * (g[at] - mean_g) - r * z[at] * along_g
            dx[at] = r * (of_root - z_v * along_g - along_v * z_g)
    return dx


def sums(v: Array, problem: Problem) -> Array:
    """Return v added up per weight, one element at a time."""
    total = zeros(problem.shape("w"), v)
    for at in np.ndindex(v.shape):
        total[weight_of(problem, at)] += v[at]
    return total


def times(v: Array, w: Array | None, problem: Problem) -> Array:
    """Return v times the weight of each element."""
    return v if w is None else outputs(v, w, None, problem)


def _updated(old: Array, new: Array, problem: Problem, factor: Fraction) -> Array:
    result = zeros(old.shape, old)
    m = _number(problem.momentum, old)
    scale = factor if old.dtype == object else old.dtype.type(float(factor))
    for (c,) in np.ndindex(old.shape):
        own = [at for at in np.ndindex(new.shape) if at[-1] == c]  # one, or one per image
        total = new[own[0]]
        for at in own[1:]:
            total = total + new[at]
        result[c] = (1 - m) * old[c] + m * (_share(total, len(own)) * scale)
    return result


def norm_fprop(x: Array, w: Any, b: Any, *old: Array, problem: Problem) -> tuple[Any, ...]:
    """Return (y, mean, rstd), and of batch norm the running statistics, updated."""
    mean, var = moments(x, problem)
    rstd = roots(var, problem)
    y = outputs(standard(x, mean, rstd, problem), w, b, problem)
    if not old:
        return y, mean, rstd
    count = len(next(iter(members(problem).values()), [0, 0]))
    unbiased = Fraction(count, count - 1)
    running = _updated(old[0], mean, problem, Fraction(1))
    return y, mean, rstd, running, _updated(old[1], var, problem, unbiased)


def batch_norm_eval_fprop(x: Array, w: Any, b: Any, *given: Array, problem: Problem) -> Array:
    """Return y, normalised by the statistics that are given."""
    return outputs(_normal(x, given, problem)[0], w, b, problem)


def _normal(x: Array, given: tuple[Array, ...], problem: Problem) -> tuple[Array, Array]:
    if isinstance(problem, FrozenNormProblem):
        mean, rstd = given[0], roots(given[1], problem)
    elif given:
        mean, rstd = given
        mean = zeros(rstd.shape, x) if mean is None else mean
    else:
        mean, var = moments(x, problem)
        rstd = roots(var, problem)
    return standard(x, mean, rstd, problem), rstd


def norm_backward(dy: Array, x: Array, w: Any, *given: Array, problem: Problem) -> tuple[Any, ...]:
    """Return (dx, dw, db); the derivative of z is symmetric, so it is its own adjoint."""
    z, rstd = _normal(x, given, problem)
    dx = derivative(times(dy, w, problem), z, rstd, problem)
    return dx, sums(dy * z, problem), sums(dy, problem)


def _along(z: Array, rstd: Array, w: Any, dots: Any, problem: Problem) -> Array:
    y_dot = times(derivative(dots[0], z, rstd, problem), w, problem)
    if dots[1] is not None:
        y_dot = y_dot + times(z, dots[1], problem)
    return y_dot if dots[2] is None else outputs(y_dot, None, dots[2], problem)


def norm_jvp(x: Array, w: Any, b: Any, *rest: Any, problem: Problem) -> tuple[Any, ...]:
    """Return (y, y_dot); `rest` are statistics that are given, then the tangents of x, w and b."""
    z, rstd = _normal(x, rest[:-3], problem)
    return outputs(z, w, b, problem), _along(z, rstd, w, rest[-3:], problem)


def norm_double_backward(
    ddx: Array, ddw: Any, ddb: Any, dy: Array, x: Array, w: Any, *given: Array, problem: Problem
) -> tuple[Any, ...]:
    z, rstd = _normal(x, given, problem)
    dx = second_derivative(ddx, times(dy, w, problem), z, rstd, problem)
    if ddw is not None:
        dx = dx + derivative(times(dy, ddw, problem), z, rstd, problem)
    dw = sums(dy * derivative(ddx, z, rstd, problem), problem)
    return _along(z, rstd, w, (ddx, ddw, ddb), problem), dx, dw


FORMULAS = by_name(
    globals(), GROUPS["norm"], masks=False, like=dict.fromkeys(GROUPS["norm"], "norm")
)
