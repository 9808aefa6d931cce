#include <c10/util/Exception.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>

#include <utility>

#include "ledger/owners.h"

namespace dtk::policies {
namespace {

// Not of a weight that is booked as one: it may be let go before (divided among ranks), and saving it changes
// no sum.
MemoryBlock* block_to_hold(const at::Tensor& tensor) {
  MemoryBlock* const block = counted_block(tensor);
  const bool is_weight =
      block != nullptr && saving_weight() && block->holder.category == Category::parameters;
  return is_weight ? nullptr : block;
}

class LedgeredTensor final : public SavedTensor {
 public:
  LedgeredTensor(std::unique_ptr<SavedTensor> kept, const at::Tensor& tensor, OwnerId owner)
      : kept_(std::move(kept)), block_(block_to_hold(tensor)), owner_(owner) {
    if (block_ != nullptr) accounts_of(block_->tier).hold(block_, owner);
  }
  ~LedgeredTensor() override {
    if (block_ != nullptr) accounts_of(block_->tier).release(block_);
  }
  at::Tensor unpack() override {
    note_unpacked(owner_);
    return kept_->unpack();
  }

 private:
  const std::unique_ptr<SavedTensor> kept_;  // keeps the block alive longer than block_ is used
  MemoryBlock* const block_;
  const OwnerId owner_;
};

class SavedTensorLedger final : public SavedTensorLayer {
 public:
  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& below) override {
    if (dynamic_cast<const SavedTensorLedger*>(below.top()) != nullptr) return below.pack(tensor);
    // A layer below could let the block go, and the books would refer to freed memory.
    TORCH_CHECK(below.empty(),
                "memory ledger: it must be the lowest layer of the saved-tensor stack; put its "
                "SavedTensorScope around those of all other layers");
    return std::make_unique<LedgeredTensor>(
        below.pack(tensor), tensor,
        owner_id(saving_weight_cast() ? Category::casts : Category::saved, module_path()));
  }
};

}  // namespace

std::shared_ptr<SavedTensorLayer> saved_tensor_ledger() {
  return std::make_shared<SavedTensorLedger>();
}

}  // namespace dtk::policies
