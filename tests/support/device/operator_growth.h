// The most bytes that came to life at once between two operator calls on the test device: no single
// allocation of a step is larger. Works where no ledger sees the blocks, by the peaks of the device's
// allocator.
#pragma once
#include <ATen/record_function.h>

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "support/device/test_device.h"

namespace dtk::test {

/// Watches all threads' operators while it lives, one object at a time. Forgets the ledger's phases.
class OperatorGrowth {
 public:
  OperatorGrowth() {
    state() = {};
    look();
    handle_ =
        at::addGlobalCallback(at::RecordFunctionCallback(&enter, &leave).scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorGrowth() { at::removeCallback(handle_); }
  OperatorGrowth(const OperatorGrowth&) = delete;
  OperatorGrowth& operator=(const OperatorGrowth&) = delete;

  int64_t largest() const {
    look();
    return state().largest;
  }

 private:
  struct State {
    int64_t live = -1;  // at the last look; -1: there was none
    int64_t largest = 0;
  };
  static State& state() {
    static State shared;
    return shared;
  }
  static void look() {
    static std::mutex mutex;  // backward runs on a thread of the device's own
    const std::lock_guard lock(mutex);
    State& now = state();
    if (now.live >= 0) now.largest = std::max(now.largest, DeviceMemory::peak() - now.live);
    DeviceMemory::restart();
    now.live = DeviceMemory::live();
  }
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction&) {
    look();
    return nullptr;
  }
  static void leave(const at::RecordFunction&, at::ObserverContext*) { look(); }

  at::CallbackHandle handle_;
};

}  // namespace dtk::test
