"""Convolutions of 8-bit integers: products on tensor cores, sums in int32, scaled per channel.

acc[n, k, p] = sum over r, c of (x[n, c, o_r] - x_zero) (w[k, c, r] - zero[k])
y[n, k, p]   = saturated(round(float32(acc[n, k, p] + b[k]) scale[k]) + y_zero)

Factors of a product are signed: u = s + 128 of an unsigned one, so that its zero point is 128 less.
With a for the first, z for the second zero point and L products in a sum, padding reading a,

acc = sum of x w - a (sum of w) - z (sum of x) + L a z

and each program adds up its rows of x and its columns of w besides the product.
"""

from math import prod

import triton
import triton.language as tl

from convref.ops import QuantizedConvProblem

from ..common import images, windows
from ..common.geometry import LIMIT, Geometry, Tensor, filter_steps, geometry
from ..common.index import divisors, tile_of
from ..plan.builder import slots, vector
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Change, Tile, TileTable, tiles
from .gather import STEPS, in_elements, in_vectors, reach

SIZES = "M D H W O P Q C K lo_d lo_h lo_w"
RUNTIME = f"{SIZES} {windows.MAGIC} {STEPS} x_zero y_zero low high".split()
TILES = TileTable(
    {"*": tiles("128x128x64 w8 s4, 128x64x64 w8 s4, 64x64x64 w8 s4, 64x32x64 w4 s4")},
    short={"*": tiles("64x32x32 w8 s3, 32x32x32 w8 s3")},  # an address for each byte
    changes=(Change("sm_8", "i8 u8", Tile(128, 64, 64, 8, 4)),),
)
MOST_PRODUCTS = 2**17  # of a sum, which then stays below 2**31
RANGES = {"i8": (-128, 127), "u8": (0, 255)}


@triton.jit
def signed(values, SHIFT: tl.constexpr):
    """Return 8-bit values less SHIFT, 0 or 128, as int8."""
    return (values ^ SHIFT).to(tl.int8, bitcast=True) if SHIFT else values


@triton.jit
def scaled(acc, scale, y_zero, low, high):
    """Return the nearest integers to acc * scale, ties to even, from `low` to `high`."""
    v = acc.to(tl.float32) * scale
    v = tl.minimum(tl.maximum(v, -1024.0), 1024.0)  # beyond every 8-bit result
    v = (v + 12582912.0) - 12582912.0  # 1.5 * 2**23: sums from there on are integers
    v += y_zero.to(tl.float32)
    return tl.minimum(tl.maximum(v, low.to(tl.float32)), high.to(tl.float32)).to(tl.int32)


@triton.jit(do_not_specialize=RUNTIME)
def integer_kernel(
    x, w, b32, zero, scale, y,
    M, D, H, W, O, P, Q, C, K, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_g, x_d, x_h, x_w, x_c, w_0, w_g, w_t, w_r, w_s, w_c, w_k, y_n, y_g, y_d, y_h, y_w, y_c,
    x_zero, y_zero, low, high,
    RANK: tl.constexpr, WINDOW: tl.constexpr, SHIFT: tl.constexpr, WIDE: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """Compute a tile of results, (BM pixels, BN channels)."""
    x_steps, w_steps, y_steps, C, K = in_elements(
        (x_n, x_g, x_d, x_h, x_w, x_c), (w_0, w_g, w_t, w_r, w_s, w_c, w_k),
        (y_n, y_g, y_d, y_h, y_w, y_c), C, K, UNIT, VEC, WIDE,
    )  # fmt: skip
    image_x, group_x, x_n, x_d, x_h, x_w, x_c = x_steps
    w_0, group_w, w_t, w_r, w_s, w_c, w_k = w_steps
    image_y, group_y, y_n, y_d, y_h, y_w, y_c = y_steps
    MOVE: tl.constexpr = WINDOW.move
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(K, BN), BAND)
    group, sizes = tl.program_id(1), (D, H, W)
    magic = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    rows, top, n, written, read, _, count = windows.rows_of(
        tile_m, tile_m * 0, M, (O, P, Q), (lo_d, lo_h, lo_w), magic, RANK, WINDOW, BM
    )
    real = rows < M
    bits = windows.valid_taps(real, read, sizes, WINDOW)
    cols = tl.arange(0, BK)
    outs = tile_n * BN + tl.arange(0, BN)
    known = outs < K
    x += top * image_x + group * group_x
    w += group * group_w + w_0
    x_tile = (n * x_n + read[0] * x_d + read[1] * x_h + read[2] * x_w)[:, None]
    x_tile = x_tile + (cols * x_c)[None, :]
    w_tile = (cols * w_c)[:, None] + (outs * w_k)[None, :]
    acc = tl.zeros((BM, BN), tl.int32)
    of_x, of_w = tl.zeros((BM,), tl.int32), tl.zeros((BN,), tl.int32)
    pair, t, r, s, c = 0, 0, 0, 0, 0
    for _ in range(count[0] * count[1] * count[2] * tl.cdiv(C, BK)):
        on = windows.is_valid(real, bits, t, r, s, read, sizes, WINDOW)[:, None]
        here = (t * MOVE[0]) * x_d + (r * MOVE[1]) * x_h + (s * MOVE[2]) * x_w + c * x_c
        there = t * w_t + r * w_r + s * w_s + c * w_c
        # Channels beyond the last are 0 as signed numbers, padding is x_zero. With 128 as a
        # constant, Triton before 3.9 fills pairs of bytes with 0xff80.
        in_c = c + cols < C
        absent = tl.where(in_c, x_zero, SHIFT).to(x.dtype.element_ty)
        a = tl.load(x + here + x_tile, on & in_c[None, :], other=absent[None, :])  # (BM, BK)
        on_b = known[None, :] & in_c[:, None]
        zeros = absent[:, None] if SHIFT else 0
        b = tl.load(w + there + w_tile, on_b, other=zeros)  # (BK, BN)
        a, b = signed(a, SHIFT), signed(b, SHIFT)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
        of_x += tl.sum(a.to(tl.int32), 1)
        of_w += tl.sum(b.to(tl.int32), 0)
        pair, t, r, s, c = windows.advance(pair, t, r, s, c + BK, C, count, WINDOW, 1)
    channel, first = group * K + outs, x_zero - SHIFT
    second = tl.load(zero + channel, known, other=0) - SHIFT
    length = count[0] * count[1] * count[2] * C
    acc -= of_x[:, None] * second[None, :]
    acc += (second * length * first - of_w * first)[None, :]
    if scale is not None:
        if b32 is not None:
            acc += tl.load(b32 + channel, known, other=0)[None, :]
        factor = tl.load(scale + channel, known, other=0.0)[None, :]
        acc = scaled(acc, factor, y_zero, low, high)
    o, p, q = written
    tile = (n * y_n + o * y_d + p * y_h + q * y_w)[:, None] + (outs * y_c)[None, :]
    to = y + top * image_y + group * group_y + tile
    tl.store(to, acc.to(y.dtype.element_ty), real[:, None] & known[None, :])


def integer_refusal(task: Task) -> str | None:
    call = task.builder.call
    problem, (low, high) = call.problem, RANGES[call.dtype]
    if not low <= problem.x_zero <= high:
        return f"an input_zero_point of {problem.x_zero}, which is no {call.dtype}"
    shape = geometry(problem)
    if shape.n * max(prod(shape.big), prod(shape.small)) >= LIMIT:
        return "2**31 pixels or more"
    if shape.big_channels * shape.taps >= MOST_PRODUCTS:
        return f"{MOST_PRODUCTS} products or more of a sum, at which tensor cores may saturate"
    if shape.groups > 65_535:
        return "more than 65535 groups"
    return None


def integer_tiles(task: Task) -> tuple[Tile, ...]:
    """Return the tiles that are not twice as wide as the channels, the largest first."""
    shape = geometry(task.builder.call.problem)
    rows = TILES.of(task, vector(task.dtype, shape.big_channels))
    return tuple(tile for tile in rows if tile.bn < 2 * shape.small_channels) or rows[-1:]


def add_integer(task: Task, tile: Tile) -> None:
    builder = task.builder
    y = images.result(builder, task.role, builder.tensors["x"])
    if prod(y.shape):
        shape = geometry(builder.call.problem)
        builder.steps.append(integer_launch(task, shape, y, tile))


def integer_launch(task: Task, shape: Geometry, y: Tensor, tile: Tile) -> Launch:
    given, problem = task.builder.tensors, task.builder.call.problem
    x, w, c, k = given["x"], given["w"], shape.big_channels, shape.small_channels
    w_steps = filter_steps(shape, w, False)
    unit_w = 1 if w_steps[5] == 1 else 2 if w_steps[6] == 1 else 0
    steps, vec = in_vectors(x.dtype, x.steps, w_steps, y.steps, c, k, unit_w)
    rows = shape.n * prod(shape.small)
    near = max(reach(t, t.steps, tile.bm, shape.small) for t in (x, y))
    numbers = (rows, *shape.big, *shape.small, c // vec[3], k // vec[4], *shape.lo)
    numbers += divisors(shape.small)
    numbers_8 = (problem.x_zero, getattr(problem, "y_zero", 0), *RANGES[x.dtype])
    operands: dict[str, Tensor | None] = {"b32": None, "scale": None, "y": y}
    vectors = ("b32", "zero", "scale") if isinstance(problem, QuantizedConvProblem) else ("zero",)
    operands |= {name: task.vector(name) for name in vectors if name in given}
    slots_given, absent = slots({"x": x, "w": w, **operands})
    return Launch(
        integer_kernel,
        (-(-rows // tile.bm) * -(-k // tile.bn), shape.groups, 1),
        slots_given | dict(zip(RUNTIME, numbers)) | steps | dict(zip(RUNTIME[-4:], numbers_8)),
        absent
        | {
            "RANK": shape.rank,
            "WINDOW": windows.window(shape, False),
            "SHIFT": 128 if x.dtype == "u8" else 0,
            "WIDE": max(near + shape.overhang(x, y), w.span) >= LIMIT,
            "UNIT": (x.steps[1] == 1, unit_w, y.steps[1] == 1),
            "VEC": vec,
            **tile.constants,
        },
        tile.warps,
        tile.stages,
    )


OPS = ("conv_integer", "quantized_conv")
SPEC = KernelSpec(
    "integer",
    serves=OPS,
    refusal=integer_refusal,
    tiles=integer_tiles,
    add=add_integer,
    kernels=(integer_kernel,),
    whole_call=True,
    dtypes=("i8", "u8"),
)
