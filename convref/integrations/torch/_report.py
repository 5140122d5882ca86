"""Tables as text: with rich where it is installed, else plain."""

from collections.abc import Sequence


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a header as text, each column as wide as its widest cell.

    >>> print(table("two", ("name", "why"), [("a", "because"), ("bc", "so")]))
    two
    name  why
    a     because
    bc    so
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        [title]
        + ["  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines]
    )


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the table; rich folds lines that are wider than the screen."""
    try:
        import rich.box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
    except ImportError:
        print(table(title, header, rows))
        return
    made = Table(title=escape(title), title_justify="left", box=rich.box.SIMPLE)
    for name in header:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*map(escape, row))
    Console().print(made)
