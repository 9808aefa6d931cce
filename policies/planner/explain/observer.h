// Follows a planned job: which module holds which storage for backward, and where the sums rise to a peak.
#pragma once
#include <dtk/planner/explain.h>
#include <dtk/policies/internal/job_observer.h>
#include <dtk/policies/memory_accounts.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "explain/snapshot.h"

namespace dtk::planner {

class Observer final : public policies::JobObserver {
 public:
  /// Storages of other tiers are passed over.
  Observer(const policies::MemoryAccounts& accounts, policies::MemoryTier tier)
      : accounts_(accounts), tier_(tier) {}

  void enter(std::string_view path, const policies::Tensors& inputs) override;
  void leave(const policies::Tensors* outputs) override;
  void kept(uint64_t id, const at::Tensor& tensor) override;
  void asked_for(uint64_t id) override;
  void let_go(uint64_t id) override;
  void born(const policies::MemoryBlock& block) override;
  void parameter(const policies::MemoryBlock& block, std::string_view name) override;

  /// Names of parameters, by MemoryBlock::serial.
  std::map<uint64_t, std::string> names() const;
  /// Fills all but the plan and the largest parameter.
  void report(Observed& observed);

 private:
  struct InBackward {
    int64_t bytes = 0;  // now
    HeldInBackward most = {};
  };
  struct Live {
    int64_t bytes = 0;
    InBackward* again = nullptr;  // where it is counted; null: kept by a forward pass
    std::map<uint64_t, Snapshot::Holder> holders;
  };
  struct Peak {
    int64_t bytes = -1;
    PeakPlace place;
  };
  const policies::MemoryBlock* block_of(const at::Tensor& tensor) const;
  void begin_forward();
  void take_snapshot();

  const policies::MemoryAccounts& accounts_;
  const policies::MemoryTier tier_;
  std::atomic<bool> offloads_ = false;  // saved tensors have waited in host memory
  mutable std::mutex mutex_;            // guards everything below
  std::vector<Snapshot::Instance> instances_;
  size_t first_ = 0;  // of this forward pass
  bool in_backward_ = false;
  std::map<Snapshot::Storage, Live> live_;
  std::map<uint64_t, Snapshot::Storage> storages_;  // by id
  Snapshot best_;
  std::set<std::string> ran_;  // modules, with or without grad mode
  std::vector<std::string> order_;
  bool saved_any_ = false, backward_ = false;
  InBackward recomputed_, fetched_;
  std::map<std::string, int64_t> recomputed_by_;  // by path
  std::map<uint64_t, std::string> names_;         // of parameters
  std::map<std::string, Peak> peaks_;             // by phase
};

}  // namespace dtk::planner
