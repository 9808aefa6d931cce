#include "scale_out/counting_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <mutex>
#include <unordered_map>

namespace {

class Counter final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = bytes > 0 ? c10::alloc_cpu(bytes) : nullptr;
    if (memory != nullptr) born(memory, static_cast<int64_t>(bytes));
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  int64_t alive() {
    const std::lock_guard lock(mutex_);
    return alive_;
  }
  int64_t peak() {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    peak_ = alive_;
  }

 private:
  void born(void* memory, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[memory] = bytes;
    alive_ += bytes;
    if (alive_ > peak_) peak_ = alive_;
  }
  static void release(void* memory);

  std::mutex mutex_;
  std::unordered_map<void*, int64_t> sizes_;
  int64_t alive_ = 0, peak_ = 0;
};

// Outlives all tensors.
Counter& counter() {
  static auto* const one = new Counter;
  return *one;
}

void Counter::release(void* memory) {
  if (memory == nullptr) return;
  Counter& all = counter();
  {
    const std::lock_guard lock(all.mutex_);
    const auto found = all.sizes_.find(memory);
    if (found != all.sizes_.end()) {
      all.alive_ -= found->second;
      all.sizes_.erase(found);
    }
  }
  c10::free_cpu(memory);
}

}  // namespace

void dtk_count_install() {
  c10::SetCPUAllocator(&counter(), /*priority=*/100);
}
int64_t dtk_count_alive() {
  return counter().alive();
}
int64_t dtk_count_peak() {
  return counter().peak();
}
void dtk_count_reset() {
  counter().reset();
}
