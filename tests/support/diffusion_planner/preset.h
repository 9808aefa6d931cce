// The driving model of a published preset.
#pragma once
#include <dtk/models/diffusion_planner_options.h>
#include <dtk/policies/enum_text.h>

#include <stdexcept>
#include <string>

namespace dtk::test {

/// Throws std::invalid_argument for the name of none.
inline models::DiffusionPlannerOptions diffusion_planner_preset(const std::string& name) {
  using models::DiffusionPlannerPreset;
  const auto preset = policies::parse_enum<DiffusionPlannerPreset>(name);
  if (!preset)
    throw std::invalid_argument("preset \"" + name +
                                "\" is none; allowed: " + policies::choices_of<DiffusionPlannerPreset>());
  models::DiffusionPlannerOptions options;
  options.preset = *preset;
  return options;
}

}  // namespace dtk::test
