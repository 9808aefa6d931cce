// Peak memory by phase from a device's caching allocator, through LibTorch's device-generic calls.
#pragma once
#include <c10/core/Device.h>
#include <dtk/policies/memory_accounts.h>
#include <dtk/policies/phase_meter.h>

#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// Reports requested bytes (before the allocator's rounding). The statistics know no owners, so the sums'
/// by_owner is empty. Resets the allocator's peak at each change of phase; one per device at a time.
class DeviceStatistics final : public PhaseMeter {
 public:
  /// Throws std::invalid_argument if the device has no allocator that keeps statistics (the CPU).
  explicit DeviceStatistics(c10::Device device);
  /// Forgets all phases and their peaks. While no PhaseScope is alive.
  void reset();
  std::string enter_phase(std::string_view name) override;
  std::vector<PhasePeak> phases() const override;

 private:
  void merge_peak();
  const c10::Device device_;
  std::vector<PhasePeak> phases_;
  size_t phase_ = 0;
};

}  // namespace dtk::policies
