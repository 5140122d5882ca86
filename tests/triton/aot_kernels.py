"""Small kernels with everything that the compiler, the inspector and the launcher deal with."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


@triton.jit
def product(
    a, b, c, M, N, K, a_row, b_row, c_row, factor,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, PRECISION: tl.constexpr = "ieee",
):  # fmt: skip
    """c = factor * a @ b, tile by tile."""
    i = tl.program_id(0) * TM + tl.arange(0, TM)
    j = tl.program_id(1) * TN + tl.arange(0, TN)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for start in range(0, K, TK):
        k = start + tl.arange(0, TK)
        on_a, on_b = (i < M)[:, None] & (k < K)[None, :], (k < K)[:, None] & (j < N)[None, :]
        left = tl.load(a + i[:, None] * a_row + k[None, :], mask=on_a, other=0.0)
        right = tl.load(b + k[:, None] * b_row + j[None, :], mask=on_b, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    on_c = (i < M)[:, None] & (j < N)[None, :]
    where = c + i[:, None] * c_row + j[None, :]
    tl.store(where, (total * factor).to(c.dtype.element_ty), mask=on_c)


@triton.jit
def product_of_boxes(a, b, c, c_row, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """c = a @ b, whose tiles come through tensor maps."""
    i, j = tl.program_id(0) * TM, tl.program_id(1) * TN
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in range(0, K, TK):
        total = tl.dot(a.load([i, k]), b.load([k, j]), total)
    row, column = i + tl.arange(0, TM), j + tl.arange(0, TN)
    where = c + row[:, None] * c_row + column[None, :]
    tl.store(where, total.to(c.dtype.element_ty))


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x", "step"])
def every_kind(
    x, y, z: tl.const, n, step, wide: tl.int64, scale: tl.float32, flag: tl.int1,
    low: tl.int8, plain, SIZE: tl.constexpr = 16,
):  # fmt: skip
    """y = x + z, with every kind of parameter."""
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    if flag:
        tl.store(y + i * step, tl.load(x + i, mask=i < n, other=0.0) + tl.load(z + wide + low))


@triton.jit
def not_assembled(y):
    """Text that no assembler takes."""
    tl.store(y, tl.inline_asm_elementwise("nonsense $0, $1;", "=r,r", [1], tl.int32, True, 1))


@triton.jit
def not_typed(y):
    """A name that is not there."""
    tl.store(y, absent)  # noqa: F821


@triton.jit
def aborts(y):
    """Constraints that do not fit the operands: LLVM ends the process."""
    i = tl.arange(0, 128)
    tl.store(y + i, tl.inline_asm_elementwise("mov.u32 $0, $1;", "=r,r,r", [i], tl.int32, True, 1))


@triton.jit
def fails_a_pass(y, T: tl.constexpr):
    """A reshape between load and product, which specializing warps does not survive."""
    i = tl.arange(0, T)
    where = y + i[:, None] * T + i[None, :]
    total = tl.zeros((T, T), tl.float32)
    for k in tl.range(0, 10, warp_specialize=True):
        right = tl.load(where - k).reshape(T // 2, 2, T).permute(1, 0, 2).reshape(T, T)
        total = tl.dot(tl.load(where + k), right, total)
    tl.store(where, total)


@triton.jit
def double(x, y, n, SIZE: tl.constexpr):
    """y = 2 x."""
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


class Rows(NamedTuple):
    """A tensor of rows, as one argument of a kernel."""

    first: Any
    stride: Any
    bias: Any = None


class Tile(NamedTuple):
    """Sizes that are compiled in."""

    rows: int
    columns: int


@triton.jit
def at(rows, i, j):
    """Return pointers to elements of `rows`."""
    return rows.first + i[:, None] * rows.stride + j[None, :]


@triton.jit
def twice(x):
    """Return 2 x."""
    return 2 * x


@triton.jit
def scaled_rows(source, target, sizes, factor, T: tl.constexpr):
    """target = f(factor * source + bias): arguments in named, plain and nested tuples."""
    i = tl.program_id(0) * T.rows + tl.arange(0, T.rows)
    j = tl.arange(0, T.columns)
    mask = (i < sizes[0])[:, None] & (j < sizes[1])[None, :]
    y = tl.load(at(source, i, j), mask=mask, other=0.0) * factor[0]
    if source.bias is not None:
        y += tl.load(source.bias + j, mask=j < sizes[1], other=0.0)[None, :]
    tl.store(at(target, i, j), factor[1][0](y), mask=mask)


@triton.jit
def product_of_paired_boxes(boxes, c, T: tl.constexpr):
    """c = a @ b of one tile each, read through tensor maps in a tuple."""
    total = tl.dot(boxes[0].load([0, 0]), boxes[1].load([0, 0]))
    i = tl.arange(0, T)
    tl.store(at(c, i, i), total)
