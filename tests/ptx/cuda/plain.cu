// Kernels as people write them, without headers.

template <typename T, int THREADS>
__global__ void sums(const T* x, T* out, int n) {
  __shared__ T part[THREADS / 32];
  T s = 0;
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) s += x[i];
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < THREADS / 32; i++) s += part[i];
    atomicAdd(out, s);
  }
}
template __global__ void sums<float, 128>(const float*, float*, int);
template __global__ void sums<double, 64>(const double*, double*, int);

extern "C" __global__ void scan(const int* x, int* out, int n) {
  extern __shared__ int buffer[];
  int i = threadIdx.x, from = 0;
  buffer[i] = i < n ? x[i] : 0;
  __syncthreads();
  for (int far = 1; far < blockDim.x; far *= 2) {
    int to = from ^ 1;
    int v = buffer[from * blockDim.x + i];
    buffer[to * blockDim.x + i] = i >= far ? v + buffer[from * blockDim.x + i - far] : v;
    __syncthreads();
    from = to;
  }
  if (i < n) out[i] = buffer[from * blockDim.x + i];
}

extern "C" __global__ void transpose(const float* x, float* out, int rows, int columns) {
  __shared__ float tile[32][33];
  int column = blockIdx.x * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += 8) {
    int row = blockIdx.y * 32 + j;
    if (row < rows && column < columns) tile[j][threadIdx.x] = x[row * columns + column];
  }
  __syncthreads();
  int row = blockIdx.y * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += 8) {
    int to = blockIdx.x * 32 + j;
    if (row < rows && to < columns) out[to * rows + row] = tile[threadIdx.x][j];
  }
}

extern "C" __global__ void product(const float* a, const float* b, float* c, int n) {
  __shared__ float A[16][16], B[16][17];
  int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float s = 0;
  for (int k = 0; k < n; k += 16) {
    A[y][x] = a[row * n + k + x];
    B[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (int t = 0; t < 16; t++) s += A[y][t] * B[t][x];
    __syncthreads();
  }
  c[row * n + column] = s;
}

extern "C" __global__ void softmax(const float* x, float* out, int n) {
  __shared__ float part[32];
  const float* row = x + blockIdx.x * n;
  float most = __int_as_float(0xff800000), s = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, row[i]);
  for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_down_sync(~0u, most, o));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
  __syncthreads();
  most = part[0];
  for (int i = 1; i < blockDim.x / 32; i++) most = fmaxf(most, part[i]);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) s += expf(row[i] - most);
  for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  s = 0;
  for (int i = 0; i < blockDim.x / 32; i++) s += part[i];
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[blockIdx.x * n + i] = expf(row[i] - most) / s;
}

extern "C" __global__ void histogram(const unsigned char* x, unsigned* out, int n) {
  __shared__ unsigned bins[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&bins[x[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (bins[i]) atomicAdd(&out[i], bins[i]);
}

__constant__ float weights[3] = {0.25f, 0.5f, 0.25f};

extern "C" __global__ void stencil(const float* x, float* out, int n) {
  __shared__ float near[66];
  int i = blockIdx.x * 64 + threadIdx.x;
  near[threadIdx.x + 1] = i < n ? x[i] : 0;
  if (threadIdx.x == 0) near[0] = i ? x[i - 1] : 0;
  if (threadIdx.x == 63) near[65] = i + 1 < n ? x[i + 1] : 0;
  __syncthreads();
  float s = 0;
  for (int t = 0; t < 3; t++) s += weights[t] * near[threadIdx.x + t];
  if (i < n) out[i] = s;
}

extern "C" __global__ void sorted(const int* x, int* out, int n) {
  int mine[16], i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int k = 0; k < 16; k++) mine[k] = x[i * 16 + k];
  for (int k = 1; k < 16; k++) {
    int v = mine[k], j = k;
    while (j > 0 && mine[j - 1] > v) { mine[j] = mine[j - 1]; j--; }
    mine[j] = v;
  }
  for (int k = 0; k < 16; k++) out[i * 16 + k] = mine[k];
}

struct Pair { float low, high; };

__device__ __noinline__ Pair bounds(const float* x, int n) {
  Pair p = {x[0], x[0]};
  if (n == 1) return p;
  for (int i = 1; i < n; i++) { p.low = fminf(p.low, x[i]); p.high = fmaxf(p.high, x[i]); }
  return p;
}

__device__ __noinline__ float width(const float* x, int n) {
  Pair p = bounds(x, n);
  return p.high - p.low;
}

extern "C" __global__ void called(const float* x, float* out, int n) {
  int i = threadIdx.x;
  out[i] = width(x + i * n, i % n + 1);
}

__device__ int tickets;

extern "C" __global__ void ticket(int* out) {
  int mine = atomicAdd(&tickets, 1);
  out[blockIdx.x * blockDim.x + threadIdx.x] = mine;
}

extern "C" __global__ void switched(const int* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = i * 0.5f;
  switch (x[i]) {
    case 0: v = sinf(v); break;
    case 1: v = cosf(v * 1e6f); break;
    case 2: v = powf(v, 1.5f); break;
    case 3: v = tanhf(v); break;
    case 4: v = log1pf(v); break;
    case 5: v = erff(v); break;
    case 6: v = v / 3.0f; break;
    case 7: v = sqrtf(v); break;
    case 8: v = rsqrtf(v + 1); break;
    default: v = fmodf(v, 0.3f);
  }
  out[i] = v;
}

extern "C" __global__ void largest(const double* x, unsigned long long* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long seen = *(volatile unsigned long long*)out, old;
  while (__longlong_as_double(seen) < x[i]) {
    old = atomicCAS(out, seen, __double_as_longlong(x[i]));
    if (old == seen) break;
    seen = old;
  }
}

extern "C" __global__ void voted(const int* x, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, v = i < n ? x[i] : 0;
  unsigned odd = __ballot_sync(~0u, v & 1), same = __match_any_sync(~0u, v);
  unsigned all = __all_sync(~0u, v >= 0), any = __any_sync(~0u, v > 7);
  unsigned most = __reduce_max_sync(~0u, (unsigned)v), half = 0;
  if (threadIdx.x % 32 < 16) half = __shfl_sync(0xffff, v, 3, 8);
  unsigned found[7] = {odd, same, all, any, most, half, __popc(odd) + __ffs(same) + __clz(v)};
  if (i < n) for (int k = 0; k < 7; k++) out[i * 7 + k] = found[k];
}

#ifndef __CUDACC_RTC__
#include <assert.h>
#include <stdio.h>
#endif

extern "C" __global__ void said(const int* x, int* out, int n) {
  int i = threadIdx.x;
  if (i < n) {
    assert(x[i] >= 0);
    if (x[i] > 5) printf("x[%d] = %d, %f\n", i, x[i], 0.5 * x[i]);
    out[i] = x[i] / 3 + x[i] % 7;
  }
}
