"""The gathered product through tensor maps: boxes of x and blocks of w that the hardware copies.

y[n, k, p] = sum over taps r and channels c of x[n, c, p + r * dilation - lo] w[k, c, r]

Rows are output channels and columns a box of pixels, so that both sides of the product stay in
shared memory: a box, which has to be reshaped, can only be the right one. Each tap moves the box;
what is outside of x is read as zero, which is the padding. Boxes cannot skip pixels: the stride
is 1, and then the adjoint is the same product with taps that move the other way.

Where a tap is absent w is multiplied by zero, which makes NaN of an infinity; zeros beyond the last
channel are multiplied by zeros in w. Rows and columns beyond the last have values of other groups
and pixels, and are not stored.
"""

import re
from collections.abc import Callable
from math import prod
from typing import Any

import triton
import triton.language as tl

from ..common.epilogue import finish
from ..common.geometry import ITEMSIZE, LIMIT, Four, Tensor, Three, merge
from ..common.index import divisors, pixel, tile_of
from ..common.windows import strides, unit
from ..plan import cost, lines
from ..plan.builder import channels_last, dense, slot, slots, vector
from ..plan.cost import Work
from ..plan.launch import Descriptor, Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Epilogue, Pairs, Task
from ..plan.tile import Tile, TileTable, tiles
from .gather import gather_steps, rows_read

SIZES = "N O P Q C K lo_d lo_h lo_w w_first w_tap w_row w_column"
BOXES = "boxes boxes_o boxes_p boxes_q o_magic o_shift p_magic p_shift q_magic q_shift"
RUNTIME = f"{SIZES} {BOXES} y_n y_g y_d y_h y_w y_c".split()
TENSORS = ["x", "w", "x_2", "w_2", "y", "bias", "scale", "shift", "residual"]


@triton.jit
def box_of(x, n, d, h, w, c, RANK: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Return a box of x as a matrix (BK channels, BN pixels)."""
    if RANK == 0:
        return x.load([n, c]).T
    elif RANK == 1:
        return x.load([n, w, c]).reshape((BN, BK)).T
    elif RANK == 2:
        return x.load([n, h, w, c]).reshape((BN, BK)).T
    else:
        return x.load([n, d, h, w, c]).reshape((BN, BK)).T


@triton.jit
def corner(
    box, boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    RANK: tl.constexpr, BOX: tl.constexpr,
):  # fmt: skip
    """Return (n, o, p, q) of the first pixel of a box of a row-major index."""
    n, o, p, q = pixel(
        box, boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK
    )
    return n * BOX[0], o * BOX[1], p * BOX[2], q * BOX[3]


@triton.jit
def in_image(i, n, o, p, q, N, O, P, Q, y_n, y_d, y_h, y_w, BOX: tl.constexpr):
    """Return the offsets from image n of pixels i of the box at (n, o, p, q), and which exist."""
    in_w, rest = i % BOX[3], i // BOX[3]
    in_h, rest = rest % BOX[2], rest // BOX[2]
    in_d, in_n = rest % BOX[1], rest // BOX[1]
    real = (n + in_n < N) & (o + in_d < O) & (p + in_h < P) & (q + in_w < Q)
    return in_n * y_n + (o + in_d) * y_d + (p + in_h) * y_h + (q + in_w) * y_w, real


@triton.jit
def add_products(
    acc, x, w, n, d, h, v, channel, row, column, tap, C,
    RANK: tl.constexpr, TAPS: tl.constexpr, MOVE: tl.constexpr, TRANSPOSED: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Return acc + w x over all taps and channels: the box starts at (n, d, h, v)."""
    T: tl.constexpr = TAPS[0]
    R: tl.constexpr = TAPS[1]
    S: tl.constexpr = TAPS[2]
    t, r, s, c = 0, 0, 0, 0
    for _ in range(T * R * S * tl.cdiv(C, BK)):
        a = w.load([row + c, column]).T if TRANSPOSED else w.load([row, column + c])  # (BM, BK)
        b = box_of(
            x, n, d + t * MOVE[0], h + r * MOVE[1], v + s * MOVE[2], channel + c, RANK, BN, BK
        )
        acc = tl.dot(a, b, acc)
        c += BK
        if c >= C:
            c = 0
            column += tap
            s += 1
            if s == S:
                s = 0
                r += 1
                if r == R:
                    r = 0
                    t += 1
    return acc


@triton.jit(do_not_specialize=RUNTIME)
def tma(
    x, w, x_2, w_2, y, bias, scale, shift, residual,
    N, O, P, Q, C, K, lo_d, lo_h, lo_w, w_first, w_tap, w_row, w_column,
    boxes, boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    y_n, y_g, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, TAPS: tl.constexpr, MOVE: tl.constexpr, PAIRS: tl.constexpr,
    TRANSPOSED: tl.constexpr, BOX: tl.constexpr,
    WIDE: tl.constexpr, UNIT: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of y, (BN pixels, BM channels), from the pairs (x, w) and (x_2, w_2)."""
    image_y, group_y = y_n.to(tl.int64) * VEC[0], y_g.to(tl.int64) * VEC[0]
    y_n, y_d, y_h, y_w = strides(y_n, y_d, y_h, y_w, VEC[0], WIDE)
    y_c, K = unit(y_c, UNIT, 1, WIDE), K * VEC[1]

    box, tile = tile_of(tl.program_id(0), boxes, tl.cdiv(K, BM), BAND)
    group = tl.program_id(1)
    n, o, p, q = corner(
        box, boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
        RANK, BOX,
    )  # fmt: skip
    d, h, v = o - lo_d, p - lo_h, q - lo_w
    row, column = group * w_row, w_first + group * w_column
    if TRANSPOSED:
        column += tile * BM
    else:
        row += tile * BM

    acc = tl.zeros((BM, BN), tl.float32)
    acc = add_products(
        acc, x, w, n, d, h, v, group * C, row, column, w_tap, C,
        RANK, TAPS, MOVE, TRANSPOSED, BN, BK,
    )  # fmt: skip
    if PAIRS == 2:
        acc = add_products(
            acc, x_2, w_2, n, d, h, v, group * C, row, column, w_tap, C,
            RANK, TAPS, MOVE, TRANSPOSED, BN, BK,
        )  # fmt: skip

    i = tl.arange(0, BN)  # (BN,)
    pixels, real = in_image(i, n, o, p, q, N, O, P, Q, y_n, y_d, y_h, y_w, BOX)
    outs = tile * BM + tl.arange(0, BM)  # (BM,)
    known = outs < K
    inside = real[:, None] & known[None, :]
    to_y = n * image_y + group * group_y
    y_tile = to_y + (pixels[:, None] + (outs * y_c)[None, :])
    out = finish(
        acc.T, bias, scale, shift, residual, group * K + outs, known, y_tile, inside, ACTIVATION
    )
    tl.store(y + y_tile, out.to(y.dtype.element_ty), inside)


BK = 64  # channels of a block: 128 bytes, the widest rows that tensor maps scatter over banks
VECTOR = 8
TILES = TileTable(  # rows are channels, columns pixels
    {
        "f16 bf16": tiles(
            "128x128x64 w8 s4, 128x256x64 w8 s3, 64x128x64 w4 s4, 128x64x64 w4 s4, 64x64x64 w4 s4"
        )
    },
    blocks=1,
)
# Edges (d, h, w) that boxes of pixels may have, by rank; the rest of a box is images. Each pair of
# a tile and edges is a binary of its own, so that there are few.
EDGES = {
    0: ((1, 1, 1),),
    1: ((1, 1, 128), (1, 1, 32), (1, 1, 8), (1, 1, 1)),
    2: ((1, 16, 16), (1, 8, 16), (1, 8, 8), (1, 4, 4), (1, 2, 2), (1, 1, 1)),
    3: ((4, 8, 8), (2, 8, 8), (4, 4, 4), (1, 8, 8), (2, 2, 2), (1, 1, 1)),
}


def tma_refusal(task: Task) -> str | None:
    strided = "boxes move with stride 1" if task.geometry.stride != (1, 1, 1) else None
    return box_refusal(task) or strided


def box_refusal(task: Task) -> str | None:
    """Return why boxes do not compute a task for any stride, None if they do for some stride."""
    geometry, (c, k) = task.geometry, task.channels
    if not re.fullmatch(r"sm_(9|1[0-9])[0-9]", task.arch):
        return f"{task.arch} has no tensor maps"
    if reason := operand_refusal(task):
        return reason
    if k < 64:
        return f"{k} result channels do not fill a tile"
    if c % VECTOR or (geometry.groups > 1 and c % BK):
        return f"rows of {c} channels do not start at multiples of 16 bytes, or blocks mix groups"
    return None


def operand_refusal(task: Task) -> str | None:
    """Return why operands are not of 16 bits or have no elements, None if they suit."""
    if ITEMSIZE[task.dtype] != 2:
        return f"{task.dtype} is not a 16-bit dtype"
    if not task.pairs or not all(prod(tensor.shape) for pair in task.pairs for tensor in pair):
        return "no products"
    return None


def best_box(size: int, pixels: Four, rank: int, stride: Three = (1, 1, 1)) -> Four:
    """Return the box of `size` pixels that covers (n, o, p, q) with the fewest boxes, widest first.

    With a stride a box reaches further, but not over more than 256 pixels along an axis.

    >>> best_box(128, (32, 1, 56, 56), 2), best_box(128, (32, 1, 14, 14), 2)
    ((2, 1, 8, 8), (32, 1, 2, 2))
    """
    shapes = [(size // prod(edges), *edges) for edges in EDGES[rank]]
    near = [box for box in shapes if all((n - 1) * s < 256 for n, s in zip(box[1:], stride))]
    fit = [box for box in near if 0 < box[0] <= 256]
    return min(fit, key=lambda box: prod(in_boxes(pixels, box)))


def in_boxes(pixels: Four, box: Four) -> Four:
    n, o, p, q = (-(-size // edge) for size, edge in zip(pixels, box))
    return n, o, p, q


def box_work(task: Task, tile: Tile, pixels: int, channels: int, reached: float) -> Work:
    """Return the work of a kernel on boxes with this number of pixels."""
    geometry, stride = task.geometry, task.geometry.stride
    rank, sizes, apart = geometry.rank, geometry.pixels, stride
    if task.scatters:
        o, p, q = (-(-b // s) for b, s in zip(geometry.big, stride))
        sizes, apart = (geometry.n, o, p, q), (1, 1, 1)
    if geometry.pointwise:
        rank, sizes = 0, (prod(sizes), 1, 1, 1)
    boxes = prod(in_boxes(sizes, best_box(pixels, sizes, rank, apart)))
    count = boxes * -(-task.channels[1] // channels) * task.copies
    rows = rows_read(task, boxes * task.classes, pixels)
    loaded = (rows + channels) * tile.bk * ITEMSIZE[task.dtype]
    steps = gather_steps(task, tile)
    made = cost.block_work(task, tile, count, steps, reached=reached, loaded=loaded)
    return made._replace(maps=True)


def add_boxes(task: Task, tile: Tile, launch: Callable[..., Launch]) -> None:
    """Add the launches of a box kernel for a task, after the copies that tensor maps need.

    `launch` has the parameters of `tma_launch`.
    """
    pairs = laid(task, stored=True)
    task.compute(lambda y, epilogue: launch(task, pairs, y, tile, epilogue))


def laid(task: Task, stored: bool = False) -> Pairs:
    """Return the pairs of a task as tensor maps need them, copied where necessary.

    `stored`: whether the kernel takes the filters of an adjoint in the order in which those of
    channels-last convolutions are stored.
    """
    scatter, c, last = task.kind == "scatter", task.channels[0], channels_last(task.geometry.rank)
    xs, copied = [x for x, _ in task.pairs], task.builder.copied
    if not all(map(is_mapped, xs)) or len({x.steps for x in xs}) > 1:
        xs = [copied(x, last) for x in xs]
    filters = [w for _, w in task.pairs]
    aligned = filters[0].shape[1] % VECTOR == 0  # each tap begins at a multiple of 16 bytes
    if stored and scatter and aligned and all(is_packed(w, last, w.shape[1]) for w in filters):
        return tuple(zip(xs, filters))
    axis, order = (0, (1, *last[1:-1], 0)) if scatter else (1, last)
    whole = -(-c // BK) * BK  # several groups have whole blocks anyway
    size = whole * task.geometry.groups if scatter else whole
    ws = [w if is_packed(w, order, size) else copied(w, order, {axis: size}) for w in filters]
    return tuple(zip(xs, ws))


def is_mapped(x: Tensor) -> bool:
    """Return whether a tensor map describes x: channels last, other axes nested around them."""
    unit, extent = VECTOR, x.shape[1]
    for step, size in zip(x.strides[:1:-1] + x.strides[:1], x.shape[:1:-1] + x.shape[:1]):
        if size > 1 and (step < extent or step % unit):
            return False
        if size > 1:
            unit, extent = step, step * size
    return x.aligned and x.steps[1] == 1 and extent * ITEMSIZE[x.dtype] < 2**40


def is_packed(w: Tensor, order: tuple[int, ...], size: int) -> bool:
    """Return whether w is dense with its axes in `order` and `size` elements along the last."""
    fits = dense(w.shape, order) == w.strides and w.shape[order[-1]] == size
    return fits and w.aligned


def tma_launch(task: Task, pairs: Pairs, y: Tensor, tile: Tile, epilogue: Epilogue) -> Launch:
    """Return the launch that computes y from at most two (x, w), of equal strides each.

    x is mapped and w packed, with whole blocks of channels unless there are several groups.
    """
    arguments, constants = given(task, pairs, y, tile.bn, tile.bm, tile.bk, epilogue)
    return Launch(
        tma,
        (arguments["boxes"] * -(-task.channels[1] // tile.bm), task.geometry.groups, 1),
        arguments,
        constants | tile.constants,
        tile.warps,
        tile.stages,
    )


def given(
    task: Task, pairs: Pairs, y: Tensor, pixels: int, channels: int, depth: int, epilogue: Epilogue
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (arguments, constants) of a kernel, given the pixels and channels of its tiles.

    Those of tiles are left to the kernel; `depth` is how many channels a block has.
    """
    (x, w), (c, k), geometry, scatter = pairs[0], task.channels, task.geometry, task.scatters
    read, written = (geometry.big, geometry.small)[:: -1 if scatter else 1]
    rank, images, (x_n, _, *x_pixel), (y_n, y_c, *y_pixel) = (
        geometry.rank, geometry.n, x.steps, y.steps
    )  # fmt: skip
    if geometry.pointwise and (one := merge(x, y)):
        images, rank, written, (x_n, x_w, y_n, y_w) = one
        read, x_pixel, y_pixel = written, [0, 0, x_w], [0, 0, y_w]
    sizes, stride = (images, *written), (1, 1, 1) if scatter else geometry.stride
    box = best_box(pixels, sizes, rank, stride)
    x_map = mapped((images, *read), (x_n, *x_pixel), x.shape[1], (*box, depth), rank, stride)
    transposed = is_transposed(task, w)
    tap, w_map = filters_of(task, w, transposed, (channels, depth))
    arguments, constants = tensors_of(pairs, x_map, w_map, y, epilogue)
    taps = prod(w.shape[2:])
    vec = vector(y.dtype, y_n, y_c * k, *y_pixel), vector(y.dtype, k)
    los = (-lo for lo in geometry.lo) if scatter else geometry.lo
    w_place = ((taps - 1) * tap, -tap) if geometry.flip else (0, tap)
    w_group = group_of(task, transposed)
    boxes = in_boxes(sizes, box)
    y_steps = (step // vec[0] for step in (y_n, y_c * k, *y_pixel))
    numbers = (*sizes, c, k // vec[1], *los, *w_place, *w_group, prod(boxes), *boxes[1:])
    numbers = (*numbers, *divisors(boxes[1:]), *y_steps, y_c)
    constants |= {
        "RANK": rank,
        "TAPS": geometry.filter,
        "MOVE": tuple(-d for d in geometry.dilation) if scatter else geometry.dilation,
        "BOX": box,
        "WIDE": y.image_span + box[0] * abs(y_n) >= LIMIT,
        "UNIT": y_c == 1,
        "VEC": vec,
        "TRANSPOSED": transposed,
    }
    return arguments | dict(zip(RUNTIME, numbers)), constants


Map = tuple[tuple[int, ...], ...]


def is_transposed(task: Task, w: Tensor) -> bool:
    """Return whether w, packed, is the filters of an adjoint as they are stored."""
    return task.scatters and w.strides[1] == 1


def filters_of(task: Task, w: Tensor, transposed: bool, block: tuple[int, int]) -> tuple[int, Map]:
    """Return the distance of two taps of a packed w in channels, and the map of its matrix.

    The last axis of the matrix is the one whose channels are contiguous; `block` has the channels
    of the result and of the sum.
    """
    tap, rows = w.shape[:2] if task.scatters and not transposed else w.shape[1::-1]
    columns = prod(w.shape[2:]) * tap
    return tap, ((rows, columns), (columns, 1), block[::-1] if transposed else block)


def group_of(task: Task, transposed: bool) -> tuple[int, int]:
    """Return the rows and columns of the matrix of filters from one group to the next."""
    c, k = task.channels
    if transposed:
        return c, 0
    return (0, c) if task.scatters else (k, 0)


def tensors_of(
    pairs: Pairs, x_map: Map, w_map: Map, y: Tensor, epilogue: Epilogue
) -> tuple[dict[str, Any], dict[str, Any]]:
    maps = dict(zip(TENSORS, (t for pair in pairs for t in pair)))
    arguments: dict[str, Any] = {
        name: Descriptor(slot(t), *(x_map if name[0] == "x" else w_map)) for name, t in maps.items()
    }
    arguments |= slots({"y": y, **epilogue.tensors})[0]
    missing = {name: None for name in TENSORS if name not in arguments}
    return arguments, missing | {"PAIRS": len(pairs), "ACTIVATION": epilogue.activation}


def mapped(
    sizes: Four,
    steps: Four,
    channels: int,
    box: tuple[int, ...],
    rank: int,
    stride: Three = (1, 1, 1),
) -> tuple[tuple[int, ...], ...]:
    """Return (shape, strides, block, every) of a map with `rank` spatial axes, channels last.

    An axis of size 1 gets a stride that nests as a map's have to.
    """
    axes = [axis for axis in range(4) if axis == 0 or axis > 3 - rank]
    extent, strides_ = channels, [1]
    for axis in reversed(axes):
        strides_.insert(0, steps[axis] if sizes[axis] > 1 else extent)
        extent = strides_[0] * sizes[axis]
    shape = (*(sizes[axis] for axis in axes), channels)
    block = (*(box[axis] for axis in axes), box[4])
    every = () if stride == (1, 1, 1) else (1, *stride[3 - rank :], 1)
    return shape, tuple(strides_), block, every


SPEC = KernelSpec(
    "tma",
    serves=("gather", "scatter"),
    refusal=tma_refusal,
    tiles=TILES.of,
    add=lambda task, tile: add_boxes(task, tile, tma_launch),
    kernels=(tma,),
    work=lambda task, tile: box_work(task, tile, tile.bn, tile.bm, reached=0.75),
    lines=lines.FPROP | lines.DGRAD,
    expects=Expectation(products=1, loop=((106,),)),
)
