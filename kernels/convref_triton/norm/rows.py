"""Ops along rows: layer norm, RMS norm, softmax and its logarithm, with their cotangents.

y[r, c]  = (x - mean) rstd w[c] + b[c],   rstd = 1 / sqrt(mean (x - mean)^2 + eps);  mean = 0 of RMS
dx[r, c] = rstd (g - mean g - z mean (g z)),   g = dy w,   z = (x - mean) rstd
dw[c], db[c] = sum over r of dy z, of dy

y  = exp(x - max) / sum exp(x - max);   dx = y (dy - sum dy y),   of the logarithm dy - y sum dy

A program has BM rows and reads BN columns at a time, once for each sum: those of short rows are in
the cache the next time. Every sum has a fixed order.
"""

from dataclasses import replace
from math import prod
from typing import Any

import triton
import triton.language as tl

from convref.ops import LayerNormProblem

from ..common.geometry import LIMIT, Tensor
from ..plan import lines
from ..plan.archs import PER_SM, SMS
from ..plan.builder import slots, vector
from ..plan.launch import Buffer, Launch
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Task
from ..plan.tile import WARP, Tile
from . import backward, statistics, sweep

RUNTIME = ["R", "C"]
SIZES = (4096, 1024)  # elements of a block
WIDEST = 2048  # columns of a block
WARPS = 4
VECTOR = 4  # elements of a load, with fewer of which the blocks above spill:
SHORT = (512,)


@triton.jit
def block(R, C, VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return (rows, which exist, columns of a block, columns, offset of each row)."""
    r, C = tl.program_id(0) * BM + tl.arange(0, BM), C * VEC
    return r, (r < R)[:, None], tl.arange(0, BN), C, r.to(tl.int64)[:, None] * C


@triton.jit
def read(tensor, rows, known, c, C, other):
    on = known & (c < C)[None, :]
    return tl.load(tensor + rows + c[None, :], on, other=other).to(tl.float32), on


@triton.jit(do_not_specialize=[*RUNTIME, "eps"])
def row_norm_kernel(
    x, w, b, y, mean, rstd, R, C, eps,
    VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write y, mean (none of RMS norm) and rstd of BM rows."""
    r, known, columns, C, rows = block(R, C, VEC, BM, BN)
    m, square = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    if mean is not None:
        for first in range(0, C, BN):
            m += tl.sum(read(x, rows, known, first + columns, C, 0.0)[0], 1)
        m /= C
        tl.store(mean + r, m, r < R)
    for first in range(0, C, BN):
        value, on = read(x, rows, known, first + columns, C, 0.0)
        off = tl.where(on, value - m[:, None], 0.0)
        square += tl.sum(off * off, 1)
    one = tl.full((BM,), 1.0, tl.float32)
    scale = tl.div_rn(one, tl.sqrt_rn(square / C + eps))
    tl.store(rstd + r, scale, r < R)
    for first in range(0, C, BN):
        c = first + columns
        value, on = read(x, rows, known, c, C, 0.0)
        z = (value - m[:, None]) * scale[:, None]
        if w is not None:
            z *= tl.load(w + c, c < C, other=0.0).to(tl.float32)[None, :]
        if b is not None:
            z += tl.load(b + c, c < C, other=0.0).to(tl.float32)[None, :]
        tl.store(y + rows + c[None, :], z.to(y.dtype.element_ty), on)


@triton.jit
def normed(x, mean, rstd, w, dy, rows, r, known, c, C, R):
    """Return (z, dy w, where they exist) of a block."""
    m = 0.0
    if mean is not None:
        m = tl.load(mean + r, r < R, other=0.0).to(tl.float32)[:, None]
    scale = tl.load(rstd + r, r < R, other=0.0).to(tl.float32)[:, None]
    value, on = read(x, rows, known, c, C, 0.0)
    g, _ = read(dy, rows, known, c, C, 0.0)
    if w is not None:
        g *= tl.load(w + c, c < C, other=0.0).to(tl.float32)[None, :]
    return (value - m) * scale, g, on


@triton.jit(do_not_specialize=RUNTIME)
def row_norm_dgrad_kernel(
    dy, x, w, mean, rstd, dx, R, C,
    VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write dx of BM rows."""
    r, known, columns, C, rows = block(R, C, VEC, BM, BN)
    level, along = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for first in range(0, C, BN):
        z, g, _ = normed(x, mean, rstd, w, dy, rows, r, known, first + columns, C, R)
        along += tl.sum(g * z, 1)
        if mean is not None:
            level += tl.sum(g, 1)
    level, along = level / C, along / C
    scale = tl.load(rstd + r, r < R, other=0.0).to(tl.float32)[:, None]
    for first in range(0, C, BN):
        c = first + columns
        z, g, on = normed(x, mean, rstd, w, dy, rows, r, known, c, C, R)
        out = (g - level[:, None] - z * along[:, None]) * scale
        tl.store(dx + rows + c[None, :], out.to(dx.dtype.element_ty), on)


@triton.jit(do_not_specialize=[*RUNTIME, "steps"])
def row_norm_wgrad_kernel(
    dy, x, mean, rstd, parts, R, C, steps,
    VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Store the sums of dy z and of dy of BN columns over a split: parts (splits, 2, C)."""
    c, C = tl.program_id(0) * BN + tl.arange(0, BN), C * VEC
    split = tl.program_id(1)
    with_z, plain = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for step in range(0, steps):
        r = (split * steps + step) * BM + tl.arange(0, BM)
        rows = r.to(tl.int64)[:, None] * C
        z, g, _ = normed(x, mean, rstd, None, dy, rows, r, (r < R)[:, None], c, C, R)
        plain += g
        with_z += g * z
    to = parts + split * 2 * C + c
    tl.store(to, tl.sum(with_z, 0), c < C)
    tl.store(to + C, tl.sum(plain, 0), c < C)


@triton.jit
def exponents(x, rows, known, columns, C, BM: tl.constexpr, BN: tl.constexpr):
    """Return the maximum of each row, and the sum of exp(x - maximum)."""
    top, total = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    for first in range(0, C, BN):
        value, _ = read(x, rows, known, first + columns, C, float("-inf"))
        new = tl.maximum(top, tl.max(value, 1))
        base = tl.where(new == float("-inf"), 0.0, new)  # no -inf - -inf of a block
        total = total * tl.where(top == new, 1.0, tl.exp(top - base))
        total += tl.sum(tl.exp(value - base[:, None]), 1)
        top = new
    return top, total


@triton.jit(do_not_specialize=RUNTIME)
def row_softmax_kernel(
    x, y, R, C, LOG: tl.constexpr, VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    _r, known, columns, C, rows = block(R, C, VEC, BM, BN)
    top, total = exponents(x, rows, known, columns, C, BM, BN)
    for first in range(0, C, BN):
        value, on = read(x, rows, known, first + columns, C, 0.0)
        off = value - top[:, None]
        out = off - tl.log(total)[:, None] if LOG else tl.exp(off) / total[:, None]
        tl.store(y + rows + (first + columns)[None, :], out.to(y.dtype.element_ty), on)


@triton.jit(do_not_specialize=RUNTIME)
def row_softmax_dgrad_kernel(
    dy, x, dx, R, C,
    LOG: tl.constexpr, VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    _r, known, columns, C, rows = block(R, C, VEC, BM, BN)
    top, total = exponents(x, rows, known, columns, C, BM, BN)
    # One use of each: Triton 3.6 aborts where the maximum or the sum of a loop has two.
    top, scale = top[:, None], (1.0 / total)[:, None]
    summed = tl.zeros((BM,), tl.float32)
    for first in range(0, C, BN):
        g, on = read(dy, rows, known, first + columns, C, 0.0)
        if not LOG:
            value, _ = read(x, rows, known, first + columns, C, 0.0)
            g *= tl.exp(value - top) * scale
        summed += tl.sum(tl.where(on, g, 0.0), 1)
    for first in range(0, C, BN):
        g, on = read(dy, rows, known, first + columns, C, 0.0)
        value, _ = read(x, rows, known, first + columns, C, 0.0)
        y = tl.exp(value - top) * scale
        out = g - y * summed[:, None] if LOG else y * (g - summed[:, None])
        tl.store(dx + rows + (first + columns)[None, :], out.to(dx.dtype.element_ty), on)


def rows_refusal(task: Task) -> str | None:
    call = task.builder.call
    if call.pass_ not in ("fprop", "backward", "dgrad", "wgrad", "bgrad"):
        return f"no kernel for {call.where}: there are some for fprop, backward"
    most = LIMIT - WIDEST  # a block may end beyond the last column
    return f"{most} elements or more" if prod(call.problem.shape("x")) >= most else None


def shape_of(task: Task) -> tuple[int, int]:
    """Return the numbers of rows and of columns."""
    problem = task.builder.call.problem
    shape = problem.shape("x")
    columns = prod(shape[1:]) if isinstance(problem, LayerNormProblem) else shape[problem.dim]
    return prod(shape) // max(columns, 1), columns


def order_of(task: Task) -> tuple[int, ...]:
    """Return the axes of x, those of a row innermost."""
    problem = task.builder.call.problem
    axes = tuple(range(len(problem.shape("x"))))
    if isinstance(problem, LayerNormProblem):
        return axes
    return (*(axis for axis in axes if axis != problem.dim), problem.dim)


def rows_tiles(task: Task) -> tuple[Tile, ...]:
    rows, columns = shape_of(task)
    found = []
    for size in SIZES if vector(task.dtype, columns) >= VECTOR else SHORT:
        bn = min(triton.next_power_of_2(max(columns, 16)), size, WIDEST)
        # An element a thread at least: warps that repeat a sum round it differently, since a
        # multiply-add takes one of two products unrounded, and store it at one address.
        least = WARP * WARPS // bn
        bm = max(min(triton.next_power_of_2(max(rows, 1)), size // bn), least)
        found.append(Tile(bm, bn, 1, WARPS, 1))
    return tuple(dict.fromkeys(found))


def launch(
    task: Task, kernel: Any, tensors: dict[str, Tensor | None], tile: Tile, **more: Any
) -> Launch:
    rows, columns = shape_of(task)
    vec = vector(task.dtype, columns)
    eps = getattr(task.builder.call.problem, "eps", 0.0)
    numbers = {"R": rows, "C": columns // vec, "eps": eps}
    names = set(kernel.arg_names)
    given, absent = slots({name: t for name, t in tensors.items() if name in names})
    constants = {"LOG": task.kind == "log_softmax", "VEC": vec, "BM": tile.bm, "BN": tile.bn}
    values = numbers | more
    return Launch(
        kernel,
        (-(-rows // tile.bm), 1, 1),
        given | {name: value for name, value in values.items() if name in names},
        absent | {name: value for name, value in constants.items() if name in names},
        tile.warps,
        tile.stages,
    )


def add_rows(task: Task, tile: Tile) -> None:
    builder, call = task.builder, task.builder.call
    whole = (role for role in call.wanted if role in ("y", "dx"))
    shape, order = call.problem.shape("x"), order_of(task)
    made = {role: builder.new(role, shape, order, call.dtype) for role in whole}
    made |= {role: statistics.new_vector(builder, role) for role in call.wanted if role not in made}
    norm, fprop = isinstance(call.problem, LayerNormProblem), call.pass_ == "fprop"
    given = builder.tensors
    tensors: dict[str, Tensor | None] = {
        role: builder.in_order(given[role], order) for role in ("x", "dy") if role in given
    }
    tensors |= {role: sweep.vector_of(builder, role) for role in ("w", "b", "mean", "rstd")}
    if fprop:
        tensors |= {role: made.get(role) for role in ("mean", "rstd")}
    kernel = row_norm_kernel if norm else row_softmax_kernel
    if "dx" in made:
        kernel = row_norm_dgrad_kernel if norm else row_softmax_dgrad_kernel
    if all(shape_of(task)) and ("y" in made or "dx" in made):
        builder.steps.append(launch(task, kernel, tensors | made, tile))
    if "dw" in made or "db" in made:
        _add_wgrad(task, tensors, made, tile)


def _add_wgrad(
    task: Task, tensors: dict[str, Tensor | None], made: dict[str, Tensor], tile: Tile
) -> None:
    """Add the launches of dw and db: sums over some rows each, and over these sums."""
    builder, (rows, columns) = task.builder, shape_of(task)
    tile = tile._replace(bm=max(16, tile.bm), bn=min(tile.bn, 64))
    blocks, across = -(-rows // tile.bm), -(-columns // tile.bn)
    steps = -(-blocks // max(SMS * PER_SM // across, 1)) or 1
    splits = -(-blocks // steps)
    shape = max(2 * splits, 1), columns
    builder.buffers[statistics.PARTS.role] = Buffer(shape, (columns, 1), "f32")
    if splits:
        operands = tensors | {"parts": statistics.PARTS}
        one = launch(task, row_norm_wgrad_kernel, operands, tile, steps=steps)
        # Columns along x: along y there are at most 65,535 programs.
        builder.steps.append(replace(one, grid=(across, splits, 1)))
    builder.steps.append(backward.wgrad_launch(builder, columns, made, splits))


OPS = "layer_norm", "rms_norm", "softmax", "log_softmax"
SPEC = KernelSpec(
    "rows",
    serves=OPS,
    refusal=rows_refusal,
    tiles=rows_tiles,
    add=add_rows,
    kernels=(
        row_norm_kernel,
        row_norm_dgrad_kernel,
        row_norm_wgrad_kernel,
        backward.norm_wgrad_kernel,
        row_softmax_kernel,
        row_softmax_dgrad_kernel,
    ),
    whole_call=True,
    lines=lines.alone(OPS, lines.ROWS),
    expects=Expectation(vectors=True, program=((1600, 1616),)),
)
