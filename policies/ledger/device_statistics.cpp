#include <c10/core/CachingDeviceAllocator.h>
#include <dtk/policies/internal/device_statistics.h>

#include <algorithm>
#include <stdexcept>

namespace dtk::policies {
namespace {

int64_t requested_peak(c10::Device device) {
  return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).requested_bytes[0].peak;
}

}  // namespace

DeviceStatistics::DeviceStatistics(c10::Device device) : device_(device) {
  if (device.is_cpu()) throw std::invalid_argument("device statistics: the CPU allocator keeps none");
  reset();
}

void DeviceStatistics::reset() {
  phases_ = {{"build", {}}};
  phase_ = 0;
  c10::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
}

void DeviceStatistics::merge_peak() {
  int64_t& peak = phases_[phase_].peak.bytes;
  peak = std::max(peak, requested_peak(device_));
}

std::string DeviceStatistics::enter_phase(std::string_view name) {
  merge_peak();
  c10::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
  std::string left = phases_[phase_].name;
  const auto found =
      std::find_if(phases_.begin(), phases_.end(), [&](const auto& p) { return p.name == name; });
  phase_ = static_cast<size_t>(found - phases_.begin());
  if (found == phases_.end()) phases_.push_back({std::string(name), {}});
  return left;
}

std::vector<PhasePeak> DeviceStatistics::phases() const {
  std::vector<PhasePeak> result = phases_;
  int64_t& current = result[phase_].peak.bytes;
  current = std::max(current, requested_peak(device_));
  return result;
}

}  // namespace dtk::policies
