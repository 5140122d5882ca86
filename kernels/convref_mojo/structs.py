"""Structs and tables parsed from the Mojo sources, so that each is declared once."""

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
INTEGERS = {"Int": ctypes.c_int64, "Int32": ctypes.c_int32}


@cache
def struct(folder: str, name: str) -> Any:
    """Return the ctypes structure of a struct of integers, and of such structs, in a folder.

    >>> [field for field, _ in struct("cpu", "Axis")._fields_]
    ['count', 'size', 'step', 'taps', 'shift', 'tap_step']
    """
    for path in sorted((PACKAGE / folder).glob("*.mojo")):
        body = re.search(rf"^struct {name}\(.*?(?=^\S|\Z)", path.read_text("utf-8"), re.M | re.S)
        if body is not None:
            fields = re.findall(r"^    var (\w+): (\w+)", body[0], re.M)
            pairs = [(field, INTEGERS.get(kind) or struct(folder, kind)) for field, kind in fields]
            return type(name, (ctypes.Structure,), {"_fields_": pairs})
    raise LookupError(f"no struct {name} in {folder}")


def table(file: str, name: str) -> tuple[str, ...]:
    text = (PACKAGE / file).read_text("utf-8")
    rows = re.search(rf"^comptime {name} = \((.*?)^\)", text, re.M | re.S)
    return tuple(re.findall(r'"(\w+)"', rows[1] if rows else ""))
