#include "memory/host_heap.h"

#include <algorithm>
#include <iterator>

#include "memory/virtual_memory.h"

namespace dtk::policies {
namespace {

constexpr size_t kGrowth = size_t{64} << 20;

size_t rounded_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

void HostHeap::FreeRanges::add(size_t offset, size_t size) {
  bytes_ += size;
  auto next = sizes_.lower_bound(offset);
  if (next != sizes_.end() && offset + size == next->first) {
    size += next->second;
    by_size_.erase({next->second, next->first});
    next = sizes_.erase(next);
  }
  if (next != sizes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      by_size_.erase({before->second, before->first});
      before->second += size;
      by_size_.insert({before->second, before->first});
      return;
    }
  }
  sizes_.emplace_hint(next, offset, size);
  by_size_.insert({size, offset});
}

void HostHeap::FreeRanges::remove(size_t offset) {
  const auto range = sizes_.find(offset);
  bytes_ -= range->second;
  by_size_.erase({range->second, offset});
  sizes_.erase(range);
}

bool HostHeap::FreeRanges::take(size_t size, size_t& offset) {
  const auto fit = by_size_.lower_bound({size, 0});
  if (fit == by_size_.end()) return false;
  const auto [all, begin] = *fit;
  offset = begin;
  remove(begin);
  if (all > size) add(begin + size, all - size);
  return true;
}

std::pair<size_t, size_t> HostHeap::FreeRanges::largest() const {
  if (by_size_.empty()) return {0, 0};
  return {by_size_.rbegin()->second, by_size_.rbegin()->first};
}

HostHeap::HostHeap(size_t address_space)
    : base_(static_cast<char*>(reserve_addresses(address_space))), address_space_(address_space) {
  if (base_ == nullptr) address_space_ = 0;  // ulimit -v, say: whoever asks gets null
}

HostHeap::~HostHeap() {
  if (base_ != nullptr) release_memory(base_, address_space_);
}

void* HostHeap::allocate(size_t bytes) {
  const size_t size = rounded_up(bytes, kAlignment);
  const std::lock_guard lock(mutex_);
  size_t offset = 0;
  if (size < bytes || (!kept_.take(size, offset) && !take_unused(size, offset))) return nullptr;
  live_.emplace(offset, size);
  use_.live += size;
  use_.max_live = std::max(use_.max_live, use_.live);
  // What a fresh block takes more, free ranges that did not fit give up.
  const size_t resident = use_.live + kept_.bytes(), most = max_resident(use_.max_live);
  if (resident > most) let_go(resident - most);
  return base_ + offset;
}

bool HostHeap::free(void* block) {
  const auto address = static_cast<char*>(block);
  if (base_ == nullptr || address < base_ || address >= base_ + address_space_) return false;
  const std::lock_guard lock(mutex_);
  const auto live = live_.find(static_cast<size_t>(address - base_));
  if (live == live_.end()) return false;
  use_.live -= live->second;
  kept_.add(live->first, live->second);
  live_.erase(live);
  return true;
}

HostHeap::Use HostHeap::use() const {
  const std::lock_guard lock(mutex_);
  Use use = use_;
  use.resident = use_.live + kept_.bytes();
  return use;
}

bool HostHeap::take_unused(size_t size, size_t& offset) {
  if (empty_.take(size, offset)) return true;
  if (size > address_space_ - top_) return false;
  const size_t needed = rounded_up(top_ + size, kGrowth);
  const size_t writable = std::min(needed, address_space_);
  if (writable > writable_) {
    if (!make_writable(base_ + writable_, writable - writable_)) return false;
    writable_ = writable;
  }
  offset = top_;
  top_ += size;
  return true;
}

// Gives `excess` bytes that are kept back to the system, whole pages of the largest ranges.
void HostHeap::let_go(size_t excess) {
  while (excess > 0) {
    const auto [offset, size] = kept_.largest();
    const size_t first = rounded_up(offset, page_size());
    const size_t end = (offset + size) / page_size() * page_size();
    if (end <= first) return;  // less than a page each
    const size_t begin = end - std::min(end - first, rounded_up(excess, page_size()));
    give_back_pages(base_ + begin, end - begin);
    kept_.remove(offset);
    if (begin > offset) kept_.add(offset, begin - offset);
    if (offset + size > end) kept_.add(end, offset + size - end);
    empty_.add(begin, end - begin);
    excess -= std::min(excess, end - begin);
  }
}

}  // namespace dtk::policies
