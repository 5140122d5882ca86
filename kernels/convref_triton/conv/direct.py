"""The convolution of few channels a group, each sum of products in a thread of its own.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

A tile is BM pixels by BK channels of any groups: each channel reads its own group, so that groups
never mix. The adjoint is computed by classes of pixels that have the same taps, as in `gather`. It
is fast where channels are innermost.
"""

from math import prod

import triton
import triton.language as tl

from ..common import windows
from ..common.epilogue import finish
from ..common.geometry import LIMIT, Geometry, Tensor, filter_steps
from ..common.index import across, along, divisors
from ..depthwise.depthwise import is_last, same_strides
from ..plan import cost, lines
from ..plan.builder import is_channels_last, slots, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import PLAIN, Epilogue, Pairs, Task
from ..plan.tile import Tile, TileTable
from .gather import taps_met

SIZES = "M D H W O P Q OD OH OW C K each lo_d lo_h lo_w"
STEPS = "x_n x_d x_h x_w x_c w_0 w_t w_r w_s w_c w_g w_k y_n y_d y_h y_w y_c"
RUNTIME = (
    f"{SIZES} {windows.MAGIC} {STEPS}".split()
)  # not specialized: a new shape compiles nothing


@triton.jit(do_not_specialize=RUNTIME)
def direct(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    M, D, H, W, O, P, Q, OD, OH, OW, C, K, each, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_d, x_h, x_w, x_c, w_0, w_t, w_r, w_s, w_c, w_g, w_k, y_n, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, WINDOW: tl.constexpr, PAIRS: tl.constexpr,
    ALONE: tl.constexpr, SINGLE: tl.constexpr, WIDE: tl.constexpr, UNIT: tl.constexpr,
    VEC: tl.constexpr, TURN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of y, (BM pixels, BK channels), from the pairs (x, w) and (x_2, w_2)."""
    x_n, x_d, x_h, x_w = windows.strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    w_0, w_t, w_r, w_s = windows.strides(w_0, w_t, w_r, w_s, VEC[1], WIDE)
    y_n, y_d, y_h, y_w = windows.strides(y_n, y_d, y_h, y_w, VEC[2], WIDE)
    x_c, y_c, K = (
        windows.unit(x_c, UNIT[0], 1, WIDE),
        windows.unit(y_c, UNIT[2], 1, WIDE),
        K * VEC[3],
    )
    w_g, w_k, w_c = (
        windows.unit(w_g, UNIT[1], 1, WIDE),
        windows.unit(w_k, False, 1, WIDE),
        w_c * VEC[1],
    )
    columns = tl.cdiv(K, BK)
    tile_m = tl.program_id(0) // columns
    k = tl.program_id(0) % columns * BK + tl.arange(0, BK)  # (BK,)
    group, within = k, k * 0
    if not ALONE:
        group, within = k // each, k % each

    magic, sizes = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift), (D, H, W)
    rows, top, n, written, read, first, count = windows.rows_of(
        tile_m, tl.program_id(1), M, (O, P, Q), (lo_d, lo_h, lo_w), magic, RANK, WINDOW, BM
    )
    o, p, q = written
    i_d, i_h, i_w = read
    bits = windows.valid_taps(rows < M, read, sizes, WINDOW)
    everywhere = across(rows * 0, TURN)  # gives values of a channel the layout of the tile
    known = along(k < K, TURN) & (everywhere == 0)
    from_x = top.to(tl.int64) * x_n
    from_w = w_0 + first[0] * w_t + first[1] * w_r + first[2] * w_s
    channel = group * x_c if SINGLE else group * (x_c * C)
    x_tile = across(n * x_n + i_d * x_d + i_h * x_h + i_w * x_w, TURN) + along(channel, TURN)
    w_tile = along(group * w_g + within * w_k, TURN) + everywhere

    acc = tl.zeros(known.shape, tl.float32)
    pair, t, r, s, c = 0, 0, 0, 0, 0
    for _ in range(PAIRS * count[0] * count[1] * count[2] * C):
        here = (t * WINDOW.move[0]) * x_d + (r * WINDOW.move[1]) * x_h + (s * WINDOW.move[2]) * x_w
        there = (t * WINDOW.step[0]) * w_t + (r * WINDOW.step[1]) * w_r + (s * WINDOW.step[2]) * w_s
        if not SINGLE:
            here, there = here + c * x_c, there + c * w_c
        on = windows.is_valid(rows < M, bits, t, r, s, read, sizes, WINDOW)
        left, right = x, w
        if PAIRS == 2:
            left, right = tl.where(pair == 0, x, x_2), tl.where(pair == 0, w, w_2)
        a = tl.load(left + from_x + here + x_tile, across(on, TURN) & known, other=0.0)
        b = tl.load(right + from_w + there + w_tile, known, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)
        pair, t, r, s, c = windows.advance(pair, t, r, s, c + 1, C, count, WINDOW, PAIRS)

    inside = across((rows < M) & (o < OD) & (p < OH) & (q < OW), TURN) & known
    vector = along(k, TURN) + everywhere
    to_y = top.to(tl.int64) * y_n
    y_tile = across(n * y_n + o * y_d + p * y_h + q * y_w, TURN) + along(k * y_c, TURN)
    acc = finish(
        acc, bias, scale, shift, residual, vector, known, to_y + y_tile, inside, ACTIVATION
    )
    tl.store(y + to_y + y_tile, acc.to(y.dtype.element_ty), inside)


LAST = TileTable(  # pixels and channels
    {
        "*": (
            *(Tile(16, 64, 1), Tile(32, 32, 1), Tile(64, 16, 1), Tile(8, 128, 1)),
            *(Tile(128, 8, 1), Tile(32, 4, 1), Tile(16, 8, 1), Tile(64, 2, 1), Tile(128, 1, 1)),
        )
    }
)
FIRST = TileTable(
    {
        "*": (
            *(Tile(128, 1, 1), Tile(64, 2, 1), Tile(32, 4, 1), Tile(16, 8, 1)),
            *(Tile(256, 1, 1, 8), Tile(128, 8, 1)),
        )
    }
)
MOST_CHANNELS = 8  # of a group on either side, which leave most of a product of matrices empty


def direct_refusal(task: Task) -> str | None:
    shape = task.geometry
    if not task.pairs:
        return "no products"
    if shape.groups == 1 and shape.big_channels > 1:
        return "one group"
    if max(task.geometry.small_channels, task.geometry.big_channels) > MOST_CHANNELS:
        return f"more than {MOST_CHANNELS} channels per group"
    return None


def direct_work(task: Task, tile: Tile) -> Work:
    columns = -(-task.geometry.groups * task.channels[1] // tile.bn)
    programs = -(-task.rows // tile.bm) * columns * task.classes
    terms = len(task.pairs) * taps_met(task.geometry, task.scatters) * task.channels[0]
    of_term = 12 + tile.per_thread  # instructions: addresses, loads, sums
    return cost.thread_work(programs, terms * of_term + 100, tile, reached=0.3)


def add_direct(task: Task, tile: Tile) -> None:
    pairs, y = tuple((x, _near(task, w)) for x, w in same_strides(task)), task.result()
    if is_channels_last(y) and task.channels == (1, 1):
        pairs = tuple((x, _packed(task, w)) for x, w in pairs)
    made = direct_launch(task.geometry, pairs, y, task.kind == "scatter", tile, task.epilogue(y))
    task.builder.steps.append(made)


def _near(task: Task, w: Tensor) -> Tensor:
    """Return w, a copy where its reduced channels span 2**31 elements.

    The kernel multiplies their stride in 32 bits.
    """
    *_, w_c, _ = filter_steps(task.geometry, w, task.kind == "scatter")
    far = (task.channels[0] - 1) * abs(w_c) >= LIMIT
    return task.builder.copied(w, tuple(range(len(w.shape)))) if far else w


def _packed(task: Task, w: Tensor) -> Tensor:
    """Return w with its first axis innermost, so that threads read filters as they read pixels."""
    order = (*range(1, len(w.shape)), 0)
    return w if w.steps[0] == 1 else task.builder.copied(w, order)


def direct_launch(
    geometry: Geometry,
    pairs: Pairs,
    y: Tensor,
    scatter: bool,
    tile: Tile,
    epilogue: Epilogue = PLAIN,
) -> Launch:
    """Return the launch that computes y from at most two (x, w), of equal strides each.

    `scatter` is whether y is the big side.
    """
    (x, w), (x_2, w_2) = pairs[0], pairs[1] if len(pairs) > 1 else (None, None)
    read, written = geometry.big, geometry.small
    c, each = geometry.big_channels, geometry.small_channels
    if scatter:
        read, written, c, each = written, read, each, c
    classes = geometry.stride if scatter else windows.ONES
    pixels = tuple(-(-size // stride) for size, stride in zip(written, classes))
    rows, k = geometry.n * prod(pixels), geometry.groups * each
    w_0, w_g, *w_taps, w_c, w_k = filter_steps(geometry, w, scatter)
    w_c = w_c if c > 1 else 0
    (x_n, x_c, *x_pixel), (y_n, y_c, *y_pixel) = x.steps, y.steps
    moves = ((x_n, *x_pixel), (w_0, *w_taps, w_c), (y_n, *y_pixel), (k,))
    vec = tuple(vector(y.dtype, *move) for move in moves)
    over = [[step // width for step in move] for move, width in zip(moves, vec)]
    sizes = (rows, *read, *pixels, *written, c, *over[3], each, *geometry.lo)
    magic = divisors(pixels)
    steps = (*over[0], x_c, *over[1], w_g, w_k, *over[2], y_c)
    tensors = {"x": x, "w": w, "x_2": x_2, "w_2": w_2, "y": y, **epilogue.tensors}
    given, absent = slots(tensors)
    far = tile.bm // max(prod(pixels), 1) + 1  # images that a tile may reach beyond its first
    span = max(t.image_span + far * abs(t.steps[0]) for t in (x, y))
    return Launch(
        direct,
        (-(-rows // tile.bm) * -(-k // tile.bn), prod(classes), 1),
        given | dict(zip(RUNTIME, (*sizes, *magic, *steps))),
        absent
        | {
            "RANK": geometry.rank,
            "WINDOW": windows.window(geometry, scatter),
            "PAIRS": len(pairs),
            "ALONE": each == 1,
            "SINGLE": c == 1,
            "WIDE": max(span + geometry.overhang(x, y), w.span) >= LIMIT,
            "UNIT": (x_c == 1, each == w_g == 1, y_c == 1),
            "VEC": vec,
            "TURN": not is_channels_last(y),
            "BM": tile.bm,
            "BK": tile.bn,
            "ACTIVATION": epilogue.activation,
        },
        tile.warps,
        1,
    )


SPEC = KernelSpec(
    "direct",
    serves=("gather", "scatter"),
    refusal=direct_refusal,
    tiles=lambda task: (LAST if is_last(task) else FIRST).of(task),
    add=add_direct,
    kernels=(direct,),
    work=direct_work,
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(
        across_groups=True, loop=((160, 150, 150, 150), (161, 149, 149, 149), (130, 78, 78))
    ),
)
