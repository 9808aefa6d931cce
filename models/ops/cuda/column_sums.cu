#include "column_sums.h"
#include "kernel.cuh"

namespace dtk::models::cuda {
namespace {

constexpr int kWarps = 8;

// A block takes 32 columns of one plane of a sample, each of its warps every kWarps-th chunk of them.
__global__ void __launch_bounds__(kWarps* kWarp)
    column_sums_kernel(const float* __restrict__ partial, void* first, void* second, Type type,
                       int64_t chunk_count, int planes, int D) {
  __shared__ float sums[kWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int tiles = (D + kWarp - 1) / kWarp;
  const int d = static_cast<int>(blockIdx.x) % tiles * kWarp + lane;
  const int plane = static_cast<int>(blockIdx.x) / tiles % planes;
  const int64_t sample = static_cast<int>(blockIdx.x) / tiles / planes;

  float sum = 0.0F;
  if (d < D) {
#pragma unroll 4
    for (int64_t chunk = warp; chunk < chunk_count; chunk += kWarps)
      sum += partial[((sample * chunk_count + chunk) * planes + plane) * D + d];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || d >= D) return;
  float total[1] = {0.0F};
  for (int i = 0; i < kWarps; ++i) total[0] += sums[i][lane];
  store(type, plane == 0 ? first : second, sample * D + d, total);
}

}  // namespace

int column_sums(const ColumnSums& shape, const float* partial, void* first, void* second, Stream stream) {
  const int planes = second == nullptr ? 1 : 2;
  const int64_t blocks = shape.N * planes * ((shape.D + kWarp - 1) / kWarp);
  return launch(blocks, kWarps * kWarp, 0, stream, column_sums_kernel, partial, first, second, shape.type,
                shape.chunks, planes, shape.D);
}

}  // namespace dtk::models::cuda
