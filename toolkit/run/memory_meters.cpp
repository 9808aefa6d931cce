#include "toolkit/run/memory_meters.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <string>

namespace dtk {

static void forget_phases() {
  policies::name_phases();
  policies::cpu_accounts().reset_phases("build");
  policies::host_accounts().reset_phases("build");
}

MemoryMeters::MemoryMeters(const MemoryOptions& options, c10::Device device)
    : device_(device), budget_(options.budget) {
  if (!options.ledger) return;
  forget_phases();
  allocator_.emplace();
  if (device.is_cpu()) {
    if (budget_) limit_.emplace(policies::cpu_accounts(), budget_->bytes);
  } else {
    statistics_.emplace(device);
    registration_.emplace(*statistics_);
  }
}

void MemoryMeters::begin_again() {
  if (!allocator_) return;
  forget_phases();
  if (statistics_) statistics_->reset();
}

std::optional<MemoryReport> MemoryMeters::report() const {
  if (!allocator_) return std::nullopt;
  MemoryReport report;
  report.device = device_;
  report.phases = device().phases();
  // With a device all CPU memory is the host's.
  const auto& host = statistics_ ? policies::cpu_accounts() : policies::host_accounts();
  report.host = policies::highest(host.phases());
  if (statistics_) {
    constexpr size_t kAll = 0, kSmall = 1;  // c10::CachingAllocator::StatType
    const auto stats = c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index());
    report.reserved = {stats.reserved_bytes[kAll].current, stats.reserved_bytes[kSmall].current,
                       stats.segment[kAll].current};
  }
  return report;
}

void MemoryMeters::check_budget() const {
  if (!statistics_ || !budget_) return;
  const policies::PhasePeak peak = policies::highest(statistics_->phases());
  if (peak.peak.bytes <= budget_->bytes) return;
  C10_THROW_ERROR(OutOfMemoryError,
                  c10::str("memory budget of ", budget_->bytes, " bytes exceeded: ", peak.peak.bytes,
                           " bytes alive on ", device_, " in phase ", peak.name));
}

const policies::PhaseMeter& MemoryMeters::device() const {
  if (statistics_) return *statistics_;
  return policies::cpu_accounts();
}

}  // namespace dtk
