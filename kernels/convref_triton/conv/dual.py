"""A convolution and its tangent in one kernel, which share their loads.

y = x * w + b    y_dot = x_dot * w + x * w_dot + b_dot

Each step loads blocks of x, w and the tangents that are present, and computes two or three products
for two sums; two kernels would read x and w twice. Without a tangent of x or w there is nothing to
share.
"""

from dataclasses import replace

import triton
import triton.language as tl

from ..common.geometry import Geometry, Tensor
from ..common.index import tile_of
from ..common.windows import advance, is_valid, rows_of, valid_taps
from ..plan import cost, lines
from ..plan.builder import slots
from ..plan.cost import Work
from ..plan.launch import Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import UNFUSED, Task
from ..plan.tile import Change, Tile, TileTable, tiles
from . import gather


@triton.jit(do_not_specialize=gather.RUNTIME)
def dual(
    x, w, x_dot, w_dot, y, y_dot, bias, bias_dot,
    M, D, H, W, O, P, Q, OD, OH, OW, C, K, lo_d, lo_h, lo_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_g, x_d, x_h, x_w, x_c, w_0, w_g, w_t, w_r, w_s, w_c, w_k, y_n, y_g, y_d, y_h, y_w, y_c,
    RANK: tl.constexpr, WINDOW: tl.constexpr,
    INSIDE: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a tile of y and of y_dot, (BM pixels, BN channels); x_dot or w_dot may be None."""
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

    cols = tl.arange(0, BK)  # (BK,)
    outs = tile_n * BN + tl.arange(0, BN)  # (BN,)
    from_x = top * image_x + group * group_x
    from_w = group * group_w + w_0 + first[0] * w_t + first[1] * w_r + first[2] * w_s
    x_tile = (n * x_n + i_d * x_d + i_h * x_h + i_w * x_w)[:, None] + (cols * x_c)[None, :]
    known = outs < K
    w_tile = (cols * w_c)[:, None] + (outs * w_k)[None, :]

    MOVE: tl.constexpr = WINDOW.move
    STEP: tl.constexpr = WINDOW.step
    acc = tl.zeros((BM, BN), tl.float32)
    acc_dot = tl.zeros((BM, BN), tl.float32)
    pair, t, r, s, c = 0, 0, 0, 0, 0
    for _ in range(count[0] * count[1] * count[2] * tl.cdiv(C, BK)):
        here = (t * MOVE[0]) * x_d + (r * MOVE[1]) * x_h + (s * MOVE[2]) * x_w + c * x_c + from_x
        there = (t * STEP[0]) * w_t + (r * STEP[1]) * w_r + (s * STEP[2]) * w_s + c * w_c + from_w
        on_x, on_w = (rows < M)[:, None], known[None, :]
        if not INSIDE:
            on_x = is_valid(rows < M, bits, t, r, s, read, sizes, WINDOW)[:, None]
        if not WHOLE:
            on_x &= (c + cols < C)[None, :]
            on_w &= (c + cols < C)[:, None]
        a = tl.load(x + here + x_tile, on_x, other=0.0)  # (BM, BK)
        b = tl.load(w + there + w_tile, on_w, other=0.0)  # (BK, BN)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        if x_dot is not None:
            a_dot = tl.load(x_dot + here + x_tile, on_x, other=0.0)
            acc_dot = tl.dot(a_dot, b, acc_dot, input_precision=PRECISION)
        if w_dot is not None:
            b_dot = tl.load(w_dot + there + w_tile, on_w, other=0.0)
            acc_dot = tl.dot(a, b_dot, acc_dot, input_precision=PRECISION)
        pair, t, r, s, c = advance(pair, t, r, s, c + BK, C, count, WINDOW, 1)

    size = (OD, OH, OW)
    gather.store_tile(
        acc, y, bias, None, None, None, rows, M, top, n, written, size, outs, K, group, 0, y_steps,
        "",
    )  # fmt: skip
    gather.store_tile(
        acc_dot, y_dot, bias_dot, None, None, None, rows, M, top, n, written, size, outs, K, group,
        0, y_steps, "",
    )  # fmt: skip


NARROW = tiles(  # two sums
    "128x128x64 w8 s3, 128x64x64 w8 s3, 64x64x64 w4 s3, 128x128x32 w8 s4, 64x32x32 w4 s3"
)
TILES = TileTable(
    {"f16 bf16": NARROW, "ieee": gather.IEEE[1:], "tf32 tf32x3": gather.TF32[2:]},
    short={
        "f16 bf16": NARROW[-1:],
        "ieee": gather.IEEE[-1:],
        "tf32": gather.TF32[2:3],
        "tf32x3": (),
    },
    blocks=2,
    changes=(
        Change("sm_8", "f16 bf16", Tile(128, 128, 64, 8, 3)),
        Change("sm_8", "f16 bf16", Tile(128, 64, 64, 8, 3), below=16),
        Change("sm_8", "f16 bf16", Tile(64, 64, 64, 4, 3), 16, Tile(64, 64, 64, 8, 3)),
        Change("sm_8", "tf32", Tile(64, 64, 32, 4, 4), 8, Tile(64, 64, 32, 8, 4)),
        Change("sm_9", "tf32", Tile(64, 64, 32, 4, 4), 8),
        Change("sm_8", "tf32x3", Tile(64, 64, 32, 4, 4)),
    ),
)


def dual_refusal(task: Task) -> str | None:
    other = tangent(task)
    if task.fusion != UNFUSED:
        return "an epilogue has a derivative of its own"
    if not dual_tiles(task):
        return "too many addresses of short vectors"
    if task.role != "y" or other is None:
        return "no tangent together with the result"
    return None if other.pairs else "no tangent of x or w"


def tangent(task: Task) -> Task | None:
    """Return the task of y_dot, if the call has that result."""
    return replace(task, role="y_dot") if "y_dot" in task.builder.call.wanted else None


def dual_tiles(task: Task) -> tuple[Tile, ...]:
    return TILES.of(task, task.width)


def dual_work(task: Task, tile: Tile) -> Work:
    """Return the work of y and y_dot: three products of two blocks of each side."""
    count, steps = gather.gather_tile_count(task, tile), gather.gather_steps(task, tile)
    made = cost.block_work(
        task, tile, count, steps, reached=0.65, vector=task.width, per_vector=16, products=3
    )
    return made._replace(loaded=2 * made.loaded, issued=2 * made.issued)


def add_dual(task: Task, tile: Tile) -> None:
    other = tangent(task)
    assert other is not None
    (x, x_dot), (w, w_dot) = (_with_tangent(task, role) for role in "xw")
    y = task.result()
    y_dot = y._replace(role=other.role)
    task.builder.buffers[y_dot.role] = task.builder.buffers[y.role]
    results = stored, stored_dot = task.stored(y), other.stored(y_dot)
    pairs = (x, w), (x_dot, w_dot), results, (task.added, other.added)
    made = dual_launch(task.geometry, *pairs, task.scatters, tile, task.math)
    task.builder.steps.append(made)
    task.finish(stored, y)
    other.finish(stored_dot, y_dot)


def _with_tangent(task: Task, role: str) -> tuple[Tensor, Tensor | None]:
    given = (task.builder.tensors.get(name) for name in (role, f"{role}_dot"))
    one, *dot = task.one_order([tensor for tensor in given if tensor is not None])
    return one, dot[0] if dot else None


def dual_launch(
    geometry: Geometry,
    pair: tuple[Tensor, Tensor],
    tangents: tuple[Tensor | None, Tensor | None],
    results: tuple[Tensor, Tensor],
    biases: tuple[Tensor | None, Tensor | None],
    scatter: bool,
    tile: Tile,
    precision: str = "ieee",
) -> Launch:
    """Return the launch that computes y and y_dot: `gather_launch` with the kernel of this module.

    The pairs are (x, w), (x_dot, w_dot), of the strides of x and w, (y, y_dot), of equal strides,
    and (b, b_dot); `scatter` is whether y is the big side.
    """
    made = gather.gather_launch(geometry, (pair,), results[0], scatter, tile, precision)
    tensors = dict(zip(dual.arg_names, (*pair, *tangents, *results, *biases)))
    given, absent = slots(tensors)
    numbers = {name: made.arguments[name] for name in gather.RUNTIME}
    constants = {
        n: v for n, v in made.constants.items() if n in dual.arg_names and n not in tensors
    }
    return replace(made, kernel=dual, arguments=given | numbers, constants=absent | constants)


SPEC = KernelSpec(
    "dual",
    serves=("gather", "scatter"),
    refusal=dual_refusal,
    tiles=dual_tiles,
    add=add_dual,
    kernels=(dual,),
    work=dual_work,
    share=1 / 3,  # one product of three
    lines={"jvp": lines.FPROP["jvp"]},
    expects=Expectation(
        products=2,
        in_flight=0,
        why="two products go into one sum",
        loop=((414, 1745, 404, 878), (394, 1749, 347, 940), (313, 210, 415)),
    ),
)
