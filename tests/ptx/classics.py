"""Classic Triton and Gluon kernels on whole numbers, whose sums are exact: `RUNS` compares them.

`test_seeded.py` edits this file's text, one fault at a time, and runs the edited file.
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@triton.jit
def scaled(x, y, out, n, wide, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n
    a = tl.load(x + i, mask)
    j = (i.to(tl.int64) * wide) // wide
    b = tl.load(y + j, mask)
    tl.store(out + i, a + b, mask)


@triton.jit
def row_sums(x, out, columns, stride, B: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((B,), tl.float32)
    for first in range(0, columns, B):
        j = first + tl.arange(0, B)
        total += tl.load(x + row * stride + j, j < columns, other=0.0)
    tl.store(out + row, tl.sum(total, 0))


@triton.jit
def transpose(x, out, M, N, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    tile = tl.load(x + m[:, None] * N + n[None], (m[:, None] < M) & (n[None] < N))
    tl.store(out + n[:, None] * M + m[None], tile.T, (n[:, None] < N) & (m[None] < M))


@triton.jit
def matmul(
    a, b, c, M, N, K, stride_a, stride_b,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_at = a + m[:, None] * stride_a + k[None]
    b_at = b + k[:, None] * stride_b + n[None]
    sums = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        left = tl.load(a_at, mask=first + k[None] < K, other=0.0)
        right = tl.load(b_at, mask=first + k[:, None] < K, other=0.0)
        sums += tl.dot(left, right)
        a_at += BK
        b_at += BK * stride_b
    tl.store(c + m[:, None] * N + n[None], sums, (m[:, None] < M) & (n[None] < N))


@triton.jit
def histogram(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n
    key = tl.load(x + i, mask, other=0)
    tl.atomic_add(out + key, 1, mask)


@triton.jit
def running_sums(x, out, columns, B: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, B)
    mask = j < columns
    values = tl.load(x + row * columns + j, mask, other=0.0)
    tl.store(out + row * columns + j, tl.cumsum(values, 0), mask)


@triton.jit
def locked(x, out, lock, B: tl.constexpr):
    i = tl.arange(0, B)
    part = tl.load(x + tl.program_id(0) * B + i)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    part += tl.load(out + i)
    tl.store(out + i, part)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_sums(x, parts, count, out, P: tl.constexpr, B: tl.constexpr):
    program = tl.program_id(0)
    total = tl.sum(tl.load(x + program * B + tl.arange(0, B)), 0)
    tl.store(parts + program, total)
    tl.debug_barrier()
    before = tl.atomic_add(count, 1, sem="acq_rel")
    if before == P - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, P)), 0))


@gluon.jit
def ring(x, out, COUNT: gl.constexpr, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    size: gl.constexpr = [STAGES] + x.block_type.shape  # noqa: RUF005
    tiles = gl.allocate_shared_memory(x.dtype, size, x.layout)
    made = gl.allocate_shared_memory(x.dtype, x.block_type.shape, x.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for n in gl.static_range(STAGES):
        mbarrier.init(full.index(n), count=1)
    for n in gl.static_range(STAGES):
        mbarrier.expect(full.index(n), x.block_type.nbytes)
        tma.async_copy_global_to_shared(x, [n * 16, 0], full.index(n), tiles.index(n))
    for n in range(COUNT):
        mbarrier.wait(full.index(n % STAGES), n // STAGES & 1)
        value = tiles.index(n % STAGES).load(layout)
        gl.thread_barrier()
        if n + STAGES < COUNT:
            mbarrier.expect(full.index(n % STAGES), x.block_type.nbytes)
            tma.async_copy_global_to_shared(
                x, [(n + STAGES) * 16, 0], full.index(n % STAGES), tiles.index(n % STAGES)
            )
        tma.store_wait(pendings=0)
        gl.thread_barrier()
        made.store(value + value)
        fence_async_shared()
        gl.thread_barrier()
        tma.async_copy_shared_to_global(out, [n * 16, 0], made)
    tma.store_wait(pendings=0)


@gluon.jit
def product(a, b, out):
    sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16])
    left = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, a.block_type.nbytes + b.block_type.nbytes)
    tma.async_copy_global_to_shared(a, [0, 0], bar, left)
    tma.async_copy_global_to_shared(b, [0, 0], bar, right)
    mbarrier.wait(bar, 0)
    acc = gl.zeros((64, 32), gl.float32, sums)
    acc = warpgroup_mma(left, right, acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    m = gl.arange(0, 64, gl.SliceLayout(1, sums))
    n = gl.arange(0, 32, gl.SliceLayout(0, sums))
    gl.store(out + m[:, None] * 32 + n[None], acc)


def whole(*shape, dtype=torch.float32):
    return torch.randint(-4, 5, shape).to(dtype)


def run_scaled():
    x, y, out = whole(200), whole(200), torch.empty(200)
    scaled[(4,)](x, y, out, 200, 1 << 26, B=64)
    return out, x + y


def run_row_sums():
    x, out = whole(3, 300), torch.empty(3)
    row_sums[(3,)](x, out, 300, 300, B=128)
    return out, x.sum(1)


def run_transpose():
    x, out = whole(70, 50), torch.empty(50, 70)
    transpose[(3, 2)](x, out, 70, 50, B=32)
    return out, x.T


def run_matmul():
    a, b, c = whole(64, 96).half(), whole(96, 64).half(), torch.empty(64, 64)
    matmul[(2, 2)](a, b, c, 64, 64, 96, 96, 64, BM=32, BN=32, BK=16, num_stages=3)
    return c, a.float() @ b.float()


def run_histogram():
    x, out = torch.randint(0, 9, (200,)), torch.zeros(9, dtype=torch.int32)
    histogram[(4,)](x, out, 200, B=64)
    return out, torch.bincount(x, minlength=9).int()


def run_running_sums():
    x, out = whole(2, 200), torch.empty(2, 200)
    running_sums[(2,)](x, out, 200, B=256)
    return out, x.cumsum(1)


def run_locked():
    x, out, lock = whole(4, 128), torch.zeros(128), torch.zeros(1, dtype=torch.int32)
    locked[(4,)](x, out, lock, B=128)
    return out, x.sum(0)


def run_last_sums():
    x, parts, out = whole(4, 128), torch.empty(4), torch.empty(1)
    last_sums[(4,)](x, parts, torch.zeros(1, dtype=torch.int32), out, P=4, B=128)
    return out, x.sum().reshape(1)


def run_ring():
    x, out = whole(80, 32), torch.empty(80, 32)
    layout = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)
    given = [TensorDescriptor.from_tensor(t, [16, 32], layout) for t in (x, out)]
    ring[(1,)](*given, COUNT=5, STAGES=2)
    return out, 2 * x


def run_product():
    a, b, out = whole(64, 64).half(), whole(64, 32).half(), torch.empty(64, 32)
    given = [
        TensorDescriptor.from_tensor(
            t, list(t.shape), gl.NVMMASharedLayout.get_default_for(list(t.shape), gl.float16)
        )
        for t in (a, b)
    ]
    product[(1,)](*given, out)
    return out, a.float() @ b.float()


RUNS = {name.removeprefix("run_"): run for name, run in globals().items() if name[:4] == "run_"}
