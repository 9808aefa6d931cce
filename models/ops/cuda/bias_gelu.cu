#include "bias_gelu.h"
#include "column_sums.h"
#include "kernel.cuh"

namespace dtk::models::cuda {
namespace {

constexpr int kForwardRows = 8;
constexpr float kAlpha = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

__device__ float gelu(float x) {
  return 0.5F * x * (1.0F + tanhf(kAlpha * (x + kCubic * x * x * x)));
}

__device__ float gelu_derivative(float x) {
  const float t = tanhf(kAlpha * (x + kCubic * x * x * x));
  return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kAlpha * (1.0F + 3.0F * kCubic * x * x);
}

template <int kWidth, class X>
__global__ void __launch_bounds__(kColumnThreads)
    bias_gelu_forward_kernel(const X* __restrict__ x, const void* bias, Type bias_type, X* __restrict__ y,
                             int64_t N, int64_t R, int D) {
  const Column<kForwardRows, kWidth> column(R, D);
  if (column.sample >= N) return;
  float shift[kWidth];
  load(bias_type, bias, column.first, shift);
  column.each_row([&](int64_t at) {
    float value[kWidth];
    load(x + at, value);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) value[i] = gelu(value[i] + shift[i]);
    store(y + at, value);
  });
}

template <int kWidth, class X>
__device__ __forceinline__ void backward_of_column(const X* dy, const X* x, const void* bias, Type bias_type,
                                                   float* partial, X* dx, int64_t N, int64_t R, int D) {
  const Column<kChunkRows, kWidth> column(R, D);
  if (column.sample >= N) return;
  float shift[kWidth], sum[kWidth] = {};
  load(bias_type, bias, column.first, shift);
  column.each_row([&](int64_t at) {
    float value[kWidth], gradient[kWidth];
    load(x + at, value);
    load(dy + at, gradient);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      gradient[i] *= gelu_derivative(value[i] + shift[i]);
      sum[i] += gradient[i];
    }
    store(dx + at, gradient);
  });
  store(partial + column.part * D + column.first, sum);
}

template <int kWidth, class X>
__global__ void __launch_bounds__(kColumnThreads)
    bias_gelu_backward_kernel(const X* __restrict__ dy, const X* __restrict__ x, const void* bias,
                              Type bias_type, float* __restrict__ partial, X* __restrict__ dx, int64_t N,
                              int64_t R, int D) {
  backward_of_column<kWidth>(dy, x, bias, bias_type, partial, dx, N, R, D);
}

// A thread writes where it alone has read. Without a number of blocks that a multiprocessor must hold, ptxas
// wants more of them and spills.
template <int kWidth, class X>
__global__ void __launch_bounds__(kColumnThreads, 4)
    bias_gelu_backward_in_place_kernel(const X* __restrict__ x, const void* bias, Type bias_type,
                                       float* __restrict__ partial, X* gradient, int64_t N, int64_t R,
                                       int D) {
  backward_of_column<kWidth>(gradient, x, bias, bias_type, partial, gradient, N, R, D);
}

bool is_empty(const BiasGelu& shape) {
  return shape.R == 0 || shape.D == 0;
}

bool is_supported(const BiasGelu& shape) {
  return (shape.bias == Type::fp32 || shape.bias == shape.x) && shape.D <= kMaxColumns;
}

}  // namespace

int bias_gelu_forward(const BiasGelu& shape, const void* x, const void* bias, void* y, Stream stream) {
  if (!is_supported(shape)) return cudaErrorInvalidValue;
  if (is_empty(shape)) return cudaSuccess;
  const bool fours = by_fours({{x, shape.x, shape.D}, {y, shape.x, shape.D}, {bias, shape.bias, shape.D}});
  return with_type(shape.x, [&](auto value) {
    using X = decltype(value);
    return with_width(fours, [&](auto width) {
      return launch_columns<kForwardRows, width.value>(
          1, shape.R, shape.D, stream, bias_gelu_forward_kernel<width.value, X>, static_cast<const X*>(x),
          bias, shape.bias, static_cast<X*>(y));
    });
  });
}

int bias_gelu_backward(const BiasGelu& shape, const void* dy, const void* x, const void* bias, float* partial,
                       void* dx, void* dbias, Stream stream) {
  if (!is_supported(shape)) return cudaErrorInvalidValue;
  if (is_empty(shape)) return cudaSuccess;
  const bool fours = by_fours({{dy, shape.x, shape.D},
                               {x, shape.x, shape.D},
                               {bias, shape.bias, shape.D},
                               {partial, Type::fp32, shape.D},
                               {dx, shape.x, shape.D}});
  const cudaError_t error = with_type(shape.x, [&](auto value) {
    using X = decltype(value);
    return with_width(fours, [&](auto width) {
      const auto start = [&](auto kernel, auto... of_result) {
        return launch_columns<kChunkRows, width.value>(1, shape.R, shape.D, stream, kernel, of_result...,
                                                       static_cast<const X*>(x), bias, shape.bias, partial,
                                                       static_cast<X*>(dx));
      };
      return dx == dy ? start(bias_gelu_backward_in_place_kernel<width.value, X>)
                      : start(bias_gelu_backward_kernel<width.value, X>, static_cast<const X*>(dy));
    });
  });
  if (error != cudaSuccess) return error;
  return column_sums({1, chunks(shape.R), shape.D, shape.bias}, partial, dbias, nullptr, stream);
}

}  // namespace dtk::models::cuda
