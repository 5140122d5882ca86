"""The filter cotangent of a depthwise convolution: each loaded pixel serves all of its taps.

dw[k, r] = sum over n and p of small[n, k, p] big[n, k, p * stride + r * dilation - lo]

Channels are innermost. A thread keeps the sums of RG rows of taps of its channels and walks along
`side` rows of the small side: a column of the big side meets the last columns of the small side,
which stay in registers. It visits the columns of the big side that exist, each in one strip only,
so that no product of a neighbouring strip's pixels is ever added.

A tile is BM strips by BK channels. Strips are cut into splits, whose sums go to a workspace that
`reduce` adds in a fixed order.
"""

from math import prod
from typing import NamedTuple

import triton
import triton.language as tl

from ..common.geometry import LIMIT, Geometry, Tensor, filter_steps
from ..common.index import below, divisors, pixel
from ..common.reduce import MANY, add_in_parts
from ..common.windows import strides
from ..plan import archs, cost, lines
from ..plan.builder import is_channels_last, slot, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Change, Tile, TileTable

SIZES = "M D H W O U V P Q K begin run steps rows_of_taps lo_d lo_h lo_w"
MAGIC = "o_magic o_shift u_magic u_shift v_magic v_shift"
STEPS = "a_n a_d a_h a_w b_n b_d b_h b_w w_0 w_t w_r w_s w_k w_z"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit
def read_rows(x, where, on, also, x_h, MOVE: tl.constexpr, ROWS: tl.constexpr):
    """Return ROWS elements of a column, MOVE rows apart, as float32; zeros where not `also`."""
    values = ()
    for j in tl.static_range(ROWS):
        row = tl.load(x + j * MOVE * x_h + where, on[j] & also, other=0.0)
        values = values + (row.to(tl.float32),)
    return values


@triton.jit
def add_column(
    sums, small, big,
    RG: tl.constexpr, S: tl.constexpr, SIDE: tl.constexpr, FIRST: tl.constexpr,
    EVERY: tl.constexpr, DOWN: tl.constexpr,
):  # fmt: skip
    """Return the sums with the products of a column that has every EVERY-th tap from FIRST on.

    `small` has SIDE rows of the newest column, then of the one before it, and so on.
    """
    added = ()
    for r in tl.static_range(RG):
        for s in tl.static_range(S):
            total = sums[r * S + s]
            if s % EVERY == FIRST:
                for i in tl.static_range(SIDE):
                    total += small[s // EVERY * SIDE + i] * big[i * DOWN + r]
            added = added + (total,)
    return added


@triton.jit
def stacked(
    values, COUNT: tl.constexpr, DEPTH: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Return a tuple of COUNT tiles as one, with a last axis of 2**DEPTH; the rest is zeros."""
    for _ in tl.static_range(2**DEPTH - COUNT):
        values = values + (tl.zeros((BM, BK), tl.float32),)
    for level in tl.static_range(DEPTH):
        joined = ()
        for i in tl.static_range(2 ** (DEPTH - 1 - level)):
            joined = joined + (tl.join(values[i], values[i + 2 ** (DEPTH - 1 - level)]),)
        values = joined
    return tl.reshape(values[0], (BM, BK, 2**DEPTH))


@triton.jit(do_not_specialize=RUNTIME)
def depthwise_wgrad(
    a, b, w,
    M, D, H, W, O, U, V, P, Q, K, begin, run, steps, rows_of_taps, lo_d, lo_h, lo_w,
    o_magic, o_shift, u_magic, u_shift, v_magic, v_shift,
    a_n, a_d, a_h, a_w, b_n, b_d, b_h, b_w, w_0, w_t, w_r, w_s, w_k, w_z,
    RANK: tl.constexpr, TAPS: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
    RG: tl.constexpr, SIDE: tl.constexpr, UNROLL: tl.constexpr,
    DEPTH: tl.constexpr, DENSE: tl.constexpr, WIDE: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the sums of BK channels at RG rows of taps, over the strips of one split."""
    a_n, a_d, a_h, a_w = strides(a_n, a_d, a_h, a_w, VEC[0], WIDE)
    b_n, b_d, b_h, b_w = strides(b_n, b_d, b_h, b_w, VEC[1], WIDE)
    K = K * VEC[2]
    S: tl.constexpr = TAPS[2]
    EVERY: tl.constexpr = STRIDE[2]
    KEPT: tl.constexpr = (S + EVERY - 1) // EVERY  # columns of the small side
    DOWN: tl.constexpr = STRIDE[1] if SIDE > 1 else 1  # rows of the big side that are loaded:
    READS: tl.constexpr = (SIDE - 1) * DOWN + RG
    columns = tl.cdiv(K, BK)
    k = (tl.program_id(0) % columns * BK + tl.arange(0, BK))[None, :]  # (1, BK)
    group = tl.program_id(0) // columns
    r_0, group = group % rows_of_taps * RG, group // rows_of_taps
    t, split = group % TAPS[0], group // TAPS[0]

    sums = ()
    for _ in tl.static_range(RG * S):
        sums = sums + (tl.zeros((BM, BK), tl.float32),)
    for step in range(split * steps, split * steps + steps):
        strip = (step * BM + tl.arange(0, BM))[:, None]  # (BM, 1)
        n, o, u, v = pixel(
            strip, O, U, V, o_magic, o_shift, u_magic, u_shift, v_magic, v_shift, RANK
        )
        p, q = u * SIDE, v * run + begin
        d = o * STRIDE[0] + t * DILATION[0] - lo_d
        h = p * STRIDE[1] + r_0 * DILATION[1] - lo_h
        i_w = q * EVERY - lo_w
        known = (k < K) & (strip < M)
        on_a, on_b = (), ()
        for i in tl.static_range(SIDE):
            on_a = on_a + (known & (p + i < P),)
        for j in tl.static_range(READS):
            on_b = on_b + (known & below(d, D) & below(h + j * DILATION[1], H),)
        a_tile = n * a_n + o * a_d + p * a_h + q * a_w + k
        b_tile = n * b_n + d * b_d + h * b_h + i_w * b_w + k
        kept = ()
        for m in tl.static_range(KEPT - 1):
            x = -1 - m
            kept = kept + read_rows(a + x * a_w, a_tile, on_a, below(q + x, Q), a_h, 1, SIDE)
        for block in range(0, run, UNROLL):
            for i in tl.static_range(UNROLL):
                x = block + i
                small = read_rows(a + x * a_w, a_tile, on_a, below(q + x, Q), a_h, 1, SIDE) + kept
                for e in tl.static_range(EVERY):
                    far = x * EVERY + e
                    also = below(i_w + far, W)
                    big = read_rows(b + far * b_w, b_tile, on_b, also, b_h, DILATION[1], READS)
                    sums = add_column(sums, small, big, RG, S, SIDE, e, EVERY, DOWN)
                kept = small[: (KEPT - 1) * SIDE]

    total = tl.sum(stacked(sums, RG * S, DEPTH, BM, BK), 0)  # (BK, 2**DEPTH)
    j, k = tl.arange(0, 2**DEPTH)[None, :], tl.trans(k)
    inside = (k < K) & (j < RG * S) & (r_0 + j // S < TAPS[1])
    where = r_0 * w_r + k * w_k
    where += j if DENSE else j // S * w_r + j % S * w_s
    to_w = w + split.to(tl.int64) * w_z + w_0 + t * w_t
    tl.store(to_w + where, total.to(w.dtype.element_ty), inside)


def _tiles(*sizes: tuple[int, int, int, int, int, int]) -> tuple[Tile, ...]:
    return tuple(Tile(*size, side=side) for *size, side in sizes)


# Strips, channels, steps of a strip, warps, steps that are unrolled at most, rows of a strip.
TILES = TileTable(
    {
        "*": _tiles(
            *((8, 64, 28, 4, 2, 2), (32, 16, 28, 4, 2, 2), (4, 64, 28, 4, 4, 2)),
            *((16, 16, 28, 4, 4, 2), (4, 32, 28, 4, 4, 2), (16, 16, 14, 4, 2, 2)),
            *((4, 32, 14, 4, 2, 2), (4, 32, 28, 4, 2, 4), (1, 32, 28, 1, 4, 2)),
            (1, 64, 14, 1, 2, 2),
        )
    },
    changes=(  # ptxas spills addresses of many rows of taps, though registers are left
        Change("sm_8", "f16 bf16", Tile(16, 16, 28, 4, 4, side=2)),
        Change("sm_8", "f16 bf16", Tile(16, 16, 14, 4, 2, side=2)),
    ),
)
MOST_ROWS = 9  # of taps of a program
MOST_SUMS = 100  # registers of a thread for sums of taps
MOST_REGISTERS = 215  # of a thread for sums, elements and addresses
WARPS = 16  # of a multiprocessor that are to have work
MOST_SPLITS = 512  # that `reduce` adds in a few turns
MOST_PRODUCTS = 400  # of a thread in the unrolled loop
SUMMED = 13  # instructions that add a sum of several warps
MOST_LOADS = 32  # in the unrolled loop, whose addresses and elements are in registers


def depthwise_wgrad_refusal(task: Task) -> str | None:
    shape = task.geometry
    if shape.big_channels != 1 or shape.small_channels != 1:
        return "not depthwise"
    if not task.pairs:
        return "no products"
    if prod(task.builder.call.problem.shape(task.role)) >= LIMIT:
        return "2**31 elements of the filter or more"
    if not all(is_channels_last(x) for pair in task.pairs for x in pair):
        return "channels are not innermost"
    if shape.dilation[2] > 1:
        return "dilated columns"
    if not depthwise_wgrad_tiles(task):
        return f"{shape.filter[2]} columns of taps, more than registers hold"
    return None


def depthwise_wgrad_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles that serve a task: those whose elements fit into registers.

    Where some keep the sums of all rows of taps, which load pixels once, only these do.
    """
    shape = task.geometry
    one = shape.dilation[1] > 1 or shape.small[1] == 1  # no rows that share loads
    rows = dict.fromkeys(row._replace(side=1) if one else row for row in TILES.of(task))
    fit = tuple(row for row in rows if registers(shape, row) <= MOST_REGISTERS)
    whole = tuple(row for row in fit if group_of_rows(shape, row) == shape.filter[1])
    return whole or fit


class Walk(NamedTuple):
    begin: int  # first step
    run: int  # steps of a strip
    parts: int  # strips of a row


def group_of_rows(geometry: Geometry, tile: Tile) -> int:
    """Return how many rows of taps a program has: all, or as many as registers hold."""
    _, r, s = geometry.filter
    most = min(max(MOST_SUMS // (s * tile.per_thread), 1), MOST_ROWS)
    return -(-r // -(-r // most))


def registers(geometry: Geometry, tile: Tile) -> int:
    """Return how many registers of a thread hold sums, elements and, of rows, addresses."""
    s, rows = geometry.filter[2], group_of_rows(geometry, tile)
    kept = -(-s // geometry.stride[2]) * tile.side
    reads = ((tile.side - 1) * geometry.stride[1] + rows) * geometry.stride[2]
    return (rows * s + 2 * kept + 2 * reads) * tile.per_thread + 3 * reads


def unroll(geometry: Geometry, tile: Tile) -> int:
    """Return how many steps are unrolled: a size of images does not change it."""
    rows = group_of_rows(geometry, tile)
    products = rows * geometry.filter[2] * tile.side * tile.per_thread
    loads = ((tile.side - 1) * geometry.stride[1] + rows) * geometry.stride[2] + tile.side
    most = min(tile.stages, MOST_PRODUCTS // products, MOST_LOADS // loads)
    return next(n for n in (4, 2, 1) if n <= max(most, 1))


def walk(geometry: Geometry, tile: Tile) -> Walk:
    """Return how the strips of a row are walked.

    At step i the columns from i * stride - lo on of the big side meet column i of the small side
    and those before it. Steps at which one of them does not exist are left out.
    """
    size, small, s = geometry.big[2], geometry.small[2], geometry.filter[2]
    stride, lo = geometry.stride[2], geometry.lo[2]
    begin = max(0, -((stride - 1 - lo) // stride))
    end = min(small + -(-s // stride) - 1, (size - 1 + lo) // stride + 1)
    steps = max(end - begin, 0)
    parts = max(-(-steps // tile.bk), 1)
    run, turn = -(-steps // parts), unroll(geometry, tile)
    return Walk(begin, -(-run // turn) * turn, parts)


def depthwise_wgrad_work(task: Task, tile: Tile) -> Work:
    taps = group_of_rows(task.geometry, tile) * task.geometry.filter[2]
    return sums_work(task, tile, 2 ** (taps - 1).bit_length() * tile.warps)


def sums_work(task: Task, tile: Tile, shared: int) -> Work:
    """Return the work of the programs of all splits, which add their strips in turn.

    The sums of several warps are added through shared memory, which is written and read `shared`
    times for each channel, a channel at a time.
    """
    shape, path, count = task.geometry, walk(task.geometry, tile), splits(task, tile)
    taps, each = group_of_rows(shape, tile) * shape.filter[2], tile.per_thread
    reads = ((tile.side - 1) * shape.stride[1] + group_of_rows(shape, tile)) * shape.stride[2]
    column = (reads + tile.side) * (9 + each) + taps * tile.side * each
    blocks = -(-_blocks(shape, tile) // count)
    instructions = blocks * path.run * column + 100 + SUMMED * taps * each * (tile.warps > 1)
    fours = -(-count * _programs(shape, tile) * tile.warps // 4)
    work = cost.thread_work(fours, instructions, tile._replace(warps=4), reached=0.7)
    if tile.warps > 1:
        work = work._replace(issued=work.issued + archs.ISSUED * 2 * shared * tile.bn)
    size = prod(task.builder.call.problem.shape(task.role))
    return work._replace(beside=8.0 * count * size, launches=2) if count > 1 else work


def add_depthwise_wgrad(task: Task, tile: Tile) -> None:
    w, count = task.result(), splits(task, tile)
    add_in_parts(task.builder, w, count, lambda part: part_launch(task, part, tile), MANY)


def part_launch(task: Task, part: Tensor, tile: Tile) -> Launch:
    """Return the launch that computes a result, or its parts, of which `part` is the first."""
    pair = task.pairs[0][:: -1 if task.builder.call.conv.transposed else 1]
    return depthwise_wgrad_launch(task.geometry, pair, part, tile, splits(task, tile))


def _strips(geometry: Geometry, tile: Tile) -> tuple[int, int, int]:
    """Return the strips of an image along (d, h, w)."""
    o, p, _ = geometry.small
    return o, -(-p // tile.side), walk(geometry, tile).parts


def _blocks(geometry: Geometry, tile: Tile) -> int:
    return -(-geometry.n * prod(_strips(geometry, tile)) // tile.bm)


def _programs(geometry: Geometry, tile: Tile) -> int:
    """Return the programs of a split: blocks of channels, by groups of taps."""
    t, r, _ = geometry.filter
    return -(-geometry.groups // tile.bn) * -(-r // group_of_rows(geometry, tile)) * t


def splits(task: Task, tile: Tile) -> int:
    """Return the number of splits: programs fill a GPU, parts are few beside the operands."""
    shape, size = task.geometry, prod(task.builder.call.problem.shape(task.role))
    blocks = _blocks(shape, tile)
    wanted = max(archs.SMS * WARPS // (tile.warps * _programs(shape, tile)), 1)
    room = min(task.builder.call.bytes_moved() // 2, cost.WORKSPACE) // (4 * max(size, 1))
    most = max(min(room, MOST_SPLITS), 1)
    steps = max(blocks // wanted, -(-blocks // most), 1)
    return max(-(-blocks // steps), 1)


def depthwise_wgrad_launch(
    geometry: Geometry, pair: tuple[Tensor, Tensor], w: Tensor, tile: Tile, splits: int = 1
) -> Launch:
    """Return the launch that computes w from (small side, big side), or its partial sums.

    With splits w is the first of as many consecutive ones.
    """
    a, b = pair
    along_image, k = _strips(geometry, tile), geometry.groups
    strips = geometry.n * prod(along_image)
    path, rows = walk(geometry, tile), group_of_rows(geometry, tile)
    down = -(-geometry.filter[1] // rows)
    w_0, w_k, *w_taps, _, _ = filter_steps(geometry, w, False)
    (a_n, _, *a_pixel), (b_n, _, *b_pixel) = a.steps, b.steps
    along_taps = zip(geometry.filter[1:], w_taps[1:], (geometry.filter[2], 1))
    dense = all(size == 1 or step == full for size, step, full in along_taps)
    moves = ((a_n, *a_pixel), (b_n, *b_pixel), (k,))
    vec = tuple(vector(a.dtype, *move) for move in moves)
    over = [[step // width for step in move] for move, width in zip(moves, vec)]
    steps = -(-_blocks(geometry, tile) // splits)
    sizes = (strips, *geometry.big, *along_image, *geometry.small[1:], *over[2], *path[:2], steps)
    sizes += (down, *geometry.lo, *divisors(along_image), *over[0], *over[1])
    sizes += (w_0, *w_taps, w_k, prod(w.shape))
    return Launch(
        depthwise_wgrad,
        (_programs(geometry, tile) * splits, 1, 1),
        {"a": slot(a), "b": slot(b), "w": slot(w)} | dict(zip(RUNTIME, sizes)),
        {
            "RANK": 3 if geometry.rank == 3 else 2,
            "TAPS": geometry.filter,
            "STRIDE": geometry.stride,
            "DILATION": geometry.dilation,
            "RG": rows,
            "SIDE": tile.side,
            "UNROLL": unroll(geometry, tile),
            "WIDE": max(a.span, b.span) + geometry.overhang(a, b) >= LIMIT,
            "DEPTH": (rows * geometry.filter[2] - 1).bit_length(),
            "DENSE": dense,
            "VEC": vec,
            "BM": tile.bm,
            "BK": tile.bn,
        },
        tile.warps,
        1,
    )


SPEC = KernelSpec(
    "depthwise_wgrad",
    serves=("correlate",),
    refusal=depthwise_wgrad_refusal,
    tiles=depthwise_wgrad_tiles,
    add=add_depthwise_wgrad,
    kernels=(depthwise_wgrad,),
    work=depthwise_wgrad_work,
    lines=lines.WGRAD,
    expects=Expectation(across_groups=True, loop=((377, 320, 320, 320),)),
)
