"""Refit heuristics to a time matrix, without the card: what does one lose on an unseen network?

Each network in turn is left out. For its lines the configuration is chosen that does best on the
lines of the same class in the other networks; regret is its time over the best of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from math import exp, log, log2
from pathlib import Path
from typing import Any, NamedTuple

from convref.case import parse

from .. import records


class Line(NamedTuple):
    """A row of the matrix: a call's times by configuration, and the fastest reference's."""

    line: str
    network: str
    times: int
    ms: dict[str, float]
    reference_ms: float | None


class Regret(NamedTuple):
    """What a network loses when it is left out: geometric means, weighted by multiplicity."""

    network: str
    lines: int
    mean: float
    worst: float
    against: float | None  # reference time over the time of what was chosen


def matrix(rows: Iterable[records.Record]) -> list[Line]:
    """Return the lines of a tuner's records that more than one configuration was timed on."""
    found: dict[str, Line] = {}
    for row in rows:
        if row.get("what") != "tuned":
            continue
        old = found.get(row["line"]) or Line(row["line"], row["suite"], row["times"], {}, None)
        if "configuration" in row:
            old.ms[json.dumps(row["configuration"], sort_keys=True)] = row["median_ms"]
        else:
            least = min(row["median_ms"], old.reference_ms or row["median_ms"])
            old = old._replace(reference_ms=least)
        found[row["line"]] = old
    return [line for line in found.values() if len(line.ms) > 1]


@cache
def classes(line: str) -> tuple[tuple[Any, ...], ...]:
    """Return the classes of a line, the narrowest first, the last one holding every line."""
    call = parse(line).call
    problem = call.conv
    kind = (call.pass_, call.mask, call.dtype, call.math)
    taps = problem.filter == (1,) * problem.rank
    shape = (taps, problem.stride, min(problem.c, problem.k) == problem.groups > 1)
    sizes = [problem.c // problem.groups, problem.k // problem.groups, problem.products("dw")]
    buckets = tuple(round(log2(size)) for size in sizes)
    return (*kind, *shape, *buckets), (*kind, *shape, *buckets[:2]), (*kind, *shape), kind, ()


def choose(line: Line, others: list[Line]) -> str:
    """Return the configuration for a line, from the times of other lines only.

    The narrowest class that holds another line decides, by the mean logarithm of time over best.
    """
    mine = classes(line.line)
    for depth, wanted in enumerate(mine):
        same = [one for one in others if classes(one.line)[depth] == wanted]
        scores = {name: score for name in line.ms if (score := _score(name, same)) is not None}
        if scores:
            return min(scores, key=lambda name: scores[name])
    return next(iter(line.ms))


def _score(name: str, lines: list[Line]) -> float | None:
    """Return how much a configuration loses on lines; one that cannot do half of them is out."""
    able = [log(one.ms[name] / min(one.ms.values())) for one in lines if name in one.ms]
    return sum(able) / len(able) if able and 2 * len(able) >= len(lines) else None


def regrets(lines: list[Line]) -> list[Regret]:
    """Return what each network loses when the heuristic has not seen it."""
    found = []
    for network in dict.fromkeys(line.network for line in lines):
        inside = [line for line in lines if line.network == network]
        others = [line for line in lines if line.network != network]
        took = [(line, line.ms[choose(line, others)]) for line in inside]
        lost = [(log(ms / min(line.ms.values())), line.times) for line, ms in took]
        gains = [
            (log(line.reference_ms / ms), line.times) for line, ms in took if line.reference_ms
        ]
        worst = exp(max(value for value, _ in lost))
        against = _mean(gains) if gains else None
        found.append(Regret(network, len(inside), _mean(lost), worst, against))
    return found


def _mean(weighted: list[tuple[float, int]]) -> float:
    return exp(sum(v * n for v, n in weighted) / sum(n for _, n in weighted))


def main(path: Path) -> int:
    """Print the regret of each network; exit status 2 where fewer than two were measured."""
    from rich.console import Console

    from ..report.tables import table

    found = regrets(matrix(records.read(path)[0]))
    if len(found) < 2:
        print(f"{path} has {len(found)} networks, needs two to leave one out")
        return 2
    rows = [
        [one.network, one.lines, f"{one.mean:.3f}", f"{one.worst:.2f}", _shown(one.against)]
        for one in found
    ]
    columns = ["left out", "lines", "time / best", "worst", "reference / time"]
    Console(highlight=False).print(table(f"{path.name}: heuristics refitted", columns, rows))
    return 0


def _shown(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3f}"
