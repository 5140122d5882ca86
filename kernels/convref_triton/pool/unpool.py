"""Max unpooling and its derivatives, by gathering: each result is written once.

y[n, c, p]  = x[n, c, j],  j the last with indices[n, c, j] = p; 0 where there is none
dx[n, c, j] = dy[n, c, indices[n, c, j]], 0 where the index is -1 or a later j has the same

A program has BM positions of BN channels. It reads the indices of its image in blocks of BL, and
compares only blocks that have an index in its range: those of a max pool are near each other.
"""

from math import prod

import triton
import triton.language as tl

from ..common import images
from ..common.geometry import LIMIT, Tensor
from ..plan import lines
from ..plan.builder import is_channels_last, slot, vector
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile

# Positions, channels, and indices that are compared at a time.
FIRST = (Tile(128, 1, 32, 4, 1), Tile(32, 4, 16, 4, 1))
LAST = (Tile(16, 32, 8, 4, 1), Tile(32, 16, 8, 4, 1))
# By pass: the operand that is moved, and the result.
PASSES = {
    "fprop": ("x", "y"),
    "backward": ("dy", "dx"),
    "jvp": ("x_dot", "y_dot"),
    "double_backward": ("ddx", "ddy"),
}
RUNTIME = ["L", "M", "C"]


@triton.jit
def at(i, c, C, size, LAST: tl.constexpr):
    """Return the offset of pixel i of channel c in an image of `size` pixels."""
    return i * C + c if LAST else c * size + i


@triton.jit(do_not_specialize=RUNTIME)
def unpool_kernel(
    source, indices, target, L, M, C, BACK: tl.constexpr, LAST: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BL: tl.constexpr,
):  # fmt: skip
    """Move elements to or from the indices of an image: L of them, into M positions."""
    L, M, C = L * VEC[0], M * VEC[1], C * VEC[2]
    size, other = (L, M) if BACK else (M, L)  # of the result, of the source
    columns, rows = tl.cdiv(C, BN), tl.cdiv(size, BM)
    program = tl.program_id(0)
    c = program % columns * BN + tl.arange(0, BN)[None, :]  # (1, BN)
    start = program // columns % rows * BM
    n = (program // columns // rows).to(tl.int64)
    source, target, indices = source + n * C * other, target + n * C * size, indices + n * C * L
    p = start + tl.arange(0, BM)[:, None]  # (BM, 1)
    real = (p < size) & (c < C)
    if BACK:
        want = tl.load(indices + at(p, c, C, L, LAST), real, other=-1).to(tl.int32)  # (BM, BN)
        low, high, first = tl.min(tl.where(want >= 0, want, M)), tl.max(want), start
    else:
        want = p + tl.zeros((BM, BN), tl.int32)
        low, high, first = start, start + BM - 1, 0
    found = tl.full((BM, BN), -1, tl.int32)
    for begin in range(first, L, BL):
        j = begin + tl.arange(0, BL)[:, None]  # (BL, 1)
        given = tl.load(indices + at(j, c, C, L, LAST), (j < L) & (c < C), other=-1).to(tl.int32)
        if tl.max(((given >= low) & (given <= high)).to(tl.int32)) > 0:
            same = given[None, :, :] == want[:, None, :]  # (BM, BL, BN)
            if BACK:
                same = same & (j[None, :, :] > p[:, None, :])
            found = tl.maximum(found, tl.max(tl.where(same, j[None, :, :], -1), 1))
    if BACK:
        there, place = real & (found < 0) & (want >= 0), want
    else:
        there, place = real & (found >= 0), found
    value = tl.load(source + at(place, c, C, other, LAST), there, other=0.0)
    tl.store(target + at(p, c, C, size, LAST), value, real)


def unpool_refusal(task: Task) -> str | None:
    problem = task.builder.call.problem
    pixels = max(prod(problem.input), prod(problem.output))
    if problem.c * pixels >= LIMIT or problem.n * problem.c * pixels >= 16 * LIMIT:
        return "2**31 elements or more of an image, or 2**35 of all"
    return None


def unpool_tiles(task: Task) -> tuple[Tile, ...]:
    builder = task.builder
    rows = LAST if is_channels_last(builder.tensors[PASSES[builder.call.pass_][0]]) else FIRST
    narrow = tuple(tile for tile in rows if tile.bn < 2 * builder.call.problem.c)
    return narrow or rows[:1]


def add_unpool(task: Task, tile: Tile) -> None:
    builder, call = task.builder, task.builder.call
    read, role = PASSES[call.pass_]
    source, indices = builder.tensors[read], builder.tensors["indices"]
    order, last = images.order_like(source), is_channels_last(source)
    made = images.result(builder, role, source)
    if prod(made.shape):
        operands = builder.in_order(source, order), builder.in_order(indices, order)
        builder.steps.append(unpool_launch(task, *operands, made, last, tile))


def unpool_launch(
    task: Task, source: Tensor, indices: Tensor, made: Tensor, last: bool, tile: Tile
) -> Launch:
    problem, back = task.builder.call.problem, task.builder.call.pass_ == "backward"
    counts = prod(problem.input), prod(problem.output), problem.c
    vec = tuple(vector(source.dtype, count) for count in counts)
    rows = -(-counts[0 if back else 1] // tile.bm)
    return Launch(
        unpool_kernel,
        (problem.n * rows * -(-problem.c // tile.bn), 1, 1),
        {"source": slot(source), "indices": slot(indices), "target": slot(made)}
        | dict(zip(RUNTIME, (count // v for count, v in zip(counts, vec)))),
        {"BACK": back, "LAST": last, "VEC": vec, "BM": tile.bm, "BN": tile.bn, "BL": tile.bk},
        tile.warps,
        tile.stages,
    )


SPEC = KernelSpec(
    "unpool",
    serves=("max_unpool",),
    refusal=unpool_refusal,
    tiles=unpool_tiles,
    add=add_unpool,
    kernels=(unpool_kernel,),
    whole_call=True,
    lines={
        f"max_unpool_{pass_}": lines.Line(f"max_unpool.{pass_}:{{}}_o56x56", {"": lines.ELEMENTS})
        for pass_ in ("fprop", "backward")
    },
)
