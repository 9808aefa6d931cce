// memory.json and the memory table at the end of a run.
//
// memory.json: {"version": 1, "device": "cpu", "unit": "bytes",
//   "peak": {"bytes", "phase", "categories", "items"}, "host": {"peak_bytes", "categories", "items"},
//   "phases": [{"name", "peak_bytes", "categories", "items"}]}
// `categories` maps category to bytes at the instant of that peak and sums to it; `items` maps category to
// {label: bytes} (module path, operator). Device and host are counted apart: on the CPU the device is the
// CPU and the host part is empty. Statistics of a GPU allocator know no owners: categories are empty there.
#pragma once
#include <c10/core/Device.h>
#include <dtk/policies/memory_accounts.h>

#include <string>
#include <vector>

namespace dtk {

struct MemoryReport {
  std::string device;                       // "cpu", "cuda:0"
  std::vector<policies::PhasePeak> phases;  // of the device
  policies::PhasePeak host;                 // highest of the host; empty when training on the CPU

  policies::PhasePeak peak() const { return policies::highest(phases); }
};

std::string memory_json(const MemoryReport& report);

/// A table a person can read: one row per phase, one column per category (MiB), then the largest saved
/// module paths and temporaries at the peak.
std::string memory_table(const MemoryReport& report);

/// "12.3 MiB", "1.45 GiB".
std::string readable_bytes(int64_t bytes);

}  // namespace dtk
