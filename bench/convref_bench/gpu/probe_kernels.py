"""Small Triton kernels that probe the compiler and the card; they compute nothing for users."""

from __future__ import annotations

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


@triton.jit
def flat_fprop(
    x, w, y, N, C, H, W, K, P, Q,
    R: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Write y (N, P, Q, K) of x (N, H, W, C) and w (K, R, S, C) by one flat loop over r, s, c."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    q, p, n = offs_m % Q, offs_m // Q % P, offs_m // (P * Q)
    blocks = (C + BLOCK_C - 1) // BLOCK_C
    acc = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
    for ijk in range(R * S * blocks):
        rs = ijk // blocks
        offs_c = ijk % blocks * BLOCK_C + tl.arange(0, BLOCK_C)
        h = p * STRIDE - PAD + rs // S
        v = q * STRIDE - PAD + rs % S
        there = (n < N) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        at_x = ((n * H + h) * W + v)[:, None] * C + offs_c[None, :]
        at_w = (offs_k * R * S + rs)[None, :] * C + offs_c[:, None]
        left = tl.load(x + at_x, mask=there[:, None] & (offs_c < C)[None, :], other=0.0)
        right = tl.load(w + at_w, mask=(offs_k < K)[None, :] & (offs_c < C)[:, None], other=0.0)
        acc = tl.dot(left, right, acc)
    inside = (offs_m < N * P * Q)[:, None] & (offs_k < K)[None, :]
    tl.store(y + offs_m[:, None] * K + offs_k[None, :], acc.to(y.dtype.element_ty), mask=inside)
