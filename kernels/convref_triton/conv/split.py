"""The product of `gather` with its reduction cut into parts, for results of few tiles.

parts[z, n, k, p] = the sum of `gather` over the z-th part of taps and channels

A small map with many channels has fewer tiles than a GPU has multiprocessors, and each has a long
sum. Parts of it go to a workspace in float32, which `reduce` adds in a fixed order, before the
epilogue and the one rounding. How many there are is a function of the call and the tile alone, so
that results repeat bit for bit.
"""

from __future__ import annotations

from ..common import reduce
from ..common.geometry import LIMIT
from ..plan import table
from ..plan.table import Tile
from . import gather
from .task import Task


def admits(task: Task) -> str | None:
    """Return None, or why the reduction stays whole."""
    if task.width < 8:
        return f"{task.channels} channels share no vector"
    whole = gather.choose(task)
    if count(task, whole) >= table.SMS:
        return "tiles fill the card"
    if not tiles(task):
        return "a short reduction"
    cheapest = min(cost(task, tile) for tile in tiles(task))
    if cheapest >= min(cost(task, tile, whole=True) for tile in gather.tiles(task)):
        return "parts would cost more than they save"
    return None


def tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles with which there is something to cut."""
    rows = table.tiles("split", task.dtype, task.math, task.arch)
    far = any(tensor.span >= LIMIT for pair in task.pairs for tensor in pair)
    most = table.MOST_FAR if far else max(tile.bm * tile.bn for tile in rows)
    return tuple(tile for tile in rows if tile.bm * tile.bn <= most and splits(task, tile) > 1)


def count(task: Task, tile: Tile) -> int:
    """Return how many tiles the result has."""
    return -(-task.rows // tile.bm) * -(-task.channels[1] // tile.bn) * task.copies


def splits(task: Task, tile: Tile) -> int:
    """Return into how many parts the reduction is cut on a tile."""
    return _split(task, tile)[0]


def cost(task: Task, tile: Tile, *, whole: bool = False) -> float:
    """Return how long a task takes, cut or whole, in products of a multiprocessor: estimated."""
    if whole:
        return table.busy(tile, count(task, tile), steps(task, tile))
    return _split(task, tile)[1]


def steps(task: Task, tile: Tile) -> int:
    """Return the steps of a tile whose sums are whole."""
    taps = gather.taps_met(task.geometry, task.scatters)
    return len(task.pairs) * taps * -(-task.channels[0] // tile.bk)


def _split(task: Task, tile: Tile) -> tuple[int, float]:
    peak = task.math if task.dtype == "f32" else task.dtype
    depth = steps(task, tile) * tile.bk
    return table.split(tile, peak, task.rows, task.channels[1], depth, task.copies)


def plan(task: Task, tile: Tile) -> None:
    """Add the launches that compute a task."""
    pairs, y = task.aligned_pairs(), task.result()
    stored, parts, builder = task.stored(y), splits(task, tile), task.builder
    target = builder.parts(stored, parts)
    made = gather.launch(task.geometry, pairs, target, task.scatters, tile, task.math, splits=parts)
    builder.steps += [made, reduce.launch(target.role, parts, stored, task.epilogue(stored))]
    task.finish(stored, y)
