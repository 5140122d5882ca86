"""Loads and stores, and the addresses of operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arithmetic import numbers
from ..arithmetic.numbers import Array
from ..decode.opcodes import operation
from ..decode.program import CONSTANT, LOCAL, PARAMETERS, SHARED, Instruction, refuse
from .allocations import BASE

if TYPE_CHECKING:
    from ..state.machine import Machine


@operation(r"ld\.param(?:::entry)?(?:\.v([24]))?\.([subf](?:8|16|32|64))")
def _parameter(m: Machine, i: Instruction, lanes: Array, count: str, kind: str) -> None:
    to, (base, offset) = i.operands
    size = int(count or 1) * numbers.width(kind) // 8
    places = [(base + offset - PARAMETERS - p.offset, p.size) for p in m.program.parameters]
    found = [v[:, at : at + size] for v, (at, n) in zip(m.values, places) if 0 <= at <= n - size]
    refuse(not found, i.text, "outside of the parameter")
    own = m.memory.launch[lanes] if len(found[0]) > 1 else np.zeros(len(lanes), np.int64)
    value = found[0][own]
    _loaded(m, i, vector(i, to, count), kind, lanes, (value, None))


def _loaded(m: Machine, i: Instruction, names: Any, kind: str, lanes: Array, found: Any) -> None:
    """Write bytes (lane, byte) and their undefined bits to registers, which may be wider."""
    letter, narrow = "i" if kind[0] == "s" else "u", numbers.width(kind) // 8
    size = max(narrow, *(m.program.registers.get(name, 0) // 8 for name in names))

    def widened(part: Array) -> Array:
        values = part.view(f"{letter}{narrow}").T.astype(f"{letter}{size}", "C")  # (register, lane)
        return values.view(f"u{size}")

    value, undefined = (None if part is None else widened(part) for part in found)
    m.spread(i, names, value, lanes, undefined)


def addresses(m: Machine, i: Instruction, operand: Any, lanes: Array) -> Array:
    base, offset = operand
    if isinstance(base, int):
        return np.full(len(lanes), base + offset, np.int64)
    kind = "s32" if m.program.registers.get(base) == 32 else "s64"
    return m.read(i, base, kind, lanes).astype(np.int64) + offset


def vector(i: Instruction, operand: Any, count: str | None) -> Any:
    """Return the registers of a vector operand; their number must be that of the opcode."""
    words = operand if isinstance(operand, tuple) else (operand,)
    refuse(len(words) != int(count or 1), i.text, f"{len(words)} registers for {count or 1}")
    return words


_STRONG = r"\.volatile|\.(?:relaxed|acquire|release)\.(?:cta|gpu|sys)"
_CACHE = r"(?:\.(?:ca|cg|cs|cv|lu|wb|wt))?(?:\.nc)?(?:\.L[12]::\w+)*"
_WIDTHS = r"(?:\.v([248]))?\.([subf](?:8|16|32|64))"


_SPACES = r"(?:\.(global|shared|local|const)(?:::cta)?)?"


def space_of(i: Instruction, space: str | None, address: Array) -> tuple[str, Array]:
    """Return the state space of an access, for a generic address the one that has it, and where."""
    if space:
        return space, address
    spaces = np.digitize(address, [SHARED, LOCAL, CONSTANT, PARAMETERS])
    refuse(spaces == 0, i.text, "a null pointer, or an offset from one")
    refuse(spaces != spaces[0], i.text, "addresses of several state spaces are not supported")
    found = ("shared", "local", "const", "global")[int(spaces[0]) - 1]
    return found, address - SHARED if found == "shared" else address


@operation(rf"ld(?:\.weak)?({_STRONG})?{_SPACES}{_CACHE}{_WIDTHS}")
def _load(
    m: Machine, i: Instruction, lanes: Array,
    strong: str | None, space: str | None, count: str, kind: str,
) -> None:  # fmt: skip
    to, operand = i.operands[:2]  # a third one is a cache policy
    words, size = vector(i, to, count), int(count or 1) * numbers.width(kind) // 8
    space, address = space_of(i, space, addresses(m, i, operand, lanes))
    if space != "global":
        memory = {"shared": m.shared, "local": m.local, "const": m.constant}[space]
        found = memory.load(i.text, address, size, lanes)
    else:
        found = m.memory.load(i.text, address, size, lanes, bool(strong))
        if strong:
            cells = (address - BASE) // m.memory.grain
            m.memory.synchronize(cells, lanes, True, False, "relaxed" in strong)
    _loaded(m, i, words, kind, lanes, found)


@operation(rf"st(?:\.weak)?({_STRONG})?{_SPACES}{_CACHE}{_WIDTHS}")
def _store(
    m: Machine, i: Instruction, lanes: Array,
    strong: str | None, space: str | None, count: str, kind: str,
) -> None:  # fmt: skip
    operand, from_ = i.operands[:2]
    width = numbers.width(kind)
    bits = [(word, m.program.registers.get(word, 0)) for word in vector(i, from_, count)]
    space, address = space_of(i, space, addresses(m, i, operand, lanes))
    refuse(space == "const", i.text, "writes to constant memory")
    if space != "local":
        m.check_sure(i, lanes)
    lax = 1 if space == "local" else -1  # which follows undefined bits
    held = [
        m.read(i, word, f"b{max(n, width)}", lanes, lax).astype(f"u{width // 8}")
        for word, n in bits
    ]
    if space == "local":
        masks = [m.undefined_bits(word, lanes) for word, _ in bits]
        undefined = [
            np.zeros_like(value) if mask is None else mask.astype(value.dtype)
            for value, mask in zip(held, masks)
        ]
        m.local.store(i.text, address, np.stack(held, -1), np.stack(undefined, -1), lanes)
        return
    if space == "shared":
        m.shared.store(i.text, address, np.stack(held, -1), lanes)
        return
    if strong:
        cells = (address - BASE) // m.memory.grain
        m.memory.synchronize(cells, lanes, False, True, "relaxed" in strong)
    m.memory.store(i.text, address, np.stack(held, -1), lanes, bool(strong))


@operation(r"isspacep\.(global|shared|local|const|param)(?:::(?:cta|cluster|entry))?")
def _is_in_space(m: Machine, i: Instruction, lanes: Array, space: str) -> None:
    to, a = i.operands
    starts = np.array([SHARED, LOCAL, CONSTANT, PARAMETERS, BASE], np.uint64)
    names = ("", "shared", "local", "const", "param", "global")
    found = np.digitize(m.read(i, a, "u64", lanes), starts) == names.index(space)
    m.write(i, to, found, lanes)
