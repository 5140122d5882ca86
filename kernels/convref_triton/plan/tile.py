"""A configuration of a kernel."""

from __future__ import annotations

from typing import NamedTuple


class Tile(NamedTuple):
    """A row of the table.

    Parameters
    ----------
    bm, bn, bk : int
        Rows, columns and depth of a tile.
    warps, stages : int
        Options of the compiler.
    band : int
        Rows of tiles that share columns while they are in the L2 cache.
    run : int
        Channels that have to lie side by side, as one vector.
    side : int
        Columns of pixels that one element of a row stands for.
    """

    bm: int
    bn: int
    bk: int
    warps: int = 4
    stages: int = 3
    band: int = 8
    run: int = 1
    side: int = 1

    def __str__(self) -> str:
        run = f" run{self.run}" if self.run > 1 else ""
        side = f" x{self.side}" if self.side > 1 else ""
        return f"{self.bm}x{self.bn}x{self.bk} w{self.warps} s{self.stages}{run}{side}"
