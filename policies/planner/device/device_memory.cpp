#include "device/device_memory.h"

#include <c10/core/CPUAllocator.h>
#include <dtk/planner/plan_error.h>
#include <dtk/policies/internal/counted_blocks.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

#include "device/device_runtime.h"

namespace dtk::planner {
namespace {

// Not canonical on x86-64 and not mapped anywhere else: an access faults at once. Never given twice.
constexpr uint64_t kFirstAddress = 0xA000'0000'0000'0000;

int64_t rounded(int64_t bytes) {
  return (bytes + SimulatedMemory::kRounding - 1) / SimulatedMemory::kRounding * SimulatedMemory::kRounding;
}

}  // namespace

SimulatedMemory::SimulatedMemory() : next_(kFirstAddress) {
  policies::count_storages_freed_by(&SimulatedMemory::release);
}

SimulatedMemory& SimulatedMemory::instance() {
  static auto* memory = new SimulatedMemory;
  return *memory;
}

at::DataPtr SimulatedMemory::allocate(size_t bytes) {
  const c10::Device device(c10::kCUDA, 0);
  if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
  const auto asked = static_cast<int64_t>(bytes);
  if (const auto& accounts = policies::device_accounts(); !accounts.has_room(asked)) {
    C10_THROW_ERROR(OutOfMemoryError,
                    c10::str("CUDA out of memory. Tried to allocate ", asked, " bytes with ",
                             accounts.live_bytes(), " of ", accounts.limit(), " alive"));
  }
  auto* block = new Block;
  block->use.bytes = asked;
  block->use.stream = current_stream();
  block->use.written = StreamOrder::instance().born(current_stream());
  policies::book_birth(policies::device_accounts(), block, asked);
  {
    const std::lock_guard lock(mutex_);
    block->address = next_;
    next_ += static_cast<uint64_t>(rounded(asked));
    live_.emplace_hint(live_.end(), block->address, block);
    segments_.born(block->address, asked, block->use.stream);
    count(asked, true);
  }
  return {reinterpret_cast<void*>(block->address), static_cast<policies::MemoryBlock*>(block),
          &SimulatedMemory::release, device};
}

void SimulatedMemory::release(void* context) {
  auto* block = static_cast<Block*>(static_cast<policies::MemoryBlock*>(context));
  {
    SimulatedMemory& memory = instance();
    const std::lock_guard lock(memory.mutex_);
    memory.live_.erase(block->address);
    memory.segments_.freed(block->address);
    memory.count(block->use.bytes, false);
  }
  StreamOrder::instance().freed(block->use);
  policies::book_death(policies::device_accounts(), block);
  delete block;
}

void SimulatedMemory::count(int64_t bytes, bool born) {
  const auto change = [born](c10::CachingDeviceAllocator::StatArray& stat, int64_t by) {
    if (born) stat[0].increase(static_cast<size_t>(by));
    if (!born) stat[0].decrease(static_cast<size_t>(by));
  };
  change(stats_.requested_bytes, bytes);
  change(stats_.allocated_bytes, rounded(bytes));
  most_.asked = std::max(most_.asked, stats_.requested_bytes[0].current);
  most_.rounded = std::max(most_.rounded, stats_.allocated_bytes[0].current);
}

MemoryPeaks SimulatedMemory::peaks() {
  const std::lock_guard lock(mutex_);
  return most_;
}

void SimulatedMemory::reset_peaks() {
  const std::lock_guard lock(mutex_);
  most_ = {stats_.requested_bytes[0].current, stats_.allocated_bytes[0].current};
}

Reserved SimulatedMemory::reserved() {
  const std::lock_guard lock(mutex_);
  return segments_.reserved();
}

void SimulatedMemory::begin_segments() {
  const std::lock_guard lock(mutex_);
  segments_ = {};
}

void SimulatedMemory::take_for_good(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  segments_.born(next_, bytes, current_stream());
  next_ += static_cast<uint64_t>(rounded(bytes));
}

MemoryUse& SimulatedMemory::use_of(const c10::TensorImpl& tensor) {
  const at::DataPtr& pointer = tensor.unsafe_storage().data_ptr();
  if (pointer.get_deleter() == &SimulatedMemory::release)
    return static_cast<Block*>(static_cast<policies::MemoryBlock*>(pointer.get_context()))->use;
  const auto wanted = reinterpret_cast<uint64_t>(pointer.get());
  const std::lock_guard lock(mutex_);
  const auto after = live_.upper_bound(wanted);
  Block* const block = after == live_.begin() ? nullptr : std::prev(after)->second;
  if (block == nullptr || wanted >= block->address + static_cast<uint64_t>(block->use.bytes)) {
    throw PlanError(
        operator_here("a tensor made of a pointer") +
        ": no storage of the device is alive at its address; what it was made of must outlive it");
  }
  return block->use;
}

c10::CachingDeviceAllocator::DeviceStats SimulatedMemory::getDeviceStats(c10::DeviceIndex) {
  const std::lock_guard lock(mutex_);
  c10::CachingDeviceAllocator::DeviceStats stats = stats_;
  const Reserved& reserved = segments_.reserved();
  constexpr size_t kAll = 0, kSmall = 1;  // c10::CachingAllocator::StatType
  stats.reserved_bytes[kAll].increase(static_cast<size_t>(reserved.bytes));
  stats.reserved_bytes[kSmall].increase(static_cast<size_t>(reserved.small_bytes));
  stats.segment[kAll].increase(static_cast<size_t>(reserved.segments));
  return stats;
}

void SimulatedMemory::resetPeakStats(c10::DeviceIndex) {
  const std::lock_guard lock(mutex_);
  for (auto* stat : {&stats_.requested_bytes, &stats_.allocated_bytes}) (*stat)[0].reset_peak();
}

// A device without limits: what fits is the planner's caller's to say.
std::pair<size_t, size_t> SimulatedMemory::getMemoryInfo(c10::DeviceIndex) {
  constexpr size_t all = std::numeric_limits<int64_t>::max() / 2;  // what is reserved may be added
  return {all, all};
}

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

MemoryPeaks PinnedMemory::peaks() {
  const std::lock_guard lock(mutex_);
  return most_;
}

void PinnedMemory::reset_peaks() {
  const std::lock_guard lock(mutex_);
  most_ = now_;
}

}  // namespace dtk::planner
