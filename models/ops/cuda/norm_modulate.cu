#include "column_sums.h"
#include "kernel.cuh"
#include "norm_modulate.h"

extern __shared__ float4 dynamic_shared[];

namespace dtk::models::cuda {
namespace {

// The second figure in __launch_bounds__ is the blocks a multiprocessor must hold; without it ptxas wants
// more of them and spills.
constexpr int kForwardWarps = 4, kBackwardWarps = 8;  // of a block
constexpr int kForwardRows = 16;                      // that a block takes

// A warp holds a row.
template <int kSlots, class Act>
__device__ __forceinline__ void each_group(int D, Act act) {
  each_slot<kSlots>(static_cast<int>(threadIdx.x) % kWarp, kWarp, D, act);
}

template <class T, int kSlots>
__device__ __forceinline__ void load_row(const T* row, int D, float (&to)[kSlots][4]) {
  each_group<kSlots>(D, [&](int slot, int column) { load(row + column, to[slot]); });
}

template <int kSlots>
__device__ __forceinline__ void load_row(Type type, Rows table, int64_t row, int D, float (&to)[kSlots][4]) {
  if (type == Type::fp32)
    load_row(static_cast<const float*>(table.data) + row * table.stride, D, to);
  else if (type == Type::bf16)
    load_row(static_cast<const __nv_bfloat16*>(table.data) + row * table.stride, D, to);
  else
    load_row(static_cast<const __half*>(table.data) + row * table.stride, D, to);
}

template <int kSlots, class X, class Y>
__global__ void __launch_bounds__(kForwardWarps* kWarp, 2)
    norm_forward_kernel(const X* __restrict__ x, Rows shift, Rows scale, Type condition, float epsilon,
                        Y* __restrict__ y, float* __restrict__ mean, float* __restrict__ rstd, int64_t T,
                        int D) {
  const int64_t parts = (T + kForwardRows - 1) / kForwardRows, sample = blockIdx.x / parts;
  const int64_t first = blockIdx.x % parts * kForwardRows, last = min(T, first + kForwardRows);

  float add[kSlots][4], multiply[kSlots][4];
  load_row(condition, shift, sample, D, add);
  load_row(condition, scale, sample, D, multiply);
  for (int64_t t = first + threadIdx.x / kWarp; t < last; t += kForwardWarps) {
    const int64_t row = sample * T + t;
    float values[kSlots][4];
    load_row(x + row * D, D, values);
    float sum = 0.0F, squares = 0.0F;
    each_group<kSlots>(D, [&](int slot, int) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum += values[slot][i];
    });
    const float row_mean = warp_sum(sum) / static_cast<float>(D);
    each_group<kSlots>(D, [&](int slot, int) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        values[slot][i] -= row_mean;
        squares += values[slot][i] * values[slot][i];
      }
    });
    const float row_rstd = rsqrtf(warp_sum(squares) / static_cast<float>(D) + epsilon);
    each_group<kSlots>(D, [&](int slot, int column) {
      float out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        out[i] = values[slot][i] * row_rstd * (1.0F + multiply[slot][i]) + add[slot][i];
      store(y + row * D + column, out);
    });
    if (threadIdx.x % kWarp == 0) {
      mean[row] = row_mean;
      rstd[row] = row_rstd;
    }
  }
}

// A block takes a chunk of one sample's rows, a warp every kBackwardWarps-th of them, and keeps its columns'
// sums.
template <int kSlots, class X, class Y>
__global__ void __launch_bounds__(kBackwardWarps* kWarp, 1)
    norm_backward_kernel(const Y* __restrict__ dy, const X* __restrict__ x, const float* __restrict__ mean,
                         const float* __restrict__ rstd, Rows scale, Type condition,
                         float* __restrict__ partial, X* __restrict__ dx, int64_t T, int D) {
  float* const factors = reinterpret_cast<float*>(dynamic_shared);  // (D): 1 + scale
  float* const sums = factors + D;                                  // (2, D): of dshift, of dscale
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t parts = (T + kChunkRows - 1) / kChunkRows, sample = blockIdx.x / parts;
  const int64_t first = blockIdx.x % parts * kChunkRows, last = min(T, first + kChunkRows);

  for (int d = static_cast<int>(threadIdx.x) * 4; d < D; d += kBackwardWarps * kWarp * 4) {
    float factor[4];
    load(condition, scale.data, sample * scale.stride + d, factor);
#pragma unroll
    for (int i = 0; i < 4; ++i) factor[i] += 1.0F;
    store(factors + d, factor);
  }
  __syncthreads();

  float shift_sum[kSlots][4] = {}, scale_sum[kSlots][4] = {};
  for (int64_t t = first + warp; t < last; t += kBackwardWarps) {
    const int64_t row = sample * T + t;
    const float row_mean = mean[row], row_rstd = rstd[row];
    float normal[kSlots][4], gradient[kSlots][4];  // (x - mean) * rstd, and what the loss has by it
    load_row(x + row * D, D, normal);
    load_row(dy + row * D, D, gradient);
    float sum = 0.0F, product = 0.0F;
    each_group<kSlots>(D, [&](int slot, int column) {
      float factor[4];
      load(factors + column, factor);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        normal[slot][i] = (normal[slot][i] - row_mean) * row_rstd;
        shift_sum[slot][i] += gradient[slot][i];
        scale_sum[slot][i] += gradient[slot][i] * normal[slot][i];
        gradient[slot][i] *= factor[i];
        sum += gradient[slot][i];
        product += gradient[slot][i] * normal[slot][i];
      }
    });
    sum = warp_sum(sum) / static_cast<float>(D);
    product = warp_sum(product) / static_cast<float>(D);
    each_group<kSlots>(D, [&](int slot, int column) {
      float out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) out[i] = row_rstd * (gradient[slot][i] - sum - normal[slot][i] * product);
      store(dx + row * D + column, out);
    });
  }

  // The warps add their sums in turn: the order of the additions is fixed.
  for (int turn = 0; turn < kBackwardWarps; ++turn) {
    if (warp == turn) {
      each_group<kSlots>(D, [&](int slot, int column) {
        float shifts[4] = {}, scales[4] = {};
        if (turn > 0) {
          load(sums + column, shifts);
          load(sums + D + column, scales);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          shifts[i] += shift_sum[slot][i];
          scales[i] += scale_sum[slot][i];
        }
        store(sums + column, shifts);
        store(sums + D + column, scales);
      });
    }
    __syncthreads();
  }
  float* const to = partial + static_cast<int64_t>(blockIdx.x) * 2 * D;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * D; i += kBackwardWarps * kWarp) to[i] = sums[i];
}

// The sums of both members over the block, in every thread.
template <int kWarps>
__device__ float2 block_sum(float2 value) {
  __shared__ float2 sums[kWarps];
  const float2 of_warp = make_float2(warp_sum(value.x), warp_sum(value.y));
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  float2 total = make_float2(0.0F, 0.0F);
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    total.x += sums[warp].x;
    total.y += sums[warp].y;
  }
  __syncthreads();  // the next sum writes there
  return total;
}

// Rows of any length: a block reads its rows one after the other, each several times.
template <int kWidth, class X, class Y>
__global__ void __launch_bounds__(kForwardWarps* kWarp, 2)
    norm_forward_long_kernel(const X* __restrict__ x, Rows shift, Rows scale, Type condition, float epsilon,
                             Y* __restrict__ y, float* __restrict__ mean, float* __restrict__ rstd, int64_t T,
                             int D) {
  constexpr int kStep = kForwardWarps * kWarp * kWidth;
  const int begin = static_cast<int>(threadIdx.x) * kWidth;
  const int64_t parts = (T + kForwardRows - 1) / kForwardRows, sample = blockIdx.x / parts;
  const int64_t first = blockIdx.x % parts * kForwardRows, last = min(T, first + kForwardRows);
  for (int64_t t = first; t < last; ++t) {
    const int64_t row = sample * T + t;
    const X* const from = x + row * D;
    float values[kWidth], sum = 0.0F, squares = 0.0F;
    for (int d = begin; d < D; d += kStep) {
      load(from + d, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum += values[i];
    }
    const float row_mean = block_sum<kForwardWarps>(make_float2(sum, 0.0F)).x / static_cast<float>(D);
    for (int d = begin; d < D; d += kStep) {
      load(from + d, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) squares += (values[i] - row_mean) * (values[i] - row_mean);
    }
    const float variance = block_sum<kForwardWarps>(make_float2(squares, 0.0F)).x / static_cast<float>(D);
    const float row_rstd = rsqrtf(variance + epsilon);
    for (int d = begin; d < D; d += kStep) {
      float add[kWidth], multiply[kWidth];
      load(condition, shift.data, sample * shift.stride + d, add);
      load(condition, scale.data, sample * scale.stride + d, multiply);
      load(from + d, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        values[i] = (values[i] - row_mean) * row_rstd * (1.0F + multiply[i]) + add[i];
      store(y + row * D + d, values);
    }
    if (threadIdx.x == 0) {
      mean[row] = row_mean;
      rstd[row] = row_rstd;
    }
  }
}

// A thread has the same columns in every row, so that it alone adds to their partial sums.
template <int kWidth, class X, class Y>
__global__ void __launch_bounds__(kBackwardWarps* kWarp, 1)
    norm_backward_long_kernel(const Y* __restrict__ dy, const X* __restrict__ x,
                              const float* __restrict__ mean, const float* __restrict__ rstd, Rows scale,
                              Type condition, float* __restrict__ partial, X* __restrict__ dx, int64_t T,
                              int D) {
  constexpr int kStep = kBackwardWarps * kWarp * kWidth;
  const int begin = static_cast<int>(threadIdx.x) * kWidth;
  const int64_t parts = (T + kChunkRows - 1) / kChunkRows, sample = blockIdx.x / parts;
  const int64_t first = blockIdx.x % parts * kChunkRows, last = min(T, first + kChunkRows);
  float* const sums = partial + static_cast<int64_t>(blockIdx.x) * 2 * D;
  for (int64_t t = first; t < last; ++t) {
    const int64_t row = sample * T + t;
    const float row_mean = mean[row], row_rstd = rstd[row];
    float normal[kWidth], gradient[kWidth], factor[kWidth];
    const auto read = [&](int d) {
      load(x + row * D + d, normal);
      load(dy + row * D + d, gradient);
      load(condition, scale.data, sample * scale.stride + d, factor);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) normal[i] = (normal[i] - row_mean) * row_rstd;
    };
    float2 total = make_float2(0.0F, 0.0F);
    for (int d = begin; d < D; d += kStep) {
      read(d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        total.x += gradient[i] * (1.0F + factor[i]);
        total.y += gradient[i] * (1.0F + factor[i]) * normal[i];
      }
    }
    total = block_sum<kBackwardWarps>(total);
    const float sum = total.x / static_cast<float>(D), product = total.y / static_cast<float>(D);
    for (int d = begin; d < D; d += kStep) {
      read(d);
      float shifts[kWidth] = {}, scales[kWidth] = {}, out[kWidth];
      if (t > first) {
        load(sums + d, shifts);
        load(sums + D + d, scales);
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        shifts[i] += gradient[i];
        scales[i] += gradient[i] * normal[i];
        out[i] = row_rstd * (gradient[i] * (1.0F + factor[i]) - sum - normal[i] * product);
      }
      store(sums + d, shifts);
      store(sums + D + d, scales);
      store(dx + row * D + d, out);
    }
  }
}

bool is_empty(const NormModulate& shape) {
  return shape.N == 0 || shape.T == 0 || shape.D == 0;
}

bool is_supported(const NormModulate& shape) {
  return supported(shape.x, shape.y, shape.condition) && shape.D <= kMaxColumns;
}

// The longest row that fits in registers: of the backward, which keeps two sums a column besides, 1536 would
// spill.
constexpr int kForwardColumns = 1536, kBackwardColumns = 1152;

// Calls in_registers with the slots that hold D columns, as a type, or long_row with a width.
template <int kMaxInRegisters, class InRegisters, class LongRow>
cudaError_t with_row(int64_t D, bool fours, InRegisters in_registers, LongRow long_row) {
  if (!fours || D > kMaxInRegisters) return with_width(fours, long_row);
  if (D <= 384) return in_registers(std::integral_constant<int, 3>{});
  if (D <= 768) return in_registers(std::integral_constant<int, 6>{});
  if (D <= 1152) return in_registers(std::integral_constant<int, 9>{});
  if constexpr (kMaxInRegisters > 1152) return in_registers(std::integral_constant<int, 12>{});
  return cudaErrorInvalidValue;
}

}  // namespace

int norm_modulate_forward(const NormModulate& shape, const void* x, Rows shift, Rows scale, float epsilon,
                          void* y, float* mean, float* rstd, Stream stream) {
  if (!is_supported(shape)) return cudaErrorInvalidValue;
  if (is_empty(shape)) return cudaSuccess;
  const bool fours = by_fours({{x, shape.x, shape.D},
                               {y, shape.y, shape.D},
                               {shift.data, shape.condition, shift.stride},
                               {scale.data, shape.condition, scale.stride}});
  const int64_t blocks = shape.N * ((shape.T + kForwardRows - 1) / kForwardRows);
  return with_types(shape.x, shape.y, [&](auto main, auto other) {
    using X = decltype(main);
    using Y = decltype(other);
    const auto start = [&](auto kernel) {
      return launch(blocks, kForwardWarps * kWarp, 0, stream, kernel, static_cast<const X*>(x), shift, scale,
                    shape.condition, epsilon, static_cast<Y*>(y), mean, rstd, shape.T, shape.D);
    };
    return with_row<kForwardColumns>(
        shape.D, fours, [&](auto slots) { return start(norm_forward_kernel<slots.value, X, Y>); },
        [&](auto width) { return start(norm_forward_long_kernel<width.value, X, Y>); });
  });
}

int norm_modulate_backward(const NormModulate& shape, const void* dy, const void* x, const float* mean,
                           const float* rstd, Rows scale, float* partial, void* dx, void* dshift,
                           void* dscale, Stream stream) {
  if (!is_supported(shape)) return cudaErrorInvalidValue;
  if (is_empty(shape)) return cudaSuccess;
  const bool fours = by_fours({{dy, shape.y, shape.D},
                               {x, shape.x, shape.D},
                               {scale.data, shape.condition, scale.stride},
                               {partial, Type::fp32, shape.D},
                               {dx, shape.x, shape.D}});
  const int64_t blocks = shape.N * chunks(shape.T);
  const cudaError_t error = with_types(shape.x, shape.y, [&](auto main, auto other) {
    using X = decltype(main);
    using Y = decltype(other);
    const auto start = [&](auto kernel, int64_t shared_bytes) {
      return launch(blocks, kBackwardWarps * kWarp, static_cast<size_t>(shared_bytes), stream, kernel,
                    static_cast<const Y*>(dy), static_cast<const X*>(x), mean, rstd, scale, shape.condition,
                    partial, static_cast<X*>(dx), shape.T, shape.D);
    };
    return with_row<kBackwardColumns>(
        shape.D, fours,
        [&](auto slots) {
          return start(norm_backward_kernel<slots.value, X, Y>, shape.D * 3 * int64_t{sizeof(float)});
        },
        [&](auto width) { return start(norm_backward_long_kernel<width.value, X, Y>, 0); });
  });
  if (error != cudaSuccess) return error;
  return column_sums({shape.N, chunks(shape.T), shape.D, shape.condition}, partial, dshift, dscale, stream);
}

}  // namespace dtk::models::cuda
