// The data of a run: what it trains on, and what is held out.
#pragma once
#include <cstdint>
#include <memory>

#include "toolkit/data/held_out.h"

namespace dtk {

/// Labels are 0 .. count - 1.
struct ClassCounts {
  int64_t data = 0;
  int64_t model = 0;
};

struct RunData {
  std::shared_ptr<const DataSource> all;  // for what is said of them
  DataSplit split;
  ClassCounts classes = {};  // of data and models that have some
  DataRemarks remarks = {};  // of all that was opened
};

}  // namespace dtk
