// Peaks by phase from a device allocator, on an allocator made up here: a program of its own, because it
// registers that allocator for the CUDA device type.
#include <c10/core/CachingDeviceAllocator.h>
#include <dtk/policies/internal/device_statistics.h>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

struct MadeUpAllocator final : c10::DeviceAllocator {
  c10::CachingDeviceAllocator::DeviceStats stats;
  void add(int64_t bytes) {
    auto& requested = stats.requested_bytes[0];
    bytes > 0 ? requested.increase(static_cast<size_t>(bytes))
              : requested.decrease(static_cast<size_t>(-bytes));
  }
  at::DataPtr allocate(size_t) override { return {}; }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const at::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return stats; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { stats.requested_bytes[0].reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override { return {0, 0}; }
};

}  // namespace

TEST_CASE("each phase has the allocator's peak within it, merged over its visits") {
  static MadeUpAllocator allocator;
  c10::SetAllocator(c10::DeviceType::CUDA, &allocator, 1);
  DeviceStatistics statistics(c10::Device(c10::DeviceType::CUDA, 0));
  const PhaseMeterRegistration registration(statistics);
  allocator.add(100);
  {
    PhaseScope forward("forward");
    allocator.add(50);
    allocator.add(-50);
    {
      PhaseScope backward("backward");
      allocator.add(20);
    }
    allocator.add(-20);
  }
  {
    PhaseScope forward("forward");
    allocator.add(30);
    allocator.add(-30);
  }
  const auto phases = statistics.phases();
  REQUIRE(phases.size() == 3);
  CHECK(phases[0].name == "build");
  CHECK(phases[0].peak.bytes == 100);
  CHECK(phases[1].name == "forward");
  CHECK(phases[1].peak.bytes == 150);
  CHECK(phases[2].name == "backward");
  CHECK(phases[2].peak.bytes == 120);
  CHECK(highest(phases).name == "forward");
}

TEST_CASE("the CPU keeps no such statistics") {
  CHECK_THROWS_WITH(DeviceStatistics(c10::Device(c10::DeviceType::CPU)),
                    "device statistics: the CPU allocator keeps none");
}
