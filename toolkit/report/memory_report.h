// memory.json and the memory table at the end of a run.
//
// memory.json: {"version": 1, "device": "cpu", "unit": "bytes",
//   "peak": {"bytes", "phase", "categories", "items"}, "host": {"peak_bytes", "categories", "items"},
//   "reserved": {"bytes", "small_bytes", "segments"}, on a device: what LibTorch's allocator holds of it,
//   "phases": [{"name", "peak_bytes", "categories", "items"}],
//   "policies": [{"name", "active", "reason", "lowers_peak_by", "time", "note"}]}
// and, of a run that did not fit, "refused": {"bytes", "asked_by", "phase", "module_path", "alive_bytes",
// "categories", "items"}: the allocation that was not given, and what was alive then.
// Of a run that went on after it was refused memory, "escalations": [{"step", "set", "planned_bytes",
// "room_bytes"}] as log.h has them, and all peaks are of what was trained after the last one.
// Of a run on several ranks that came to its end, "ranks": {"count", "peak_bytes": {"most", "rank", "least"},
// "sent_in_step": {collective: {"bytes", "messages"}}, by the rank that writes this, "waiting": the part of
// the training time that it waited for others}. All else in the file is of that rank. `categories` maps
// category to bytes at the instant of that peak and sums to it; `items` maps category to {label: bytes}
// (module path, operator). Device and host are counted apart: on the CPU the device is the CPU and the host
// part is empty. `policies` is there when a run came to its end: the bytes by which each lowers the peak of
// forward and backward, negative where it raises it, null where it is off, and null with a note where that
// was not measured; "time" is {"pairs", "slower_by", "lowest", "highest"}, or null: by what part a pass with
// it takes longer than one without it, the median and the range of pairs. Statistics of a GPU allocator know
// no owners: categories are empty there.
#pragma once
#include <c10/core/Device.h>
#include <dtk/planner/device_terms.h>
#include <dtk/policies/collectives.h>
#include <dtk/policies/memory_accounts.h>
#include <dtk/policies/report.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "toolkit/core/numbers.h"
#include "toolkit/report/history.h"

namespace dtk {

/// Forward and backward with a policy and without it, timed in turns: by what part the first takes longer.
struct TimedPairs {
  int64_t pairs = 0;
  double slower_by = 0, lowest = 0, highest = 0;  // median and range; 0.2: a fifth longer
  std::string place = {};                         // "runs/mine, on cpu", where it was read from a run
};
/// "takes 23.1 % longer with it (20.3 to 30.2 %, 5 pairs)".
std::string timed_text(const TimedPairs& time);

/// What a policy did for a run (policy_savings.h measures it).
struct PolicySaving {
  policies::PolicyReport report;
  // Bytes by which the policy lowers the peak of a forward and backward pass beside all others of the run, or
  // that it keeps off the device throughout; nothing where it is off or that could not be measured. May be
  // negative.
  std::optional<int64_t> bytes;
  std::string note;  // why an active policy has no bytes, or what else was measured
  std::optional<TimedPairs> time = {};

  /// The note, and what was timed.
  std::string remarks() const;
};

/// Of several ranks that train together.
struct RankReport {
  std::vector<int64_t> peaks;          // bytes, by rank
  policies::TrafficByCollective sent;  // by the leader, in a step
  double waiting = 0;                  // the leader's, as a part of the training time
};

struct MemoryReport {
  c10::Device device = c10::kCPU;
  std::vector<policies::PhasePeak> phases;  // of the device
  policies::PhasePeak host;                 // highest of the host; empty when training on the CPU
  planner::Reserved reserved = {};          // what the device has in use is that and the context

  std::vector<PolicySaving> policies;                       // empty until measured
  std::optional<policies::RefusedAllocation> refused = {};  // of a run that did not fit

  std::vector<LoggedEscalation> escalations = {};  // of the run, all processes
  std::optional<RankReport> ranks = {};            // of a run that came to its end

  policies::PhasePeak peak() const { return policies::highest(phases); }
};

/// Bytes and messages of all collectives.
policies::Traffic total(const policies::TrafficByCollective& sent);
nlohmann::ordered_json traffic_json(const policies::TrafficByCollective& sent);

/// The categories that hold something at the peak of any of `phases`.
std::vector<policies::Category> used_categories(const std::vector<policies::PhasePeak>& phases);

/// Labels with their bytes, the most first, equal ones in the order of their labels.
std::vector<std::pair<std::string, int64_t>> largest_first(const std::map<std::string, int64_t>& items);

/// A table for a terminal of 80 columns, one entry a policy.
std::string savings_table(const std::vector<PolicySaving>& savings);

nlohmann::ordered_json memory_json(const MemoryReport& report);
/// "time" there; null for none.
nlohmann::ordered_json json_of(const std::optional<TimedPairs>& time);

/// The beginning of memory_table(), which a plan shows too: a heading, then one row per phase and one column
/// per category.
std::string phase_table(const MemoryReport& report, const ByteUnit& unit);

/// A table for a terminal of 80 columns: one row per phase, one column per category; then the module paths
/// that saved the most for backward, at the peak of the phase that holds most of it, and the largest
/// temporaries at the highest peak.
std::string memory_table(const MemoryReport& report);

/// {"bytes", "small_bytes", "segments"}, in memory.json and plans alike.
nlohmann::ordered_json reserved_json(const planner::Reserved& reserved);

}  // namespace dtk
