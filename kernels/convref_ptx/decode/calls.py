"""Calls of device functions: the statements of a function take the place of each call.

A parameter of a call is a variable in local memory, which the function reads where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from itertools import count

# Names of results, its own name, names of parameters; then its statements begin.
_FUNCTION = re.compile(r"\.func\s*(?:\(([^()]*)\)\s*)?([\w$]+)\s*\(([^()]*)\)[^{};]*\{")
_CALL = re.compile(r"call(?:\.uni)?\s*(?:\(([^()]*)\)\s*,\s*)?([\w$]+)\s*(?:,\s*\(([^()]*)\))?")
_VARIABLE = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.\w(\d+)\s+([\w$]+)(?:\[(\d+)\])?")
_REGISTERS = re.compile(r"\.reg\s*\.\w+\s+(.*)")
_LOCAL = re.compile(r"\.(?:local|param)\s.*?([\w$]+)(?:\[\d+\])*")


class Functions:
    """The device functions of a text."""

    def __init__(self, text: str, statements: Callable[[str], list[str]]) -> None:
        self._found = {match[2]: match for match in _FUNCTION.finditer(text)}
        self._text, self._statements, self._numbers = text, statements, count(1)

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def body(self, name: str, given: Sequence[str]) -> list[str]:
        """Return the statements of a function for one call, on the variables that are given.

        What the function declares has a number appended to its name, for each call another one.
        """
        match, number = self._found[name], next(self._numbers)
        statements = self._statements(self._text[match.end() :])
        names = [name for part in (match[1], match[3]) for name in _words(part)]
        new = dict(zip((re.split(r"[\s\[]", re.sub(r"\[\d*\]", "", n))[-1] for n in names), given))
        own = renamed(statements, number, new)
        end = f"$return${number}"
        return [*(re.sub(r"\bret(\.uni)?$", f"bra {end}", s) for s in own), f"{end}:"]


def renamed(statements: Sequence[str], number: int, new: dict[str, str] | None = None) -> list[str]:
    """Return statements with a number appended to each name that they declare, or with new ones."""
    new = dict(new or {})
    for statement in statements:
        for name in _declared(statement):
            if name not in new:
                new[name] = f"{name[:-1]}${number}$<" if name[-1] == "<" else f"{name}${number}"

    def changed(word: re.Match[str]) -> str:
        if word[0] in new:
            return new[word[0]]
        stem = word[0].rstrip("0123456789")
        several = new.get(f"{stem}<", f"{stem}<")
        return several[:-1] + word[0][len(stem) :]

    return [re.sub(r"(?<![.%$\w])[%$\w]+<?", changed, statement) for statement in statements]


def inlined(
    statements: Sequence[str], functions: Functions, parameters: Collection[str],
    within: tuple[str, ...] = (),
) -> list[str]:  # fmt: skip
    """Return statements, of an entry with these parameters, without calls of functions.

    A call of a function without statements, or of one that has called it, stays: as `call.name`.
    """
    found, place = [], ""
    for statement in statements:
        if match := _VARIABLE.fullmatch(statement):
            align, bits, name, many = match.groups()
            size = int(bits) // 8 * int(many or 1)
            found.append(f".local .align {align or size} .b8 {name}[{size}]")
        elif match := _CALL.fullmatch(statement):
            name, given = match[2], [*_words(match[1]), *_words(match[3])]
            if name in functions and name not in within:
                body = functions.body(name, given)
                found += inlined(body, functions, parameters, (*within, name))
                found += [place] * bool(place)
            else:
                found.append(f"call.{name} {', '.join(given)}")
        else:
            place = statement if statement.startswith(".loc") else place
            found.append(_of_local_memory(statement, parameters))
    return found


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _declared(statement: str) -> list[str]:
    """Return the names that a statement declares, of registers with a number as "name<"."""
    if match := _REGISTERS.fullmatch(statement):
        return [re.sub(r"\d+>", "", word) for word in _words(match[1])]
    if match := _LOCAL.fullmatch(statement):
        return [match[1]]
    return [statement[:-1]] if statement.endswith(":") else []


def _of_local_memory(statement: str, parameters: Collection[str]) -> str:
    """Return an access to a variable of a call as one to local memory."""
    match = re.search(r"\b(?:ld|st)\.param\b[^\[]*\[\s*([\w$]+)", statement)
    if match is None or match[1] in parameters:
        return statement
    return re.sub(r"\b(ld|st)\.param(?:::func)?", r"\1.local", statement, count=1)
