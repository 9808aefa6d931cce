// Everything that measures memory for the duration of a run.
#pragma once
#include <c10/core/Device.h>
#include <dtk/policies/internal/device_statistics.h>
#include <dtk/policies/memory_ledger.h>

#include <cstdint>
#include <optional>

#include "toolkit/config/config.h"
#include "toolkit/report/memory_report.h"

namespace dtk {

/// Installs the ledger, on a device its statistics, and memory.budget. Make it before the tensors of
/// interest, from the thread that trains; one at a time. With options.ledger = false it measures nothing.
class MemoryMeters {
 public:
  MemoryMeters(const MemoryOptions& options, c10::Device device);

  /// Forgets all peaks: what is built next is measured alone. While no PhaseScope is alive.
  void begin_again();

  /// Peaks so far; nothing without the ledger.
  std::optional<MemoryReport> report() const;
  /// Throws c10::OutOfMemoryError if a device's peak is above memory.budget. On the CPU the ledger refuses
  /// the allocation itself, and this does nothing.
  void check_budget() const;
  /// The meter of the training device.
  const policies::PhaseMeter& device() const;

 private:
  const c10::Device device_;
  const std::optional<ByteSize> budget_;
  std::optional<policies::CountingAllocatorGuard> allocator_;
  std::optional<policies::MemoryBudgetGuard> limit_;
  std::optional<policies::DeviceStatistics> statistics_;
  std::optional<policies::PhaseMeterRegistration> registration_;
};

}  // namespace dtk
