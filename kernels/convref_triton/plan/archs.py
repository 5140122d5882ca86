"""What an architecture has room for: the rows of the table that spill or overflow are changed."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..common.geometry import ITEMSIZE
from .tile import Tile

# Bytes of shared memory that a block may have, by how an architecture's name begins; first match.
SHARED = (
    ("sm_8[07]", 163 * 1024),
    ("sm_(8[69]|12)", 99 * 1024),
    ("sm_(9|10)", 227 * 1024),
    ("gfx950", 160 * 1024),
    ("gfx", 64 * 1024),
)
# Where products read registers, the pipeline keeps one stage less in shared memory.
IN_REGISTERS = ("gfx", "sm_8", "sm_12")
PRODUCTS = {"gather": 1, "flat": 1, "split": 1, "wgrad": 1, "tma": 1, "dual": 2}  # of a step


def shared(arch: str) -> int:
    """Return the bytes of shared memory that a block may have; 48 KiB where nothing is known."""
    return next((size for name, size in SHARED if re.match(name, arch)), 48 * 1024)


class Change(NamedTuple):
    """A row that spills registers on an architecture, and what is taken there instead.

    Parameters
    ----------
    arch : str
        How the architecture's name begins.
    kernel : str
    kinds : tuple of str
        Types of 16 bits, and what may be done to float32 products.
    row : Tile
    below : int
        Bytes: it spills where vectors are shorter.
    instead : Tile or None
        The same tile on more warps, or no row.
    """

    arch: str
    kernel: str
    kinds: tuple[str, ...]
    row: Tile
    below: int
    instead: Tile | None


_16_BIT, _ALWAYS = ("f16", "bf16"), 32
# mma.sync takes both operands from registers, and wgmma neither.
CHANGES = (
    Change("sm_8", "gather", _16_BIT, Tile(256, 128, 64, 8, 3), _ALWAYS, None),
    Change("sm_8", "gather", _16_BIT, Tile(128, 256, 64, 8, 3), 16, None),
    Change("sm_8", "gather", _16_BIT, Tile(64, 32, 32, 4, 4), 8, Tile(64, 32, 32, 8, 4)),
    Change("sm_8", "dual", _16_BIT, Tile(128, 128, 64, 8, 3), _ALWAYS, None),
    Change("sm_8", "dual", _16_BIT, Tile(128, 64, 64, 8, 3), 16, None),
    Change("sm_8", "dual", _16_BIT, Tile(64, 64, 64, 4, 3), 16, Tile(64, 64, 64, 8, 3)),
    Change("sm_8", "flat", _16_BIT, Tile(128, 128, 64, 8, 4, run=8), 8, None),
    Change(
        *("sm_8", "flat", _16_BIT, Tile(128, 64, 64, 4, 4, run=8), 8),
        Tile(128, 64, 64, 8, 4, run=8),
    ),
    Change(
        *("sm_8", "flat", ("ieee",), Tile(64, 64, 16, 4, 3, run=4), 8),
        Tile(64, 64, 16, 8, 3, run=4),
    ),
    Change("sm_8", "wgrad", ("ieee",), Tile(128, 64, 16, 8, 3), _ALWAYS, None),
    Change("sm_8", "gather", ("tf32",), Tile(128, 128, 32, 8, 4), 8, None),
    Change(
        *("sm_8", "gather", ("tf32", "tf32x3"), Tile(64, 32, 32, 4, 3), _ALWAYS),
        Tile(64, 32, 32, 8, 3),
    ),
    Change(
        *("sm_8", "flat", ("tf32", "tf32x3"), Tile(128, 64, 32, 4, 4, run=4), _ALWAYS),
        Tile(128, 64, 32, 8, 4, run=4),
    ),
    Change("sm_8", "dual", ("tf32",), Tile(64, 64, 32, 4, 4), 8, Tile(64, 64, 32, 8, 4)),
    Change("sm_8", "dual", ("tf32x3",), Tile(64, 64, 32, 4, 4), _ALWAYS, None),
    *(
        Change("sm_8", kernel, ("tf32x3",), Tile(bm, 64, 32, 4, 4), _ALWAYS, Tile(bm, 64, 32, 8, 4))
        for kernel, bm in (("gather", 64), ("wgrad", 64), ("wgrad", 128))
    ),
    Change("sm_8", "bgrad", _16_BIT, Tile(64, 64, 1, 4, 1), _ALWAYS, Tile(64, 64, 1, 8, 1)),
    Change("sm_8", "unfold", _16_BIT, Tile(256, 2, 1), _ALWAYS, Tile(256, 2, 1, 8)),
    Change("gfx", "wgrad", _16_BIT, Tile(128, 256, 64, 8, 3, run=8), 8, None),
    Change("gfx", "wgrad", _16_BIT, Tile(256, 128, 64, 8, 3, run=8), 8, None),
)


def fitted(
    rows: tuple[Tile, ...], kernel: str, kind: str, arch: str, width: int
) -> tuple[Tile, ...]:
    """Return the rows that an architecture has registers for, each with the stages it can hold.

    Parameters
    ----------
    rows : tuple of Tile
    kernel : str
    kind : str
        A type of 16 bits, or what may be done to float32 products.
    arch : str
    width : int
        Bytes of the vectors that the operands share.
    """
    changed = {
        change.row: change.instead
        for change in CHANGES
        if arch.startswith(change.arch) and change.kernel == kernel
        if kind in change.kinds and width < change.below
    }
    kept = (changed.get(tile, tile) for tile in rows)
    staged = (_staged(row, kernel, kind, arch) for row in kept if row is not None)
    return tuple(row for row in staged if row is not None)


def _staged(tile: Tile, kernel: str, kind: str, arch: str) -> Tile | None:
    """Return a row with no more stages than fit, None if none do."""
    if kernel not in PRODUCTS:
        return tile
    step = (tile.bm + tile.bn) * tile.bk * ITEMSIZE.get(kind, 4) * PRODUCTS[kernel]
    held = shared(arch) // step
    most = held + arch.startswith(IN_REGISTERS)
    return tile._replace(stages=min(tile.stages, most)) if held else None
