"""The instructions; an opcode is supported only with exactly the suffixes listed here."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import numbers
from .memory import BASE
from .numbers import Array
from .program import LOCAL, PARAMETERS, SHARED, Fault, Instruction, refuse

if TYPE_CHECKING:
    from .machine import Machine

WARP = 32
BARRIERS = 16  # barriers of a block
RUNNING, AT_BARRIER, AT_MBARRIER, EXITED = range(4)
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


@operation(r"bra(?:\.uni)?", diverges=True)
def _branch(m: Machine, i: Instruction, lanes: Array) -> None:
    m.pc[lanes] = m.program.labels[str(i.operands[0])]


@operation(r"brx\.idx(?:\.uni)?", diverges=True)
def _branch_by(m: Machine, i: Instruction, lanes: Array) -> None:
    which, table = i.operands
    to = np.array([m.program.labels[label] for label in m.program.tables[str(table)]])
    m.pc[lanes] = to[m.read(i, which, "u32", lanes)]


@operation(r"ret|exit", diverges=True)
def _end(m: Machine, i: Instruction, lanes: Array) -> None:
    m.state[lanes] = EXITED


@operation(r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?", diverges=True)
def _wait(m: Machine, i: Instruction, lanes: Array) -> None:
    """Wait at a barrier of the block for a number of threads, 0 for all."""
    which, count = (m.read(i, word, "u32", lanes) for word in (*i.operands, 0)[:2])
    refuse((which >= BARRIERS) | (count % WARP != 0), i.text, "no such barrier, or not whole warps")
    m.state[lanes], m.at[lanes], m.need[lanes] = AT_BARRIER, which, count


@operation(
    r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32|bar\.warp\.sync|nanosleep\.u32|prefetch\S*"
    r"|griddepcontrol\.\w+|discard\S*|(?:applypriority|createpolicy)\S*"
)
def _nothing(m: Machine, i: Instruction, lanes: Array) -> None:
    """Do nothing: threads of a warp run together, and registers are not limited."""


@operation(r"elect\.sync")
def _elect(m: Machine, i: Instruction, lanes: Array) -> None:
    to, members = i.operands
    refuse(members != -1, i.text, "only whole warps are supported")
    whole_warps(m, i, lanes)
    first = m.lane[lanes] == 0
    m.spread(i, to.split("|"), [np.zeros(len(lanes), np.uint32), first], lanes)


@operation(r"ld\.param(?:::entry)?(?:\.v([24]))?\.([subf](?:8|16|32|64))")
def _parameter(m: Machine, i: Instruction, lanes: Array, count: str, kind: str) -> None:
    to, (base, offset) = i.operands
    size = int(count or 1) * numbers.width(kind) // 8
    places = [(base + offset - PARAMETERS - p.offset, p.size) for p in m.program.parameters]
    found = [v[at : at + size] for v, (at, n) in zip(m.values, places) if 0 <= at <= n - size]
    refuse(not found, i.text, "outside of the parameter")
    value = np.tile(np.frombuffer(found[0], np.uint8), (len(lanes), 1))
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
    kind = "s64" if m.program.registers.get(base) == 64 else "s32"
    return m.read(i, base, kind, lanes).astype(np.int64) + offset


def vector(i: Instruction, operand: Any, count: str | None) -> Any:
    """Return the registers of a vector operand; their number must be that of the opcode."""
    words = operand if isinstance(operand, tuple) else (operand,)
    refuse(len(words) != int(count or 1), i.text, f"{len(words)} registers for {count or 1}")
    return words


_STRONG = r"\.volatile|\.(?:relaxed|acquire|release)\.(?:cta|gpu|sys)"
_CACHE = r"(?:\.(?:ca|cg|cs|cv|lu|wb|wt))?(?:\.nc)?(?:\.L[12]::\w+)*"
_WIDTHS = r"(?:\.v([248]))?\.([subf](?:8|16|32|64)|b128)"


_SPACES = r"(?:\.(global|shared|local)(?:::cta)?)?"


def space_of(i: Instruction, space: str | None, address: Array) -> tuple[str, Array]:
    """Return the state space of an access, for a generic address the one that has it, and where."""
    if space:
        return space, address
    spaces = np.digitize(address, [SHARED, LOCAL, PARAMETERS])
    refuse(spaces == 0, i.text, "a null pointer, or an offset from one")
    refuse(spaces != spaces[0], i.text, "addresses of several state spaces are not supported")
    found = ("shared", "local", "global")[int(spaces[0]) - 1]
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
        memory = m.shared if space == "shared" else m.local
        found = memory.load(i.text, address, size, lanes)
    else:
        found = m.memory.load(i.text, address, size, lanes, bool(strong))
        if strong and "relaxed" not in strong:
            cells = (address - BASE) // m.memory.grain
            m.memory.synchronize(cells, lanes, True, False)
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
    if strong and "relaxed" not in strong:
        m.memory.synchronize((address - BASE) // m.memory.grain, lanes, False, True)
    m.memory.store(i.text, address, np.stack(held, -1), lanes, bool(strong))


def whole_warps(m: Machine, i: Instruction, lanes: Array) -> Array:
    """Return lanes as (warp, 32); raise a Fault if threads of a warp are missing."""
    if lanes is not m.warps:  # those of the last call
        if len(lanes) % WARP or (m.lane[lanes].reshape(-1, WARP) != np.arange(WARP)).any():
            raise Fault(f"{i.text}: threads of a warp are missing")
        m.warps = lanes
    return lanes.reshape(-1, WARP)


_SHUFFLED: dict[str, Callable[[Array, Array], Array]] = {
    "bfly": np.bitwise_xor,
    "idx": lambda own, by: by,
    "up": np.subtract,
    "down": np.add,
}


@operation(r"shfl\.sync\.(bfly|idx|up|down)\.b32")
def _shuffle(m: Machine, i: Instruction, lanes: Array, mode: str) -> None:
    to, a, b, clamp, members = i.operands
    whole = m.read(i, clamp, "u32", lanes) == (0 if mode == "up" else WARP - 1)
    whole &= m.read(i, members, "s32", lanes) == -1
    refuse(~whole, i.text, "only whole warps are supported")
    warps, undefined = whole_warps(m, i, lanes), m.undefined_bits(a, lanes)
    by = m.read(i, b, "s32", lanes).reshape(warps.shape) & WARP - 1
    own = np.arange(WARP, dtype=np.int32)
    lane = _SHUFFLED[mode](own, by)
    inside = lane & ~(WARP - 1) == 0
    source = (np.arange(0, len(lanes), WARP)[:, None] + np.where(inside, lane, own)).ravel()
    moved, (name, _, predicate) = m.read(i, a, "b32", lanes, 1)[source], to.partition("|")
    m.write(i, name, moved, lanes, None if undefined is None else undefined[source])
    if predicate:
        m.write(i, predicate, inside.ravel(), lanes)
