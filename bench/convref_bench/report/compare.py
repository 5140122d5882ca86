"""Two files of records side by side: the same line on the same arm, then and now."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

from .. import records
from ..timing.measure import Timing, verdict


def pairs(a: Path, b: Path) -> list[tuple[str, str, Timing, Timing]]:
    """Return (line, arm, timing in a, timing in b) for what both files have, the latest of each."""
    old, new = (_latest(path) for path in (a, b))
    return [(*key, old[key], new[key]) for key in old if key in new]


def _latest(path: Path) -> dict[tuple[str, str], Timing]:
    rows, _ = records.read(path)
    return {(r["line"], r["arm"]): Timing.of(r) for r in rows if "median_ms" in r}


def main(a: Path, b: Path) -> int:
    """Print each pair with its verdict on b; exit status 1 if something became slower."""
    from rich.console import Console

    from .tables import PLAIN, spread, table

    found = pairs(a, b)
    rows, slower, logs = [], 0, []
    for line, arm, old, new in found:
        says = verdict(new, old)
        slower += says == "slower"
        logs.append(log(old.median_ms / new.median_ms))
        ratio = f"{old.median_ms / new.median_ms:.3f}"
        texts = [spread(timing.record()) for timing in (old, new)]
        rows.append([line, arm, *texts, ratio, f"[{PLAIN[says]}]{says}[/]"])
    console = Console(highlight=False)
    console.print(table(f"{a} -> {b}, ms", ["line", "arm", "a", "b", "a / b", ""], _plain(rows)))
    if logs:
        console.print(f"geometric mean a / b: {exp(sum(logs) / len(logs)):.3f}, {slower} slower")
    return int(slower > 0)


def _plain(rows: list[list[str]]) -> list[list[str]]:
    """Return the rows with the brackets of spreads kept from being read as markup."""
    return [[*row[:2], *(text.replace("[", r"\[") for text in row[2:4]), *row[4:]] for row in rows]
