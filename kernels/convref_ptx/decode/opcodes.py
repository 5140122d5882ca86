"""The table of opcodes: one is supported only with exactly the suffixes that it lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from .program import Fault

_TABLE: list[tuple[re.Pattern[str], Callable[..., None], bool]] = []


def operation(pattern: str, diverges: bool = False) -> Callable[[Any], Any]:
    """Register a function for opcodes; the groups of the pattern are its last arguments.

    After one that `diverges`, threads may be at different instructions.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _TABLE.append((re.compile(pattern), function, diverges))
        return function

    return register


class Step(NamedTuple):
    """The function of an opcode, its words, and whether it diverges or needs whole warps."""

    function: Callable[..., None]
    words: tuple[str, ...]
    diverges: bool
    convergent: bool


@cache
def decoded(op: str) -> Step:
    """Return the step of an opcode; raise a Fault if it is unknown."""
    convergent = ".sync" in op and not op.startswith("bar")
    for pattern, function, diverges in _TABLE:
        if match := pattern.fullmatch(op):
            return Step(function, match.groups(), diverges, convergent)
    raise Fault(f"{op}: unknown instruction")
