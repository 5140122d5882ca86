"""Pools on the GPU: the one launch of a call, of a kernel of pool.mojo."""

from math import prod
from typing import Any

from convref.case import Call
from convref.ops import AdaptiveAxis, AdaptivePoolProblem, Axis, PoolProblem

from ..geometry import UNIT, ArrayLayout, set_strides
from ..structs import struct
from .conv import NULL, THREADS, GpuLaunch

OPS = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")
AnyPoolProblem = PoolProblem | AdaptivePoolProblem

# By kernel: the number of results among its pointers, and the field of each pointer's strides.
POINTERS: dict[str, tuple[Any, ...]] = {
    "max_pool_fprop": (3, "small", "indices", "small_dot", "big", "big_dot"),
    "max_pool_select": (1, "small", "big", "indices"),
    "avg_pool_fprop": (1, "small", "big"),
    "max_pool_backward": (1, "big", "small", "indices"),
    "avg_pool_backward": (1, "big", "small", "indices"),
}
# The kernel of each pass, and the roles of its pointers; "-" is a null pointer.
KERNELS = {
    ("max", "fprop"): "max_pool_fprop y indices - x -",
    ("max", "jvp"): "max_pool_fprop y - y_dot x x_dot",
    ("max", "backward"): "max_pool_backward dx dy indices",
    ("max", "double_backward"): "max_pool_select ddy ddx indices",
    ("avg", "fprop"): "avg_pool_fprop y x",
    ("avg", "jvp"): "avg_pool_fprop y_dot x_dot",
    ("avg", "backward"): "avg_pool_backward dx dy -",
    ("avg", "double_backward"): "avg_pool_fprop ddy ddx",
}


def pool_axis(axis: Axis | AdaptiveAxis, include_pad: bool) -> Any:
    """Return the struct of an axis.

    >>> found = pool_axis(Axis(big=5, small=3, taps=3, stride=2, dilation=1, lo=1, hi=-2), False)
    >>> found.end, found.most
    (3, 3)
    """
    big, small = axis.big, axis.small
    if isinstance(axis, AdaptiveAxis):
        return struct("gpu", "PoolAxis")(small, big, big, small, big, 0, 1, big, 0, big)
    end = big + min(0, axis.hi)
    least, most = (-axis.lo, big + axis.hi) if include_pad else (0, end)
    reach = axis.taps * axis.dilation
    words = small, big, axis.stride, 1, reach, axis.lo, axis.dilation, end, least, most
    return struct("gpu", "PoolAxis")(*words)


def largest(problem: AnyPoolProblem) -> int:
    """Return an upper bound of the positions and products of an axis."""
    return max(
        axis.big * axis.small + axis.big + axis.small
        if isinstance(axis, AdaptiveAxis)
        else (axis.small + 1) * axis.stride + axis.taps * axis.dilation + abs(axis.lo) + axis.big
        for axis in problem.axes
    )


def taps(problem: AnyPoolProblem) -> int:
    """Return an upper bound of the divisors."""
    return max(prod(axis.taps for axis in problem.axes), abs(problem.divisor))


def _divisor(problem: AnyPoolProblem) -> int:
    if problem.divisor or any(len(set(count)) > 1 for count in problem.counts):
        return problem.divisor
    return prod(count[0] for count in problem.counts)


def launch(call: Call, arrays: dict[str, ArrayLayout]) -> GpuLaunch:
    problem = call.problem
    p = struct("gpu", "Pool")(problem.n, problem.c, divisor=_divisor(problem))
    for name, axis in zip("zyx", [UNIT] * (3 - problem.rank) + list(problem.axes)):
        setattr(p, name, pool_axis(axis, problem.include_pad))
    kernel, *roles = KERNELS["max" if "max" in call.op else "avg", call.pass_].split()
    results, *fields = POINTERS[kernel]
    for field, role in zip(fields, roles):
        if role in arrays:
            set_strides(getattr(p, field), arrays[role])
    p.last = p.big.c == 1
    p.indexed, p.tangent = "indices" in arrays, "x_dot" in arrays
    pointers = tuple((role, 0) if role in arrays else NULL for role in roles)
    blocks = -(-prod(arrays[roles[0]].shape) // THREADS)
    return GpuLaunch(f"{kernel}_{call.dtype}", (blocks, 1), pointers, p, results)
