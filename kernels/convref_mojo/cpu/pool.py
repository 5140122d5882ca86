"""Pools: tables of what each window reads, and the launches that compute each pass."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from convref.case import Call
from convref.errors import ConvrefError, message
from convref.ops import Axis, Problem

from ..library import function, scratch, spread
from ..strides import Array
from .conv import CHANNELS, PLANS
from .structures import Pool, Word, source, table

REGISTER = 64  # bytes of the widest register

OPS = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")


def reads(axis: Any) -> list[tuple[int, int]]:
    """Return, for each window of an axis, the first position that it reads and how many.

    >>> reads(Axis(big=5, small=3, taps=3, stride=2, dilation=1, lo=1, hi=1))
    [(0, 2), (1, 3), (3, 2)]
    """
    if not isinstance(axis, Axis):
        bounds = map(axis.bounds, range(axis.small))
        return [(start, end - start) for start, end in bounds]
    found = []
    for p in range(axis.small):
        start = p * axis.stride - axis.lo
        taps = range(start, start + axis.taps * axis.dilation, axis.dilation)
        there = [i for i in taps if 0 <= i < axis.big + min(0, axis.hi)]
        found.append((there[0], len(there)) if there else (0, 0))
    return found


@lru_cache(PLANS)
def _plan(problem: Problem) -> tuple[Pool, Any]:
    """Return the struct without its arrays, and the table that it points to."""
    lacking = 3 - problem.rank
    lines = [[(0, 1)]] * lacking + [reads(axis) for axis in problem.axes]
    divisors = getattr(problem, "counts", [(1,) * axis.small for axis in problem.axes])
    counts = [(1,)] * lacking + list(divisors)
    words = [(*read, n) for line, count in zip(lines, counts) for read, n in zip(line, count)]
    address, memory = table(tuple(chain.from_iterable(words)))
    sizes = (1,) * lacking + problem.shape("x")[2:]
    paces = (1,) * lacking + tuple(getattr(axis, "dilation", 1) for axis in problem.axes)
    p = Pool(images=problem.n, channels=problem.c, reads=address)
    p.divisor = getattr(problem, "divisor", 0)
    for axis, line, size, pace in zip("zyx", lines, sizes, paces):
        setattr(p, f"count_{axis}", len(line))
        setattr(p, f"size_{axis}", size)
        setattr(p, f"pace_{axis}", pace)
    return p, memory


def _launch(
    name: str, call: Call, big: Array, small: Array, indices: Array | None, threads: int
) -> None:
    """Run a kernel: "maxima", "means" and "picked" write `small`, "spread" and "placed" `big`."""
    scatters = name in ("spread", "placed")
    if (big if scatters else small).size == 0:
        return
    plan, _ = _plan(call.problem)
    p = Pool.from_buffer_copy(plan)
    p.big, p.small = source(big), source(small)
    if indices is not None:
        p.indices = source(indices)
    blocks = -(-p.channels // CHANNELS) if scatters else p.count_z * p.count_y
    size = REGISTER * prod(big.shape[2:]) if scatters else 0
    compute, address = function(name, call.dtype), ctypes.addressof(p)

    def work(low: int, high: int) -> None:
        compute(Word(address), Word(scratch(size, "sums")), Word(low), Word(high))

    spread(work, p.images * blocks, threads)


def compute(call: Call, given: dict[str, Any], outputs: dict[str, Any], threads: int) -> None:
    """Write the wanted results of a pool.

    Parameters
    ----------
    call : Call
    given, outputs : dict of str to ndarray
        Operands and results by role.
    threads : int

    Raises
    ------
    ConvrefError
        If an index names no position.
    """
    if "max" in call.op:
        _maxima(call, given, outputs, threads)
    elif call.pass_ == "backward":
        _launch("spread", call, outputs["dx"], given["dy"], None, threads)
    else:
        ((_, big), (_, small)) = *given.items(), *outputs.items()
        _launch("means", call, big, small, None, threads)


def _maxima(call: Call, given: dict[str, Any], outputs: dict[str, Any], threads: int) -> None:
    indices = given.get("indices")
    if indices is not None:
        indices = _checked(indices, prod(call.problem.shape("x")[2:]))
    if call.pass_ == "backward":
        _launch("placed", call, outputs["dx"], given["dy"], indices, threads)
    elif call.pass_ == "double_backward":
        _launch("picked", call, given["ddx"], outputs["ddy"], indices, threads)
    else:
        y = outputs["y"]
        indices = outputs.get("indices", np.empty(y.shape, np.int64))
        _launch("maxima", call, given["x"], y, indices, threads)
        if call.pass_ == "jvp":
            _launch("picked", call, given["x_dot"], outputs["y_dot"], indices, threads)


def _checked(indices: Array, count: int) -> Array:
    """Return indices of which each names a position, or none with -1."""
    if indices.size and (indices.min() < -1 or indices.max() >= count):
        wrong = int(indices.min() if indices.min() < -1 else indices.max())
        what = f"hold {wrong}, need a position from 0 to {count - 1}, or -1"
        raise ConvrefError(message("indices", what))
    return indices
