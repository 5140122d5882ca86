"""Convolutions on the GPU: the launches of a call, as data.

cuda.py passes them to the CUDA driver or to the PTX interpreter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from convref.case import Call
from convref.ops import BASE_ROLE, ConvProblem

from ..geometry import AxisWindows, axes, gathered, lattices
from ..strides import Strides, channel, spatial

THREADS = 128
TILE = 64  # rows and columns of a block of mma.mojo
VECTOR = 8  # elements of a copy of mma.mojo
Int32 = ctypes.c_int32


def struct(name: str, *fields: Any) -> Any:
    """Return a struct of the .mojo files; a field is an int32, or (name, struct)."""
    pairs = [field if isinstance(field, tuple) else (field, Int32) for field in fields]
    return type(name, (ctypes.Structure,), {"_fields_": pairs})


KernelAxis = struct("Axis", "count", "size", "step", "taps", "shift", "tap_step")
KernelStrides = struct("Strides", *"nczyx")
KernelFilter = struct("Filter", "group", "channel", "result", *"zyx")
Geometry = struct(
    "Geometry",
    *("images", "groups", "channels", "results", "biased", "bias"),
    *((axis, KernelAxis) for axis in "zyx"),
    *((side, KernelStrides) for side in ("big", "small")),
    ("filter", KernelFilter),
    "pairs",
    ("second_big", KernelStrides),
    ("second_filter", KernelFilter),
)


class ArrayLayout(NamedTuple):
    """The role, shape and strides in elements of an array, and whether it is aligned."""

    role: str
    shape: tuple[int, ...]
    strides: Strides
    aligned: bool  # its address is a multiple of 16

    @property
    def reach(self) -> int:
        """Return the largest offset between two elements."""
        return sum(abs(s) * (n - 1) for n, s in zip(self.shape, self.strides))


PointerArgument = tuple[str, int]
NULL: PointerArgument = "", 0


class GpuLaunch(NamedTuple):
    """A kernel, its grid, its pointers as (role, offset in elements), and its struct.

    The kernel writes the first `results` pointers.
    """

    kernel: str
    grid: tuple[int, int]
    pointers: tuple[PointerArgument, ...]
    geometry: Any
    results: int = 1

    @property
    def written(self) -> frozenset[str]:
        """Return the roles that the kernel writes."""
        return frozenset(role for role, _ in self.pointers[: self.results])


class Sum(NamedTuple):
    """The arrays of a sum over windows (gather) or of a filter gradient (correlate).

    `pairs` has the big side and the filter of each term; absent arrays are None.
    """

    pairs: tuple[tuple[ArrayLayout | None, ArrayLayout], ...]
    small: ArrayLayout | None
    bias: ArrayLayout | None = None


def _axis(axis: AxisWindows) -> Any:
    first, second, *_ = (*axis.shifts, 0, 0)
    tap_step = second - first if len(axis.taps) > 1 else 0
    return KernelAxis(axis.count, axis.size, axis.step, len(axis.taps), first, tap_step)


def _filter(
    problem: ConvProblem, lattice: Sequence[AxisWindows], w: ArrayLayout, scatter: bool
) -> tuple[Any, int]:
    """Return the strides of a filter in the order of its taps, and the offset of the first tap."""
    start, steps = 0, []
    for windows, axis, stride in zip(lattice, axes(problem), spatial(w.strides)):
        taps = [axis.taps - 1 - r if problem.flip else r for r in windows.taps]
        start += taps[0] * stride if taps else 0
        steps.append((taps[1] - taps[0]) * stride if len(taps) > 1 else 0)
    small, big, *_ = w.strides
    group = small * (problem.c if problem.transposed else problem.k) // problem.groups
    summed, results = (small, big) if scatter else (big, small)
    return KernelFilter(group, summed, results, *steps), start


def kernel_strides(array: ArrayLayout | None, steps: Sequence[int] = (1, 1, 1)) -> Any:
    """Return the strides of an array of which each axis is read in steps."""
    if array is None:
        return KernelStrides()
    spatial_strides = (n * stride for n, stride in zip(steps, spatial(array.strides)))
    return KernelStrides(array.strides[0], channel(array.strides, array.shape[1]), *spatial_strides)


def _geometry(
    problem: ConvProblem, lattice: Sequence[AxisWindows], scatter: bool, arrays: Sum
) -> tuple[Any, list[int]]:
    """Return the struct of a launch, and the offset of the first tap of each filter."""
    g = Geometry(problem.n, problem.groups, *_sides(problem, scatter), pairs=len(arrays.pairs))
    for name, axis in zip("zyx", lattice):
        setattr(g, name, _axis(axis))
    g.small = kernel_strides(arrays.small, [axis.result_step for axis in lattice])
    starts = []
    for prefix, (big, w) in zip(("", "second_"), arrays.pairs):
        strides, at = _filter(problem, lattice, w, scatter)
        setattr(g, f"{prefix}big", kernel_strides(big))
        setattr(g, f"{prefix}filter", strides)
        starts.append(at)
    if arrays.bias is not None:
        g.biased, g.bias = 1, arrays.bias.strides[0]
    return g, starts


def _sides(problem: ConvProblem, scatter: bool) -> tuple[int, int]:
    """Return the channels per group that are summed over, and those of the result."""
    c, k = problem.c // problem.groups, problem.k // problem.groups
    return (k, c) if problem.transposed != scatter else (c, k)


def _sum_launches(
    problem: ConvProblem, scatter: bool, dtype: str, arrays: Sum, kinds: Sequence[str]
) -> Iterator[GpuLaunch]:
    """Yield one launch per lattice of windows; `small` is the result."""
    out, bias = arrays.small, _pointer(arrays.bias)
    assert out is not None
    for lattice in lattices(problem, scatter):
        g, starts = _geometry(problem, lattice, scatter, arrays)
        start = sum(
            axis.result_start * stride for axis, stride in zip(lattice, spatial(out.strides))
        )
        windows = problem.n * prod(axis.count for axis in lattice)
        pairs = [(_pointer(big), _pointer(w, at)) for (big, w), at in zip(arrays.pairs, starts)]
        if dtype == "bf16" and "mma" in kinds and len(pairs) == 1:
            vectors = _vectors(arrays.pairs[0], g, starts[0])
            wide = "wgmma" in kinds and vectors == "v8f8"
            name = "gather_wgmma" if wide else f"gather_mma_{vectors}"
            grid = -(-windows // TILE), problem.groups * -(-g.results // TILE)
            yield GpuLaunch(name, grid, (_pointer(out, start), *pairs[0], bias), g)
        else:
            first, second = (*pairs, (NULL, NULL), (NULL, NULL))[:2]
            pointers = _pointer(out, start), *first, bias, *second
            threads = windows * problem.groups * g.results
            yield GpuLaunch(f"gather_{dtype}", (-(-threads // THREADS), 1), pointers, g)


def _pointer(array: ArrayLayout | None, at: int = 0) -> PointerArgument:
    return NULL if array is None else (array.role, at)


def _vectors(pair: tuple[Any, ArrayLayout], g: Any, at: int) -> str:
    """Return the widths of the copies of both operands, as in the name of a kernel."""
    big, f = _image_admits(pair[0], g.big, g.channels), g.filter
    w = _admits(pair[1], f.channel, (f.group, f.result, f.z, f.y, f.x, at, g.channels))
    return "v8f8" if big and w else "v8f1" if big else "v1f1"


def _admits(array: ArrayLayout, inner: int, others: Sequence[int]) -> bool:
    """Return whether an array can be copied VECTOR elements at a time."""
    return array.aligned and inner == 1 and all(n % VECTOR == 0 for n in others)


def _image_admits(array: ArrayLayout, s: Any, channels: int) -> bool:
    return _admits(array, s.c, (s.n, s.z, s.y, s.x, channels))


def _correlate_launch(
    problem: ConvProblem, dtype: str, arrays: Sum, kinds: Sequence[str]
) -> GpuLaunch:
    """Return the launch of a filter gradient; without operands it sums over no images."""
    lattice = tuple(map(gathered, axes(problem)))
    ((big, out),) = arrays.pairs
    g, (at,) = _geometry(problem, lattice, False, arrays)
    if arrays.small is None:
        g.images = 0
    columns = g.channels * prod(len(axis.taps) for axis in lattice)
    pointers = _pointer(out, at), _pointer(big), _pointer(arrays.small)
    if dtype == "bf16" and "mma" in kinds:
        small = arrays.small is not None and _image_admits(arrays.small, g.small, g.results)
        wide = small and _image_admits(big, g.big, g.channels)
        grid = -(-columns // TILE), problem.groups * -(-g.results // TILE)
        return GpuLaunch(f"correlate_mma_v{VECTOR if wide else 1}", grid, pointers, g)
    threads = problem.groups * g.results * columns
    return GpuLaunch(f"correlate_{dtype}", (-(-threads // THREADS), 1), pointers, g)


def _bgrad_launch(problem: ConvProblem, dtype: str, b: ArrayLayout, dy: ArrayLayout) -> GpuLaunch:
    g = Geometry(problem.n, bias=b.strides[0], small=kernel_strides(dy))
    for axis, size in zip("zyx", (1,) * (5 - len(dy.shape)) + dy.shape[2:]):
        setattr(g, axis, KernelAxis(count=size))
    return GpuLaunch(f"bgrad_{dtype}", (problem.k, 1), (_pointer(b), _pointer(dy)), g)


def launches(
    call: Call, arrays: dict[str, ArrayLayout], kinds: Sequence[str]
) -> Iterator[GpuLaunch]:
    """Yield the launches of a call.

    Parameters
    ----------
    call : Call
    arrays : dict of str to ArrayLayout
        Operands and results by role.
    kinds : sequence of str
        The kernels to choose from: "direct", "mma" and "wgmma".
    """
    problem = call.conv
    for role in call.wanted:
        out, terms, base = arrays[role], call.terms(role), BASE_ROLE[role]
        pairs = tuple((arrays[first], arrays[second]) for first, second in terms.products)
        if prod(out.shape) == 0:
            continue
        if base == "b":
            yield _bgrad_launch(problem, call.dtype, out, arrays[terms.added[0]])
        elif base == "w":
            first, second = pairs[0] if pairs else (None, None)
            small, big = (second, first) if problem.transposed else (first, second)
            yield _correlate_launch(problem, call.dtype, Sum(((big, out),), small), kinds)
        else:
            scatter = problem.transposed == (base == "y")
            bias = arrays[terms.added[0]] if terms.added else None
            yield from _sum_launches(problem, scatter, call.dtype, Sum(pairs, out, bias), kinds)
