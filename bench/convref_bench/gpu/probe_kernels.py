"""Small Triton kernels that probe the compiler and the card; they compute nothing for users."""

import triton
import triton.language as tl


@triton.jit
def dot_loop(a, b, out, n, TILE: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr):
    """Write the product of a (TILE, n) and b (n, TILE), summed in one accumulator."""
    offs = tl.arange(0, TILE)
    offs_n = tl.arange(0, STEP)
    acc = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, n, STEP):
        left = tl.load(a + offs[:, None] * n + start + offs_n[None, :])  # (TILE, STEP)
        right = tl.load(b + (start + offs_n)[:, None] * TILE + offs[None, :])  # (STEP, TILE)
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
    tl.store(out + offs[:, None] * TILE + offs[None, :], acc)
