"""A pool as launches of the GPU kernels of gpu/pool.mojo, one for each call."""

from __future__ import annotations

from math import prod
from typing import Any

from convref.case import Call
from convref.ops import AdaptiveAxis, Axis, Problem

from ..geometry import UNIT
from .conv import NULL, THREADS, Array, Launch, Place, place, struct

_SIZES = ("count", "size", "step", "over", "reach", "low", "pace", "stop", "least", "most")
Slide = struct("Slide", *_SIZES)
Pool = struct(
    "Pool",
    *("images", "channels", "last", "indexed", "tangent", "divisor"),
    *((axis, Slide) for axis in "zyx"),
    *((name, Place) for name in ("big", "small", "indices", "big_dot", "small_dot")),
)

# Of each kernel, how many of its pointers are written, and what the struct calls its arrays.
PLACES: dict[str, tuple[Any, ...]] = {
    "maxima": (3, "small", "indices", "small_dot", "big", "big_dot"),
    "picked": (1, "small", "big", "indices"),
    "means": (1, "small", "big"),
    "placed": (1, "big", "small", "indices"),
    "spread": (1, "big", "small", "indices"),
}
# The kernel of each pass, and its arrays by role, "-" for those that are not there.
SERVES = {
    ("max", "fprop"): "maxima y indices - x -",
    ("max", "jvp"): "maxima y - y_dot x x_dot",
    ("max", "backward"): "placed dx dy indices",
    ("max", "double_backward"): "picked ddy ddx indices",
    ("avg", "fprop"): "means y x",
    ("avg", "jvp"): "means y_dot x_dot",
    ("avg", "backward"): "spread dx dy -",
    ("avg", "double_backward"): "means ddy ddx",
}


def slide(axis: Axis | AdaptiveAxis, include_pad: bool) -> Any:
    """Return an axis as the kernels have it.

    >>> found = slide(Axis(big=5, small=3, taps=3, stride=2, dilation=1, lo=1, hi=-2), False)
    >>> found.stop, found.most
    (3, 3)
    """
    big, small = axis.big, axis.small
    if isinstance(axis, AdaptiveAxis):
        return Slide(small, big, big, small, big, 0, 1, big, 0, big)
    stop = big + min(0, axis.hi)
    least, most = (-axis.lo, big + axis.hi) if include_pad else (0, stop)
    reach = axis.taps * axis.dilation
    return Slide(small, big, axis.stride, 1, reach, axis.lo, axis.dilation, stop, least, most)


def largest(problem: Problem) -> int:
    """Return a number that no position or product of an axis exceeds."""
    return max(
        axis.big * axis.small + axis.big + axis.small
        if isinstance(axis, AdaptiveAxis)
        else (axis.small + 1) * axis.stride + axis.taps * axis.dilation + abs(axis.lo) + axis.big
        for axis in problem.axes
    )


def taps(problem: Problem) -> int:
    """Return a number that no divisor exceeds."""
    return max(prod(axis.taps for axis in problem.axes), abs(getattr(problem, "divisor", 0)))


def _divisor(problem: Problem) -> int:
    """Return the divisor of all windows, 0 if they differ or there is none."""
    counts = getattr(problem, "counts", ())
    if getattr(problem, "divisor", 0) or any(len(set(count)) > 1 for count in counts):
        return int(getattr(problem, "divisor", 0))
    return prod(count[0] for count in counts)


def launch(call: Call, arrays: dict[str, Array]) -> Launch:
    """Return the launch of a call whose arrays, results too, lie as `arrays` says."""
    problem = call.problem
    p = Pool(problem.n, problem.c, divisor=_divisor(problem))
    for axis, line in zip("zyx", [UNIT] * (3 - problem.rank) + list(problem.axes)):
        setattr(p, axis, slide(line, getattr(problem, "include_pad", False)))
    kernel, *roles = SERVES["max" if "max" in call.op else "avg", call.pass_].split()
    results, *places = PLACES[kernel]
    for where, role in zip(places, roles):
        setattr(p, where, place(arrays.get(role)))
    p.last = p.big.c == 1
    p.indexed, p.tangent = "indices" in arrays, "x_dot" in arrays
    pointers = tuple((role, 0) if role in arrays else NULL for role in roles)
    blocks = -(-prod(arrays[roles[0]].shape) // THREADS)
    return Launch(f"{kernel}_{call.dtype}", (blocks, 1), pointers, p, results)
