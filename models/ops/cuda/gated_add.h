// y = x + gate * branch, and its gradient; that of x is dy.
#pragma once

#include "types.h"

namespace dtk::models::cuda {

struct GatedAdd {
  int64_t N = 0, T = 0, D = 0;
  Type x = Type::fp32;          // of y and dy too
  Type branch = Type::fp32;     // of dbranch too
  Type condition = Type::fp32;  // of gate and dgate
};

/// x, branch, y (N, T, D); gate (N, D). Results and types as in norm_modulate.h, with the branch in y's
/// place.
int gated_add_forward(const GatedAdd& shape, const void* x, Rows gate, const void* branch, void* y,
                      Stream stream);

/// partial: scratch (N, chunks(T), 1, D). dgate: (N, D), not written where T is 0.
int gated_add_backward(const GatedAdd& shape, const void* dy, Rows gate, const void* branch, float* partial,
                       void* dgate, void* dbranch, Stream stream);

}  // namespace dtk::models::cuda
