#include "support/training_memory.h"

#include <ATen/core/Tensor.h>
#include <dtk/policies/internal/event_log.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include <map>
#include <mutex>
#include <utility>

namespace examples {

using namespace dtk::policies;

struct SavedBytes::LedgerSnapshot {
  struct Entry {
    int64_t bytes = 0;
    int64_t holders = 0;
  };
  std::mutex mutex;
  std::map<const void*, Entry> storages;
  int64_t bytes = 0;
};

namespace {

class Counted final : public SavedTensor {
 public:
  Counted(std::unique_ptr<SavedTensor> kept, std::unique_ptr<SavedBytes::Holding> holding)
      : kept_(std::move(kept)), holding_(std::move(holding)) {}
  at::Tensor unpack() override { return kept_->unpack(); }

 private:
  const std::unique_ptr<SavedTensor> kept_;  // keeps the storage, and so its address, longer than holding_
  const std::unique_ptr<SavedBytes::Holding> holding_;
};

}  // namespace

SavedBytes::Holding::Holding(std::shared_ptr<LedgerSnapshot> books, const at::Tensor& tensor)
    : books_(std::move(books)), storage_(tensor.storage().unsafeGetStorageImpl()) {
  const std::lock_guard lock(books_->mutex);
  LedgerSnapshot::Entry& entry = books_->storages[storage_];
  if (entry.holders++ > 0) return;
  entry.bytes = static_cast<int64_t>(tensor.storage().nbytes());
  books_->bytes += entry.bytes;
}

SavedBytes::Holding::~Holding() {
  const std::lock_guard lock(books_->mutex);
  const auto entry = books_->storages.find(storage_);
  if (--entry->second.holders > 0) return;
  books_->bytes -= entry->second.bytes;
  books_->storages.erase(entry);
}

SavedBytes::SavedBytes() : books_(std::make_shared<LedgerSnapshot>()) {}

std::unique_ptr<SavedTensor> SavedBytes::pack(const at::Tensor& tensor, const SavedTensorStack& below) {
  if (saving_weight() || !tensor.has_storage()) return below.pack(tensor);
  return std::make_unique<Counted>(below.pack(tensor), hold(tensor));
}

std::unique_ptr<SavedBytes::Holding> SavedBytes::hold(const at::Tensor& tensor) {
  return std::make_unique<Holding>(books_, tensor);
}

int64_t SavedBytes::bytes() const {
  const std::lock_guard lock(books_->mutex);
  return books_->bytes;
}

SavedBytesScope::SavedBytesScope()
    : saved_(std::make_shared<SavedBytes>()), ledger_(saved_tensor_ledger()), counted_(saved_) {}

std::vector<PhasePeak> peaks_of(const std::function<void()>& job) {
  std::vector<PhasePeak> peaks;
  for (LoggedPhase& phase : event_log_of(cpu_accounts(), job)) {
    peaks.push_back({std::move(phase.name), std::move(phase.kept)});
  }
  return peaks;
}

}  // namespace examples
