// dit_job KEY=VALUE...: plans and runs a job on the CPU and prints how they differ, and what was measured, as
// JSON. dit_statement.py builds on it, with models whose source lacks a statement.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/plans/plan_accuracy.h"
#include "toolkit/config/config_io.h"

namespace {

using namespace dtk;
using Json = nlohmann::ordered_json;

Json peak(const policies::LoggedPhase& phase) {
  Json categories = Json::object();
  for (int i = 0; i < policies::kCategories; ++i) {
    const auto category = static_cast<policies::Category>(i);
    categories[policies::name_of(category)] = phase.kept.of(category);
  }
  return {{"bytes", phase.kept.bytes},
          {"categories", categories},
          {"saved_by_operator", phase.kept.by_operator(policies::Category::saved)}};
}

Json measured(const PlanAccuracy& accuracy) {
  Json phases = Json::object();
  for (const policies::LoggedPhase& phase : accuracy.measured) {
    Json born = Json::object();
    for (const auto& [owner, births] : phase.born) {
      born[policies::name_of(owner.first) + (" " + owner.second)] = {{"count", births.count},
                                                                     {"bytes", births.bytes}};
    }
    phases[phase.name] = {{"peak", peak(phase)}, {"born", born}};
  }
  return phases;
}

Json differences_of(const PlanAccuracy& accuracy) {
  Json lines = Json::array();
  for (const PlanDifference& one : accuracy.differences) {
    lines.push_back(one.phase + ", " + one.what + ": predicted " + std::to_string(one.predicted) +
                    ", measured " + std::to_string(one.measured));
  }
  return lines;
}

}  // namespace

int main(int argc, char** argv) try {
  const PlanAccuracy accuracy =
      plan_accuracy(parse_config("", "job", std::vector<std::string>(argv + 1, argv + argc)));
  std::cout << Json{{"differences", differences_of(accuracy)}, {"measured", measured(accuracy)}} << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "dit_job: " << error.what() << "\n";
  return 1;
}
