// A training job of a stranger's program, planned on the CPU, run there, and compared byte by byte.
#pragma once
#include <dtk/planner/simulate.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

using Peaks = std::map<std::string, int64_t>;

// By phase, without scratch: storages that live within one call of one operator.
inline Peaks peaks_of(const std::vector<dtk::policies::MemoryEvent>& events,
                      const std::vector<std::string>& phases) {
  using dtk::policies::MemoryEvent;
  std::set<uint64_t> scratch;
  for (const MemoryEvent& event : events) {
    if (event.kind == MemoryEvent::Kind::scratch) scratch.insert(event.serial);
  }
  Peaks peaks;
  std::string phase = "build";
  int64_t live = 0;
  for (const MemoryEvent& event : events) {
    const bool lasts = scratch.count(event.serial) == 0;
    if (event.kind == MemoryEvent::Kind::phase) phase = phases.at(event.serial);
    if (event.kind == MemoryEvent::Kind::birth && lasts) live += event.bytes;
    if (event.kind == MemoryEvent::Kind::death && lasts) live -= event.bytes;
    peaks[phase] = std::max(peaks[phase], live);
  }
  return peaks;
}

inline Peaks watch(const std::function<void()>& job) {
  dtk::policies::cpu_accounts().start_event_log();
  job();
  const auto events = dtk::policies::cpu_accounts().stop_event_log();
  return peaks_of(events, dtk::policies::cpu_accounts().phase_names());
}

// Runs the job twice. Prints for each of its phases:
//   PHASE: planned BYTES, measured BYTES
inline void print_planned_and_measured(const std::function<void()>& job) {
  Peaks planned, measured;
  dtk::planner::simulate(at::kCPU, [&](const auto&) { planned = watch(job); });
  {
    const dtk::policies::CountingAllocatorGuard counting;
    measured = watch(job);
  }
  for (const auto& [phase, bytes] : measured) {
    std::cout << "  " << phase << ": planned " << (planned.count(phase) > 0 ? planned.at(phase) : -1)
              << ", measured " << bytes << "\n";
  }
}
