"""What kernels call of the device's runtime: `printf` and `assert`; and `trap`."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.opcodes import operation
from ..decode.program import LOCAL, Instruction, refuse
from ..memory.allocations import BASE

if TYPE_CHECKING:
    from .machine import Machine

_CONVERSION = re.compile(r"%([-+ #0]*\d*(?:\.\d+)?)(hh?|ll?|j|z|t|)([diouxXeEfFgGaAcsp%])")


@operation(r"call\.__assertfail")
def _assert(m: Machine, i: Instruction, lanes: Array) -> None:
    expression = _string(m, i, int(_pointers(m, i, i.operands[0], lanes)[0]))
    refuse(np.ones(len(lanes), bool), f"assert({expression})", "does not hold")


@operation(r"trap")
def _trap(m: Machine, i: Instruction, lanes: Array) -> None:
    refuse(np.ones(len(lanes), bool), i.text, "the kernel ends itself")


@operation(r"call\.vprintf")
def _print(m: Machine, i: Instruction, lanes: Array) -> None:
    """Keep what is printed, in the order of the threads."""
    to, *given = i.operands
    texts, values = (_pointers(m, i, word, lanes) for word in given)
    for lane, text, place in zip(lanes.tolist(), texts.tolist(), values.tolist()):
        held = m.local.bytes[lane, max(0, place - LOCAL) :].tobytes() if place else b""
        m.memory.printed.append(_formatted(m, i, _string(m, i, text), held))
    done = np.zeros((len(lanes), 1), np.uint32)
    m.local.store(i.text, np.full(len(lanes), to), done, np.zeros_like(done), lanes)


def _pointers(m: Machine, i: Instruction, place: int, lanes: Array) -> Array:
    """Return the pointer of each thread that a variable of a call holds."""
    found, undefined = m.local.load(i.text, np.full(len(lanes), place), 8, lanes)
    refuse(undefined is not None, i.text, "a pointer has undefined bits")
    return found.view(np.uint64)[:, 0]


def _string(m: Machine, i: Instruction, address: int) -> str:
    """Return a string in global memory."""
    start = address - BASE
    refuse(not 0 <= start < len(m.memory.bytes), i.text, "a string that is not in global memory")
    content = m.memory.bytes[start:]
    return content[: int(np.argmin(content != 0))].tobytes().decode(errors="replace")


def _formatted(m: Machine, i: Instruction, text: str, held: bytes) -> str:
    """Return a text of printf with the values that follow each other in memory, aligned."""
    at = 0

    def value(match: re.Match[str]) -> str:
        nonlocal at
        flags, length, kind = match.groups()
        if kind == "%":
            return "%"
        size = 8 if kind in "eEfFgGaAsp" or length in ("l", "ll", "j", "z", "t") else 4
        at = -(-at // size) * size
        word = held[at : at + size]
        refuse(len(word) < size, i.text, "printf has fewer values than conversions")
        at += size
        return _converted(m, i, flags, kind, word)

    return _CONVERSION.sub(value, text)


def _converted(m: Machine, i: Instruction, flags: str, kind: str, word: bytes) -> str:
    found: Any = int.from_bytes(word, "little", signed=kind in "di")
    if kind in "eEfFgGaA":
        (found,) = struct.unpack("<d", word)
    if kind in "aA":
        return float(found).hex()
    if kind == "p":
        return f"{found:#x}"
    if kind == "s":
        found = _string(m, i, found)
    return f"%{flags}{'d' if kind == 'u' else kind}" % found
