"""Pairs of faults, a wide and a narrow one, and the predicates and mistakes that they share."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from convref.case import Call
from convref.conformance.mutations import Array, Region, Wrong, oracle_results
from convref.ops import Problem

from .base import Fault


def from_element(first: int | Callable[[Array], int]) -> Wrong:
    """Return a kernel whose results have other values from an element on, in memory order."""

    def wrong(call: Call, operands: Any) -> Any:
        results = oracle_results(call, operands)
        for result in results:
            if result is not None and result.size:
                flat = result.reshape(-1)
                at = first(result) if callable(first) else first
                flat[at:] = np.where(flat[at:] == 0, 1, 0).astype(result.dtype)
        return results

    return wrong


LAST = from_element(lambda result: result.size - 1)


def cols(call: Call) -> int:
    """Return the length of an output row."""
    return int(call.problem.output[-1])


def size(call: Call, role: str = "y") -> int:
    """Return the number of elements of a result."""
    return prod(call.problem.shape(role))


def positions(call: Call) -> int:
    """Return the number of output positions, images included."""
    return int(call.problem.n * prod(call.problem.output))


def of_dtype(dtype: str) -> Region:
    """Return the predicate of calls of a type."""
    return lambda call: call.dtype == dtype


def of_pass(*passes: str) -> Region:
    """Return the predicate of calls of some passes."""
    return lambda call: call.pass_ in passes


def all_of(*regions: Region) -> Region:
    """Return the predicate of calls on which all hold."""
    return lambda call: all(region(call) for region in regions)


def axis(name: str, value: int, most: int = 10**9) -> Region:
    """Return the predicate of windows that have a field in a range along some axis."""
    return lambda call: any(value <= v <= most for v in getattr(call.problem, name))


def ratio(least: float, most: float) -> Region:
    """Return the predicate of resizes whose input is so many times as large as the output."""
    return lambda call: any(
        least <= i / o <= most for i, o in zip(call.problem.input, call.problem.output) if o
    )


def only_unusual(*names: str) -> Region:
    """Return the predicate of convolutions in which all but these fields are plain."""
    neutral = {"stride": 1, "dilation": 1, "groups": 1}

    def region(call: Call) -> bool:
        p = call.conv
        given = {"stride": max(p.stride), "dilation": max(p.dilation), "groups": p.groups}
        unusual = {name for name, value in given.items() if value > neutral[name]}
        unusual |= {"padding"} if any(map(any, p.padding)) else set()
        return not p.transposed and not p.flip and unusual == set(names) and size(call) > 0

    return region


def is_transposed(problem: Problem) -> bool:
    return bool(getattr(problem, "transposed", False))


F32, F64, F16, BF16 = map(of_dtype, ("f32", "f64", "f16", "bf16"))
FPROP, JVP = of_pass("fprop"), of_pass("jvp")
SECOND = of_pass("double_backward")


def pair(
    name: str,
    model: str,
    ops: tuple[str, ...],
    region: Region,
    wrong: Wrong,
    minimal: str,
    narrow: Region,
    narrow_minimal: str,
    make: Callable[..., Fault] = Fault,
    **fields: Any,
) -> tuple[Fault, Fault]:
    """Return the wide and the narrow form of a fault; `make` takes further fields."""
    also, fields = all_of(region, narrow), {"ops": ops, **fields}
    return (
        make(name, model, minimal, region, wrong, **fields),
        make(f"{name}_narrow", f"{model}, narrow", narrow_minimal, also, wrong, **fields),
    )


def rows(*pairs: tuple[Fault, Fault]) -> tuple[Fault, ...]:
    """Return the faults of some pairs."""
    return tuple(fault for both in pairs for fault in both)
