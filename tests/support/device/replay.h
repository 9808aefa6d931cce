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
  std::map<uint64_t, size_t> noted;  // phase: event after which its peak's sums last changed
  std::map<uint64_t, size_t> born;   // block: event of its birth
  size_t now = 0;
  const auto add_to = [](policies::MemorySums& to, policies::OwnerId owner, int64_t bytes) {
    if (owner.index >= to.by_owner.size()) to.by_owner.resize(owner.index + 1, 0);
    to.by_owner[owner.index] += bytes;
    to.bytes += bytes;
  };
  const auto add = [&](policies::OwnerId owner, int64_t bytes) { add_to(sums, owner, bytes); };
  bool at_peak = false;
  const auto look = [&] {
    if (highest.count(phase) == 0 || sums.bytes > highest[phase]) {
      highest[phase] = sums.bytes;
      at_peak = true;
    }
    if (at_peak) {
      peaks[phase] = sums;
      noted[phase] = now;
    }
  };
  look();
  for (const policies::MemoryEvent& event : events) {
    if (event.kind == Kind::death || event.kind == Kind::phase) at_peak = false;
    ++now;
    if (event.kind == Kind::birth) {
      add(event.to, event.bytes);
      born[event.serial] = now;
    }
    if (event.kind == Kind::scratch) {
      add(event.from, -event.bytes), add(event.to, event.bytes);
      // It was scratch all its life, so also at the peak it was part of.
      if (!at_peak && born[event.serial] <= noted[phase]) {
        add_to(peaks[phase], event.from, -event.bytes), add_to(peaks[phase], event.to, event.bytes);
      }
    }
    if (event.kind == Kind::death) add(event.from, -event.bytes);
    if (event.kind == Kind::transfer) add(event.from, -event.bytes), add(event.to, event.bytes);
    if (event.kind == Kind::phase) phase = event.serial;
    look();
  }
  return peaks;
}

}  // namespace dtk::test
