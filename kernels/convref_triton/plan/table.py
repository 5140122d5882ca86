"""The configurations of every kernel: what is measured, chosen from and checked statically."""

from __future__ import annotations

from .archs import fitted
from .tile import Tile as Tile

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

WGRAD_NARROW = (  # rows are channels of the small side; fewer than 64 change places with columns
    Tile(128, 128, 64, 8, 4, run=8),
    Tile(128, 64, 64, 8, 4, run=8),
    Tile(64, 128, 64, 4, 4, run=8),
    Tile(64, 64, 64, 4, 4, run=8),
    Tile(128, 256, 64, 8, 3, run=8),
    Tile(256, 128, 64, 8, 3, run=8),
    Tile(32, 128, 64, 4, 4, run=8),
    Tile(16, 128, 64, 4, 4, run=8),
    Tile(128, 32, 64, 4, 4, run=8),
    Tile(64, 32, 64, 4, 4, run=8),
    Tile(32, 32, 64, 4, 4, run=8),
    Tile(128, 64, 64, 8, 4, run=4),
    Tile(64, 64, 64, 4, 4, run=4),
    Tile(64, 32, 64, 4, 4, run=4),
    Tile(128, 64, 64, 8, 4),
    Tile(64, 64, 64, 8, 4),
    Tile(64, 32, 64, 4, 4),
    Tile(32, 32, 64, 4, 4),
)

# Depthwise: walkers, channels, rows of a walk; two stages read all rows of a turn at once.
LAST = tuple(
    Tile(bm, bn, walk, 4, stages, side=side)
    for bm, bn, stages, side in (
        *((16, 64, 2, 1), (32, 32, 2, 1), (64, 16, 2, 1), (16, 64, 1, 2)),  # 8 elements a thread
        *((8, 64, 2, 1), (16, 32, 2, 1), (8, 64, 1, 1), (8, 64, 1, 2), (16, 32, 1, 2)),
        *((4, 64, 2, 1), (4, 64, 1, 2), (8, 32, 1, 2), (4, 64, 1, 1), (4, 32, 1, 2), (4, 32, 1, 1)),
    )
    for walk in (56, 28, 14, 7)
)
FIRST = tuple(
    Tile(bm, bn, walk, 4, stages, side=side)
    for bm, bn, stages, side in (
        *((128, 1, 2, 1), (64, 2, 2, 1), (32, 4, 2, 1), (16, 8, 2, 1), (8, 16, 2, 1)),
        *((32, 4, 1, 2), (16, 8, 1, 2), (8, 16, 1, 2), (32, 4, 1, 1), (8, 16, 1, 1)),
    )
    for walk in (56, 28, 14, 7)
)
DIRECT_LAST = (  # pixels and channels
    *(Tile(16, 64, 1), Tile(32, 32, 1), Tile(64, 16, 1), Tile(8, 128, 1)),
    *(Tile(128, 8, 1), Tile(32, 4, 1), Tile(16, 8, 1), Tile(64, 2, 1), Tile(128, 1, 1)),
)
DIRECT_FIRST = (
    *(Tile(128, 1, 1), Tile(64, 2, 1), Tile(32, 4, 1), Tile(16, 8, 1)),
    *(Tile(256, 1, 1, 8), Tile(128, 8, 1)),
)
DIRECT_WGRAD_LAST = (  # walkers, pairs of channels, rows of a walk
    *(Tile(16, 32, 56), Tile(8, 64, 56), Tile(32, 16, 56), Tile(16, 64, 56), Tile(4, 64, 56)),
    *(Tile(8, 32, 56), Tile(16, 16, 56), Tile(16, 32, 14), Tile(128, 1, 56), Tile(32, 4, 56)),
)
DIRECT_WGRAD_FIRST = tuple(
    Tile(bm, bn, walk) for bm, bn in ((128, 1), (64, 2), (32, 4), (16, 8)) for walk in (56, 14)
)
UNFOLD = (Tile(256, 8, 1), Tile(128, 8, 1), Tile(256, 2, 1), Tile(128, 1, 1))  # pixels, channels
UNFOLD_LAST = (Tile(64, 32, 1), Tile(32, 64, 1), Tile(64, 16, 1), Tile(32, 16, 1), Tile(128, 4, 1))
FOLD = (Tile(256, 4, 1), Tile(128, 4, 1), Tile(256, 1, 1), Tile(128, 1, 1))
MOST_ROWS = 8  # of taps that a walk keeps sums of
MOST_SUMS = 80  # registers of a thread for sums of taps; as many hold what was read
MOST_DIRECT = 8  # channels a group on either side for which no product of matrices is filled
MOST_MULTIPLIER = 8  # results of one channel for which a product of matrices gains nothing
MOST_READ = 64  # values that a thread has on the way at a time
MOST_HELD = 190  # registers of a thread for filter, sums and what is read
PER_SM = 4  # programs that a multiprocessor runs at a time

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
# Parts are stored in float32, whose addresses larger tiles have no registers for.
SPLIT_NARROW = (
    Tile(128, 128, 64, 8, 4),
    Tile(128, 64, 64, 8, 4),
    Tile(64, 128, 64, 8, 4),
    Tile(64, 64, 64, 4, 4),
    Tile(64, 64, 32, 4, 4),
    Tile(64, 32, 32, 4, 4),
    Tile(32, 32, 32, 4, 3),
)
SPLIT_IEEE = (Tile(64, 32, 16, 8, 3), Tile(32, 32, 16, 4, 3))
SPLIT_TF32 = (
    Tile(128, 128, 32, 8, 4),
    Tile(128, 64, 32, 8, 4),
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
BOXES = (  # rows are channels, columns pixels
    Tile(128, 128, 64, 8, 4),
    Tile(128, 256, 64, 8, 3),
    Tile(64, 128, 64, 4, 4),
    Tile(128, 64, 64, 4, 4),
    Tile(64, 64, 64, 4, 4),
)
# Warp groups multiply what one warp loads, as far ahead as shared memory is large: rows are pixels
# of a forward product and channels of a filter's, columns channels.
GLUON = (
    Tile(128, 256, 64, 4, 4),
    Tile(256, 128, 64, 4, 4),
    Tile(128, 128, 64, 4, 4),
    Tile(128, 64, 64, 4, 8),
)
# Taps share blocks of x; stages are those that w has of every tap, at most.
HALO = (
    Tile(256, 128, 64, 4, 2),
    Tile(128, 256, 64, 4, 1),
    Tile(128, 128, 64, 4, 2),
    Tile(256, 64, 64, 4, 4),
    Tile(128, 64, 64, 4, 4),
)
HALO_WGRAD = (Tile(128, 64, 64, 4, 6), Tile(64, 128, 64, 4, 6))  # a group has 64 channels of each
# Edges (d, h, w) that boxes of pixels may have, by rank; the rest of a box is images. Each pair of
# a tile and edges is a binary of its own, so that there are few.
EDGES = {
    0: ((1, 1, 1),),
    1: ((1, 1, 128), (1, 1, 32), (1, 1, 8), (1, 1, 1)),
    2: ((1, 16, 16), (1, 8, 16), (1, 8, 8), (1, 4, 4), (1, 2, 2), (1, 1, 1)),
    3: ((4, 8, 8), (2, 8, 8), (4, 4, 4), (1, 8, 8), (2, 2, 2), (1, 1, 1)),
}
TOTAL = (  # pixels, or vectors of them, and channels of a block
    Tile(64, 64, 1, 4, 1),  # channels lie side by side
    Tile(512, 1, 1, 4, 1),  # pixels do
)
TILES: dict[tuple[str, str], tuple[Tile, ...]] = {
    ("gather", "f16"): NARROW,
    ("gather", "bf16"): NARROW,
    ("gather", "ieee"): IEEE,
    ("gather", "tf32"): TF32,
    ("gather", "tf32x3"): (Tile(128, 64, 32, 8, 4), *TF32[2:]),  # four warps would spill
    **{("tma", kind): BOXES for kind in ("f16", "bf16")},
    **{("gluon_fprop", kind): GLUON for kind in ("f16", "bf16")},
    **{("gluon_halo", kind): HALO for kind in ("f16", "bf16")},
    **{("gluon_halo_wgrad", kind): HALO_WGRAD for kind in ("f16", "bf16")},
    **{("gluon_wgrad", kind): GLUON for kind in ("f16", "bf16")},
    **{("dual", kind): DUAL_NARROW for kind in ("f16", "bf16")},
    ("dual", "ieee"): IEEE[1:],
    **{("dual", kind): TF32[2:] for kind in ("tf32", "tf32x3")},
    **{("flat", kind): FLAT_NARROW for kind in ("f16", "bf16")},
    ("flat", "ieee"): FLAT_IEEE,
    **{("flat", kind): FLAT_TF32 for kind in ("tf32", "tf32x3")},
    **{("wgrad last", kind): DIRECT_WGRAD_LAST for kind in ("f16", "bf16", "ieee")},
    **{("wgrad first", kind): DIRECT_WGRAD_FIRST for kind in ("f16", "bf16", "ieee")},
    **{("direct last", kind): DIRECT_LAST for kind in ("f16", "bf16", "ieee")},
    **{("direct first", kind): DIRECT_FIRST for kind in ("f16", "bf16", "ieee")},
    **{("depthwise last", kind): LAST for kind in ("f16", "bf16", "ieee")},
    **{("depthwise first", kind): FIRST for kind in ("f16", "bf16", "ieee")},
    **{("split", kind): SPLIT_NARROW for kind in ("f16", "bf16")},
    ("split", "ieee"): SPLIT_IEEE,
    ("split", "tf32"): SPLIT_TF32,
    ("split", "tf32x3"): SPLIT_TF32[1:],
    **{("unfold", kind): UNFOLD for kind in ("f16", "bf16", "ieee")},
    **{("unfold last", kind): UNFOLD_LAST for kind in ("f16", "bf16", "ieee")},
    **{("fold", kind): FOLD for kind in ("f16", "bf16", "ieee")},
    **{("bgrad", kind): TOTAL for kind in ("f16", "bf16", "ieee")},
    ("wgrad", "f16"): WGRAD_NARROW,
    ("wgrad", "bf16"): WGRAD_NARROW,
    ("wgrad", "ieee"): IEEE,
    ("wgrad", "tf32"): TF32,
    ("wgrad", "tf32x3"): TF32[1:],
}
# A thread holds an address for every vector that it reads: with short ones, tiles that would spill
# registers are left out.
_SHORT_NARROW = (Tile(64, 64, 32, 4, 4), Tile(64, 32, 32, 4, 4), Tile(32, 32, 32, 4, 3))
SHORT: dict[tuple[str, str], tuple[Tile, ...]] = {
    **{("gather", kind): _SHORT_NARROW for kind in ("f16", "bf16")},
    ("gather", "tf32"): (TF32[0], TF32[2]),
    ("gather", "tf32x3"): TF32[2:],
    **{("dual", kind): DUAL_NARROW[-1:] for kind in ("f16", "bf16")},
    ("dual", "ieee"): IEEE[-1:],
    ("dual", "tf32"): TF32[2:3],
    ("dual", "tf32x3"): (),
    **{
        ("flat", kind): tuple(tile for tile in FLAT_NARROW if tile.bn < 256)
        for kind in ("f16", "bf16")
    },
    ("flat", "ieee"): FLAT_IEEE[1:],
    ("flat", "tf32x3"): FLAT_TF32[1:],
    ("wgrad", "tf32"): (TF32[0], *TF32[2:]),
    ("wgrad", "tf32x3"): TF32[2:],
}
MOST_FAR = 128 * 64  # results of a tile whose parts are stored with 64-bit offsets beside them
TALLEST = {"gather": 128}  # rows of a tile by vectors of less than 16 bytes
REDUCE = Tile(8, 128, 1, 4, 1)  # splits and elements of a block


def tiles(kernel: str, dtype: str, math: str, arch: str, width: int = 16) -> tuple[Tile, ...]:
    """Return the rows for a kernel, best guess first where sizes are large.

    `width`: bytes of the vectors that the operands share.
    """
    kind = math if dtype == "f32" else dtype
    found = TILES[kernel, kind]
    if width < 8:
        found = SHORT.get((kernel, kind), found)
    if width < 16:
        found = tuple(tile for tile in found if tile.bm <= TALLEST.get(kernel, tile.bm))
    return fitted(found, kernel, kind, arch, width)


def held(tile: Tile) -> int:
    """Return how many elements of a tile of pixels by channels a thread has."""
    return tile.bm * tile.bn // (32 * tile.warps)


SMS = 132  # multiprocessors that the heuristic plans for; measured rows replace it
RATE = {
    (256, 64): 0.85,
    (128, 256): 1.0,
    (256, 128): 1.0,
    (128, 128): 0.95,
    (128, 64): 0.8,
    (64, 128): 0.8,
}
RATE |= {(64, 64): 0.65, (128, 32): 0.55, (64, 32): 0.45, (32, 32): 0.25}
RATE |= {(32, 128): 0.5, (16, 128): 0.3}


def choose(rows_of_table: tuple[Tile, ...], rows: int, columns: int, copies: int) -> Tile:
    """Return the tile with which `copies` products of (rows, columns) results take least time.

    The time is waves of tiles times the time of a tile, with the share of the peak that a tile of
    its size can reach, as an estimate. Ties go to the earlier row.
    """

    def cost(tile: Tile) -> float:
        count = -(-rows // tile.bm) * -(-columns // tile.bn) * copies
        return -(-count // SMS) * tile.bm * tile.bn / RATE[tile.bm, tile.bn]

    return min(rows_of_table, key=cost)


LEAST_STEPS = 8  # of a split: what filling the pipeline is worth
WORKSPACE = 2**26  # bytes, at most
START = 4  # steps that beginning and ending a tile takes as long as
# Products that a multiprocessor makes while the device moves a byte, and while a kernel starts.
PER_BYTE = {"f16": 0.7, "bf16": 0.7, "ieee": 0.06, "tf32": 0.35, "tf32x3": 0.12}
PER_LAUNCH = {"f16": 6e6, "bf16": 6e6, "ieee": 5e5, "tf32": 3e6, "tf32x3": 1e6}


def busy(tile: Tile, count: int, steps: int) -> float:
    """Return how long `count` tiles of so many steps take, in products of one multiprocessor."""
    area = tile.bm * tile.bn / RATE[tile.bm, tile.bn]
    return -(-count // SMS) * (steps + START) * area * tile.bk


def split(
    tile: Tile, peak: str, rows: int, columns: int, depth: int, copies: int
) -> tuple[int, float]:
    """Return into how many parts to cut `depth`, and how long all takes, in products.

    `peak` is a type of 16 bits, or what may be done to float32 products. A split has at least
    `LEAST_STEPS` steps, no part is empty, and the workspace keeps its limit. Not measured: the
    figures are the peaks of an H200.
    """
    tiles = -(-rows // tile.bm) * -(-columns // tile.bn) * copies
    steps = -(-depth // tile.bk)
    size = rows * columns * copies * 4

    def cost(splits: int) -> float:
        extra = PER_LAUNCH[peak] + 2 * splits * size * PER_BYTE[peak]
        return busy(tile, tiles * splits, -(-steps // splits)) + (extra if splits > 1 else 0)

    most = max(min(steps // LEAST_STEPS, WORKSPACE // max(size, 1)), 1)
    wanted = {min(max(waves * SMS // tiles, 1), most) for waves in (1, 2)} | {1}
    whole = {-(-steps // -(-steps // splits)) if steps else 1 for splits in wanted}
    best = min(sorted(whole), key=cost)
    return best, cost(best)


def blocks(tile: Tile, columns: int, rows: int) -> int:
    """Return into how many parts to cut a sum over `rows`: about four blocks a multiprocessor."""
    most = max(rows // (tile.bm * 4), 1)  # each has at least four steps
    return min(max(4 * SMS // -(-columns // tile.bn), 1), most)
