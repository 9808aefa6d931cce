// The second stage of sums over rows.
#pragma once

#include "types.h"

namespace dtk::models::cuda {

struct ColumnSums {
  int64_t N = 0, chunks = 0, D = 0;
  Type type = Type::fp32;  // of the results
};

/// Adds partial (N, chunks, planes, D) over the chunks, in a fixed order: the first plane to `first` (N, D),
/// the second to `second`; with a null `second` there is one plane. Returns a cudaError_t.
int column_sums(const ColumnSums& shape, const float* partial, void* first, void* second, Stream stream);

}  // namespace dtk::models::cuda
