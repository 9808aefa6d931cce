#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <dtk/policies/internal/counted_blocks.h>
#include <dtk/policies/internal/job_observer.h>
#include <dtk/policies/internal/when_accumulated.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/simulation.h>
#include <torch/csrc/autograd/function.h>

#include <optional>
#include <utility>

#include "ledger/owners.h"
#include "memory/host_heap.h"
#include "memory/virtual_memory.h"

namespace dtk::policies {
namespace {

thread_local MemoryTier scope_tier = MemoryTier::cpu;
thread_local bool budget_exempt = false;

c10::DeleterFnPtr device_deleter = nullptr;

MemoryBlock* header_of(void* pointer) {
  return static_cast<MemoryBlock*>(pointer) - 1;
}

void free_counted(void* pointer) {
  if (pointer == nullptr) return;
  MemoryBlock* block = header_of(pointer);
  const auto size = static_cast<size_t>(block->bytes) + sizeof(MemoryBlock);
  book_death(accounts_of(block->tier), block);
  if (block->reserved) return release_memory(block, size);
  free_host_block(block);
}

std::string path_of_allocation() {
  if (!module_path().empty()) return module_path();
  if (!last_unpacked() || torch::autograd::get_current_node() == nullptr) return "";
  return owner_of(*last_unpacked()).label;
}

std::string refusal_text(const std::string& what, const RefusedAllocation& refused) {
  std::string held;
  for (const auto& [category, items] : refused.live.items()) {
    held += std::string(held.empty() ? " (" : ", ") + name_of(category) + " " +
            std::to_string(refused.live.of(category));
  }
  return c10::str(what, ": ", refused.bytes, " bytes asked for by ", refused.asked_by,
                  in_phase_text(refused.phase),
                  refused.module_path.empty() ? "" : " at " + refused.module_path, " with ",
                  refused.live.bytes, " bytes alive", held, held.empty() ? "" : ")");
}

[[noreturn]] void throw_out_of_memory(const std::string& what, size_t bytes,
                                      std::optional<int64_t> limit = std::nullopt) {
  const MemoryAccounts& accounts = accounts_of(scope_tier);
  RefusedAllocation refused{static_cast<int64_t>(bytes),
                            owner_of(birthplace().owner).label,
                            accounts.phase(),
                            path_of_allocation(),
                            accounts.live(),
                            limit,
                            scope_tier};
  const std::string text = refusal_text(what, refused);
  throw AllocationRefused({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text, std::move(refused));
}

// With room for the block's header.
void* memory_for(size_t bytes, bool reserved) {
  const size_t size = bytes + sizeof(MemoryBlock);
  if (reserved) {
    if (void* const memory = reserve_memory(size)) return memory;
    throw_out_of_memory("out of address space, which ulimit -v may limit", bytes);
  }
  try {
    return simulating() ? c10::alloc_cpu(size) : allocate_host_block(size);
  } catch (const c10::Error&) {
    throw_out_of_memory("out of CPU memory", bytes);
  }
}

// DataPtrs carry the user's pointer as their context: oneDNN takes memory by raw_allocate, which needs that.
class CountingAllocator final : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    const at::Device cpu(at::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &free_counted, cpu};
    MemoryAccounts& accounts = accounts_of(scope_tier);
    if (!budget_exempt && !accounts.has_room(static_cast<int64_t>(bytes))) {
      throw_out_of_memory(c10::str("memory budget of ", accounts.limit(), " bytes exceeded"), bytes,
                          accounts.limit());
    }
    // What a plan's large tensors hold is hardly ever read.
    const bool reserved = bytes + sizeof(MemoryBlock) >= kMinReserved && simulating();
    auto* block = static_cast<MemoryBlock*>(memory_for(bytes, reserved));
    book_birth(accounts, block, static_cast<int64_t>(bytes));
    block->reserved = reserved;
    return {block + 1, block + 1, &free_counted, cpu};
  }
  at::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

constexpr uint8_t kPriority = 1;  // above the stock allocator's 0; a later caller of equal priority wins

int tracker_guards = 0;
at::CallbackHandle tracker = 0;

}  // namespace

AllocationRefused::AllocationRefused(c10::SourceLocation where, const std::string& message,
                                     RefusedAllocation what)
    : c10::OutOfMemoryError(where, message), refused(std::move(what)) {}

MemoryAccounts& cpu_accounts() {
  static auto* cpu = new MemoryAccounts;  // leaked: blocks are freed after static destruction
  return *cpu;
}

MemoryAccounts& host_accounts() {
  static auto* host = new MemoryAccounts(MemoryTier::host);  // leaked for the same reason
  return *host;
}

MemoryAccounts& device_accounts() {
  static auto* device = new MemoryAccounts(MemoryTier::device);  // leaked for the same reason
  return *device;
}

MemoryAccounts& accounts_of(MemoryTier tier) {
  switch (tier) {
    case MemoryTier::host:
      return host_accounts();
    case MemoryTier::device:
      return device_accounts();
    default:
      return cpu_accounts();
  }
}

void count_storages_freed_by(c10::DeleterFnPtr deleter) {
  device_deleter = deleter;
}

void book_birth(MemoryAccounts& accounts, MemoryBlock* block, int64_t bytes) {
  const Birthplace place = birthplace();
  accounts.birth(block, bytes, place.owner, place.operation);
  if (JobObserver* const watch = job_observer()) watch->born(*block);
}

void book_death(MemoryAccounts& accounts, MemoryBlock* block) {
  accounts.death(block, is_running(block->operation));
}

CountingAllocatorGuard::CountingAllocatorGuard()
    : previous_(c10::GetCPUAllocator()), registration_(cpu_accounts()), host_registration_(host_accounts()) {
  static auto* allocator = new CountingAllocator;  // leaked for the same reason
  c10::SetCPUAllocator(allocator, kPriority);
  if (tracker_guards++ == 0) tracker = track_operators();
}

CountingAllocatorGuard::~CountingAllocatorGuard() {
  if (--tracker_guards == 0) at::removeCallback(tracker);
  c10::SetCPUAllocator(static_cast<c10::Allocator*>(previous_), kPriority);
}

MemoryBudgetGuard::MemoryBudgetGuard(MemoryAccounts& accounts, int64_t bytes)
    : accounts_(accounts), previous_(accounts.set_limit(bytes)) {}

MemoryBudgetGuard::~MemoryBudgetGuard() {
  accounts_.set_limit(previous_);
}

BudgetExemption::BudgetExemption() : exempt_(budget_exempt, true) {}

HostTierScope::HostTierScope() : tier_(scope_tier, MemoryTier::host) {}

MemoryBlock* counted_block(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  // Not data_ptr(), which throws for a weight that is divided among ranks and not here.
  const at::DataPtr& data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data.get() == nullptr) return nullptr;
  if (data.get_deleter() == &free_counted) return header_of(data.get());
  if (data.get_deleter() == device_deleter) return static_cast<MemoryBlock*>(data.get_context());
  return nullptr;
}

void claim(const at::Tensor& tensor, Category category, std::string_view label) {
  MemoryBlock* block = counted_block(tensor);
  if (block != nullptr) accounts_of(block->tier).assign(block, owner_id(category, label));
}

void claim_gradient_when_written(const at::Tensor& parameter, std::string_view label) {
  if (!parameter.requires_grad()) return;
  when_accumulated(parameter, [owner = owner_id(Category::gradients, label)](const at::Tensor& of) {
    MemoryBlock* const block = counted_block(of.grad());
    if (block != nullptr) accounts_of(block->tier).assign(block, owner);
  });
}

}  // namespace dtk::policies
