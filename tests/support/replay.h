// Replays the memory ledger's event log by a plain reading of its rule: a phase keeps the sums of the last
// moment before its highest total falls.
#pragma once
#include <dtk/policies/memory_accounts.h>

#include <map>

namespace dtk::test {

/// Peak sums by phase index; starts from `sums` in phase number `phase`.
inline std::map<uint64_t, policies::MemorySums> replay(policies::MemorySums sums, uint64_t phase,
                                                       const std::vector<policies::MemoryEvent>& events) {
  using Kind = policies::MemoryEvent::Kind;
  std::map<uint64_t, policies::MemorySums> peaks;
  std::map<uint64_t, int64_t> highest;
  const auto add = [&](policies::OwnerId owner, int64_t bytes) {
    if (owner.index >= sums.by_owner.size()) sums.by_owner.resize(owner.index + 1, 0);
    sums.by_owner[owner.index] += bytes;
    sums.bytes += bytes;
  };
  bool at_peak = false;
  const auto look = [&] {
    if (highest.count(phase) == 0 || sums.bytes > highest[phase]) {
      highest[phase] = sums.bytes;
      at_peak = true;
    }
    if (at_peak) peaks[phase] = sums;
  };
  look();
  for (const policies::MemoryEvent& event : events) {
    if (event.kind == Kind::death || event.kind == Kind::phase) at_peak = false;
    if (event.kind == Kind::birth) add(event.to, event.bytes);
    if (event.kind == Kind::death) add(event.from, -event.bytes);
    if (event.kind == Kind::transfer) add(event.from, -event.bytes), add(event.to, event.bytes);
    if (event.kind == Kind::phase) phase = event.serial;
    look();
  }
  return peaks;
}

}  // namespace dtk::test
