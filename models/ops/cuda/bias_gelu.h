// y = gelu(x + bias), the approximation by tanh, and its gradient.
#pragma once

#include "types.h"

namespace dtk::models::cuda {

struct BiasGelu {
  int64_t R = 0, D = 0;
  Type x = Type::fp32;     // of y, dy and dx too
  Type bias = Type::fp32;  // of dbias too
};

/// x, y (R, D); bias (D). They return a cudaError_t, cudaErrorInvalidValue where the bias is neither fp32 nor
/// of x's type.
int bias_gelu_forward(const BiasGelu& shape, const void* x, const void* bias, void* y, Stream stream);

/// partial: scratch (chunks(R), D). dbias: (D), not written where R is 0. dx may be dy, and takes its place.
int bias_gelu_backward(const BiasGelu& shape, const void* dy, const void* x, const void* bias, float* partial,
                       void* dx, void* dbias, Stream stream);

}  // namespace dtk::models::cuda
