#include "column_sums.h"
#include "gated_add.h"
#include "kernel.cuh"

namespace dtk::models::cuda {
namespace {

constexpr int kForwardRows = 8;

template <int kWidth, class X, class B>
__global__ void __launch_bounds__(kColumnThreads)
    gated_add_forward_kernel(const X* __restrict__ x, Rows gate, Type condition, const B* __restrict__ branch,
                             X* __restrict__ y, int64_t N, int64_t T, int D) {
  const Column<kForwardRows, kWidth> column(T, D);
  if (column.sample >= N) return;
  float factor[kWidth];
  load(condition, gate.data, column.sample * gate.stride + column.first, factor);
  column.each_row([&](int64_t at) {
    float sum[kWidth], addend[kWidth];
    load(x + at, sum);
    load(branch + at, addend);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] += factor[i] * addend[i];
    store(y + at, sum);
  });
}

template <int kWidth, class X, class B>
__global__ void __launch_bounds__(kColumnThreads)
    gated_add_backward_kernel(const X* __restrict__ dy, Rows gate, Type condition,
                              const B* __restrict__ branch, float* __restrict__ partial,
                              B* __restrict__ dbranch, int64_t N, int64_t T, int D) {
  const Column<kChunkRows, kWidth> column(T, D);
  if (column.sample >= N) return;
  float factor[kWidth], sum[kWidth] = {};
  load(condition, gate.data, column.sample * gate.stride + column.first, factor);
  column.each_row([&](int64_t at) {
    float gradient[kWidth], value[kWidth];
    load(dy + at, gradient);
    load(branch + at, value);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      sum[i] += gradient[i] * value[i];
      gradient[i] *= factor[i];
    }
    store(dbranch + at, gradient);
  });
  store(partial + column.part * D + column.first, sum);
}

bool is_empty(const GatedAdd& shape) {
  return shape.N == 0 || shape.T == 0 || shape.D == 0;
}

bool is_supported(const GatedAdd& shape) {
  return supported(shape.x, shape.branch, shape.condition) && shape.D <= kMaxColumns;
}

}  // namespace

int gated_add_forward(const GatedAdd& shape, const void* x, Rows gate, const void* branch, void* y,
                      Stream stream) {
  if (!is_supported(shape)) return cudaErrorInvalidValue;
  if (is_empty(shape)) return cudaSuccess;
  const bool fours = by_fours({{x, shape.x, shape.D},
                               {branch, shape.branch, shape.D},
                               {y, shape.x, shape.D},
                               {gate.data, shape.condition, gate.stride}});
  return with_types(shape.x, shape.branch, [&](auto main, auto other) {
    using X = decltype(main);
    using B = decltype(other);
    return with_width(fours, [&](auto width) {
      return launch_columns<kForwardRows, width.value>(
          shape.N, shape.T, shape.D, stream, gated_add_forward_kernel<width.value, X, B>,
          static_cast<const X*>(x), gate, shape.condition, static_cast<const B*>(branch), static_cast<X*>(y));
    });
  });
}

int gated_add_backward(const GatedAdd& shape, const void* dy, Rows gate, const void* branch, float* partial,
                       void* dgate, void* dbranch, Stream stream) {
  if (!is_supported(shape)) return cudaErrorInvalidValue;
  if (is_empty(shape)) return cudaSuccess;
  const bool fours = by_fours({{dy, shape.x, shape.D},
                               {branch, shape.branch, shape.D},
                               {dbranch, shape.branch, shape.D},
                               {partial, Type::fp32, shape.D},
                               {gate.data, shape.condition, gate.stride}});
  const cudaError_t error = with_types(shape.x, shape.branch, [&](auto main, auto other) {
    using X = decltype(main);
    using B = decltype(other);
    return with_width(fours, [&](auto width) {
      return launch_columns<kChunkRows, width.value>(
          shape.N, shape.T, shape.D, stream, gated_add_backward_kernel<width.value, X, B>,
          static_cast<const X*>(dy), gate, shape.condition, static_cast<const B*>(branch), partial,
          static_cast<B*>(dbranch));
    });
  });
  if (error != cudaSuccess) return error;
  return column_sums({shape.N, chunks(shape.T), shape.D, shape.condition}, partial, dgate, nullptr, stream);
}

}  // namespace dtk::models::cuda
