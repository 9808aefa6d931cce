// y = gate * sigmoid(gate) * up, and its gradient: Shazeer, "GLU Variants Improve Transformer" (SwiGLU).
#pragma once

#include "types.h"

namespace dtk::models::cuda {

struct SiluMul {
  int64_t count = 0;    // of numbers
  Type x = Type::fp32;  // of all tensors
};

/// All (count). They return a cudaError_t.
int silu_mul_forward(const SiluMul& shape, const void* gate, const void* up, void* y, Stream stream);

int silu_mul_backward(const SiluMul& shape, const void* dy, const void* gate, const void* up, void* dgate,
                      void* dup, Stream stream);

}  // namespace dtk::models::cuda
