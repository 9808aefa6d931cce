#include "toolkit/report/placement.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/report/memory_report.h"

namespace dtk {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string budget_text(const CheckpointPlacement& placement) {
  return "memory.budget = " + std::to_string(placement.budget_bytes);
}

std::string ends_of(const std::vector<std::string>& paths) {
  return paths.size() == 1 ? paths.front()
                           : fmt::format("the first {}, the last {}", paths.front(), paths.back());
}

// ", of which 2 keep fc2_out and 1 keeps attn_out and fc2_out"
std::string keeps_text(const ResultsByModule& keeps) {
  std::map<std::string, int64_t> counts;
  for (const auto& [path, names] : keeps) ++counts[listed(names, " and ")];
  std::vector<std::string> parts;
  for (const auto& [names, count] : counts)
    parts.push_back(fmt::format("{} {} {}", count, count == 1 ? "keeps" : "keep", names));
  return parts.empty() ? "" : ", of which " + listed(parts, " and ");
}

std::string cost_text(const CheckpointPlacement& placement) {
  const std::string cost = flops_text(placement.flops);
  if (!placement.max_flops || *placement.max_flops == placement.flops) return cost + " a step";
  return cost + " a step instead of " + flops_text(*placement.max_flops);
}

}  // namespace

void recompute(policies::CheckpointOptions& checkpoint, const std::vector<std::string>& recomputed,
               const ResultsByModule& keeps) {
  checkpoint.targets = recomputed;
  checkpoint.keep = policies::KeepWord::block;
  if (keeps.empty()) return;
  const std::vector<std::string>& first = keeps.begin()->second;
  const auto as_first = [&](const auto& one) { return one.second == first; };
  if (keeps.size() == recomputed.size() && std::all_of(keeps.begin(), keeps.end(), as_first)) {
    checkpoint.keep = first;
    return;
  }
  std::vector<std::string> entries;
  for (const std::string& path : recomputed) {
    const auto names = keeps.find(path);
    if (names == keeps.end()) continue;
    for (const std::string& name : names->second) entries.push_back(path + ": " + name);
  }
  checkpoint.keep = entries;
}

void adopt_placement(LoadedConfig& loaded, const CheckpointPlacement& placement) {
  policies::CheckpointOptions& checkpoint = loaded.config.policies.checkpoint;
  const std::string table = "policies.checkpoint.";
  const Origin chosen = {Origin::Source::chosen, "by keep = auto under " + budget_text(placement)};
  loaded.origins[table + "keep"] = chosen;
  if (!placement.recomputed.empty()) {
    recompute(checkpoint, placement.recomputed, placement.keeps);
    loaded.origins[table + "targets"] = chosen;
    return;
  }
  checkpoint.keep = policies::KeepWord::all;
  // Asked for, a policy that keeps everything would be refused.
  if (checkpoint.enabled != policies::Enabled::on) return;
  checkpoint.enabled = policies::Enabled::by_default;
  loaded.origins[table + "enabled"] = chosen;
}

std::string placement_text(const CheckpointPlacement& placement) {
  const std::string targets = count_text(placement.targets, "module");
  const std::string peak = fmt::format("its plan takes {}{}{}; {} made", exact_bytes(placement.planned_bytes),
                                       placement.fits() ? " of " : ", more than ", budget_text(placement),
                                       count_text(placement.plans, "plan"));
  if (placement.recomputed.empty())
    return fmt::format("keep = \"auto\": all of {} are kept; {}", targets, peak);
  const size_t count = placement.recomputed.size();
  return fmt::format("keep = \"auto\": {} of {} {} recomputed in backward, {}{}; {}; {}", count, targets,
                     count == 1 ? "is" : "are", ends_of(placement.recomputed), keeps_text(placement.keeps),
                     cost_text(placement), peak);
}

nlohmann::ordered_json placement_json(const CheckpointPlacement& placement) {
  const OrderedJson json = {
      {"recomputed", placement.recomputed},
      {"keeps", OrderedJson(placement.keeps)},
      {"targets", placement.targets},
      {"flops", placement.flops},
      {"most_flops", placement.max_flops ? OrderedJson(*placement.max_flops) : OrderedJson()},
      {"planned_bytes", placement.planned_bytes},
      {"budget_bytes", placement.budget_bytes},
      {"plans", placement.plans}};
  return json;
}

CheckpointPlacement read_placement(const nlohmann::json& json) {
  CheckpointPlacement placement;
  placement.recomputed = json.at("recomputed").get<std::vector<std::string>>();
  placement.keeps = json.at("keeps").get<ResultsByModule>();
  placement.targets = json.at("targets");
  placement.flops = json.at("flops");
  if (!json.at("most_flops").is_null()) placement.max_flops = json.at("most_flops").get<int64_t>();
  placement.planned_bytes = json.at("planned_bytes");
  placement.budget_bytes = json.at("budget_bytes");
  placement.plans = json.at("plans");
  return placement;
}

}  // namespace dtk
