"""Convolution of samples at offsets; docs/sampling.md has the derivations.

With Gx for the samples, m for their factors and W for the product with the filter,

    y = W (m Gx) + b .

Each pass is a sum of products of these and their tangents, and has one sample in each term.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..ops import Problem
from ._passes import by_name
from ._taps import Sampler, taps
from ._windows import Array, Results

Sampling = Callable[[Array, Problem], Sampler]


def offset_positions(offset: Array, problem: Problem, axis: int) -> Array:
    """Return the positions (N * groups, taps * outputs) on one spatial axis."""
    given = offset.reshape(problem.n, problem.offset_groups, *problem.filter, 2, *problem.output)
    low, _ = problem.padding[axis]
    tap = problem.dilation[axis] * np.arange(problem.filter[axis])
    out = problem.stride[axis] * np.arange(problem.output[axis]) - low
    found = given[:, :, :, :, axis] + _on_axis(tap, 2 + axis) + _on_axis(out, 4 + axis)
    return _flat(found, problem)


def _on_axis(values: Array, axis: int) -> Array:
    return np.expand_dims(values, tuple(a for a in range(6) if a != axis))


def _flat(found: Array, problem: Problem) -> Array:
    length = prod(problem.filter) * prod(problem.output)
    return found.reshape(problem.n * problem.offset_groups, length)


def offset_sampler(offset: Array, problem: Problem) -> Sampler:
    """Return the sampler of all taps; beyond the image, at infinity and at NaN they are 0."""
    axes = []
    for a, size in enumerate(problem.input):
        at = offset_positions(offset, problem, a)
        axes.append(taps(np.where(abs(at) < np.inf, at, -2), size, "bilinear"))
    return Sampler(axes, problem.input)


class _Layout:
    """Arrays as the sums take them, and back; samples are (N * groups, C / groups, L)."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.batch = problem.n * problem.offset_groups
        self.length = prod(problem.filter) * prod(problem.output)
        self.channels = problem.c // problem.offset_groups

    def image(self, x: Array) -> Array:
        return x.reshape(self.batch, self.channels, *self.problem.input)

    def factors(self, mod: Array | None, like: Array) -> Array:
        if mod is None:
            return np.ones((self.batch, 1, self.length), like.dtype)
        return mod.reshape(self.batch, 1, self.length)

    def shifts(self, offset: Array) -> list[Array]:
        """Return the coordinates (N * groups, 1, L) of each axis."""
        pairs = offset.reshape(self.batch, prod(self.problem.filter), 2, prod(self.problem.output))
        return [pairs[:, :, a].reshape(self.batch, 1, self.length) for a in range(2)]

    def offset(self, shifts: list[Array]) -> Array:
        wide = (self.batch, prod(self.problem.filter), prod(self.problem.output))
        found = np.stack([s.reshape(wide) for s in shifts], 2)
        return found.reshape(self.problem.shape("offset"))

    def columns(self, samples: Array) -> Array:
        """Return samples as (N, groups, C / groups * taps, outputs)."""
        p = self.problem
        each = p.c // p.groups * prod(p.filter)
        return samples.reshape(p.n, p.groups, each, prod(p.output))

    def samples(self, columns: Array) -> Array:
        return columns.reshape(self.batch, self.channels, self.length)

    def filters(self, w: Array) -> Array:
        p = self.problem
        return w.reshape(p.groups, p.k // p.groups, p.c // p.groups * prod(p.filter))

    def cotangent(self, dy: Array) -> Array:
        p = self.problem
        return dy.reshape(p.n, p.groups, p.k // p.groups, prod(p.output))

    def output(self, w: Array, samples: Array) -> Array:
        found: Array = self.filters(w) @ self.columns(samples)
        return found.reshape(self.problem.shape("y"))

    def sample_cotangents(self, w: Array, dy: Array) -> Array:
        """Return the cotangent of the samples."""
        return self.samples(self.filters(w).swapaxes(1, 2) @ self.cotangent(dy))

    def weight(self, dy: Array, samples: Array) -> Array:
        found = self.cotangent(dy) @ self.columns(samples).swapaxes(2, 3)
        return found.sum(0).reshape(self.problem.shape("w"))


def _add_bias(y: Array, b: Array | None) -> Array:
    return y if b is None else y + b.reshape(1, -1, 1, 1)


def deform_conv_fprop(
    x: Array,
    offset: Array,
    w: Array,
    b: Array | None,
    mod: Array | None,
    problem: Problem,
    sampling: Sampling = offset_sampler,
) -> Array:
    """Return y (S.6).

    Examples
    --------
    >>> from convref.ops import FAMILY
    >>> problem = FAMILY["deform_conv"](n=1, c=1, input=(1, 3), filter=(1, 1), bias=False)
    >>> x, offset = np.array([[[[0., 8., 16.]]]]), np.array([[[[0., 0, 0]], [[0.5, 0, -2]]]])
    >>> deform_conv_fprop(x, offset, np.ones((1, 1, 1, 1)), None, None, problem)
    array([[[[4., 8., 0.]]]])
    """
    as_, at = _Layout(problem), sampling(offset, problem)
    samples = as_.factors(mod, x) * at.gather(as_.image(x), 0, 0)
    return _add_bias(as_.output(w, samples), b)


_SLOPES = ((1, 0), (0, 1))


def deform_conv_backward(
    dy: Array,
    x: Array,
    offset: Array,
    w: Array,
    mod: Array | None,
    problem: Problem,
    sampling: Sampling = offset_sampler,
) -> Results:
    """Return (dx, doffset, dw, db, dmod) (S.7)."""
    as_, at, image = _Layout(problem), sampling(offset, problem), _Layout(problem).image(x)
    m, back, samples = as_.factors(mod, x), as_.sample_cotangents(w, dy), at.gather(image, 0, 0)
    shifts = [(m * back * at.gather(image, *a)).sum(1) for a in _SLOPES]
    return (
        at.scatter(m * back, 0, 0).reshape(x.shape),
        as_.offset(shifts),
        as_.weight(dy, m * samples),
        dy.sum((0, 2, 3)),
        (back * samples).sum(1).reshape(problem.shape("mod")),
    )


def deform_conv_jvp(
    x: Array,
    offset: Array,
    w: Array,
    b: Array | None,
    mod: Array | None,
    x_dot: Array,
    offset_dot: Array,
    w_dot: Array,
    b_dot: Array | None,
    mod_dot: Array | None,
    problem: Problem,
    sampling: Sampling = offset_sampler,
) -> Results:
    """Return (y, y_dot) (S.8)."""
    as_, at = _Layout(problem), sampling(offset, problem)
    m, image = as_.factors(mod, x), as_.image(x)
    samples, moved = at.gather(image, 0, 0), _samples_tangent(as_, at, x_dot, x, offset_dot)
    change = m * moved
    if mod_dot is not None:
        change = change + as_.factors(mod_dot, x) * samples
    y_dot = as_.output(w_dot, m * samples) + as_.output(w, change)
    return _add_bias(as_.output(w, m * samples), b), _add_bias(y_dot, b_dot)


def deform_conv_double_backward(
    ddx: Array,
    ddoffset: Array,
    ddw: Array,
    ddb: Array | None,
    ddmod: Array | None,
    dy: Array,
    x: Array,
    offset: Array,
    w: Array,
    mod: Array | None,
    problem: Problem,
    sampling: Sampling = offset_sampler,
) -> Results:
    """Return (ddy, dx, doffset, dw, dmod) (S.9)."""
    as_, at, image = _Layout(problem), sampling(offset, problem), _Layout(problem).image(x)
    given = x, offset, w, None, mod, ddx, ddoffset, ddw, ddb, ddmod
    _, ddy = deform_conv_jvp(*given, problem, sampling)
    m, back, back_dot = (
        as_.factors(mod, x),
        as_.sample_cotangents(w, dy),
        as_.sample_cotangents(ddw, dy),
    )
    samples, moved = at.gather(image, 0, 0), _samples_tangent(as_, at, ddx, x, ddoffset)
    factor, change = back_dot * m, m * moved
    if ddmod is not None:
        m_dot = as_.factors(ddmod, x)
        factor, change = factor + back * m_dot, change + m_dot * samples
    shifts = [
        (factor * at.gather(image, *a)).sum(1)
        + (back * m * _samples_tangent(as_, at, ddx, x, ddoffset, a)).sum(1)
        for a in _SLOPES
    ]
    dx = at.scatter(factor, 0, 0)
    for a, shift in zip(_SLOPES, as_.shifts(ddoffset)):
        dx = dx + at.scatter(shift * back * m, *a)
    dmod = (back * moved + back_dot * samples).sum(1).reshape(problem.shape("mod"))
    return ddy, dx.reshape(x.shape), as_.offset(shifts), as_.weight(dy, change), dmod


def _samples_tangent(
    as_: _Layout, at: Sampler, x_dot: Array, x: Array, dot: Array, by: tuple[int, int] = (0, 0)
) -> Array:
    """Return the tangent of every sample, differentiated `by` its position."""
    found = at.gather(as_.image(x_dot), *by)
    for (i, j), shift in zip(_SLOPES, as_.shifts(dot)):
        found = found + shift * at.gather(as_.image(x), i + by[0], j + by[1])
    return found


FORMULAS: dict[Any, Any] = by_name(globals(), ("deform_conv",), masks=False)
