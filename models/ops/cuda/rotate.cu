#include "kernel.cuh"
#include "rotate.h"

namespace dtk::models::cuda {
namespace {

// Without a number of blocks that a multiprocessor must hold, ptxas wants more of them and spills.
constexpr int kThreads = 128, kBlocks = 8;
constexpr int kHeads = 4;  // of a token, that a thread turns by the same angles

// The matrix that turns a pair of channels.
template <int kWidth>
struct Turn {
  float ii[kWidth], ij[kWidth], ji[kWidth], jj[kWidth];

  __device__ Turn(Type type, const void* cosine, const void* sine, int64_t i, int64_t j, bool transposed) {
    load(type, cosine, i, ii);
    load(type, cosine, j, jj);
    load(type, sine, transposed ? j : i, ij);
    load(type, sine, transposed ? i : j, ji);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (transposed)
        ji[k] = -ji[k];
      else
        ij[k] = -ij[k];
    }
  }
};

template <int kWidth, class X>
__global__ void __launch_bounds__(kThreads, kBlocks)
    rotate_kernel(const X* __restrict__ x, Heads strides, const void* cosine, const void* sine, Type table,
                  bool transposed, X* __restrict__ y, int64_t threads, int64_t T, int H, int D, int half) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const int groups = D / 2 / kWidth, of_token = groups * ((H + kHeads - 1) / kHeads);
  const int64_t token = thread / of_token;  // counted over all samples
  const int64_t sample = token / T, t = token % T;
  const int place = static_cast<int>(thread % of_token);
  const int pair = place % groups * kWidth, first_head = place / groups * kHeads;
  const int i = pair / half * 2 * half + pair % half, j = i + half;

  const Turn<kWidth> turn(table, cosine, sine, t * D + i, t * D + j, transposed);
#pragma unroll
  for (int next = 0; next < kHeads; ++next) {
    const int64_t head = first_head + next;
    if (head >= H) break;
    const X* const from = x + sample * strides.sample + t * strides.token + head * strides.head;
    float at_i[kWidth], at_j[kWidth], out_i[kWidth], out_j[kWidth];
    load(from + i, at_i);
    load(from + j, at_j);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      out_i[k] = at_i[k] * turn.ii[k] + at_j[k] * turn.ij[k];
      out_j[k] = at_j[k] * turn.jj[k] + at_i[k] * turn.ji[k];
    }
    X* const to = y + (token * H + head) * D;
    store(to + i, out_i);
    store(to + j, out_j);
  }
}

bool is_supported(const Rotate& shape) {
  return (shape.table == Type::fp32 || shape.table == shape.x) && shape.parts >= 1 &&
         shape.D % (2 * shape.parts) == 0 && shape.H * shape.D <= kMaxColumns;
}

int rotate(const Rotate& shape, Heads x, const void* cosine, const void* sine, bool transposed, void* y,
           Stream stream) {
  if (!is_supported(shape)) return cudaErrorInvalidValue;
  if (shape.N == 0 || shape.T == 0 || shape.H == 0 || shape.D == 0) return cudaSuccess;
  const int64_t half = shape.D / shape.parts / 2;
  const bool fours = by_fours({{x.data, shape.x, x.sample},
                               {x.data, shape.x, x.token},
                               {x.data, shape.x, x.head},
                               {cosine, shape.table, half},
                               {sine, shape.table, half},
                               {y, shape.x, half}});
  return with_type(shape.x, [&](auto main) {
    using X = decltype(main);
    return with_width(fours, [&](auto width) {
      const int64_t threads =
          shape.N * shape.T * ((shape.H + kHeads - 1) / kHeads) * (shape.D / 2 / width.value);
      return launch((threads + kThreads - 1) / kThreads, kThreads, 0, stream, rotate_kernel<width.value, X>,
                    static_cast<const X*>(x.data), x, cosine, sine, shape.table, transposed,
                    static_cast<X*>(y), threads, shape.T, shape.H, shape.D, half);
    });
  });
}

}  // namespace

int rotate_forward(const Rotate& shape, Heads x, const void* cosine, const void* sine, void* y,
                   Stream stream) {
  return rotate(shape, x, cosine, sine, false, y, stream);
}

int rotate_backward(const Rotate& shape, Heads dy, const void* cosine, const void* sine, void* dx,
                    Stream stream) {
  return rotate(shape, dy, cosine, sine, true, dx, stream);
}

}  // namespace dtk::models::cuda
