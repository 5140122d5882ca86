// Kernels that use the headers of CUDA.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>
#include <mma.h>

namespace cg = cooperative_groups;

extern "C" __global__ void groups(const int* x, int* out, int n) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  __shared__ int part[16];
  int i = block.group_index().x * block.size() + block.thread_rank();
  int v = i < n ? x[i] : 0;
  for (int o = tile.size() / 2; o; o /= 2) v += tile.shfl_down(v, o);
  if (tile.thread_rank() == 0) part[tile.meta_group_rank()] = v;
  block.sync();
  int rank = block.thread_rank();
  if (rank < 16) out[block.group_index().x * 16 + rank] = part[rank];
  unsigned odd = tile.ballot(v & 1);
  auto active = cg::coalesced_threads();
  if (active.thread_rank() == 0) atomicAdd(out + gridDim.x * 16, odd ? 1 : 0);
}

extern "C" __global__ void halves(const half2* x, half2* out, half* most, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __hfma2(x[i], __float2half2_rn(2.0f), h2exp(x[i]));
  half m = __hmax(__low2half(x[i]), __high2half(x[i]));
  for (int o = 16; o; o >>= 1) m = __hmax(m, __shfl_xor_sync(~0u, m, o));
  if (threadIdx.x % 32 == 0) most[i / 32] = m;
}

extern "C" __global__ void copied(const float4* x, float4* out, int tiles) {
  __shared__ float4 stage[2][64];
  int t = threadIdx.x;
  __pipeline_memcpy_async(&stage[0][t], x + t, 16);
  __pipeline_commit();
  for (int k = 0; k < tiles; k++) {
    if (k + 1 < tiles) __pipeline_memcpy_async(&stage[(k + 1) % 2][t], x + (k + 1) * 64 + t, 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    float4 v = stage[k % 2][63 - t];
    v.x += v.y;
    out[k * 64 + t] = v;
    __syncthreads();
  }
}

extern "C" __global__ void wmma_product(const half* a, const half* b, float* c, int n) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> A;
  fragment<matrix_b, 16, 16, 16, half, row_major> B;
  fragment<accumulator, 16, 16, 16, float> C;
  fill_fragment(C, 0.0f);
  int row = 16 * blockIdx.y, column = 16 * blockIdx.x;
  for (int k = 0; k < n; k += 16) {
    load_matrix_sync(A, a + row * n + k, n);
    load_matrix_sync(B, b + k * n + column, n);
    mma_sync(C, A, B, C);
  }
  store_matrix_sync(c + row * n + column, C, n, mem_row_major);
}
