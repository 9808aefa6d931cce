// An option that is a size.
#pragma once
#include <cstdint>

namespace dtk::policies {

/// A number of bytes.
struct ByteCount {
  int64_t bytes = 0;
  friend bool operator==(const ByteCount&, const ByteCount&) = default;
};

}  // namespace dtk::policies
