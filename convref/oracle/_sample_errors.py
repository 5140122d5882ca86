"""The effect of rounded positions on samples; docs/sampling.md derives each number.

Every pass of a sampling op is a sum of products of operands and weights. So the scale S of its
rounding errors is the pass on absolute values, and what rounded positions may change is the pass
with the change of the weights: both are the formulas of `sample`, with another `Sampler`.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from math import log1p, prod
from typing import Any

import numpy as np

from ..case import Call
from ..ops import Problem
from . import deform, sample
from ._taps import KERNELS, ORDERS, Sampler, Separable, Taps, padded, reflected
from ._windows import Array, Results

POSITION = 16  # roundings of a position, padded and in both results that are compared
ARGUMENT = 12  # of a weight, once the position is there
COARSE = 2.0**-24  # positions are computed in binary32 or better, unless a backend says otherwise
HALF = 0.5  # largest error of a position that has a bound

# By mode, for the kernel and its two derivatives: the largest slope, the largest sum of moduli of
# terms, and the jumps as (distance, height).
_STEEP = {"nearest": (0, 0, 0), "bilinear": (1, 0, 0), "bicubic": (1.35, 4.5, 7.5)}
_TERMS = {"nearest": (0, 0, 0), "bilinear": (2, 1, 0), "bicubic": (36, 30, 17)}
_JUMPS: dict[str, tuple[tuple[tuple[float, float], ...], ...]] = {
    "nearest": (((0.5, 1),), (), ()),
    "bilinear": ((), ((0, 2), (1, 1)), ()),
    "bicubic": ((), (), ((2, 1.5),)),
}
_REACH = {"nearest": 0.5, "bilinear": 1.0, "bicubic": 2.0}


def gamma(n: Any, u: float) -> Any:
    """Return (1 + u)**n - 1."""
    return np.expm1(n * log1p(u))


class Moduli(Sampler):
    """All taps that rounded positions may have, with the moduli of their weights.

    `errors` bound the errors of the weights. Where `unbounded`, the error of a position is so large
    that it may read any element, and results are infinite.
    """

    def __init__(
        self,
        axes: Sequence[Taps],
        errors: Sequence[tuple[Array, ...]],
        unbounded: Array,
        space: Any,
    ) -> None:
        super().__init__(axes, space)
        self.errors, self.unbounded = errors, unbounded

    def gather(self, x: Array, *orders: int) -> Array:
        """Return the sums of moduli."""
        found = super().gather(x, *orders)
        return np.where(self.unbounded[:, None], np.inf, found)

    def scatter(self, dy: Array, *orders: int) -> Array:
        """Return the sums of moduli."""
        samples = self.unbounded.size // max(1, len(dy))
        unbounded = self.unbounded.reshape(len(dy), samples).any(1)
        unbounded = unbounded.reshape(-1, *(1,) * (len(self.space) + 1))
        return np.where(unbounded, np.inf, super().scatter(dy, *orders))


class Displaced(Moduli):
    """How much the sums may change: by the product of all W + E of the axes, less that of all W."""

    def gather(self, x: Array, *orders: int) -> Array:
        """Return the change of each sample."""
        return sum((Moduli.gather(part, x, *orders) for part in self._parts), np.zeros(()))

    def scatter(self, dy: Array, *orders: int) -> Array:
        """Return the change of each element."""
        return sum((Moduli.scatter(part, dy, *orders) for part in self._parts), np.zeros(()))

    @cached_property
    def _parts(self) -> list[Moduli]:
        """Return, for each axis, a sampler with W before it, E on it, and W + E after it."""
        found: list[Moduli] = []
        for a in range(len(self.axes)):
            axes = [
                axis._replace(weights=_share(axis.weights, errors, (b > a) - (b < a)))
                for b, (axis, errors) in enumerate(zip(self.axes, self.errors))
            ]
            found.append(copy(self))
            found[-1].axes = axes
        return found


class SeparableModuli(Moduli, Separable):
    """The same where positions are separable."""


class SeparableDisplaced(Displaced, SeparableModuli):
    """The same where positions are separable."""


def _share(weights: tuple[Array, ...], errors: tuple[Array, ...], side: int) -> tuple[Array, ...]:
    if side == 0:
        return errors
    return weights if side < 0 else tuple(w + e for w, e in zip(weights, errors))


def rounded_taps(
    x: Array, off: Array, size: int, rule: tuple[str, str, bool], unit: float
) -> tuple[Taps, tuple[Array, ...]]:
    """Return the taps that positions x may have if they are wrong by `off`, and errors of weights.

    A tap beyond the image becomes one of weight 0 at the edge: a library may read a NaN there.
    """
    mode, padding, align = rule
    slope, edge = np.ones_like(x), np.zeros(x.shape, bool)
    if mode != "bicubic":
        before, _ = reflected(x, size, padding, align)
        x, slope = padded(x, size, padding, align)
        edge = (padding != "zeros") & ((abs(before) <= off) | (abs(before - (size - 1)) <= off))
    clipped = (slope == 0) & ~edge  # a constant, whatever the rounding
    first, weights = KERNELS[mode](x)
    count = len(weights[0])
    places = first + np.arange(-1, count + 1).reshape(-1, 1, 1)
    distance = abs(x - places)
    none = np.zeros((1, *x.shape))
    sizes = [abs(np.concatenate([none, w * slope**k, none])) for k, w in enumerate(weights)]
    near = distance < _REACH[mode] + off + unit
    errors = []
    for order in range(ORDERS):
        wrong = _STEEP[mode][order] * off + gamma(ARGUMENT, unit) * _TERMS[mode][order]
        wrong = np.where(near, wrong, 0.0)
        for at, height in _JUMPS[mode][order]:
            wrong = wrong + height * (abs(distance - at) <= off)
        wrong = wrong + 2.0 * (edge & near) * (mode == "bilinear") * (order == 1)
        errors.append(np.where(clipped, 0.0, wrong) if order else wrong)
    if mode == "bicubic":
        places, _ = padded(places, size, padding, align)
    inside = (places >= 0) & (places < size)
    index = np.where(inside, places, np.where(places < 0, 0, size - 1)).astype(np.int64)
    sizes, errors = ([np.where(inside, w, 0.0) for w in of] for of in (sizes, errors))
    return Taps(index, np.ones_like(inside), tuple(sizes)), tuple(errors)


def rounded_grid(unit: float, kind: type[Moduli]) -> Callable[[Array, Problem], Moduli]:
    """Return the sampling of a grid whose positions are computed with a unit roundoff."""

    def sampling(grid: Array, problem: Problem) -> Moduli:
        rule = problem.mode, problem.padding_mode, problem.align_corners
        positions = [sample.grid_positions(grid, problem, a) for a in range(problem.rank)]
        scales = [float(sample.grid_scale(problem, a)) for a in range(problem.rank)]
        return _rounded(positions, scales, problem, rule, unit, kind)

    return sampling


def rounded_offsets(unit: float, kind: type[Moduli]) -> Callable[[Array, Problem], Moduli]:
    """Return the sampling of taps whose positions are computed with a unit roundoff."""

    def sampling(offset: Array, problem: Problem) -> Moduli:
        positions = [deform.offset_positions(offset, problem, a) for a in range(2)]
        rule, sizes = ("bilinear", "zeros", False), problem.input
        found = _rounded(positions, (1.0, 1.0), problem, rule, unit, kind)
        sides = [(x < HALF) | (x > size - 1 - HALF) for x, size in zip(positions, sizes)]
        found.axes = [_reading_0(taps, sides[0] | sides[1]) for taps in found.axes]
        found.errors = [tuple(map(_with_0, errors)) for errors in found.errors]
        return found

    return sampling


def _rounded(
    positions: Sequence[Array],
    scales: Sequence[float],
    problem: Problem,
    rule: tuple[str, str, bool],
    unit: float,
    kind: type[Moduli],
) -> Moduli:
    axes, all_errors, unbounded = [], [], np.zeros(positions[0].shape, bool)
    for x, size, scale in zip(positions, problem.input, scales, strict=True):
        off = gamma(POSITION, unit) * (abs(x) + size + _reach(problem))
        unbounded = unbounded | ~(off < HALF)
        found, errors = rounded_taps(x, off, size, rule, unit)
        axes.append(found.scaled(scale))
        all_errors.append(found._replace(weights=errors).scaled(scale).weights)
    return kind(axes, all_errors, unbounded, problem.input)


def _reach(problem: Problem) -> int:
    """Return a bound of the integers that are added to an offset, beyond the size of an axis."""
    windows = [(axis.lo, axis.taps * axis.dilation) for axis in problem.axes]
    return sum(abs(lo) + span for lo, span in windows)


def rounded_boxes(unit: float, kind: type[Moduli]) -> Callable[[Array, Problem], Moduli]:
    """Return the sampling of boxes whose positions are computed with a unit roundoff."""

    def sampling(boxes: Array, problem: Problem) -> Moduli:
        axes, all_errors = [], []
        unbounded: Any = np.zeros((len(boxes), 1, 1), bool)
        beyond: Any = np.zeros(len(boxes), bool)
        for axis, (size, out) in enumerate(zip(problem.input, problem.output)):
            x, count = sample.roi_positions(boxes, problem, axis)
            ends = abs(boxes[:, 2 - axis]) + abs(boxes[:, 4 - axis])
            off = gamma(POSITION, unit) * (ends * problem.spatial_scale + size + 2)[:, None]
            unsure = ~(off[:, 0] < HALF)
            if not problem.sampling_ratio:
                unsure = unsure | _count_may_differ(boxes, problem, axis, off[:, 0], unit)
            unbounded = unbounded | unsure[:, None, None]
            x, off = sample.flat(x), np.repeat(off, x.shape[1] * x.shape[2], 1)
            found, errors = rounded_taps(x, off, size, ("bilinear", "border", False), unit)
            edge = (abs(x + 1) <= off) | (abs(x - size) <= off)
            inside = (x >= -1) & (x <= size)
            real = np.arange(x.shape[1]) % max(1, x.shape[1] // out) < count[:, None]
            each = [
                found.weights[0] * (inside & real),
                (errors[0] + edge) * ((inside | edge) & real),
            ]
            weights = [sample.by_bin(w / np.maximum(count, 1)[:, None], out) for w in each]
            beyond = beyond | ((~inside | edge) & real).any(1)
            axes.append(Taps(sample.by_bin(found.element, out), inside, (weights[0],)))
            all_errors.append((_with_0(weights[1]),))
        axes = [_reading_0(taps, beyond[:, None]) for taps in axes]
        return kind(axes, all_errors, unbounded, problem.input)

    return sampling


def _reading_0(taps: Taps, beyond: Array) -> Taps:
    """Return the taps and one of weight 0: beyond the image the first element may be read."""
    element = np.concatenate([taps.element, np.where(beyond, 0, taps.element[:1])])
    return Taps(element, np.ones(element.shape, bool), tuple(map(_with_0, taps.weights)))


def _with_0(weights: Array) -> Array:
    return np.concatenate([weights, 0 * weights[:1]])


def _count_may_differ(boxes: Array, problem: Problem, axis: int, off: Array, unit: float) -> Array:
    """Return whether rounding may change the number of samples: the size of a bin, rounded up.

    Multiples of 1/1024 that binary32 holds are not rounded.
    """
    low, high = (boxes[:, column - axis] * problem.spatial_scale for column in (2, 4))
    size = high - low if problem.aligned else np.maximum(high - low, 1)
    share = size / problem.output[axis]
    exact = (low * 1024 % 1 == 0) & (high * 1024 % 1 == 0) & (abs(low) + abs(high) < 4096)
    return (abs(share - np.round(share)) <= off) & ~(exact & (unit <= COARSE))


def _lengths(call: Call, boxes: Array) -> Array:
    """Return how many terms are added to an element of each result of roi_align."""
    problem = call.problem
    counts = [sample.roi_positions(boxes, problem, axis)[1] for axis in range(2)]
    found: Array = 4 * counts[0] * counts[1] + 4
    if call.pass_ == "backward":
        return np.asarray(found.sum() * prod(problem.output))
    return found[:, None, None, None]


def _evaluated(call: Call, operands: Sequence[Array], unit: float, kind: type[Moduli]) -> Results:
    """Return the pass on absolute values, with the weights of a sampler; positions as they are."""
    module = deform if call.op == "deform_conv" else sample
    formula = getattr(module, f"{call.op}_{call.pass_}", None)
    formula = formula or getattr(sample, f"{call.op}_fprop")  # linear in x
    given = [
        a if a is None or role in POSITIONS else np.abs(a).astype(np.float64)
        for role, a in zip(call.roles, operands)
    ]
    found = formula(*given, call.problem, SAMPLING[call.op](unit, kind))
    results = found if isinstance(found, tuple) else (found,)
    return tuple(
        np.abs(r) if role in call.wanted else None
        for role, r in zip(call.signature.results, results)
    )


def magnitudes(call: Call, *operands: Array) -> Results:
    """Return S: each product of moduli, of every element that a rounded position may read."""
    return _evaluated(call, operands, COARSE, Moduli)


def displacement(call: Call, *operands: Any) -> Results:
    """Return by how much positions computed with unit roundoff `unit` may change each result."""
    *arrays, unit, _ = operands
    if call.op == "deform_conv":  # what no sample enters is not moved
        fixed = ("b", "b_dot", "ddb")
        arrays = [a if a is None or r not in fixed else 0 * a for r, a in zip(call.roles, arrays)]
    moved = _evaluated(call, arrays, unit, Displaced)
    if (call.op, call.pass_) == ("deform_conv", "backward"):
        db = call.signature.results.index("db")
        moved = tuple(0 * a if i == db and a is not None else a for i, a in enumerate(moved))
    if call.op == "roi_align":
        (off,), (sums,) = moved, magnitudes(call, *arrays)
        moved = (off + gamma(_lengths(call, arrays[-1]), unit) * sums,)
    return moved


POSITIONS = ("grid", "boxes", "offset")
SEPARABLE = {Moduli: SeparableModuli, Displaced: SeparableDisplaced}
SAMPLING: dict[str, Callable[[float, type[Moduli]], Callable[[Array, Problem], Moduli]]] = {
    "grid_sample": rounded_grid,
    "deform_conv": rounded_offsets,
    "roi_align": lambda unit, kind: rounded_boxes(unit, SEPARABLE[kind]),
}
