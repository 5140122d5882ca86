"""What each instruction does; an opcode is known only with exactly the suffixes listed here."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import numbers
from .fault import Fault
from .program import Instruction

if TYPE_CHECKING:
    from .machine import Machine

Array = np.ndarray[Any, Any]
Operation = Callable[["Machine", Instruction, Array], None]

WARP = 32
_TABLE: list[tuple[re.Pattern[str], Callable[..., None]]] = []


def CONTROL(machine: Machine, instruction: Instruction, lanes: Array) -> None:
    """Stand for branches, barriers and ends, which the machine does itself."""
    raise AssertionError


def _operation(pattern: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function for opcodes; what the pattern's groups match are its arguments."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _TABLE.append((re.compile(pattern), function))
        return function

    return register


@cache
def _found(op: str) -> Operation:
    if op in ("bra", "bra.uni", "ret", "exit", "bar.sync"):
        return CONTROL
    for pattern, function in _TABLE:
        if match := pattern.fullmatch(op):
            words = match.groups()
            return lambda machine, i, lanes: function(machine, i, lanes, *words)
    raise Fault(f"{op}: no instruction that is known")


def decoded(instruction: Instruction) -> Operation:
    """Return what an instruction does.

    Raises
    ------
    Fault
        If it is not known.
    """
    return _found(instruction.op)


_INTEGER = "[su](?:16|32|64)"


@_operation(rf"(add|sub|min|max|div|rem)\.({_INTEGER})")
@_operation(r"(and|or|xor)\.(b(?:16|32|64))")
@_operation(r"(add|sub|mul)(?:\.rn)?\.(f32|f64)")
@_operation(r"(min|max)\.(f32|f64)")
@_operation(rf"(mul)\.lo\.({_INTEGER})")
def _binary(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    to, *given = i.operands
    a, b = (m.read(i, word, kind, lanes) for word in given)
    if name in ("div", "rem") and (b == 0).any():
        raise Fault(f"{i.text}: divides by zero")
    m.write(i, to, numbers.BINARY[name](a, b).astype(a.dtype), lanes)


@_operation(r"(and|or|xor)\.pred")
def _logical(m: Machine, i: Instruction, lanes: Array, name: str) -> None:
    to, *given = i.operands
    a, b = (m.read(i, word, "pred", lanes) for word in given)
    m.write(i, to, numbers.BINARY[name](a, b), lanes)


@_operation(r"not\.pred")
def _not(m: Machine, i: Instruction, lanes: Array) -> None:
    m.write(i, i.operands[0], ~m.read(i, i.operands[1], "pred", lanes), lanes)


@_operation(r"(neg|abs|not)\.([sbf](?:16|32|64))")
def _unary(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    a = m.read(i, i.operands[1], kind, lanes)
    value = {"neg": np.negative, "abs": np.abs, "not": np.invert}[name](a)
    m.write(i, i.operands[0], value, lanes)


@_operation(r"mul\.wide\.([su](?:16|32))")
def _wide(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    to, *given = i.operands
    a, b = (m.read(i, word, kind, lanes) for word in given)
    wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
    m.write(i, to, a.astype(wide) * b.astype(wide), lanes)


@_operation(r"mul\.hi\.([su]32)")
def _high(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    to, *given = i.operands
    a, b = (m.read(i, word, kind, lanes) for word in given)
    wide = np.dtype(f"{a.dtype.kind}8")
    m.write(i, to, (a.astype(wide) * b.astype(wide) >> 32).astype(a.dtype), lanes)


@_operation(rf"mad\.lo\.({_INTEGER})")
def _mad(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    to, *given = i.operands
    a, b, c = (m.read(i, word, kind, lanes) for word in given)
    m.write(i, to, a * b + c, lanes)


@_operation(r"fma\.rn\.(f32|f64)")
def _fma(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    to, *given = i.operands
    a, b, c = np.broadcast_arrays(*(m.read(i, word, kind, lanes) for word in given))
    m.write(i, to, numbers.fma(a.copy(), b.copy(), c.copy()), lanes)


@_operation(r"(sh[lr])\.([bus](?:16|32|64))")
def _shift(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    to, a, count = i.operands
    value, by = m.read(i, a, kind, lanes), m.read(i, count, "u32", lanes)
    m.write(i, to, numbers.shifted(*np.broadcast_arrays(value, by), name == "shr"), lanes)


@_operation(rf"setp\.(eq|ne|lt|le|gt|ge)\.({_INTEGER}|b16|b32|b64)")
@_operation(r"setp\.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)\.(f32|f64)")
def _compare(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    to, *given = i.operands
    a, b = (m.read(i, word, kind, lanes) for word in given)
    m.write(i, to, numbers.COMPARE[name](a, b), lanes)


@_operation(r"selp\.([subf](?:16|32|64))")
def _select(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    to, a, b, predicate = i.operands
    first, second = (m.read(i, word, kind, lanes) for word in (a, b))
    m.write(i, to, np.where(m.read(i, predicate, "pred", lanes), first, second), lanes)


@_operation(r"mov\.([subf](?:16|32|64))")
def _move(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    to, a = i.operands
    bits = f"b{numbers.width(kind)}"
    if isinstance(a, tuple):
        parts = [m.read(i, w, f"b{numbers.width(kind) // len(a)}", lanes) for w in a]
        joined = np.stack(np.broadcast_arrays(*parts), -1)
        m.write(
            i, to, np.ascontiguousarray(joined).view(numbers.BITS[numbers.width(kind)])[:, 0], lanes
        )
    elif isinstance(to, tuple):
        whole = np.ascontiguousarray(m.read(i, a, bits, lanes))[:, None]
        parts = whole.view(numbers.BITS[numbers.width(kind) // len(to)])
        for part, word in enumerate(to):
            m.write(i, word, parts[:, part], lanes)
    else:
        m.write(i, to, m.read(i, a, bits, lanes), lanes)


@_operation(r"mov\.pred")
def _move_predicate(m: Machine, i: Instruction, lanes: Array) -> None:
    to, a = i.operands
    value = np.array([a != 0]) if isinstance(a, int) else m.read(i, a, "pred", lanes)
    m.write(i, to, value, lanes)


@_operation(r"cvta\.(?:to\.)?global\.u64")
def _address(m: Machine, i: Instruction, lanes: Array) -> None:
    m.write(i, i.operands[0], m.read(i, i.operands[1], "b64", lanes), lanes)


@_operation(r"cvt\.([su](?:16|32|64))\.([su](?:16|32|64))")
@_operation(r"cvt\.(f64)\.(f32)")
@_operation(r"cvt\.rn\.(f32)\.(f64)")
@_operation(r"cvt\.rn\.(f32|f64)\.([su](?:32|64))")
def _convert(m: Machine, i: Instruction, lanes: Array, to: str, kind: str) -> None:
    value = m.read(i, i.operands[1], kind, lanes)
    m.write(i, i.operands[0], value.astype(numbers.TYPES[to]), lanes)


@_operation(r"cvt\.f32\.bf16")
def _widen(m: Machine, i: Instruction, lanes: Array) -> None:
    m.write(i, i.operands[0], m.read(i, i.operands[1], "bf16", lanes), lanes)


@_operation(r"cvt\.rn\.bf16\.f32")
def _narrow(m: Machine, i: Instruction, lanes: Array) -> None:
    value = m.read(i, i.operands[1], "f32", lanes)
    m.write(i, i.operands[0], numbers.rounded_bf16(value), lanes)


@_operation(r"ld\.param(?:::entry)?\.([subf](?:16|32|64))")
def _parameter(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    to, (name, offset) = i.operands  # type: ignore[misc]
    found = next((p for p in m.program.parameters if p.name == name), None)
    size = numbers.width(kind) // 8
    if found is None or not 0 <= offset <= found.size - size:
        raise Fault(f"{i.text}: outside of the parameter")
    pattern = np.frombuffer(m.parameters, numbers.BITS[8 * size], 1, found.offset + offset)
    m.write(i, to, pattern, lanes)


def _addresses(m: Machine, i: Instruction, operand: Any, lanes: Array) -> Array:
    """Return the addresses of an access, of 32 bits in shared memory where the base has."""
    base, offset = operand
    if isinstance(base, int):
        return np.full(len(lanes), base + offset, np.int64)
    wide = m.program.registers[base.rstrip("0123456789")] == 64
    found = m.read(i, base, "s64" if wide else "s32", lanes).astype(np.int64)
    return found + offset


def _vector(i: Instruction, operand: Any, count: str | None, address: Array, size: int) -> Any:
    words = operand if isinstance(operand, tuple) else (operand,)
    if len(words) != int(count or 1):
        raise Fault(f"{i.text}: {len(words)} registers for {count or 1}")
    if (address % (size * len(words))).any():
        raise Fault(f"{i.text}: an address is no multiple of {size * len(words)}")
    return words


@_operation(r"ld\.(global|shared)(?:\.nc)?(?:\.v([24]))?\.([subf](?:16|32|64))")
def _load(m: Machine, i: Instruction, lanes: Array, space: str, count: str, kind: str) -> None:
    to, operand = i.operands
    size = numbers.width(kind) // 8
    address = _addresses(m, i, operand, lanes)
    for part, word in enumerate(_vector(i, to, count, address, size)):
        here, bits = address + part * size, numbers.BITS[8 * size]
        if space == "global":
            value = m.memory.load(i.text, here, size, bits, m.thread[lanes])
        else:
            where = m.block[lanes], m.warp[lanes], m.epoch[m.block[lanes]]
            value = m.shared.load(i.text, here, size, bits, *where)
        m.write(i, word, value, lanes)


@_operation(r"st\.(global|shared)(?:\.v([24]))?\.([subf](?:16|32|64))")
def _store(m: Machine, i: Instruction, lanes: Array, space: str, count: str, kind: str) -> None:
    operand, from_ = i.operands
    size = numbers.width(kind) // 8
    address = _addresses(m, i, operand, lanes)
    for part, word in enumerate(_vector(i, from_, count, address, size)):
        value = m.read(i, word, f"b{8 * size}", lanes)
        value, here = np.broadcast_to(value, lanes.shape), address + part * size
        if space == "global":
            m.memory.store(i.text, here, value, m.thread[lanes])
        else:
            where = m.block[lanes], m.warp[lanes], m.epoch[m.block[lanes]]
            m.shared.store(i.text, here, value, *where)


@_operation(r"(atom|red)(?:\.relaxed|\.monotonic)?(?:\.gpu|\.sys)?\.global\.add\.([suf](?:32|64))")
def _atomic(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    operand, from_ = i.operands[-2:]
    value = np.broadcast_to(m.read(i, from_, kind, lanes), lanes.shape)
    order = m.rng.permutation(len(lanes))
    before = m.memory.add(i.text, _addresses(m, i, operand, lanes), value, order)
    if name == "atom":
        m.write(i, i.operands[0], before, lanes)


def _whole_warps(m: Machine, i: Instruction, lanes: Array) -> Array:
    """Return lanes as (warp, 32), or stop where threads of a warp are missing."""
    if len(lanes) % WARP or (np.diff(lanes.reshape(-1, WARP), axis=1) != 1).any():
        raise Fault(f"{i.text}: threads of a warp are missing")
    if (m.lane[lanes[::WARP]] != 0).any():
        raise Fault(f"{i.text}: threads of a warp are missing")
    return lanes.reshape(-1, WARP)


@_operation(r"shfl\.sync\.(bfly|idx|up|down)\.b32")
def _shuffle(m: Machine, i: Instruction, lanes: Array, mode: str) -> None:
    to, a, b, c, members = i.operands
    warps = _whole_warps(m, i, lanes)
    if (m.read(i, members, "u32", lanes) != 0xFFFFFFFF).any():
        raise Fault(f"{i.text}: only whole warps are known")
    lane = np.tile(np.arange(WARP), len(warps))
    by = np.broadcast_to(m.read(i, b, "u32", lanes), lanes.shape).astype(np.int64) & 31
    bounds = np.broadcast_to(m.read(i, c, "u32", lanes), lanes.shape).astype(np.int64)
    segment, clamp = (bounds >> 8) & 31, bounds & 31
    last = (lane & segment) | (clamp & ~segment)
    source, inside = {
        "bfly": (lane ^ by, (lane ^ by) <= last),
        "idx": ((lane & segment) | (by & ~segment), ((lane & segment) | (by & ~segment)) <= last),
        "up": (lane - by, lane - by >= last),
        "down": (lane + by, lane + by <= last),
    }[mode]
    value = np.broadcast_to(m.read(i, a, "b32", lanes), lanes.shape)
    start = np.arange(len(lanes)) - lane
    moved = value[start + np.where(inside, source, lane)]
    register, _, predicate = str(to).partition("|")
    m.write(i, register, moved, lanes)
    if predicate:
        m.write(i, predicate, inside, lanes)


_FRAGMENT = np.arange(WARP) // 4, np.arange(WARP) % 4  # row (or column) and pair of each lane


@_operation(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32")
def _multiply(m: Machine, i: Instruction, lanes: Array) -> None:
    """Add a product of 16x16 and 16x8 with one rounding; the hardware may round more often."""
    to, left, right, sums = i.operands
    warps = _whole_warps(m, i, lanes)
    g, t = _FRAGMENT
    a, b = np.zeros((len(warps), 16, 16)), np.zeros((len(warps), 16, 8))
    c = np.zeros((len(warps), 16, 8))
    for r, word in enumerate(left):  # type: ignore[arg-type]
        for half, value in enumerate(_halves(m, i, word, lanes, warps.shape)):
            a[:, g + 8 * (r % 2), 2 * t + half + 8 * (r // 2)] = value
    for r, word in enumerate(right):  # type: ignore[arg-type]
        for half, value in enumerate(_halves(m, i, word, lanes, warps.shape)):
            b[:, 2 * t + half + 8 * r, g] = value
    for r, word in enumerate(sums):  # type: ignore[arg-type]
        value = np.broadcast_to(m.read(i, word, "f32", lanes), lanes.shape)
        c[:, g + 8 * (r // 2), 2 * t + r % 2] = value.reshape(warps.shape)
    found = (np.matmul(a, b) + c).astype(np.float32)
    for r, word in enumerate(to):  # type: ignore[arg-type]
        m.write(i, word, found[:, g + 8 * (r // 2), 2 * t + r % 2].ravel(), lanes)


def _halves(m: Machine, i: Instruction, word: Any, lanes: Array, shape: Any) -> list[Array]:
    """Return the two bf16 of a register, the lower half first."""
    bits = np.broadcast_to(m.read(i, word, "b32", lanes), lanes.shape).reshape(shape)
    return [(bits << np.uint32(16)).view("f4"), (bits & np.uint32(0xFFFF0000)).view("f4")]
