"""What a fault is, and the ways in which a kernel goes wrong: reading, writing, elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import oracle
from ...backends.numpy import declared
from ...case import Call, Spec
from ...judge import Numerics
from ...ops import BASE_ROLE, ConvProblem, Pads, Problem

Array = np.ndarray[Any, Any]
Operands = tuple[Array | None, ...]
Results = tuple[Array | None, ...]
Region = Callable[[Call], bool]
Wrong = Callable[[Call, Operands], Results]
Change = Callable[[Array, Call, str], Array]  # of one array: itself, the call, its role


@dataclass(frozen=True)
class Fault:
    """A backend that is right outside its region.

    Parameters
    ----------
    name : str
    model : str
        The real bug, by tracker and number where it has one.
    minimal : str
        A small case line that shows the fault; a shrunk one is no larger.
    region : callable
        Whether the fault touches a call of op conv.
    wrong : callable
        Results of a call in the region.
    dtypes : tuple of str
        What a campaign must be asked for, where the default types do not show it.
    """

    name: str
    model: str
    minimal: str
    region: Region
    wrong: Wrong
    dtypes: tuple[str, ...] = ()

    checked_by_dispatch = True  # as the oracle, whose mistakes are not about malformed operands

    def reaches(self, call: Call) -> bool:
        """Return whether the fault may show on `call`."""
        return call.op == "conv" and self.region(call)

    def supports(self, call: Call) -> str | None:
        """Return None unless an operand lies on another device."""
        return None if call.specs[0].device == "cpu" else "operands are not on the CPU"

    def run(self, call: Call, *operands: Any) -> Results:
        """Return the results by role, wrong ones in the region."""
        compute = self.wrong if self.reaches(call) else right
        with np.errstate(all="ignore"):
            return compute(call, operands)

    def numerics(self, call: Call) -> Numerics:
        """Return the model of the kernel that this one should have been."""
        return declared(call)

    def fingerprint(self) -> dict[str, str]:
        """Return which fault this is, and the version of NumPy."""
        return {"fault": self.name, "numpy": np.__version__}


def right(call: Call, operands: Operands) -> Results:
    """Return what the oracle returns."""
    return oracle.evaluate(call, *operands)


# How a kernel goes wrong: it misreads an operand, miswrites a result, or solves another problem.


def reading(base: str, change: Change) -> Wrong:
    """Return a kernel that takes each operand of this base role for something else."""

    def wrong(call: Call, operands: Operands) -> Results:
        return right(call, spoiled(call, call.roles, operands, base, change))

    return wrong


def writing(base: str, change: Change) -> Wrong:
    """Return a kernel that spoils each result of this base role."""

    def wrong(call: Call, operands: Operands) -> Results:
        return spoiled(call, call.signature.results, right(call, operands), base, change)

    return wrong


def spoiled(
    call: Call, roles: tuple[str, ...], arrays: Operands, base: str, change: Change
) -> Operands:
    """Return the arrays with a change to those of one base role."""
    return tuple(
        change(array.copy(), call, role) if array is not None and BASE_ROLE[role] == base else array
        for role, array in zip(roles, arrays)
    )


def elsewhere(change: Callable[[Problem], Problem]) -> Wrong:
    """Return a kernel that solves another problem of the same sizes."""

    def wrong(call: Call, operands: Operands) -> Results:
        changed = change(call.problem)
        plain = tuple(Spec(spec.dtype, device=spec.device) for spec in call.specs)
        return right(replace(call, problem=changed, specs=plain), operands)

    return wrong


def reshaped(problem: Problem, **changes: Any) -> Problem:
    """Return the problem with changes, and high padding that gives it the same output.

    >>> problem = ConvProblem(n=1, c=1, k=1, input=(5,), filter=(3,), padding=1)
    >>> reshaped(problem, dilation=(2,)).padding, reshaped(problem, lo=(2,)).output
    (((1, 3),), (5,))
    """
    old_lo = tuple(lo for lo, _ in problem.padding)
    lows, stride = changes.pop("lo", old_lo), changes.get("stride", problem.stride)
    dilation = changes.get("dilation", problem.dilation)
    transposed = isinstance(problem, ConvProblem) and problem.transposed
    padding = []
    for axis, lo in enumerate(lows):
        span = dilation[axis] * (problem.filter[axis] - 1) + 1
        size, out = problem.input[axis], problem.output[axis]
        small = size if transposed else out
        big = (small - 1) * stride[axis] + span - lo
        padding.append((lo, big - (out if transposed else size)))
    if transposed:
        changes["output_padding"] = (0,) * problem.rank
    pads: Pads = tuple(padding)
    return replace(problem, **{"padding": pads, **changes})


def zeroed(at: Callable[[Call], Any], value: float = 0.0) -> Change:
    """Return a change that leaves part of an array unwritten, or what was there before."""

    def change(array: Array, call: Call, role: str) -> Array:
        array[at(call)] = value
        return array

    return change


def only(result: int, wrong: Wrong) -> Wrong:
    """Return a kernel that goes wrong in one result."""

    def compute(call: Call, operands: Operands) -> Results:
        good, bad = right(call, operands), wrong(call, operands)
        return (*good[:result], bad[result], *good[result + 1 :])

    return compute


def without(index: int) -> Wrong:
    """Return a kernel that forgets the operand at `index`, as if it were absent."""

    def wrong(call: Call, operands: Operands) -> Results:
        return right(call, (*operands[:index], None, *operands[index + 1 :]))

    return wrong


def both(base: str, change: Change) -> Wrong:
    """Return a kernel that treats operands and results of this base role alike."""

    def wrong(call: Call, operands: Operands) -> Results:
        read = spoiled(call, call.roles, operands, base, change)
        return spoiled(call, call.signature.results, right(call, read), base, change)

    return wrong
