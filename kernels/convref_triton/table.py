"""The configurations of every kernel: what is measured, chosen from and checked statically."""

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
    """

    bm: int
    bn: int
    bk: int
    warps: int = 4
    stages: int = 3
    band: int = 8
    run: int = 1

    def __str__(self) -> str:
        run = f" run{self.run}" if self.run > 1 else ""
        return f"{self.bm}x{self.bn}x{self.bk} w{self.warps} s{self.stages}{run}"


NARROW = (  # 16-bit operands
    Tile(128, 128, 64, 8, 4),
    Tile(128, 64, 64, 4, 4),
    Tile(64, 128, 64, 4, 4),
    Tile(64, 64, 64, 4, 4),
    Tile(128, 256, 64, 8, 3),
    Tile(256, 128, 64, 8, 3),
    Tile(128, 32, 64, 4, 4),
    Tile(64, 32, 32, 4, 4),
    Tile(64, 64, 32, 4, 4),
    Tile(32, 32, 32, 4, 3),
)
IEEE = (  # float32 on the ordinary cores
    Tile(128, 64, 16, 8, 3),
    Tile(64, 64, 16, 4, 3),
    Tile(64, 32, 16, 4, 3),
    Tile(32, 32, 16, 4, 3),
)
TF32 = (
    Tile(128, 128, 32, 8, 4),
    Tile(128, 64, 32, 4, 4),
    Tile(64, 64, 32, 4, 4),
    Tile(64, 32, 32, 4, 3),
)

FLAT_NARROW = (
    Tile(128, 128, 64, 8, 4, run=8),
    Tile(128, 64, 64, 4, 4, run=8),
    Tile(64, 64, 64, 4, 4, run=8),
    Tile(128, 256, 64, 8, 3, run=8),
    Tile(128, 128, 32, 8, 4, run=4),
    Tile(128, 64, 64, 8, 4, run=4),
    Tile(64, 64, 64, 4, 4, run=4),
    Tile(128, 64, 32, 8, 4),
    Tile(64, 64, 32, 4, 4),
    Tile(64, 32, 32, 4, 4),
)
FLAT_IEEE = tuple(tile._replace(run=run) for run in (4, 1) for tile in IEEE)
FLAT_TF32 = (
    Tile(128, 64, 32, 4, 4, run=4),
    Tile(64, 64, 32, 4, 4, run=4),
    Tile(64, 64, 32, 4, 4),
    Tile(64, 32, 32, 4, 3),
)
DUAL_NARROW = (  # two sums
    Tile(128, 128, 64, 8, 3),
    Tile(128, 64, 64, 8, 3),
    Tile(64, 64, 64, 4, 3),
    Tile(128, 128, 32, 8, 4),
    Tile(64, 32, 32, 4, 3),
)
# How much longer an SM issues a tile's instructions than its tensor cores compute, by (peak, run).
SLOWER = {("f16", 1): 8.4, ("bf16", 1): 8.4, ("f16", 4): 1.2, ("bf16", 4): 1.2}
SLOWER |= {("ieee", 1): 1.3, ("tf32", 1): 4.0, ("tf32x3", 1): 2.5}

TILES: dict[tuple[str, str], tuple[Tile, ...]] = {
    ("gather", "f16"): NARROW,
    ("gather", "bf16"): NARROW,
    ("gather", "ieee"): IEEE,
    ("gather", "tf32"): TF32,
    ("gather", "tf32x3"): TF32[1:],
    **{("dual", kind): DUAL_NARROW for kind in ("f16", "bf16")},
    ("dual", "ieee"): IEEE[1:],
    **{("dual", kind): TF32[2:] for kind in ("tf32", "tf32x3")},
    **{("flat", kind): FLAT_NARROW for kind in ("f16", "bf16")},
    ("flat", "ieee"): FLAT_IEEE,
    **{("flat", kind): FLAT_TF32 for kind in ("tf32", "tf32x3")},
}


def tiles(kernel: str, dtype: str, math: str) -> tuple[Tile, ...]:
    """Return the rows for a kernel, best guess first where sizes are large."""
    return TILES[kernel, math if dtype == "f32" else dtype]


SMS = 132  # multiprocessors that the heuristic plans for; measured rows replace it
RATE = {(128, 256): 1.0, (256, 128): 1.0, (128, 128): 0.95, (128, 64): 0.8, (64, 128): 0.8}
RATE |= {(64, 64): 0.65, (128, 32): 0.55, (64, 32): 0.45, (32, 32): 0.25}


def choose(rows_of_table: tuple[Tile, ...], rows: int, columns: int, copies: int) -> Tile:
    """Return the tile with which `copies` products of (rows, columns) results take least time.

    The time is waves of tiles times the time of a tile, with the share of the peak that a tile of
    its size can reach, as an estimate. Ties go to the earlier row.
    """

    def cost(tile: Tile) -> float:
        count = -(-rows // tile.bm) * -(-columns // tile.bn) * copies
        return -(-count // SMS) * tile.bm * tile.bn / RATE[tile.bm, tile.bn]

    return min(rows_of_table, key=cost)
