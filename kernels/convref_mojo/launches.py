"""A call as launches of the GPU kernels: which kernel, arrays and geometry, all of it data.

Nothing here knows where they run: cuda.py gives them to the CUDA driver, or to an interpreter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from convref.case import Call
from convref.problem import BASE_ROLE, Axis, ConvProblem

from .geometry import Line, axes, gathered, lattices
from .memory import Strides, channel, spatial

THREADS = 128
TILE = 64  # rows and columns of product.mojo
VECTOR = 8  # numbers that product.mojo loads at once
Int32 = ctypes.c_int32


def _struct(name: str, *fields: Any) -> Any:
    """Return a struct of gpu/geometry.mojo; a field is an int32, or (name, struct)."""
    pairs = [field if isinstance(field, tuple) else (field, Int32) for field in fields]
    return type(name, (ctypes.Structure,), {"_fields_": pairs})


GpuLine = _struct("Line", "count", "size", "step", "taps", "shift", "pace")
Place = _struct("Place", *"nczyx")
GpuFilter = _struct("Filter", "group", "channel", "result", *"zyx")
Geometry = _struct(
    "Geometry",
    *("images", "groups", "channels", "results", "biased", "bias"),
    *((axis, GpuLine) for axis in "zyx"),
    *((side, Place) for side in ("big", "small")),
    ("filter", GpuFilter),
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


class Launch(NamedTuple):
    """One launch: a kernel, its pointers as (role, elements from its start), and its geometry."""

    kernel: str
    grid: tuple[int, int]
    pointers: tuple[tuple[str, int], ...]
    geometry: Any


class Sum(NamedTuple):
    """The operands of a sum over windows (gather) or of a filter gradient (correlate)."""

    big: Array
    small: Array
    filter: Array
    bias: Array | None


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


def _geometry(
    problem: ConvProblem, lines: Sequence[Line], channels: int, results: int, arrays: Sum
) -> Any:
    g = Geometry(problem.n, problem.groups, channels, results)
    for axis, line in zip("zyx", lines):
        setattr(g, axis, _line(line))
    big, small = arrays.big, arrays.small
    g.big = Place(big.strides[0], channel(big.strides, big.shape[1]), *spatial(big.strides))
    paces = (line.pace * stride for line, stride in zip(lines, spatial(small.strides)))
    g.small = Place(small.strides[0], channel(small.strides, small.shape[1]), *paces)
    if arrays.bias is not None:
        g.biased, g.bias = 1, arrays.bias.strides[0]
    return g


def _sides(problem: ConvProblem, scatter: bool) -> tuple[int, int]:
    """Return the channels of a group that are summed over, and those of the result."""
    c, k = problem.c // problem.groups, problem.k // problem.groups
    return (k, c) if problem.transposed != scatter else (c, k)


def _sum_launches(
    problem: ConvProblem, scatter: bool, dtype: str, arrays: Sum, kinds: Sequence[str]
) -> Iterator[Launch]:
    """Yield a launch for each lattice of windows; `small` is the result."""
    channels, results = _sides(problem, scatter)
    for lines in lattices(problem, scatter):
        g = _geometry(problem, lines, channels, results, arrays)
        g.filter, at = _filter(problem, lines, arrays.filter, scatter)
        start = sum(
            line.start * stride for line, stride in zip(lines, spatial(arrays.small.strides))
        )
        windows = problem.n * prod(line.count for line in lines)
        bias = ("", 0) if arrays.bias is None else (arrays.bias.role, 0)
        pointers = (
            (arrays.small.role, start),
            (arrays.big.role, 0),
            (arrays.filter.role, at),
            bias,
        )
        if dtype == "bf16" and "mma" in kinds:
            name = f"gather_mma_{_vectors(arrays, g, at)}"
            tiles = problem.groups * -(-results // TILE)
            yield Launch(name, (-(-windows // TILE), tiles), pointers, g)
        else:
            threads = windows * problem.groups * results
            yield Launch(f"gather_{dtype}", (-(-threads // THREADS), 1), pointers, g)


def _vectors(arrays: Sum, g: Any, at: int) -> str:
    """Return which of the widths of loads both operands admit."""

    def admits(array: Array, inner: int, others: Sequence[int]) -> bool:
        whole = all(n % VECTOR == 0 for n in (*others, g.channels))
        return array.aligned and inner == 1 and whole

    big = admits(arrays.big, g.big.c, (g.big.n, g.big.z, g.big.y, g.big.x))
    f = g.filter
    w = admits(arrays.filter, f.channel, (f.group, f.result, f.z, f.y, f.x, at))
    return "v8f8" if big and w else "v8f1" if big else "v1f1"


def _correlate_launch(
    problem: ConvProblem, dtype: str, arrays: Sum, kinds: Sequence[str]
) -> Launch:
    lines = tuple(map(gathered, axes(problem)))
    channels, results = _sides(problem, False)
    g = _geometry(problem, lines, channels, results, arrays)
    g.filter, at = _filter(problem, lines, arrays.filter, False)
    columns = channels * prod(len(line.taps) for line in lines)
    pointers = (arrays.filter.role, at), (arrays.big.role, 0), (arrays.small.role, 0)
    if dtype == "bf16" and "mma" in kinds:
        tiles = problem.groups * -(-results // TILE)
        return Launch("correlate_mma", (-(-columns // TILE), tiles), pointers, g)
    threads = problem.groups * results * columns
    return Launch(f"correlate_{dtype}", (-(-threads // THREADS), 1), pointers, g)


def _total_launch(problem: ConvProblem, dtype: str, b: Array, dy: Array) -> Launch:
    lines = [gathered(Axis(size, size, 1, 1, 1, 0, 0)) for size in dy.shape[2:]]
    lines = [gathered(Axis(1, 1, 1, 1, 1, 0, 0))] * (3 - len(lines)) + lines
    g = _geometry(problem, lines, 1, 1, Sum(dy, dy, b, None))
    g.bias = b.strides[0]
    return Launch(f"total_{dtype}", (problem.k, 1), ((b.role, 0), (dy.role, 0)), g)


def launches(call: Call, arrays: dict[str, Array], kinds: Sequence[str]) -> Iterator[Launch]:
    """Yield the launches of a call whose arrays, results too, lie as `arrays` says.

    Parameters
    ----------
    call : Call
    arrays : dict of str to Array
        By role.
    kinds : sequence of str
        Which kernels may be taken: "direct", and "mma" before it where it is there.
    """
    problem = call.conv
    for role in call.wanted:
        out, terms, base = arrays[role], call.terms(role), BASE_ROLE[role]
        if prod(out.shape) == 0:
            continue
        if base == "b":
            yield _total_launch(problem, call.dtype, out, arrays[terms.added[0]])
            continue
        ((first, second),) = terms.products
        if base == "w":
            small, big = (second, first) if problem.transposed else (first, second)
            sides = Sum(arrays[big], arrays[small], out, None)
            yield _correlate_launch(problem, call.dtype, sides, kinds)
        else:
            scatter = problem.transposed == (base == "y")
            bias = arrays[terms.added[0]] if terms.added else None
            sides = Sum(arrays[first], out, arrays[second], bias)
            yield from _sum_launches(problem, scatter, call.dtype, sides, kinds)
