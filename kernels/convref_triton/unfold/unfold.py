"""The windows of an image as columns, and their adjoint, the image whose columns are added up.

cols[n, c * R + r, p] = x[n, c, p * stride + r * dilation - lo]          zero where there is no x

x[n, c, i] = sum over (r, p) with p * stride + r * dilation - lo = i of cols[n, c * R + r, p]

A tile is BM pixels by BK channels: of the columns, whose taps follow one another in a loop so that
what they share of x is read from a cache, or of x. There each class of pixels that are congruent
modulo the stride has the same taps, as in `gather`, and adds what it gathers in float32: each
pixel is written once, by one program.
"""

from math import prod

import triton
import triton.language as tl

from ..common.geometry import LIMIT, Geometry, Tensor
from ..common.index import divisors
from ..common.windows import MAGIC, ONES, is_valid, rows_of, strides, unit, window
from ..plan import archs, lines
from ..plan.builder import is_channels_last, slot, vector
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Change, Tile, TileTable

SIZES = "M D H W O P Q OD OH OW C lo_d lo_h lo_w"
STEPS = "x_n x_d x_h x_w x_c y_n y_d y_h y_w y_c y_r"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit(do_not_specialize=RUNTIME)
def unfold(
    x, y, M, D, H, W, O, P, Q, OD, OH, OW, C, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_d, x_h, x_w, x_c, y_n, y_d, y_h, y_w, y_c, y_r,
    RANK: tl.constexpr, WINDOW: tl.constexpr, WIDE: tl.constexpr, UNIT: tl.constexpr,
    VEC: tl.constexpr, RUN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Copy BM pixels of BK channels at every tap; the columns y have taps along y_r."""
    image_x, image_y = x_n.to(tl.int64) * VEC[0], y_n.to(tl.int64) * VEC[1]
    x_n, x_d, x_h, x_w = strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    y_n, y_d, y_h, y_r = strides(y_n, y_d, y_h, y_r, VEC[1], WIDE)
    x_c, y_w = unit(x_c, UNIT[0], 1, WIDE), unit(y_w, UNIT[1], 1, WIDE)
    y_c, C = unit(y_c, False, VEC[1], WIDE), C * VEC[2]
    columns = tl.cdiv(C, BK)
    magic = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    rows, top, n, written, read, _, _ = rows_of(
        tl.program_id(0) // columns, 0, M, (O, P, Q), (lo_d, lo_h, lo_w), magic, RANK, WINDOW, BM
    )
    o, p, q = written
    d, h, w = read
    c = tl.program_id(0) % columns * BK + tl.arange(0, BK)  # (BK,)
    known = (c < C)[:, None]
    from_x = x + top.to(tl.int64) * image_x
    to_y = y + top.to(tl.int64) * image_y
    x_tile = (c * x_c)[:, None] + (n * x_n + d * x_d + h * x_h + w * x_w)[None, :]
    pixels = n * y_n + o * y_d + p * y_h + q * y_w
    if UNIT[1]:  # runs of contiguous pixels of one image
        pixels = tl.max_contiguous(tl.multiple_of(pixels, [RUN]), [RUN])
    y_tile = (c * y_c)[:, None] + pixels[None, :]
    stored = tl.max_constancy(rows < M, [RUN])
    TAPS: tl.constexpr = WINDOW.taps
    S: tl.constexpr = TAPS[2]
    RS: tl.constexpr = TAPS[1] * S
    for tap in range(TAPS[0] * RS):
        t, r, s = tap // RS, tap // S % TAPS[1], tap % S
        here = (t * WINDOW.move[0]) * x_d + (r * WINDOW.move[1]) * x_h + (s * WINDOW.move[2]) * x_w
        on = is_valid(rows < M, 0, t, r, s, read, (D, H, W), WINDOW)
        value = tl.load(from_x + here + x_tile, on[None, :] & known, other=0.0)  # (BK, BM)
        tl.store(to_y + tap * y_r + y_tile, value, stored[None, :] & known)


@triton.jit(do_not_specialize=RUNTIME)
def fold(
    x, y, M, D, H, W, O, P, Q, OD, OH, OW, C, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_d, x_h, x_w, x_c, y_n, y_d, y_h, y_w, y_c, y_r,
    RANK: tl.constexpr, WINDOW: tl.constexpr, WIDE: tl.constexpr, UNIT: tl.constexpr,
    VEC: tl.constexpr, RUN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Add up BM pixels of one class and BK channels of x from the columns y."""
    image_x, image_y = x_n.to(tl.int64) * VEC[0], y_n.to(tl.int64) * VEC[1]
    x_n, x_d, x_h, x_w = strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    y_n, y_d, y_h, y_r = strides(y_n, y_d, y_h, y_r, VEC[1], WIDE)
    x_c, y_w = unit(x_c, UNIT[0], 1, WIDE), unit(y_w, UNIT[1], 1, WIDE)
    y_c, C = unit(y_c, False, VEC[1], WIDE), C * VEC[2]
    columns = tl.cdiv(C, BK)
    magic = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    rows, top, n, written, read, first, count = rows_of(
        tl.program_id(0) // columns, tl.program_id(1), M, (O, P, Q), (lo_d, lo_h, lo_w), magic,
        RANK, WINDOW, BM,
    )  # fmt: skip
    o, p, q = written
    d, h, w = read
    first_t, first_r, first_s = first
    count_t, count_r, count_s = count
    c = tl.program_id(0) % columns * BK + tl.arange(0, BK)  # (BK,)
    known = (c < C)[:, None]
    from_y = y + top.to(tl.int64) * image_y
    y_tile = (c * y_c)[:, None] + (n * y_n + d * y_d + h * y_h + w * y_w)[None, :]
    STEP: tl.constexpr = WINDOW.step
    acc = tl.zeros((BK, BM), tl.float32)
    for tap in range(count_t * count_r * count_s):
        t, r, s = tap // (count_r * count_s), tap // count_s % count_r, tap % count_s
        on = is_valid(rows < M, 0, t, r, s, read, (D, H, W), WINDOW)
        here = (t * WINDOW.move[0]) * y_d + (r * WINDOW.move[1]) * y_h + (s * WINDOW.move[2]) * y_w
        t, r, s = first_t + t * STEP[0], first_r + r * STEP[1], first_s + s * STEP[2]
        here += ((t * WINDOW.filter[1] + r) * WINDOW.filter[2] + s) * y_r
        acc += tl.load(from_y + here + y_tile, on[None, :] & known, other=0.0).to(tl.float32)
    to_x = x + top.to(tl.int64) * image_x
    x_tile = (c * x_c)[:, None] + (n * x_n + o * x_d + p * x_h + q * x_w)[None, :]
    inside = (rows < M) & (o < OD) & (p < OH) & (q < OW)
    tl.store(to_x + x_tile, acc.to(x.dtype.element_ty), inside[None, :] & known)


UNFOLD = TileTable(  # pixels, channels
    {"*": (Tile(256, 8, 1), Tile(128, 8, 1), Tile(256, 2, 1), Tile(128, 1, 1))},
    changes=(Change("sm_8", "f16 bf16", Tile(256, 2, 1), instead=Tile(256, 2, 1, 8)),),
)
UNFOLD_LAST = TileTable(
    {"*": (Tile(64, 32, 1), Tile(32, 64, 1), Tile(64, 16, 1), Tile(32, 16, 1), Tile(128, 4, 1))}
)
FOLD = TileTable({"*": (Tile(256, 4, 1), Tile(128, 4, 1), Tile(256, 1, 1), Tile(128, 1, 1))})


def unfold_tiles(task: Task) -> tuple[Tile, ...]:
    if task.kind == "fold":
        return FOLD.of(task)
    return (UNFOLD_LAST if is_channels_last(task.added) else UNFOLD).of(task)


def unfold_tile(task: Task) -> Tile:
    """Return the first tile with enough programs to fill a GPU, else the smallest."""
    channels = task.geometry.groups
    rows = unfold_tiles(task)

    def count(tile: Tile) -> int:
        return -(-task.rows // tile.bm) * -(-channels // tile.bn) * task.classes

    enough = [tile for tile in rows if count(tile) >= archs.SMS * archs.PER_SM]
    return enough[0] if enough else max(rows, key=count)


def add_unfold(task: Task, tile: Tile) -> None:
    call = task.builder.call
    shape = call.problem.shape(task.role)
    result = task.builder.new(task.role, shape, tuple(range(len(shape))), task.dtype)
    x, cols = (task.added, result) if task.kind == "unfold" else (result, task.added)
    made = unfold_launch(task.geometry, x, cols, task.kind == "fold", tile)
    task.builder.steps.append(made)


def unfold_launch(geometry: Geometry, x: Tensor, cols: Tensor, folds: bool, tile: Tile) -> Launch:
    read, written = (geometry.small, geometry.big) if folds else (geometry.big, geometry.small)
    classes = geometry.stride if folds else ONES
    pixels = tuple(-(-size // stride) for size, stride in zip(written, classes))
    rows, c = geometry.n * prod(pixels), geometry.groups
    x_n, x_c, *x_pixel = x.steps
    y_n, y_r, _, _, y_w = cols.steps
    y_h = y_w * geometry.small[2]
    y_moves = (y_n, y_h * geometry.small[1], y_h)
    shape, strides = (*cols.shape[:2], *geometry.small), (y_n, y_r, *y_moves[1:], y_w)
    pixels_of_cols = cols._replace(shape=shape, strides=strides)
    moves = (x_n, *x_pixel), (*y_moves, y_r), (c,)
    vec = tuple(vector(x.dtype, *move) for move in moves)
    numbers = (rows, *read, *pixels, *written, c // vec[2], *geometry.lo)
    numbers += divisors(pixels)
    numbers += (*(step // vec[0] for step in (x_n, *x_pixel)), x_c)
    numbers += (*(step // vec[1] for step in y_moves), y_w)
    numbers += (y_r * geometry.taps // vec[1], y_r // vec[1])
    far = tile.bm // max(prod(pixels), 1) + 1  # images that a tile may reach beyond its first
    span = max(t.image_span + far * abs(t.steps[0]) for t in (x, cols))
    run = vector(x.dtype, prod(geometry.small), y_n, y_r) if y_w == 1 else 1
    return Launch(
        fold if folds else unfold,
        (-(-rows // tile.bm) * -(-c // tile.bn), prod(classes), 1),
        {"x": slot(x), "y": slot(cols)} | dict(zip(RUNTIME, numbers)),
        {
            "RANK": geometry.rank,
            "WINDOW": window(geometry, folds)._replace(bits=0),
            "WIDE": span + geometry.overhang(pixels_of_cols if folds else x) >= LIMIT,
            "UNIT": (x_c == 1, y_w == 1),
            "VEC": vec,
            "RUN": 1 if folds else run,
            "BM": tile.bm,
            "BK": tile.bn,
        },
        tile.warps,
        tile.stages,
    )


SPEC = KernelSpec(
    "unfold",
    serves=("unfold", "fold"),
    refusal=lambda task: None,
    tiles=unfold_tiles,
    add=add_unfold,
    kernels=(unfold, fold),
    choose=unfold_tile,
    ops=("unfold", "fold"),
    lines=lines.UNFOLD,
)
