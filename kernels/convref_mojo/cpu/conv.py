"""The sums of a convolution: structs filled in from arrays, and the launches that compute them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from convref.case import Call
from convref.ops import BASE_ROLE, ConvProblem, Terms

from ..geometry import Line, axes, gathered, lattices
from ..library import function, scratch, spread
from ..strides import Array, Strides, channel, spatial, strides_of
from .structures import Correlate, Filter, Gather, Source, Total, Windows, Word, table

PLANS = 1024  # launches that are remembered
ALONE = 1 << 17  # bytes of a packed filter that one thread has done before a second one has started


class Launch(NamedTuple):
    """A struct without its addresses.

    Parameters
    ----------
    struct : ctypes.Structure
    start : int
        Elements from the start of the result to where this launch begins.
    tables : tuple
        Memory that the struct points to.
    """

    struct: Any
    start: int
    tables: tuple[Any, ...]


class Kind(NamedTuple):
    """The functions of the library for a kind of convolution."""

    sum: str
    pack: str
    filter: str


DENSE = Kind("gather", "pack_filter", "correlate")
DEPTHWISE = Kind("depthwise", "pack_depthwise", "depthwise_filter")


def _kind(problem: ConvProblem) -> Kind:
    """Return what serves a problem: one channel a group on either side has kernels of its own."""
    return DEPTHWISE if problem.groups > 1 and _sides(problem) == (1, 1) else DENSE


def _windows(
    problem: ConvProblem, lines: tuple[Line, ...], channels: int, sources: Sequence[Strides]
) -> tuple[Windows, Any]:
    """Return windows with `channels` a group over sources of these strides."""
    shift, memory = table([s for line in lines for s in line.shifts])
    windows = Windows(images=problem.n, groups=problem.groups, channels=channels, shift=shift)
    windows.sources = len(sources)
    for axis, line in zip("zyx", lines):
        setattr(windows, f"count_{axis}", line.count)
        setattr(windows, f"size_{axis}", line.size)
        setattr(windows, f"step_{axis}", line.step)
        setattr(windows, f"taps_{axis}", len(line.taps))
    for name, strides in zip(("first", "second"), sources):
        c = channel(strides, channels * problem.groups)
        setattr(windows, name, Source(0, strides[0], c, *spatial(strides)))
    return windows, memory


def _filter(
    problem: ConvProblem, lines: tuple[Line, ...], strides: Strides, scatter: bool
) -> tuple[Filter, Any]:
    """Return a filter (small channels, big channels a group, *taps) as a sum sees it."""
    small, big, *_ = strides
    offsets = []
    for line, axis, stride in zip(lines, axes(problem), spatial(strides)):
        taps = ((axis.taps - 1 - r if problem.flip else r) for r in line.taps)
        offsets += [tap * stride for tap in taps]
    address, memory = table(offsets)
    group = small * _sides(problem)[1]
    summed, result = (small, big) if scatter else (big, small)
    return Filter(0, group, summed, result, address), memory


def _sides(problem: ConvProblem) -> tuple[int, int]:
    """Return the channels of the big and of the small side, per group."""
    c, k = problem.c // problem.groups, problem.k // problem.groups
    return (k, c) if problem.transposed else (c, k)


@lru_cache(PLANS)
def _gathers(
    problem: ConvProblem,
    scatter: bool,
    dtype: str,
    sources: tuple[Strides, ...],
    filters: tuple[Strides, ...],
    dst: Strides,
    bias: int,
    threads: int,
) -> tuple[Launch, ...]:
    """Return the launches of a sum over windows, one per lattice."""
    big, small = _sides(problem)
    summed, results = (small, big) if scatter else (big, small)
    launches = []
    for lines in lattices(problem, scatter):
        windows, shifts = _windows(problem, lines, summed, sources)
        g = Gather(windows=windows, results=results, bias_c=bias, wanted=2 * threads)
        tables = [shifts]
        for name, strides in zip(("first", "second"), filters):
            found, memory = _filter(problem, lines, strides, scatter)
            setattr(g, name, found)
            tables.append(memory)
        g.dst_n, g.dst_c = dst[0], channel(dst, results * problem.groups)
        start = 0
        for axis, line, stride in zip("zyx", lines, spatial(dst)):
            setattr(g, f"dst_{axis}", line.pace * stride)
            start += line.start * stride
        function(f"plan_{_kind(problem).sum}", dtype)(ctypes.byref(g))
        launches.append(Launch(g, start, tuple(tables)))
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
        What the windows slide over, and the filter; none means zeros.
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
    for launch in _gathers(*key):
        g = Gather.from_buffer_copy(launch.struct)
        for name, (source, w) in zip(("first", "second"), pairs):
            getattr(g.windows, name).data = source.ctypes.data
            getattr(g, name).data = w.ctypes.data
        g.dst = out.ctypes.data + launch.start * out.itemsize
        g.bias = 0 if bias is None else bias.ctypes.data
        g.panels = scratch(g.panels_bytes, "panels")
        _run(g, _kind(problem), dtype, threads)


def _run(g: Gather, kind: Kind, dtype: str, threads: int) -> None:
    pack, compute = function(kind.pack, dtype), function(kind.sum, dtype)
    size, address = g.scratch_bytes, ctypes.addressof(g)

    def work(low: int, high: int) -> None:
        compute(Word(address), Word(scratch(size, "rows")), Word(low), Word(high))

    if g.panels_bytes:
        packers = threads if g.panels_bytes > ALONE else 1
        spread(
            lambda low, high: pack(Word(address), Word(low), Word(high)), g.panels_units, packers
        )
    spread(work, g.units, threads)


@lru_cache(PLANS)
def _correlates(
    problem: ConvProblem, dtype: str, big: Strides, small: Strides, dst: Strides, threads: int
) -> Launch:
    lines = tuple(map(gathered, axes(problem)))
    big_channels, small_channels = _sides(problem)
    windows, shifts = _windows(problem, lines, big_channels, [big])
    p = Correlate(windows=windows, rows=small_channels, wanted=2 * threads)
    step = channel(small, small_channels * problem.groups)
    p.small = Source(0, small[0], step, *spatial(small))
    p.dst, offsets = _filter(problem, lines, dst, scatter=False)
    function(f"plan_{_kind(problem).filter}", dtype)(ctypes.byref(p))
    return Launch(p, 0, (shifts, offsets))


def correlate(
    problem: ConvProblem, dtype: str, big: Array, small: Array, out: Array, threads: int = 1
) -> None:
    """Write the filter gradient (C.3) of the big and the small side to `out`."""
    if out.size == 0:
        return
    if prod(small.shape) == 0:
        out[...] = 0
        return
    launch = _correlates(
        problem, dtype, strides_of(big), strides_of(small), strides_of(out), threads
    )
    p = Correlate.from_buffer_copy(launch.struct)
    p.windows.first.data, p.small.data = big.ctypes.data, small.ctypes.data
    p.dst.data = out.ctypes.data
    p.sums = scratch(p.sums_bytes, "sums")
    compute, address = function(_kind(problem).filter, dtype), ctypes.addressof(p)
    size = p.scratch_bytes
    spread(
        lambda low, high: compute(
            Word(address), Word(scratch(size, "rows")), Word(low), Word(high)
        ),
        p.units,
        threads,
    )
    if p.sums_bytes:
        merge = function("merge", dtype)
        spread(
            lambda low, high: merge(Word(address), Word(low), Word(high)),
            p.units // p.slices,
            threads,
        )


CHANNELS = 16  # in a unit of total.mojo and pool.mojo


def total(dtype: str, src: Array, out: Array, threads: int = 1) -> None:
    """Write the sum of src (N, C, *space) over images and space to out (C,)."""
    n, channels, *space = src.shape
    strides = strides_of(src)
    sizes = (1,) * (3 - len(space)) + tuple(space)
    source = Source(src.ctypes.data, strides[0], channel(strides, channels), *spatial(strides))
    p = Total(n, channels, *sizes, source, out.ctypes.data, out.strides[0] // out.itemsize)
    compute, address = function("total", dtype), ctypes.addressof(p)
    spread(
        lambda low, high: compute(Word(address), Word(low), Word(high)),
        -(-channels // CHANNELS),
        threads,
    )


@lru_cache(PLANS)
def _terms(call: Call) -> dict[str, Terms]:
    """Return what each result is made of."""
    return {role: call.terms(role) for role in call.wanted}


def compute(call: Call, given: dict[str, Any], outputs: dict[str, Any], threads: int) -> None:
    """Write the wanted results of a convolution, each from what `Call.terms` says of it.

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
            total(call.dtype, given[terms.added[0]], out, threads)
        elif base == "w":
            _filter_gradient(problem, call.dtype, pairs, out, threads)
        else:
            scatter = problem.transposed == (base == "y")
            bias = given[terms.added[0]] if terms.added else None
            sum_over_windows(problem, scatter, call.dtype, pairs, bias, out, threads)


def _filter_gradient(
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
