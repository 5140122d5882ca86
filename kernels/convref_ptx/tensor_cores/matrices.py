"""Matrix products of a warp or a warp group, and moves of their fragments.

After the PTX manual, "Warp Level Matrix Instructions" and "Asynchronous Warpgroup Level Matrix
Instructions". A product is rounded once, or as a card does by a model of `sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arithmetic import conversions, numbers
from ..arithmetic.numbers import Array
from ..asynchronous.copies import Work
from ..asynchronous.maps import swizzled
from ..decode.opcodes import operation
from ..decode.program import CHUNK, WARP, Fault, Instruction, refuse
from ..memory.accesses import addresses, vector
from ..state.exchange import whole_warps
from . import sums as models

if TYPE_CHECKING:
    from ..state.machine import Machine

# Bytes of an element of a factor.
SIZES = {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1, "f64": 8}
SUMS = {kind: numbers.TYPES[kind] for kind in ("f16", "f32", "f64", "s32")}  # of accumulators
DEPTH = 32  # bytes of a row of a factor
KEPT = 1024  # registers of the matrices that are kept
_SPANS = np.array([16, 128, 64, 32])  # bytes of the lines of a descriptor, by its two last bits


def _numbers(words: Array, kind: str) -> Array:
    if kind in models.EIGHT_BITS:
        return conversions.fp8_values(kind)[words]
    if kind == "tf32":
        words, kind = words & np.uint32(0xFFFFE000), "f32"
    return numbers.as_type(words, kind).astype(np.float64)


def _words(m: Machine, i: Instruction, names: Any, lanes: Array, kind: str = "b32") -> list[Array]:
    return [m.read(i, name, "b64" if kind == "f64" else "b32", lanes) for name in names]


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


def _piece(
    m: Machine, i: Instruction, names: Any, lanes: Array, kind: str, rows: int, right: bool = False
) -> Array:
    """Return a fragment in registers as (warp, rows, depth); rows are columns of the `right`."""

    def piece(words: Array) -> Array:
        each = words.itemsize // SIZES[kind]
        values = _numbers(words.view(f"u{SIZES[kind]}"), kind)
        tiles = values.reshape(-1, rows // 8, words.shape[1], 8, 4, each)  # (k, row, warp, g, t, e)
        found = tiles.transpose(2, 1, 3, 0, 4, 5).reshape(words.shape[1], rows, -1)
        return _columns(found) if right else found

    return _tile(m, _words(m, i, names, lanes, kind), lanes, (kind, rows, right), piece)


def _columns(b: Array) -> Array:
    """Return the second factor (n, column, depth) with its columns in the order of `_sums`."""
    pairs = b.reshape(len(b), -1, 4, 2, b.shape[2])
    return pairs.transpose(0, 3, 1, 2, 4).reshape(b.shape)


def _sums(words: Array, to: str, rows: int = 16) -> Array:
    """Return accumulators in registers (register, warp, 32) as (warp, rows, columns).

    Of eight columns the even ones come before the odd ones, as four lanes have them in a register.
    """
    count = words.shape[1]
    if to == "f16":  # two columns in a register
        halves = words.view(np.float16).reshape(-1, count, WARP, 2).transpose(0, 3, 1, 2)
        wide = halves.astype(np.float32, order="C").reshape(-1, count, WARP)
        return _sums(wide, "f32").astype(np.float16)
    lines = words.view(f"V{4 * words.itemsize}").reshape(-1, rows // 8, 2, count, 8)
    found = np.ascontiguousarray(lines.transpose(3, 1, 4, 2, 0))  # of (tile, half, e, warp, g)
    return found.view(SUMS[to]).reshape(count, rows, -1)


def _registers(sums: Array, to: str) -> Array:
    """Return registers (register, lane) of (warp, rows, columns): the inverse of `_sums`."""
    wide = sums.astype(np.float32) if to == "f16" else sums
    count, rows, size = *sums.shape[:2], wide.itemsize
    lines = wide.view(f"V{4 * size}").reshape(count, rows // 8, 8, 2, -1).transpose(4, 1, 3, 0, 2)
    words = np.ascontiguousarray(lines).view(f"u{size}").reshape(-1, count * WARP)
    if to == "f16":
        pairs = words.view(np.float32).astype(np.float16).reshape(-1, 2, count * WARP)
        words = np.ascontiguousarray(pairs.swapaxes(1, 2)).view(np.uint32)[..., 0]
    return words


def _product(
    m: Machine, i: Instruction, a: Array, b: Array, c: Array, kinds: tuple[str, str], to: str
) -> Array:
    """Return a @ b + c of (N, rows, depth), (N, depth, columns) and accumulators, rounded."""
    if to == "f64":
        return models.fused(a, b, c)
    if m.tensor_cores == "exact" or to == "s32":
        product = np.matmul(a, b)
        product += c
        if ".satfinite" in i.op:
            np.clip(product, -(2**31), 2**31 - 1, out=product)
        product = product.astype(np.int64) if to == "s32" else product  # integers wrap
        return product.astype(SUMS[to])
    model = models.model_of(m.program.arch, i.op.startswith("wgmma"), kinds[0], to)
    if model is None:
        card = f"sm_{m.program.arch}" if m.program.arch else "an unknown card"
        raise Fault(f"{i.text}: no model of its sums on {card} is published")
    return models.summed(a, b, c, kinds, to, model)


_MMA = r"mma\.sync\.aligned\.m(16)n8"


@operation(rf"{_MMA}k(?:16|8)\.row\.col\.(f32)\.(bf16|f16)\.(\3)\.f32")
@operation(rf"{_MMA}k(?:16|8)\.row\.col\.(f16)\.(f16)\.(f16)\.f16")
@operation(rf"{_MMA}k(?:8|4)\.row\.col\.(f32)\.(tf32)\.(tf32)\.f32")
@operation(rf"{_MMA}k(?:32|16)\.row\.col\.(f32|f16)\.(e4m3|e5m2)\.(e4m3|e5m2)\.\2")
@operation(rf"{_MMA}k(?:32|16)\.row\.col(?:\.satfinite)?\.(s32)\.([su]8)\.([su]8)\.s32")
@operation(r"mma\.sync\.aligned\.m(8)n8k4\.row\.col\.(f64)\.(f64)\.(f64)\.f64")
def _multiply(
    m: Machine, i: Instruction, lanes: Array, rows: str, to: str, kind: str, other: str
) -> None:
    into, left, right, sums = i.operands
    whole_warps(m, i, lanes)
    a = _piece(m, i, left, lanes, kind, int(rows))
    b = _piece(m, i, right, lanes, other, 8, right=True).swapaxes(1, 2)
    words, matrix = _words(m, i, sums, lanes, to), partial(_sums, to=to, rows=int(rows))
    c = _tile(m, words, lanes, ("sums", to), matrix)
    product = _product(m, i, a, b, c, (kind, other), to)
    found = list(_registers(product, to))
    _keep(m, (("sums", to), *map(id, found)), found, product)  # which need not be undone
    m.spread(i, into, found, lanes)


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
    m.unfenced[:, m.warp[whole_warps(m, i, lanes)[:, 0]]] = False


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


_WGMMA = r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)"


@operation(rf"{_WGMMA}k(16|8)\.(f32)\.(bf16|f16|tf32)\.(\4)")
@operation(rf"{_WGMMA}k(16)\.(f16)\.(f16)\.(f16)")
@operation(rf"{_WGMMA}k(32)\.(f32|f16)\.(e4m3|e5m2)\.(e4m3|e5m2)")
@operation(rf"{_WGMMA}k(32)\.(s32)\.([su]8)\.([su]8)(?:\.satfinite)?")
def _multiply_later(
    m: Machine, i: Instruction, lanes: Array, n: str, k: str, form: str, kind: str, other: str
) -> None:
    """Start an asynchronous product; each warp of four computes 16 of its rows."""
    to, left, right, scale, *signs = i.operands
    whole = len(to) * 8 == int(n) * SUMS[form].itemsize
    known = int(k) * SIZES[kind] == DEPTH and whole and signs[:2] in ([1, 1], [])
    refuse(not known, i.text, "an unsupported form")
    warps = whole_warps(m, i, lanes)
    held, transposed = isinstance(left, tuple), [False, False, *map(bool, signs[2:])]
    names = np.array([m.fragments[name] for name in (*to, *(left if held else ()))])
    unfenced = m.unfenced[np.ix_(names, m.warp[warps[:, 0]])]
    refuse(unfenced, i.text, "not ordered by a wgmma.fence")
    add = m.read(i, scale, "pred", lanes)
    adds = add.reshape(warps.shape)[:, :1, None]
    adding = lanes if add.all() else lanes[add]
    undefined = any(m.undefined_bits(name, adding) is not None for name in to)
    refuse(undefined, i.text, "a register has undefined bits")
    if len(begins := lanes[~add]):  # what the registers held before does not count
        m.set_all(to, np.zeros((len(to), len(begins)), np.uint32), begins)
    rows, columns = m.shared.column(warps[:, 0]) % 4 * 16 + np.arange(16), np.arange(int(n))
    first, group = _warp_groups(m, i, right, warps)
    a, read = _factor(m, i, left, warps, rows, kind, transposed[-2])
    b, read_too = _factor(m, i, right, warps[first], columns[None], other, transposed[-1])

    def key(here: Array) -> tuple[Any, list[Array]]:
        held = [m.registers[name] for name in to]
        return ("sums", form, m.known(here).bits, *map(id, held)), held

    def accumulators(here: Array) -> Array:
        known, held = key(here)
        if known in m.tiles:
            return m.tiles[known][1]
        words = m.in_lanes(np.concatenate(held).reshape(len(held), -1), here)
        return _sums(words.reshape(len(held), -1, WARP), form)

    def move(over: Array) -> None:
        every, one, two = over.all(), a(over), _columns(b(slice(None))).swapaxes(1, 2)
        here = lanes if every else warps[over].ravel()
        if every and len(warps) == 4 * len(first):  # one product a warp group
            one = one.reshape(len(first), 64, -1)
        else:
            two = two[group[over]]
        sums = accumulators(here)
        sums = sums if add.all() else np.where(adds[over], sums, sums.dtype.type(0))
        sums = sums.reshape(*one.shape[:2], len(columns))
        product = _product(m, i, one, two, sums, (kind, other), form)
        product = product.reshape(-1, 16, len(columns))
        m.set_all(to, _registers(product, form), here)
        _keep(m, *key(here), product)

    places = np.concatenate([read, read_too[group]], 1) * CHUNK
    reads = m.shared.cells(places.ravel(), CHUNK).reshape(len(warps), -1)
    m.groups["wgmma"].begin(Work(i.text, warps[:, 0], move, reads=reads, sums=names))
