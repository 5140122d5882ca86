"""Pools on the CPU: a table of the positions that each window reads, and one kernel per pass."""

import ctypes
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from convref.case import Call, check_positions
from convref.ops import AdaptivePoolProblem, Axis, PoolProblem

from ..library import STRUCTS, run
from ..strides import Array, source
from ..structs import struct
from .norm import CHANNELS

AnyPoolProblem = PoolProblem | AdaptivePoolProblem
Pool = struct("cpu", "Pool")

REGISTER = 64  # bytes of the widest vector register

OPS = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")


def reads(axis: Any) -> list[tuple[int, int]]:
    """Return the first position and the number of positions that each window of an axis reads.

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


@lru_cache(STRUCTS)
def _template(problem: AnyPoolProblem) -> tuple[Pool, Any]:
    """Return the struct without addresses of arrays, and the owner of the table in it."""
    missing = 3 - problem.rank
    windows = [[(0, 1, 1)]] * missing + [
        [(*read, n) for read, n in zip(reads(axis), count)]
        for axis, count in zip(problem.axes, problem.counts)
    ]
    words = [word for axis in windows for window in axis for word in window]
    memory = (ctypes.c_int64 * len(words))(*words)
    p = Pool(images=problem.n, channels=problem.c, divisor=problem.divisor)
    p.reads = ctypes.addressof(memory)
    sizes = (1,) * missing + problem.shape("x")[2:]
    dilations = (1,) * missing + tuple(getattr(axis, "dilation", 1) for axis in problem.axes)
    for name, axis, size, dilation in zip("zyx", windows, sizes, dilations):
        setattr(p, name, struct("cpu", "PoolAxis")(len(axis), size, dilation))
    return p, memory


def _run(
    kernel: str, call: Call, big: Array, small: Array, indices: Array | None, threads: int
) -> None:
    backward = kernel.endswith("backward")
    if (big if backward else small).size == 0:
        return
    template, _ = _template(call.problem)
    p = Pool.from_buffer_copy(template)
    p.big, p.small = source(big), source(small)
    if indices is not None:
        p.indices = source(indices)
    blocks = -(-p.channels // CHANNELS) if backward else p.z.count * p.y.count
    size = REGISTER * prod(big.shape[2:]) if backward else 0
    run(kernel, call.dtype, p, p.images * blocks, threads, size)


def compute(call: Call, given: dict[str, Any], outputs: dict[str, Any], threads: int) -> None:
    """Write the requested results of a pool, by role; an index outside of the image is an error."""
    if "max" in call.op:
        _max_pool(call, given, outputs, threads)
    elif call.pass_ == "backward":
        _run("avg_pool_backward", call, outputs["dx"], given["dy"], None, threads)
    else:
        ((_, big), (_, small)) = *given.items(), *outputs.items()
        _run("avg_pool_fprop", call, big, small, None, threads)


def _max_pool(call: Call, given: dict[str, Any], outputs: dict[str, Any], threads: int) -> None:
    indices = given.get("indices")
    check_positions(call, "indices", indices)
    if call.pass_ == "backward":
        _run("max_pool_backward", call, outputs["dx"], given["dy"], indices, threads)
    elif call.pass_ == "double_backward":
        _run("max_pool_select", call, given["ddx"], outputs["ddy"], indices, threads)
    else:
        y = outputs["y"]
        indices = outputs.get("indices", np.empty(y.shape, np.int64))
        _run("max_pool_fprop", call, given["x"], y, indices, threads)
        if call.pass_ == "jvp":
            _run("max_pool_select", call, given["x_dot"], outputs["y_dot"], indices, threads)
