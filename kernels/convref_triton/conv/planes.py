"""The product of `gather` for results in NCHW, which are stored as they are.

The rows of a tile are pixels of one image, next to each other in every channel's plane, so that a
thread stores 16 bytes of a channel. `gather` stores channels last and leaves a copy to be made.
A 1x1 filter of stride 1 reads the pixels that it stores: x in NCHW is loaded along them as it is.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import gcd, prod

import triton
import triton.language as tl

from ..common import windows
from ..common.epilogue import finish
from ..common.geometry import ITEMSIZE, LIMIT, Geometry, Tensor, merge
from ..common.index import tile_of
from ..plan import cost, lines
from ..plan.builder import channels_last, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Change, Tile, TileTable, tiles
from . import gather

# Pixels of a vector, at least: with less, a copy with channels innermost takes less time.
LEAST = {"f16": 4, "bf16": 4, "f32": 1}
RUNTIME = [name for name in gather.RUNTIME if name[:2] != "y_"] + ["tiles", "y_n", "y_c"]


@triton.jit
def multiply_planes(
    tensors, first, tiles, real, known, C, x_c, w_c,
    PAIRS: tl.constexpr, WHOLE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the sums (BM, BN) over channels of one tap, from x with pixels contiguous."""
    x, w, x_2, w_2 = tensors
    cols = tl.arange(0, BK)  # (BK,)
    acc = tl.zeros((BM, BN), tl.float32)
    pair, c = 0, 0
    for _ in range(PAIRS * tl.cdiv(C, BK)):
        on_x, on_w = real[:, None], known[None, :]
        if not WHOLE:
            on_x &= (c + cols < C)[None, :]
            on_w &= (c + cols < C)[:, None]
        left, right = x, w
        if PAIRS == 2:
            left, right = tl.where(pair == 0, x, x_2), tl.where(pair == 0, w, w_2)
        a = tl.load(left + first[0] + c * x_c + tiles[0], on_x, other=0.0)  # (BM, BK)
        b = tl.load(right + first[1] + c * w_c + tiles[1], on_w, other=0.0)  # (BK, BN)
        if PRECISION == "tf32":
            # wgmma takes 32-bit values across the sum from registers only, where a sum puts them.
            # ptxas overwrites these unless each step waits for its products, as a sum does.
            acc += tl.dot(a + 0.0, b, input_precision="tf32", max_num_imprecise_acc=BK)
        else:
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        c += BK
        if PAIRS == 2:
            pair, c = tl.where(c < C, pair, pair + 1), tl.where(c < C, c, 0)
    return acc


@triton.jit(do_not_specialize=RUNTIME)
def planes(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    M, D, H, W, O, P, Q, C, K, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_g, x_d, x_h, x_w, x_c, w_0, w_g, w_t, w_r, w_s, w_c, w_k, tiles, y_n, y_c,
    RANK: tl.constexpr, WINDOW: tl.constexpr, PAIRS: tl.constexpr,
    INSIDE: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, PLANE: tl.constexpr, ALIKE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of y, (BM pixels of an image, BN channels); PLANE divides its M pixels.

    ALIKE: whether each row reads one pixel, its own, and pixels are contiguous in x too.
    """
    x_steps, w_steps, _, C, K = gather.in_elements(
        (x_n, x_g, x_d, x_h, x_w, x_c), (w_0, w_g, w_t, w_r, w_s, w_c, w_k),
        (x_n, x_g, x_d, x_h, x_w, x_c), C, K, UNIT, VEC, WIDE,
    )  # fmt: skip
    image_x, group_x, x_n, x_d, x_h, x_w, x_c = x_steps
    w_0, group_w, w_t, w_r, w_s, w_c, w_k = w_steps
    M, y_c = M * PLANE, y_c * PLANE
    tile_m, tile_n = tile_of(tl.program_id(0), tiles, tl.cdiv(K, BN), BAND)
    group, each = tl.program_id(1), tl.cdiv(M, BM)
    image, within = tile_m // each, tile_m % each
    magic, sizes = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift), (D, H, W)
    rows, top, n, _, read, _, count = windows.rows_of(
        within, tl.program_id(2), M, (O, P, Q), (lo_d, lo_h, lo_w), magic, RANK, WINDOW, BM
    )
    i_d, i_h, i_w = read
    real = rows < M
    bits = windows.valid_taps(real, read, sizes, WINDOW)
    cols = tl.arange(0, BK)  # (BK,)
    outs = tile_n * BN + tl.arange(0, BN)  # (BN,)
    known = outs < K
    from_x = (top + image) * image_x + group * group_x
    from_w = group * group_w + w_0  # the first tap, as the stride of an adjoint is 1
    if ALIKE:
        from_x, x_c = image * image_x + group * group_x, x_c * VEC[0]
        x_tile = rows[:, None] + (cols * x_c)[None, :]
    else:
        x_tile = (n * x_n + i_d * x_d + i_h * x_h + i_w * x_w)[:, None] + (cols * x_c)[None, :]
    w_tile = (cols * w_c)[:, None] + (outs * w_k)[None, :]
    if ALIKE:
        acc = multiply_planes(
            (x, w, x_2, w_2), (from_x, from_w), (x_tile, w_tile), real, known, C, x_c, w_c,
            PAIRS, WHOLE, BM, BN, BK, PRECISION,
        )  # fmt: skip
    else:
        acc = gather.multiply(
            (x, w, x_2, w_2), (from_x, from_w), (x_tile, w_tile), real, known, C,
            PAIRS * count[0] * count[1] * count[2] * tl.cdiv(C, BK), (0, 0, 0, 0, 0), bits, read,
            sizes, count, (0, 0, 0, x_d, x_h, x_w, x_c), w_steps, 0, None,
            WINDOW, PAIRS, INSIDE, WHOLE, BM, BN, BK, PRECISION,
        )  # fmt: skip
    channel, inside = group * K + outs, real[:, None] & known[None, :]
    image_y = image.to(tl.int64) * (y_n.to(tl.int64) * PLANE)
    to_y = image_y + (channel * y_c)[None, :] + rows[:, None]
    acc = finish(acc, bias, scale, shift, residual, channel, known, to_y, inside, ACTIVATION)
    tl.store(y + to_y, acc.to(y.dtype.element_ty), inside)


TILES = TileTable(
    {
        "f16 bf16": tiles(
            "128x128x64 w8 s4, 128x64x64 w4 s4, 64x128x64 w4 s4, 64x64x64 w4 s4, 128x256x64 w8 s3, "
            # Few channels of the result.
            "256x32x64 w8 s3, 256x16x32 w8 s4, 256x16x16 w8 s4"
        ),
        "ieee": gather.IEEE,
        "tf32": (*gather.TF32, *tiles("64x128x32 w8 s4, 256x32x32 w8 s3")),
        "tf32x3": gather.TILES.rows["tf32x3"],
    },
    blocks=1,
    changes=(
        Change("sm_8", "f16 bf16", Tile(128, 256, 64, 8, 3)),
        Change("sm_8", "ieee", Tile(64, 64, 16, 4, 3), instead=Tile(64, 64, 16, 8, 3)),
    ),
)


def planes_refusal(task: Task) -> str | None:
    if task.width < 16:
        return f"{task.channels} channels share no vector of 16 bytes"
    if task.is_last:
        return "channels of the result are contiguous"
    if task.classes > 1:
        return "an adjoint of stride 1"
    shape = task.builder.call.problem.shape(task.role)
    return "2**31 elements of an image or more" if prod(shape[1:]) >= LIMIT else None


def plane_tiles(task: Task, tile: Tile) -> int:
    """Return the tiles of pixels of all images."""
    images, *sizes = task.written
    return images * -(-prod(sizes) // tile.bm)


def run_of(geometry: Geometry, tensors: Iterable[Tensor]) -> int:
    """Return how many pixels of the tensors are read as one vector, 0 if there are no such vectors.

    Each pixel of one side has to read one pixel of the other, the same.
    """
    found = []
    for tensor in tensors if geometry.pointwise else ():
        merged, pixels = merge(tensor), prod(tensor.shape[2:])
        if merged is None or merged[3][1] != 1 or pixels == 1 or not tensor.aligned:
            return 0
        steps = (s for s, size in zip(tensor.strides[:2], tensor.shape) if size > 1)
        found.append(vector(tensor.dtype, pixels, *steps))
        if found[-1] < LEAST[tensor.dtype]:
            return 0
    return min(found, default=0)


def in_place(task: Task) -> int:
    """Return how many pixels of x are read as one vector, 0 if x has to have channels innermost."""
    xs = [x for x, _ in task.pairs]
    return run_of(task.geometry, xs) if len({x.steps for x in xs}) == 1 else 0


def planes_work(task: Task, tile: Tile) -> Work:
    rows, size = plane_tiles(task, tile), ITEMSIZE[task.dtype]
    count = rows * -(-task.channels[1] // tile.bn) * task.copies
    loaded = (gather.rows_read(task, rows, tile.bm) + tile.bn) * tile.bk * size
    run = in_place(task) or 16 // size
    each = 16 * (tile.bm * 16 / (run * size) + tile.bn) / (tile.bm + tile.bn)
    steps, options = gather.gather_steps(task, tile), {"per_vector": each, "loaded": loaded}
    return cost.block_work(task, tile, count, steps, reached=0.67, **options)


def add_planes(task: Task, tile: Tile) -> None:
    xs = [x for x, _ in task.pairs]
    pairs = tuple(zip(xs if in_place(task) else task.one_order(xs), filters(task)))
    task.builder.steps.append(planes_launch(task, pairs, task.result(), tile))


def filters(task: Task) -> list[Tensor]:
    """Return the filters in the layout that a matrix product reads best."""
    ws = [w for _, w in task.pairs]
    if task.numbers != "tf32":
        return task.one_order(ws)
    k, *taps, c = channels_last(task.geometry.rank)
    order = (c, *taps, k) if task.scatters else (k, *taps, c)
    # wgmma takes 32-bit values of the right side along the sum only.
    return [task.builder.in_order(w, order) for w in ws]


def planes_launch(
    task: Task, pairs: tuple[tuple[Tensor, Tensor], ...], y: Tensor, tile: Tile
) -> Launch:
    """Return the launch that computes y, dense in NCHW: `gather_launch` with other stores."""
    after = task.epilogue(y)
    made = gather.gather_launch(task.geometry, pairs, y, task.scatters, tile, task.math, after)
    pixels, rows = prod(task.written[1:]), plane_tiles(task, tile)
    plane = gcd(16 // ITEMSIZE[y.dtype], pixels)
    given = {"M": pixels // plane, "tiles": rows, "y_c": pixels // plane}
    given["y_n"] = prod(y.shape[1:]) // plane
    changed = {"PLANE": plane, "ALIKE": in_place(task) > 0}
    if changed["ALIKE"]:
        x_n, x_c, *_ = pairs[0][0].steps
        run, steps = vector(y.dtype, x_n, x_c), (x_n, x_c * task.channels[0], x_c)
        given |= zip(("x_n", "x_g", "x_c"), (step // run for step in steps))
        changed |= {n: (new, *made.constants[n][1:]) for n, new in (("VEC", run), ("UNIT", False))}
        changed |= {"WINDOW": windows.window(task.geometry, False), "INSIDE": True, "RANK": 1}
    arguments = {n: v for n, v in made.arguments.items() if n in planes.arg_names} | given
    constants = {n: v for n, v in made.constants.items() if n in planes.arg_names}
    grid = rows * -(-task.channels[1] // tile.bn), task.geometry.groups, 1
    constants |= changed
    return replace(made, kernel=planes, grid=grid, arguments=arguments, constants=constants)


SPEC = KernelSpec(
    "planes",
    serves=("gather", "scatter"),
    refusal=planes_refusal,
    tiles=TILES.of,
    add=add_planes,
    kernels=(planes,),
    work=planes_work,
    lines=lines.PLANES,
    expects=Expectation(
        products=1,
        serialised=("planes 32 128x128x32 w8 s4", "planes_dgrad 32 128x128x32 w8 s4"),
        loop=((220, 655, 390, 521), (280, 654, 504, 879), (232, 121, 319)),
    ),
)
