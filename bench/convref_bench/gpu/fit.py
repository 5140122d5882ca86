"""Fit the rates of the cost model to a tuner's times, and report the loss of its ranking.

This needs no card: a committed matrix has the lines, the configurations and the times. Each
network is also predicted by the fit to the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from math import exp, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from convref.case import parse

from .. import records
from ..timing.measure import geometric_mean
from .tuner import FEW

if TYPE_CHECKING:
    from convref_triton.plan.cost import Rates, Work

# Rates that are fitted, by the part of a time in `convref_triton.plan.cost` that depends on them:
# each by these factors in turn until none of them helps.
PARTS = {
    "bound_us": ("l2", "latency"),
    "ends_us": ("fill", "stored"),
    "beside_us": ("empty_us", "maps_us", "launch_us", "copy_us", "copy"),
}
FITTED = tuple(name for names in PARTS.values() for name in names)
FACTORS = (0.5, 0.8, 0.95, 0.99, 1.01, 1.05, 1.25, 2.0)
REACHED = np.arange(0.05, 1.3, 0.01)  # above 1 where the other figures are too pessimistic
FAR = 0.1  # errors of the logarithm of time beyond this count linearly: outliers move no rate


class Timed(NamedTuple):
    """A configuration on a line: its work, the bytes of the call, and its time."""

    line: str
    network: str
    work: Work
    moved: float
    us: float


def longest_part(one: Timed) -> str:
    from convref_triton.plan import cost

    return cost.longest(one.work, one.moved)


def timed_configurations(rows: Iterable[records.Record]) -> list[Timed]:
    """Return the configurations of a tuner's records whose work the estimate can count."""
    from convref_triton.common.geometry import operands
    from convref_triton.plan.builder import Builder
    from convref_triton.plan.choose import tasks
    from convref_triton.plan.kernels import BY_NAME
    from convref_triton.plan.tile import Tile

    found: dict[tuple[str, str], Timed] = {}
    networks: dict[str, str] = {}
    for row in rows:
        made = row.get("configuration")
        if row.get("what") != "tuned" or not isinstance(made, dict):
            continue
        line, call = row["line"], parse(row["line"]).call
        spec = BY_NAME.get(made.get("kernel", ""))
        if spec is None or spec.work is None or len(call.wanted) > 1:
            continue
        (task,) = tasks(Builder(call, operands(call)))
        work = spec.work_of(task, Tile(*made["tile"]))
        # The times so far are of copies by PyTorch, whose rate is fitted.
        work = work._replace(copied=work.copied + work.reordered, reordered=0.0)
        network = networks.setdefault(line, row.get("suite", ""))
        one = Timed(line, network, work, call.bytes_moved(), 1e3 * row["median_ms"])
        found[line, json.dumps(made, sort_keys=True)] = one
    return list(found.values())


def rates_of(rows: Sequence[records.Record]) -> Rates:
    """Return the estimated rates with the measured clock and copy rate in their place."""
    from convref_triton.plan.cost import ESTIMATED

    clocks = sorted(row["mhz"] for row in rows if row.get("what") == "tuned" and "mhz" in row)
    peaks = [row["bytes_s"] / 1e6 for row in rows if row.get("what") == "peaks"]
    mhz = clocks[len(clocks) // 2] if clocks else ESTIMATED.mhz
    return replace(ESTIMATED, mhz=mhz, memory=peaks[-1] if peaks else ESTIMATED.memory)


def fit_rates(found: Sequence[Timed], sms: int, rates: Rates) -> Rates:
    """Return the rates with the least error of the logarithm of time, a descent from `rates`."""
    missed = _error_function(found, _parts(found, sms, rates))
    error, best = missed(rates)
    while True:
        before = error
        for name in FITTED:
            tried = (replace(best, **{name: getattr(best, name) * by}) for by in FACTORS)
            error, best = min(((error, best), *map(missed, tried)), key=lambda one: one[0])
        if error >= 0.999 * before:
            return best


def _parts(found: Sequence[Timed], sms: int, rates: Rates) -> Callable[..., Any]:
    """Return a function that gives a part of the time of each row, by the rates it depends on."""
    from convref_triton.plan import cost

    of = {
        "bound_us": partial(cost.bound_us, sms=sms),
        "ends_us": partial(cost.ends_us, sms=sms),
        "beside_us": cost.beside_us,
    }

    @cache
    def part(name: str, *values: float) -> Any:
        changed = replace(rates, **dict(zip(PARTS[name], values, strict=True)))
        return np.array([of[name](one.work, rates=changed) for one in found])

    return part


def _error_function(
    found: Sequence[Timed], parts: Callable[..., Any]
) -> Callable[[Rates], tuple[float, Rates]]:
    """Return a function: the error of rates with the best share of each kernel, and these rates."""
    kernels = sorted({one.work.kernel for one in found})
    of = np.array([kernels.index(one.work.kernel) for one in found])
    moved, us = np.array([(one.moved, one.us) for one in found]).T

    def missed(rates: Rates) -> tuple[float, Rates]:
        steps, ends, beside = (
            parts(part, *(getattr(rates, name) for name in names)) for part, names in PARTS.items()
        )
        errors = steps / REACHED[:, None]  # (shares, rows); in place: new megabytes take longer
        errors += ends
        _length(errors, moved / rates.memory)
        errors += beside
        errors /= us
        _length(np.log(errors, out=errors), FAR)
        errors -= FAR
        sums = np.array([np.bincount(of, row) for row in errors])  # (shares, kernels)
        shares = [float(REACHED[i]) for i in sums.argmin(0)]
        return float(sums.min(0).sum()), replace(rates, reached=dict(zip(kernels, shares)))

    return missed


def _length(a: Any, b: Any) -> None:
    """Set `a` to the square root of a² + b². np.hypot, which overflows later, takes ten times."""
    a *= a
    a += b * b
    np.sqrt(a, out=a)


def left_out(found: Sequence[Timed], sms: int, rates: Rates) -> Iterator[tuple[Timed, float]]:
    """Yield each row with its time as expected by the fit to all other networks."""
    from convref_triton.plan.cost import us

    for network in sorted({one.network for one in found}):
        others = fit_rates([one for one in found if one.network != network], sms, rates)
        for one in found:
            if one.network == network:
                yield one, us(one.work, one.moved, sms, others)


class Loss(NamedTuple):
    """The loss of a ranking: time of its choice over the best time, as geometric means.

    `error` is the factor of one standard deviation of estimates around measured times.
    """

    lines: int
    first: float
    few: float
    worst: float
    error: float


def loss(pairs: Iterable[tuple[Timed, float]]) -> Loss:
    """Return the loss of rows with their expected times."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for one, expected in pairs:
        lines.setdefault(one.line, []).append((expected, one.us))
    logs = [np.log(us / took) for pairs in lines.values() for us, took in pairs]
    orders = [[took for _, took in sorted(pairs)] for pairs in lines.values() if len(pairs) > 1]
    first = [order[0] / min(order) for order in orders]
    few = [min(order[:FEW]) / min(order) for order in orders]
    means = [geometric_mean(some) if some else 1.0 for some in (first, few)]
    error = exp(sqrt(float(np.square(logs).mean()))) if logs else 1.0
    return Loss(len(orders), *means, max(first, default=1.0), error)


COLUMNS = ("rates", "lines", "first / best", f"best of {FEW} / best", "worst first", "error")


def losses(
    found: Sequence[Timed], sms: int, rows: Sequence[records.Record]
) -> tuple[list[list[Any]], Rates]:
    """Return a table of the losses with our rates and with fitted ones, and the fitted rates."""
    from convref_triton.plan.cost import us

    guessed = rates_of(rows)
    best = fit_rates(found, sms, guessed)
    plain = [
        [(one, us(one.work, one.moved, sms, rates)) for one in found] for rates in (guessed, best)
    ]
    every = {"as estimated": plain[0], "fitted": plain[1]}
    if len({one.network for one in found}) > 1:
        every["fitted to the other networks"] = list(left_out(found, sms, guessed))
    table = []
    for name, pairs in every.items():
        one = loss(pairs)
        shown = (f"{one.first:.3f}", f"{one.few:.3f}", f"{one.worst:.2f}", f"{one.error:.2f}")
        table.append([name, one.lines, *shown])
    return table, best


def main(matrix: Path) -> int:
    """Print the rates that fit a matrix, and the loss of either ranking; exit status 2 if empty."""
    from convref.cli.output import print_table

    rows, _ = records.read(matrix)
    found = timed_configurations(rows)
    if not found:
        print(f"{matrix} has no times of configurations")
        return 2
    sms = next((row["sms"] for row in rows if row.get("what") == "tuning" and "sms" in row), 0)
    shown, best = losses(found, sms, rows)
    print_table(COLUMNS, shown, f"{matrix.name}: what an order loses")
    reached = {kernel: round(share, 2) for kernel, share in best.reached.items()}
    rates = {name: getattr(best, name) for name in (*FITTED, "mhz", "memory")}
    print(f"Rates({', '.join(f'{name}={value:.3g}' for name, value in rates.items())})")
    print(f"REACHED = {reached}")
    return 0
