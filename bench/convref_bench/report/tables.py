"""What a person sees in the terminal: records as they come, geometric means at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from ..records import Record
from .summary import means, spread

STYLES = {"faster": "green", "slower": "red", "ambiguous": "yellow"}


def print_record(row: Record) -> None:
    """Print a record: median [fastest, third quartile] in ms, or why it was not timed."""
    console = Console(highlight=False)
    text = spread(row) if "median_ms" in row else f"{row['what']}: {row['why']}"
    line = f"{row['line']:<60} {row['arm']:<18} {text} "
    console.print(line, markup=False, end="", soft_wrap=True)
    word = row.get("verdict", "")
    ratio = f"{row['ratio']:.2f} " if word else ""
    console.print(f"{ratio}[{STYLES[word]}]{word}[/] vs {row['against']}" if word else "")


def print_means(title: str, found: list[Record]) -> None:
    """Print the geometric mean per arm, pass and type, where there is one."""
    rows = [[*key, f"{mean:.3f}", count] for *key, mean, count in means(found)]
    if rows:
        columns = ["arm", "against", "pass", "type", "geometric mean", "lines"]
        print_table(f"{title}: reference / arm", columns, rows)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table of texts."""
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*map(str, row))
    Console(highlight=False).print(table)
