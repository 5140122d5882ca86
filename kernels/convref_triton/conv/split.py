"""The product of `gather` with its reduction cut into parts, for results of few tiles.

parts[z, n, k, p] = the sum of `gather` over the z-th part of taps and channels

A small map with many channels has fewer tiles than a GPU has multiprocessors, and each has a long
sum. Its parts go to a workspace in float32, which `reduce` adds in a fixed order, before the
epilogue and the one rounding. Their number depends on the call and the tile alone, so that results
repeat bit for bit.
"""

from ..common.geometry import LIMIT
from ..common.reduce import reduce, reduce_launch
from ..plan import archs, cost, lines
from ..plan.cost import Work
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile, TileTable, tiles
from . import gather
from .gather import gather_launch, gather_loaded, gather_steps, gather_tile_count

# Parts are stored in float32, whose addresses larger tiles have no registers for.
TILES = TileTable(
    {
        "f16 bf16": tiles(
            "128x128x64 w8 s4, 128x64x64 w8 s4, 64x128x64 w8 s4, 64x64x64 w4 s4, 64x64x32 w4 s4, "
            "64x32x32 w4 s4, 32x32x32 w4 s3"
        ),
        "ieee": (Tile(64, 32, 16, 8, 3), Tile(32, 32, 16, 4, 3)),
        "tf32": tiles("128x128x32 w8 s4, 128x64x32 w8 s4, 64x64x32 w4 s4, 64x32x32 w4 s3"),
        "tf32x3": tiles("128x64x32 w8 s4, 64x64x32 w4 s4, 64x32x32 w4 s3"),
    },
    blocks=1,
)
MOST_FAR = 128 * 64  # results of a tile whose parts need 64-bit offsets


def split_refusal(task: Task) -> str | None:
    if task.width < 8:
        return f"{task.channels} channels share no vector"
    whole = gather.SPEC.best(task)
    if gather_tile_count(task, whole) >= archs.SMS:
        return "tiles fill the card"
    if not split_tiles(task):
        return "a short reduction"
    if min(SPEC.us(task, tile) for tile in split_tiles(task)) >= gather.SPEC.us(task, whole):
        return "parts would cost more than they save"
    return None


def split_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles on which the reduction can be cut."""
    far = any(tensor.span >= LIMIT for pair in task.pairs for tensor in pair)
    return tuple(
        tile
        for tile in TILES.of(task)
        if (not far or tile.bm * tile.bn <= MOST_FAR) and split_parts(task, tile)[0] > 1
    )


def split_parts(task: Task, tile: Tile) -> tuple[int, Work]:
    count, steps = gather_tile_count(task, tile), gather_steps(task, tile)
    options = {"reached": 0.7, "per_vector": 16, "loaded": gather_loaded(task, tile)}
    return cost.cut(task, cost.block_work(task, tile, count, steps, **options))


def add_split(task: Task, tile: Tile) -> None:
    pairs, y = task.aligned_pairs(), task.result()
    stored, (parts, _), builder = task.stored(y), split_parts(task, tile), task.builder
    target = builder.parts(stored, parts)
    geometry, scatter = task.geometry, task.scatters
    made = gather_launch(geometry, pairs, target, scatter, tile, task.math, splits=parts)
    builder.steps += [made, reduce_launch(target.role, parts, stored, task.epilogue(stored))]
    task.finish(stored, y)


SPEC = KernelSpec(
    "split",
    serves=("gather", "scatter"),
    refusal=split_refusal,
    tiles=split_tiles,
    add=add_split,
    kernels=(gather.gather, reduce),
    work=lambda task, tile: split_parts(task, tile)[1],
    lines=lines.FPROP | lines.DGRAD | lines.SPLIT,
)
