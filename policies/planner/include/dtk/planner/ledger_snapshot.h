// All books of the memory ledger at one instant: how a simulation knows that what it ran would only repeat.
#pragma once
#include <dtk/policies/memory_accounts.h>

namespace dtk::planner {

/// Live bytes by owner now: of the device, of CPU memory, and of what a job on the CPU keeps apart.
class LedgerSnapshot {
 public:
  LedgerSnapshot();
  /// Owners that came later and hold nothing make no difference.
  bool equal(const LedgerSnapshot& other) const;

 private:
  policies::MemorySums device_, cpu_, host_;
};

}  // namespace dtk::planner
