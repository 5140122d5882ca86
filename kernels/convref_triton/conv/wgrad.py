"""The correlation of a window with its pixel, as a matrix product that reduces over pixels.

dw[k, c, r] = sum over images n and pixels p of a[n, k, p] b[n, c, p * stride + r * dilation - lo]

a is the small side, b the big one. Rows are channels of a, columns pairs (tap, channel of b) with
the channel innermost: a tile has several taps where channels are few. Each split of the pixels
has partial sums of its own in a workspace, which `reduce` adds in a fixed order.
"""

from math import prod

import triton
import triton.language as tl

from ..common.geometry import ITEMSIZE, LIMIT, Geometry, Tensor, Three, filter_steps, merge
from ..common.index import across, along, below, divisors, pixel, tile_of
from ..common.reduce import add_in_parts
from ..common.windows import MAGIC, strides, unit
from ..plan import cost, lines
from ..plan.builder import channels_last, slot, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Change, Tile, TileTable, tiles
from .flat import in_runs, rounded
from .gather import IEEE, TF32, reach

SIZES = "L D H W O P Q K C kept_k kept_c steps lo_d lo_h lo_w"
STEPS = "a_n a_g a_d a_h a_w a_k b_n b_g b_d b_h b_w b_c w_0 w_g w_k w_t w_r w_s w_c w_z"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit
def correlate(
    sides, to, at, known, span, sizes, pixels, magic, a_steps, b_steps,
    RANK: tl.constexpr, STRIDE: tl.constexpr, INSIDE: tl.constexpr, LINEAR: tl.constexpr,
    WHOLE: tl.constexpr, SWAP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the sums (BM, BN) over the pixels of a span, from the sides (a, b).

    `to` has the offsets of rows and of columns, `known` whether they exist, and `at` the pixel of
    the big side that a column's tap reads for pixel 0.
    """
    from_a, from_b = sides
    to_a, to_b = to
    at_d, at_h, at_w = at
    known_k, known_c = known
    begin, end = span
    D, H, W = sizes
    O, P, Q = pixels
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift = magic
    a_n, a_d, a_h, a_w = a_steps
    b_n, b_d, b_h, b_w = b_steps
    acc = tl.zeros((BN, BM) if SWAP else (BM, BN), tl.float32)
    index = begin + tl.arange(0, BK)  # (BK,)
    # A loop that might not run at all made ptxas wait for each wgmma (C7515).
    for _ in range(tl.maximum(tl.cdiv(end - begin, BK), 1)):
        n, o, p, q = pixel(
            index, O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK
        )
        on_a, on_b = across(index < end, not SWAP), across(index < end, SWAP)
        if LINEAR:
            a_tile = across(index * a_w, not SWAP) + to_a
        else:
            a_tile = across(n * a_n + o * a_d + p * a_h + q * a_w, not SWAP) + to_a
        o, p, q = o * STRIDE[0], p * STRIDE[1], q * STRIDE[2]
        b_tile = across(n * b_n + o * b_d + p * b_h + q * b_w, SWAP) + to_b
        if not WHOLE[0]:
            on_a = on_a & along(known_k, not SWAP)
        if not WHOLE[1]:
            on_b = on_b & along(known_c, SWAP)
        if not INSIDE:
            if RANK == 3:
                on_b = on_b & below(across(o, SWAP) + at_d, D)
            if RANK >= 2:
                on_b = on_b & below(across(p, SWAP) + at_h, H)
            on_b = on_b & below(across(q, SWAP) + at_w, W)
        left = tl.load(from_a + a_tile, on_a, other=0.0)  # (BM, BK)
        right = tl.load(from_b + b_tile, on_b, other=0.0)  # (BK, BN)
        if SWAP:
            left, right = right, left
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
        index += BK
    if SWAP:
        acc = tl.trans(acc)
    return acc


@triton.jit(do_not_specialize=RUNTIME)
def wgrad(
    a, b, w,
    L, D, H, W, O, P, Q, K, C, kept_k, kept_c, steps, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    a_n, a_g, a_d, a_h, a_w, a_k, b_n, b_g, b_d, b_h, b_w, b_c,
    w_0, w_g, w_t, w_r, w_s, w_c, w_k, w_z,
    RANK: tl.constexpr, FILTER: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
    INSIDE: tl.constexpr, LINEAR: tl.constexpr, WHOLE: tl.constexpr, ROUND: tl.constexpr,
    WIDE: tl.constexpr, UNIT: tl.constexpr, VEC: tl.constexpr, SWAP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of w, (BM channels of a, BN pairs of tap and channel of b), of one split."""
    # Strides are counted in vectors, so that the compiler infers their divisibility.
    a_n, a_d, a_h, a_w = strides(a_n, a_d, a_h, a_w, VEC[0], WIDE)
    b_n, b_d, b_h, b_w = strides(b_n, b_d, b_h, b_w, VEC[1], WIDE)
    w_k, w_t, w_r, w_s = strides(w_k, w_t, w_r, w_s, VEC[2], WIDE)
    a_g, b_g, K, C = a_g * VEC[0], b_g * VEC[1], K * VEC[3], C * VEC[4]
    w_0, w_g, w_z = w_0 * VEC[2], w_g * VEC[2], w_z * VEC[2]
    a_k, b_c = unit(a_k, UNIT[0], 1, WIDE), unit(b_c, UNIT[1], 1, WIDE)
    w_c = unit(w_c, UNIT[2], 1, WIDE)

    R: tl.constexpr = FILTER[1]
    S: tl.constexpr = FILTER[2]
    N = C * (FILTER[0] * R * S)
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(K, BM), tl.cdiv(N, BN), BAND)
    group, split = tl.program_id(1).to(tl.int64), tl.program_id(2)
    first = split * steps * BK
    top, _, _, _ = pixel(
        first, O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK
    )  # the split's first image, from which pixels and offsets count
    skipped = top * (O * P * Q)
    begin = first - skipped
    end = begin + tl.minimum(steps * BK, L - first)

    k = tile_m * BM + tl.arange(0, BM)  # (BM,)
    column = tile_n * BN + tl.arange(0, BN)  # (BN,)
    c, tap = column % C, column // C
    t, r, s = tap // (R * S), tap // S % R, tap % S
    at_d, at_h, at_w = t * DILATION[0] - lo_d, r * DILATION[1] - lo_h, s * DILATION[2] - lo_w
    known_k, known = k < K, column < N
    from_a = a + (top.to(tl.int64) * a_n + group * a_g)
    from_b = b + (top.to(tl.int64) * b_n + group * b_g)
    to_a = along(k * a_k, not SWAP)
    to_b = along(at_d * b_d + at_h * b_h + at_w * b_w + c * b_c, SWAP)
    at_d, at_h, at_w = along(at_d, SWAP), along(at_h, SWAP), along(at_w, SWAP)

    acc = correlate(
        (from_a, from_b), (to_a, to_b), (at_d, at_h, at_w), (known_k, known), (begin, end),
        (D, H, W), (O, P, Q), (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift),
        (a_n, a_d, a_h, a_w), (b_n, b_d, b_h, b_w),
        RANK, STRIDE, INSIDE, LINEAR, WHOLE, SWAP, BM, BN, BK, PRECISION,
    )  # fmt: skip

    to_w = w + (split.to(tl.int64) * w_z + group * w_g + w_0)
    w_tile = (k * w_k)[:, None] + (t * w_t + r * w_r + s * w_s + c * w_c)[None, :]
    if ROUND:
        known_k, known = known_k & (k < kept_k), known & (c < kept_c)
    inside = known_k[:, None] & known[None, :]
    tl.store(to_w + w_tile, acc.to(w.dtype.element_ty), inside)


TILES = TileTable(  # rows are channels of the small side; fewer than 64 swap with columns
    {
        "f16 bf16": tiles(
            "128x128x64 w8 s4 run8, 128x64x64 w8 s4 run8, 64x128x64 w4 s4 run8, "
            "64x64x64 w4 s4 run8, 128x256x64 w8 s3 run8, 256x128x64 w8 s3 run8, "
            "32x128x64 w4 s4 run8, 16x128x64 w4 s4 run8, 128x32x64 w4 s4 run8, "
            "64x32x64 w4 s4 run8, 32x32x64 w4 s4 run8, 32x32x256 w4 s3 run8, "
            "32x64x128 w4 s4 run8, 64x64x128 w4 s3 run8, 128x64x64 w8 s4 run4, "
            "64x64x64 w4 s4 run4, 64x32x64 w4 s4 run4, 16x64x64 w4 s4 run4, "
            "128x64x64 w8 s4, 64x64x64 w8 s4, "
            "64x32x64 w4 s4, 32x32x64 w4 s4"
        ),
        "ieee": IEEE,
        "tf32": TF32,
        "tf32x3": TF32[1:],
    },
    short={"tf32": (TF32[0], *TF32[2:]), "tf32x3": TF32[2:]},
    blocks=1,
    changes=(
        Change("sm_8", "ieee", Tile(128, 64, 16, 8, 3)),
        Change("sm_8", "tf32x3", Tile(64, 64, 32, 4, 4), instead=Tile(64, 64, 32, 8, 4)),
        Change("sm_8", "tf32x3", Tile(128, 64, 32, 4, 4), instead=Tile(128, 64, 32, 8, 4)),
        Change("gfx", "f16 bf16", Tile(128, 256, 64, 8, 3, run=8), below=8),
        Change("gfx", "f16 bf16", Tile(256, 128, 64, 8, 3, run=8), below=8),
    ),
)


def wgrad_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles that serve a task: channels of one group alone can be rounded up."""
    shape = task.geometry
    alone, sizes = shape.groups == 1, (shape.small_channels, shape.big_channels)
    rows = TILES.of(task, task.width)
    return tuple(t for t in rows if alone or not any(size % t.run for size in sizes))


def wgrad_parts(task: Task, tile: Tile) -> tuple[int, Work]:
    """Return the number of splits of the sums, and their work."""
    shape = task.geometry
    rows = rounded(shape.small_channels, tile)
    columns = rounded(shape.big_channels, tile) * shape.taps
    count = -(-rows // tile.bm) * -(-columns // tile.bn) * shape.groups
    steps = -(-shape.n * prod(shape.small) // tile.bk) if task.pairs else 0
    vector = max(tile.run * ITEMSIZE[task.dtype], task.width)
    made = cost.block_work(task, tile, count, steps, reached=0.6, vector=vector, per_vector=24)
    return cost.cut(task, made)


def add_wgrad(task: Task, tile: Tile) -> None:
    pair = tuple(laid(task, tensor, channels, tile) for tensor, channels in sides(task))
    w, (splits, _) = task.result(), wgrad_parts(task, tile)
    stored = task.stored(w)

    def part(first: Tensor) -> Launch:
        return wgrad_launch(task.geometry, pair, first, tile, splits, task.math)

    add_in_parts(task.builder, stored, splits, part)
    task.finish(stored, w)


def sides(task: Task) -> tuple[tuple[Tensor, int], ...]:
    """Return the small side and the big one, each with its channels per group; none may be."""
    pair = task.pairs[0] if task.pairs else ()
    if task.builder.call.conv.transposed:
        pair = pair[::-1]  # dy is the big side
    return tuple(zip(pair, (task.geometry.small_channels, task.geometry.big_channels)))


def fits(tensor: Tensor, channels: int, tile: Tile) -> bool:
    return tile.run == 1 or (
        channels % tile.run == 0 and tensor.aligned and in_runs(tensor, 1, tile.run)
    )


def laid(task: Task, tensor: Tensor, channels: int, tile: Tile) -> Tensor:
    """Return a side with channels in vectors, a copy with zeros added if need be."""
    if tile.run == 1:
        return task.one_order([tensor])[0]
    if fits(tensor, channels, tile):
        return tensor
    size = task.geometry.groups * rounded(channels, tile)
    return task.builder.copied(tensor, channels_last(len(tensor.shape) - 2), {1: size})


def wgrad_launch(
    geometry: Geometry,
    pair: tuple[Tensor, ...],
    w: Tensor,
    tile: Tile,
    splits: int = 1,
    precision: str = "ieee",
) -> Launch:
    """Return the launch that computes w from (small side, big side), or its partial sums.

    The channels of the pair are rounded up to vectors of `tile.run`; an empty pair makes w zero. w
    is dense, with splits the first of as many consecutive ones.
    """
    a, b = pair or (w, w)
    kept = geometry.small_channels, geometry.big_channels
    k, c = (rounded(channels, tile) for channels in kept)
    images, rank, pixels, linear, a_steps, b_steps = views(geometry, a, b)
    rows = images * prod(pixels) if pair else 0
    steps = -(-rows // (tile.bk * splits))
    w_0, w_g, *w_taps, w_c, w_k = filter_steps(geometry, w, False)
    moves = (
        (a_steps[0], a_steps[1] * k, *a_steps[2:]),
        (b_steps[0], b_steps[1] * c, *b_steps[2:]),
        (w_0, w_g, w_k, *w_taps),
    )
    size = prod(w.shape)
    counts = (*moves[:2], (*moves[2], size), (k,), (c,))
    vec = tuple(vector(t.dtype, *n) for t, n in zip((a, b, w, a, b), counts))
    vec = (*(narrowed(v, geometry.groups, step) for v, (_, step, *_) in zip(vec, moves)), *vec[3:])
    in_vectors = [tuple(step // width for step in move) for move, width in zip(moves, vec)]
    sizes = (rows, *geometry.big, *pixels, k // vec[3], c // vec[4], *kept, steps, *geometry.lo)
    sizes += divisors(pixels)
    sizes += (*in_vectors[0], a_steps[1], *in_vectors[1], b_steps[1])
    sizes += (*in_vectors[2], w_c, size // vec[2])
    n = c * geometry.taps
    near = max(reach(t, s, steps * tile.bk, pixels) for t, s in ((a, a_steps), (b, b_steps)))
    slots = {"a": slot(a), "b": slot(b), "w": slot(w)}
    return Launch(
        wgrad,
        (-(-k // tile.bm) * -(-n // tile.bn), geometry.groups, splits),
        slots | dict(zip(RUNTIME, sizes)),
        {
            **correlate_constants(geometry, rank, linear, tile, precision),
            "WHOLE": (k % tile.bm == 0, n % tile.bn == 0),
            "ROUND": (k, c) != kept,
            "WIDE": max(near, w.span) >= LIMIT,
            "UNIT": (a_steps[1] == 1, b_steps[1] == 1, w_c == 1),
            "VEC": vec,
            "BAND": tile.band,
        },
        tile.warps,
        tile.stages,
    )


def narrowed(vec: int, groups: int, step: int) -> int:
    """Return the vector that strides are counted in: 1 where groups are 2**31 elements apart.

    The kernel multiplies their stride by it in 32 bits.
    """
    return 1 if groups > 1 and abs(step) >= LIMIT else vec


def correlate_constants(
    geometry: Geometry, rank: int, linear: bool, tile: Tile, precision: str
) -> dict[str, object]:
    """Return the constants that kernels which call `correlate` have in common."""
    return {
        "RANK": rank,
        "FILTER": geometry.filter,
        "STRIDE": geometry.stride,
        "DILATION": geometry.dilation,
        "INSIDE": geometry.inside,
        "LINEAR": linear,
        "SWAP": tile.bm < 64 <= tile.bn,  # wgmma takes 64 rows, and as few as 8 columns
        "BM": tile.bm,
        "BN": tile.bn,
        "BK": tile.bk,
        "PRECISION": precision,
    }


Steps = tuple[int, ...]


def views(geometry: Geometry, a: Tensor, b: Tensor) -> tuple[int, int, Three, bool, Steps, Steps]:
    """Return images, rank, pixels, whether a's pixels have one stride, and the steps of a and b.

    The rank is the least that both allow; pixels of one stride have a's last stride.
    """
    images, rank, pixels = geometry.n, geometry.rank, geometry.small
    a_steps, b_steps = a.steps, b.steps
    if geometry.pointwise and (one := merge(a, b)):
        images, rank, pixels, (a_n, a_w, b_n, b_w) = one
        a_steps, b_steps = (a_n, a_steps[1], 0, 0, a_w), (b_n, b_steps[1], 0, 0, b_w)
    even = merge(a)
    linear = even is not None and even[1] == 0
    if linear:
        a_steps = (*a_steps[:4], even[3][1])
    return images, rank, pixels, linear, a_steps, b_steps


SPEC = KernelSpec(
    "wgrad",
    serves=("correlate",),
    refusal=lambda task: None,
    tiles=wgrad_tiles,
    add=add_wgrad,
    kernels=(wgrad,),
    work=lambda task, tile: wgrad_parts(task, tile)[1],
    lines=lines.WGRAD,
    expects=Expectation(
        products=1, loop=((614, 837, 535, 859), (633, 840, 681, 945), (397, 180, 321))
    ),
)
