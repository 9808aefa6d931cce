#include "toolkit/plan/explanation_json.h"

#include <dtk/planner/explain.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dtk {
namespace {

using Json = nlohmann::ordered_json;
using planner::Observed;
using policies::Category;

Json peak_json(const Observed& observed) {
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

Json state_json(const Observed& observed) {
  Json state = Json::object();
  for (const auto& [name, bytes] : planner::state_of(observed)) state[name] = bytes;
  return state;
}

Json segments_json(const Observed& observed) {
  Json list = Json::array();
  for (const planner::SegmentGain& one : observed.segments) {
    list.push_back({{"path", one.path},
                    {"saves", one.saves},
                    {"inputs", one.inputs},
                    {"gain", one.gain},
                    {"reason", one.reason}});
  }
  return list;
}

}  // namespace

std::string explanation_json(const planner::Explanation& why) {
  const Observed& plain = why.plain;
  Json json;
  json["backward"] = plain.backward;
  json["state"] = state_json(plain);
  json["saved"] = plain.saved;
  json["outside"] = plain.outside;
  json["entering"] = plain.entering;
  json["most_gain"] = plain.max_gain();
  json["segments"] = segments_json(plain);
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
                          {"made_again", with->made_again.bytes},
                          {"made_again_in", with->made_again.path},
                          {"fetched", with->fetched.bytes},
                          {"fetched_in", with->fetched.path},
                          {"peak", peak_json(*with)}};
  }
  json["bounds"] = Json::array();
  for (const planner::CategoryBound& bound : planner::category_bounds(plain.plan.device))
    json["bounds"].push_back({{"category", policies::name_of(bound.category)}, {"bytes", bound.bytes}});
  json["alternatives"] = Json::array();
  for (const planner::Alternative& one : why.alternatives) {
    json["alternatives"].push_back({{"name", one.name},
                                    {"peak_bytes", one.peak.peak.bytes},
                                    {"phase", one.peak.name},
                                    {"problem", one.problem}});
  }
  return json.dump(1) + "\n";
}

}  // namespace dtk
