"""The console and tables of the commands; rich is imported when something is printed."""

from collections.abc import Sequence
from typing import Any

from ..errors import missing_extra

try:
    import rich.box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
except ImportError as error:
    raise missing_extra("check", error) from None

UNLIMITED = 10_000  # columns


def console() -> Console:
    """Return a console as wide as the terminal; in a pipe or a file no line is broken."""
    made = Console(highlight=False)
    if not made.is_terminal:  # COLUMNS may be exported, and is the width of some terminal
        made.width = UNLIMITED
    return made


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
    """Print a table."""
    table = Table(title=escape(title) or None, title_justify="left", box=rich.box.SIMPLE)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console().print(table)
