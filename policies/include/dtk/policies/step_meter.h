// The memory ledger as one object, for a program that asks for the peak of its steps. In a training program:
//
//   StepMeter meter;                     // before the model is built
//   Net net;
//   for (int i = 0; i < steps; ++i) step(net);
//   print(meter.peak_bytes());
#pragma once
#include <dtk/policies/memory_accounts.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include <cstdint>

namespace dtk::policies {

/// Counts every byte of CPU memory that tensors take while it lives; what this thread's forward passes save
/// for backward belongs to (saved, module path). Make it while no other SavedTensorScope or StepMeter is
/// alive, on the thread that trains. A device's own memory: device_statistics.h.
class StepMeter {
 public:
  [[nodiscard]] StepMeter() : saved_(saved_tensor_ledger()) { restart(); }

  /// Forgets the peak so far, and cpu_accounts()'s phases with it.
  void restart() { cpu_accounts().reset_phases("step"); }
  /// The most bytes that were alive at once since the meter was made or restarted. Tensors made before the
  /// meter are not counted, those of an earlier meter that are still alive are.
  int64_t peak_bytes() const { return peak().peak.bytes; }
  /// That moment's bytes by owner, and the phase it was in.
  PhasePeak peak() const { return highest(cpu_accounts().phases()); }

 private:
  CountingAllocatorGuard counting_;
  SavedTensorEngineGuard engine_;
  SavedTensorScope saved_;
};

}  // namespace dtk::policies
