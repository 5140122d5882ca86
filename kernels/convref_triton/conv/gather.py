"""The convolution of a window with a filter, as a matrix product that gathers its left side.

y[n, k, p] = sum over taps r and channels c of x[n, c, p * stride + r * dilation - lo] w[k, c, r]

Rows are output pixels, columns output channels, and the reduction runs over taps and channels, a
block of channels of one tap at a time; the im2col matrix is never formed. The adjoint (dx of a
convolution, y of a transposed one) is the same product once for each class of pixels that are
congruent modulo the stride: they have the same taps, `index.taps_of`, and gather with stride 1.
A second pair of operands, as derivatives have it, doubles the reduction.
"""

from math import prod

import triton
import triton.language as tl

from ..common import windows
from ..common.epilogue import finish
from ..common.geometry import ITEMSIZE, LIMIT, Geometry, Tensor, filter_steps, merge
from ..common.index import divisors, tile_of
from ..plan import cost, lines
from ..plan.builder import slots, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import PLAIN, Epilogue, Task
from ..plan.tile import Change, Tile, TileTable, tiles

SIZES = "M D H W O P Q OD OH OW C K lo_d lo_h lo_w"
STEPS = "x_n x_g x_d x_h x_w x_c w_0 w_g w_t w_r w_s w_c w_k y_n y_g y_d y_h y_w y_c"
RUNTIME = (
    f"{SIZES} {windows.MAGIC} {STEPS}".split()
)  # not specialized: a new shape compiles nothing
PARTS = ["steps", "y_z"]


@triton.jit
def place(index, blocks, count, BK: tl.constexpr):
    """Return the (pair, t, r, s, c) that `advance` has reached after `index` steps."""
    c, index = index % blocks * BK, index // blocks
    count_t, count_r, count_s = (
        tl.maximum(count[0], 1), tl.maximum(count[1], 1), tl.maximum(count[2], 1)
    )  # fmt: skip
    s, index = index % count_s, index // count_s
    r, index = index % count_r, index // count_r
    return index // count_t, index % count_t, r, s, c


@triton.jit
def in_elements(x, w, y, C, K, UNIT: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr):
    """Return the strides of x, w and y, C and K in elements; those of images and groups are int64.

    They come in vectors: the compiler infers divisibility from a product only.
    """
    x_n, x_g, x_d, x_h, x_w, x_c = x
    w_0, w_g, w_t, w_r, w_s, w_c, w_k = w
    y_n, y_g, y_d, y_h, y_w, y_c = y
    image_x, image_y = x_n.to(tl.int64) * VEC[0], y_n.to(tl.int64) * VEC[2]
    group_x, group_y = x_g.to(tl.int64) * VEC[0], y_g.to(tl.int64) * VEC[2]
    x_n, x_d, x_h, x_w = windows.strides(x_n, x_d, x_h, x_w, VEC[0], WIDE)
    w_0, w_t, w_r, w_s = windows.strides(w_0, w_t, w_r, w_s, VEC[1], WIDE)
    y_n, y_d, y_h, y_w = windows.strides(y_n, y_d, y_h, y_w, VEC[2], WIDE)
    group_w, C, K = w_g.to(tl.int64) * VEC[1], C * VEC[3], K * VEC[4]
    x_c, y_c = windows.unit(x_c, UNIT[0], 1, WIDE), windows.unit(y_c, UNIT[2], 1, WIDE)
    w_c, w_k = (
        windows.unit(w_c, UNIT[1] == 1, VEC[1], WIDE),
        windows.unit(w_k, UNIT[1] == 2, VEC[1], WIDE),
    )
    return (
        (image_x, group_x, x_n, x_d, x_h, x_w, x_c),
        (w_0, group_w, w_t, w_r, w_s, w_c, w_k),
        (image_y, group_y, y_n, y_d, y_h, y_w, y_c),
        C,
        K,
    )


@triton.jit
def store_tile(
    acc, y, bias, scale, shift, residual, rows, M, top, n, written, sizes, outs, K, group, part,
    steps, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Store a tile of y after its epilogue; a part of a sum begins at `part`."""
    o, p, q = written
    OD, OH, OW = sizes
    known = outs < K
    inside = ((rows < M) & (o < OD) & (p < OH) & (q < OW))[:, None] & known[None, :]
    image_y, group_y, y_n, y_d, y_h, y_w, y_c = steps
    tile = (n * y_n + o * y_d + p * y_h + q * y_w)[:, None] + (outs * y_c)[None, :]
    to_y = top * image_y + group * group_y + part
    channel, where = group * K + outs, to_y + tile
    acc = finish(acc, bias, scale, shift, residual, channel, known, where, inside, ACTIVATION)
    tl.store(y + to_y + tile, acc.to(y.dtype.element_ty), inside)


@triton.jit
def multiply(
    tensors, first, tiles, real, known, C, left_over, place, bits, read, sizes, count, x_steps,
    w_steps, low, high,
    WINDOW: tl.constexpr, PAIRS: tl.constexpr, INSIDE: tl.constexpr, WHOLE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the sums (BM, BN) of `left_over` steps from `place` = (pair, t, r, s, c) on.

    Channels of x that are not from `low` to `high` are taken as zero.
    """
    MOVE: tl.constexpr = WINDOW.move
    STEP: tl.constexpr = WINDOW.step
    x, w, x_2, w_2 = tensors
    _, _, _, x_d, x_h, x_w, x_c = x_steps
    _, _, w_t, w_r, w_s, w_c, _ = w_steps
    pair, t, r, s, c = place
    cols = tl.arange(0, BK)  # (BK,)
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(left_over):
        here = (t * MOVE[0]) * x_d + (r * MOVE[1]) * x_h + (s * MOVE[2]) * x_w + c * x_c
        there = (t * STEP[0]) * w_t + (r * STEP[1]) * w_r + (s * STEP[2]) * w_s + c * w_c
        on_x, on_w = real[:, None], known[None, :]
        if not INSIDE:
            on_x = windows.is_valid(real, bits, t, r, s, read, sizes, WINDOW)[:, None]
        if not WHOLE:
            on_x &= (c + cols < C)[None, :]
            on_w &= (c + cols < C)[:, None]
        if high is not None:
            on_x &= ((c + cols >= low) & (c + cols < high))[None, :]
        left, right = x, w
        if PAIRS == 2:
            left, right = tl.where(pair == 0, x, x_2), tl.where(pair == 0, w, w_2)
        a = tl.load(left + first[0] + here + tiles[0], on_x, other=0.0)  # (BM, BK)
        b = tl.load(right + first[1] + there + tiles[1], on_w, other=0.0)  # (BK, BN)
        if a.dtype.is_fp8():  # tensor cores keep few bits of a sum: add each step's in float32
            acc += tl.dot(a, b, max_num_imprecise_acc=BK)
        else:
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        pair, t, r, s, c = windows.advance(pair, t, r, s, c + BK, C, count, WINDOW, PAIRS)
    return acc


@triton.jit(do_not_specialize=RUNTIME + PARTS)
def gather(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    M, D, H, W, O, P, Q, OD, OH, OW, C, K, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_g, x_d, x_h, x_w, x_c, w_0, w_g, w_t, w_r, w_s, w_c, w_k, y_n, y_g, y_d, y_h, y_w, y_c,
    steps, y_z,
    RANK: tl.constexpr, WINDOW: tl.constexpr, PAIRS: tl.constexpr,
    INSIDE: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Compute a tile of y, (BM pixels, BN channels), from the pairs (x, w) and (x_2, w_2)."""
    x_steps, w_steps, y_steps, C, K = in_elements(
        (x_n, x_g, x_d, x_h, x_w, x_c), (w_0, w_g, w_t, w_r, w_s, w_c, w_k),
        (y_n, y_g, y_d, y_h, y_w, y_c), C, K, UNIT, VEC, WIDE,
    )  # fmt: skip
    image_x, group_x, x_n, x_d, x_h, x_w, x_c = x_steps
    w_0, group_w, w_t, w_r, w_s, w_c, w_k = w_steps
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(K, BN), BAND)
    group, e, split = tl.program_id(1), tl.program_id(2), 0
    if SPLIT:  # each part of the reduction has a result of its own
        S: tl.constexpr = WINDOW.stride
        CLASSES: tl.constexpr = S[0] * S[1] * S[2] if WINDOW.scatter else 1
        split, e = e // CLASSES, e % CLASSES
    magic, sizes = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift), (D, H, W)
    rows, top, n, written, read, first, count = windows.rows_of(
        tile_m, e, M, (O, P, Q), (lo_d, lo_h, lo_w), magic, RANK, WINDOW, BM
    )
    i_d, i_h, i_w = read
    bits = windows.valid_taps(rows < M, read, sizes, WINDOW)

    cols = tl.arange(0, BK)  # (BK,)
    outs = tile_n * BN + tl.arange(0, BN)  # (BN,)
    from_x = top * image_x + group * group_x
    from_w = group * group_w + w_0 + first[0] * w_t + first[1] * w_r + first[2] * w_s
    x_tile = (n * x_n + i_d * x_d + i_h * x_h + i_w * x_w)[:, None] + (cols * x_c)[None, :]
    known = outs < K
    w_tile = (cols * w_c)[:, None] + (outs * w_k)[None, :]

    pair, t, r, s, c = 0, 0, 0, 0, 0
    left_over = PAIRS * count[0] * count[1] * count[2] * tl.cdiv(C, BK)
    if SPLIT:
        pair, t, r, s, c = place(split * steps, tl.cdiv(C, BK), count, BK)
        left_over = tl.minimum(left_over - split * steps, steps)
    acc = multiply(
        (x, w, x_2, w_2), (from_x, from_w), (x_tile, w_tile), rows < M, known, C, left_over,
        (pair, t, r, s, c), bits, read, sizes, count, x_steps, w_steps, 0, None,
        WINDOW, PAIRS, INSIDE, WHOLE, BM, BN, BK, PRECISION,
    )  # fmt: skip

    part = 0
    if SPLIT:
        part = split.to(tl.int64) * y_z
    store_tile(
        acc, y, bias, scale, shift, residual, rows, M, top, n, written, (OD, OH, OW), outs, K,
        group, part, y_steps, ACTIVATION,
    )  # fmt: skip


IEEE = tiles(  # float32 on the ordinary cores
    "128x64x16 w8 s3, 64x64x16 w4 s3, 64x32x16 w4 s3, 32x32x16 w4 s3"
)
FEW = 16  # columns of a tile of which narrow stores do not spill
TF32 = tiles("128x128x32 w8 s4, 128x64x32 w4 s4, 64x64x32 w4 s4, 64x32x32 w4 s3")
TILES = TileTable(
    {
        "f16 bf16": tiles(
            "128x128x64 w8 s4, 128x64x64 w4 s4, 64x128x64 w4 s4, 64x64x64 w4 s4, "
            "128x256x64 w8 s3, 256x128x64 w8 s3, 128x32x64 w4 s4, 64x32x32 w4 s4, "
            # Sums of few steps: with few stages more tiles are resident.
            "64x64x32 w4 s4, 32x32x32 w4 s3, 128x128x64 w8 s2, 128x64x64 w4 s2, "
            "256x32x32 w8 s2, 128x32x32 w4 s2, "
            # Few channels of the result.
            "256x32x64 w8 s3, 128x16x64 w4 s4, 256x16x32 w8 s4, 128x16x32 w4 s4, 256x16x16 w8 s4, "
            # Few tiles: a step takes as long as a load, however deep it is.
            "32x32x256 w4 s3, 64x32x128 w4 s4, 64x64x128 w4 s4"
        ),
        "ieee": IEEE,
        "tf32": TF32,
        "tf32x3": (Tile(128, 64, 32, 8, 4), *TF32[2:]),  # four warps would spill
    },
    short={
        "f16 bf16": (Tile(64, 64, 32, 4, 4), Tile(64, 32, 32, 4, 4), Tile(32, 32, 32, 4, 3)),
        "tf32": (TF32[0], TF32[2]),
        "tf32x3": TF32[2:],
    },
    tallest=128,
    blocks=1,
    changes=(  # mma.sync takes both operands from registers, and wgmma neither
        Change("sm_8", "f16 bf16", Tile(256, 128, 64, 8, 3)),
        Change("sm_8", "f16 bf16", Tile(128, 256, 64, 8, 3), below=16),
        Change("sm_8", "f16 bf16", Tile(128, 64, 64, 4, 2)),
        Change("sm_9", "f16 bf16", Tile(128, 64, 64, 4, 2), below=16),
        Change("", "f16 bf16", Tile(32, 32, 256, 4, 3), below=16),
        Change("", "f16 bf16", Tile(64, 64, 128, 4, 4), below=16),
        Change("gfx", "f16 bf16", Tile(32, 32, 256, 4, 3)),
        Change("sm_8", "f16 bf16", Tile(64, 32, 32, 4, 4), 8, Tile(64, 32, 32, 8, 4)),
        Change("sm_8", "tf32", Tile(128, 128, 32, 8, 4), below=8),
        Change("sm_8", "tf32 tf32x3", Tile(64, 32, 32, 4, 3), instead=Tile(64, 32, 32, 8, 3)),
        Change("sm_8", "tf32x3", Tile(64, 64, 32, 4, 4), instead=Tile(64, 64, 32, 8, 4)),
    ),
)


def gather_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles that serve a task: where stores alone are narrow, narrow ones besides."""
    rows = TILES.of(task, task.width)
    if task.load_width > task.width:
        rows += tuple(tile for tile in TILES.of(task, task.load_width) if tile.bn <= FEW)
    return tuple(dict.fromkeys(rows))


def gather_tile_count(task: Task, tile: Tile) -> int:
    return -(-task.rows // tile.bm) * -(-task.channels[1] // tile.bn) * task.copies


def gather_steps(task: Task, tile: Tile) -> int:
    taps = taps_met(task.geometry, task.scatters)
    return len(task.pairs) * taps * -(-task.channels[0] // tile.bk)


def rows_read(task: Task, blocks: int, rows: int) -> float:
    """Return how many rows of a block are loaded, on average: not those outside of the image.

    There are as many blocks of rows as `blocks` for each tap.
    """
    taps = taps_met(task.geometry, task.scatters)
    return min(rows, task.geometry.n * task.geometry.reads / max(blocks * taps, 1))


def gather_loaded(task: Task, tile: Tile) -> float:
    """Return the bytes that a step loads."""
    rows = rows_read(task, -(-task.rows // tile.bm) * task.classes, tile.bm)
    return (rows + tile.bn) * tile.bk * ITEMSIZE[task.dtype]


def gather_work(task: Task, tile: Tile) -> Work:
    count, steps = gather_tile_count(task, tile), gather_steps(task, tile)
    options = {"vector": task.load_width, "per_vector": 16, "loaded": gather_loaded(task, tile)}
    return cost.block_work(task, tile, count, steps, reached=0.7, **options)


def add_gather(task: Task, tile: Tile) -> None:
    pairs, shape, scatter = task.aligned_pairs(), task.geometry, task.kind == "scatter"
    task.compute(lambda y, after: gather_launch(shape, pairs, y, scatter, tile, task.math, after))


def gather_launch(
    geometry: Geometry,
    pairs: tuple[tuple[Tensor, Tensor], ...],
    y: Tensor,
    scatter: bool,
    tile: Tile,
    precision: str = "ieee",
    epilogue: Epilogue = PLAIN,
    splits: int = 1,
) -> Launch:
    """Return the launch that computes y from at most two (x, w), of equal strides each.

    `scatter` is whether y is the big side, and `precision` the `input_precision` of `tl.dot`. With
    splits the reduction is cut into as many parts, and y is the first of as many consecutive ones.
    """
    x, w = pairs[0] if pairs else (y, y)  # without products nothing is read
    x_2, w_2 = pairs[1] if len(pairs) > 1 else (None, None)
    sides = (geometry.big, geometry.big_channels), (geometry.small, geometry.small_channels)
    (read, c), (written, k) = reversed(sides) if scatter else sides
    classes = geometry.stride if scatter else windows.ONES
    pixels = tuple(-(-size // stride) for size, stride in zip(written, classes))
    images, rank, x_steps, y_steps = geometry.n, geometry.rank, x.steps, y.steps
    if geometry.pointwise and pairs and (one := merge(x, y)):
        images, rank, pixels, (x_n, x_w, y_n, y_w) = one
        read = written = pixels
        x_steps, y_steps = (x_n, x.steps[1], 0, 0, x_w), (y_n, y.steps[1], 0, 0, y_w)
    w_steps = filter_steps(geometry, w, scatter) if pairs else (0,) * 7
    unit_w = 1 if w_steps[5] == 1 else 2 if w_steps[6] == 1 else 0
    steps, vec = in_vectors(x.dtype, x_steps, w_steps, y_steps, c, k, unit_w)
    rows = images * prod(pixels)
    near = max(reach(t, s, tile.bm, pixels) for t, s in ((x, x_steps), (y, y_steps)))
    tensors = {"x": x, "w": w, "x_2": x_2, "w_2": w_2, "y": y, **epilogue.tensors}
    given, absent = slots({name: tensors[name] for name in gather.arg_names[:9]})
    numbers = (rows, *read, *pixels, *written, c // vec[3], k // vec[4], *geometry.lo)
    numbers += divisors(pixels)
    each = -(-len(pairs) * taps_met(geometry, scatter) * -(-c // tile.bk) // splits)
    sizes = {"steps": each, "y_z": prod(y.shape)} | dict(zip(RUNTIME, numbers))
    return Launch(
        gather,
        (-(-rows // tile.bm) * -(-k // tile.bn), geometry.groups, prod(classes) * splits),
        given | sizes | steps,
        absent
        | {
            "RANK": rank,
            "WINDOW": windows.window(geometry, scatter),
            "PAIRS": len(pairs),
            "INSIDE": geometry.inside and not scatter,
            "WHOLE": c % tile.bk == 0,
            "WIDE": max(near + geometry.overhang(x, y), w.span) >= LIMIT,
            "UNIT": (x_steps[1] == 1, unit_w, y_steps[1] == 1),
            "VEC": vec,
            **tile.constants,
            "PRECISION": precision,
            "ACTIVATION": epilogue.activation,
            "SPLIT": splits > 1,
        },
        tile.warps,
        tile.stages,
    )


def taps_met(geometry: Geometry, scatter: bool) -> int:
    """Return how many taps a pixel has, in the class that has the most."""
    return prod(windows.window(geometry, scatter).taps)


def in_vectors(
    dtype: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    y: tuple[int, ...],
    c: int,
    k: int,
    unit_w: int,
) -> tuple[dict[str, int], tuple[int, ...]]:
    """Return the kernel's strides, counted in vectors, and the width of (x, w, y, c, k)'s."""
    x_n, x_c, *x_pixel = x
    y_n, y_c, *y_pixel = y
    x_moves, y_moves = (x_n, x_c * c, *x_pixel), (y_n, y_c * k, *y_pixel)
    w_moves = (*w[:5], w[5] * (unit_w != 1), w[6] * (unit_w != 2))
    vec = tuple(vector(dtype, *steps) for steps in (x_moves, w_moves, y_moves, (c,), (k,)))
    steps = {}
    for letter, width, moves in (("x", vec[0], x_moves), ("y", vec[2], y_moves)):
        steps |= zip((f"{letter}_{axis}" for axis in "ngdhw"), (step // width for step in moves))
    steps |= zip((f"w_{axis}" for axis in "0gtrsck"), (step // vec[1] for step in w_moves))
    return steps | {"x_c": x_c, "y_c": y_c}, vec


def reach(tensor: Tensor, steps: tuple[int, ...], rows: int, pixels: tuple[int, ...]) -> int:
    """Return the largest offset of an element of some rows from their first image."""
    images = rows // max(prod(pixels), 1) + 2
    return min(tensor.span, images * abs(steps[0]) + tensor.image_span)


SPEC = KernelSpec(
    "gather",
    serves=("gather", "scatter"),
    refusal=lambda task: None,
    tiles=gather_tiles,
    add=add_gather,
    kernels=(gather,),
    work=gather_work,
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(
        products=1,
        serialised=(
            "grouped fprop_1x1 16 128x128x64 w8 s4",
            "grouped fprop_1x1 16 128x128x64 w8 s2",
            "fprop_1x1 16 128x256x64 w8 s3",
            "fprop_1x1 32 128x128x32 w8 s4",
            "grouped fprop_1x1 32 128x128x32 w8 s4",
        ),
        loop=((313, 775, 354, 667), (379, 747, 403, 878), (258, 181, 275)),
    ),
)
