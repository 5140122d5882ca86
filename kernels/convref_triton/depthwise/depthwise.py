"""Depthwise convolution with stride 1 down the rows: each row of x is loaded once.

y[n, k, p] = sum over taps r of x[n, k // m, p * stride + r * dilation - lo] w[k, r]

A tile is BM strips by BK channels. A strip is `height` output rows of one column, computed in a
loop: each input row is loaded once and added to the R accumulators whose windows contain it, of
which the oldest is then complete. The filter stays in registers. The adjoint with stride 1 is the
same with the filter flipped.
"""

import math
from dataclasses import replace
from math import prod

import triton
import triton.language as tl

from ..common.epilogue import apply
from ..common.geometry import ITEMSIZE, LIMIT, Geometry, Tensor, Three, filter_steps
from ..common.index import across, along, below, divisors, pixel
from ..common.windows import strides, unit
from ..plan import cost, lines
from ..plan.builder import channels_last, is_channels_last, slots, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import PLAIN, Epilogue, Pairs, Task
from ..plan.tile import Tile, TileTable

SIZES = "M D H W O U V P Q K multiplier height lo_d lo_h lo_w"
MAGIC = "o_magic o_shift u_magic u_shift v_magic v_shift"
STEPS = "x_n x_d x_h x_w x_c w_0 w_t w_r w_s w_k y_n y_d y_h y_w y_c"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit
def put(values, value, I: tl.constexpr):
    """Return the tuple `values` with `value` at place I."""
    return values[:I] + (value,) + values[I + 1 :]


@triton.jit
def read_row(
    x, x_2, where, known, on_d, on_w, h, H, row, x_d, x_h, x_w,
    T: tl.constexpr, READS: tl.constexpr, DILATION: tl.constexpr, PAIRS: tl.constexpr,
    TURN: tl.constexpr,
):  # fmt: skip
    """Return the elements of a row of x that a strip reads: (pair, t, column) in turn."""
    down = row * DILATION[1]
    on = across(below(h + down, H), TURN) & known
    x, x_2 = x + down * x_h, x_2 + down * x_h
    values = ()
    for pair in tl.static_range(PAIRS):
        left = x if pair == 0 else x_2
        for t in tl.static_range(T):
            for s in tl.static_range(READS):
                far = (t * DILATION[0]) * x_d + (s * DILATION[2]) * x_w
                inside = across(on_d[t] & on_w[s], TURN) & on
                values = values + (tl.load(left + far + where, inside, other=0.0),)
    return values


@triton.jit
def load_filter(
    w, w_2, where, known, w_0, w_t, w_r, w_s,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Return the taps of both filters in float32: (pair, t, r, s) in turn."""
    weights = ()
    for pair in tl.static_range(PAIRS):
        right = w if pair == 0 else w_2
        for t in tl.static_range(T):
            for r in tl.static_range(R):
                for s in tl.static_range(S):
                    far = w_0 + t * w_t + r * w_r + s * w_s
                    tap = tl.load(right + far + where, known, other=0.0)
                    weights = weights + (tap.to(tl.float32),)
    return weights


@triton.jit
def add_row(
    row, weights, sums,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr, SIDE: tl.constexpr, PAIRS: tl.constexpr,
    A: tl.constexpr,
):  # fmt: skip
    """Return the sums, (rows modulo R, columns), after adding the products of row A of a turn."""
    values = ()
    for i in tl.static_range(PAIRS * T * (S + SIDE - 1)):
        values = values + (row[i].to(tl.float32),)
    for j in tl.static_range(R):
        for c in tl.static_range(SIDE):
            total = sums[(A - j) % R * SIDE + c]
            for i in tl.static_range(PAIRS * T):
                for s in tl.static_range(S):
                    value = values[i * (S + SIDE - 1) + s + c]
                    total += value * weights[(i * R + j) * S + s]
            sums = put(sums, total, (A - j) % R * SIDE + c)
    return sums


@triton.jit(do_not_specialize=RUNTIME)
def depthwise(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    M, D, H, W, O, U, V, P, Q, K, multiplier, height, lo_d, lo_h, lo_w,
    o_magic, o_shift, u_magic, u_shift, v_magic, v_shift,
    x_n, x_d, x_h, x_w, x_c, w_0, w_t, w_r, w_s, w_k, y_n, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, TAPS: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
    PAIRS: tl.constexpr, SPREAD: tl.constexpr, SIDE: tl.constexpr, WIDE: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, TURN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    AHEAD: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute the rows of y of a tile of strips, from the pairs (x, w) and (x_2, w_2)."""
    x_n, x_d, x_h, x_w = strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    w_0, w_t, w_r, w_s = strides(w_0, w_t, w_r, w_s, VEC[1], WIDE)
    y_n, y_d, y_h, y_w = strides(y_n, y_d, y_h, y_w, VEC[2], WIDE)
    x_c, y_c = unit(x_c, UNIT[0], 1, WIDE), unit(y_c, UNIT[2], 1, WIDE)
    w_k, K = unit(w_k, UNIT[1], 1, WIDE), K * VEC[3]
    T: tl.constexpr = TAPS[0]
    R: tl.constexpr = TAPS[1]
    S: tl.constexpr = TAPS[2]
    READS: tl.constexpr = S + SIDE - 1  # at stride 1, SIDE columns share their loads
    columns = tl.cdiv(K, BK)
    first = tl.program_id(0) // columns * BM
    k = tl.program_id(0) % columns * BK + tl.arange(0, BK)  # (BK,)
    channel = k // multiplier if SPREAD else k

    strip = first + tl.arange(0, BM)  # (BM,)
    # Offsets count in 32 bits from the tile's first image.
    top, _, _, _ = pixel(first, O, U, V, o_magic, o_shift, u_magic, u_shift, v_magic, v_shift, RANK)
    n, o, u, v = pixel(strip, O, U, V, o_magic, o_shift, u_magic, u_shift, v_magic, v_shift, RANK)
    q, n, real, known = v * SIDE, n - top, strip < M, along(k < K, TURN)
    # The first output row of a strip.
    begin = u // DILATION[1] * (height * DILATION[1]) + u % DILATION[1]
    d, h, i_w = o * STRIDE[0] - lo_d, begin - lo_h, q * STRIDE[2] - lo_w
    on_d, on_w = (), ()
    for t in tl.static_range(T):
        on_d = on_d + (real & below(d + t * DILATION[0], D),)
    for s in tl.static_range(READS):
        on_w = on_w + (below(i_w + s * DILATION[2], W),)

    everywhere = across(strip * 0, TURN)  # gives values of a channel the layout of the tile
    known = known & (everywhere == 0)
    w_tile = along(k * w_k, TURN) + everywhere
    weights = load_filter(w, w_2, w_tile, known, w_0, w_t, w_r, w_s, T, R, S, PAIRS)
    vector = along(k, TURN) + everywhere
    if bias is not None:
        bias = tl.load(bias + vector, known, other=0.0).to(tl.float32)
    if scale is not None:
        scale = tl.load(scale + vector, known, other=0.0).to(tl.float32)
    if shift is not None:
        shift = tl.load(shift + vector, known, other=0.0).to(tl.float32)

    from_x = x + top.to(tl.int64) * x_n
    from_x_2 = from_x if PAIRS < 2 else x_2 + top.to(tl.int64) * x_n
    x_tile = across(n * x_n + d * x_d + h * x_h + i_w * x_w, TURN) + along(channel * x_c, TURN)
    to_y = top.to(tl.int64) * y_n
    y_tile = across(n * y_n + o * y_d + begin * y_h + q * y_w, TURN) + along(k * y_c, TURN)
    sums = ()
    for _ in tl.static_range(R * SIDE):
        sums = sums + (tl.zeros(known.shape, tl.float32),)
    LENGTH: tl.constexpr = R if AHEAD else 1  # rows; after R of them the sums are in place again
    for block in range(0, height + R - 1, LENGTH):
        rows = ()
        for a in tl.static_range(LENGTH if AHEAD else 0):
            row = read_row(
                from_x, from_x_2, x_tile, known, on_d, on_w, h, H, block + a, x_d, x_h, x_w,
                T, READS, DILATION, PAIRS, TURN,
            )  # fmt: skip
            rows = rows + (row,)
        for a in tl.static_range(LENGTH):
            if AHEAD:
                row = rows[a]
            else:
                row = read_row(
                    from_x, from_x_2, x_tile, known, on_d, on_w, h, H, block + a, x_d, x_h, x_w,
                    T, READS, DILATION, PAIRS, TURN,
                )  # fmt: skip
            sums = add_row(row, weights, sums, T, R, S, SIDE, PAIRS, a)
            up = block + a - (R - 1)  # the row, counted from the first, that is complete
            mine = real & (begin + up * DILATION[1] < P) & (up >= 0) & (up < height)
            for c in tl.static_range(SIDE):
                inside = across(mine & (q + c < Q), TURN) & known
                where = to_y + (up * DILATION[1]) * y_h + c * y_w + y_tile
                added = None
                if residual is not None:
                    added = tl.load(residual + where, inside, other=0.0).to(tl.float32)
                done = apply(sums[(a + 1) % R * SIDE + c], bias, scale, shift, added, ACTIVATION)
                tl.store(y + where, done.to(y.dtype.element_ty), inside)
                sums = put(sums, tl.zeros(known.shape, tl.float32), (a + 1) % R * SIDE + c)
        if not AHEAD:
            sums = sums[SIDE:] + sums[:SIDE]


def _rows(*sizes: tuple[int, int, int, int]) -> tuple[Tile, ...]:
    return tuple(
        Tile(bm, bn, height, 4, stages, side=side)
        for bm, bn, stages, side in sizes
        for height in (56, 28, 14, 7)
    )


# Strips, channels, rows of a strip; two stages load all rows of a turn at once.
LAST = TileTable(
    {
        "*": _rows(
            *((16, 64, 2, 1), (32, 32, 2, 1), (64, 16, 2, 1), (16, 64, 1, 2)),
            *((8, 64, 2, 1), (16, 32, 2, 1), (8, 64, 1, 1), (8, 64, 1, 2), (16, 32, 1, 2)),
            *((4, 64, 2, 1), (4, 64, 1, 2), (8, 32, 1, 2), (4, 64, 1, 1), (4, 32, 1, 2)),
            (4, 32, 1, 1),
        )
    }
)
FIRST = TileTable(
    {
        "*": _rows(
            *((128, 1, 2, 1), (64, 2, 2, 1), (32, 4, 2, 1), (16, 8, 2, 1), (8, 16, 2, 1)),
            *((32, 4, 1, 2), (16, 8, 1, 2), (8, 16, 1, 2), (32, 4, 1, 1), (8, 16, 1, 1)),
        )
    }
)
MOST_MULTIPLIER = 8  # results of one channel for which a product of matrices gains nothing
MOST_REGISTERS = 190  # of a thread for filter, sums and loaded elements


def depthwise_refusal(task: Task) -> str | None:
    shape = task.geometry
    if shape.big_channels != 1 or shape.small_channels > MOST_MULTIPLIER:
        return "not depthwise"
    if not (task.pairs and shape.small_channels):
        return "no products"
    if task.kind == "scatter" and (shape.stride != (1, 1, 1) or shape.small_channels > 1):
        return "an adjoint that strides or sums over channels"
    if shape.stride[1] > 1:
        return "strides along rows"
    if not depthwise_tiles(task):
        return f"{shape.taps * len(task.pairs)} taps, more than registers hold"
    return None


def depthwise_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles that serve a task: those whose elements fit into registers."""
    rows = (LAST if is_last(task) else FIRST).of(task)
    unit = task.geometry.stride[2] == task.geometry.dilation[2] == 1
    return tuple(
        row for row in rows if (unit or row.side == 1) and registers(task, row) <= MOST_REGISTERS
    )


def is_last(task: Task) -> bool:
    return all(is_channels_last(x) for x, _ in task.pairs)


def registers(task: Task, tile: Tile) -> int:
    (t, r, s), pairs = task.geometry.filter, len(task.pairs)
    rows = r if tile.stages > 1 else 1
    reads = rows * t * (s + tile.side - 1) * pairs * ITEMSIZE[task.dtype] / 4
    return math.ceil((t * r * s * pairs + r * tile.side + reads) * tile.per_thread)


def depthwise_work(task: Task, tile: Tile) -> Work:
    shape, (t, r, s), pairs = task.geometry, task.geometry.filter, len(task.pairs)
    o, p, q = shape.big if task.kind == "scatter" else shape.small
    channels = shape.groups * (1 if task.kind == "scatter" else shape.small_channels)
    each, height = tile.per_thread, min(tile.bk, p)
    reads = 8 * t * pairs * (s + tile.side - 1)
    writes = 3 * tile.side * each + (0 if is_last(task) else 32 * (tile.side - 1))
    steps = reads + writes + math.ceil(1.5 * t * r * s * pairs * tile.side * each)
    strips = shape.n * o * -(-p // height) * -(-q // tile.side)
    programs = -(-strips // tile.bm) * -(-channels // tile.bn)
    begun = 2 * t * r * s * pairs * each + 100
    return cost.thread_work(programs, (height + r - 1) * steps + begun, tile, reached=0.49)


def add_depthwise(task: Task, tile: Tile) -> None:
    pairs, y = same_strides(task), task.result()
    made = depthwise_launch(task.geometry, pairs, y, task.kind == "scatter", tile, task.epilogue(y))
    task.builder.steps.append(made)


def same_strides(task: Task) -> Pairs:
    """Return the pairs of a task, copied only where tensors of one side differ in their strides."""
    sides = []
    for side in zip(*task.pairs):
        order = channels_last(len(side[0].shape) - 2)
        differ = len({tensor.steps for tensor in side}) > 1
        sides.append([task.builder.copied(t, order) if differ else t for t in side])
    return tuple(zip(*sides))


def turned(geometry: Geometry) -> Geometry:
    """Return the Geometry of the adjoint of stride 1, as windows that slide over the small side."""
    d, h, w = (
        (taps - 1) * dilation - lo
        for taps, dilation, lo in zip(geometry.filter, geometry.dilation, geometry.lo)
    )
    return replace(
        geometry, big=geometry.small, small=geometry.big, lo=(d, h, w), flip=not geometry.flip
    )


def depthwise_launch(
    geometry: Geometry,
    pairs: Pairs,
    y: Tensor,
    scatter: bool,
    tile: Tile,
    epilogue: Epilogue = PLAIN,
) -> Launch:
    """Return the launch that computes y from at most two (x, w), of equal strides each.

    The geometry has one channel of the big side per group. Where y is the big side (`scatter`), it
    also has one of the small side, and the stride is 1.
    """
    (x, w), (x_2, w_2) = pairs[0], pairs[1] if len(pairs) > 1 else (None, None)
    geometry = turned(geometry) if scatter else geometry
    (o, p, q), dilation, multiplier = geometry.small, geometry.dilation, geometry.small_channels
    k, height = y.shape[1], min(tile.bk, -(-p // dilation[1]))
    down = -(-p // (height * dilation[1])) * dilation[1]
    side = -(-q // tile.side)
    strips = geometry.n * o * down * side
    first, _, *taps, _, _ = filter_steps(geometry, w, scatter)
    steps, vec = _in_vectors(x, y, (first, *taps), k, multiplier, w.steps[0])
    outputs = o, down, side, p, q, k // vec[3]
    sizes = (strips, *geometry.big, *outputs, multiplier, height, *geometry.lo)
    magic = divisors((o, down, side))
    tensors = {"x": x, "w": w, "x_2": x_2, "w_2": w_2, "y": y, **epilogue.tensors}
    given, absent = slots(tensors)
    span = max(t.image_span + images(tile, (o, down, side)) * abs(t.steps[0]) for t in (x, y))
    span += geometry.overhang(x)
    return Launch(
        depthwise,
        (-(-strips // tile.bm) * -(-k // tile.bn), 1, 1),
        given | dict(zip(RUNTIME, (*sizes, *magic, *steps))),
        absent
        | {
            "RANK": geometry.rank if geometry.rank == 3 else 2,
            "TAPS": geometry.filter,
            "STRIDE": geometry.stride,
            "DILATION": dilation,
            "PAIRS": len(pairs),
            "SPREAD": multiplier > 1,
            "SIDE": tile.side,
            "WIDE": span >= LIMIT or w.span >= LIMIT,
            "UNIT": (x.steps[1] == 1, w.steps[0] == 1, y.steps[1] == 1),
            "VEC": vec,
            "TURN": not is_channels_last(y),
            "BM": tile.bm,
            "BK": tile.bn,
            "AHEAD": tile.stages > 1,
            "ACTIVATION": epilogue.activation,
        },
        tile.warps,
        1,
    )


def images(tile: Tile, down: Three) -> int:
    """Return the most images that a tile may reach beyond its first."""
    return tile.bm // max(prod(down), 1) + 1


def _in_vectors(
    x: Tensor, y: Tensor, taps: tuple[int, ...], k: int, multiplier: int, w_k: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the kernel's strides, counted in vectors, and the width of (x, w, y, K)'s."""
    (x_n, x_c, *x_pixel), (y_n, y_c, *y_pixel) = x.steps, y.steps
    vec = tuple(vector(y.dtype, *steps) for steps in ((x_n, *x_pixel), taps, (y_n, *y_pixel), (k,)))
    moved = ((x_n, *x_pixel), taps, (y_n, *y_pixel))
    over = [[step // width for step in steps] for steps, width in zip(moved, vec)]
    return (*over[0], x_c, *over[1], w_k, *over[2], y_c), vec


SPEC = KernelSpec(
    "depthwise",
    serves=("gather", "scatter"),
    refusal=depthwise_refusal,
    tiles=depthwise_tiles,
    add=add_depthwise,
    kernels=(depthwise,),
    work=depthwise_work,
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(
        across_groups=True, loop=((473, 457, 457, 457), (474, 455, 455, 455), (456, 352, 352))
    ),
)
