"""Faults: the base class, and mistakes of kernels besides the mutations."""

from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np

from convref.backends.numpy import declared
from convref.case import Call
from convref.conformance.mutations import (
    Change,
    Operands,
    Region,
    Results,
    Wrong,
    changed,
    oracle_results,
)
from convref.judge import Numerics

SWAPPING = RLock()  # one thread at a time may change a module


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
        Whether the fault touches a call of its family.
    wrong : callable
        Results of a call in the region.
    dtypes : tuple of str
        What a campaign must be asked for, where the default types do not show it.
    ops : tuple of str
        The ops it can touch.
    single : bool
        Whether it computes in float32, and declares it.
    """

    name: str
    model: str
    minimal: str
    region: Region
    wrong: Wrong
    dtypes: tuple[str, ...] = ()
    ops: tuple[str, ...] = ("conv",)
    single: bool = False

    checked_by_dispatch = True  # as the oracle, whose mistakes are not about malformed operands

    def reaches(self, call: Call) -> bool:
        return call.op in self.ops and self.region(call)

    def supports(self, call: Call) -> str | None:
        return None if call.specs[0].device == "cpu" else "operands are not on the CPU"

    def run(self, call: Call, *operands: Any) -> Results:
        compute = self.wrong if self.reaches(call) else oracle_results
        with np.errstate(all="ignore"):
            return compute(call, operands)

    def numerics(self, call: Call) -> Numerics:
        """Return the numerics of the correct kernel."""
        return Numerics("rn32") if self.single and self.reaches(call) else declared(call)

    def fingerprint(self) -> dict[str, str]:
        return {"fault": self.name, "numpy": np.__version__}


def reading(base: str, change: Change) -> Wrong:
    """Return a kernel that takes each operand of this base role for something else."""

    def wrong(call: Call, operands: Operands) -> Results:
        return oracle_results(call, changed(call, call.roles, operands, base, change))

    return wrong


def writing(base: str, change: Change) -> Wrong:
    """Return a kernel that changes each result of this base role."""

    def wrong(call: Call, operands: Operands) -> Results:
        return changed(call, call.signature.results, oracle_results(call, operands), base, change)

    return wrong


def only_result(result: int, wrong: Wrong) -> Wrong:
    """Return a kernel that goes wrong in one result."""

    def compute(call: Call, operands: Operands) -> Results:
        good, bad = oracle_results(call, operands), wrong(call, operands)
        return (*good[:result], bad[result], *good[result + 1 :])

    return compute


def without_operand(index: int) -> Wrong:
    """Return a kernel that ignores the operand at `index`, as if it were absent."""

    def wrong(call: Call, operands: Operands) -> Results:
        return oracle_results(call, (*operands[:index], None, *operands[index + 1 :]))

    return wrong


def with_functions(module: Any, **functions: Any) -> Wrong:
    """Return a kernel that computes with other functions in the place of a formula's own."""

    def wrong(call: Call, operands: Operands) -> Results:
        with SWAPPING:
            return compute(call, operands)

    def compute(call: Call, operands: Operands) -> Results:
        own = {name: getattr(module, name) for name in functions}
        try:
            _set(module, functions)
            return oracle_results(call, operands)
        finally:
            _set(module, own)

    return wrong


def _set(module: Any, functions: dict[str, Any]) -> None:
    for name, function in functions.items():
        setattr(module, name, function)
