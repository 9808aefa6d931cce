// Rotary position embedding and its gradient: Su et al., "RoFormer: Enhanced Transformer with Rotary Position
// Embedding", in the form of LLaMA, whose pairs are channels half a head apart.
#pragma once

#include "types.h"

namespace dtk::models::cuda {

struct Rotate {
  int64_t N = 0, T = 0, H = 0, D = 0;
  int64_t parts = 1;        // of D's channels, each with halves of its own: 2 of a 2-D embedding
  Type x = Type::fp32;      // of the result too
  Type table = Type::fp32;  // of cosine and sine
};

/// A table (N, T, H, D) whose last dimension has no gaps; strides in elements.
struct Heads {
  const void* data = nullptr;
  int64_t sample = 0, token = 0, head = 0;
};

/// y (N, T, H, D) without gaps; cosine, sine (T, D). In each part, with i in its first half and j in the same
/// place of the second: y[i] = x[i] * cosine[i] - x[j] * sine[i], y[j] = x[j] * cosine[j] + x[i] * sine[j].
/// They return a cudaError_t, cudaErrorInvalidValue where the tables are neither fp32 nor of x's type, where
/// D has no such halves, or where H * D is more than 2^24.
int rotate_forward(const Rotate& shape, Heads x, const void* cosine, const void* sine, void* y,
                   Stream stream);

int rotate_backward(const Rotate& shape, Heads dy, const void* cosine, const void* sine, void* dx,
                    Stream stream);

}  // namespace dtk::models::cuda
