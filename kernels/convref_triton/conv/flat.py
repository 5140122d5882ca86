"""The gathered product for few channels, whose reduction runs over taps and channels as one axis.

y[n, k, p] = sum over u of x[n, c, p * stride + r * dilation - lo] w[k, c, r], u = r * C + c

A block of u spans several taps, so that it is full for any number of channels; which tap and
channel a u is costs a division by C. The adjoint is computed where every class of pixels that has
taps at all has as many, so that u means the same in all of them. Channels that are no multiple of a
vector may be rounded up to one in copies of x and w, with zeros in both.
"""

from dataclasses import replace
from math import prod

import triton
import triton.language as tl

from ..common.geometry import ITEMSIZE, Geometry, Tensor, filter_steps
from ..common.index import divisor, quotient, tile_of
from ..common.windows import rows_of, valid_taps
from ..plan import cost, lines
from ..plan.builder import Builder, channels_last
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import PLAIN, Epilogue, Pairs, Task
from ..plan.tile import Change, Tile, TileTable, tiles
from . import gather

FLAT = [*gather.RUNTIME, "c_magic", "c_shift"]


@triton.jit
def tap_of(u, C, magic, shift, WINDOW: tl.constexpr):
    """Return (tap, t, r, s, c) of a reduction index."""
    tap = quotient(u, magic, shift)
    s, r = tap % WINDOW.taps[2], tap // WINDOW.taps[2]
    t = r * 0
    if WINDOW.taps[0] > 1:
        t, r = r // WINDOW.taps[1], r % WINDOW.taps[1]
    return tap, t, r, s, u - tap * C


@triton.jit
def valid_in_block(
    real, bits, u, depth, tap, t, r, s, at, sizes, WINDOW: tl.constexpr, RUN: tl.constexpr
):
    """Return which elements of a block (rows, reduction indices) exist."""
    if WINDOW.bits > 0:
        one = 1
        if WINDOW.bits == 64:
            one = tl.full((), 1, tl.int64)
        bit = tl.where(u < depth, one << (tap & (WINDOW.bits - 1)), 0)
        on = (bits[:, None] & bit[None, :]) != 0
    else:
        D, H, W = sizes
        d = at[0][:, None] + (t * WINDOW.move[0])[None, :]
        h = at[1][:, None] + (r * WINDOW.move[1])[None, :]
        v = at[2][:, None] + (s * WINDOW.move[2])[None, :]
        on = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        on &= real[:, None] & (u < depth)[None, :]
    return tl.max_constancy(on, [1, RUN])  # inlining drops hints set on a call's result


@triton.jit(do_not_specialize=FLAT)
def flat(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    M, D, H, W, O, P, Q, OD, OH, OW, C, K, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_g, x_d, x_h, x_w, x_c, w_0, w_g, w_t, w_r, w_s, w_c, w_k, y_n, y_g, y_d, y_h, y_w, y_c,
    c_magic, c_shift,
    RANK: tl.constexpr, WINDOW: tl.constexpr, PAIRS: tl.constexpr,
    WHOLE: tl.constexpr, DENSE: tl.constexpr, WIDE: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, RUN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of y, (BM pixels, BN channels), from the pairs (x, w) and (x_2, w_2)."""
    x_steps, w_steps, y_steps, C, K = gather.in_elements(
        (x_n, x_g, x_d, x_h, x_w, x_c), (w_0, w_g, w_t, w_r, w_s, w_c, w_k),
        (y_n, y_g, y_d, y_h, y_w, y_c), C, K, UNIT, VEC, WIDE,
    )  # fmt: skip
    image_x, group_x, x_n, x_d, x_h, x_w, x_c = x_steps
    w_0, group_w, w_t, w_r, w_s, w_c, w_k = w_steps
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(K, BN), BAND)
    group, e = tl.program_id(1), tl.program_id(2)
    magic, sizes = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift), (D, H, W)
    rows, top, n, written, read, first, count = rows_of(
        tile_m, e, M, (O, P, Q), (lo_d, lo_h, lo_w), magic, RANK, WINDOW, BM
    )
    i_d, i_h, i_w = read
    bits = valid_taps(rows < M, read, sizes, WINDOW)

    outs = tile_n * BN + tl.arange(0, BN)  # (BN,)
    from_x = top * image_x + group * group_x
    from_w = group * group_w + w_0 + first[0] * w_t + first[1] * w_r + first[2] * w_s
    x_row = n * x_n + i_d * x_d + i_h * x_h + i_w * x_w
    known = outs < K

    MOVE: tl.constexpr = WINDOW.move
    STEP: tl.constexpr = WINDOW.step
    acc = tl.zeros((BM, BN), tl.float32)
    depth = count[0] * count[1] * count[2] * C
    pair, begin = 0, 0
    for _ in range(PAIRS * tl.cdiv(depth, BK)):
        u = begin + tl.arange(0, BK)  # (BK,)
        tap, t, r, s, c = tap_of(u, C, c_magic, c_shift, WINDOW)
        here = t * (MOVE[0] * x_d) + r * (MOVE[1] * x_h) + s * (MOVE[2] * x_w) + c * x_c
        there = t * (STEP[0] * w_t) + r * (STEP[1] * w_r) + s * (STEP[2] * w_s) + c * w_c
        if UNIT[0]:  # runs of one tap with contiguous channels
            here = tl.max_contiguous(tl.multiple_of(here, [RUN]), [RUN])
        if UNIT[1] == 1:
            there = tl.max_contiguous(tl.multiple_of(there, [RUN]), [RUN])
        if DENSE:
            there = u
        on_x = valid_in_block(rows < M, bits, u, depth, tap, t, r, s, read, sizes, WINDOW, RUN)
        on_w = known[None, :]
        if not WHOLE:
            on_w &= (u < depth)[:, None]
        left, right = x, w
        if PAIRS == 2:
            left, right = tl.where(pair == 0, x, x_2), tl.where(pair == 0, w, w_2)
        x_tile = (left + from_x + x_row)[:, None] + here[None, :]
        w_tile = (right + from_w + outs * w_k)[None, :] + there[:, None]
        a = tl.load(x_tile, on_x, other=0.0)  # (BM, BK)
        b = tl.load(w_tile, on_w, other=0.0)  # (BK, BN)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        begin += BK
        if PAIRS == 2:
            pair += (begin >= depth).to(tl.int32)
            begin = tl.where(begin < depth, begin, 0)

    gather.store_tile(
        acc, y, bias, scale, shift, residual, rows, M, top, n, written, (OD, OH, OW), outs, K,
        group, 0, y_steps, ACTIVATION,
    )  # fmt: skip


NARROW = tiles(
    "128x128x64 w8 s4 run8, 128x64x64 w4 s4 run8, 64x64x64 w4 s4 run8, 128x256x64 w8 s3 run8, "
    "128x128x32 w8 s4 run4, 128x64x64 w8 s4 run4, 64x64x64 w4 s4 run4, 128x64x32 w8 s4, "
    "64x64x32 w4 s4, 64x32x32 w4 s4, "
    # Few channels of the result.
    "256x64x64 w8 s4 run4, 256x16x32 w8 s4 run4, 128x16x32 w8 s4"
)
WIDE = tuple(tile._replace(run=run) for run in (4, 1) for tile in gather.IEEE)
TF32 = tiles("128x64x32 w4 s4 run4, 64x64x32 w4 s4 run4, 64x64x32 w4 s4, 64x32x32 w4 s3")
TILES = TileTable(
    {"f16 bf16": NARROW, "ieee": WIDE, "tf32 tf32x3": TF32},
    short={
        "f16 bf16": tuple(tile for tile in NARROW if tile.bn < 256),
        "ieee": WIDE[1:],
        "tf32x3": TF32[1:],
    },
    blocks=1,
    changes=(
        Change("sm_8", "f16 bf16", NARROW[0], below=8),
        Change("sm_8", "f16 bf16", Tile(256, 64, 64, 8, 4, run=4), below=8),
        Change("sm_8", "f16 bf16", NARROW[1], 8, Tile(128, 64, 64, 8, 4, run=8)),
        Change("sm_8", "ieee", WIDE[1], 8, Tile(64, 64, 16, 8, 3, run=4)),
        Change("sm_8", "tf32 tf32x3", TF32[0], instead=Tile(128, 64, 32, 8, 4, run=4)),
    ),
)


def flat_refusal(task: Task) -> str | None:
    geometry, c = task.geometry, task.channels[0]
    step = geometry.step if task.kind == "scatter" else (1, 1, 1)
    if any(taps % s for taps, s in zip(geometry.filter, step)):
        return "classes of pixels have different numbers of taps"
    deep = max(tile.bk for tile in TILES.of(task))
    taps = geometry.taps // prod(step)
    if -(-taps * c // deep) >= taps * -(-c // deep):
        return f"{c} channels fill blocks of {deep}"
    return None if task.pairs else "no products"


def flat_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles that serve a task: channels of one group alone can be rounded up."""
    alone, c = task.geometry.groups == 1, task.channels[0]
    return tuple(tile for tile in TILES.of(task, task.width) if alone or c % tile.run == 0)


def flat_work(task: Task, tile: Tile) -> Work:
    c = task.channels[0]
    full = rounded(c, tile)
    taps = task.geometry.taps // (prod(task.geometry.step) if task.kind == "scatter" else 1)
    steps = len(task.pairs) * -(-taps * full // tile.bk)
    vector, count = tile.run * ITEMSIZE[task.dtype], gather.gather_tile_count(task, tile)
    return cost.block_work(task, tile, count, steps, reached=0.6, vector=vector, per_vector=16)


def rounded(c: int, tile: Tile) -> int:
    """Return the channels that a tile is given."""
    return -(-c // tile.run) * tile.run


def in_runs(tensor: Tensor, axis: int, run: int) -> bool:
    """Return whether vectors of `run` elements along an axis are aligned to their size."""
    steps = (tensor.strides[i] for i, size in enumerate(tensor.shape) if i != axis and size > 1)
    unit = tensor.strides[axis] == 1 or tensor.shape[axis] == 1
    return run == 1 or (unit and all(step % run == 0 for step in steps))


def add_flat(task: Task, tile: Tile) -> None:
    """Add the launch that computes a task, after copies that make vectors of channels."""
    scatter, full = task.kind == "scatter", rounded(task.channels[0], tile)
    pairs = task.aligned_pairs() if tile.run == 1 else in_vectors(task, tile)
    side = "small_channels" if scatter else "big_channels"
    shape = replace(task.geometry, **{side: full})
    task.compute(lambda y, after: flat_launch(shape, pairs, y, scatter, tile, task.math, after))


def in_vectors(task: Task, tile: Tile) -> Pairs:
    """Return the pairs with the reduced channels innermost and rounded up, copied as needed."""
    size = task.geometry.groups * rounded(task.channels[0], tile)
    last = channels_last(task.geometry.rank)
    first = (1, *last[1:-1], 0)
    xs, ws = (
        laid([pair[side] for pair in task.pairs], order, size, tile.run, task.builder)
        for side, order in enumerate((last, first if task.kind == "scatter" else last))
    )
    return tuple(zip(xs, ws))


def laid(
    tensors: list[Tensor], order: tuple[int, ...], size: int, run: int, builder: Builder
) -> list[Tensor]:
    """Return tensors of equal strides whose axis order[-1] has `size` elements in vectors."""
    axis = order[-1]
    fit = all(t.shape[axis] == size and in_runs(t, axis, run) for t in tensors)
    if fit and len({tensor.steps for tensor in tensors}) == 1:
        return tensors
    return [builder.copied(tensor, order, {axis: size}) for tensor in tensors]


def flat_launch(
    geometry: Geometry,
    pairs: Pairs,
    y: Tensor,
    scatter: bool,
    tile: Tile,
    precision: str = "ieee",
    epilogue: Epilogue = PLAIN,
) -> Launch:
    """Return the launch that computes y: `gather_launch` with the kernel of this module."""
    made = gather.gather_launch(geometry, pairs, y, scatter, tile, precision, epilogue)
    constants = {name: value for name, value in made.constants.items() if name in flat.arg_names}
    c = geometry.small_channels if scatter else geometry.big_channels
    constants |= {
        "WHOLE": prod(constants["WINDOW"].taps) * c % tile.bk == 0,
        "DENSE": not scatter and is_dense(geometry, filter_steps(geometry, pairs[0][1], scatter)),
        "RUN": tile.run,
    }
    arguments = {name: value for name, value in made.arguments.items() if name in flat.arg_names}
    arguments |= dict(zip(("c_magic", "c_shift"), divisor(c)))
    return replace(made, kernel=flat, arguments=arguments, constants=constants)


def is_dense(geometry: Geometry, steps: tuple[int, ...]) -> bool:
    """Return whether the element of a filter at u = tap * C + c is u elements from its first."""
    sizes, places = (*geometry.filter, geometry.big_channels), steps[2:6]
    wanted = [prod(sizes[axis + 1 :]) for axis in range(4)]
    return all(size == 1 or s == w for size, s, w in zip(sizes, places, wanted))


SPEC = KernelSpec(
    "flat",
    serves=("gather", "scatter"),
    refusal=flat_refusal,
    tiles=flat_tiles,
    add=add_flat,
    kernels=(flat,),
    work=flat_work,
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(
        products=1, loop=((606, 898, 669, 995), (621, 897, 742, 1337), (402, 236, 433))
    ),
)
