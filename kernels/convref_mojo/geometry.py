"""A convolution as lattices of windows over three axes.

Windows slide over the big side (x, or y of a transposed convolution), one for each pixel of the
small side. A gather has one lattice: window j of an axis reads, at tap r, position
``j * stride + r * dilation - lo``. A scatter is computed as several gathers: position q of the big
side sums the taps for which ``q + lo - r * dilation`` is a multiple of the stride. Positions that
are equal modulo the stride have the same taps, so each such class is a gather with step 1.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from convref.case import Call
from convref.ops import BASE_ROLE, Axis, ConvProblem

from .strides import Strides, channel, spatial
from .structs import struct

UNIT = Axis(big=1, small=1, taps=1, stride=1, dilation=1, lo=0, hi=0)


class AxisWindows(NamedTuple):
    """The windows of a lattice along one axis."""

    count: int  # windows
    size: int  # positions of the axis that they slide over
    step: int  # positions from one window to the next
    result_start: int  # window j computes position result_start + j * result_step of the result
    result_step: int
    taps: tuple[int, ...]  # of the filter, in the order in which they are read
    shifts: tuple[int, ...]  # their positions in window 0


Lattice = tuple[AxisWindows, ...]  # of z, y, x


def axes(problem: ConvProblem) -> tuple[Axis, Axis, Axis]:
    """Return the axes z, y, x of a problem; missing ones have one position and one tap."""
    z, y, x = (UNIT,) * (3 - problem.rank) + problem.axes
    return z, y, x


def gather_windows(axis: Axis) -> AxisWindows:
    """Return the lattice of windows over the big side.

    >>> gather_windows(Axis(big=5, small=3, taps=3, stride=2, dilation=1, lo=1, hi=1)).shifts
    (-1, 0, 1)
    """
    taps = tuple(range(axis.taps))
    shifts = tuple(r * axis.dilation - axis.lo for r in taps)
    return AxisWindows(axis.small, axis.big, axis.stride, 0, 1, taps, shifts)


def scatter_windows(axis: Axis) -> Iterator[AxisWindows]:
    """Yield windows over the small side, one lattice per class of the big side modulo the stride.

    >>> axis = Axis(5, 3, taps=3, stride=2, dilation=1, lo=1, hi=1)
    >>> [each.taps for each in scatter_windows(axis)]
    [(1,), (2, 0)]
    """
    for start in range(min(axis.stride, axis.big)):
        shifts_and_taps = [
            ((start + axis.lo - r * axis.dilation) // axis.stride, r)
            for r in range(axis.taps)
            if (start + axis.lo - r * axis.dilation) % axis.stride == 0
        ]
        shifts, taps = zip(*sorted(shifts_and_taps)) if shifts_and_taps else ((), ())
        count = -(-(axis.big - start) // axis.stride)
        yield AxisWindows(count, axis.small, 1, start, axis.stride, taps, shifts)


def lattices(problem: ConvProblem, scatter: bool) -> Iterator[Lattice]:
    """Yield the axes (z, y, x) of each lattice; their windows together make up the result."""
    if scatter:
        yield from product(*map(scatter_windows, axes(problem)))
    else:
        yield tuple(map(gather_windows, axes(problem)))


class ArrayLayout(NamedTuple):
    """The role, shape and strides in elements of an array, and whether it is aligned."""

    role: str
    shape: tuple[int, ...]
    strides: Strides
    aligned: bool = True  # its address is a multiple of 16

    @property
    def reach(self) -> int:
        """Return the largest offset between two elements."""
        return sum(abs(s) * (n - 1) for n, s in zip(self.shape, self.strides))


class Sum(NamedTuple):
    """The arrays of a gather or of a correlate: `big` and filter of each pair; None if absent."""

    pairs: Sequence[tuple[ArrayLayout | None, ArrayLayout]]
    small: ArrayLayout | None
    bias: ArrayLayout | None = None


class ConvLaunch(NamedTuple):
    """A launch of a convolution, for the CPU or the GPU."""

    kind: str  # "gather" writes `small`, "correlate" the filter, "bgrad" the bias
    geometry: Any  # the struct `Geometry` of the kernels, without addresses
    # By field of the geometry: an array, and the offset of the first element that is used.
    arrays: dict[str, tuple[ArrayLayout, int]]
    windows: int  # in all images; 0 for a bgrad and for a correlate without operands


def conv_launches(folder: str, call: Call, arrays: dict[str, ArrayLayout]) -> Iterator[ConvLaunch]:
    """Yield the launches of a convolution on arrays by role, with the structs of a folder."""
    problem = call.conv
    for role in call.wanted:
        out, terms, base = arrays[role], call.terms(role), BASE_ROLE[role]
        pairs = [(arrays[first], arrays[second]) for first, second in terms.products]
        added = arrays[terms.added[0]] if terms.added else None
        if prod(out.shape) == 0:
            continue
        if base == "b":
            assert added is not None
            yield _bgrad_launch(folder, problem, out, added)
        elif base == "w":
            first, second = pairs[0] if pairs else (None, None)
            small, big = (second, first) if problem.transposed else (first, second)
            (lattice,) = lattices(problem, False)
            yield _launch(folder, "correlate", problem, lattice, False, Sum([(big, out)], small))
        else:
            scatter = problem.transposed == (base == "y")
            for lattice in lattices(problem, scatter):
                together = Sum(pairs, out, added)
                yield _launch(folder, "gather", problem, lattice, scatter, together)


def _launch(
    folder: str, kind: str, problem: ConvProblem, lattice: Lattice, scatter: bool, arrays: Sum
) -> ConvLaunch:
    g, images = struct(folder, "Geometry")(), 0 if arrays.small is None else problem.n
    g.images, g.groups, g.pairs = images, problem.groups, len(arrays.pairs)
    g.channels, g.results = _sides(problem, scatter)
    found: dict[str, tuple[ArrayLayout, int]] = {}
    for name, axis in zip("zyx", lattice):
        _set_axis(getattr(g, name), axis)
    if arrays.small is not None:
        set_strides(g.small, arrays.small, [axis.result_step for axis in lattice])
        starts = [axis.result_start for axis in lattice]
        start = sum(at * stride for at, stride in zip(starts, spatial(arrays.small.strides)))
        found["small"] = arrays.small, start
    for prefix, (big, w) in zip(("", "second_"), arrays.pairs):
        start = _set_filter(getattr(g, f"{prefix}filter"), problem, lattice, w.strides, scatter)
        found[f"{prefix}filter"] = w, start
        if big is not None:
            set_strides(getattr(g, f"{prefix}big"), big)
            found[f"{prefix}big"] = big, 0
    if arrays.bias is not None:
        g.bias.c = channel((0, *arrays.bias.strides), *arrays.bias.shape)
        found["bias"] = arrays.bias, 0
    return ConvLaunch(kind, g, found, images * prod(axis.count for axis in lattice))


def _bgrad_launch(folder: str, problem: ConvProblem, b: ArrayLayout, dy: ArrayLayout) -> ConvLaunch:
    g = struct(folder, "Geometry")(images=problem.n)
    g.bias.c = b.strides[0]
    set_strides(g.small, dy)
    for name, size in zip("zyx", (1,) * (5 - len(dy.shape)) + dy.shape[2:]):
        getattr(g, name).count = size
    return ConvLaunch("bgrad", g, {"bias": (b, 0), "small": (dy, 0)}, 0)


def _sides(problem: ConvProblem, scatter: bool) -> tuple[int, int]:
    c, k = problem.c // problem.groups, problem.k // problem.groups
    return (k, c) if problem.transposed != scatter else (c, k)


def _set_axis(to: Any, axis: AxisWindows) -> None:
    to.count, to.size, to.step, to.taps = axis.count, axis.size, axis.step, len(axis.taps)
    to.shift, to.tap_step = _progression(axis.shifts)


def _progression(values: Sequence[int]) -> tuple[int, int]:
    """Return the first of some values and the step to the next one, 0 for none."""
    first, second = (*values, *values[:1], 0, 0)[:2]
    return first, second - first


def set_strides(to: Any, array: ArrayLayout, steps: Sequence[int] = (1, 1, 1)) -> None:
    """Fill in the strides of an array, each multiplied by the step of its axis."""
    to.n, to.c = array.strides[0], channel(array.strides, array.shape[1])
    to.z, to.y, to.x = (n * stride for n, stride in zip(steps, spatial(array.strides)))


def _set_filter(
    to: Any, problem: ConvProblem, lattice: Lattice, strides: Strides, scatter: bool
) -> int:
    """Fill in the strides of a filter in the order of its taps; return the offset of the first."""
    small, big, *_ = strides
    to.group = small * (problem.c if problem.transposed else problem.k) // problem.groups
    to.channel, to.result = (small, big) if scatter else (big, small)
    start = 0
    for name, windows, axis, stride in zip("zyx", lattice, axes(problem), spatial(strides)):
        taps = [axis.taps - 1 - r if problem.flip else r for r in windows.taps]
        first, step = _progression(taps)
        start += first * stride
        setattr(to, name, step * stride)
    return start
