"""The effect of rounded positions and weights on a resize; docs/resize.md derives each number."""

from fractions import Fraction
from functools import lru_cache, reduce
from math import ceil, expm1, floor, log1p

import numpy as np

from ..case import Call
from ..ops import Problem, ResizeAxis
from ..ops.resize_axis import Entries, Row, entries, outside, rows, table_entries
from ._windows import Array, Results
from .resize import Table, along_axis, outside_image, weighted

POSITION = 6  # roundings of one position, in any of its forms
ARGUMENT = 3  # of the kernel's argument, once the position is there
POLYNOMIAL = 8  # of the kernel's value
COARSE = 2.0**-24  # positions are computed in binary32 or better
UNBOUNDED = 2.0**100  # of a weight whose divisor may be 0
ErrorRow = tuple[tuple[int, float], ...]


def _gamma(n: int, u: float) -> float:
    return expm1(n * log1p(u))


def steepness(axis: ResizeAxis) -> float:
    """Return the largest slope of the kernel."""
    if axis.mode == "linear":
        return 1.0
    a = axis.a
    slopes = [abs(a), abs(a) / 3]  # where the pieces meet, and steepest in the outer one
    if a > -2 and 0 < (a + 3) / (3 * (a + 2)) < 1:
        slopes.append((a + 3) ** 2 / (3 * (a + 2)))
    return max(*slopes, abs(3 * (a + 2) - 2 * (a + 3)))


def moduli(axis: ResizeAxis, t: float) -> float:
    """Return the kernel's polynomial at distance t on absolute values of its terms."""
    if axis.mode == "linear":
        return 1 + t
    a = axis.a
    if t < 1:
        return abs(a + 2) * t**3 + abs(a + 3) * t**2 + 1
    return abs(a) * (t**3 + 5 * t**2 + 8 * t + 4)


def position_error(axis: ResizeAxis, p: int, u: float) -> float:
    """Return by how much the position of output p may be off."""
    about = abs(float(axis.position(p)))
    if axis.coord in ("half_pixel_symmetric", "tf_crop_and_resize"):  # sums that may cancel
        about = max(about, axis.size * max(1.0, abs(axis.start), abs(axis.stop)))
    return _gamma(POSITION, u) * (about + 1)


def at_edge(axis: ResizeAxis, p: int, u: float) -> bool:
    """Return whether rounding may decide if output p samples beyond the image and reads nothing."""
    x = float(axis.position(p))
    distance = min(abs(x), abs(x - axis.size + 1))
    return axis.coord == "tf_crop_and_resize" and distance <= position_error(axis, p, u)


def weight_errors(axis: ResizeAxis, p: int, u: float, kept: float = 0.0) -> ErrorRow:
    """Return (i, e): by how much the weight of input i in output p may be off.

    Positions are computed with unit roundoff `u`; distances and weights are rounded once more to
    `kept`, where that is not 0.
    """
    if not axis.radius:
        return ()
    moved, x = position_error(axis, p, u), float(axis.position(p))
    if at_edge(axis, p, u):
        return tuple((i, 1.0) for i, _ in rows(axis)[p]) or ((round(x) % axis.size, 1.0),)
    stretch = float(axis.stretch)
    argument = moved / stretch + _gamma(ARGUMENT, u) * axis.radius
    argument += kept / stretch
    reach = (axis.radius + argument) * stretch
    first, last = ceil(x - reach), floor(x + reach)
    if axis.exclude:
        first, last = max(first, 0), min(last, axis.size - 1)
    found = {}
    for j in range(first, last + 1):
        t = min(abs(j - x) / stretch, float(axis.radius))
        found[j] = steepness(axis) * argument + _gamma(POLYNOMIAL, u) * moduli(axis, t)
        found[j] += kept * (abs(float(axis.kernel(Fraction(t)))) + found[j])
    if axis.antialias or axis.exclude:
        found = _normalised(axis, p, found, u)
    errors: dict[int, float] = {}
    for j, e in found.items():
        i = min(max(j, 0), axis.size - 1)
        errors[i] = errors.get(i, 0.0) + e
    if (
        axis.mode == "linear" and x < 0
    ):  # a library that clamps x instead of the indices reads 0 and 1
        errors.setdefault(min(1, axis.size - 1), 0.0)
    return tuple(errors.items())


def _normalised(axis: ResizeAxis, p: int, errors: dict[int, float], u: float) -> dict[int, float]:
    """Return the errors of weights that are divided by their sum, which is off by all of them."""
    x, stretch = axis.position(p), axis.stretch
    kernel = {j: float(axis.kernel((j - x) / stretch)) for j in errors}
    total, size = abs(sum(kernel.values())), sum(map(abs, kernel.values()))
    off = sum(errors.values()) + _gamma(len(errors) + 1, u) * size
    if total <= off:
        return dict.fromkeys(errors, UNBOUNDED)
    return {j: (e + abs(kernel[j]) / total * off) / (total - off) for j, e in errors.items()}


@lru_cache(maxsize=8)
def _errors(u: float, kept: float = 0.0) -> Table:
    @lru_cache(maxsize=64)
    def table(axis: ResizeAxis) -> Entries:
        return table_entries([weight_errors(axis, p, u, kept) for p in range(axis.out)], axis.size)

    return table


@lru_cache(maxsize=64)
def _moduli(axis: ResizeAxis) -> Entries:
    found = entries(axis)
    return found._replace(number=abs(found.number), over=abs(found.over))


@lru_cache(maxsize=64)
def _certain_signs(axis: ResizeAxis) -> Entries:
    """Return the signs of weights that are beyond doubt."""
    found = []
    for row, doubts in _with_doubts(axis):
        signs = [(i, 1.0 if w > 0 else -1.0) for i, w in row if abs(w) > doubts.get(i, 0.0)]
        found.append(signs)
    return table_entries(found, axis.size)


@lru_cache(maxsize=64)
def _may_read(axis: ResizeAxis) -> Entries:
    """Return 1 for each input that an output may read, even with weight 0."""
    either = ({**dict(row), **doubts} for row, doubts in _with_doubts(axis))
    return table_entries([[(i, 1.0) for i in positions] for positions in either], axis.size)


def _with_doubts(axis: ResizeAxis) -> list[tuple[Row, dict[int, float]]]:
    doubts = (dict(weight_errors(axis, p, COARSE)) for p in range(axis.out))
    return list(zip(rows(axis), doubts, strict=True))


@lru_cache(maxsize=64)
def _transposed(table: Table) -> Table:
    @lru_cache(maxsize=64)
    def columns(axis: ResizeAxis) -> Entries:
        return table(axis).transposed()

    return columns


def _sums(call: Call, marks: Array, table: Table) -> Array:
    table = _transposed(table) if call.pass_ == "backward" else table
    return weighted(marks, call.problem.axes, table)


def magnitude(call: Call, operand: Array) -> Results:
    """Return S: cubic weights may be negative; a constant is rounded."""
    sums, problem = _sums(call, np.abs(operand), _moduli), call.problem
    if problem.extrapolation:
        sums[..., outside_image(problem)] = abs(problem.extrapolation)
    return (sums,)


def displacement(call: Call, operand: Array, u: float, kept: float = 0.0) -> Results:
    """Return by how much positions and weights computed with unit roundoff u move a result.

    With exact moduli W and errors E of each axis, the product of all W + E less that of all W.
    """
    tables: list[Table] = [_moduli, _errors(u, kept)]
    if call.pass_ == "backward":
        tables = list(map(_transposed, tables))
    sums = np.abs(operand).astype(np.float64)
    moved = np.zeros_like(sums)
    for number, axis in zip(range(-call.problem.rank, 0), call.problem.axes):
        moved, new = along_axis(moved, number, axis, tables[0]), moved + sums
        moved += along_axis(new, number, axis, tables[1])
        sums = along_axis(sums, number, axis, tables[0])
    if call.problem.extrapolation:
        moved[..., _may_be_beyond(call.problem, u)] += abs(call.problem.extrapolation)
    return (moved,)


def _may_be_beyond(problem: Problem, u: float) -> Array:
    """Return where rounding may decide if an output samples beyond the image."""
    edges = [np.array([at_edge(axis, p, u) for p in range(axis.out)]) for axis in problem.axes]
    sure = [outside(axis) & ~edge for axis, edge in zip(problem.axes, edges)]
    return reduce(np.logical_or.outer, edges) & ~reduce(np.logical_or.outer, sure)


def nonfinite_counts(call: Call, infinite: Array, nan: Array) -> tuple[Array, ...]:
    """Return how many +inf, -inf and NaN each result surely adds, and how many it may read.

    `infinite` is 1 where the operand is inf and -1 where it is -inf, `nan` 1 where it is NaN.
    """
    signed, some = _sums(call, infinite, _certain_signs), np.abs(infinite)
    total = _sums(call, some, _absolute_sure)
    return (
        (total + signed) / 2,
        (total - signed) / 2,
        _sums(call, nan, _absolute_sure),
        _sums(call, some + nan, _may_read),
    )


@lru_cache(maxsize=64)
def _absolute_sure(axis: ResizeAxis) -> Entries:
    found = _certain_signs(axis)
    return found._replace(number=abs(found.number))
