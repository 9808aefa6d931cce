#include "support/runs/largest_batch.h"

#include <c10/util/Exception.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>
#include <stdexcept>

#include "toolkit/train/trainer.h"

namespace dtk {
namespace {

// Bytes at the peak of one step, or 0 if the budget does not hold it. What the program holds besides does not
// count.
int64_t peak_of_step(const RunConfig& config, const std::shared_ptr<const DataSource>& data) {
  policies::cpu_accounts().reset_phases("build");
  const policies::CountingAllocatorGuard counting;
  const int64_t held = policies::cpu_accounts().live_bytes();
  const policies::MemoryBudgetGuard budget(policies::cpu_accounts(), held + config.memory.budget->bytes);
  SteadyClock clock;
  try {
    Trainer trainer(config, c10::Device(c10::kCPU), data, clock);
    trainer.wait_for_data();  // all later steps have these batches beside them
    trainer.step();
    trainer.wait_for_data();  // the loader may be the one that does not get its memory
    return policies::highest(policies::cpu_accounts().phases()).peak.bytes - held;
  } catch (const c10::OutOfMemoryError&) {
    return 0;
  }
}

}  // namespace

LargestFit largest_fit(int64_t most, const std::function<bool(int64_t)>& fits) {
  int64_t good = 0, bad = 1;
  while (bad <= most && fits(bad)) {
    good = bad;
    bad = std::min(2 * bad, most + 1);
    if (good == most) break;
  }
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return {good, bad <= most ? bad : 0};
}

LargestBatch largest_batch(RunConfig config, std::shared_ptr<const DataSource> data,
                           const std::function<void(int64_t batch, int64_t peak_bytes)>& tried) {
  if (!config.memory.budget) throw std::invalid_argument("largest_batch: memory.budget is not set");
  const policies::SavedTensorEngineGuard engine;
  LargestBatch found;
  const int64_t unit = config.train.accumulate, most = data->size() / unit;
  const auto fits = [&](int64_t units) {
    config.data.batch = units * unit;
    const int64_t peak = peak_of_step(config, data);
    ++found.steps_run;
    if (tried) tried(config.data.batch, peak);
    if (peak > 0) found.batch = config.data.batch, found.peak_bytes = peak;
    return peak > 0;
  };
  found.next_batch = largest_fit(most, fits).exceeding * unit;
  return found;
}

}  // namespace dtk
