"""The sum of a tensor over images and pixels: db[k] = sum over n and p of dy[n, k, p].

A block adds its pixels in float32, one sum a lane, and the lanes as a tree; `reduce` adds the
blocks: no sum has many terms in a row. wgrad reads the same dy but does not add it up: compiled for
sm_90, that made each step of all its tiles 360 instructions instead of 195, with 213 registers.
"""

from math import prod

import triton
import triton.language as tl

from ..common.geometry import LIMIT, Tensor, Three, merge
from ..common.index import divisors, pixel
from ..common.reduce import add_in_parts
from ..common.windows import MAGIC, strides, unit
from ..plan import archs, lines
from ..plan.builder import slot, vector
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from ..plan.task import Task
from ..plan.tile import Change, Tile, TileTable

SIZES = "L O P Q K steps"
STEPS = "y_n y_d y_h y_w y_k"
RUNTIME = f"{SIZES} {MAGIC} {STEPS}".split()  # not specialized: a new shape compiles nothing


@triton.jit(do_not_specialize=RUNTIME)
def bgrad(
    dy, db, L, O, P, Q, K, steps, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    y_n, y_d, y_h, y_w, y_k,
    RANK: tl.constexpr, UNIT: tl.constexpr, VEC: tl.constexpr, LANES: tl.constexpr,
    WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add up a split of the pixels; a row of the tile has LANES contiguous elements."""
    image = y_n.to(tl.int64) * VEC[0]
    y_n, y_d, y_h, y_w = strides(y_n, y_d, y_h, y_w, VEC[0], WIDE)
    y_k, K = unit(y_k, UNIT, VEC[0], WIDE), K * VEC[1]
    split = tl.program_id(1)
    k = tl.program_id(0) * BN + tl.arange(0, BN)  # (BN,)
    first = split * steps * BM
    top, _, _, _ = pixel(
        first, O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK
    )  # the split's first image, from which rows and offsets count
    begin = first - top * (O * P * Q)
    end = begin + tl.minimum(steps * BM, L - first)
    columns = (k * y_k)[None, :, None] + tl.arange(0, LANES)[None, None, :]
    known = (k < K)[None, :, None]
    start = dy + top.to(tl.int64) * image
    acc = tl.zeros((BM, BN, LANES), tl.float32)
    for i in range(begin, end, BM):
        rows = i + tl.arange(0, BM)  # (BM,)
        n, o, p, q = pixel(
            rows, O, P, Q, o_magic, o_shift, p_magic, p_shift, q_magic, q_shift, RANK
        )
        tile = (n * y_n + o * y_d + p * y_h + q * y_w)[:, None, None] + columns
        inside = (rows < end)[:, None, None] & known
        acc += tl.load(start + tile, inside, other=0.0).to(tl.float32)  # (BM, BN, LANES)
    total = tl.sum(tl.sum(acc, 2), 0)  # (BN,)
    tl.store(db + split * K + k, total.to(db.dtype.element_ty), k < K)


TILES = TileTable(  # pixels, or vectors of them, and channels of a block
    {"*": (Tile(64, 64, 1, 4, 1), Tile(512, 1, 1, 4, 1))},
    changes=(Change("sm_8", "f16 bf16", Tile(64, 64, 1, 4, 1), instead=Tile(64, 64, 1, 8, 1)),),
)
LEAST_STEPS = 4  # of a block


def bgrad_tile(task: Task) -> Tile:
    """Return the tile whose lanes run along the contiguous axis."""
    dy = task.added
    last = dy.steps[1] == 1 and dy.shape[1] > 1
    return TILES.of(task)[0 if last else 1]


def add_bgrad(task: Task, tile: Tile) -> None:
    dy, db = task.added, task.result()
    images, _, pixels, *_ = _rows(dy, tile)
    splits = blocks(tile, db.shape[0], images * prod(pixels))
    add_in_parts(task.builder, db, splits, lambda first: bgrad_launch(dy, first, tile, splits))


def blocks(tile: Tile, columns: int, rows: int) -> int:
    """Return the number of splits of a sum over `rows` that fills a GPU."""
    most = max(rows // (tile.bm * LEAST_STEPS), 1)
    return min(max(archs.SMS * archs.PER_SM // -(-columns // tile.bn), 1), most)


def bgrad_launch(dy: Tensor, db: Tensor, tile: Tile, splits: int = 1) -> Launch:
    """Return the launch that adds up dy (N, K, *pixels) into db (K,), or its partial sums.

    db is dense; with splits it is the first of as many consecutive tensors, the last of which may
    have nothing to add up.
    """
    images, rank, pixels, moves, k, lanes = _rows(dy, tile)
    rows = images * prod(pixels)
    steps = -(-rows // (tile.bm * splits))
    far = steps * tile.bm // max(prod(pixels), 1) + 2  # images that a split may reach
    spans = zip((*pixels, dy.shape[1]), (*moves[1:], k))
    reach = far * abs(moves[0]) + sum((size - 1) * abs(step) for size, step in spans) + lanes
    vec = vector(dy.dtype, *moves, k * (k != 1)), vector(dy.dtype, dy.shape[1])
    sizes = (rows, *pixels, dy.shape[1] // vec[1], steps)
    sizes += divisors(pixels)
    sizes += (*(move // vec[0] for move in moves), k if k == 1 else k // vec[0])
    return Launch(
        bgrad,
        (-(-dy.shape[1] // tile.bn), splits, 1),
        {"dy": slot(dy), "db": slot(db)} | dict(zip(RUNTIME, sizes)),
        {
            "RANK": rank,
            "UNIT": k == 1,
            "VEC": vec,
            "LANES": lanes,
            "WIDE": reach >= LIMIT,
            "BM": tile.bm,
            "BN": tile.bn,
        },
        tile.warps,
        tile.stages,
    )


def _rows(dy: Tensor, tile: Tile) -> tuple[int, int, Three, tuple[int, ...], int, int]:
    """Return images, rank, pixels, strides of (n, d, h, w), the stride of k, and lanes of a row.

    The rank is the least that the strides allow; pixels and w count rows of that many lanes.
    """
    n, k, *moves = dy.steps
    k = k if dy.shape[1] > 1 else 0
    spatial = dy.shape[2:]
    images, rank, pixels = dy.shape[0], len(spatial), (1,) * (3 - len(spatial)) + spatial
    if one := merge(dy):
        images, rank, pixels, (n, w) = one
        moves = [0, 0, w]
    if rank == 0 and tile.bn == 1 and w == 1:  # contiguous pixels of all images count as one image
        images, rank, pixels, n = 1, 1, (1, 1, images), 0
    lanes = 1
    if tile.bn == 1 and moves[2] == 1:
        lanes = vector(dy.dtype, pixels[2], n, moves[0], moves[1], k)
    return (
        images,
        rank,
        (*pixels[:2], pixels[2] // lanes),
        (n, *moves[:2], moves[2] * lanes),
        k,
        lanes,
    )


SPEC = KernelSpec(
    "bgrad",
    serves=("total",),
    refusal=lambda task: None,
    tiles=TILES.of,
    add=add_bgrad,
    kernels=(bgrad,),
    choose=bgrad_tile,
    lines=lines.BGRAD,
)
