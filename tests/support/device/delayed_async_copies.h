// Side copies within the host's memory: the engine's thread makes them after random delays, and their target
// holds NaN until then, so that a missing wait shows.
#pragma once
#include <dtk/policies/internal/async_copies.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "support/device/delayed_copy_engine.h"

namespace dtk::test {

class DelayedSideCopies final : public policies::SideCopies {
 public:
  explicit DelayedSideCopies(uint64_t seed,
                             std::chrono::microseconds longest = std::chrono::microseconds(200))
      : engine_(longest, seed) {}
  ~DelayedSideCopies() override { engine_.hold_back(); }

  std::unique_ptr<policies::SideCopy> begin(const at::Tensor& from, const at::Tensor& to) override {
    engine_.begin(++begun_, from.const_data_ptr(), to.mutable_data_ptr(), from.nbytes());
    return std::make_unique<Begun>(engine_, begun_);
  }

 private:
  // The calling thread stands for the device, so it is the one that waits.
  class Begun final : public policies::SideCopy {
   public:
    Begun(DelayedCopyEngine& engine, size_t slot) : engine_(engine), slot_(slot) {}
    void wait() override { engine_.wait(slot_); }

   private:
    DelayedCopyEngine& engine_;
    const size_t slot_;
  };

  DelayedCopyEngine engine_;
  size_t begun_ = 0;  // each copy is a slot of its own
};

}  // namespace dtk::test
