#include "toolkit/plan/per_token.h"

#include <dtk/policies/policy_kind.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/plan/planned_run.h"

namespace dtk {
namespace {

struct Pair {
  planner::Observed few, many;
};

class Costs {
 public:
  /// `passes`: micro-batches of a step, which are all in its FLOPs.
  Costs(std::array<int64_t, 2> tokens, int64_t passes, const Pair& plain, const std::optional<Pair>& again)
      : tokens_(static_cast<double>(tokens[1] - tokens[0])),
        passes_(static_cast<double>(passes)),
        plain_(plain),
        again_(again) {}

  TokenCost of(const std::string& path) const {
    TokenCost cost{.first = path, .last = path};
    cost.has_graph = plain_.many.kept_by.count(path) > 0 || again_flops(path) > 0;
    cost.kept = slope(plain_, [&](const planner::Observed& one) { return kept(one, path); });
    if (!again_) return cost;
    cost.checkpointed = slope(*again_, [&](const planner::Observed& one) { return kept(one, path); });
    cost.recomputed_flops =
        slope(*again_, [&](const planner::Observed& one) { return value_of(one.plan.recomputed, path); }) /
        passes_;
    return cost;
  }

  TokenCost others() const {
    const auto rest = [](const planner::Observed& one) {
      int64_t bytes = one.saved;
      for (const auto& [path, kept] : one.kept_by) bytes -= kept;
      return bytes;
    };
    TokenCost cost;
    cost.kept = slope(plain_, rest);
    if (again_) cost.checkpointed = slope(*again_, rest);
    return cost;
  }

 private:
  static int64_t value_of(const std::map<std::string, int64_t>& values, const std::string& path) {
    const auto found = values.find(path);
    return found == values.end() ? 0 : found->second;
  }
  static int64_t kept(const planner::Observed& one, const std::string& path) {
    return value_of(one.kept_by, path);
  }
  int64_t again_flops(const std::string& path) const {
    return again_ ? value_of(again_->many.plan.recomputed, path) : 0;
  }
  template <typename Figure>
  double slope(const Pair& pair, const Figure& figure) const {
    return static_cast<double>(figure(pair.many) - figure(pair.few)) / tokens_;
  }

  const double tokens_, passes_;
  const Pair& plain_;
  const std::optional<Pair>& again_;
};

Pair observe_both(const Plan& plan, const std::array<SizedJob, 2>& jobs, c10::Device device,
                  const planner::SimulationOptions& options, bool recomputing) {
  const auto observed = [&](const SizedJob& job) {
    LoadedConfig loaded = plan.loaded;
    loaded.config = job.config;
    policies::recomputing_kind().switch_to(loaded.config.policies, device, recomputing);
    loaded.config.memory.split = 1;  // the tokens of both jobs are those of a whole micro-batch
    // Else a tensor may wait in host memory in one of the two, and not in the other.
    loaded.config.policies.checkpoint.offload_min_bytes = {0};
    return planner::observe(device, [&] { return plan_run(loaded, device, options).memory; });
  };
  return {observed(jobs[0]), observed(jobs[1])};
}

// Modules that hold nothing but others are told by those.
std::vector<std::string> modules_of(const planner::Observed& observed) {
  std::vector<std::string> paths;
  std::set<std::string> known;
  for (const planner::SegmentGain& one : observed.segments) {
    const bool within = std::any_of(paths.begin(), paths.end(), [&](const std::string& other) {
      return one.path.starts_with(other + ".");
    });
    if (!within && known.insert(one.path).second) paths.push_back(one.path);
  }
  for (const auto& [path, bytes] : observed.kept_by) {
    if (known.insert(path).second) paths.push_back(path);
  }
  return paths;
}

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('.') + 1);
}

// Of one list of modules.
bool are_alike(const TokenCost& one, const TokenCost& other) {
  const auto figures = [](const TokenCost& cost) {
    return std::tuple(cost.kept, cost.checkpointed, cost.recomputed_flops, cost.has_graph);
  };
  const bool is_list = std::isdigit(static_cast<unsigned char>(one.first.back())) != 0;
  return is_list && folder_of(one.first) == folder_of(other.first) && figures(one) == figures(other);
}

// Parts of a byte, of what a sample keeps once, to a tenth.
std::string bytes_cell(double bytes) {
  const auto tenths = static_cast<int64_t>(std::llround(bytes * 10));
  const std::string part = tenths % 10 == 0 ? "" : "." + std::to_string(std::abs(tenths % 10));
  return (tenths < 0 && tenths > -10 ? "-" : "") + with_separators(tenths / 10) + part;
}

std::string flops_cell(double flops) {
  for (const auto& [unit, name] :
       {std::pair(1e12, "TFLOP"), std::pair(1e9, "GFLOP"), std::pair(1e6, "MFLOP")}) {
    if (flops >= unit / 10) return fmt::format("{:.3g} {}", flops / unit, name);
  }
  return flops > 0 ? fmt::format("{:.0f} FLOP", flops) : "-";
}

// "model.layers.0 ... 31, each".
std::string name_of(const TokenCost& cost) {
  if (cost.count == 1) return cost.first;
  return fmt::format("{} ... {}, each", cost.first, cost.last.substr(cost.last.rfind('.') + 1));
}

// A name that is too long has a line of its own.
std::string row(const std::string& name, const std::string& kept, const std::string& checkpointed,
                const std::string& recomputed) {
  constexpr size_t names = 38, column = 13;
  std::string start = "  " + name;
  std::string text = start.size() < names ? "" : std::exchange(start, "") + "\n";
  start.resize(names, ' ');
  return fmt::format("{}{}{}{}{}\n", text, start, pad(kept, column), pad(checkpointed, column + 1),
                     pad(recomputed, column + 1));
}

}  // namespace

PerToken per_token(const Plan& plan, c10::Device device, const planner::SimulationOptions& options) {
  const ModelFamily& family = family_of(plan.loaded.config);
  const std::array<SizedJob, 2> jobs = family.two_sizes(plan.loaded.config);
  PerToken result{.tokens = {jobs[0].tokens, jobs[1].tokens}};
  const Pair plain = observe_both(plan, jobs, device, options, false);
  std::optional<Pair> again;
  try {
    again = observe_both(plan, jobs, device, options, true);
  } catch (const ConfigError& error) {
    result.problem = error.what();
  }
  const Costs costs(result.tokens, plan.loaded.config.train.accumulate, plain, again);
  for (const std::string& path : modules_of(plain.many)) {
    TokenCost cost = costs.of(path);
    if (!result.modules.empty() && are_alike(cost, result.modules.back())) {
      result.modules.back().last = path;
      ++result.modules.back().count;
    } else {
      result.modules.push_back(std::move(cost));
    }
  }
  result.others = costs.others();
  result.notes = family.token_notes(plan.loaded.config, device);
  return result;
}

std::string per_token_text(const PerToken& costs) {
  constexpr size_t indent = 4;
  std::string text = fmt::format("per token, planned at {} and {} tokens, in bytes\n",
                                 with_separators(costs.tokens[0]), with_separators(costs.tokens[1]));
  const bool known = costs.problem.empty();
  if (!known) text += entry("", 2, "policies.checkpoint cannot be on: " + costs.problem);
  const auto again = [&](const TokenCost& one) {
    return known && one.has_graph ? bytes_cell(one.checkpointed) : "-";
  };
  text += row("module", "kept", "checkpointed", "recomputed");
  for (const TokenCost& one : costs.modules) {
    text += row(name_of(one), bytes_cell(one.kept), again(one), flops_cell(one.recomputed_flops));
    if (!one.has_graph) text += entry("", indent, "no graph: it keeps nothing, and is never a checkpoint");
    for (const TokenNote& note : costs.notes) {
      if (!one.first.starts_with(note.modules)) continue;
      const bool differs = note.bytes && one.kept != static_cast<double>(*note.bytes);
      text += entry("", indent, note.text + (differs ? "; the plan differs from it" : ""));
    }
  }
  if (costs.others.kept != 0 || costs.others.checkpointed != 0)
    text += row("several of them, or none", bytes_cell(costs.others.kept), again(costs.others), "-");
  return text;
}

nlohmann::ordered_json per_token_json(const PerToken& costs) {
  nlohmann::ordered_json json = {{"tokens", costs.tokens}, {"problem", costs.problem}};
  json["modules"] = nlohmann::ordered_json::array();
  for (const TokenCost& one : costs.modules) {
    json["modules"].push_back({{"first", one.first},
                               {"last", one.last},
                               {"count", one.count},
                               {"kept", one.kept},
                               {"checkpointed", one.checkpointed},
                               {"recomputed_flops", one.recomputed_flops},
                               {"has_graph", one.has_graph}});
  }
  json["others"] = {{"kept", costs.others.kept}, {"checkpointed", costs.others.checkpointed}};
  json["notes"] = nlohmann::ordered_json::array();
  for (const TokenNote& note : costs.notes) {
    nlohmann::ordered_json one = {{"modules", note.modules}, {"text", note.text}, {"bytes", nullptr}};
    if (note.bytes) one["bytes"] = *note.bytes;
    json["notes"].push_back(std::move(one));
  }
  return json;
}

}  // namespace dtk
