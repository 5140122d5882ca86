"""A product in the CuTe DSL: `python cute_product.py FOLDER` writes its PTX there."""

import os
import sys

os.environ |= {
    "CUTE_DSL_ARCH": "sm_90a",
    "CUTE_DSL_KEEP_PTX": "1",
    "CUTE_DSL_DUMP_DIR": sys.argv[1],
}

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor

M, N, K, THREADS = 64, 32, 64, 128
ROW = K + 8  # elements of a row in shared memory, over all banks


@cute.kernel
def product_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, mma: cute.TiledMma):
    thread, _, _ = cute.arch.thread_idx()
    memory = cutlass.memory.SmemAllocator()
    s_a = memory.allocate_tensor(cutlass.BFloat16, cute.make_layout((M, K), stride=(ROW, 1)), 16)
    s_b = memory.allocate_tensor(cutlass.BFloat16, cute.make_layout((N, K), stride=(ROW, 1)), 16)
    for i in cutlass.range(thread, M * K, THREADS):
        s_a[i // K, i % K] = a[i // K, i % K]
    for i in cutlass.range(thread, N * K, THREADS):
        s_b[i // K, i % K] = b[i // K, i % K]
    cute.arch.sync_threads()
    mine = mma.get_slice(thread)
    t_a, t_b, t_c = mine.partition_A(s_a), mine.partition_B(s_b), mine.partition_C(c)
    r_a, r_b = mma.make_fragment_A(t_a), mma.make_fragment_B(t_b)
    acc = mma.make_fragment_C(t_c)
    acc.fill(0.0)
    cute.autovec_copy(t_a, r_a)
    cute.autovec_copy(t_b, r_b)
    for k in cutlass.range_constexpr(cute.size(r_a, mode=[2])):
        cute.gemm(mma, acc, r_a[None, None, k], r_b[None, None, k], acc)
    cute.autovec_copy(acc, t_c)


@cute.jit
def product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    of_a_warp = cute.nvgpu.warp.MmaF16BF16Op(cutlass.BFloat16, cutlass.Float32, (16, 8, 16))
    mma = cute.make_tiled_mma(of_a_warp, cute.make_layout((THREADS // 32, 1, 1)))
    product_kernel(a, b, c, mma).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


def operand(dtype, sizes):
    return make_fake_compact_tensor(dtype, sizes, stride_order=(1, 0))


if __name__ == "__main__":
    given = operand(cutlass.BFloat16, (M, K)), operand(cutlass.BFloat16, (N, K))
    cute.compile(product, *given, operand(cutlass.Float32, (M, N)))
