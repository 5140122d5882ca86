"""A copy of a tensor into another order of its axes: NCHW to channels last, back, or padded.

y[n, k, i] = x[n, k, i], and 0 for channels k that x does not have

A tile is pixels by channels. Loads run along the axis that is contiguous in x, and stores along
that of y; the compiler exchanges the elements between threads where the two differ.
"""

from math import gcd, prod

import triton
import triton.language as tl

from ..plan.launch import Buffer, Launch, Slot
from ..plan.tile import Tile
from .geometry import ITEMSIZE, LIMIT, Tensor, merge

RUNTIME = ["L", "C", "K", "rows", "columns", "x_n", "x_step", "y_n", "y_step"]
DTYPES = ("f16", "bf16", "f32")
SQUARE = Tile(64, 64, 1, 4, 1)  # 128 bytes of 16-bit numbers along both axes
FEW = Tile(512, 8, 1, 4, 1)  # for at most 8 channels, as of an image


@triton.jit(do_not_specialize=RUNTIME)
def reorder(
    x, y, L, C, K, rows, columns, x_n, x_step, y_n, y_step,
    X_LAST: tl.constexpr, Y_LAST: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Copy BM pixels of BN channels; *_LAST: whether channels are contiguous, or else pixels."""
    L, C, K = L * VEC[2], C * VEC[3], K * VEC[4]
    column, tile = tl.program_id(0) % columns, tl.program_id(0) // columns
    i, c = tile % rows * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    n = (tile // rows).to(tl.int64)
    x_i, x_c = (x_step * VEC[0], 1) if X_LAST else (1, x_step * VEC[0])
    y_i, y_c = (y_step * VEC[1], 1) if Y_LAST else (1, y_step * VEC[1])
    from_x = x + n * (x_n.to(tl.int64) * VEC[0])
    to_y = y + n * (y_n.to(tl.int64) * VEC[1])
    inside = (i < L)[:, None]
    tile = (i * x_i)[:, None] + (c * x_c)[None, :]
    value = tl.load(from_x + tile, inside & (c < C)[None, :], other=0.0)
    tl.store(to_y + ((i * y_i)[:, None] + (c * y_c)[None, :]), value, inside & (c < K)[None, :])


def reorder_launch(x: Tensor, target: str, made: Buffer) -> Launch | None:
    """Return the launch that copies x to the beginning of a buffer with at least its channels.

    None if x has other axes than images, channels and pixels, or neither channels nor pixels of a
    side are contiguous.
    """
    y = Tensor(target, made.shape, made.strides, made.dtype)
    pixels = [(*tensor.shape[:1], *tensor.shape[2:]) for tensor in (x, y)]
    if len(x.shape) < 3 or x.dtype not in DTYPES or pixels[0] != pixels[1] or not prod(y.shape):
        return None
    merged = merge(x, y)
    if merged is None:
        return None
    images, rank, (_, _, length), steps = merged
    n, length = (1, images) if rank == 0 else (images, length)
    sides = [_side(tensor, n, length, step) for tensor, step in zip((x, y), steps[1::2])]
    if None in sides or max(t.image_span if rank else t.span for t in (x, y)) >= LIMIT:
        return None
    tile = FEW if y.shape[1] <= FEW.bn else SQUARE
    rows, columns = -(-length // tile.bm), -(-y.shape[1] // tile.bn)
    (x_last, *x_apart), (y_last, *y_apart) = sides
    groups = x_apart, y_apart, [length], [x.shape[1]], [y.shape[1]]
    vec = tuple(gcd(16 // ITEMSIZE[x.dtype], *group) for group in groups)
    (x_n, x_step), (y_n, y_step), *sizes = ([v // w for v in g] for g, w in zip(groups, vec))
    numbers = *(size for (size,) in sizes), rows, columns, x_n, x_step, y_n, y_step
    return Launch(
        reorder,
        (n * rows * columns, 1, 1),
        {"x": Slot(x.role, x.dtype, x.aligned), "y": Slot(target, y.dtype)}
        | dict(zip(RUNTIME, numbers)),
        {"X_LAST": x_last, "Y_LAST": y_last, "VEC": vec, "BM": tile.bm, "BN": tile.bn},
        tile.warps,
        tile.stages,
    )


def _side(tensor: Tensor, images: int, pixels: int, step: int) -> tuple[bool, int, int] | None:
    """Return whether channels are contiguous, the stride of images, and that of the other axis.

    If channels are not contiguous, pixels are; None if neither are, as in an expanded tensor.
    `step` is the stride of pixels.
    """
    image, channel = tensor.steps[0] if images > 1 else 0, tensor.steps[1]
    several, lines = tensor.shape[1] > 1, step == 1 or pixels == 1
    if channel == 1 and (several or not lines):
        return True, image, step
    return (False, image, channel if several else 0) if lines else None
