"""Matrix products of a warp or a warp group, and moves of their fragments.

After the PTX manual, "Warp Level Matrix Instructions" and "Asynchronous Warpgroup Level Matrix
Instructions". A product is rounded once; the hardware may round more often. Sums of integers are
exact, and wrap or, with .satfinite, saturate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arithmetic import numbers
from ..arithmetic.numbers import Array
from ..asynchronous.copies import Work
from ..asynchronous.maps import swizzled
from ..decode.opcodes import operation
from ..decode.program import CHUNK, WARP, Instruction, refuse
from ..memory.accesses import addresses, vector
from ..state.exchange import whole_warps

if TYPE_CHECKING:
    from ..state.machine import Machine

SIZES = {"bf16": 2, "f16": 2, "tf32": 4, "s8": 1}  # bytes of an element
DEPTH = 32  # bytes of a row of a factor
KEPT = 1024  # registers of the matrices that are kept
_SPANS = np.array([16, 128, 64, 32])  # bytes of the lines of a descriptor, by its two last bits


def _numbers(words: Array, kind: str) -> Array:
    if kind == "tf32":
        words, kind = words & np.uint32(0xFFFFE000), "f32"
    return numbers.as_type(words, kind).astype(np.float64)


def _words(m: Machine, i: Instruction, names: Any, lanes: Array) -> list[Array]:
    return [m.read(i, name, "b32", lanes) for name in names]


def _tile(
    m: Machine, words: list[Array], lanes: Array, kind: Any, function: Callable[[Array], Array]
) -> Array:
    """Return a function of registers (register, warp, 32).

    No array of a register is changed, so results are kept by the identity of the arrays.
    """
    key = (kind, *map(id, words))
    if key in m.tiles:
        return m.tiles[key][1]
    tile = function(np.stack(words).reshape(len(words), -1, WARP))
    if lanes is m.all:  # else the words are copies
        _keep(m, key, words, tile)
    return tile


def _keep(m: Machine, key: Any, words: list[Array], tile: Array) -> None:
    m.tiles[key] = words, tile
    while len(m.tiles) * len(words) > KEPT:
        del m.tiles[next(iter(m.tiles))]


def _piece(m: Machine, i: Instruction, names: Any, lanes: Array, kind: str, rows: int) -> Array:
    """Return a fragment in registers as (warp, rows, depth)."""

    def piece(words: Array) -> Array:
        each = 4 // SIZES[kind]
        values = _numbers(words.view(f"u{4 // each}"), kind)
        tiles = values.reshape(-1, rows // 8, words.shape[1], 8, 4, each)  # (k, row, warp, g, t, e)
        found = tiles.transpose(2, 1, 3, 0, 4, 5).reshape(words.shape[1], rows, -1)
        return _columns(found) if rows == 8 else found

    return _tile(m, _words(m, i, names, lanes), lanes, (kind, rows), piece)


def _columns(b: Array) -> Array:
    """Return the second factor (n, column, depth) with its columns in the order of `_sums`."""
    pairs = b.reshape(len(b), -1, 4, 2, b.shape[2])
    return pairs.transpose(0, 3, 1, 2, 4).reshape(b.shape)


def _sums(words: Array, kind: Any = np.float32) -> Array:
    """Return accumulators in registers (register, warp, 32) as (warp, 16, columns) of a type.

    Of eight columns the even ones come before the odd ones, as four lanes have them in a register.
    """
    lines = words.view("V16").reshape(-1, 2, 2, words.shape[1], 8)  # (tile, half, e, warp, g)
    found = np.ascontiguousarray(lines.transpose(3, 1, 4, 2, 0))
    return found.view(kind).reshape(words.shape[1], 16, -1)


def _integers(words: Array) -> Array:
    return _sums(words, np.int32)


def _held(sums: Array, kind: str, saturates: bool = False) -> Array:
    """Return sums in the type of the accumulators of products of a kind."""
    if kind != "s8":
        return sums.astype(np.float32)
    least, most = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    return (sums.clip(least, most) if saturates else sums).astype(np.int64).astype(np.int32)


def _registers(m: Machine, rounded: Array) -> list[Array]:
    """Return registers of (warp, 16, columns): the inverse of `_sums`, which need not undo it."""
    lines = rounded.view("V16").reshape(len(rounded), 2, 8, 2, -1).transpose(4, 1, 3, 0, 2)
    words = np.ascontiguousarray(lines).view(np.uint32).reshape(-1, len(rounded) * WARP)
    held = list(words)
    _keep(m, (rounded.dtype.name, *map(id, held)), held, rounded)
    return held


@operation(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(bf16|f16)\.\1\.f32")
@operation(r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.(tf32)\.tf32\.f32")
@operation(r"mma\.sync\.aligned\.m16n8k32\.row\.col(?:\.satfinite)?\.s32\.(s8)\.s8\.s32")
def _multiply(m: Machine, i: Instruction, lanes: Array, kind: str) -> None:
    to, left, right, sums = i.operands
    whole_warps(m, i, lanes)
    a, b = _piece(m, i, left, lanes, kind, 16), _piece(m, i, right, lanes, kind, 8)
    found = np.matmul(a, b.swapaxes(1, 2))
    found += _accumulators(m, _words(m, i, sums, lanes), lanes, kind)
    m.spread(i, to, _registers(m, _held(found, kind, ".satfinite" in i.op)), lanes)


def _accumulators(m: Machine, words: list[Array], lanes: Array, kind: str) -> Array:
    """Return the sums to which products of a kind are added."""
    if kind == "s8":
        return _tile(m, words, lanes, "int32", _integers)
    return _tile(m, words, lanes, "float32", _sums)


@operation(r"(ld|st)matrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(?:::cta)?\.b16")
@operation(r"(ld|st)matrix\.sync\.aligned\.x([124])(\.trans)?\.m8n8\.shared(?:::cta)?\.b16")
def _move_matrices(
    m: Machine, i: Instruction, lanes: Array, name: str, count: str, transposed: str | None
) -> None:
    """Move 8x8 matrices: lane n of eight has the address of row n, each lane two elements."""
    names, place = i.operands if name == "ld" else i.operands[::-1]
    names, warps, number = vector(i, names, count), whole_warps(m, i, lanes), int(count)
    line = addresses(m, i, place, lanes).reshape(warps.shape)[:, : 8 * number]
    who = warps[:, : 8 * number].ravel()

    def tiles_of(part: Array) -> Array:
        tiles = part.view(np.uint16).reshape(-1, number, 8, 8)
        return np.ascontiguousarray(tiles.swapaxes(2, 3) if transposed else tiles)

    def held(part: Array) -> Array:  # (register, lane)
        words = tiles_of(part).view(np.uint32).reshape(-1, number, WARP)
        return words.swapaxes(0, 1).reshape(number, -1)

    if name == "ld":
        found, undefined = m.shared.load(i.text, line.ravel(), CHUNK, who)
        m.spread(i, names, held(found), lanes, None if undefined is None else held(undefined))
    else:
        words = np.stack(_words(m, i, names, lanes)).reshape(number, -1, WARP).swapaxes(0, 1)
        tiles = tiles_of(np.ascontiguousarray(words))
        m.shared.store(i.text, line.ravel(), tiles.reshape(-1, 8), who)


def fragments(code: Sequence[Instruction]) -> dict[str, int]:
    """Return an index for each register that is a fragment of an asynchronous product."""
    found = [i.operands[:2] for i in code if i.op.startswith("wgmma.mma_async")]
    names = [name for pair in found for part in pair if isinstance(part, tuple) for name in part]
    return {name: n for n, name in enumerate(dict.fromkeys(names))}


@operation(r"wgmma\.fence\.sync\.aligned")
def _fence(m: Machine, i: Instruction, lanes: Array) -> None:
    m.unfenced[:, m.rows(lanes)] = False


def _described(
    m: Machine, i: Instruction, word: Any, warps: Array, rows: Array, size: int, across: bool
) -> Array:
    """Return the indices (warp, row, 2) of the 16-byte chunks of a matrix in shared memory.

    `rows` are those of each warp. The layout is in "Asynchronous wgmma: Shared Memory Matrix
    Layout" and "Strides". With `across`, it is transposed: indices are (warp, row / 8, depth).
    """
    found = m.read(i, word, "u64", warps.ravel()).reshape(-1, WARP)
    wrong = (found != found[:, :1]) | (found >> np.uint64(49) & np.uint64(7) != 0)
    refuse(wrong, i.text, "descriptors of a warp differ, or a base offset, which is not supported")
    start, lead, stride = (
        ((found[:, :1, None] >> np.uint64(n) & np.uint64(0x3FFF)) << np.uint64(4)).astype(np.int64)
        for n in (0, 16, 32)
    )
    span = _SPANS[found[:, :1, None] >> np.uint64(62)]
    x = rows[:, :: CHUNK // size if across else 1, None]
    y = np.arange(DEPTH // size if across else 2)
    if across:
        far, near = (np.where(span == 16, *pair) for pair in ((stride, lead), (lead, stride)))
        address = x * size % span + x * size // span * far + y % 8 * span + y // 8 * near
    else:
        address = x % 8 * span + x // 8 * stride + y * np.where(span == 16, lead, CHUNK)
    who = np.repeat(warps[:, 0], address[0].size)
    place = m.shared.places(i.text, swizzled(start + address, span).ravel(), CHUNK, who)
    return place.reshape(address.shape) // CHUNK


def _factor(
    m: Machine, i: Instruction, word: Any, warps: Array, rows: Array, kind: str, across: bool
) -> tuple[Callable[[Any], Array], Array]:
    """Return a function that loads a factor (warp, row, depth), and the chunks that it reads."""
    if isinstance(word, tuple):
        # Another product in flight may read the same registers.
        in_flight, m.in_flight = m.in_flight, np.zeros_like(m.in_flight)
        lanes = m.all if warps.size == m.count else warps.ravel()
        pieces = _piece(m, i, word, lanes, kind, 16)
        m.in_flight = in_flight
        return pieces.__getitem__, np.zeros((len(warps), 0), np.int64)
    lines = _described(m, i, word, warps, rows, SIZES[kind], across)

    def stored(over: Any) -> Array:
        found = m.shared.lines(CHUNK)[at := lines[over]].view(f"u{SIZES[kind]}")
        found = found.reshape(*at.shape, -1)
        found = found.swapaxes(2, 3) if across else found
        return _numbers(found.reshape(len(found), -1, DEPTH // SIZES[kind]), kind)

    return stored, lines.reshape(len(warps), -1)


def _warp_groups(m: Machine, i: Instruction, word: Any, warps: Array) -> tuple[Array, Array]:
    """Return the first warp of each warp group, and the group of each warp.

    The warps of a group have the same descriptor of the second factor.
    """
    number = m.block[warps[:, 0]] * m.shared.width + m.shared.column(warps[:, 0])[:, 0] // 4
    _, first, group = np.unique(number, return_index=True, return_inverse=True)
    found = m.read(i, word, "u64", warps.ravel()).reshape(warps.shape)
    refuse(found != found[first, :1][group], i.text, "descriptors of a warp group differ")
    return first, group


@operation(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(16|8)\.f32\.(bf16|f16|tf32)\.\3")
@operation(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(32)\.s32\.(s8)\.s8")
def _multiply_later(m: Machine, i: Instruction, lanes: Array, n: str, k: str, kind: str) -> None:
    """Start an asynchronous product; each warp of four computes 16 of its rows."""
    to, left, right, scale, *signs = i.operands
    signs = signs or [1, 1]  # integers have none
    known = int(k) * SIZES[kind] == DEPTH and len(to) == int(n) // 2 and signs[:2] == [1, 1]
    refuse(not known, i.text, "an unsupported form")
    warps = whole_warps(m, i, lanes)
    held, transposed = isinstance(left, tuple), [False, False, *map(bool, signs[2:])]
    names = np.array([m.fragments[name] for name in (*to, *(left if held else ()))])
    refuse(m.unfenced[names][:, m.rows(lanes)], i.text, "not ordered by a wgmma.fence")
    add = m.read(i, scale, "pred", lanes)
    adds = add.reshape(warps.shape)[:, :1, None]
    adding = lanes if add.all() else lanes[add]
    undefined = any(m.undefined_bits(name, adding) is not None for name in to)
    refuse(undefined, i.text, "a register has undefined bits")
    if len(begins := lanes[~add]):  # what the registers held before does not count
        for name in to:
            m.set(name, np.zeros(len(begins), np.uint32), begins)
    rows, columns = m.shared.column(warps[:, 0]) % 4 * 16 + np.arange(16), np.arange(int(n))
    first, group = _warp_groups(m, i, right, warps)
    a, read = _factor(m, i, left, warps, rows, kind, transposed[-2])
    b, read_too = _factor(m, i, right, warps[first], columns[None], kind, transposed[-1])

    def move(over: Array) -> None:
        every, one, two = over.all(), a(over), _columns(b(slice(None))).swapaxes(1, 2)
        here = lanes if every else warps[over].ravel()
        if every and len(warps) == 4 * len(first):  # one product a warp group
            one = one.reshape(len(first), 64, -1)
        else:
            two = two[group[over]]
        product = np.matmul(one, two).reshape(-1, 16, len(columns))
        words = [m.registers[name] for name in to]
        words = words if here is m.all else [word[here] for word in words]
        sums = _accumulators(m, words, here, kind)
        product += sums if add.all() else np.where(adds[over], sums, 0)
        for name, value in zip(to, _registers(m, _held(product, kind))):
            m.set(name, value, here)

    places = np.concatenate([read, read_too[group]], 1) * CHUNK
    reads = m.shared.cells(places.ravel(), CHUNK).reshape(len(warps), -1)
    m.groups["wgmma"].begin(Work(i.text, warps[:, 0], move, reads=reads, sums=names))
