// What the headers of the kernels share. They are plain C++: tensors, allocation and checks are the caller's.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace dtk::models::cuda {

enum class Type { fp32, bf16, fp16 };

using Stream = CUstream_st*;  // a cudaStream_t

/// A table whose rows begin `stride` elements apart: it may be part of a wider one.
struct Rows {
  const void* data = nullptr;
  int64_t stride = 0;
};

/// Rows whose contributions to a sum over rows are added first; what they come to are the partial sums.
inline constexpr int64_t kChunkRows = 64;

constexpr int64_t chunks(int64_t rows) {
  return (rows + kChunkRows - 1) / kChunkRows;
}

}  // namespace dtk::models::cuda
