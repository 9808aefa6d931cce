#include <dtk/planner/ledger_snapshot.h>
#include <dtk/policies/internal/counted_blocks.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>

namespace dtk::planner {
namespace {

using policies::MemorySums;

bool equal_sums(const MemorySums& a, const MemorySums& b) {
  if (a.bytes != b.bytes) return false;
  const size_t owners = std::max(a.by_owner.size(), b.by_owner.size());
  const auto of = [](const MemorySums& sums, size_t owner) {
    return owner < sums.by_owner.size() ? sums.by_owner[owner] : 0;
  };
  for (size_t owner = 0; owner < owners; ++owner) {
    if (of(a, owner) != of(b, owner)) return false;
  }
  return true;
}

}  // namespace

LedgerSnapshot::LedgerSnapshot()
    : device_(policies::device_accounts().live()),
      cpu_(policies::cpu_accounts().live()),
      host_(policies::host_accounts().live()) {}

bool LedgerSnapshot::equal(const LedgerSnapshot& other) const {
  return equal_sums(device_, other.device_) && equal_sums(cpu_, other.cpu_) && equal_sums(host_, other.host_);
}

}  // namespace dtk::planner
