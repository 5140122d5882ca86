"""Variances, and norms by a mean and a variance."""

import math
from typing import Any, NamedTuple

import torch

from ..pair import Op, Pair, Tensor
from .arithmetic import add, mul
from .pointwise import pointwise
from .table import rule

FIRST_ORDER = 0.25  # largest relative error of var + eps to which the proof extends


class _Moments(NamedTuple):
    """A mean and a biased variance along axes, which are kept."""

    mean: Pair
    variance: Pair
    level: Tensor  # the mean of |x|
    centered: Tensor  # x - mean


def _moments(op: Op, x: Pair, axes: Any) -> _Moments:
    """Return mean and variance; docs/judge.md derives their roundings."""
    wide = x.wide
    mean = wide.mean(axes, keepdim=True)
    centered, count = wide - mean, wide.numel() // max(1, mean.numel())

    def averaged(t: Tensor, order: int) -> Tensor:
        """Return the mean of a power of absolute values."""
        return torch.linalg.vector_norm(t, order, axes, keepdim=True) ** order / count

    deviation = averaged(centered, 2).sqrt()
    variance = deviation.square()
    if x.error is None:
        level, square = averaged(wide, 1), variance + mean.square()
    else:
        level, square = averaged(x.magnitude, 1), averaged(x.magnitude, 2)
    n = 2 * count + 16
    acc, error, spread = op.with_dtype(op.accumulator), 0.0, 0.0
    if x.error is not None:
        error = x.error.mean(axes, keepdim=True)
        moved = x.error.square().mean(axes, keepdim=True).sqrt()
        spread = 2 * deviation * moved + moved.square()
        deviation = deviation + moved
    size = deviation * square.sqrt() + n * acc.gamma(1) * level.square()
    center, square = acc.rounded(mean, error, level, n), acc.rounded(variance, spread, size, n)
    return _Moments(center._replace(stored=False), square._replace(stored=False), level, centered)


def _normalized(
    op: Op, x: Pair, axes: Any, eps: float, stages: int = 0
) -> tuple[Pair, Pair, _Moments]:
    """Return (x - mean) rstd, not yet rounded to the dtype, rstd, and the moments."""
    found = _moments(op, x, axes)
    z, rstd = _scaled_by(op, x, found, eps, stages)
    return z, rstd, found


def _scaled_by(
    op: Op, x: Pair, moments: _Moments, eps: float, stages: int = 0
) -> tuple[Pair, Pair]:
    """Return (x - mean) / sqrt(variance + eps), also as x a + c with rounded a and c."""
    mean, variance, level, centered = moments
    acc = op.with_dtype(op.accumulator)
    v = variance.wide + eps
    least = v - variance.slack
    bounded = least > (1 - FIRST_ORDER) * v
    r = v.rsqrt()
    largest = torch.where(bounded, least.clamp(min=0.0).rsqrt(), torch.inf)
    # mean and rstd may be rounded to the dtype
    rounded = stages * torch.finfo(op.dtype).eps / 2 if op.dtype != op.accumulator else 0.0
    rstd = acc.rounded(r, largest - r + rounded * largest, largest, 16)._replace(stored=False)
    moved, far = x.slack + mean.slack, centered.abs()
    size = (x.magnitude.add_(level + moved).add_(far)).mul_(largest)
    error = far.mul_(largest - r).add_(moved * largest)
    error = error.add_(size, alpha=rounded) if rounded else error
    return acc.rounded(centered.mul_(r), error, size, 16), rstd


def _affine(op: Op, z: Pair, w: Pair | None, b: Pair | None) -> Pair:
    """Return w z + b, also as x a + c, whose c = b - mean a is rounded relative to b."""
    acc = op.with_dtype(op.accumulator)
    if w is not None:
        z = mul(acc, z, w)
    if b is not None:
        if z.error is not None:
            z = z._replace(error=z.error + acc.gamma(2) * b.magnitude)
        z = add(acc, z, b)
    return z._replace(stored=op.dtype == op.accumulator)


def _shaped(p: Pair | None, shape: Any) -> Pair | None:
    if p is None:
        return None
    error = None if p.error is None else p.error.reshape(shape)
    return Pair(p.value.reshape(shape), error, p.stored)


@rule("native_layer_norm")
def layer_norm(
    op: Op, x: Pair, shape: Any, w: Pair | None, b: Pair | None, eps: float
) -> tuple[Pair, ...]:
    z, rstd, found = _normalized(op, x, tuple(range(-len(shape), 0)), eps)
    return _affine(op, z, w, b), found.mean, rstd


@rule("native_group_norm")
def group_norm(
    op: Op,
    x: Pair,
    w: Pair | None,
    b: Pair | None,
    n: int,
    c: int,
    hxw: int,
    groups: int,
    eps: float,
) -> tuple[Pair, ...]:
    z, rstd, found = _normalized(op, _of(_shaped(x, (n, groups, -1))), (2,), eps)
    channels = (1, c) + (1,) * (x.value.ndim - 2)
    z = _of(_shaped(z, x.value.shape))
    y = _affine(op, z, _shaped(w, channels), _shaped(b, channels))
    return y, _of(_shaped(found.mean, (n, groups))), _of(_shaped(rstd, (n, groups)))


def _of(p: Pair | None) -> Pair:
    assert p is not None
    return p


@rule("native_batch_norm", "_native_batch_norm_legit")
def batch_norm(
    op: Op,
    x: Pair,
    w: Pair | None,
    b: Pair | None,
    running_mean: Pair | None,
    running_var: Pair | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Pair | None, ...]:
    """Return y, mean and rstd; in training also the running statistics, which are written."""
    shape = (1, -1) + (1,) * (x.value.ndim - 2)
    w, b = _shaped(w, shape), _shaped(b, shape)
    if not training:
        mean, variance = _of(_shaped(running_mean, shape)), _of(_shaped(running_var, shape))
        moments = _Moments(mean, variance, mean.magnitude, x.wide - mean.wide)
        z, _ = _scaled_by(op, x, moments, eps, stages=2)
        return _affine(op, z, w, b), None, None
    axes = tuple(axis for axis in range(x.value.ndim) if axis != 1)
    z, rstd, found = _normalized(op, x, axes, eps, stages=2)
    y, mean, flat = _affine(op, z, w, b), found.mean, (-1,)
    kept: tuple[Pair | None, ...] = ()
    if running_mean is not None and running_var is not None:
        acc = op.with_dtype(op.accumulator)
        count = x.value.numel() // max(1, mean.value.numel())
        unbiased = mul(acc, found.variance, count / max(1, count - 1))
        kept = tuple(
            add(acc, mul(acc, old, 1 - momentum), mul(acc, _of(_shaped(new, flat)), momentum))
            for old, new in ((running_mean, mean), (running_var, unbiased))
        )
    return y, _of(_shaped(mean, flat)), _of(_shaped(rstd, flat)), *kept


@rule("_native_batch_norm_legit_no_training")
def batch_norm_eval(
    op: Op, x: Pair, w: Any, b: Any, mean: Pair, var: Pair, _: float, eps: float
) -> Any:
    return batch_norm(op, x, w, b, mean, var, False, 0.0, eps)


@rule("var")
def var(
    op: Op, x: Pair, dim: Any = None, *more: Any, correction: float | None = None, **named: Any
) -> Pair:
    """Return a variance; the argument after dim is keepdim, or unbiased and keepdim before 2.0."""
    if isinstance(dim, bool):
        correction, dim = float(dim), None
    if len(more) == 2:
        correction, more = float(more[0]), more[1:]
    keepdim = named.get("keepdim", more[0] if more else False)
    axes = _axes(x, dim)
    found = _moments(op, x, axes)
    count = x.value.numel() // max(1, found.mean.value.numel())
    divisor = max(0.0, count - (1.0 if correction is None else correction))
    factor = count / divisor if divisor else math.inf
    scaled = mul(op.with_dtype(op.accumulator), found.variance, 1.0)
    error = None if scaled.error is None else scaled.error * factor
    total = Pair(scaled.value * factor, error, stored=op.dtype == op.accumulator)
    return total if keepdim else _of(_shaped(total, found.mean.value.squeeze(axes).shape))


def _axes(x: Pair, dim: Any) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(x.value.ndim))
    return (dim,) if isinstance(dim, int) else tuple(dim)


@rule("std")
def std(op: Op, x: Pair, *settings: Any, **named: Any) -> Pair:
    return pointwise(torch.sqrt, n=4)(op, var(op.with_dtype(op.accumulator), x, *settings, **named))


@rule("var_mean")
def var_mean(op: Op, x: Pair, *settings: Any, **named: Any) -> tuple[Pair, Pair]:
    variance = var(op, x, *settings, **named)
    axes = _axes(x, settings[0] if settings else named.get("dim"))
    return variance, _of(_shaped(_moments(op, x, axes).mean, variance.value.shape))


@rule("linalg_vector_norm", "norm")
def vector_norm(
    op: Op, x: Pair, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Pair:
    """Return a norm along axes, which moves by at most the norm of the errors."""
    order = 2 if order is None else order
    if order < 1:
        return op.rounded(torch.zeros(()), math.inf, torch.zeros(()))

    def f(t: Tensor) -> Tensor:
        return torch.linalg.vector_norm(t, order, dim or None, keepdim)

    value, largest = f(x.wide), f(x.magnitude)
    count = x.value.numel() // max(1, value.numel())
    n = count + 4 if order in (1, 2) else count + 64
    n, largest = (0, largest * 0) if math.isinf(order) else (n, largest)
    return op.rounded(value, 0.0 if x.error is None else f(x.error), largest, n)
