"""The correlation of `wgrad` by warps of two kinds: one loads, two groups multiply.

dw[k, c, r] = sum over images n and pixels p of a[n, k, p] b[n, c, p * stride + r * dilation - lo]

Rows are channels of the small side a, columns channels of the big side b for one tap, and a block
is a box of pixels of both: b's box is a's, moved by the tap. Both lie in shared memory with their
channels side by side, from where the products read them across. Each part of the boxes has sums of
its own in a workspace, which `reduce` adds in a fixed order.

A box may not reach beyond a's pixels, where a zero would meet what b has there; images beyond the
last are zero on both sides, as are pixels where both sides have the same.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..common.geometry import LIMIT, Four, Geometry, Tensor, Three, filter_steps, merge
from ..common.index import divisor, tile_of
from ..common.reduce import add_in_parts
from ..common.windows import strides, unit
from ..conv import tma, wgrad
from ..conv.tma import corner, in_boxes, is_mapped, mapped
from ..plan import cost, lines
from ..plan.builder import channels_last, slot, vector
from ..plan.cost import Work
from ..plan.launch import Descriptor, Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import Tile
from . import ring
from .gluon_fprop import MOST_APART, TILES, load_box
from .ring import PART, closed, in_parts, opened, product, shared_out, taken, turns

SIZES = "K C items tiles steps groups lo_d lo_h lo_w"
BOXES = "boxes_o boxes_p boxes_q o_magic o_shift p_magic p_shift q_magic q_shift"
DEPTH = 64  # pixels of a block
RUNTIME = f"{SIZES} {BOXES} w_0 w_g w_k w_t w_r w_s w_c w_z".split()


@gluon.jit
def place(
    item, tiles, groups, K, C,
    TAPS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BAND: gl.constexpr,
):  # fmt: skip
    """Return (split, group, t, r, s, first row, first column) of a tile of a split."""
    rest = item // tiles
    split, group = rest // groups, rest % groups
    across = tl.cdiv(C, BN)
    row, column = tile_of(
        item - rest * tiles, tl.cdiv(K, BM), across * (TAPS[0] * TAPS[1] * TAPS[2]), BAND
    )
    tap = column // across
    t, r, s = tap // (TAPS[1] * TAPS[2]), tap // TAPS[2] % TAPS[1], tap % TAPS[2]
    return split, group, t, r, s, row * BM, (column - tap * across) * BN


@gluon.jit
def load(
    a, b, ring_of, items, tiles, groups, magic, lo, steps, K, C,
    RANK: gl.constexpr, TAPS: gl.constexpr, STRIDE: gl.constexpr, MOVE: gl.constexpr,
    BOX: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Load all blocks of a program's tiles, in the order in which they are multiplied."""
    left, right, full, free, _ = ring_of
    BYTES: gl.constexpr = a.block_type.nbytes + b.block_type.nbytes
    count = 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        split, group, t, r, s, k, c = place(item, tiles, groups, K, C, TAPS, BM, BN, BAND)
        d, h, v = t * MOVE[0] - lo[0], r * MOVE[1] - lo[1], s * MOVE[2] - lo[2]
        for box in range(split * steps, (split + 1) * steps):
            n, o, p, q = corner(box, *magic, RANK, BOX)
            at, came = taken(full, free, count, BYTES, STAGES)
            load_box(a, n, o, p, q, group * K + k, came, left.index(at), RANK)
            load_box(
                b, n, o * STRIDE[0] + d, p * STRIDE[1] + h, q * STRIDE[2] + v, group * C + c,
                came, right.index(at), RANK,
            )  # fmt: skip
            count += 1


@gluon.jit
def multiply(
    WHICH: gl.constexpr, w, ring_of, items, tiles, groups, steps, w_place, K, C,
    READERS: gl.constexpr, TAPS: gl.constexpr,
    WIDE: gl.constexpr, UNIT: gl.constexpr, VEC: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Compute a group's tiles, or its rows of all tiles, in parts of PART columns."""
    # Strides come in vectors, here too: what a product is divided by is not passed on to a group.
    w_0, w_g, w_k, w_t, w_r, w_s, w_c, w_z = w_place
    w_k, w_t, w_r, w_s = strides(w_k, w_t, w_r, w_s, VEC[0], WIDE)
    w_0, w_g, w_z = w_0 * VEC[0], w_g * VEC[0], w_z.to(gl.int64) * VEC[0]
    w_c, C = unit(w_c, UNIT, 1, WIDE), C * VEC[1]
    ROWS: gl.constexpr = BM // READERS
    TURNS: gl.constexpr = turns(READERS)
    LAST: gl.constexpr = 128 // w.dtype.element_ty.primitive_bitwidth  # of 16 bytes
    OUT: gl.constexpr = gl.BlockedLayout([1, LAST], [LAST // 2, 64 // LAST], [4, 1], [1, 0])
    program, programs = gl.program_id(0), gl.num_programs(0)
    for turn in range(WHICH % TURNS, tl.cdiv(items - program, programs), TURNS):
        item = program + turn * programs
        acc = product(*ring_of, turn, steps, WHICH, READERS, BM, BN, BK, True, STAGES)
        split, group, t, r, s, k, c = place(item, tiles, groups, K, C, TAPS, BM, BN, BAND)
        row = k + WHICH % READERS * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, OUT))  # (ROWS,)
        to_w = split * w_z + group.to(gl.int64) * w_g + w_0 + (t * w_t + r * w_r + s * w_s)
        parts = in_parts(acc, BN // PART)
        for part in gl.static_range(BN // PART):
            column = c + part * PART + gl.arange(0, PART, gl.SliceLayout(0, OUT))
            inside = (row < K)[:, None] & (column < C)[None, :]
            w_tile = to_w + ((row * w_k)[:, None] + (column * w_c)[None, :])
            out = gl.convert_layout(parts[part], OUT)
            gl.store(w + w_tile, out.to(w.dtype.element_ty), inside)


@gluon.jit(do_not_specialize=RUNTIME)
def gluon_wgrad(
    a, b, w,
    K, C, items, tiles, steps, groups, lo_d, lo_h, lo_w,
    boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    w_0, w_g, w_k, w_t, w_r, w_s, w_c, w_z,
    RANK: gl.constexpr, TAPS: gl.constexpr, STRIDE: gl.constexpr, MOVE: gl.constexpr,
    BOX: gl.constexpr, WIDE: gl.constexpr, UNIT: gl.constexpr, VEC: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
    STAGES: gl.constexpr, READERS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Compute every so-manieth tile, (BM channels of a, BN channels of b) of a tap and a split."""
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)
    full, free, order = opened(STAGES, READERS)
    ring_of = (left, right, full, free, order)
    magic = (
        boxes_o, boxes_p, boxes_q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift
    )  # fmt: skip
    w_place = (w_0, w_g, w_k, w_t, w_r, w_s, w_c, w_z)
    shared_out(
        multiply, (
            w, ring_of, items, tiles, groups, steps, w_place, K, C, READERS, TAPS, WIDE, UNIT, VEC,
            BM, BN, BK, BAND, STAGES,
        ),
        load, (
            a, b, ring_of, items, tiles, groups, magic, (lo_d, lo_h, lo_w), steps, K, C * VEC[1],
            RANK, TAPS, STRIDE, MOVE, BOX, BM, BN, BAND, STAGES,
        ),
        REGISTERS,
    )  # fmt: skip
    closed(full, free, order, STAGES)


def gluon_wgrad_refusal(task: Task) -> str | None:
    """Return why warps of two kinds do not compute a task, None if they do."""
    shape = task.geometry
    if reason := side_refusal(task):
        return reason
    if boxes_of(shape) is None:
        return (
            f"boxes that end with {shape.small[3 - shape.rank :]} pixels are more than half empty"
        )
    return None


def side_refusal(task: Task) -> str | None:
    """Return why the sides of a task do not fit, whatever its boxes are, None if they do."""
    shape = task.geometry
    channels = shape.small_channels, shape.big_channels
    if reason := ring.refusal(task):
        return reason
    if max(shape.stride) > MOST_APART:
        return f"boxes hold pixels that are at most {MOST_APART} apart"
    if min(channels) < PART.value or any(c * shape.groups % tma.VECTOR for c in channels):
        return f"{channels} channels do not fill a tile, or rows of them do not start at 16 bytes"
    return None


def gluon_wgrad_parts(task: Task, tile: Tile) -> tuple[int, Work]:
    """Return into how many parts the boxes are cut, and their work."""
    shape, (_, pixels, box) = task.geometry, boxes_of(task.geometry)
    tiles, steps = count(task, tile, shape.filter) * shape.groups, prod(in_boxes(pixels, box))
    options = {"reached": 0.8, "resident": cost.ALWAYS}
    return cost.cut(task, cost.block_work(task, tile, tiles, steps, **options))


def count(task: Task, tile: Tile, taps: Three) -> int:
    """Return how many tiles a group's result has, each of one of so many taps."""
    rows, columns = task.geometry.small_channels, task.geometry.big_channels
    return -(-rows // tile.bm) * prod(taps) * -(-columns // tile.bn)


def boxes_of(geometry: Geometry) -> tuple[int, Four, Four] | None:
    """Return (rank, pixels, box): boxes that end with the pixels and waste the fewest images.

    None if more than half of what they hold would be waste. Where each pixel meets one other, all
    are one axis, which both sides have the same end of.
    """
    pixels = geometry.pixels
    if geometry.pointwise:
        return 0, (prod(pixels), 1, 1, 1), (DEPTH, 1, 1, 1)
    shapes = [(DEPTH // prod(edges), *edges) for edges in tma.EDGES[geometry.rank]]
    fit = [
        box
        for box in shapes
        if box[0] and not any(n % edge for n, edge in zip(pixels[1:], box[1:]))
    ]
    box = min(fit, key=lambda box: prod(in_boxes(pixels, box)))
    few = prod(in_boxes(pixels, box)) * DEPTH <= 2 * prod(pixels)
    return (geometry.rank, pixels, box) if few else None


def add_gluon_wgrad(task: Task, tile: Tile) -> None:
    """Add the launches that compute a task, after copies that tensor maps describe."""
    sides = [tensor for tensor, _ in wgrad.sides(task)]
    one = not task.geometry.pointwise or merge(*sides) is not None
    add_sides(task, tile, gluon_wgrad_parts(task, tile)[0], gluon_wgrad_launch, one)


def add_sides(
    task: Task, tile: Tile, splits: int, launch: Callable[..., Launch], nested: bool = True
) -> None:
    """Add what computes a task in so many parts with a kernel of boxes, whose `launch` is given.

    Sides are copied where no tensor map describes them, or where they are said not to nest.
    """
    sides = [tensor for tensor, _ in wgrad.sides(task)]
    if not nested or not all(map(is_mapped, sides)):
        last = channels_last(task.geometry.rank)
        sides = [task.builder.copied(tensor, last) for tensor in sides]
    w = task.result()
    stored = task.stored(w)
    add_in_parts(
        task.builder, stored, splits, lambda first: launch(task, *sides, first, tile, splits)
    )
    task.finish(stored, w)


def gluon_wgrad_launch(
    task: Task, a: Tensor, b: Tensor, w: Tensor, tile: Tile, splits: int
) -> Launch:
    """Return the launch that computes w from the small side and the big one, or its partial sums.

    Parameters
    ----------
    task : Task
    a, b : Tensor
        Mapped; where each pixel meets one other, `merge` makes one axis of their pixels.
    w : Tensor
        Dense; with splits the first of as many that follow one another.
    tile : Tile
        Rows are channels of a, columns of b.
    splits : int
        As `gluon_wgrad_parts` has it.
    """
    geometry = task.geometry
    rank, pixels, box = boxes_of(geometry)
    (a_n, _, *a_pixel), (b_n, _, *b_pixel), read = a.steps, b.steps, geometry.big
    if geometry.pointwise:
        _, _, _, (a_n, _, b_n, _) = merge(a, b)
        a_pixel, b_pixel, read = [0, 0, 0], [0, 0, 0], (1, 1, 1)
    a_map = mapped(pixels, (a_n, *a_pixel), a.shape[1], (*box, tile.bm), rank)
    b_box, stride = (*box, tile.bn), geometry.stride
    b_map = mapped((pixels[0], *read), (b_n, *b_pixel), b.shape[1], b_box, rank, stride)
    numbers, constants = given(task, w, tile, splits, geometry.filter, in_boxes(pixels, box))
    return Launch(
        gluon_wgrad,
        (min(numbers["items"], task.programs), 1, 1),
        {"a": Descriptor(slot(a), *a_map), "b": Descriptor(slot(b), *b_map), "w": slot(w)}
        | numbers,
        constants | {"RANK": rank, "BOX": box},
        tile.warps,
        tile.stages,
    )


def given(
    task: Task, w: Tensor, tile: Tile, splits: int, taps: Three, boxes: Four
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return (numbers, constants) of a kernel whose tiles are of so many taps and boxes."""
    geometry = task.geometry
    k, c = geometry.small_channels, geometry.big_channels
    tiles = count(task, tile, taps)
    w_0, w_g, *w_taps, w_c, w_k = filter_steps(geometry, w, False)
    size = prod(w.shape)
    vec = vector(w.dtype, w_0, w_g, w_k, *w_taps, size), vector(w.dtype, c)
    numbers = (k, c // vec[1], tiles * geometry.groups * splits, tiles, -(-prod(boxes) // splits))
    numbers += (geometry.groups, *geometry.lo)
    numbers += (*boxes[1:], *(v for n in boxes[1:] for v in divisor(n)))
    numbers += (*(step // vec[0] for step in (w_0, w_g, w_k, *w_taps)), w_c, size // vec[0])
    constants = {
        "TAPS": taps,
        "STRIDE": geometry.stride,
        "MOVE": geometry.dilation,
        "WIDE": w.span >= LIMIT,
        "UNIT": w_c == 1,
        "VEC": vec,
    }
    return dict(zip(RUNTIME, numbers)), constants | ring.constants(tile)


SPEC = KernelSpec(
    "gluon_wgrad",
    serves=("correlate",),
    refusal=gluon_wgrad_refusal,
    tiles=TILES.of,
    add=add_gluon_wgrad,
    kernels=(gluon_wgrad,),
    work=lambda task, tile: gluon_wgrad_parts(task, tile)[1],
    measured_only=True,
    lines=lines.WGRAD,
    expects=Expectation(
        products=1,
        staged=False,
        registers=168,
        loop={
            "sm_90": (57,),
        },
    ),
)
