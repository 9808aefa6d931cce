#include "toolkit/run/memory_meters.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <fstream>
#include <limits>
#include <string>

namespace dtk {

std::optional<int64_t> available_bytes(std::istream& meminfo) {
  for (std::string name; meminfo >> name; meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (name != "MemAvailable:") continue;
    int64_t kibibytes = 0;
    if (!(meminfo >> kibibytes) || kibibytes < 0) return std::nullopt;
    return kibibytes * 1024;
  }
  return std::nullopt;
}

std::optional<int64_t> available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  return available_bytes(meminfo);
}

std::optional<int64_t> available_bytes(c10::Device device) {
  if (device.is_cpu()) return available_bytes();
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device.type());
  const auto stats = allocator->getDeviceStats(device.index());
  const size_t free = allocator->getMemoryInfo(device.index()).first;
  return static_cast<int64_t>(free) + stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
}

MemoryMeters::MemoryMeters(const MemoryOptions& options, c10::Device device)
    : device_(device), budget_(options.budget) {
  if (!options.ledger) return;
  policies::cpu_accounts().reset_phases("build");
  policies::host_accounts().reset_phases("build");
  allocator_.emplace();
  if (device.is_cpu()) {
    if (budget_) limit_.emplace(policies::cpu_accounts(), budget_->bytes);
  } else {
    statistics_.emplace(device);
    registration_.emplace(*statistics_);
  }
}

std::optional<MemoryReport> MemoryMeters::report() const {
  if (!allocator_) return std::nullopt;
  MemoryReport report;
  report.device = device_.str();
  report.phases = device().phases();
  // With a device all CPU memory is the host's.
  const auto& host = statistics_ ? policies::cpu_accounts() : policies::host_accounts();
  report.host = policies::highest(host.phases());
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
