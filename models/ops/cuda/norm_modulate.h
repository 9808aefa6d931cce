// y = LN(x) * (1 + scale) + shift, where LN has no weights of its own, and its gradient.
#pragma once

#include "types.h"

namespace dtk::models::cuda {

struct NormModulate {
  int64_t N = 0, T = 0, D = 0;
  Type x = Type::fp32, y = Type::fp32;  // dx has x's type and dy y's
  Type condition = Type::fp32;          // of shift, scale and their gradients
};

/// x, y (N, T, D); shift, scale (N, D); mean, rstd (N, T). They return a cudaError_t, cudaErrorInvalidValue
/// for types that are not supported: of an fp32 x the others may each be fp32 or a half type, the same for
/// both; of another x they are of its type.
int norm_modulate_forward(const NormModulate& shape, const void* x, Rows shift, Rows scale, float epsilon,
                          void* y, float* mean, float* rstd, Stream stream);

/// partial: scratch (N, chunks(T), 2, D). dshift, dscale: (N, D), not written where T is 0.
int norm_modulate_backward(const NormModulate& shape, const void* dy, const void* x, const float* mean,
                           const float* rstd, Rows scale, float* partial, void* dx, void* dshift,
                           void* dscale, Stream stream);

}  // namespace dtk::models::cuda
