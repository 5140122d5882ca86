"""Normalisation: x less its mean, over its deviation, times a weight; and its derivatives.

Every norm is the same formula on an image with four axes (`convref.ops.norm.Blocks`); they differ
in the axes over which a mean is taken. With M elements to a mean, all sums over those:

    mean   =  sum x / M          var  =  sum (x - mean)^2 / M        (N.1)
    rstd   =  1 / sqrt(var + eps)                                    (N.2)
    z      =  (x - mean) rstd    y    =  w z + b                     (N.3)
    P(v)   =  v - sum v / M - z sum (v z) / M                        (N.4)

rstd P(v) is the derivative of z along v, and P is its own adjoint. Only N.2 is not rational:
in arrays of Fractions it is the nearest float64, and everything else is exact.
"""

from fractions import Fraction
from math import inf, nan, sqrt
from typing import Any

import numpy as np

from ..ops import GROUPS, FrozenNormProblem, Problem
from ._blocks import in_groups
from ._passes import by_name
from ._windows import Array, Results


def image(x: Array, problem: Problem) -> Array:
    """Return x with the four axes of `Blocks`."""
    return x.reshape(problem.blocks.image)


def broadcast_weight(w: Array | None, problem: Problem) -> Array | None:
    """Return a weight with the axes of `Blocks`."""
    return None if w is None else w.reshape(problem.blocks.weight)


def broadcast(statistic: Array, problem: Problem) -> Array:
    """Return a mean or rstd with the axes of `Blocks`."""
    axes = enumerate(problem.blocks.image)
    over = problem.blocks.statistics
    return statistic.reshape([1 if axis in over else size for axis, size in axes])


def mean_of(v: Array, problem: Problem) -> Array:
    """Return the mean of v (N, G, C/G, positions) over the axes of a statistic, kept as 1."""
    sums = v.sum(axis=problem.blocks.statistics, keepdims=True)
    count = max(1, problem.count)  # batch norm without channels has none
    return sums * Fraction(1, count) if v.dtype == object else sums / count


def mean_or_zero(v: Array, problem: Problem) -> Array:
    """Return what the norm subtracts from v: its mean, or zeros."""
    mean = mean_of(v, problem)
    return mean if problem.SUBTRACTS_MEAN else np.zeros_like(mean)


def reciprocal_root(v: Array) -> Array:
    """Return 1 / sqrt(v); of Fractions, the float64 next to it as a Fraction (N.2)."""
    if v.dtype == object:
        return np.vectorize(_fraction_root, otypes=[object])(v)
    return 1 / np.sqrt(v)


def _fraction_root(v: Any) -> Any:
    """Return 1 / sqrt(v) as a Fraction; of 0 infinity, and NaN below."""
    try:
        return Fraction(1 / sqrt(v)) if v > 0 else inf if v == 0 else nan
    except OverflowError:  # v is beyond float64
        return Fraction(0)
    except ZeroDivisionError:  # v is below its least number
        return inf


def plus_eps(var: Array, problem: Problem) -> Array:
    """Return var + eps; of Fractions, exactly."""
    return var + (Fraction(problem.eps) if var.dtype == object else var.dtype.type(problem.eps))


def statistics(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return (mean, var) of an image, in two passes (N.1); a mean that is not taken is 0.

    >>> from convref.ops import GroupNormProblem
    >>> problem = GroupNormProblem(n=1, c=2, input=(2,))
    >>> mean, var = statistics(np.array([[[[1., 3.], [5., 7.]]]]), problem)
    >>> mean.item(), var.item()
    (4.0, 5.0)
    """
    mean = mean_or_zero(x, problem)
    centred = x - mean
    centred *= centred
    return mean, mean_of(centred, problem)


def normalised(x: Array, mean: Array, rstd: Array) -> Array:
    """Return z of N.3."""
    z = x - mean
    z *= rstd
    return z


def affine(z: Array, w: Array | None, b: Array | None) -> Array:
    """Return w z + b, a missing w is 1 and a missing b 0; z is overwritten."""
    if w is not None:
        z *= w
    if b is not None:
        z += b
    return z


def project(v: Array, z: Array, problem: Problem) -> Array:
    """Return P(v) of N.4: v without its mean and without its share of z. Symmetric in v.

    Given statistics do not move with x: then P(v) = v.

    >>> from convref.ops import GroupNormProblem
    >>> problem = GroupNormProblem(n=1, c=1, input=(2,), eps=0)
    >>> project(np.array([[[[5., 7.]]]]), np.array([[[[-1., 1.]]]]), problem).ravel()
    array([0., 0.])
    """
    if isinstance(problem, FrozenNormProblem):
        return v
    along = v * z
    share = mean_of(along, problem)
    np.multiply(z, share, out=along)
    along += mean_or_zero(v, problem)
    return np.subtract(v, along, out=along)


def input_gradient(g: Array, z: Array, rstd: Array, problem: Problem) -> Array:
    """Return the cotangent of x where g = w dy is that of z: rstd P(g)."""
    return project(g, z, problem) * rstd


def per_weight(v: Array, problem: Problem) -> Array:
    """Return v, all groups of it or some, summed over all elements that share a weight."""
    sums = v.sum(axis=problem.blocks.broadcast_axes, keepdims=True)
    return sums.reshape(sums.shape[1] * sums.shape[2], *problem.shape("w")[1:])


def second_derivative(v: Array, g: Array, z: Array, rstd: Array, problem: Problem) -> Array:
    """Return the derivative of <v, rstd P(g)> along x (N.5).

    With a = sum (v z) / M, b = sum (g z) / M, v' and g' without their means and
    A = sum (v' g') / M, that is -rstd^2 (z (A - 3 a b) + b v' + a g').
    """
    if isinstance(problem, FrozenNormProblem):
        return np.zeros_like(z)
    a, b = mean_of(v * z, problem), mean_of(g * z, problem)
    v, g = v - mean_or_zero(v, problem), g - mean_or_zero(g, problem)
    return -rstd * rstd * (z * (mean_of(v * g, problem) - 3 * a * b) + b * v + a * g)


def over_images(statistic: Array, problem: Problem) -> Array:
    """Return a statistic per channel: the mean over images of one that each image has."""
    if statistic.shape == problem.shape("rmean"):
        return statistic
    sums = statistic.sum(axis=0)
    return sums * Fraction(1, problem.n) if statistic.dtype == object else sums / problem.n


def running(old: Array, new: Array, problem: Problem, unbiased: bool = False) -> Array:
    """Return (1 - momentum) old + momentum new, the mean over images where each has its own.

    A variance is first made unbiased.

    >>> from convref.ops import BatchNormProblem
    >>> problem = BatchNormProblem(n=2, c=1, input=(1,), momentum=0.5)
    >>> running(np.array([1.]), np.array([3.]), problem, unbiased=True)
    array([3.5])
    """
    new = over_images(new, problem)
    exact = new.dtype == object
    share = Fraction(problem.momentum) if exact else new.dtype.type(problem.momentum)
    if unbiased:
        factor = Fraction(problem.count, problem.count - 1)
        new = new * (factor if exact else new.dtype.type(float(factor)))
    return (1 - share) * old + share * new


def _moments(problem: Problem, x: Array) -> tuple[Array, Array, Array]:
    mean, var = statistics(x, problem)
    return mean, var, reciprocal_root(plus_eps(var, problem))


def norm_fprop(
    x: Array, w: Array | None, b: Array | None, *old: Array, problem: Problem
) -> Results:
    """Return (y, mean, rstd), and of batch norm the running statistics, updated."""
    mean, var, rstd = _moments(problem, image(x, problem))
    z = normalised(image(x, problem), mean, rstd)
    y = affine(z, broadcast_weight(w, problem), broadcast_weight(b, problem)).reshape(x.shape)
    mean, var, rstd = (s.reshape(problem.shape("mean")) for s in (mean, var, rstd))
    if not old:
        return y, mean, rstd
    updated = running(old[0], mean, problem), running(old[1], var, problem, unbiased=True)
    return y, mean, rstd, *updated


def batch_norm_eval_fprop(
    x: Array, w: Array | None, b: Array | None, mean: Array, var: Array, *, problem: Problem
) -> Array:
    """Return y, normalised by the statistics that are given."""
    z, _ = _normal(problem, image(x, problem), broadcast(mean, problem), broadcast(var, problem))
    y = affine(z, broadcast_weight(w, problem), broadcast_weight(b, problem))
    return y.reshape(x.shape)


def _broadcast(given: tuple[Array | None, ...], problem: Problem) -> list[Array]:
    return [broadcast(s, problem) for s in given if s is not None]


def _normal(problem: Problem, x: Array, *given: Array) -> tuple[Array, Array]:
    """Return (z, rstd), from statistics given as mean and variance, saved by fprop, or computed."""
    if isinstance(problem, FrozenNormProblem):
        mean, rstd = given[0], reciprocal_root(plus_eps(given[1], problem))
    elif given:
        rstd = given[-1]
        mean = given[0] if problem.SUBTRACTS_MEAN else np.zeros_like(rstd)
    else:
        mean, _, rstd = _moments(problem, x)
    return normalised(x, mean, rstd), rstd


def _scaled(v: Array, w: Array | None) -> Array:
    return v if w is None else v * w


def norm_backward(
    dy: Array, x: Array, w: Array | None, *given: Array, problem: Problem, mask: tuple[bool, ...]
) -> Results:
    """Return (dx, dw, db); `given` are the statistics that the pass has."""

    def of(dy: Array, x: Array, w: Array | None, *given: Array) -> Results:
        z, rstd = _normal(problem, x, *given)
        return (
            input_gradient(_scaled(dy, w), z, rstd, problem) if mask[0] else None,
            per_weight(dy * z, problem)[None] if mask[1] else None,
            per_weight(dy, problem)[None] if any(mask[2:]) else None,
        )

    images = image(dy, problem), image(x, problem), broadcast_weight(w, problem)
    found = in_groups(of, *images, *_broadcast(given, problem))
    shapes = x.shape, problem.shape("w"), problem.shape("b")
    return tuple(None if f is None else f.reshape(shape) for f, shape in zip(found, shapes))


def _tangent(
    problem: Problem, z: Array, rstd: Array, w: Array | None, dots: tuple[Any, ...]
) -> Array:
    """Return the derivative of y along the dots of x, w and b."""
    x_dot, w_dot, b_dot = dots
    y_dot = input_gradient(image(x_dot, problem), z, rstd, problem)
    y_dot = _scaled(y_dot, broadcast_weight(w, problem))
    if w_dot is not None:
        y_dot = y_dot + broadcast_weight(w_dot, problem) * z
    return y_dot if b_dot is None else y_dot + broadcast_weight(b_dot, problem)


def norm_jvp(x: Array, w: Array | None, b: Array | None, *rest: Any, problem: Problem) -> Results:
    """Return (y, y_dot); `rest` are statistics that are given, then the tangents of x, w and b."""
    given, dots = rest[:-3], rest[-3:]
    z, rstd = _normal(problem, image(x, problem), *_broadcast(given, problem))
    y_dot = _tangent(problem, z, rstd, w, dots)
    y = affine(z, broadcast_weight(w, problem), broadcast_weight(b, problem))
    return y.reshape(x.shape), y_dot.reshape(x.shape)


def norm_double_backward(
    ddx: Array,
    ddw: Array | None,
    ddb: Array | None,
    dy: Array,
    x: Array,
    w: Array | None,
    *given: Array,
    problem: Problem,
    mask: tuple[bool, ...],
) -> Results:
    """Return (ddy, dx, dw), the cotangents of (dy, x, w) through the backward pass."""
    z, rstd = _normal(problem, image(x, problem), *_broadcast(given, problem))
    v, g = image(ddx, problem), image(dy, problem)
    ddy = dx = dw = None
    if mask[0]:
        ddy = _tangent(problem, z, rstd, w, (ddx, ddw, ddb)).reshape(x.shape)
    if mask[1]:
        dx = second_derivative(v, _scaled(g, broadcast_weight(w, problem)), z, rstd, problem)
        if ddw is not None:
            dx = dx + input_gradient(g * broadcast_weight(ddw, problem), z, rstd, problem)
        dx = dx.reshape(x.shape)
    if mask[2]:
        dw = per_weight(g * input_gradient(v, z, rstd, problem), problem)
    return ddy, dx, dw


FORMULAS = by_name(
    globals(), GROUPS["norm"], masks=True, like=dict.fromkeys(GROUPS["norm"], "norm")
)
