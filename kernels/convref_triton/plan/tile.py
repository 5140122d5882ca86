"""The configurations of a kernel: tiles, and which of them an architecture has room for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..common.geometry import ITEMSIZE
from . import archs

if TYPE_CHECKING:
    from .task import Task

WARP = 32  # threads


class Tile(NamedTuple):
    # Rows, columns and depth of a tile.
    bm: int
    bn: int
    bk: int
    # Compiler options.
    warps: int = 4
    stages: int = 3
    band: int = 8  # rows of tiles that share columns while these are in the L2 cache
    run: int = 1  # channels that have to be contiguous, as one vector
    side: int = 1  # columns of pixels per element of a row

    @property
    def per_thread(self) -> int:
        return self.bm * self.bn // (WARP * self.warps)

    @property
    def constants(self) -> dict[str, int]:
        return {"BM": self.bm, "BN": self.bn, "BK": self.bk, "BAND": self.band}

    def __str__(self) -> str:
        run = f" run{self.run}" if self.run > 1 else ""
        side = f" x{self.side}" if self.side > 1 else ""
        return f"{self.bm}x{self.bn}x{self.bk} w{self.warps} s{self.stages}{run}{side}"


def tiles(text: str) -> tuple[Tile, ...]:
    """Return the tiles that a text lists as `str` writes them.

    >>> tiles("128x64x32 w4 s4 run8, 64x64x32 w4 s3") == (
    ...     Tile(128, 64, 32, 4, 4, run=8), Tile(64, 64, 32, 4, 3))
    True
    """
    found = []
    for size, *words in map(str.split, text.split(",")):
        fields = {word.rstrip("0123456789"): int(word.lstrip("wsrun")) for word in words}
        bm, bn, bk = map(int, size.split("x"))
        found.append(Tile(bm, bn, bk, fields["w"], fields["s"], run=fields.get("run", 1)))
    return tuple(found)


class Change(NamedTuple):
    """A tile that spills registers on an architecture, and its replacement there."""

    arch: str  # how the architecture's name begins
    numbers: str  # as the keys of `TileTable.rows`
    tile: Tile
    below: int = 32  # it spills where vectors are shorter than this many bytes; 32 for always
    instead: Tile | None = None  # the same tile on more warps; None drops it


@dataclass(frozen=True)
class TileTable:
    """The tiles of a kernel, the preferred one for large sizes first."""

    # Each key lists, separated by spaces, the types of products: "f16", "bf16", or the math of
    # float32: "ieee", "tf32", "tf32x3". "*" is everything else.
    rows: Mapping[str, tuple[Tile, ...]]
    # Replaces `rows` where operands share vectors of less than 8 bytes: a thread holds an address
    # per vector, so that larger tiles spill registers.
    short: Mapping[str, tuple[Tile, ...]] | None = None
    tallest: int = 2**31  # most rows of a tile where vectors are shorter than 16 bytes
    blocks: int = 0  # pairs of operand blocks that each pipeline stage keeps in shared memory
    changes: tuple[Change, ...] = ()

    def of(self, task: Task, width: int = 16) -> tuple[Tile, ...]:
        """Return the tiles for a task whose operands share vectors of `width` bytes."""
        return self.fitting(task.numbers, task.arch, width)

    def fitting(self, numbers: str, arch: str, width: int = 16) -> tuple[Tile, ...]:
        """Return the tiles that an architecture has room for, with the stages that fit."""
        rows = _of(self.rows, numbers, ())
        if width < 8:
            rows = _of(self.short or {}, numbers, rows)
        if width < 16:
            rows = tuple(tile for tile in rows if tile.bm <= self.tallest)
        changed = {
            change.tile: change.instead
            for change in self.changes
            if arch.startswith(change.arch) and width < change.below
            if numbers in change.numbers.split()
        }
        kept = (changed.get(tile, tile) for tile in rows)
        staged = (self._staged(tile, numbers, arch) for tile in kept if tile is not None)
        return tuple(tile for tile in staged if tile is not None)

    def _staged(self, tile: Tile, numbers: str, arch: str) -> Tile | None:
        """Return a tile with no more stages than fit into shared memory, None if none do."""
        if not self.blocks:
            return tile
        stage = (tile.bm + tile.bn) * tile.bk * ITEMSIZE.get(numbers, 4) * self.blocks
        held = archs.shared(arch) // stage
        most = held + arch.startswith(archs.IN_REGISTERS)
        return tile._replace(stages=min(tile.stages, most)) if held else None


def _of(
    rows: Mapping[str, tuple[Tile, ...]], numbers: str, default: tuple[Tile, ...]
) -> tuple[Tile, ...]:
    found = (tiles for names, tiles in rows.items() if numbers in names.split() or names == "*")
    return next(found, default)
