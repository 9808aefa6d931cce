// What one more token of a sample costs, by module: what is kept for backward, and what is recomputed.
//
// Found by planning one micro-batch of two sizes (ModelFamily::two_sizes()), without and with checkpointing;
// a figure is the difference of both plans by that of their tokens, so that what a module keeps once is in
// none.
#pragma once
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "toolkit/plan/plan.h"
#include "toolkit/train/model_family.h"

namespace dtk {

/// One module, or neighbours that are alike.
struct TokenCost {
  std::string first = {}, last = {};  // paths
  int64_t count = 1;
  double kept = 0;              // bytes that nobody else keeps
  double checkpointed = 0;      // as `kept`, with policies.checkpoint
  double recomputed_flops = 0;  // with policies.checkpoint
  bool has_graph = true;        // a forward pass that backward followed ran it
};

struct PerToken {
  std::array<int64_t, 2> tokens = {};   // of the two plans
  std::string problem = {};             // why policies.checkpoint cannot be on; then nothing of it is known
  std::vector<TokenCost> modules = {};  // in the order in which they ran, behind them those without a graph
  TokenCost others = {};                // kept by several modules, or by none
  std::vector<TokenNote> notes = {};    // of the family
};

/// Throws planner::PlanError.
PerToken per_token(const Plan& plan, c10::Device device, const planner::SimulationOptions& options = {});

/// A table for a terminal of 80 columns.
std::string per_token_text(const PerToken& costs);

/// {"tokens": [few, many], "problem", "modules": [{"first", "last", "count", "kept", "checkpointed",
/// "recomputed_flops", "has_graph"}], "others": {"kept", "checkpointed"},
/// "notes": [{"modules", "text", "bytes" or null}]}
nlohmann::ordered_json per_token_json(const PerToken& costs);

}  // namespace dtk
