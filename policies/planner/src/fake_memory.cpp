#include "fake_memory.h"

#include <dtk/policies/counted_blocks.h>

#include <atomic>
#include <limits>

namespace dtk::planner {
namespace {

// Not canonical on x86-64 and not mapped anywhere else: an access faults at once.
constexpr uint64_t kFirstAddress = 0xA000'0000'0000'0000;
constexpr uint64_t kAlignment = 512;

}  // namespace

FakeMemory::FakeMemory() {
  policies::count_storages_freed_by(&FakeMemory::release);
}

FakeMemory& FakeMemory::instance() {
  static auto* memory = new FakeMemory;
  return *memory;
}

at::DataPtr FakeMemory::allocate(size_t bytes) {
  const c10::Device device(c10::kCUDA, 0);
  if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
  static std::atomic<uint64_t> next{kFirstAddress};
  const uint64_t address = next.fetch_add((bytes + kAlignment - 1) / kAlignment * kAlignment);
  auto* block = new policies::MemoryBlock;
  policies::book_birth(policies::device_accounts(), block, static_cast<int64_t>(bytes));
  change(static_cast<int64_t>(bytes));
  return {reinterpret_cast<void*>(address), block, &FakeMemory::release, device};
}

void FakeMemory::release(void* context) {
  auto* block = static_cast<policies::MemoryBlock*>(context);
  instance().change(-block->bytes);
  policies::book_death(policies::device_accounts(), block);
  delete block;
}

void FakeMemory::change(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (auto* stat : {&stats_.requested_bytes, &stats_.allocated_bytes, &stats_.reserved_bytes}) {
    if (bytes > 0) (*stat)[0].increase(static_cast<size_t>(bytes));
    if (bytes < 0) (*stat)[0].decrease(static_cast<size_t>(-bytes));
  }
}

c10::CachingDeviceAllocator::DeviceStats FakeMemory::getDeviceStats(c10::DeviceIndex) {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void FakeMemory::resetPeakStats(c10::DeviceIndex) {
  const std::lock_guard lock(mutex_);
  for (auto* stat : {&stats_.requested_bytes, &stats_.allocated_bytes, &stats_.reserved_bytes})
    (*stat)[0].reset_peak();
}

// A device without limits: what fits is the planner's caller's to say.
std::pair<size_t, size_t> FakeMemory::getMemoryInfo(c10::DeviceIndex) {
  constexpr size_t all = std::numeric_limits<int64_t>::max();
  return {all, all};
}

}  // namespace dtk::planner
