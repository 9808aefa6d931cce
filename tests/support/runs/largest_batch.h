// The largest batch that fits, found by running steps.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "toolkit/config/config.h"
#include "toolkit/core/largest_fit.h"
#include "toolkit/data/data_source.h"

namespace dtk {

/// Doubles until one does not fit or `most` is passed, then bisects. Asks `fits` of no number twice. What is
/// larger than a number that does not fit must not fit either.
LargestFit largest_fit(int64_t most, const std::function<bool(int64_t)>& fits);

struct LargestBatch {
  int64_t batch = 0;       // samples per optimizer step; 0: not even one fits
  int64_t peak_bytes = 0;  // of its step
  int64_t next_batch = 0;  // the next larger one, seen to exceed the budget; 0: the data set ended the search
  int64_t steps_run = 0;   // also those that did not fit
};

/// Finds the largest data.batch (micro-batch times train.accumulate) whose first training step, with building
/// model, optimizer and policies, stays within config.memory.budget on the CPU. Each candidate trains one
/// step, also `next_batch`. `tried` is
/// told of each candidate and its peak, 0 if it did not fit. Throws std::invalid_argument without a budget.
LargestBatch largest_batch(RunConfig config, std::shared_ptr<const DataSource> data,
                           const std::function<void(int64_t batch, int64_t peak_bytes)>& tried = {});

}  // namespace dtk
