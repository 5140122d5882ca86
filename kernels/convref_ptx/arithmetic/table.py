"""Arithmetic instructions, one row of a table each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..decode.opcodes import operation
from ..decode.program import SHARED, Fault, Instruction
from . import numbers
from .numbers import Array

if TYPE_CHECKING:
    from ..state.machine import Machine

_INTEGER = "[su](?:16|32|64)"
_WORD = "[subf](?:16|32|64)"
_SHORT = "bf16|f16"
_RELATION = "|".join(numbers.RELATIONS)
REGISTER = 0  # the unit of undefined bits of which one makes a whole result undefined


def _binary(name: str, kind: str, a: Array, b: Array) -> Array:
    return numbers.FUNCTIONS[name](a, b).astype(a.dtype, copy=False)


def _convert(to: str, kind: str, a: Array) -> Array:
    return a.astype(numbers.TYPES[to])


def _byte(width: str, sign: str, a: Array) -> Array:
    return (a & 0xFF).astype(numbers.TYPES[f"{sign}8"]).astype(numbers.TYPES[sign + width])


def _low_byte(sign: str, kind: str, a: Array) -> Array:
    """Return the low byte, extended to a register of 16 bits."""
    return _byte("16", sign, a)


def _funnel(left: str, low: Array, high: Array, count: Array) -> Array:
    both, by = high.astype(np.uint64) << np.uint64(32) | low, count.astype(np.uint64) % 32
    return (both << by >> np.uint64(32) if left == "l" else both >> by).astype(np.uint32)


def _wide(kind: str, a: Array, b: Array) -> Array:
    wide = np.dtype(f"{kind[0].replace('s', 'i')}{2 * a.itemsize}")
    return a.astype(wide) * b.astype(wide)


def _high(kind: str, a: Array, b: Array) -> Array:
    return (_wide(kind, a, b) >> 8 * a.itemsize).astype(a.dtype)


def _halves(kind: str, words: Sequence[Array]) -> list[Array]:
    """Return the 16-bit halves of registers, the lower before the upper."""
    return [numbers.as_type(word.view(np.uint16), kind) for word in words]


def _shorts(name: str, kind: str, *words: Array) -> Array:
    given = (half.astype(np.float32) for half in _halves(kind, words))
    return numbers.rounded(numbers.FUNCTIONS[name](*given), kind).view(words[0].dtype)


def flush(a: Array) -> Array:
    return np.where(abs(a) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), a), a)


_APPROXIMATED: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


def _approximate(name: str, ftz: str | None, kind: str, a: Array) -> Array:
    """Return a function rounded once; a GPU may be some ulp off."""
    found = _APPROXIMATED[name]((flush(a) if ftz else a).astype(np.float64)).astype(a.dtype)
    return flush(found) if ftz else found


def _approximate_shorts(name: str, kind: str, a: Array) -> Array:
    (half,) = _halves(kind, [a])
    found = _APPROXIMATED[name](half.astype(np.float64)).astype(np.float32)
    return numbers.rounded(found, kind).view(a.dtype)


def _flushed(name: str, nan: str | None, *words: Array) -> Array:
    function = getattr(np, f"{name}imum") if nan else numbers.FUNCTIONS[name]
    return flush((numbers.fma if name == "fma" else function)(*map(flush, words)))


def _pairs_of_integers(name: str, sign: str, *words: Array) -> Array:
    halves = (word.view(numbers.TYPES[f"{sign}16"]) for word in words)
    return numbers.FUNCTIONS[name](*halves).view(words[0].dtype)


def _test(name: str, kind: str, a: Array) -> Array:
    """Return whether numbers are of a kind: finite, infinite, number, notanumber, normal..."""
    tiny = abs(a) < np.finfo(a.dtype).tiny
    found: dict[str, Array] = {
        "finite": np.isfinite(a),
        "infinite": np.isinf(a),
        "number": ~np.isnan(a),
        "notanumber": np.isnan(a),
        "normal": np.isfinite(a) & ~tiny,
        "subnormal": tiny & (a != 0),
    }
    return found[name]


def _sign(name: str, kind: str, a: Array) -> Array:
    """Negate 16-bit numbers or take their absolute values, by their sign bits."""
    halves, bit = a.view(np.uint16), np.uint16(0x8000)
    return (halves ^ bit if name == "neg" else halves & ~bit).view(a.dtype)


def _high64(kind: str, a: Array, b: Array) -> Array:
    product = a.astype(object) * b.astype(object) >> 64
    return product.astype(a.dtype)


def _count(name: str, width: str, a: Array) -> Array:
    """Return the number of ones, or of zeros before the first one."""
    bits = np.unpackbits(a.view(np.uint8).reshape(len(a), -1)[:, ::-1], axis=1)
    zeros = np.where(bits.any(1), bits.argmax(1), bits.shape[1])
    return (bits.sum(1) if name == "popc" else zeros).astype(np.uint32)


def _reverse(width: str, a: Array) -> Array:
    bits = np.unpackbits(a.view(np.uint8).reshape(len(a), -1), axis=1, bitorder="little")
    return np.packbits(bits, axis=1)[:, ::-1].copy().view(a.dtype)[:, 0]


def _logic(a: Array, b: Array, c: Array, table: Array) -> Array:
    """Return the bits that a table of eight gives for the bits of three operands."""
    found = np.zeros_like(a)
    for n in range(8):
        term = (a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c)
        found |= np.where(table >> np.uint32(n) & np.uint32(1), term, np.zeros_like(term))
    return found


def _insert(width: str, a: Array, b: Array, start: Array, length: Array) -> Array:
    """Return b with some bits from `start` on replaced by the lowest ones of a."""
    mask = _mask("clamp", start & np.uint32(0xFF), length & np.uint32(0xFF), a.dtype)
    low = np.minimum(start & np.uint32(0xFF), 64).astype(a.dtype)  # past the width: zeros
    return (b & ~mask) | (a << low & mask)


def _mask(mode: str, start: Array, length: Array, kind: Any = np.uint32) -> Array:
    """Return ones from a bit on; beyond the width none, or with "wrap" positions modulo 32."""
    if mode == "wrap":
        start, length = start % 32, length % 32
    low, count = (np.minimum(n, 64).astype(np.uint64) for n in (start, length))
    one = np.uint64(1)
    return (((one << count) - one) << low).astype(kind)  # shifts past the width give 0


def _clamped(left: str, low: Array, high: Array, count: Array) -> Array:
    """Return a funnel shift by at most 32 bits."""
    both = high.astype(np.uint64) << np.uint64(32) | low
    by = np.minimum(count, 32).astype(np.uint64)
    return (both >> (np.uint64(32) - by if left == "l" else by)).astype(np.uint32)


def _extended(mode: str, sign: str, a: Array, count: Array) -> Array:
    """Return the lowest bits of a, extended by zeros or by the highest one of them."""
    count = (count % 32 if mode == "wrap" else np.minimum(count, 32)).astype(np.uint32)
    return numbers.field(a, np.zeros_like(count), count)


# The bytes that a mode of prmt takes, for each value of the two lowest bits of its selector.
_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def _permute(mode: str, low: Array, high: Array, selector: Array) -> Array:
    return numbers.permute(low, high, np.uint32(_MODES[mode])[selector & np.uint32(3)])


def _find(shift: str | None, kind: str, a: Array) -> Array:
    """Return the position of the highest bit that is not a copy of the sign, -1 for none.

    With `shift`, the count that shifts that bit to the top.
    """
    plain = np.where(a < 0, ~a, a).view(f"u{a.itemsize}")
    above = _count("clz", "", plain)
    top = np.uint32(8 * a.itemsize - 1)
    return np.where(plain == 0, np.uint32(0xFFFFFFFF), above if shift else top - above)


def _difference(kind: str, a: Array, b: Array, c: Array) -> Array:
    return c + np.where(a < b, b - a, a - b)


def _dot(left: str, right: str, a: Array, b: Array, c: Array) -> Array:
    """Return the sum of the products of four bytes, or of two half-words and bytes."""
    count = 32 // numbers.width(left)
    pairs = zip(
        a.view(numbers.TYPES[left]).reshape(-1, count).T,
        b.view(numbers.TYPES[right]).reshape(len(b), -1).T,
    )
    products = (x.astype(np.int64) * y for x, y in pairs)
    return (c + sum(products)).astype(np.uint32)


def _dot2(half: str, left: str, right: str, a: Array, b: Array, c: Array) -> Array:
    """Return `_dot` of half-words and the two lower or upper bytes."""
    return _dot(f"{left}16", f"{right}8", a, b >> 16 if half == "hi" else b, c)


# (opcodes, types of the operands, function); the types and the function take the pattern's groups.
def _set(name: str, to: str, kind: str, a: Array, b: Array) -> Array:
    true = np.float32(1) if to == "f32" else np.int32(-1)
    return np.where(numbers.compare(name, kind, a, b), true, true - true)


def _set_pairs(name: str, kind: str, a: Array, b: Array) -> Array:
    one = np.uint16({"f16": 0x3C00, "bf16": 0x3F80}[kind])
    return np.where(numbers.compare(name, kind, *_halves(kind, (a, b))), one, 0).view(np.uint32)


ROWS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    (rf"(add|sub|min|max|div|rem)\.({_INTEGER})", "{1} {1}", _binary),
    (r"(xor)\.(b(?:16|32|64)|pred)", "{1} {1}", _binary),
    (r"(add|sub|mul|min|max)(?:\.rn)?\.(f32|f64)", "{1} {1}", _binary),
    (rf"(add|sub|mul|fma)\.(?:rn\.)?({_SHORT})", "b16 b16 b16", _shorts),  # the third is fma's
    (r"(min|max)\.NaN\.f32", "f32 f32", lambda name, *ab: getattr(np, f"{name}imum")(*ab)),
    (rf"(mul)\.lo\.({_INTEGER})", "{1} {1}", _binary),
    (r"neg\.([sf](?:16|32|64))", "{0}", lambda kind, a: -a),
    (r"mul\.wide\.([su](?:16|32))", "{0} {0}", _wide),
    (r"mad\.wide\.([su])16", "{0}16 {0}16 {0}32", lambda kind, a, b, c: _wide(kind, a, b) + c),
    (r"mad\.wide\.([su])32", "{0}32 {0}32 {0}64", lambda kind, a, b, c: _wide(kind, a, b) + c),
    (r"mul\.hi\.([su](?:16|32))", "{0} {0}", _high),
    (rf"mad\.lo\.({_INTEGER})", "{0} {0} {0}", lambda kind, a, b, c: a * b + c),
    (r"fma\.rn\.(f32|f64)", "{0} {0} {0}", lambda kind, *abc: numbers.fma(*abc)),
    (r"(ex2|lg2|rcp|sqrt|rsqrt|sin|cos|tanh)\.approx(\.ftz)?\.(f32|f64)", "{2}", _approximate),
    (rf"(ex2|tanh)\.approx(?:\.ftz)?\.({_SHORT})", "b16", _approximate_shorts),
    (r"(add|sub|mul|min|max|fma)(?:\.rn)?\.ftz(\.NaN)?\.f32", "f32 f32 f32", _flushed),
    (r"abs\.(f32|f64|s(?:16|32|64))", "{0}", lambda kind, a: abs(a)),
    (r"abs\.ftz\.f32", "f32", lambda a: abs(flush(a))),
    (r"neg\.ftz\.f32", "f32", lambda a: -flush(a)),
    (rf"(abs|neg)\.({_SHORT})", "b16", _sign),
    (rf"(min|max)(?:\.NaN)?\.({_SHORT})", "b16 b16", _shorts),
    (r"copysign\.(f32|f64)", "{0} {0}", lambda kind, a, b: np.copysign(b, a)),
    (rf"set\.({_RELATION})\.(u32|s32|f32)\.(f32|f64|[su]32)", "{2} {2}", _set),
    (r"mul\.hi\.([su]64)", "{0} {0}", _high64),
    (r"(popc|clz)\.b(32|64)", "b{1}", _count),
    (r"brev\.b(32|64)", "b{0}", _reverse),
    (r"lop3\.b32", "b32 b32 b32 u32", _logic),
    (r"bmsk\.(clamp|wrap)\.b32", "u32 u32", _mask),
    (r"szext\.(clamp|wrap)\.([su])32", "{1}32 u32", _extended),
    (rf"prmt\.b32\.({'|'.join(_MODES)})", "b32 b32 b32", _permute),
    (r"shf\.(l|r)\.clamp\.b32", "b32 b32 u32", _clamped),
    (r"cnot\.b(16|32|64)", "b{0}", lambda width, a: (a == 0).astype(a.dtype)),
    (rf"slct\.({_WORD})\.s32", "{0} {0} s32", lambda kind, a, b, c: np.where(c >= 0, a, b)),
    (r"sqrt\.rn(?:\.ftz)?\.(f32|f64)", "{0}", lambda kind, a: np.sqrt(a)),
    (r"div\.(?:rn|full|approx)\.ftz\.f32", "f32 f32", lambda a, b: flush(flush(a) / flush(b))),
    (r"sh(l|r)\.([bus](?:16|32|64))", "{1} u32", numbers.shift),
    (r"testp\.(\w+)\.(f32|f64)", "{1}", _test),
    (r"bfe\.([su](?:32|64))", "{0} u32 u32", lambda kind, *abc: numbers.field(*abc)),
    (r"cvta\.(?:(?:to\.)?(?:global|local|const)|param)\.u64", "b64", lambda a: a),
    (r"cvta\.(to\.)?shared\.u64", "u64", lambda to, a: a - SHARED if to else a + SHARED),
    (r"shf\.(l|r)\.wrap\.b32", "b32 b32 u32", _funnel),
    # `full` and `approx` may be 2 ulp off.
    (r"div\.(?:rn|full|approx)\.(f32|f64)", "{0} {0}", lambda kind, *ab: np.divide(*ab)),
    (r"rcp\.rn\.(f32|f64)", "{0}", lambda kind, a: 1 / a),
    (r"bfind(\.shiftamt)?\.([su](?:32|64))", "{1}", _find),
    (rf"sad\.({_INTEGER})", "{0} {0} {0}", _difference),
    (r"dp4a\.([su])32\.([su])32", "b32 b32 b32", lambda x, y, *abc: _dot(f"{x}8", f"{y}8", *abc)),
    (r"dp2a\.(lo|hi)\.([su])32\.([su])32", "b32 b32 b32", _dot2),
)
# Instructions whose result has two halves, each of which depends on that half of the operands.
HALVES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    (rf"(add|sub|mul|fma)\.(?:rn\.)?({_SHORT})x2", "b32 b32 b32", _shorts),
    (rf"(ex2|tanh)\.approx(?:\.ftz)?\.({_SHORT})x2", "b32", _approximate_shorts),
    (rf"(abs|neg)\.({_SHORT})x2", "b32", _sign),
    (rf"(min|max)(?:\.NaN)?\.({_SHORT})x2", "b32 b32", _shorts),
    (rf"set\.({_RELATION})\.({_SHORT})x2\.\2x2", "b32 b32", _set_pairs),
    (r"(add|min|max)\.([su])16x2", "b32 b32", _pairs_of_integers),
)
# Instructions whose result bits each depend on few bits of the operands.
BITWISE: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    (r"(and|or)\.(b(?:16|32|64)|pred)", "{1} {1}", _binary),
    (r"mov\.pred", "pred", lambda a: a),
    (r"not\.(pred|b(?:16|32|64))", "{0}", lambda kind, a: ~a),
    (rf"selp\.({_WORD})", "{0} {0} pred", lambda kind, a, b, p: np.where(p, a, b)),
    (rf"cvt\.({_INTEGER})\.({_INTEGER})", "{1}", _convert),
    (r"cvt\.[su](16|32|64)\.([su])8", "b{0}", _byte),
    (r"cvt\.([su])8\.([su](?:16|32|64))", "{1}", _low_byte),
    (r"bfi\.b(32|64)", "b{0} b{0} u32 u32", _insert),
    (r"prmt\.b32", "b32 b32 b32", numbers.permute),
)


@cache
def _kinds(kinds: str, groups: tuple[str, ...]) -> list[str]:
    return kinds.format(*groups).split()


def _compute(
    m: Machine, i: Instruction, lanes: Array, to: Any, pairs: Any, function: Any, unit: int
) -> None:
    """Write a function of operands and their types to one register, or a part of it to each.

    If an operand has undefined bits, so has the result. In a unit of one bit, those that differ
    when the undefined bits are ones and when they are zeros; else all of each unit that has some.
    """
    masks = [x for word, _ in pairs if (x := m.undefined_bits(word, lanes)) is not None]

    def found(bits: int) -> Array:
        value: Array = function(*(m.read(i, word, kind, lanes, bits) for word, kind in pairs))
        return value if value.dtype == bool else value.view(numbers.BITS[8 * value.itemsize])

    value, undefined = found(1), None
    if masks:
        undefined = value ^ found(0) if unit == 1 else _whole_units(masks, value, unit)
    (m.write if isinstance(to, str) else m.spread)(i, to, value, lanes, undefined)


def _whole_units(masks: list[Array], value: Array, unit: int) -> Array:
    """Return a mask of the units of a value in which any operand has undefined bits."""
    found = np.zeros_like(value)
    if unit != REGISTER:
        bits = numbers.BITS[unit]
        found, masks = found.view(bits), [np.ascontiguousarray(x).view(bits) for x in masks]
    some = np.any([mask != 0 for mask in masks], 0)
    return np.where(some, ~found, found).view(value.dtype)


def row(pattern: str, kinds: str, function: Callable[..., Any], unit: int = REGISTER) -> None:
    """Register an instruction: its opcodes, the types of its operands, and what it computes.

    `unit` is how many bits of its result are undefined together.
    """

    @operation(pattern)
    def run(m: Machine, i: Instruction, lanes: Array, *groups: str) -> None:
        to, *given = i.operands
        pairs = list(zip(given, _kinds(kinds, groups)))
        try:
            _compute(m, i, lanes, to, pairs, partial(function, *groups), unit)
        except ZeroDivisionError as error:
            raise Fault(f"{i.text}: {error}") from None


for _unit, _rows in ((REGISTER, ROWS), (16, HALVES), (1, BITWISE)):
    for _row in _rows:
        row(*_row, _unit)


@operation(r"(add|sub|mad)(c?)(?:\.(lo|hi))?(\.cc)?\.([su](?:32|64))")
def _carry(
    m: Machine, i: Instruction, lanes: Array,
    name: str, takes: str, part: str | None, gives: str | None, kind: str,
) -> None:  # fmt: skip
    """Add or subtract with the carry of an instruction before, or keep the carry for one after."""
    to, *given = i.operands
    words = [m.read(i, word, kind, lanes) for word in given]
    bits = 8 * words[0].itemsize
    if name == "mad":
        product = words.pop(0).astype(object) * words.pop(0).astype(object)
        words.insert(0, (product >> bits if part == "hi" else product) % (1 << bits))
    first, second = (word.astype(object) % (1 << bits) for word in words)
    carry = m.carry[lanes].astype(object) if takes else 0
    total = first - second - carry if name == "sub" else first + second + carry
    if gives:
        m.carry[lanes] = (total >> bits) % 2 == 1
    m.write(i, to, (total % (1 << bits)).astype(f"u{bits // 8}"), lanes)


_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


@operation(
    rf"setp\.(eq|ne|lt|le|gt|ge|{'|'.join(_UNSIGNED)})(?:\.(and|or|xor))?()\.([bsu](?:16|32|64))"
)
@operation(rf"setp\.({_RELATION})(?:\.(and|or|xor))?(\.ftz)?\.(f32|f64|{_SHORT})")
def _compare(
    m: Machine, i: Instruction, lanes: Array,
    name: str, join: str | None, ftz: str | None, kind: str,
) -> None:  # fmt: skip
    """Compare, and combine the result, and for a second predicate its negation, with a third."""
    to, a, b, *last = i.operands
    outputs = to.split("|")
    third, negated = (last[0].lstrip("!"), last[0][0] == "!") if last else ("", False)
    pairs = [(a, kind), (b, kind), *([(third, "pred")] if third else [])]

    def compared(x: Array, y: Array, *more: Array) -> Array:
        x, y = (flush(x), flush(y)) if ftz else (x, y)
        holds = numbers.compare(_UNSIGNED.get(name, name), kind, x, y)
        found = [holds, ~holds][: len(outputs)]
        if join:
            found = [numbers.FUNCTIONS[join](part, more[0] ^ negated) for part in found]
        return np.stack(found) if len(outputs) > 1 else found[0]

    _compute(m, i, lanes, tuple(outputs) if len(outputs) > 1 else to, pairs, compared, REGISTER)


@operation(rf"setp\.({_RELATION})\.({_SHORT})x2")
def _compare_pairs(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    """Compare the lower halves of two registers, then the upper ones; a predicate each."""
    to, *given = i.operands

    def compared(*words: Array) -> Array:
        return numbers.compare(name, kind, *_halves(kind, words)).reshape(-1, 2).T

    pairs = [(word, "b32") for word in given]
    _compute(m, i, lanes, tuple(to.split("|")), pairs, compared, REGISTER)


@operation(rf"mov\.({_WORD}|b128)")
def _move(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    """Copy a register, join several into one, the first as its lower part, or split one."""
    to, a = i.operands
    if not isinstance(to, tuple) and not isinstance(a, tuple):
        value = m.read(i, a, f"b{numbers.width(kind)}", lanes, 1)
        m.write(i, to, value, lanes, m.undefined_bits(a, lanes))
        return
    given = a if isinstance(a, tuple) else (a,)
    pairs = [(word, f"b{numbers.width(kind) // len(given)}") for word in given]
    bits = numbers.BITS[numbers.width(kind) // (len(to) if isinstance(to, tuple) else 1)]

    def joined(*parts: Array) -> Array:
        words = np.stack(parts, -1) if len(parts) > 1 else parts[0].reshape(-1, 1)
        return np.ascontiguousarray(words.view(bits).T)

    _compute(m, i, lanes, to if isinstance(to, tuple) else (to,), pairs, joined, 1)
