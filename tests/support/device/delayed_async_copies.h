// Async copies within the host's memory: the engine's thread makes them after random delays, and their target
// holds NaN until then, so that a missing wait shows.
#pragma once
#include <dtk/policies/internal/async_copies.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "support/device/delayed_staging_copies.h"

namespace dtk::test {

class DelayedAsyncCopies final : public policies::AsyncCopies {
 public:
  explicit DelayedAsyncCopies(uint64_t seed,
                              std::chrono::microseconds longest = std::chrono::microseconds(200))
      : engine_(longest, seed) {}
  ~DelayedAsyncCopies() override { engine_.hold_back(); }

  std::unique_ptr<policies::AsyncCopy> begin(const at::Tensor& from, const at::Tensor& to) override {
    engine_.begin(++begun_, from.const_data_ptr(), to.mutable_data_ptr(), from.nbytes());
    return std::make_unique<Begun>(engine_, begun_);
  }

 private:
  // The calling thread stands for the device, so it is the one that waits.
  class Begun final : public policies::AsyncCopy {
   public:
    Begun(DelayedStagingCopies& engine, size_t slot) : engine_(engine), slot_(slot) {}
    void wait() override { engine_.wait(slot_); }

   private:
    DelayedStagingCopies& engine_;
    const size_t slot_;
  };

  DelayedStagingCopies engine_;
  size_t begun_ = 0;  // each copy is a slot of its own
};

}  // namespace dtk::test
