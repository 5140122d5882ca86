"""Sampling an image between its elements; docs/sampling.md has the derivations.

`gather` sums the elements around a position x with weights that are a product over axes, and
`scatter` is its adjoint (`convref.oracle._taps`). With d_a for the derivative by the coordinate on
axis a, all of grid_sample is

    fprop            y       =  gather(x)                                                     (S.1)
    backward         dx      =  scatter(dy)
                     dgrid_a =  sum_c dy d_a gather(x)                                        (S.2)
    jvp              y_dot   =  gather(x_dot) + sum_a grid_dot_a d_a gather(x)                (S.3)
    double backward  ddy     =  gather(ddx) + sum_a ddgrid_a d_a gather(x)
                     dx      =  sum_a d_a scatter(ddgrid_a dy)
                     dgrid_b =  sum_c dy d_b (gather(ddx) + sum_a ddgrid_a d_a gather(x))     (S.4)
"""

from collections.abc import Callable
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from ..ops import Problem
from ._passes import by_name
from ._taps import Sampler, Separable, Taps, taps
from ._windows import Array, Results

Sampling = Callable[[Array, Problem], Sampler]


def grid_positions(grid: Array, problem: Problem, axis: int) -> Array:
    """Return the positions (N, L) on one spatial axis; the last coordinate is that of the first.

    -1 and 1 are the outer edges -1/2 and size - 1/2, or with align_corners the centres 0 and
    size - 1.
    """
    g, size = grid[..., problem.rank - 1 - axis], problem.input[axis]
    x = (g + 1) * (size - 1) / 2 if problem.align_corners else ((g + 1) * size - 1) / 2
    return x.reshape(len(grid), prod(problem.output))


def grid_scale(problem: Problem, axis: int) -> Fraction:
    """Return the derivative of a position by its coordinate."""
    return Fraction(problem.input[axis] - problem.align_corners, 2)


def grid_sampler(grid: Array, problem: Problem) -> Sampler:
    """Return the sampler of a grid, its derivatives by the coordinates of the grid."""
    axes = []
    for axis, size in enumerate(problem.input):
        x = grid_positions(grid, problem, axis)
        found = taps(x, size, problem.mode, problem.padding_mode, problem.align_corners)
        scale = grid_scale(problem, axis)
        axes.append(found.scaled(scale if x.dtype == object else float(scale)))
    return Sampler(axes, problem.input)


def grid_sample_fprop(
    x: Array, grid: Array, problem: Problem, sampling: Sampling = grid_sampler
) -> Array:
    """Return y, the image at the positions of the grid (S.1).

    Examples
    --------
    >>> from convref.ops import FAMILY
    >>> problem = FAMILY["grid_sample"](n=1, c=1, input=(1, 2), output=(1, 1), align_corners=True)
    >>> grid_sample_fprop(np.array([[[[0., 8.]]]]), np.array([[[[-0.5, 0.]]]]), problem)
    array([[[[2.]]]])
    """
    return sampling(grid, problem).gather(x, *_orders(problem)).reshape(problem.shape("y"))


def grid_sample_backward(
    dy: Array, x: Array, grid: Array, problem: Problem, sampling: Sampling = grid_sampler
) -> Results:
    """Return (dx, dgrid) (S.2)."""
    at, dy = sampling(grid, problem), _flat(dy, problem)
    dgrid = [(dy * at.gather(x, *_orders(problem, a))).sum(1) for a in range(problem.rank)]
    return at.scatter(dy, *_orders(problem)), _as_grid(dgrid, problem)


def grid_sample_jvp(
    x: Array,
    grid: Array,
    x_dot: Array,
    grid_dot: Array,
    problem: Problem,
    sampling: Sampling = grid_sampler,
) -> Results:
    """Return (y, y_dot) (S.3)."""
    at = sampling(grid, problem)
    y, y_dot = at.gather(x, *_orders(problem)), _tangent(at, x_dot, x, grid_dot, problem)
    return y.reshape(problem.shape("y")), y_dot.reshape(problem.shape("y"))


def grid_sample_double_backward(
    ddx: Array,
    ddgrid: Array,
    dy: Array,
    x: Array,
    grid: Array,
    problem: Problem,
    sampling: Sampling = grid_sampler,
) -> Results:
    """Return (ddy, dx, dgrid) (S.4)."""
    at, dy, axes = sampling(grid, problem), _flat(dy, problem), range(problem.rank)
    ddy = _tangent(at, ddx, x, ddgrid, problem).reshape(problem.shape("y"))
    parts = [_coordinate(ddgrid, problem, a) * dy for a in axes]
    dx: Any = sum(at.scatter(part, *_orders(problem, a)) for a, part in zip(axes, parts))
    dgrid = [(dy * _tangent(at, ddx, x, ddgrid, problem, b)).sum(1) for b in axes]
    return ddy, dx, _as_grid(dgrid, problem)


def _tangent(
    at: Sampler, x_dot: Array, x: Array, grid_dot: Array, problem: Problem, *by: int
) -> Array:
    """Return the tangent of every sample, differentiated by the positions on the axes `by`."""
    found = at.gather(x_dot, *_orders(problem, *by))
    for a in range(problem.rank):
        found = found + _coordinate(grid_dot, problem, a) * at.gather(x, *_orders(problem, a, *by))
    return found


def _orders(problem: Problem, *axes: int) -> tuple[int, ...]:
    """Return how often to differentiate by the position on each axis."""
    return tuple(axes.count(a) for a in range(problem.rank))


def _flat(y: Array, problem: Problem) -> Array:
    return y.reshape(*y.shape[:2], prod(problem.output))


def _coordinate(grid: Array, problem: Problem, axis: int) -> Array:
    """Return the coordinates (N, 1, L) on one spatial axis."""
    return grid[..., problem.rank - 1 - axis].reshape(len(grid), 1, prod(problem.output))


def _as_grid(coordinates: list[Array], problem: Problem) -> Array:
    """Return coordinates (N, L) per spatial axis as a grid."""
    return np.stack(coordinates[::-1], -1).reshape(problem.shape("grid"))


def roi_positions(boxes: Array, problem: Problem, axis: int) -> tuple[Array, Array]:
    """Return the positions (K, outputs, samples) on one spatial axis, and the samples (K)."""
    number: Any = Fraction if boxes.dtype == object else float
    scale, half = number(problem.spatial_scale), number(problem.aligned) / 2
    start, stop = (boxes[:, column - axis] * scale - half for column in (2, 4))
    size, out = stop - start, problem.output[axis]
    if not problem.aligned:
        size = np.where(size > 1, size, number(1))
    count = np.full(len(boxes), problem.sampling_ratio)
    if not problem.sampling_ratio:
        count = np.maximum(np.ceil(size / out), 0).astype(np.int64)
    whole = np.maximum(count, 1).astype(boxes.dtype)[:, None, None]
    sample = np.arange(count.max(initial=0)).astype(boxes.dtype)
    bins = np.arange(out).astype(boxes.dtype)[:, None]
    steps = bins + (2 * sample + number(1)) / (2 * whole)
    return start[:, None, None] + steps * size[:, None, None] / out, count


def flat(positions: Array) -> Array:
    """Return (K, outputs, samples) as (K, outputs * samples)."""
    boxes, out, samples = positions.shape
    return positions.reshape(boxes, out * samples)


def by_bin(found: Array, out: int) -> Array:
    """Return (taps, K, outputs * samples) as (taps * samples, K, outputs)."""
    taps, boxes, each = found.shape
    found = np.moveaxis(found.reshape(taps, boxes, out, each // out), 3, 1)
    return found.reshape(taps * each // out, boxes, out)


def roi_sampler(boxes: Array, problem: Problem) -> Separable:
    """Return the means of samples; those more than an element outside of the image are 0."""
    axes = []
    for axis, (size, out) in enumerate(zip(problem.input, problem.output)):
        x, count = roi_positions(boxes, problem, axis)
        inside = (x >= -1) & (x <= size) & (np.arange(x.shape[2]) < count[:, None, None])
        found = taps(flat(x), size, "bilinear", "border")
        weight = found.weights[0] / np.repeat(_at_least_1(count, x), out * x.shape[2], 1)
        inside = found.inside & flat(inside)
        element, inside, weight = (by_bin(a, out) for a in (found.element, inside, weight))
        axes.append(Taps(element, inside, (weight,)))
    return Separable(axes, problem.input)


def _at_least_1(count: Array, like: Array) -> Array:
    one = Fraction(1) if like.dtype == object else 1.0
    return np.maximum(count, 1).astype(like.dtype)[:, None] * one


def image_of(boxes: Array) -> Array:
    """Return the image in which each box is."""
    return boxes[:, 0].astype(np.int64)


def roi_align_fprop(x: Array, boxes: Array, problem: Problem, sampling: Any = roi_sampler) -> Array:
    """Return y, the mean of the samples in each bin (S.5).

    Examples
    --------
    >>> from convref.ops import FAMILY
    >>> problem = FAMILY["roi_align"](n=1, c=1, input=(1, 4), output=(1, 2), sampling_ratio=1)
    >>> roi_align_fprop(np.array([[[[0., 8., 16., 24.]]]]), np.array([[0., 0, 0, 2, 0]]), problem)
    array([[[[ 4., 12.]]]])
    """
    return sampling(boxes, problem).gather(x[image_of(boxes)], 0, 0)


def roi_align_backward(
    dy: Array, x: Array, boxes: Array, problem: Problem, sampling: Any = roi_sampler
) -> Array:
    """Return dx (S.5)."""
    dx = np.zeros(problem.shape("x"), dy.dtype)
    np.add.at(dx, image_of(boxes), sampling(boxes, problem).scatter(dy, 0, 0))
    return dx


FORMULAS: dict[Any, Any] = by_name(globals(), ("grid_sample", "roi_align"), masks=False)
