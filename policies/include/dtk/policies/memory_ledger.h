// The memory ledger on LibTorch: a counting CPU allocator, the operator that allocates, and the scopes by
// which a program says whose memory it is.
//
// Nothing is counted before a CountingAllocatorGuard exists. The scopes below are cheap and harmless without
// one. In your own program:
//
//   CountingAllocatorGuard counting;                  // before the model is built
//   SavedTensorEngineGuard engine;                    // for bytes saved for backward: saved_tensors.h
//   { OwnerScope owner(Category::parameters, "net"); build(); }
//   { PhaseScope phase("forward"); SavedTensorScope saved(saved_tensor_ledger()); loss = forward(); }
//   { PhaseScope phase("backward"); loss.backward(); }
//   for (const PhasePeak& phase : cpu_accounts().phases()) print(phase.name, phase.peak.bytes,
//   phase.peak.items());
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/memory_accounts.h>
#include <dtk/policies/phase_meter.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace dtk::policies {

/// Installs the counting CPU allocator and the operator tracker for the lifetime of the object and puts
/// back what was there before. Blocks may outlive it: they stay counted. Call before the tensors of
/// interest exist, from one thread, while no other thread runs operators. Guards may nest.
class CountingAllocatorGuard : NotCopied {
 public:
  [[nodiscard]] CountingAllocatorGuard();
  ~CountingAllocatorGuard();

 private:
  void* previous_;  // at::Allocator*
  PhaseMeterRegistration registration_;
  PhaseMeterRegistration host_registration_;
};

/// The process's accounts of CPU memory, without what a HostTierScope counts apart. Never destroyed.
MemoryAccounts& cpu_accounts();

/// The accounts of what was allocated within a HostTierScope. Never destroyed. Pinned memory is in neither: a
/// device's own allocator makes it.
MemoryAccounts& host_accounts();

/// While alive, the CPU memory this thread allocates is counted in host_accounts() instead of cpu_accounts(),
/// and stays there until it is freed. For what a policy keeps off the training device: with the CPU as that
/// device the saving can be counted all the same. Not for when a real device trains: all CPU memory is the
/// host's then, and counted in cpu_accounts().
class HostTierScope {
 public:
  [[nodiscard]] HostTierScope();

 private:
  const ScopedValue<MemoryTier> tier_;
};

/// What the counting allocator throws where a MemoryBudgetGuard or the machine has no room. The message says
/// the same as `refused`.
class AllocationRefused : public c10::OutOfMemoryError {
 public:
  AllocationRefused(c10::SourceLocation where, const std::string& message, RefusedAllocation what);
  const RefusedAllocation refused;
};

/// While alive, an allocation that would bring the live bytes of `accounts` above `bytes` throws
/// AllocationRefused, a c10::OutOfMemoryError, as on a device of that size. The allocators of real devices do
/// not ask.
class MemoryBudgetGuard : NotCopied {
 public:
  [[nodiscard]] MemoryBudgetGuard(MemoryAccounts& accounts, int64_t bytes);
  ~MemoryBudgetGuard();

 private:
  MemoryAccounts& accounts_;
  const int64_t previous_;
};

/// While alive, what this thread allocates is counted but never refused: for the few bytes that a destructor
/// needs to put things back.
class BudgetExemption {
 public:
  [[nodiscard]] BudgetExemption();

 private:
  const ScopedValue<bool> exempt_;
};

/// While alive, what this thread allocates belongs to (category, label) instead of to the operator.
class OwnerScope {
 public:
  [[nodiscard]] OwnerScope(Category category, std::string_view label);

 private:
  const ScopedValue<std::optional<OwnerId>> owner_;
};

/// Gives the storage of `tensor` to an owner. No effect on storages that the counting allocator did not
/// make (other devices, mapped files, memory from before install).
void claim(const at::Tensor& tensor, Category category, std::string_view label);

/// The counted block under a tensor's storage, or null.
MemoryBlock* counted_block(const at::Tensor& tensor);

/// Gives each parameter's gradient to (gradients, label) at the instant autograd writes it. No effect on a
/// parameter that needs no gradient.
void claim_gradient_when_written(const at::Tensor& parameter, std::string_view label);

}  // namespace dtk::policies
