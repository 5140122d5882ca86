"""The adjoint of a depthwise convolution with strides: all classes of pixels at once.

dx[n, k, u * stride + a - lo] = sum over j of dy[n, k, u - j] w[k, a + j * stride]

A cell u is the block of stride pixels of dx, each of another class a, which read the same pixels of
dy. Channels are innermost. A tile is BM strips by BK channels. A strip is `height` cells of one
column: each row of dy is loaded once and added to the cells that read it, of which the oldest is
then complete. The filter stays in registers.
"""

from math import prod

import triton
import triton.language as tl

from ..common.epilogue import apply
from ..common.geometry import LIMIT, Geometry, Tensor, filter_steps
from ..common.index import below, divisors, pixel
from ..common.windows import strides, unit
from ..plan import cost, lines
from ..plan.builder import slots, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import PLAIN, Epilogue, Pairs, Task
from ..plan.tile import Tile, TileTable
from .depthwise import MOST_REGISTERS, images, load_filter, put, same_strides

SIZES = "M P Q U V H W K height first_u first_v lo_h lo_w"
MAGIC = "u_magic u_shift v_magic v_shift"
STEPS = "x_n x_h x_w w_0 w_r w_s w_k y_n y_h y_w"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit
def read_row(x, x_2, where, on, on_v, x_w, MET: tl.constexpr, PAIRS: tl.constexpr):
    """Return the elements of a row of dy that a cell reads, as float32: (pair, column) in turn."""
    values = ()
    for pair in tl.static_range(PAIRS):
        left = x if pair == 0 else x_2
        for j in tl.static_range(MET):
            value = tl.load(left - j * x_w + where, on_v[j] & on, other=0.0)
            values = values + (value.to(tl.float32),)
    return values


@triton.jit
def add_row(
    row, weights, sums,
    R: tl.constexpr, S: tl.constexpr, DOWN: tl.constexpr, SIDE: tl.constexpr,
    MET_H: tl.constexpr, MET_W: tl.constexpr, PAIRS: tl.constexpr, A: tl.constexpr,
):  # fmt: skip
    """Return the sums, (cells modulo MET_H, rows, columns), with the products of row A."""
    for r in tl.static_range(R):
        for s in tl.static_range(S):
            total = sums[((A + r // DOWN) % MET_H * DOWN + r % DOWN) * SIDE + s % SIDE]
            for pair in tl.static_range(PAIRS):
                total += row[pair * MET_W + s // SIDE] * weights[(pair * R + r) * S + s]
            sums = put(sums, total, ((A + r // DOWN) % MET_H * DOWN + r % DOWN) * SIDE + s % SIDE)
    return sums


@triton.jit(do_not_specialize=RUNTIME)
def depthwise_strided(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    M, P, Q, U, V, H, W, K, height, first_u, first_v, lo_h, lo_w,
    u_magic, u_shift, v_magic, v_shift,
    x_n, x_h, x_w, w_0, w_r, w_s, w_k, y_n, y_h, y_w,
    TAPS: tl.constexpr, STRIDE: tl.constexpr, MET: tl.constexpr, PAIRS: tl.constexpr,
    WIDE: tl.constexpr, UNIT: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute the pixels of y of a tile of strips, from the pairs (x, w) and (x_2, w_2)."""
    x_n, x_h, x_w, _ = strides(x_n, x_h, x_w, x_w, VEC[0], WIDE)
    w_0, w_r, w_s, _ = strides(w_0, w_r, w_s, w_s, VEC[1], WIDE)
    y_n, y_h, y_w, _ = strides(y_n, y_h, y_w, y_w, VEC[2], WIDE)
    w_k, K = unit(w_k, UNIT, 1, WIDE), K * VEC[3]
    R: tl.constexpr = TAPS[0]
    S: tl.constexpr = TAPS[1]
    DOWN: tl.constexpr = STRIDE[0]
    SIDE: tl.constexpr = STRIDE[1]
    MET_H: tl.constexpr = MET[0]  # rows and columns of x that a cell reads
    MET_W: tl.constexpr = MET[1]
    columns = tl.cdiv(K, BK)
    first = tl.program_id(0) // columns * BM
    k = (tl.program_id(0) % columns * BK + tl.arange(0, BK))[None, :]  # (1, BK)

    strip = first + tl.arange(0, BM)  # (BM,)
    # Offsets count in 32 bits from the tile's first image.
    top, _, _, _ = pixel(first, 1, U, V, 0, 0, u_magic, u_shift, v_magic, v_shift, 2)
    n, _, u, v = pixel(strip, 1, U, V, 0, 0, u_magic, u_shift, v_magic, v_shift, 2)
    n, real = n - top, strip < M
    begin, v = first_u + u * height, first_v + v
    known = real[:, None] & (k < K)
    on_v = ()
    for j in tl.static_range(MET_W):
        on_v = on_v + (below(v - j, Q)[:, None],)

    vector = k + (strip * 0)[:, None]  # in the layout of the tile
    weights = load_filter(w, w_2, vector * w_k, known, w_0, w_r, w_r, w_s, 1, R, S, PAIRS)
    if bias is not None:
        bias = tl.load(bias + vector, known, other=0.0).to(tl.float32)
    if scale is not None:
        scale = tl.load(scale + vector, known, other=0.0).to(tl.float32)
    if shift is not None:
        shift = tl.load(shift + vector, known, other=0.0).to(tl.float32)

    from_x = x + top.to(tl.int64) * x_n
    from_x_2 = from_x if PAIRS < 2 else x_2 + top.to(tl.int64) * x_n
    i = begin - (MET_H - 1)  # the first row of x that a strip reads
    p, q = begin * DOWN - lo_h, v * SIDE - lo_w
    x_tile = (n * x_n + i * x_h + v * x_w)[:, None] + k
    to_y = top.to(tl.int64) * y_n
    y_tile = (n * y_n + p * y_h + q * y_w)[:, None] + k
    sums = ()
    for _ in tl.static_range(MET_H * DOWN * SIDE):
        sums = sums + (tl.zeros((BM, BK), tl.float32),)
    for block in range(0, height + MET_H - 1, MET_H):
        for a in tl.static_range(MET_H):  # after as many rows the sums are in place again
            down = block + a
            on = below(i + down, P)[:, None] & known
            row = read_row(
                from_x + down * x_h, from_x_2 + down * x_h, x_tile, on, on_v, x_w, MET_W, PAIRS
            )
            sums = add_row(row, weights, sums, R, S, DOWN, SIDE, MET_H, MET_W, PAIRS, a)
            up = down - (MET_H - 1)  # the cell, counted from the first, that is complete
            mine = known & ((up >= 0) & (up < height))
            for r in tl.static_range(DOWN):
                on_p = mine & below(p + (up * DOWN + r), H)[:, None]
                for s in tl.static_range(SIDE):
                    inside = on_p & below(q + s, W)[:, None]
                    where = to_y + (up * DOWN + r) * y_h + s * y_w + y_tile
                    added = None
                    if residual is not None:
                        added = tl.load(residual + where, inside, other=0.0).to(tl.float32)
                    total = sums[(a * DOWN + r) * SIDE + s]
                    done = apply(total, bias, scale, shift, added, ACTIVATION)
                    tl.store(y + where, done.to(y.dtype.element_ty), inside)
                    sums = put(sums, tl.zeros((BM, BK), tl.float32), (a * DOWN + r) * SIDE + s)


# Strips, channels, cells of a strip.
TILES = TileTable(
    {
        "*": tuple(
            Tile(bm, bn, height, 4, 1)
            for bm, bn in ((16, 64), (8, 64), (16, 32), (4, 64), (8, 32), (4, 32))
            for height in (28, 14, 7, 2)
        )
    }
)


def depthwise_strided_refusal(task: Task) -> str | None:
    shape = task.geometry
    if (shape.big_channels, shape.small_channels) != (1, 1):
        return "not depthwise"
    if not task.pairs:
        return "no products"
    if shape.stride == (1, 1, 1):
        return "no strides"
    if shape.rank == 3 or shape.dilation != (1, 1, 1):
        return "three axes or dilation"
    if not task.is_last:
        return "channels are not innermost"
    if not depthwise_strided_tiles(task):
        return f"{shape.taps * len(task.pairs)} taps, more than registers hold"
    return None


def depthwise_strided_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles that serve a task: those whose elements fit into registers."""
    return tuple(row for row in TILES.of(task) if registers(task, row) <= MOST_REGISTERS)


def met(geometry: Geometry) -> tuple[int, int]:
    """Return how many rows and columns of dy a cell reads."""
    r, s = (-(-r // s) for r, s in zip(geometry.filter[1:], geometry.stride[1:]))
    return r, s


def registers(task: Task, tile: Tile) -> int:
    shape, pairs = task.geometry, len(task.pairs)
    met_h, met_w = met(shape)
    values = shape.taps * pairs + met_h * prod(shape.stride) + met_w * pairs
    return values * tile.per_thread


def cells(geometry: Geometry, axis: int) -> tuple[int, int]:
    """Return the first cell along an axis and how many there are."""
    lo, step = geometry.lo[axis], geometry.stride[axis]
    return lo // step, (geometry.big[axis] - 1 + lo) // step - lo // step + 1


def depthwise_strided_work(task: Task, tile: Tile) -> Work:
    shape, pairs, each = task.geometry, len(task.pairs), tile.per_thread
    (met_h, met_w), outputs = met(shape), prod(shape.stride)
    (_, u), (_, v) = (cells(shape, axis) for axis in (1, 2))
    height = min(tile.bk, u)
    steps = 8 * met_w * pairs + 8 * outputs + outputs * each
    steps += (met_w + shape.taps) * pairs * each
    programs = -(-shape.n * -(-u // height) * v // tile.bm) * -(-shape.groups // tile.bn)
    begun = 2 * shape.taps * pairs * each + 100
    turns = -(-(height + met_h - 1) // met_h) * met_h
    return cost.thread_work(programs, turns * steps + begun, tile, reached=0.49)


def add_depthwise_strided(task: Task, tile: Tile) -> None:
    pairs, y = same_strides(task), task.result()
    task.builder.steps.append(
        depthwise_strided_launch(task.geometry, pairs, y, tile, task.epilogue(y))
    )


def depthwise_strided_launch(
    geometry: Geometry, pairs: Pairs, y: Tensor, tile: Tile, epilogue: Epilogue = PLAIN
) -> Launch:
    """Return the launch that computes y, the big side, from at most two (x, w).

    The x have equal strides, as have the w; there is one channel of either side per group.
    """
    (x, w), (x_2, w_2) = pairs[0], pairs[1] if len(pairs) > 1 else (None, None)
    (first_u, u), (first_v, v) = cells(geometry, 1), cells(geometry, 2)
    height, k = min(tile.bk, u), y.shape[1]
    down = -(-u // height)
    strips = geometry.n * down * v
    first, _, _, *taps, _, _ = filter_steps(geometry, w, scatter=True)
    x_moves, y_moves = (t.steps[:1] + t.steps[3:] for t in (x, y))
    moves = x_moves, (first, *taps), y_moves, (k,)
    vec = tuple(vector(y.dtype, *move) for move in moves)
    over = [[step // width for step in move] for move, width in zip(moves, vec)]
    sizes = (strips, *geometry.small[1:], down, v, *geometry.big[1:], *over[3])
    places = height, first_u, first_v, *geometry.lo[1:]
    steps = (*over[0], *over[1], w.steps[0], *over[2])
    tensors = {"x": x, "w": w, "x_2": x_2, "w_2": w_2, "y": y, **epilogue.tensors}
    given, absent = slots(tensors)
    far = images(tile, (1, down, v))
    # Tiles begin up to a cell before the image, and rows and columns count from there; rows of x
    # also from those of cells that a crop gives no row to read.
    met_h, met_w = met(geometry)
    edges = zip((x_moves, y_moves), ((met_h + max(-first_u, 0), met_w), geometry.stride[1:]))
    before = [sum((e - 1) * abs(step) for e, step in zip(edge, m[1:])) for m, edge in edges]
    span = max(t.image_span + far * abs(t.steps[0]) + b for t, b in zip((x, y), before))
    return Launch(
        depthwise_strided,
        (-(-strips // tile.bm) * -(-k // tile.bn), 1, 1),
        given | dict(zip(RUNTIME, (*sizes, *places, *divisors((down, v)), *steps))),
        absent
        | {
            "TAPS": geometry.filter[1:],
            "STRIDE": geometry.stride[1:],
            "MET": met(geometry),
            "PAIRS": len(pairs),
            "WIDE": span >= LIMIT or w.span >= LIMIT,
            "UNIT": w.steps[0] == 1,
            "VEC": vec,
            "BM": tile.bm,
            "BK": tile.bn,
            "ACTIVATION": epilogue.activation,
        },
        tile.warps,
        1,
    )


SPEC = KernelSpec(
    "depthwise_strided",
    serves=("scatter",),
    refusal=depthwise_strided_refusal,
    tiles=depthwise_strided_tiles,
    add=add_depthwise_strided,
    kernels=(depthwise_strided,),
    work=depthwise_strided_work,
    lines={"dgrad_s2": lines.DGRAD["dgrad_s2"]},
    expects=Expectation(
        across_groups=True, loop=((318, 340, 340, 340), (320, 341, 341, 341), (351, 197, 197))
    ),
)
