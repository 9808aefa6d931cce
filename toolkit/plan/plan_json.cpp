#include <dtk/planner/explain.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "toolkit/plan/explanation_json.h"
#include "toolkit/plan/plan_text.h"
#include "toolkit/plan/worlds.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

using OrderedJson = nlohmann::ordered_json;
using planner::Observed;
using policies::Category;

OrderedJson json_of(const Plan& plan, const std::vector<PolicySaving>& policies = {}) {
  MemoryReport memory = plan.memory;
  memory.policies = policies;
  OrderedJson json = memory_json(memory);
  OrderedJson& more = json["plan"];
  if (plan.loaded.inferred) {
    more[family_of(plan.loaded.config).inferred()] = *plan.loaded.inferred;
    more["pass_flops"] = plan.step.without_grad + plan.step.forward;
  } else {
    more["batch"] = plan.loaded.config.data.batch;
    more["ranks"] = plan.loaded.ranks;
    more["rank"] = plan.rank;
    more["divided"] = divided(plan.loaded);
    more["sent_in_step"] = traffic_json(plan.sent);
  }
  more["host_phase"] = plan.memory.host.name;
  more["runner_up"] = nullptr;
  if (const auto second = plan.runner_up())
    more["runner_up"] = {{"phase", second->name}, {"bytes", second->peak.bytes}};
  const policies::PhasePeak peak = plan.memory.peak();
  more["saved_by_operator"] = peak.peak.by_operator(Category::saved);
  more["folded"] = plan.folded;
  if (!plan.data.empty()) more["data"] = plan.data;
  more["step_flops"] = {{"forward", plan.step.forward},
                        {"backward", plan.step.backward},
                        {"recomputed", plan.step.recomputed},
                        {"attention_again", plan.step.attention_recomputed}};
  more["seconds"] = plan.seconds;
  more["beside"] = {{"device", planner::bytes_beside(plan.terms)},
                    {"allocator", planner::allocated_beside(plan.terms)}};
  if (plan.reserved.bytes > 0) more["reserved"] = reserved_json(plan.reserved);
  more["device_terms"] = OrderedJson::array();
  for (const planner::DeviceTerm& term : plan.terms) {
    more["device_terms"].push_back({{"name", term.name},
                                    {"bytes", term.bytes},
                                    {"on_host", term.on_host},
                                    {"in_the_peaks", term.booked},
                                    {"known", term.known},
                                    {"formula", term.formula},
                                    {"source", term.source},
                                    {"measured", measured_text(term)}});
  }
  more["scratch"] = {{"source", plan.scratch.source},
                     {"measured_calls", plan.scratch.measured_calls},
                     {"largest", plan.scratch.largest},
                     {"not_known", plan.scratch.not_known}};
  more["precisions"] = OrderedJson::array();
  for (const PossiblePrecision& one : plan.precisions)
    more["precisions"].push_back(
        {{"cpu", policies::text_of(one.precision)}, {"peak_bytes", one.peak_bytes}, {"phase", one.phase}});
  if (plan.placement) json["placement"] = placement_json(*plan.placement);
  return json;
}

std::vector<PolicySaving> savings_of(const Plan& plan, const std::vector<PolicyEffect>& effects) {
  std::vector<PolicySaving> savings;
  for (const PolicyEffect& effect : effects) {
    PolicySaving saving{{effect.policy, effect.on, effect.on ? "on" : "off"}, std::nullopt, effect.problem};
    if (effect.switched) {
      const int64_t other = effect.switched->memory.peak().peak.bytes, now = plan.memory.peak().peak.bytes;
      saving.bytes = effect.on ? other - now : now - other;
    }
    savings.push_back(std::move(saving));
  }
  return savings;
}

OrderedJson peak_json(const Observed& observed) {
  const policies::PhasePeak peak = policies::highest(observed.plan.device);
  const auto found = observed.places.find(peak.name);
  const planner::PeakPlace place = found != observed.places.end() ? found->second : planner::PeakPlace{};
  const planner::LargestAlive largest = planner::largest_alive(peak.peak);
  return {{"bytes", peak.peak.bytes},
          {"phase", peak.name},
          {"path", place.path},
          {"in_backward", place.backward},
          {"operation", place.operation},
          {"largest",
           {{"operation", largest.operation},
            {"category", policies::name_of(largest.category)},
            {"bytes", largest.bytes}}},
          {"saved", peak.peak.of(Category::saved) + peak.peak.of(Category::casts)}};
}

}  // namespace

nlohmann::ordered_json explanation_json(const planner::Explanation& why) {
  const Observed& plain = why.plain;
  OrderedJson json;
  json["backward"] = plain.backward;
  json["state"] = OrderedJson::object();
  for (const auto& [name, bytes] : planner::state_of(plain)) json["state"][name] = bytes;
  json["saved"] = plain.saved;
  json["outside"] = plain.outside;
  json["entering"] = plain.entering;
  json["most_gain"] = plain.max_gain();
  json["segments"] = OrderedJson::array();
  for (const planner::SegmentGain& one : plain.segments) {
    json["segments"].push_back({{"path", one.path},
                                {"saves", one.saves},
                                {"inputs", one.inputs},
                                {"gain", one.gain},
                                {"reason", one.reason}});
  }
  json["peak"] = peak_json(plain);
  const planner::LargestParameter& largest = plain.largest;
  json["largest_parameter"] = {{"name", largest.name},
                               {"bytes", largest.bytes},
                               {"temporaries", largest.temporaries},
                               {"phase", largest.phase},
                               {"operators", largest.operators}};
  json["recomputed"] = nullptr;
  if (const auto& with = why.recomputed) {
    json["recomputed"] = {{"segments", why.segments},
                          {"saved", with->saved},
                          {"made_again", with->recomputed_held.bytes},
                          {"made_again_in", with->recomputed_held.path},
                          {"fetched", with->fetched.bytes},
                          {"fetched_in", with->fetched.path},
                          {"peak", peak_json(*with)}};
  }
  json["bounds"] = OrderedJson::array();
  for (const planner::CategoryBound& bound : planner::category_bounds(plain.plan.device))
    json["bounds"].push_back({{"category", policies::name_of(bound.category)}, {"bytes", bound.bytes}});
  json["alternatives"] = OrderedJson::array();
  for (const planner::Alternative& one : why.alternatives) {
    json["alternatives"].push_back({{"name", one.name},
                                    {"peak_bytes", one.peak.peak.bytes},
                                    {"phase", one.peak.name},
                                    {"problem", one.problem}});
  }
  return json;
}

nlohmann::ordered_json plan_json(const Plan& plan, const std::vector<PolicyEffect>& effects,
                                 const planner::Explanation* why, const CheckpointChoices* others,
                                 const PerToken* per_token) {
  OrderedJson json = json_of(plan, savings_of(plan, effects));
  if (why != nullptr) json["why"] = explanation_json(*why);
  if (others != nullptr) json["checkpoint_choices"] = checkpoint_choices_json(*others);
  if (per_token != nullptr) json["per_token"] = per_token_json(*per_token);
  return json;
}

nlohmann::ordered_json plan_table_json(const std::vector<PlanRow>& rows) {
  OrderedJson array = OrderedJson::array();
  for (const PlanRow& row : rows) {
    std::vector<PolicySaving> savings;
    for (size_t i = 0; i < row.on.size(); ++i)
      savings.push_back(
          {{policies::policy_kinds(row.plan.loaded.ranks)[i]->name(), row.on[i], row.on[i] ? "on" : "off"},
           std::nullopt,
           ""});
    array.push_back(json_of(row.plan, savings));
  }
  return array;
}

nlohmann::ordered_json largest_batch_json(const LargestPlannedBatch& found, int64_t bytes) {
  OrderedJson json = json_of(*found.largest);
  OrderedJson& batch = json["largest_batch"];
  batch["budget_bytes"] = bytes;
  batch["batch"] = found.largest->loaded.config.data.batch;
  batch["peak_bytes"] = found.largest->memory.peak().peak.bytes;
  batch["device_bytes"] = found.largest->bytes_in(Capacity::device);
  batch["next_batch"] = found.next ? OrderedJson(found.next->loaded.config.data.batch) : OrderedJson();
  batch["next_peak_bytes"] = found.next ? OrderedJson(found.next->memory.peak().peak.bytes) : OrderedJson();
  batch["next_device_bytes"] =
      found.next ? OrderedJson(found.next->bytes_in(Capacity::device)) : OrderedJson();
  batch["planned"] = found.planned;
  batch["all_recomputed"] = found.all_recomputed;
  batch["not_counted"] = not_counted(*found.largest);
  return json;
}

}  // namespace dtk
