#include "kernel.cuh"
#include "silu_mul.h"

namespace dtk::models::cuda {
namespace {

constexpr int kThreads = 256;

// sigmoid(x) = root² * whole, 1 - sigmoid(x) = rest. The root, exp(x / 2) where x < 0, is a normal number
// where the sigmoid no longer is: a product that takes it factor by factor keeps its digits.
struct Sigmoid {
  float root, whole, rest;
  __device__ explicit Sigmoid(float x) {
    const float half = expf(-0.5F * fabsf(x));
    const float small = half * half;
    whole = 1.0F / (1.0F + small);
    root = x < 0.0F ? half : 1.0F;
    rest = x < 0.0F ? whole : small * whole;
  }
};

// value * sigmoid(value) * other. The root comes first: value * other alone may overflow.
__device__ float silu_times(const Sigmoid& sigmoid, float value, float other) {
  return value * sigmoid.root * other * (sigmoid.root * sigmoid.whole);
}

// Calls act(width, at): a thread takes kWidth neighbours, and the last one those that are left, one by one.
template <int kWidth, class Act>
__device__ __forceinline__ void each_number(int64_t count, Act act) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  if (at + kWidth <= count) {
    act(std::integral_constant<int, kWidth>{}, at);
  } else {
    for (int64_t i = at; i < count; ++i) act(std::integral_constant<int, 1>{}, i);
  }
}

template <int kWidth, class X>
__global__ void __launch_bounds__(kThreads)
    silu_mul_forward_kernel(const X* __restrict__ gate, const X* __restrict__ up, X* __restrict__ y,
                            int64_t count) {
  each_number<kWidth>(count, [&](auto width, int64_t at) {
    float value[width.value], other[width.value];
    load(gate + at, value);
    load(up + at, other);
#pragma unroll
    for (int i = 0; i < width.value; ++i) value[i] = silu_times(Sigmoid(value[i]), value[i], other[i]);
    store(y + at, value);
  });
}

// dgate = dy * up * s * (1 + gate * (1 - s)), dup = dy * gate * s with s = sigmoid(gate).
template <int kWidth, class X>
__global__ void __launch_bounds__(kThreads)
    silu_mul_backward_kernel(const X* __restrict__ dy, const X* __restrict__ gate, const X* __restrict__ up,
                             X* __restrict__ dgate, X* __restrict__ dup, int64_t count) {
  each_number<kWidth>(count, [&](auto width, int64_t at) {
    float gradient[width.value], value[width.value], other[width.value];
    load(dy + at, gradient);
    load(gate + at, value);
    load(up + at, other);
#pragma unroll
    for (int i = 0; i < width.value; ++i) {
      const Sigmoid sigmoid(value[i]);
      const float slope = sigmoid.root * (1.0F + value[i] * sigmoid.rest);
      value[i] = silu_times(sigmoid, value[i], gradient[i]);
      other[i] = slope * gradient[i] * other[i] * (sigmoid.root * sigmoid.whole);
    }
    store(dup + at, value);
    store(dgate + at, other);
  });
}

// Calls launch with a width and the number of blocks.
template <class Launch>
cudaError_t with_blocks(int64_t count, bool fours, Launch launch) {
  return with_width(fours, [&](auto width) {
    const int64_t threads = (count + width.value - 1) / width.value;
    return launch(width, (threads + kThreads - 1) / kThreads);
  });
}

}  // namespace

int silu_mul_forward(const SiluMul& shape, const void* gate, const void* up, void* y, Stream stream) {
  if (shape.count == 0) return cudaSuccess;
  const bool fours = by_fours({{gate, shape.x, 0}, {up, shape.x, 0}, {y, shape.x, 0}});
  return with_type(shape.x, [&](auto main) {
    using X = decltype(main);
    return with_blocks(shape.count, fours, [&](auto width, int64_t blocks) {
      return launch(blocks, kThreads, 0, stream, silu_mul_forward_kernel<width.value, X>,
                    static_cast<const X*>(gate), static_cast<const X*>(up), static_cast<X*>(y), shape.count);
    });
  });
}

int silu_mul_backward(const SiluMul& shape, const void* dy, const void* gate, const void* up, void* dgate,
                      void* dup, Stream stream) {
  if (shape.count == 0) return cudaSuccess;
  const bool fours = by_fours(
      {{dy, shape.x, 0}, {gate, shape.x, 0}, {up, shape.x, 0}, {dgate, shape.x, 0}, {dup, shape.x, 0}});
  return with_type(shape.x, [&](auto main) {
    using X = decltype(main);
    return with_blocks(shape.count, fours, [&](auto width, int64_t blocks) {
      return launch(blocks, kThreads, 0, stream, silu_mul_backward_kernel<width.value, X>,
                    static_cast<const X*>(dy), static_cast<const X*>(gate), static_cast<const X*>(up),
                    static_cast<X*>(dgate), static_cast<X*>(dup), shape.count);
    });
  });
}

}  // namespace dtk::models::cuda
