#include "device/pinned_memory.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "core/stream_order.h"

namespace dtk::planner {

struct PinnedMemory::Block {
  at::DataPtr memory;
  int64_t bytes;
};

PinnedMemory& PinnedMemory::instance() {
  static auto* const memory = new PinnedMemory;
  return *memory;
}

at::DataPtr PinnedMemory::allocate(size_t bytes) {
  auto* block = new Block{c10::GetCPUAllocator()->allocate(bytes), static_cast<int64_t>(bytes)};
  void* const address = block->memory.get();
  if (address != nullptr) {
    const std::lock_guard lock(mutex_);
    live_[static_cast<const char*>(address)] = block->bytes;
    count(block->bytes, 1);
  }
  return {address, block, &PinnedMemory::release, c10::Device(c10::kCPU)};
}

void PinnedMemory::release(void* context) {
  auto* const block = static_cast<Block*>(context);
  if (block->memory.get() != nullptr) {
    StreamOrder::instance().host_freed(block->memory.get(), block->bytes);
    PinnedMemory& pinned = instance();
    const std::lock_guard lock(pinned.mutex_);
    pinned.live_.erase(static_cast<const char*>(block->memory.get()));
    pinned.count(block->bytes, -1);
  }
  delete block;
}

void PinnedMemory::copy_data(void* to, const void* from, size_t bytes) const {
  default_copy_data(to, from, bytes);
}

void PinnedMemory::count(int64_t asked, int64_t sign) {
  now_.asked += sign * asked;
  now_.rounded += sign * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(asked)));
  most_.asked = std::max(most_.asked, now_.asked);
  most_.rounded = std::max(most_.rounded, now_.rounded);
}

bool PinnedMemory::holds(const void* address) {
  const char* const wanted = static_cast<const char*>(address);
  const std::lock_guard lock(mutex_);
  const auto after = live_.upper_bound(wanted);
  if (after == live_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return wanted < begin + bytes;
}

PinnedMemory::Peaks PinnedMemory::peaks() {
  const std::lock_guard lock(mutex_);
  return most_;
}

void PinnedMemory::reset_peaks() {
  const std::lock_guard lock(mutex_);
  most_ = now_;
}

}  // namespace dtk::planner
