"""Convolutions on the CPU: structs filled in from arrays, and the kernels that take them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from convref.case import Call
from convref.ops import BASE_ROLE, ConvProblem, Terms

from ..geometry import Lattice, axes, gathered, lattices
from ..library import STRUCTS, function, run, scratch
from ..strides import Array, Strides, channel, spatial, strides_of
from .norm import channel_sums
from .structures import Correlate, Filter, Gather, Source, Windows, table

# Bytes of a packed filter below which one thread has packed it before a second one has started.
PACKED_ALONE = 1 << 17


class Template(NamedTuple):
    """A struct without the addresses of arrays.

    Parameters
    ----------
    struct : ctypes.Structure
    start : int
        Elements from the first element of the result to the first that this launch writes.
    tables : tuple
        Owners of the memory that the struct points to.
    """

    struct: Any
    start: int
    tables: tuple[Any, ...]


class Kernels(NamedTuple):
    """The functions of the library for a kind of convolution."""

    gather: str
    pack: str
    correlate: str


DENSE = Kernels("gather", "pack_filter", "correlate")
DEPTHWISE = Kernels("depthwise", "pack_depthwise", "depthwise_wgrad")


def _kernels(problem: ConvProblem) -> Kernels:
    return DEPTHWISE if problem.groups > 1 and _sides(problem) == (1, 1) else DENSE


def _sides(problem: ConvProblem) -> tuple[int, int]:
    """Return the channels of the big and of the small side, per group."""
    c, k = problem.c // problem.groups, problem.k // problem.groups
    return (k, c) if problem.transposed else (c, k)


def _windows(
    problem: ConvProblem,
    lattice: Lattice,
    channels: int,
    sources: Sequence[Strides],
) -> tuple[Windows, Any]:
    """Return windows with `channels` per group over sources of these strides."""
    shift, memory = table([s for axis in lattice for s in axis.shifts])
    windows = Windows(images=problem.n, groups=problem.groups, channels=channels, shift=shift)
    windows.sources = len(sources)
    for name, axis in zip("zyx", lattice):
        setattr(windows, f"count_{name}", axis.count)
        setattr(windows, f"size_{name}", axis.size)
        setattr(windows, f"step_{name}", axis.step)
        setattr(windows, f"taps_{name}", len(axis.taps))
    for name, strides in zip(("first", "second"), sources):
        c = channel(strides, channels * problem.groups)
        setattr(windows, name, Source(0, strides[0], c, *spatial(strides)))
    return windows, memory


def _filter(
    problem: ConvProblem, lattice: Lattice, strides: Strides, scatter: bool
) -> tuple[Filter, Any]:
    """Return the struct of a filter (small channels, big channels per group, *taps)."""
    small, big, *_ = strides
    offsets = []
    for windows, axis, stride in zip(lattice, axes(problem), spatial(strides)):
        taps = ((axis.taps - 1 - r if problem.flip else r) for r in windows.taps)
        offsets += [tap * stride for tap in taps]
    address, memory = table(offsets)
    group = small * _sides(problem)[1]
    summed, result = (small, big) if scatter else (big, small)
    return Filter(0, group, summed, result, address), memory


@lru_cache(STRUCTS)
def _gathers(
    problem: ConvProblem,
    scatter: bool,
    dtype: str,
    sources: tuple[Strides, ...],
    filters: tuple[Strides, ...],
    dst: Strides,
    bias: int,
    threads: int,
) -> tuple[Template, ...]:
    """Return the launches of a sum over windows, one per lattice."""
    big, small = _sides(problem)
    summed, results = (small, big) if scatter else (big, small)
    launches = []
    for lattice in lattices(problem, scatter):
        windows, shifts = _windows(problem, lattice, summed, sources)
        g = Gather(windows=windows, results=results, bias_c=bias, min_units=2 * threads)
        tables = [shifts]
        for name, strides in zip(("first", "second"), filters):
            found, memory = _filter(problem, lattice, strides, scatter)
            setattr(g, name, found)
            tables.append(memory)
        g.dst_n, g.dst_c = dst[0], channel(dst, results * problem.groups)
        start = 0
        for name, axis, stride in zip("zyx", lattice, spatial(dst)):
            setattr(g, f"dst_{name}", axis.result_step * stride)
            start += axis.result_start * stride
        function(f"plan_{_kernels(problem).gather}", dtype)(ctypes.byref(g))
        launches.append(Template(g, start, tuple(tables)))
    return tuple(launches)


def sum_over_windows(
    problem: ConvProblem,
    scatter: bool,
    dtype: str,
    pairs: Sequence[tuple[Array, Array]],
    bias: Array | None,
    out: Array,
    threads: int = 1,
) -> None:
    """Write the sum of one or two gathers (C.1) or scatters (C.2), plus bias, to `out`.

    Parameters
    ----------
    problem : ConvProblem
    scatter : bool
    dtype : str
    pairs : sequence of (ndarray, ndarray)
        What the windows slide over, and the filter; without pairs the sum is zero.
    bias : ndarray or None
    out : ndarray
        Of the big side for a scatter, else of the small side; any strides.
    threads : int
    """
    if out.size == 0:
        return
    key = (
        problem,
        scatter,
        dtype,
        tuple(strides_of(source) for source, _ in pairs),
        tuple(strides_of(w) for _, w in pairs),
        strides_of(out),
        0 if bias is None else channel((0, *strides_of(bias)), len(bias)),
        threads,
    )
    kernels = _kernels(problem)
    for template in _gathers(*key):
        g = Gather.from_buffer_copy(template.struct)
        for name, (source, w) in zip(("first", "second"), pairs):
            getattr(g.windows, name).data = source.ctypes.data
            getattr(g, name).data = w.ctypes.data
        g.dst = out.ctypes.data + template.start * out.itemsize
        g.bias = 0 if bias is None else bias.ctypes.data
        g.panels = scratch(g.panels_bytes, "panels")
        if g.panels_bytes:
            packers = threads if g.panels_bytes > PACKED_ALONE else 1
            run(kernels.pack, dtype, g, g.panels_units, packers)
        run(kernels.gather, dtype, g, g.units, threads, g.scratch_bytes)


@lru_cache(STRUCTS)
def _correlates(
    problem: ConvProblem, dtype: str, big: Strides, small: Strides, dst: Strides, threads: int
) -> Template:
    lattice = tuple(map(gathered, axes(problem)))
    big_channels, small_channels = _sides(problem)
    windows, shifts = _windows(problem, lattice, big_channels, [big])
    p = Correlate(windows=windows, rows=small_channels, min_units=2 * threads)
    step = channel(small, small_channels * problem.groups)
    p.small = Source(0, small[0], step, *spatial(small))
    p.dst, offsets = _filter(problem, lattice, dst, scatter=False)
    function(f"plan_{_kernels(problem).correlate}", dtype)(ctypes.byref(p))
    return Template(p, 0, (shifts, offsets))


def correlate(
    problem: ConvProblem, dtype: str, big: Array, small: Array, out: Array, threads: int = 1
) -> None:
    """Write the filter gradient (C.3) of the big and the small side to `out`."""
    if out.size == 0:
        return
    if prod(small.shape) == 0:
        out[...] = 0
        return
    strides = strides_of(big), strides_of(small), strides_of(out)
    p = Correlate.from_buffer_copy(_correlates(problem, dtype, *strides, threads).struct)
    p.windows.first.data, p.small.data = big.ctypes.data, small.ctypes.data
    p.dst.data = out.ctypes.data
    p.sums = scratch(p.sums_bytes, "sums")
    run(_kernels(problem).correlate, dtype, p, p.units, threads, p.scratch_bytes)
    if p.sums_bytes:
        run("merge", dtype, p, p.units // p.slices, threads)


@lru_cache(STRUCTS)
def _terms(call: Call) -> dict[str, Terms]:
    return {role: call.terms(role) for role in call.wanted}


def compute(call: Call, given: dict[str, Any], outputs: dict[str, Any], threads: int) -> None:
    """Write the requested results of a convolution, each the sum that `Call.terms` returns.

    Parameters
    ----------
    call : Call
    given, outputs : dict of str to ndarray
        Operands and results by role.
    threads : int
    """
    problem = call.conv
    for role, out in outputs.items():
        terms, base = _terms(call)[role], BASE_ROLE[role]
        pairs = [(given[a], given[b]) for a, b in terms.products]
        if base == "b":
            with np.errstate(all="ignore"):  # sums may overflow when they are rounded
                out[...] = channel_sums(call.dtype, given[terms.added[0]], threads)
        elif base == "w":
            _conv_wgrad(problem, call.dtype, pairs, out, threads)
        else:
            scatter = problem.transposed == (base == "y")
            bias = given[terms.added[0]] if terms.added else None
            sum_over_windows(problem, scatter, call.dtype, pairs, bias, out, threads)


def _conv_wgrad(
    problem: ConvProblem,
    dtype: str,
    pairs: Sequence[tuple[Array, Array]],
    out: Array,
    threads: int,
) -> None:
    if not pairs:
        out[...] = 0
    for small, big in pairs:
        if problem.transposed:
            small, big = big, small
        correlate(problem, dtype, big, small, out, threads)
