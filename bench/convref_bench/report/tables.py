"""What a person sees in the terminal: rows as they come, geometric means at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.table import Table

from ..records import Record

PLAIN = {"faster": "green", "slower": "red", "ambiguous": "yellow"}


def spread(row: Record) -> str:
    """Return ``median [min, q3]`` of a record, in milliseconds.

    >>> spread({"median_ms": 1.5, "low_ms": 1.25, "q3_ms": 2.0})
    '1.5 [1.25, 2]'
    """
    return f"{row['median_ms']:.3g} [{row['low_ms']:.3g}, {row['q3_ms']:.3g}]"


class LiveTable:
    """Prints CPU records: the host's doors at once, layers when both arms are there."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.waiting: dict[str, Record] = {}

    def __enter__(self) -> LiveTable:
        """Print the units."""
        text = "times in ms: median [fastest, third quartile]; ratio = torch / oracle"
        self.console.print(text, markup=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave what was printed."""

    def add(self, row: Record) -> None:
        """Print a record, or keep it until its partner comes."""
        if row["what"] == "host":
            self.console.print(f"  host  {row['arm']:<20} {spread(row)}", markup=False)
            return
        ours = self.waiting.pop(row["line"], None)
        if ours is None:
            self.waiting[row["line"]] = row
            return
        ratio = row["median_ms"] / ours["median_ms"]
        colour = PLAIN[ours["verdict"]]
        text = f"{ours['times']}x {ours['line']:<52} {spread(ours):>24} {spread(row):>24}"
        self.console.print(text, markup=False, end=" ", soft_wrap=True)
        self.console.print(f"[{colour}]{ratio:5.2f} {ours['verdict']}[/] mem {ours['memory']:.2f}")

    def summary(self, rows: list[Record]) -> None:
        """Print the geometric means, and the stem apart."""
        from ..timing.cpu import STEM, geometric_means

        title = "ResNet-50, batch 4, float64, torch / oracle"
        table = Table("pass", "medians", "fastest", "worst memory", title=title)
        fastest = geometric_means(rows, "low_ms")
        for pass_, mean in geometric_means(rows).items():
            lines = [r for r in rows if r.get("line", "").startswith(f"conv.{pass_}:")]
            memory = max(r["memory"] for r in lines if "memory" in r)
            means = (f"{mean:.2f}", f"{fastest[pass_]:.2f}")
            table.add_row(pass_, *means, f"{memory:.2f} x operands and result")
            stem = {r["arm"]: r for r in lines if r.get("layer") == STEM}
            if len(stem) == 2:
                both = (stem["torch"][t] / stem["oracle"][t] for t in ("median_ms", "low_ms"))
                table.add_row(f"{pass_}, stem", *(f"{ratio:.2f}" for ratio in both), "")
        self.console.print(table)


class NetworkTable:
    """Prints points as they come, and at the end a geometric mean per arm, pass and type."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self.title, self.console = title, console or Console(highlight=False)
        self.rows: list[Record] = []
        self.refused = 0

    def __enter__(self) -> NetworkTable:
        """Print the units."""
        self.console.print("times in ms: median [fastest, third quartile]", markup=False)
        return self

    def __exit__(self, *_: object) -> None:
        """Print the means, also of a run that was cut off."""
        from .html_page import means

        rows = [[*key, f"{mean:.3f}", count] for *key, mean, count in means(self.rows)]
        if rows:
            columns = ["arm", "against", "pass", "type", "geometric mean", "lines"]
            self.console.print(table(f"{self.title}: reference / arm", columns, rows))

    def add(self, row: Record) -> None:
        """Print one record."""
        self.rows.append(row)
        self.refused += row["what"] == "refused"
        said = spread(row) if row["what"] == "point" else f"{row['what']}: {row['why']}"
        text = f"{row['line']:<60} {row['arm']:<16} {said} "
        self.console.print(text, markup=False, end="", soft_wrap=True)
        says = row.get("verdict", "")
        self.console.print(f"[{PLAIN[says]}]{says}[/] than {row['against']}" if says else "")


def table(title: str, columns: list[str], rows: list[list[Any]]) -> Table:
    """Return a table of texts."""
    built = Table(*columns, title=title)
    for row in rows:
        built.add_row(*map(str, row))
    return built
