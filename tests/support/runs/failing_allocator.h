// An allocator of CPU memory that refuses one allocation, as the ledger refuses what a budget has no room
// for.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <dtk/policies/memory_ledger.h>

#include <thread>

namespace dtk::test {

/// Stands before the counting allocator while alive. Counts what the thread that made it allocates.
class FailingAllocator final : public c10::Allocator {
 public:
  FailingAllocator() : below_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~FailingAllocator() override { c10::SetCPUAllocator(below_, kPriority); }
  FailingAllocator(const FailingAllocator&) = delete;
  FailingAllocator& operator=(const FailingAllocator&) = delete;

  /// The `number`-th allocation from now on, from 1, is refused, unless it is exempt; 0: none.
  void refuse(int64_t number) {
    number_ = number;
    count_ = 0;
  }
  /// Allocations since refuse().
  int64_t count() const { return count_; }

  at::DataPtr allocate(size_t bytes) override {
    const bool counts = bytes > 0 && std::this_thread::get_id() == thread_;
    if (!counts || ++count_ != number_) return below_->allocate(bytes);
    const policies::MemoryBudgetGuard nothing(policies::cpu_accounts(), 0);
    const policies::MemoryBudgetGuard nothing_apart(policies::host_accounts(), 0);
    return below_->allocate(bytes);
  }
  at::DeleterFnPtr raw_deleter() const override { return below_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    below_->copy_data(to, from, bytes);
  }

 private:
  static constexpr uint8_t kPriority = 1;  // that of the counting allocator: the later one wins
  c10::Allocator* const below_;
  const std::thread::id thread_ = std::this_thread::get_id();
  int64_t number_ = 0, count_ = 0;
};

}  // namespace dtk::test
