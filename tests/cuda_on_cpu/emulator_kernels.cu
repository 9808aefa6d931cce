#include "emulator_kernels.h"

extern __shared__ float4 dynamic_shared[];

namespace emulator_test {
namespace {

constexpr unsigned kAll = 0xffffffffU;

__global__ void shuffles_kernel(int* out, int operand) {
  const int i = static_cast<int>(threadIdx.x), n = static_cast<int>(blockDim.x), lane = i % 32;
  out[i] = __shfl_sync(kAll, lane, operand);
  out[n + i] = __shfl_up_sync(kAll, lane, operand);
  out[2 * n + i] = __shfl_down_sync(kAll, lane, operand);
  out[3 * n + i] = __shfl_xor_sync(kAll, lane, operand);
}

__global__ void half_masks_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int value = lane;
  if (lane < 16)
    for (int distance = 8; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffU, value, distance);
  else
    value += __shfl_down_sync(0xffff0000U, value, 16);
  out[lane] = value;
}

template <bool kBarrier>
__global__ void reverse_kernel(const int* in, int* out) {
  __shared__ int row[80];
  row[threadIdx.x] = in[threadIdx.x];
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
}

template <bool kSync>
__global__ void neighbours_kernel(int* out) {
  __shared__ int row[32];
  const int lane = static_cast<int>(threadIdx.x);
  row[lane] = lane;
  if (kSync)
    __syncwarp();
  else
    (void)__shfl_sync(kAll, lane, 0);
  out[lane] = row[lane ^ 1];
}

__global__ void sum_by_atomics_kernel(float* out, const float* in, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) atomicAdd(out, in[i]);
}

__global__ void unset_shared_kernel(float* out) {
  __shared__ float row[2];
  if (threadIdx.x == 40) row[0] = 1.0F;
  __syncthreads();
  out[threadIdx.x] = row[threadIdx.x % 2];
}

__global__ void barrier_or_shuffle_kernel(int* out) {
  if (threadIdx.x < 16) __syncthreads();
  out[threadIdx.x] = __shfl_xor_sync(kAll, static_cast<int>(threadIdx.x), 1);
  if (threadIdx.x >= 16) __syncthreads();
}

__global__ void early_return_kernel(int* out) {
  if (threadIdx.x >= 32) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void two_barriers_kernel(int* out) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void bad_mask_kernel(int* out, unsigned mask) {
  if (threadIdx.x == 31) return;
  out[threadIdx.x] = __shfl_xor_sync(mask, static_cast<int>(threadIdx.x), 1);
}

__global__ void dynamic_row_kernel(float* out, int written) {
  float* const row = reinterpret_cast<float*>(dynamic_shared);
  for (int i = static_cast<int>(threadIdx.x); i < written; i += static_cast<int>(blockDim.x))
    row[i] = static_cast<float>(i);
  __syncthreads();
  if (threadIdx.x == 0) *out = row[written - 1];
}

__global__ void number_kernel(int* out, int count) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  for (unsigned i = block * threads + thread; i < static_cast<unsigned>(count);
       i += threads * gridDim.x * gridDim.y * gridDim.z)
    out[i] = static_cast<int>(i);
}

__global__ void same_place_kernel(int* out, bool atomic) {
  if (atomic)
    atomicAdd(out, 1);
  else
    *out = 1;
}

__global__ void add_one_kernel(int* values, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = (i < 1 ? 0 : values[i]) + 1;
}

__global__ void read_pairs_kernel(const float* in, float* out, int first) {
  const double pair = *reinterpret_cast<const double*>(in + first);
  *out = static_cast<float>(pair);
}

template <class... Parameters, class... Arguments>
cudaError_t start(dim3 grid, dim3 block, int shared_bytes, void (*kernel)(Parameters...),
                  Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

int shuffles(int* out, int operand, int threads) {
  return start(1, static_cast<unsigned>(threads), 0, shuffles_kernel, out, operand);
}
int half_masks(int* out) {
  return start(1, 32, 0, half_masks_kernel, out);
}
int reverse(const int* in, int* out, int threads, bool barrier) {
  return start(1, static_cast<unsigned>(threads), 0, barrier ? reverse_kernel<true> : reverse_kernel<false>,
               in, out);
}
int neighbours(int* out, bool syncwarp) {
  return start(1, 32, 0, syncwarp ? neighbours_kernel<true> : neighbours_kernel<false>, out);
}
int sum_by_atomics(float* out, const float* in, int count) {
  return start((static_cast<unsigned>(count) + 63) / 64, 64, 0, sum_by_atomics_kernel, out, in, count);
}
int unset_shared(float* out) {
  return start(1, 64, 0, unset_shared_kernel, out);
}
int barrier_or_shuffle(int* out) {
  return start(1, 32, 0, barrier_or_shuffle_kernel, out);
}
int early_return(int* out) {
  return start(1, 64, 0, early_return_kernel, out);
}
int two_barriers(int* out) {
  return start(1, 64, 0, two_barriers_kernel, out);
}
int bad_mask(int* out, unsigned mask) {
  return start(1, 32, 0, bad_mask_kernel, out, mask);
}
int dynamic_row(float* out, int bytes, int written) {
  return start(1, 128, bytes, dynamic_row_kernel, out, written);
}
int number(int* out, int count, dim3 grid, dim3 block) {
  return start(grid, block, 0, number_kernel, out, count);
}
int same_place(int* out, int blocks, bool atomic) {
  return start(static_cast<unsigned>(blocks), 1, 0, same_place_kernel, out, atomic);
}
int add_one(int* values, int count) {
  return start(2, 32, 0, add_one_kernel, values, count);
}
int read_pairs(const float* in, float* out, int first) {
  return start(1, 1, 0, read_pairs_kernel, in, out, first);
}

}  // namespace emulator_test
