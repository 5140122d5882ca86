"""A ring of blocks in shared memory: one warp fills it, two warp groups multiply what lies there.

Block `count` lies in slot count % STAGES, count // STAGES blocks after the first one there. A slot
has two barriers: `full` completes when all bytes of a block have come, `free` when its readers are
done with it, and a wait names the parity of the completion that it is for.

A tile whose sums are too many for one group is shared: each group has half of its rows, and a
block has two readers. Else groups take tiles in turn, and one stores while the other multiplies.
"""

from __future__ import annotations

from math import prod
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

from ..common.geometry import ITEMSIZE
from ..common.index import tile_of
from ..plan.task import Task
from ..plan.tile import Tile

GROUPS = 2  # warp groups that multiply
WARPS = 4  # of a group
MOST_SUMS = 128 * 128  # of a group: as many registers of a thread as leave room for the rest
REGISTERS = (232, 40)  # of a thread of a group, of the warp that loads
PART = gl.constexpr(64)  # columns of sums that a group stores at a time


def refusal(task: Task) -> str | None:
    """Return why a task is not computed by warps of two kinds, for all that it is made of."""
    if task.builder.call.specs[0].device != "cuda":
        return "the interpreter has no Gluon"
    if not task.arch.startswith("sm_9"):
        return f"{task.arch} has no warp groups that multiply"
    if ITEMSIZE[task.dtype] != 2:
        return f"{task.dtype} is not a type of 16 bits"
    if not task.pairs or not all(prod(tensor.shape) for pair in task.pairs for tensor in pair):
        return "no products"
    return None


def readers(rows: int, columns: int) -> int:
    """Return how many groups share a tile."""
    return 1 if rows * columns <= MOST_SUMS else GROUPS


def constants(tile: Tile) -> dict[str, Any]:
    """Return the constants of a kernel's tile, and of who multiplies it."""
    return {
        "BM": tile.bm,
        "BN": tile.bn,
        "BK": tile.bk,
        "BAND": tile.band,
        "STAGES": tile.stages,
        "READERS": readers(tile.bm, tile.bn),
        "REGISTERS": REGISTERS,
    }


@gluon.constexpr_function
def turns(readers):
    """Return how many groups take turns: every so-manieth tile of a program is a group's."""
    return GROUPS // readers


@triton.jit
def slot_of(count, STAGES: gl.constexpr):
    """Return where a block lies."""
    return (count.to(gl.uint32) % STAGES).to(gl.int32)


@triton.jit
def parity_of(count, STAGES: gl.constexpr):
    """Return the parity of the completion of `full` by which a block has come."""
    return (count.to(gl.uint32) // STAGES % 2).to(gl.int32)


@triton.jit
def freed(count, STAGES: gl.constexpr):
    """Return the parity of the completion of `free` that a block needs; the first need none.

    Before a barrier has completed once, a wait for the odd parity is over.
    """
    return parity_of(count, STAGES) ^ 1


@triton.jit
def passed_on(turn, WHICH: gl.constexpr):
    """Return the parity of the completion of `order` that a group's turn needs; the first none."""
    return (turn // 2 + WHICH + 1) % 2


@gluon.jit
def opened(STAGES: gl.constexpr, READERS: gl.constexpr):
    """Return the barriers (full, free, order) of a ring; the last one of `free` is of no slot."""
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES + 1, 1], mbarrier.MBarrierLayout())
    order = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
    for slot in gl.static_range(STAGES + 1):
        mbarrier.init(free.index(slot), count=READERS)
    for group in gl.static_range(2):
        mbarrier.init(order.index(group), count=1)
    fence_async_shared()
    return full, free, order


@gluon.jit
def closed(full, free, order, STAGES: gl.constexpr):
    """Give the barriers' memory back; all groups have returned."""
    for slot in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(slot))
    for slot in gl.static_range(STAGES + 1):
        mbarrier.invalidate(free.index(slot))
    for group in gl.static_range(2):
        mbarrier.invalidate(order.index(group))


@gluon.jit
def taken(full, free, count, BYTES: gl.constexpr, STAGES: gl.constexpr):
    """Return (slot, barrier) for the block that is to be loaded next, when its slot is free."""
    slot = slot_of(count, STAGES)
    mbarrier.wait(free.index(slot), freed(count, STAGES))
    came = full.index(slot)
    mbarrier.expect(came, BYTES)
    return slot, came


@gluon.jit
def group(multiply, given, WHICH: gl.constexpr):
    """Let a group multiply, told which one it is."""
    multiply(WHICH, *given)


@gluon.jit
def loader(load, given):
    """Let a warp load."""
    load(*given)


@gluon.jit
def shared_out(multiply, given, load, loads, REGISTERS: gl.constexpr):
    """Let two groups multiply what one more warp loads."""
    gl.warp_specialize(
        [
            (group, (multiply, given, gl.constexpr(0))),
            (group, (multiply, given, gl.constexpr(1))),
            (loader, (load, loads)),
        ],
        [4, 1],
        REGISTERS,
    )


@gluon.jit
def place(tile, rows, columns, BAND: gl.constexpr):
    """Return (group, row, column) of a tile."""
    group = tile // (rows * columns)
    row, column = tile_of(tile - group * (rows * columns), rows, columns, BAND)
    return group, row, column


@gluon.jit
def matrix(block, ROWS: gl.constexpr, DEPTH: gl.constexpr, ACROSS: gl.constexpr):
    """Return a block as (ROWS, DEPTH); with ACROSS its rows lie side by side."""
    if ACROSS:
        return block.reshape((DEPTH, ROWS)).permute((1, 0))
    else:
        return block.reshape((ROWS, DEPTH))


@gluon.jit
def summed(
    left, right, full, free, order, turn, block, steps,
    WHICH: gl.constexpr, READERS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, ACROSS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Return a group's rows of the sum of left right^T over `steps` blocks from `block` on.

    One product stays in flight, so that a block is given back one step after it was read. Groups
    that take turns begin when the other one has seen all its blocks: who waited for a completion
    before the last but one has passed would take that for it, which has the same parity.
    """
    ROWS: gl.constexpr = BM // READERS
    FIRST: gl.constexpr = WHICH % READERS * ROWS
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    if READERS == 1:
        mbarrier.wait(order.index(WHICH), passed_on(turn, WHICH))
    acc = gl.zeros((ROWS, BN), gl.float32, SUMS)
    given = free.index(STAGES)  # in the first step there is nothing to give back
    last = block + steps
    while block != last:
        slot = slot_of(block, STAGES)
        gives = free.index(slot)  # beside `full`, whose address it shares
        mbarrier.wait(full.index(slot), parity_of(block, STAGES))
        b = matrix(right.index(slot), BN, BK, ACROSS).permute((1, 0))
        a = matrix(left.index(slot), BM, BK, ACROSS).slice(FIRST, ROWS)
        acc = warpgroup_mma(a, b, acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=[acc])
        mbarrier.arrive(given)
        given = gives
        block += 1
    if READERS == 1:
        mbarrier.arrive(order.index(1 - WHICH))
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(given)
    return acc


@gluon.jit
def product(
    left, right, full, free, order, turn, steps,
    WHICH: gl.constexpr, READERS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, ACROSS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Return what `summed` does where all turns of the program have so many blocks."""
    return summed(
        left, right, full, free, order, turn, turn * steps, steps,
        WHICH, READERS, BM, BN, BK, ACROSS, STAGES,
    )  # fmt: skip


@gluon.jit
def in_parts(acc, COUNT: gl.constexpr):
    """Return a tile's columns in so many parts, without moving them between threads."""
    if COUNT == 1:
        return (acc,)
    else:
        halves = acc.reshape((acc.shape[0], 2, acc.shape[1] // 2)).permute((0, 2, 1)).split()
        return in_parts(halves[0], COUNT // 2) + in_parts(halves[1], COUNT // 2)
