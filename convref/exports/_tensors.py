"""Parts of Python source: keyword arguments and tuples."""

from collections.abc import Iterable
from typing import Any


def nondefault(**values: tuple[Any, Any]) -> str:
    """Return ``, name=value`` for each (value, default) that differs."""
    return "".join(f", {name}={v}" for name, (v, default) in values.items() if v != default)


def tuple_text(names: Iterable[str]) -> str:
    """Return the names as a Python tuple."""
    names = list(names)
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"
