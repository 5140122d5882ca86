"""Wrong kernels that the judge fails on a useful case; if it passes them all, the case is vacuous.

Each mutation is the oracle with one mistake: it misreads an operand, leaves part of a result
unwritten, or solves another problem of the same sizes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .. import oracle
from ..arrays import Array
from ..case import Call, Spec
from ..ops import BASE_ROLE, OPS, ConvProblem, Pads, Problem

Operands = tuple[Array | None, ...]
Results = tuple[Array | None, ...]
Region = Callable[[Call], bool]
Wrong = Callable[[Call, Operands], Results]
Change = Callable[[Array, Call, str], Array]  # of one array: itself, the call, its role


def oracle_results(call: Call, operands: Operands) -> Results:
    """Return the results of the oracle."""
    return oracle.evaluate(call, *operands)


def changed(
    call: Call, roles: tuple[str, ...], arrays: Operands, base: str, change: Change
) -> Operands:
    """Return the arrays with a change to those of one base role."""
    return tuple(
        change(array.copy(), call, role) if array is not None and BASE_ROLE[role] == base else array
        for role, array in zip(roles, arrays)
    )


def reading_and_writing(base: str, change: Change) -> Wrong:
    """Return a kernel that changes the operands and the results of this base role."""

    def wrong(call: Call, operands: Operands) -> Results:
        read = changed(call, call.roles, operands, base, change)
        return changed(call, call.signature.results, oracle_results(call, read), base, change)

    return wrong


def on_problem(change: Callable[[Problem], Problem]) -> Wrong:
    """Return a kernel that solves another problem of the same sizes."""

    def wrong(call: Call, operands: Operands) -> Results:
        plain = tuple(Spec(spec.dtype, device=spec.device) for spec in call.specs)
        return oracle_results(replace(call, problem=change(call.problem), specs=plain), operands)

    return wrong


def zeroed(at: Callable[[Call], Any], value: float = 0.0) -> Change:
    """Return a change that sets part of an array to `value`, as if it were never written."""

    def change(array: Array, call: Call, role: str) -> Array:
        array[at(call)] = value
        return array

    return change


def flipped(array: Array, call: Call, role: str) -> Array:
    """Flip all spatial axes."""
    return np.flip(array, tuple(range(2, array.ndim)))


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


def sides_swapped(problem: Problem) -> Problem:
    """Exchange low and high padding."""
    return reshaped(problem, lo=tuple(hi for _, hi in problem.padding))


def _shifted(call: Call, operands: Operands) -> Results:
    return tuple(None if r is None else np.roll(r, 1) for r in oracle_results(call, operands))


def _mirrored(call: Call, operands: Operands) -> Results:
    turned = [
        a if a is None or a.dtype.kind == "i" or role == "boxes" else a[..., ::-1]
        for role, a in zip(call.roles, operands)
    ]
    return oracle.evaluate(call, *turned)


def _without_last(call: Call, operands: Operands) -> Results:
    """Leave the last element of each result unwritten."""
    results = oracle_results(call, operands)
    for result in results:
        if result is not None and result.size:
            result[(-1,) * result.ndim] = 0
    return results


def _always(call: Call) -> bool:
    return True


def _multiplies(call: Call) -> bool:
    return OPS[call.op].multiplies


Mutations = dict[str, tuple[Region, Wrong]]  # by name: where the mistake can be made, the kernel

# Of any op, and of those that read windows; the most visible mistakes come first.
GENERAL: Mutations = {
    "shifted": (_always, _shifted),
    "mirrored": (_always, _mirrored),
    "without its last element": (_always, _without_last),
}
OF_WINDOWS: Mutations = {
    "last column unwritten": (
        _multiplies,
        reading_and_writing("y", zeroed(lambda call: np.s_[..., -1:])),
    ),
    "last column of windows unwritten": (
        lambda call: not _multiplies(call),
        reading_and_writing("cols", zeroed(lambda call: np.s_[..., -1:])),
    ),
    "last channel dropped": (_always, reading_and_writing("x", zeroed(lambda call: np.s_[:, -1:]))),
    "last tap dropped": (
        _multiplies,
        reading_and_writing("w", zeroed(lambda call: np.s_[..., -1:])),
    ),
    "filter flipped": (
        lambda call: _multiplies(call) and max(call.problem.filter) > 1,
        reading_and_writing("w", flipped),
    ),
    "padding swapped": (
        lambda call: any(axis.lo != axis.hi for axis in call.problem.axes),
        on_problem(sides_swapped),
    ),
    "bias forgotten": (_multiplies, reading_and_writing("b", zeroed(lambda call: ...))),
}


def mutations(call: Call) -> list[Wrong]:
    """Return the wrong kernels that give other results than the oracle on some data of a call."""
    rows = OF_WINDOWS if call.op in ("conv", "unfold", "fold") else GENERAL
    return [wrong for applies, wrong in rows.values() if applies(call)]
