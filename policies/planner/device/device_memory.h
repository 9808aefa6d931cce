// The memory of the simulated device: addresses that nothing can be read from, every storage in the books;
// and page-locked memory of the host.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/TensorImpl.h>
#include <dtk/policies/memory_accounts.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "core/stream_order.h"
#include "device/segments.h"

namespace dtk::planner {

struct MemoryPeaks {
  int64_t asked = 0;
  int64_t rounded = 0;  // each block as its allocator does
};

/// Thread-safe. Statistics: requested_bytes are those of device_accounts(), to the byte; allocated_bytes the
/// same storages rounded up as CUDA's caching allocator rounds each; reserved_bytes those of Segments, now.
class SimulatedMemory final : public c10::DeviceAllocator {
 public:
  /// To which CUDA's caching allocator rounds up: kMinBlockSize of c10/core/AllocatorConfig.h.
  static constexpr int64_t kRounding = 512;

  /// The process's one. Never destroyed.
  static SimulatedMemory& instance();

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

  /// The most that was alive at once since the process began or reset_peaks(), whoever resets the statistics.
  MemoryPeaks peaks();
  void reset_peaks();

  /// For what was made since begin_segments().
  Reserved reserved();
  /// Storages that are alive are thought to be none of its own.
  void begin_segments();
  /// A library takes `bytes` of the allocator on the current stream, and keeps them: in reserved() alone.
  void take_for_good(int64_t bytes);

  /// What is known of the storage under a tensor of the device, also if the tensor was made of a plain
  /// pointer into it. Throws PlanError if there is none at that address (any more).
  MemoryUse& use_of(const c10::TensorImpl& tensor);

 private:
  struct Block : policies::MemoryBlock {
    uint64_t address = 0;
    MemoryUse use;
  };

  SimulatedMemory();
  static void release(void* context);
  void count(int64_t bytes, bool born);

  std::mutex mutex_;  // guards everything below
  std::map<uint64_t, Block*> live_;
  uint64_t next_;
  c10::CachingDeviceAllocator::DeviceStats stats_;
  MemoryPeaks most_;
  Segments segments_;
};

/// Page-locked host memory of the simulated device: ordinary CPU memory, in the books of the CPU, with what a
/// real device's allocator would take for it beside, each block rounded up to a power of two. Thread-safe.
class PinnedMemory final : public c10::Allocator {
 public:
  /// The process's one. Never destroyed.
  static PinnedMemory& instance();

  at::DataPtr allocate(size_t bytes) override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  bool holds(const void* address);

  /// The most that was alive at once since the process began or reset_peaks().
  MemoryPeaks peaks();
  void reset_peaks();

 private:
  struct Block;
  static void release(void* context);
  void count(int64_t asked, int64_t sign);

  std::mutex mutex_;  // guards everything below
  std::map<const char*, int64_t> live_;
  MemoryPeaks now_, most_;
};

}  // namespace dtk::planner
