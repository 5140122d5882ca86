"""What each instruction does; an opcode is known only with exactly the suffixes listed here."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import numbers
from .program import PARAMETERS, Fault, Instruction, refuse

if TYPE_CHECKING:
    from .machine import Machine

Array = np.ndarray[Any, Any]
Operation = Callable[["Machine", Instruction, Array], None]

WARP = 32
NAMED = 16  # barriers of a block
RUNNING, WAITING, ASLEEP, DONE = range(4)
_TABLE: list[tuple[re.Pattern[str], Callable[..., None], bool]] = []


def operation(pattern: str, parts: bool = False) -> Callable[[Any], Any]:
    """Register a function for opcodes; what the pattern's groups match are its arguments.

    After one that `parts` threads, they are looked for anew.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _TABLE.append((re.compile(pattern), function, parts))
        return function

    return register


def _with(function: Callable[..., None], words: tuple[str, ...]) -> Operation:
    return lambda machine, i, lanes: function(machine, i, lanes, *words)


@cache
def decoded(op: str) -> tuple[Operation, bool]:
    """Return what an opcode does, and whether it parts threads, or refuse it."""
    for pattern, function, parts in _TABLE:
        if match := pattern.fullmatch(op):
            return _with(function, match.groups()), parts
    raise Fault(f"{op}: no instruction that is known")


@operation(r"bra(?:\.uni)?", parts=True)
def _branch(m: Machine, i: Instruction, lanes: Array) -> None:
    m.pc[lanes] = m.program.labels[str(i.operands[0])]


@operation(r"brx\.idx(?:\.uni)?", parts=True)
def _branch_by(m: Machine, i: Instruction, lanes: Array) -> None:
    which, table = i.operands
    to = np.array([m.program.labels[label] for label in m.program.tables[str(table)]])
    m.pc[lanes] = to[m.read(i, which, "u32", lanes)]


@operation(r"ret|exit", parts=True)
def _end(m: Machine, i: Instruction, lanes: Array) -> None:
    m.state[lanes] = DONE


@operation(r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?", parts=True)
def _wait(m: Machine, i: Instruction, lanes: Array) -> None:
    """Wait at a barrier of the block for so many threads, 0 for all."""
    which, count = (m.read(i, word, "u32", lanes) for word in (*i.operands, 0)[:2])
    if (which >= NAMED).any() or (count % WARP).any():
        raise Fault(f"{i.text}: no such barrier, or no whole warps")
    m.state[lanes], m.at[lanes], m.need[lanes] = WAITING, which, count


@operation(r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32|bar\.warp\.sync|griddepcontrol\.\w+")
@operation(r"fence\.mbarrier_init\.release\.cluster|prefetch\.tensormap")
def _nothing(m: Machine, i: Instruction, lanes: Array) -> None:
    """Pass: threads of a warp run together, and registers are as many as are named."""


@operation(r"elect\.sync")
def _elect(m: Machine, i: Instruction, lanes: Array) -> None:
    to, members = i.operands
    refuse(members != -1, i.text, "only whole warps are known")
    register, _, predicate = str(to).partition("|")
    first = whole_warps(m, i, lanes)[:, 0]
    m.write(i, register, np.zeros(len(lanes), np.uint32), lanes)
    m.write(i, predicate, np.isin(lanes, first), lanes)


@operation(r"ld\.param(?:::entry)?\.([subf](?:16|32|64))")
def _parameter(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    to, (base, offset) = i.operands
    at, size = base + offset - PARAMETERS, numbers.width(kind) // 8
    if not any(p.offset <= at <= p.offset + p.size - size for p in m.program.parameters):
        raise Fault(f"{i.text}: outside of the parameter")
    pattern: Array = np.frombuffer(m.parameters, numbers.pattern(kind), 1, at)
    _loaded(m, i, to, np.repeat(pattern, len(lanes)), kind, lanes)


def _loaded(m: Machine, i: Instruction, to: Any, value: Array, kind: str, lanes: Array) -> None:
    """Write what was loaded to a register, which may be wider."""
    size = m.program.registers.get(to, 0) // 8
    if size > value.itemsize:
        value = value.view(numbers.TYPES[kind]).astype(f"{'i' if kind[0] == 's' else 'u'}{size}")
    m.write(i, to, value, lanes)


def addresses(m: Machine, i: Instruction, operand: Any, lanes: Array) -> Array:
    """Return the addresses of an access, of 32 bits in shared memory where the base has."""
    base, offset = operand
    if isinstance(base, int):
        return np.full(len(lanes), base + offset, np.int64)
    kind = "s64" if m.program.registers.get(base) == 64 else "s32"
    return m.read(i, base, kind, lanes).astype(np.int64) + offset


def _space(m: Machine, space: str, lanes: Array) -> tuple[Any, Array]:
    """Return memory, and as whom it knows the lanes."""
    return (m.memory, m.thread[lanes]) if space == "global" else (m.shared, lanes)


def _vector(i: Instruction, operand: Any, count: str | None) -> Any:
    words = operand if isinstance(operand, tuple) else (operand,)
    refuse(len(words) != int(count or 1), i.text, f"{len(words)} registers for {count or 1}")
    return words


@operation(r"ld\.(global|shared)(?:::cta)?(?:\.nc)?(?:\.v([24]))?\.([subf](?:8|16|32|64))")
def _load(m: Machine, i: Instruction, lanes: Array, space: str, count: str, kind: str) -> None:
    to, operand = i.operands
    words, (memory, who) = _vector(i, to, count), _space(m, space, lanes)
    size = len(words) * numbers.width(kind) // 8
    found = memory.load(i.text, addresses(m, i, operand, lanes), size, who)
    parts = np.ascontiguousarray(found.view(numbers.pattern(kind)).T)
    for word, value in zip(words, parts):
        _loaded(m, i, word, value, kind, lanes)


@operation(r"st\.(global|shared)(?:::cta)?(?:\.v([24]))?\.([subf](?:8|16|32|64))")
def _store(m: Machine, i: Instruction, lanes: Array, space: str, count: str, kind: str) -> None:
    operand, from_ = i.operands
    memory, who = _space(m, space, lanes)
    values = []
    for word in _vector(i, from_, count):
        bits = max(m.program.registers.get(word, 0), numbers.width(kind))
        values.append(m.read(i, word, f"b{bits}", lanes).astype(numbers.pattern(kind)))
    memory.store(i.text, addresses(m, i, operand, lanes), np.stack(values, -1), who)


@operation(r"(atom|red)(?:\.relaxed|\.monotonic)?(?:\.gpu|\.sys)?\.global\.add\.([suf](?:32|64))")
def _atomic(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    operand, from_ = i.operands[-2:]
    value, order = m.read(i, from_, kind, lanes), m.rng.permutation(len(lanes))
    before = m.memory.add(i.text, addresses(m, i, operand, lanes), value, order)
    if name == "atom":
        m.write(i, i.operands[0], before, lanes)


def whole_warps(m: Machine, i: Instruction, lanes: Array) -> Array:
    """Return lanes as (warp, 32), or stop where threads of a warp are missing."""
    if len(lanes) % WARP or (m.lane[lanes].reshape(-1, WARP) != np.arange(WARP)).any():
        raise Fault(f"{i.text}: threads of a warp are missing")
    return lanes.reshape(-1, WARP)


@operation(r"shfl\.sync\.(bfly|idx|up|down)\.b32")
def _shuffle(m: Machine, i: Instruction, lanes: Array, mode: str) -> None:
    to, a, b, c, members = i.operands
    warps = whole_warps(m, i, lanes)
    refuse(m.read(i, members, "u32", lanes) != 0xFFFFFFFF, i.text, "only whole warps are known")
    lane = np.tile(np.arange(WARP), len(warps))
    by, bounds = (m.read(i, word, "u32", lanes).astype(np.int64) for word in (b, c))
    by, segment, clamp = by & 31, (bounds >> 8) & 31, bounds & 31
    last = (lane & segment) | (clamp & ~segment)
    source, inside = {
        "bfly": (lane ^ by, (lane ^ by) <= last),
        "idx": ((lane & segment) | (by & ~segment), ((lane & segment) | (by & ~segment)) <= last),
        "up": (lane - by, lane - by >= last),
        "down": (lane + by, lane + by <= last),
    }[mode]
    start = np.arange(len(lanes)) - lane
    source, lacks = start + np.where(inside, source, lane), m.lacks(a, lanes)
    register, _, predicate = str(to).partition("|")
    moved = m.read(i, a, "b32", lanes, 1)[source]
    m.write(i, register, moved, lanes, None if lacks is None else lacks[source])
    if predicate:
        m.write(i, predicate, inside, lanes)
