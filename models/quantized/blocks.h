// Sizes of NF4's blocks.
#pragma once
#include <cstdint>

namespace dtk::models {

inline constexpr int64_t kBlock = 64, kNestedBlock = 256;

inline int64_t blocks_of(int64_t values) {
  return (values + kBlock - 1) / kBlock;
}

}  // namespace dtk::models
