// What a job that only infers takes, as a function of how many it infers: LoadedConfig::inferred.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/plan/plan.h"

namespace dtk {

/// The bytes of a phase's peak are at_0 + each·count for counts from `first` to `last`.
struct LinearPiece {
  int64_t first = 1, last = 1, at_0 = 0, each = 0;
  int64_t bytes(int64_t count) const { return at_0 + each * count; }
  friend bool operator==(const LinearPiece&, const LinearPiece&) = default;
};
/// The pieces of `bytes_of` from 1 to `most`, by bisection: two counts are the ends of one where their middle
/// and their neighbours between them lie on the line through them. A count alone off a line that no bisection
/// meets would not be seen.
std::vector<LinearPiece> linear_pieces(int64_t most, const std::function<int64_t(int64_t)>& bytes_of);

struct PhasePieces {
  std::string phase;
  std::vector<LinearPiece> pieces;
};
/// Which phase is highest, and what made its peak.
struct LeadingPhase {
  std::string phase, by;  // "aten::mm in aggregator.global_blocks.4"
  int64_t first = 1, last = 1;
};
struct CountTable {
  std::vector<Plan> plans;            // of the counts asked for
  std::vector<PhasePieces> phases;    // in their order
  std::vector<LeadingPhase> leading;  // by count, up to the largest
  int64_t planned = 0;                // counts
  double seconds = 0;
};
/// `counts`: ascending, each above 0.
CountTable plan_counts(const LoadedConfig& loaded, c10::Device device, const std::vector<int64_t>& counts,
                       const planner::SimulationOptions& options = {});

struct LargestCount {
  std::optional<Plan> largest, next;  // as LargestPlannedBatch
  int64_t planned = 0;
};
/// The largest count whose plan stays within `bytes` of a device, as configured or with what
/// tighter_choices() says, where more fit then.
LargestCount largest_planned_count(const LoadedConfig& loaded, c10::Device device, int64_t bytes,
                                   const planner::SimulationOptions& options = {});

}  // namespace dtk
