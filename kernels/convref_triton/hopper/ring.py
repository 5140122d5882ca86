"""The shared-memory ring of warp-specialized kernels: one warp copies, two warp groups multiply.

Block `count` goes to stage count % STAGES. A stage has two mbarriers: `full` completes when all
bytes of the block have arrived, `empty` when its consumers have finished reading it. A wait names
the parity of the phase that has to be complete.

A tile whose accumulator is too large for one warp group is shared (cooperative): each group
computes half of its rows, and a stage has two consumers. Otherwise the groups alternate between
the tiles of a program (ping-pong): one stores its tile while the other multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ..common.index import tile_of
from ..conv.tma import operand_refusal
from ..plan.task import Task
from ..plan.tile import Tile
from .arguments import Barriers, Config

GROUPS = 2  # warp groups that multiply, the consumers
WARPS = 4  # of a warp group
MAX_ACCUMULATOR = 128 * 128  # elements per warp group: 128 registers of a thread
REGISTERS = gl.constexpr((232, 40))  # of a thread of a consumer, of the producer warp
EPILOGUE_N = gl.constexpr(64)  # columns of the accumulator that a group stores at a time


def refusal(task: Task) -> str | None:
    """Return why no warp-specialized kernel computes a task, None if its shape decides."""
    if task.builder.call.specs[0].device != "cuda":
        return "the interpreter has no Gluon"
    if not task.arch.startswith("sm_9"):
        return f"{task.arch} has no wgmma"
    return operand_refusal(task)


def readers(rows: int, columns: int) -> int:
    return 1 if rows * columns <= MAX_ACCUMULATOR else GROUPS


def blocking(tile: Tile) -> dict[str, int]:
    """Return the fields of a Config that depend on the tile alone."""
    sizes = {name: getattr(tile, name) for name in ("bm", "bn", "bk", "band", "stages")}
    share = readers(tile.bm, tile.bn)
    return sizes | {"readers": share, "turns": GROUPS // share}


def configured(constants: Mapping[str, Any], tile: Tile, **more: Any) -> dict[str, Any]:
    """Return the constants of a launch, those in capitals as the fields of its Config."""
    fields = {name.lower(): value for name, value in constants.items() if name.isupper()}
    missing = {name: None for name in constants if not name.isupper()}
    return missing | {"CONFIG": Config(**blocking(tile) | fields | more)}


@triton.jit
def stage_of(count, STAGES: gl.constexpr):
    return (count.to(gl.uint32) % STAGES).to(gl.int32)


@triton.jit
def full_phase(count, STAGES: gl.constexpr):
    """Return the parity of the `full` phase that ends when a block has arrived."""
    return (count.to(gl.uint32) // STAGES % 2).to(gl.int32)


@triton.jit
def empty_phase(count, STAGES: gl.constexpr):
    """Return the parity of the `empty` phase that a block waits for before it is copied.

    A new mbarrier counts as having completed the odd phase, so that the first blocks do not wait.
    """
    return full_phase(count, STAGES) ^ 1


@triton.jit
def order_phase(turn, CONSUMER: gl.constexpr):
    """Return the parity of the `order` phase that a group waits for; the first turn does not."""
    return (turn // 2 + CONSUMER + 1) % 2


@gluon.jit
def allocate_barriers(STAGES: gl.constexpr, READERS: gl.constexpr):
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES + 1, 1], mbarrier.MBarrierLayout())
    order = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    for stage in gl.static_range(STAGES + 1):
        mbarrier.init(empty.index(stage), count=READERS)
    for consumer in gl.static_range(2):
        mbarrier.init(order.index(consumer), count=1)
    fence_async_shared()
    return Barriers(full, empty, order)


@gluon.jit
def invalidate(barriers, STAGES: gl.constexpr):
    """Invalidate the barriers, after all warps have left their partitions."""
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(barriers.full.index(stage))
    for stage in gl.static_range(STAGES + 1):
        mbarrier.invalidate(barriers.empty.index(stage))
    for consumer in gl.static_range(2):
        mbarrier.invalidate(barriers.order.index(consumer))


@gluon.jit
def acquire(barriers, count, BYTES: gl.constexpr, STAGES: gl.constexpr):
    """Wait until the stage of a block is empty; return the stage and the barrier of its bytes."""
    stage = stage_of(count, STAGES)
    mbarrier.wait(barriers.empty.index(stage), empty_phase(count, STAGES))
    full = barriers.full.index(stage)
    mbarrier.expect(full, BYTES)
    return stage, full


@gluon.jit
def consumer(multiply, args, CONFIG: gl.constexpr, CONSUMER: gl.constexpr):
    """Call `multiply`; a partition itself cannot be an argument."""
    multiply(args, CONFIG, CONSUMER)


@gluon.jit
def producer(load, args, CONFIG: gl.constexpr):
    load(args, CONFIG)


@gluon.jit
def run_partitions(multiply, load, args, CONFIG: gl.constexpr):
    """Run `multiply` on two warp groups and `load` on one more warp."""
    gl.warp_specialize(
        [
            (consumer, (multiply, args, CONFIG, gl.constexpr(0))),
            (consumer, (multiply, args, CONFIG, gl.constexpr(1))),
            (producer, (load, args, CONFIG)),
        ],
        [4, 1],
        REGISTERS,
    )


@gluon.jit
def locate(tile, rows, columns, BAND: gl.constexpr):
    group = tile // (rows * columns)
    row, column = tile_of(tile - group * (rows * columns), rows, columns, BAND)
    return group, row, column


@gluon.jit
def filters_at(matrix, group, column, CONFIG: gl.constexpr):
    """Return the first row and column of the filters of a tile's first tap."""
    row, first = group * matrix.group_row, matrix.first + group * matrix.group_column
    if CONFIG.transposed:
        first += column * CONFIG.bn
    else:
        row += column * CONFIG.bn
    return row, first


@gluon.jit
def as_matrix(block, ROWS: gl.constexpr, DEPTH: gl.constexpr, MN_MAJOR: gl.constexpr):
    """Return a block as (ROWS, DEPTH); MN_MAJOR blocks are stored with rows contiguous."""
    if MN_MAJOR:
        return block.reshape((DEPTH, ROWS)).permute((1, 0))
    else:
        return block.reshape((ROWS, DEPTH))


@gluon.jit
def accumulate(
    left, right, barriers, turn, block, steps,
    CONFIG: gl.constexpr, CONSUMER: gl.constexpr, MN_MAJOR: gl.constexpr,
):  # fmt: skip
    """Return a group's rows of left right^T summed over `steps` blocks from `block` on.

    One wgmma stays in flight, so a stage is released one step after it was read. Groups that
    alternate start only when the other one has read all its blocks: a parity tells apart only
    consecutive phases of a barrier, so a group must not wait for a later one.
    """
    STAGES: gl.constexpr = CONFIG.stages
    BN: gl.constexpr = CONFIG.bn
    ROWS: gl.constexpr = CONFIG.bm // CONFIG.readers
    FIRST: gl.constexpr = CONSUMER % CONFIG.readers * ROWS
    RIGHT_MN_MAJOR: gl.constexpr = MN_MAJOR or CONFIG.transposed
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    if CONFIG.readers == 1:
        mbarrier.wait(barriers.order.index(CONSUMER), order_phase(turn, CONSUMER))
    acc = gl.zeros((ROWS, BN), gl.float32, LAYOUT)
    release = barriers.empty.index(STAGES)  # the first step has no stage to release
    end = block + steps
    while block != end:
        stage = stage_of(block, STAGES)
        empty = barriers.empty.index(stage)  # beside `full`, with which it shares its address
        mbarrier.wait(barriers.full.index(stage), full_phase(block, STAGES))
        b = as_matrix(right.index(stage), BN, CONFIG.bk, RIGHT_MN_MAJOR).permute((1, 0))
        a = as_matrix(left.index(stage), CONFIG.bm, CONFIG.bk, MN_MAJOR).slice(FIRST, ROWS)
        acc = warpgroup_mma(a, b, acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=[acc])
        mbarrier.arrive(release)
        release = empty
        block += 1
    if CONFIG.readers == 1:
        mbarrier.arrive(barriers.order.index(1 - CONSUMER))
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(release)
    return acc


@gluon.jit
def split_columns(acc, COUNT: gl.constexpr):
    """Return the columns of a tile in COUNT parts, without moving elements between threads."""
    if COUNT == 1:
        return (acc,)
    else:
        halves = acc.reshape((acc.shape[0], 2, acc.shape[1] // 2)).permute((0, 2, 1)).split()
        return split_columns(halves[0], COUNT // 2) + split_columns(halves[1], COUNT // 2)
