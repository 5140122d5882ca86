"""Fit the rates of the cost model to a tuner's times, and report the loss of its ranking.

This needs no card: a committed matrix has the lines, the configurations and the times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from convref.case import parse

from .. import records
from ..timing.measure import geometric_mean
from .tuner import FEW

if TYPE_CHECKING:
    from convref_triton.plan.cost import Rates, Work

L2 = tuple(range(16, 100, 4))  # bytes a cycle that are tried
FILL = (0, 500, 1000, 1500, 2000, 3000, 4000, 6000)  # cycles
REACHED = np.arange(0.1, 1.3, 0.02)  # above 1 where the other figures are too pessimistic


class Timed(NamedTuple):
    """A configuration on a line: its work, the bytes of the call, and its time."""

    line: str
    work: Work
    moved: float
    us: float


def longest(one: Timed) -> str:
    from convref_triton.plan import cost

    return cost.longest(one.work, one.moved)


def timed(rows: Iterable[records.Record]) -> list[Timed]:
    """Return the configurations of a tuner's records whose work the estimate can count."""
    from convref_triton.common.geometry import operands
    from convref_triton.plan.builder import Builder
    from convref_triton.plan.choose import tasks
    from convref_triton.plan.kernels import BY_NAME
    from convref_triton.plan.tile import Tile

    found: dict[tuple[str, str], Timed] = {}
    for row in rows:
        made = row.get("configuration")
        if row.get("what") != "tuned" or not isinstance(made, dict):
            continue
        call = parse(row["line"]).call
        spec = BY_NAME.get(made.get("kernel", ""))
        if spec is None or spec.work is None or len(call.wanted) > 1:
            continue
        (task,) = tasks(Builder(call, operands(call)))
        work = spec.work_of(task, Tile(*made["tile"]))
        one = Timed(row["line"], work, call.bytes_moved(), 1e3 * row["median_ms"])
        found[row["line"], row["arm"]] = one
    return list(found.values())


def rates_of(rows: Sequence[records.Record]) -> Rates:
    """Return the estimated rates with the measured clock and copy rate in their place."""
    from convref_triton.plan.cost import ESTIMATED

    clocks = sorted(row["mhz"] for row in rows if row.get("what") == "tuned" and "mhz" in row)
    peaks = [row["bytes_s"] / 1e6 for row in rows if row.get("what") == "peaks"]
    mhz = clocks[len(clocks) // 2] if clocks else ESTIMATED.mhz
    return replace(ESTIMATED, mhz=mhz, memory=peaks[-1] if peaks else ESTIMATED.memory)


def fitted(found: Sequence[Timed], sms: int, rates: Rates) -> Rates:
    """Return the rates with the least squared error of the logarithm of time."""
    kernels = sorted({one.work.kernel for one in found})
    of = np.array([kernels.index(one.work.kernel) for one in found])
    best = min(
        (
            _missed(found, of, sms, replace(rates, l2=l2, fill=fill))
            for l2, fill in product(L2, FILL)
        ),
        key=lambda one: one[0],
    )
    _, tried, reached = best
    return replace(tried, reached=dict(zip(kernels, reached)))


def _missed(
    found: Sequence[Timed], of: np.ndarray, sms: int, rates: Rates
) -> tuple[float, Rates, list[float]]:
    """Return (squared error, rates, share that each kernel reaches) for the best shares."""
    from convref_triton.plan.cost import bound_us

    bound = np.array([bound_us(one.work, sms, rates) for one in found])
    moved = np.array([one.moved / rates.memory for one in found])
    rest = [
        one.work.beside / rates.memory + (one.work.launches - 1) * rates.launch_us for one in found
    ]
    expected = np.hypot(bound / REACHED[:, None], moved) + np.array(rest)
    squares = np.log(expected / np.array([one.us for one in found])) ** 2  # (shares, rows)
    sums = np.array([np.bincount(of, row) for row in squares])  # (shares, kernels)
    return float(sums.min(0).sum()), rates, [float(REACHED[i]) for i in sums.argmin(0)]


class Loss(NamedTuple):
    """The loss of a ranking: time of its choice over the best time, as geometric means."""

    lines: int
    first: float
    few: float
    worst: float


def loss(found: Sequence[Timed], sms: int, rates: Rates) -> Loss:
    from convref_triton.plan.cost import us

    lines: dict[str, list[tuple[float, float]]] = {}
    for one in found:
        expected = us(one.work, one.moved, sms, rates)
        lines.setdefault(one.line, []).append((expected, one.us))
    orders = [[took for _, took in sorted(pairs)] for pairs in lines.values() if len(pairs) > 1]
    first = [order[0] / min(order) for order in orders]
    few = [min(order[:FEW]) / min(order) for order in orders]
    means = [geometric_mean(some) if some else 1.0 for some in (first, few)]
    return Loss(len(orders), *means, max(first, default=1.0))


COLUMNS = ("rates", "lines", "first / best", f"best of {FEW} / best", "worst first")


def losses(
    found: Sequence[Timed], sms: int, rows: Sequence[records.Record]
) -> tuple[list[list[Any]], Rates]:
    """Return a table of the losses with estimated and with fitted rates, and the fitted rates."""
    guessed = rates_of(rows)
    best = fitted(found, sms, guessed)
    table = []
    for name, rates in (("as estimated", guessed), ("fitted", best)):
        one = loss(found, sms, rates)
        shown = (f"{one.first:.3f}", f"{one.few:.3f}", f"{one.worst:.2f}")
        table.append([name, one.lines, *shown])
    return table, best


def main(matrix: Path) -> int:
    """Print the rates that fit a matrix, and the loss of either ranking; exit status 2 if empty."""
    from convref.cli.output import print_table

    rows, _ = records.read(matrix)
    found = timed(rows)
    if not found:
        print(f"{matrix} has no times of configurations")
        return 2
    sms = next((row["sms"] for row in rows if row.get("what") == "tuning" and "sms" in row), 0)
    shown, best = losses(found, sms, rows)
    print_table(COLUMNS, shown, f"{matrix.name}: what an order loses")
    reached = {kernel: round(share, 2) for kernel, share in best.reached.items()}
    print(f"Rates(l2={best.l2:g}, fill={best.fill:g}, mhz={best.mhz:g}, memory={best.memory:.4g})")
    print(f"REACHED = {reached}")
    return 0
