"""A convolution as launches of the GPU kernels: which kernel, arrays and geometry, all of it data.

Nothing here knows where they run: cuda.py gives them to the CUDA driver, or to an interpreter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from convref.case import Call
from convref.ops import BASE_ROLE, ConvProblem

from ..geometry import Line, axes, gathered, lattices
from ..strides import Strides, channel, spatial

THREADS = 128
TILE = 64  # rows and columns of mma.mojo
VECTOR = 8  # numbers that mma.mojo loads at once
Int32 = ctypes.c_int32


def struct(name: str, *fields: Any) -> Any:
    """Return a struct of gpu/geometry.mojo; a field is an int32, or (name, struct)."""
    pairs = [field if isinstance(field, tuple) else (field, Int32) for field in fields]
    return type(name, (ctypes.Structure,), {"_fields_": pairs})


GpuLine = struct("Line", "count", "size", "step", "taps", "shift", "pace")
Place = struct("Place", *"nczyx")
GpuFilter = struct("Filter", "group", "channel", "result", *"zyx")
Geometry = struct(
    "Geometry",
    *("images", "groups", "channels", "results", "biased", "bias"),
    *((axis, GpuLine) for axis in "zyx"),
    *((side, Place) for side in ("big", "small")),
    ("filter", GpuFilter),
    "pairs",
    ("second_big", Place),
    ("second_filter", GpuFilter),
)


class Array(NamedTuple):
    """What a launch needs to know of an array: its role, sizes and strides in elements."""

    role: str
    shape: tuple[int, ...]
    strides: Strides
    aligned: bool  # whether it begins at a multiple of 16 bytes

    @property
    def reach(self) -> int:
        """Return the largest distance of two elements."""
        return sum(abs(s) * (n - 1) for n, s in zip(self.shape, self.strides))


Pointer = tuple[str, int]
NULL: Pointer = "", 0


class Launch(NamedTuple):
    """One launch: a kernel, its pointers as (role, elements from its start), and its geometry.

    The first `results` pointers are those that are written.
    """

    kernel: str
    grid: tuple[int, int]
    pointers: tuple[Pointer, ...]
    geometry: Any
    results: int = 1

    @property
    def written(self) -> frozenset[str]:
        """Return the roles that the kernel writes."""
        return frozenset(role for role, _ in self.pointers[: self.results])


class Sum(NamedTuple):
    """The arrays of a sum over windows (gather) or of a filter gradient (correlate).

    `pairs` has what the windows slide over and the filter, of each term; absent arrays are None.
    """

    pairs: tuple[tuple[Array | None, Array], ...]
    small: Array | None
    bias: Array | None = None


def _line(line: Line) -> Any:
    first, second, *_ = (*line.shifts, 0, 0)
    pace = second - first if len(line.taps) > 1 else 0
    return GpuLine(line.count, line.size, line.step, len(line.taps), first, pace)


def _filter(
    problem: ConvProblem, lines: Sequence[Line], w: Array, scatter: bool
) -> tuple[Any, int]:
    """Return strides of a filter in the order in which taps are read, and where the first lies."""
    start, steps = 0, []
    for line, axis, stride in zip(lines, axes(problem), spatial(w.strides)):
        taps = [axis.taps - 1 - r if problem.flip else r for r in line.taps]
        start += taps[0] * stride if taps else 0
        steps.append((taps[1] - taps[0]) * stride if len(taps) > 1 else 0)
    small, big, *_ = w.strides
    group = small * (problem.c if problem.transposed else problem.k) // problem.groups
    summed, results = (small, big) if scatter else (big, small)
    return GpuFilter(group, summed, results, *steps), start


def place(array: Array | None, paces: Sequence[int] = (1, 1, 1)) -> Any:
    """Return the strides of an array, of its axes from one multiple of a pace to the next."""
    if array is None:
        return Place()
    steps = (pace * stride for pace, stride in zip(paces, spatial(array.strides)))
    return Place(array.strides[0], channel(array.strides, array.shape[1]), *steps)


def _geometry(
    problem: ConvProblem, lines: Sequence[Line], scatter: bool, arrays: Sum
) -> tuple[Any, list[int]]:
    """Return the struct of a launch, and where in each filter the first tap that is read lies."""
    g = Geometry(problem.n, problem.groups, *_sides(problem, scatter), pairs=len(arrays.pairs))
    for axis, line in zip("zyx", lines):
        setattr(g, axis, _line(line))
    g.small = place(arrays.small, [line.pace for line in lines])
    starts = []
    for prefix, (big, w) in zip(("", "second_"), arrays.pairs):
        strides, at = _filter(problem, lines, w, scatter)
        setattr(g, f"{prefix}big", place(big))
        setattr(g, f"{prefix}filter", strides)
        starts.append(at)
    if arrays.bias is not None:
        g.biased, g.bias = 1, arrays.bias.strides[0]
    return g, starts


def _sides(problem: ConvProblem, scatter: bool) -> tuple[int, int]:
    """Return the channels of a group that are summed over, and those of the result."""
    c, k = problem.c // problem.groups, problem.k // problem.groups
    return (k, c) if problem.transposed != scatter else (c, k)


def _sum_launches(
    problem: ConvProblem, scatter: bool, dtype: str, arrays: Sum, kinds: Sequence[str]
) -> Iterator[Launch]:
    """Yield a launch for each lattice of windows; `small` is the result."""
    out, bias = arrays.small, _pointer(arrays.bias)
    assert out is not None
    for lines in lattices(problem, scatter):
        g, starts = _geometry(problem, lines, scatter, arrays)
        start = sum(line.start * stride for line, stride in zip(lines, spatial(out.strides)))
        windows = problem.n * prod(line.count for line in lines)
        pairs = [(_pointer(big), _pointer(w, at)) for (big, w), at in zip(arrays.pairs, starts)]
        if dtype == "bf16" and "mma" in kinds and len(pairs) == 1:
            vectors = _vectors(arrays.pairs[0], g, starts[0])
            wide = "wgmma" in kinds and vectors == "v8f8"
            name = "gather_wgmma" if wide else f"gather_mma_{vectors}"
            grid = -(-windows // TILE), problem.groups * -(-g.results // TILE)
            yield Launch(name, grid, (_pointer(out, start), *pairs[0], bias), g)
        else:
            first, second = (*pairs, (NULL, NULL), (NULL, NULL))[:2]
            pointers = _pointer(out, start), *first, bias, *second
            threads = windows * problem.groups * g.results
            yield Launch(f"gather_{dtype}", (-(-threads // THREADS), 1), pointers, g)


def _pointer(array: Array | None, at: int = 0) -> Pointer:
    return NULL if array is None else (array.role, at)


def _vectors(pair: tuple[Any, Array], g: Any, at: int) -> str:
    """Return which of the widths of loads both operands admit."""
    big, f = _image_admits(pair[0], g.big, g.channels), g.filter
    w = _admits(pair[1], f.channel, (f.group, f.result, f.z, f.y, f.x, at, g.channels))
    return "v8f8" if big and w else "v8f1" if big else "v1f1"


def _admits(array: Array, inner: int, others: Sequence[int]) -> bool:
    """Return whether an array is read VECTOR elements at a time, of which others are multiples."""
    return array.aligned and inner == 1 and all(n % VECTOR == 0 for n in others)


def _image_admits(array: Array, s: Any, channels: int) -> bool:
    return _admits(array, s.c, (s.n, s.z, s.y, s.x, channels))


def _correlate_launch(
    problem: ConvProblem, dtype: str, arrays: Sum, kinds: Sequence[str]
) -> Launch:
    """Return the launch of a filter gradient; without operands it is a sum over no images."""
    lines = tuple(map(gathered, axes(problem)))
    ((big, out),) = arrays.pairs
    g, (at,) = _geometry(problem, lines, False, arrays)
    if arrays.small is None:
        g.images = 0
    columns = g.channels * prod(len(line.taps) for line in lines)
    pointers = _pointer(out, at), _pointer(big), _pointer(arrays.small)
    if dtype == "bf16" and "mma" in kinds:
        small = arrays.small is not None and _image_admits(arrays.small, g.small, g.results)
        wide = small and _image_admits(big, g.big, g.channels)
        grid = -(-columns // TILE), problem.groups * -(-g.results // TILE)
        return Launch(f"correlate_mma_v{VECTOR if wide else 1}", grid, pointers, g)
    threads = problem.groups * g.results * columns
    return Launch(f"correlate_{dtype}", (-(-threads // THREADS), 1), pointers, g)


def _total_launch(problem: ConvProblem, dtype: str, b: Array, dy: Array) -> Launch:
    g = Geometry(problem.n, bias=b.strides[0], small=place(dy))
    for axis, size in zip("zyx", (1,) * (5 - len(dy.shape)) + dy.shape[2:]):
        setattr(g, axis, GpuLine(count=size))
    return Launch(f"total_{dtype}", (problem.k, 1), (_pointer(b), _pointer(dy)), g)


def launches(call: Call, arrays: dict[str, Array], kinds: Sequence[str]) -> Iterator[Launch]:
    """Yield the launches of a call whose arrays, results too, lie as `arrays` says.

    Parameters
    ----------
    call : Call
    arrays : dict of str to Array
        By role.
    kinds : sequence of str
        Which kernels may be taken: "direct", and before it "mma", and before that "wgmma".
    """
    problem = call.conv
    for role in call.wanted:
        out, terms, base = arrays[role], call.terms(role), BASE_ROLE[role]
        pairs = tuple((arrays[first], arrays[second]) for first, second in terms.products)
        if prod(out.shape) == 0:
            continue
        if base == "b":
            yield _total_launch(problem, call.dtype, out, arrays[terms.added[0]])
        elif base == "w":
            first, second = pairs[0] if pairs else (None, None)
            small, big = (second, first) if problem.transposed else (first, second)
            yield _correlate_launch(problem, call.dtype, Sum(((big, out),), small), kinds)
        else:
            scatter = problem.transposed == (base == "y")
            bias = arrays[terms.added[0]] if terms.added else None
            yield from _sum_launches(problem, scatter, call.dtype, Sum(pairs, out, bias), kinds)
