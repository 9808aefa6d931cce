// Which samples of a batch are computed, where it is computed in parts.
#pragma once
#include <cstdint>

namespace dtk {

/// Of a batch of `of` samples, those from `first` on.
struct BatchPart {
  int64_t first = 0, of = 0;
};

}  // namespace dtk
