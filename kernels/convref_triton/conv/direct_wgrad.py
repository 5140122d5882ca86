"""The filter cotangent of few channels a group: every thread keeps the sums of several taps.

dw[k, c, r] = sum over n and p of small[n, k, p] big[n, c, p * stride + r * dilation - lo]

A tile is BM strips by BK pairs (k, c). A strip is `height` rows of windows of one column; with
stride 1 a row of the big side is loaded once for RG windows. Taps are cut into groups of (RG, SG)
and strips into splits, whose sums go to a workspace that `reduce` adds in a fixed order.
"""

from math import prod

import triton
import triton.language as tl

from ..common.geometry import LIMIT, Geometry, Tensor, filter_steps
from ..common.index import across, along, below, divisors, pixel
from ..common.reduce import MANY, add_in_parts
from ..common.windows import strides, unit
from ..plan import archs, cost, lines
from ..plan.builder import channels_last, is_channels_last, slot, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile, TileTable
from .direct import direct_refusal

SIZES = "M D H W O U V E C each height steps rows_of_taps columns_of_taps lo_d lo_h lo_w"
MAGIC = "o_magic o_shift u_magic u_shift v_magic v_shift"
STEPS = "a_n a_d a_h a_w a_c b_n b_d b_h b_w b_c w_0 w_t w_r w_s w_k w_c w_z"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit
def read_taps(
    b, where, on, h, on_w, H, b_h, b_w,
    RG: tl.constexpr, SG: tl.constexpr, DILATION: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    """Return the elements that RG rows of SG taps read, as float32, one after the other."""
    values = ()
    for r in tl.static_range(RG):
        on_h = below(h + r * DILATION[1], H)
        for s in tl.static_range(SG):
            far = (r * DILATION[1]) * b_h + (s * DILATION[2]) * b_w
            inside = across(on_h & on_w[s], TURN) & on
            values = values + (tl.load(b + far + where, inside, other=0.0).to(tl.float32),)
    return values


@triton.jit(do_not_specialize=RUNTIME)
def direct_wgrad(
    a, b, w,
    M, D, H, W, O, U, V, E, C, each, height, steps, rows_of_taps, columns_of_taps,
    lo_d, lo_h, lo_w, o_magic, o_shift, u_magic, u_shift, v_magic, v_shift,
    a_n, a_d, a_h, a_w, a_c, b_n, b_d, b_h, b_w, b_c, w_0, w_t, w_r, w_s, w_k, w_c, w_z,
    RANK: tl.constexpr, TAPS: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
    RG: tl.constexpr, SG: tl.constexpr, ROLL: tl.constexpr, ALONE: tl.constexpr,
    WIDE: tl.constexpr, UNIT: tl.constexpr, VEC: tl.constexpr, TURN: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the sums of BK pairs of channels at RG x SG taps, over the strips of one split."""
    a_n, a_d, a_h, a_w = strides(a_n, a_d, a_h, a_w, VEC[0], WIDE)
    b_n, b_d, b_h, b_w = strides(b_n, b_d, b_h, b_w, VEC[1], WIDE)
    a_c, b_c, E = unit(a_c, UNIT[0], 1, WIDE), unit(b_c, UNIT[1], 1, WIDE), E * VEC[2]
    columns = tl.cdiv(E, BK)
    e = tl.program_id(0) % columns * BK + tl.arange(0, BK)  # (BK,)
    group = tl.program_id(0) // columns
    s_0, group = group % columns_of_taps * SG, group // columns_of_taps
    r_0, group = group % rows_of_taps * RG, group // rows_of_taps
    t, split = group % TAPS[0], group // TAPS[0]
    k, c, from_c = e, e * 0, e
    if not ALONE:
        k, c = e // C, e % C
        from_c = k // each * C + c

    sums = ()
    for _ in tl.static_range(RG * SG):
        sums = sums + (across(tl.zeros((BM,), tl.float32), TURN) + along(e * 0, TURN),)
    for step in range(split * steps, split * steps + steps):
        strip = step * BM + tl.arange(0, BM)  # (BM,)
        n, o, u, v = pixel(
            strip, O, U, V, o_magic, o_shift, u_magic, u_shift, v_magic, v_shift, RANK
        )
        d = o * STRIDE[0] + t * DILATION[0] - lo_d
        h = u * height * STRIDE[1] + r_0 * DILATION[1] - lo_h
        i_w = v * STRIDE[2] + s_0 * DILATION[2] - lo_w
        known = along(e < E, TURN) & across(strip < M, TURN)
        on_d = known & across(below(d, D), TURN)
        on_w = ()
        for s in tl.static_range(SG):
            on_w = on_w + (below(i_w + s * DILATION[2], W),)
        a_tile = across(n * a_n + o * a_d + u * height * a_h + v * a_w, TURN) + along(k * a_c, TURN)
        b_tile = across(n * b_n + d * b_d + h * b_h + i_w * b_w, TURN) + along(from_c * b_c, TURN)
        window = ()
        if ROLL:
            window = read_taps(b, b_tile, on_d, h, on_w, H, b_h, b_w, RG - 1, SG, DILATION, TURN)
        for i in range(height):
            small = tl.load(a + i * a_h + a_tile, known, other=0.0).to(tl.float32)
            if ROLL:
                down = i + RG - 1
                taps = window + read_taps(
                    b + down * b_h, b_tile, on_d, h + down, on_w, H, b_h, b_w,
                    1, SG, DILATION, TURN,
                )  # fmt: skip
                window = taps[SG:]
            else:
                down = i * STRIDE[1]
                taps = read_taps(
                    b + down * b_h, b_tile, on_d, h + down, on_w, H, b_h, b_w,
                    RG, SG, DILATION, TURN,
                )  # fmt: skip
            added = ()
            for j in tl.static_range(RG * SG):
                added = added + (sums[j] + small * taps[j],)
            sums = added

    to_w = w + split.to(tl.int64) * w_z + w_0 + t * w_t
    for j in tl.static_range(RG):
        for s in tl.static_range(SG):
            total = tl.sum(sums[j * SG + s], 1 if TURN else 0)  # (BK,)
            inside = (e < E) & (r_0 + j < TAPS[1]) & (s_0 + s < TAPS[2])
            where = (r_0 + j) * w_r + (s_0 + s) * w_s + k * w_k + c * w_c
            tl.store(to_w + where, total.to(w.dtype.element_ty), inside)


LAST = TileTable(  # strips, pairs of channels, rows of a strip
    {
        "*": (
            *(Tile(16, 32, 56), Tile(8, 64, 56), Tile(32, 16, 56), Tile(16, 64, 56)),
            *(Tile(4, 64, 56), Tile(8, 32, 56), Tile(16, 16, 56), Tile(16, 32, 14)),
            *(Tile(128, 1, 56), Tile(32, 4, 56)),
        )
    }
)
FIRST = TileTable(
    {
        "*": tuple(
            Tile(bm, bn, height)
            for bm, bn in ((128, 1), (64, 2), (32, 4), (16, 8))
            for height in (56, 14)
        )
    }
)
MOST_ROWS = 8  # of taps whose sums a strip keeps
MOST_SUMS = 80  # registers of a thread for sums of taps; as many hold loaded elements


def direct_wgrad_refusal(task: Task) -> str | None:
    if prod(task.builder.call.problem.shape(task.role)) >= LIMIT:
        return "2**31 elements of the filter or more"
    return direct_refusal(task)


def direct_wgrad_tiles(task: Task) -> tuple[Tile, ...]:
    last = all(is_channels_last(x) for pair in task.pairs for x in pair)
    return (LAST if last else FIRST).of(task)


def direct_wgrad_work(task: Task, tile: Tile) -> Work:
    shape, size = task.geometry, prod(task.builder.call.problem.shape(task.role))
    rows, (rg, sg, _, _) = strip_height(shape, tile), _groups(shape, tile)
    loads = rows * sg * (1 if _rolls(shape, rg) else rg) + rows
    instructions = 2 * loads + rows * rg * sg * tile.per_thread + 50  # of a block of strips
    made = cost.thread_work(_programs(shape, tile), instructions, tile, reached=0.12)
    made = made._replace(steps=-(-_strips(shape, tile)[0] // tile.bm))
    splits = _splits(shape, tile, size)
    return cost.in_parts(made, splits, 4 * size) if splits > 1 else made


def strip_height(shape: Geometry, tile: Tile) -> int:
    """Return the rows of a strip: a divisor of all rows, so that no strip leaves the image."""
    p = shape.small[1]
    return next(rows for rows in range(min(tile.bk, p), 0, -1) if p % rows == 0)


def add_direct_wgrad(task: Task, tile: Tile) -> None:
    a, b = task.pairs[0][:: -1 if task.builder.call.conv.transposed else 1]
    if is_channels_last(a) != is_channels_last(b):
        rank = len(b.shape) - 2
        order = channels_last(rank) if is_channels_last(a) else tuple(range(rank + 2))
        b = task.builder.copied(b, order)
    w = task.result()
    splits = _splits(task.geometry, tile, prod(w.shape))
    shape, pair = task.geometry, (a, b)
    add_in_parts(
        task.builder, w, splits,
        lambda part: direct_wgrad_launch(shape, pair, part, tile, splits), MANY,
    )  # fmt: skip


def _strips(geometry: Geometry, tile: Tile) -> tuple[int, int, int, int]:
    """Return how many strips there are, and of each image along (d, h, w)."""
    (o, p, q), rows = geometry.small, strip_height(geometry, tile)
    return geometry.n * o * (p // rows) * q, o, p // rows, q


def _groups(geometry: Geometry, tile: Tile) -> tuple[int, int, int, int]:
    """Return (RG, SG, groups of rows, groups of columns): the taps that a program has."""
    _, r, s = geometry.filter
    down = -(-r // MOST_ROWS)
    rows = -(-r // down)
    most = max(MOST_SUMS // (rows * tile.per_thread), 1)
    along_ = -(-s // most)
    return rows, -(-s // along_), down, along_


def _programs(geometry: Geometry, tile: Tile) -> int:
    """Return the number of programs of a split."""
    pairs = geometry.groups * geometry.small_channels * geometry.big_channels
    _, _, down, along_ = _groups(geometry, tile)
    return -(-pairs // tile.bn) * down * along_ * geometry.filter[0]


def _rolls(geometry: Geometry, rows: int) -> bool:
    """Return whether windows below each other share the rows that they read."""
    return geometry.stride[1] == geometry.dilation[1] == 1 and rows > 1


def _splits(geometry: Geometry, tile: Tile, size: int) -> int:
    """Return the number of splits of the sums, so that programs fill a GPU about four times."""
    blocks = -(-_strips(geometry, tile)[0] // tile.bm)
    wanted = -(-archs.SMS * archs.PER_SM // _programs(geometry, tile))
    wanted = max(min(wanted, blocks, cost.WORKSPACE // (4 * max(size, 1))), 1)
    return -(-blocks // -(-blocks // wanted)) if blocks else 1


def direct_wgrad_launch(
    geometry: Geometry, pair: tuple[Tensor, Tensor], w: Tensor, tile: Tile, splits: int = 1
) -> Launch:
    """Return the launch that computes w from (small side, big side), or its partial sums.

    With splits w is the first of as many consecutive ones.
    """
    a, b = pair
    strips, *along_image = _strips(geometry, tile)
    rows, columns, down, along_ = _groups(geometry, tile)
    c, each = geometry.big_channels, geometry.small_channels
    pairs = geometry.groups * c * each
    blocks = -(-strips // tile.bm)
    w_0, _, *w_taps, w_c, w_k = filter_steps(geometry, w, False)
    (a_n, a_c, *a_pixel), (b_n, b_c, *b_pixel) = a.steps, b.steps
    moves = ((a_n, *a_pixel), (b_n, *b_pixel), (pairs,))
    vec = tuple(vector(a.dtype, *move) for move in moves)
    over = [[step // width for step in move] for move, width in zip(moves, vec)]
    steps = -(-blocks // splits)
    sizes = (
        strips,
        *geometry.big,
        *along_image,
        *over[2],
        c,
        each,
        strip_height(geometry, tile),
        steps,
    )
    sizes += (down, along_, *geometry.lo, *divisors(along_image))
    sizes += (*over[0], a_c, *over[1], b_c, w_0, *w_taps, w_k, w_c, prod(w.shape))
    return Launch(
        direct_wgrad,
        (_programs(geometry, tile) * splits, 1, 1),
        {"a": slot(a), "b": slot(b), "w": slot(w)} | dict(zip(RUNTIME, sizes)),
        {
            "RANK": 3 if geometry.rank == 3 else 2,
            "TAPS": geometry.filter,
            "STRIDE": geometry.stride,
            "DILATION": geometry.dilation,
            "RG": rows,
            "SG": columns,
            "ROLL": _rolls(geometry, rows),
            "ALONE": c == each == 1,
            "WIDE": max(a.span, b.span) + geometry.overhang(a, b) >= LIMIT,
            "UNIT": (a_c == 1, b_c == 1),
            "VEC": vec,
            "TURN": not is_channels_last(a),
            "BM": tile.bm,
            "BK": tile.bn,
        },
        tile.warps,
        1,
    )


SPEC = KernelSpec(
    "direct_wgrad",
    serves=("correlate",),
    refusal=direct_wgrad_refusal,
    tiles=direct_wgrad_tiles,
    add=add_direct_wgrad,
    kernels=(direct_wgrad,),
    work=direct_wgrad_work,
    lines=lines.WGRAD,
    expects=Expectation(
        across_groups=True, loop=((364, 321, 321, 321), (362, 323, 323, 323), (178, 163, 163))
    ),
)
