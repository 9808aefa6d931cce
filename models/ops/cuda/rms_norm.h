// y = x / sqrt(mean(x²) + epsilon) * weight, and its gradient: Zhang and Sennrich, "Root Mean Square Layer
// Normalization".
#pragma once

#include "types.h"

namespace dtk::models::cuda {

struct RmsNorm {
  int64_t R = 0, D = 0;
  Type x = Type::fp32, y = Type::fp32;  // dx has x's type and dy y's
  Type weight = Type::fp32;             // of dweight too
};

/// x, y (R, D); weight (D); rstd (R): 1 / sqrt(mean(x²) + epsilon). They return a cudaError_t,
/// cudaErrorInvalidValue for types that are not supported: y has x's type, or of an fp32 x a half one; the
/// weight is fp32 or of y's type.
int rms_norm_forward(const RmsNorm& shape, const void* x, const void* weight, float epsilon, void* y,
                     float* rstd, Stream stream);

/// partial: scratch (chunks(R), D); null where the weight's gradient is not wanted. dweight: (D), not written
/// then, nor where R is 0.
int rms_norm_backward(const RmsNorm& shape, const void* dy, const void* x, const float* rstd,
                      const void* weight, float* partial, void* dx, void* dweight, Stream stream);

}  // namespace dtk::models::cuda
