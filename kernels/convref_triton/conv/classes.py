"""The scattered product of few result channels, with all classes of pixels as columns.

x[n, c, i] = sum over taps r and channels k of y[n, k, p] w[k, c, r], i = p * stride + r - lo

The gradient of a stem: `gather` computes one class of pixels, those congruent modulo the stride,
after the other, and loads y for each. Here a row is one pixel of each class, i = j * stride + a,
and a column a pair of class a and channel c. At step u all of them read p = j + ahead - u, class a
with tap r = u * stride + a - before; classes that lack it multiply by zero.

An infinity or NaN times such a zero is NaN. Where a tile has a sum that is not finite, the program
repeats it class by class, without the pixels at taps that the class lacks.
"""

from math import prod

import triton
import triton.language as tl

from ..common import windows
from ..common.epilogue import finish
from ..common.geometry import LIMIT, Geometry, Tensor, filter_steps
from ..common.index import below, divisors, pixel
from ..plan import cost, lines
from ..plan.builder import channels_last, slots, vector
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Epilogue, Task
from ..plan.tile import Tile, TileTable, tiles
from .gather import reach

SIZES = "M J L H W P Q C K taps_h taps_w ahead_h ahead_w before_h before_w"
MAGIC = "p_magic p_shift q_magic q_shift"
STEPS = "y_n y_h y_w w_0 w_r w_s w_c x_n x_h x_w x_c"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit
def exists(r, s, FILTER: tl.constexpr):
    return (r >= 0) & (r < FILTER[0]) & (s >= 0) & (s < FILTER[1])


@triton.jit
def multiply(
    y, w, from_y, from_w, at, real, column, known, K, sizes, taps, before, e, y_steps, w_steps,
    FILTER: tl.constexpr, STRIDE: tl.constexpr, ALONE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Return the sums (BM, BN); ALONE, of taps that class `e` has."""
    taps_h, taps_w = taps
    y_h, y_w = y_steps
    w_r, w_s = w_steps
    k = tl.arange(0, BK)  # (BK,)
    acc = tl.zeros((BM, BN), tl.float32)
    u_h, u_w, first = 0, 0, 0
    for _ in range(taps_h * taps_w * tl.cdiv(K, BK)):
        on_y = real & below(at[0] - u_h, sizes[0]) & below(at[1] - u_w, sizes[1])
        r, s = u_h * STRIDE[0] - before[0], u_w * STRIDE[1] - before[1]
        if ALONE:
            on_y &= exists(r + e[0], s + e[1], FILTER)
        on_w = known & exists(r + column[0], s + column[1], FILTER)
        on_k = first + k < K
        a = tl.load(
            y + from_y[:, None] + (first - u_h * y_h - u_w * y_w + k)[None, :],
            on_y[:, None] & on_k[None, :], other=0.0,
        )  # fmt: skip
        b = tl.load(
            w + from_w[None, :] + (first + r * w_r + s * w_s + k)[:, None],
            on_w[None, :] & on_k[:, None], other=0.0,
        )  # fmt: skip
        acc = tl.dot(a, b, acc)
        first += BK
        turn = first >= K
        first = tl.where(turn, 0, first)
        u_w += turn.to(tl.int32)
        turn = u_w >= taps_w
        u_w = tl.where(turn, 0, u_w)
        u_h += turn.to(tl.int32)
    return acc


@triton.jit(do_not_specialize=RUNTIME)
def classes(
    y, w, x, bias, scale, shift, residual,
    M, J, L, H, W, P, Q, C, K, taps_h, taps_w, ahead_h, ahead_w, before_h, before_w,
    p_magic, p_shift, q_magic, q_shift, y_n, y_h, y_w, w_0, w_r, w_s, w_c, x_n, x_h, x_w, x_c,
    FILTER: tl.constexpr, STRIDE: tl.constexpr, WIDE: tl.constexpr,
    VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of x, (BM rows of one pixel of each class, BN pairs of class and channel)."""
    y_n, y_h, y_w, _ = windows.strides(y_n, y_h, y_w, y_w, VEC[0], WIDE)
    w_0, w_r, w_s, w_c = windows.strides(w_0, w_r, w_s, w_c, VEC[1], WIDE)
    x_n, x_h, x_w, x_c = windows.strides(x_n, x_h, x_w, x_c, 1, WIDE)
    K = K * VEC[2]
    rows = tl.program_id(0) * BM + tl.arange(0, BM)  # (BM,)
    n, _, j, i = pixel(rows, 1, J, L, 0, 0, p_magic, p_shift, q_magic, q_shift, 2)
    top, _, _, _ = pixel(
        tl.program_id(0) * BM, 1, J, L, 0, 0, p_magic, p_shift, q_magic, q_shift, 2
    )  # offsets count from the tile's first image
    n -= top
    outs = tl.arange(0, BN)  # (BN,)
    c, e_w, e_h = outs % C, outs // C % STRIDE[1], outs // C // STRIDE[1]
    known = e_h < STRIDE[0]
    at = j + ahead_h, i + ahead_w
    from_y = n * y_n + at[0] * y_h + at[1] * y_w
    from_w = w_0 + c * w_c + e_h * w_r + e_w * w_s
    near = y + top.to(tl.int64) * y_n
    acc = multiply(
        near, w, from_y, from_w, at, rows < M, (e_h, e_w), known, K, (P, Q), (taps_h, taps_w),
        (before_h, before_w), (0, 0), (y_h, y_w), (w_r, w_s),
        FILTER, STRIDE, False, BM, BN, BK,
    )  # fmt: skip
    if tl.max(acc.to(tl.int32, bitcast=True) & 0x7FFFFFFF) >= 0x7F800000:
        for e in range(STRIDE[0] * STRIDE[1]):
            one = e // STRIDE[1], e % STRIDE[1]
            own = multiply(
                near, w, from_y, from_w, at, rows < M, (e_h, e_w), known, K, (P, Q),
                (taps_h, taps_w), (before_h, before_w), one, (y_h, y_w), (w_r, w_s),
                FILTER, STRIDE, True, BM, BN, BK,
            )  # fmt: skip
            acc = tl.where((outs // C == e)[None, :], own, acc)

    h, v = (j * STRIDE[0])[:, None] + e_h[None, :], (i * STRIDE[1])[:, None] + e_w[None, :]
    inside = (rows < M)[:, None] & known[None, :] & (h < H) & (v < W)
    to_x = top.to(tl.int64) * x_n
    where = to_x + (n * x_n)[:, None] + h * x_h + v * x_w + (c * x_c)[None, :]
    acc = finish(acc, bias, scale, shift, residual, c, known, where, inside, ACTIVATION)
    tl.store(x + where, acc.to(x.dtype.element_ty), inside)


TILES = TileTable(
    {
        "f16 bf16": tiles(
            "128x16x64 w4 s4 run8, 256x16x64 w8 s3 run8, 128x16x32 w4 s4 run8, "
            "128x16x16 w4 s4 run8, 256x16x16 w8 s4 run8, 128x32x64 w4 s4 run8, "
            "128x32x16 w4 s4 run8, 128x64x64 w4 s3 run8, 128x64x16 w4 s4 run8"
        )
    },
    blocks=1,
)
MOST = 64  # columns: classes times channels


def columns(shape: Geometry) -> int:
    return prod(shape.stride) * shape.big_channels


def classes_refusal(task: Task) -> str | None:
    shape = task.geometry
    if len(task.pairs) != 1:
        return f"{len(task.pairs)} pairs of operands"
    if task.dtype == "f32":
        return "float32"
    if shape.groups > 1:
        return "groups"
    if shape.rank == 3:
        return "three axes"
    if prod(shape.stride) == 1:
        return "one class of pixels"
    if shape.dilation != (1, 1, 1):
        return "dilated filters"
    if columns(shape) > MOST:
        return f"{columns(shape)} columns, more than {MOST}"
    if task.load_width < 16:
        return "reduced channels that fill no vectors of 16 bytes"
    return None


def classes_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles of as many columns, whose rows of y are as long as there are channels."""
    width = max(16, 1 << (columns(task.geometry) - 1).bit_length())
    fitting = [tile for tile in TILES.of(task) if tile.bn == width]
    depth = max((t.bk for t in fitting if t.bk <= task.channels[0]), default=0)
    return tuple(t for t in fitting if t.bk == depth) or (min(fitting, key=lambda t: t.bk),)


def taps_of(shape: Geometry) -> tuple[tuple[int, int], ...]:
    """Return (steps, ahead, before) along (h, w), as the module's formula has them."""
    axes = zip(shape.filter[1:], shape.stride[1:], shape.lo[1:])
    found = []
    for taps, stride, lo in axes:
        ahead = -(-lo // stride)
        before = ahead * stride - lo
        found.append((-(-(before + taps) // stride), ahead, before))
    return tuple(zip(*found))


def coarse(shape: Geometry) -> tuple[int, ...]:
    """Return how many pixels of a class there are along (h, w), at most."""
    return tuple(-(-size // stride) for size, stride in zip(shape.big[1:], shape.stride[1:]))


def classes_work(task: Task, tile: Tile) -> Work:
    shape = task.geometry
    rows, (steps, _, _) = shape.n * prod(coarse(shape)), taps_of(shape)
    each = prod(steps) * -(-task.channels[0] // tile.bk)
    count = -(-rows // tile.bm)
    return cost.block_work(task, tile, count, each, reached=0.67, per_vector=16)


def add_classes(task: Task, tile: Tile) -> None:
    (y, w), k = task.pairs[0], channels_last(task.geometry.rank)
    (y,) = task.one_order([y])
    w = task.builder.in_order(w, (k[-1], *k[1:-1], k[0]))
    task.compute(lambda x, after: classes_launch(task.geometry, (y, w), x, tile, after))


def classes_launch(
    geometry: Geometry, pair: tuple[Tensor, Tensor], x: Tensor, tile: Tile, epilogue: Epilogue
) -> Launch:
    """Return the launch that computes x from (y, w); both have reduced channels innermost."""
    y, w = pair
    w_0, _, _, w_r, w_s, _, w_c = filter_steps(geometry, w, True)
    (y_n, _, _, *y_pixel), (x_n, x_c, _, *x_pixel) = y.steps, x.steps
    pixels, k = coarse(geometry), geometry.small_channels
    moves = (y_n, *y_pixel), (w_0, w_r, w_s, w_c), (k,)
    vec = tuple(vector(t.dtype, *move) for t, move in zip((y, w, y), moves))
    over = [[step // width for step in move] for move, width in zip(moves, vec)]
    rows = geometry.n * prod(pixels)
    sizes = (rows, *pixels, *geometry.big[1:], *geometry.small[1:], geometry.big_channels, *over[2])
    sizes += (*(n for each in taps_of(geometry) for n in each), *divisors(pixels))
    sizes += (*over[0], *over[1], x_n, *x_pixel, x_c)
    near = max(reach(t, t.steps, tile.bm, (1, *pixels)) for t in (x, y))
    tensors = {"y": y, "w": w, "x": x, **epilogue.tensors}
    given, absent = slots({name: tensors[name] for name in classes.arg_names[:7]})
    return Launch(
        classes,
        (-(-rows // tile.bm), 1, 1),
        given | dict(zip(RUNTIME, sizes)),
        absent
        | {
            "FILTER": geometry.filter[1:],
            "STRIDE": geometry.stride[1:],
            "WIDE": max(near + geometry.overhang(x, y), w.span) >= LIMIT,
            "VEC": vec,
            "BM": tile.bm,
            "BN": tile.bn,
            "BK": tile.bk,
            "ACTIVATION": epilogue.activation,
        },
        tile.warps,
        tile.stages,
    )


STEM = {"by_16": "n8c3k64_i28x28", "by_8": "n8c3k24_i28x28"}
SPEC = KernelSpec(
    "classes",
    serves=("scatter",),
    refusal=classes_refusal,
    tiles=classes_tiles,
    add=add_classes,
    kernels=(classes,),
    work=classes_work,
    lines={"dgrad_stem": lines.Line("conv.dgrad:{}_f7x7_s2_p3", {"": STEM})},
    expects=Expectation(products=1),
)
