// Page-locked host memory of the simulated device: ordinary CPU memory, in the books of the CPU, with what a
// real device's allocator would take for it beside.
#pragma once
#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <mutex>

namespace dtk::planner {

/// Thread-safe.
class PinnedMemory final : public c10::Allocator {
 public:
  struct Peaks {
    int64_t asked = 0;
    int64_t rounded = 0;  // each block to a power of two
  };

  /// The process's one. Never destroyed.
  static PinnedMemory& instance();

  at::DataPtr allocate(size_t bytes) override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  bool holds(const void* address);

  /// The most that was alive at once since the process began or reset_peaks().
  Peaks peaks();
  void reset_peaks();

 private:
  struct Block;
  static void release(void* context);
  void count(int64_t asked, int64_t sign);

  std::mutex mutex_;  // guards everything below
  std::map<const char*, int64_t> live_;
  Peaks now_, most_;
};

}  // namespace dtk::planner
