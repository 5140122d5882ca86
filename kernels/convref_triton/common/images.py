"""Shared code of kernels that sweep images: tiles, memory layouts, arguments from the host.

A tile is pixels by channels of a result. These kernels are bound by memory, so a tile is as
small as whole vectors allow, which gives enough tiles to fill a GPU.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod

import triton
import triton.language as tl

from ..plan.archs import PER_SM, SMS
from ..plan.builder import Builder, channels_last, dense, is_channels_last, vector
from ..plan.tile import Tile
from .geometry import ITEMSIZE, LIMIT, Tensor, Three
from .index import pixel
from .windows import strides, unit

LAST = (  # channels are contiguous: a vector or two of 16 bytes a thread
    *(Tile(16, 64, 1, 4, 1), Tile(32, 32, 1, 4, 1), Tile(8, 128, 1, 4, 1)),
    *(Tile(64, 16, 1, 4, 1), Tile(128, 8, 1, 4, 1), Tile(8, 64, 1, 4, 1), Tile(16, 32, 1, 4, 1)),
)
FIRST = (  # pixels are contiguous
    *(Tile(256, 1, 1, 4, 1), Tile(128, 4, 1, 4, 1), Tile(512, 1, 1, 4, 1), Tile(128, 1, 1, 4, 1)),
)
UNROLLED = 27  # taps that are unrolled: of 3x3x3; more would not fit the registers


@triton.jit
def lanes(M, own, magic, C, RANK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return the channels and pixels (n, o, p, q) of a tile, its first image, and two masks.

    Images count from the tile's first one, from where offsets have 32 bits.
    """
    columns = tl.cdiv(C, BN)
    start = tl.program_id(0) // columns * BM
    c = tl.program_id(0) % columns * BN + tl.arange(0, BN)  # (BN,)
    rows = start + tl.arange(0, BM)  # (BM,)
    top, _, _, _ = pixel(
        start, own[0], own[1], own[2],
        magic[0], magic[1], magic[2], magic[3], magic[4], magic[5], RANK,
    )  # fmt: skip
    n, o, p, q = pixel(
        rows, own[0], own[1], own[2],
        magic[0], magic[1], magic[2], magic[3], magic[4], magic[5], RANK,
    )  # fmt: skip
    return c, n - top, (o, p, q), top.to(tl.int64), rows < M, (c < C)[None, :]


@triton.jit
def in_elements(n, d, h, w, c, IS_UNIT: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr):
    """Return the strides (n, d, h, w, c) in elements."""
    n, d, h, w = strides(n, d, h, w, VEC, WIDE)
    return n, d, h, w, unit(c, IS_UNIT, 1, WIDE)


@triton.jit
def offsets(c, n, place, steps):
    """Return the offsets (BM, BN) of a tile from its first image."""
    return (c * steps[4])[None, :] + (
        n * steps[0] + place[0] * steps[1] + place[1] * steps[2] + place[2] * steps[3]
    )[:, None]


@triton.jit
def tap_at(tap, R, S):
    return tap // (R * S), tap // S % R, tap % S


def tiles(result: Tensor) -> tuple[Tile, ...]:
    channels, rows = result.shape[1], prod(result.shape) // max(result.shape[1], 1)
    offered = wide_enough(LAST, result.dtype) if is_channels_last(result) else FIRST
    return ranked(offered, channels, lambda t: -(-rows // t.bm) * -(-channels // t.bn))


def wide_enough(rows: Iterable[Tile], dtype: str) -> tuple[Tile, ...]:
    """Return the tiles with at least 16 bytes per thread and 32 bytes per row."""
    size = ITEMSIZE[dtype]
    return tuple(tile for tile in rows if tile.per_thread * size >= 16 and tile.bn * size >= 32)


def ranked(
    offered: Sequence[Tile], channels: int, count: Callable[[Tile], int], enough: int = SMS * PER_SM
) -> tuple[Tile, ...]:
    """Return the tiles that are not wider than `channels` requires, the preferred one first.

    Tiles that give `enough` programs come first, the one with the fewest elements in all of its
    `count` tiles leading; then the others, the one that gives the most programs leading.
    """
    narrowest = min(offered, key=lambda tile: tile.bn)
    fitting = [tile for tile in offered if tile.bn < 2 * channels] or [narrowest]

    def rank(tile: Tile) -> tuple[bool, int]:
        few = count(tile) < enough
        return few, -count(tile) if few else count(tile) * tile.bm * tile.bn

    return tuple(sorted(fitting, key=rank))


def order_like(operand: Tensor) -> tuple[int, ...]:
    rank = len(operand.shape) - 2
    return channels_last(rank) if is_channels_last(operand) else tuple(range(2 + rank))


def result(builder: Builder, role: str, like: Tensor) -> Tensor:
    call = builder.call
    return builder.new(role, call.problem.shape(role), order_like(like), call.dtype_of(role))


def planned_result(builder: Builder, role: str, like: Tensor) -> Tensor:
    shape = builder.call.problem.shape(role)
    return Tensor(role, shape, dense(shape, order_like(like)), builder.call.dtype)


def three(values: Iterable[int], missing: int = 1) -> Three:
    """Return values along (d, h, w), with `missing` for axes that are not there."""
    given = tuple(values)
    d, h, w = (missing,) * (3 - len(given)) + given
    return d, h, w


def moves(tensor: Tensor | None, dtype: str) -> tuple[int, tuple[int, ...]]:
    """Return (vector, strides): of (n, d, h, w) counted in vectors, of c in elements."""
    if tensor is None:
        return 1, (0,) * 5
    n, c, *spatial = tensor.steps
    steps = (n, *spatial)
    vec = vector(dtype, *steps)
    return vec, (*(step // vec for step in steps), c)


def is_wide(
    tensors: Sequence[Tensor | None], rows: int, pixels: int, before: Three = (0, 0, 0)
) -> bool:
    """Return whether offsets of a tile of `rows` pixels need 64 bits from its first image on.

    Windows begin at most `before` pixels in front of an image; their taps count from there.
    """
    far = rows // max(pixels, 1) + 1
    known = [tensor for tensor in tensors if tensor is not None]
    steps = (zip((far, *before), (t.steps[0], *t.steps[2:])) for t in known)
    spans = (sum(n * abs(step) for n, step in each) for each in steps)
    return max(t.image_span + span for t, span in zip(known, spans)) >= LIMIT
