// What autograd keeps and what a job takes without the scratch of kernels: shared by the examples.
#pragma once
#include <dtk/policies/memory_accounts.h>
#include <dtk/policies/saved_tensors.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace examples {

/// Counts the storages that autograd holds, each once, without parameters. Put it right above the memory
/// ledger (saved_tensor_ledger()), below whatever drops tensors, such as a checkpointed segment.
class SavedBytes final : public dtk::policies::SavedTensorLayer {
 public:
  struct LedgerSnapshot;
  /// One tensor that is kept; counted until the object dies.
  class Holding {
   public:
    Holding(std::shared_ptr<LedgerSnapshot> books, const at::Tensor& tensor);
    ~Holding();
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

   private:
    const std::shared_ptr<LedgerSnapshot> books_;
    const void* const storage_;
  };

  SavedBytes();
  std::unique_ptr<dtk::policies::SavedTensor> pack(const at::Tensor& tensor,
                                                   const dtk::policies::SavedTensorStack& below) override;
  /// For a tensor that is kept where no saved-tensor hook sees it.
  std::unique_ptr<Holding> hold(const at::Tensor& tensor);
  /// Bytes of the storages that are held now.
  int64_t bytes() const;

 private:
  const std::shared_ptr<LedgerSnapshot> books_;  // outlives the layer: autograd may hold tensors longer
};

/// While alive, this thread's forward passes are counted: the engine, the memory ledger and SavedBytes above
/// it.
class SavedBytesScope {
 public:
  [[nodiscard]] SavedBytesScope();
  const std::shared_ptr<SavedBytes>& saved() const { return saved_; }

 private:
  const dtk::policies::SavedTensorEngineGuard engine_;
  const std::shared_ptr<SavedBytes> saved_;
  const dtk::policies::SavedTensorScope ledger_, counted_;  // in this order: the ledger is the lowest layer
};

/// Runs `job` with every change of the books of CPU memory recorded. Returns its phases in the order in which
/// they were entered, each with its peak, without scratch: what lives within one call of one operator only.
/// What lived before counts as 0. A CountingAllocatorGuard must be alive.
std::vector<dtk::policies::PhasePeak> peaks_of(const std::function<void()>& job);

}  // namespace examples
