// The memory of the simulated device: addresses that nothing can be read from, every storage in the books.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <dtk/policies/memory_accounts.h>

#include <mutex>

namespace dtk::planner {

/// Thread-safe. Statistics are those of device_accounts(): nothing is rounded, cached or fragmented.
class FakeMemory final : public c10::DeviceAllocator {
 public:
  /// The process's one. Never destroyed.
  static FakeMemory& instance();

  at::DataPtr allocate(size_t bytes) override;
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const at::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override;
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override;

 private:
  FakeMemory();
  static void release(void* context);
  void change(int64_t bytes);

  std::mutex mutex_;  // guards the statistics
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

}  // namespace dtk::planner
