"""What a person sees in the terminal: records as they come, geometric means at the end."""

from __future__ import annotations

from convref.cli.output import print_table

from ..records import Record
from .summary import means, spread


def print_record(row: Record) -> None:
    """Print a record: median [fastest, third quartile] in ms, or why it was not timed."""
    text = spread(row) if "median_ms" in row else f"{row['what']}: {row['why']}"
    if word := row.get("verdict", ""):
        text += f" {row['ratio']:.2f} {word} vs {row['against']}"
    print(f"{row['line']:<60} {row['arm']:<18} {text}", flush=True)


def print_means(title: str, found: list[Record]) -> None:
    """Print the geometric mean per arm, pass and type, where there is one."""
    rows = [[*key, f"{mean:.3f}", count] for *key, mean, count in means(found)]
    if rows:
        columns = ["arm", "against", "pass", "type", "geometric mean", "lines"]
        print_table(columns, rows, f"{title}: reference / arm")
