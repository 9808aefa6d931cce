#include "toolkit/plan/plan_record.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace dtk {
namespace {

using Json = nlohmann::json;
using policies::Category;
using policies::MemorySums;
using policies::Owner;
using policies::OwnerId;
using policies::PhasePeak;
using policies::PolicyReport;

Json json_of(const PhasePeak& phase) {
  Json owners = Json::array();
  for (uint32_t i = 0; i < phase.peak.by_owner.size(); ++i) {
    if (phase.peak.by_owner[i] == 0) continue;
    const Owner owner = policies::owner_of(OwnerId{i, Category::other});
    owners.push_back({static_cast<int>(owner.category), owner.label, owner.made_by, phase.peak.by_owner[i]});
  }
  return {phase.name, phase.peak.bytes, owners};
}

PhasePeak read_phase(const Json& json) {
  PhasePeak phase{json.at(0).get<std::string>(), {}};
  phase.peak.bytes = json.at(1).get<int64_t>();
  for (const Json& owner : json.at(2)) {
    const uint32_t index = policies::owner_id(static_cast<Category>(owner.at(0).get<int>()),
                                              owner.at(1).get<std::string>(), owner.at(2).get<std::string>())
                               .index;
    std::vector<int64_t>& bytes = phase.peak.by_owner;
    if (bytes.size() <= index) bytes.resize(index + 1, 0);
    bytes[index] = owner.at(3).get<int64_t>();
  }
  return phase;
}

Json json_of(const planner::DeviceTerm& term) {
  return {term.name,  term.bytes,   term.on_host, term.booked,  term.allocated,
          term.known, term.formula, term.source,  term.measured};
}

planner::DeviceTerm read_term(const Json& json) {
  return {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4),
          json.at(5), json.at(6), json.at(7), json.at(8)};
}

Json json_of(const PolicyReport& report) {
  return {report.policy,       report.active,     report.reason,
          report.device_bytes, report.host_bytes, report.saved_bytes ? Json(*report.saved_bytes) : Json()};
}

PolicyReport read_report(const Json& json) {
  PolicyReport report{json.at(0), json.at(1), json.at(2), json.at(3), json.at(4)};
  if (!json.at(5).is_null()) report.saved_bytes = json.at(5).get<int64_t>();
  return report;
}

template <class Value>
Json all(const std::vector<Value>& values) {
  Json array = Json::array();
  for (const Value& value : values) array.push_back(json_of(value));
  return array;
}

}  // namespace

std::string plan_record(const Plan& plan) {
  const planner::Flops& step = plan.step;
  Json precisions = Json::array();
  for (const PossiblePrecision& one : plan.precisions)
    precisions.push_back({one.name, one.peak_bytes, one.phase});
  const Json json = {
      {"device", plan.memory.device},
      {"phases", all(plan.memory.phases)},
      {"host", json_of(plan.memory.host)},
      {"terms", all(plan.terms)},
      {"scratch",
       {plan.scratch.source, plan.scratch.measured_calls, plan.scratch.largest, plan.scratch.not_known}},
      {"folded", plan.folded},
      {"step", {step.forward, step.backward, step.recomputed, step.attention_again, step.without_grad}},
      {"policies", all(plan.policies)},
      {"seconds", plan.seconds},
      {"precisions", precisions}};
  return json.dump();
}

Plan read_plan_record(std::string_view text, LoadedConfig loaded) {
  const Json json = Json::parse(text);
  Plan plan;
  plan.loaded = std::move(loaded);
  plan.memory.device = json.at("device");
  for (const Json& phase : json.at("phases")) plan.memory.phases.push_back(read_phase(phase));
  plan.memory.host = read_phase(json.at("host"));
  for (const Json& term : json.at("terms")) plan.terms.push_back(read_term(term));
  const Json& scratch = json.at("scratch");
  plan.scratch.source = scratch.at(0);
  plan.scratch.measured_calls = scratch.at(1);
  plan.scratch.largest = scratch.at(2);
  plan.scratch.not_known = scratch.at(3).get<std::set<std::string>>();
  plan.folded = json.at("folded").get<std::map<std::string, int64_t>>();
  const Json& step = json.at("step");
  plan.step = {step.at(0), step.at(1), step.at(2), step.at(3), step.at(4)};
  for (const Json& report : json.at("policies")) plan.policies.push_back(read_report(report));
  plan.seconds = json.at("seconds");
  for (const Json& one : json.at("precisions")) plan.precisions.push_back({one.at(0), one.at(1), one.at(2)});
  return plan;
}

}  // namespace dtk
