// The driving model of a published preset.
#pragma once
#include <dtk/models/diffusion_planner_options.h>

#include <string>

namespace dtk::test {

inline models::DiffusionPlannerOptions diffusion_planner_preset(const std::string& name) {
  models::DiffusionPlannerOptions options;
  options.preset = name;
  return options;
}

}  // namespace dtk::test
