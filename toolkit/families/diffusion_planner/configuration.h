// What the configuration knows of Diffusion-Planners; the rest of their family is in family.cpp.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "toolkit/train/model_family.h"

namespace dtk::diffusion_planner {

class Configuration : public ModelFamily {
 public:
  std::string name() const override { return "diffusion_planner"; }
  bool ignores(const std::string& key) const override;
  std::string data_kinds() const override { return "frames"; }
  HeldOut held_out(const RunConfig& config) const override;
  std::unique_ptr<OptionTables> new_options() const override;
  std::optional<int64_t> heads(const RunConfig& config) const override;
  void settle_defaults(LoadedConfig& loaded) const override;
  void check_model(const RuleCheck& rules) const override;
  std::string useless_because(const RunConfig& config, const std::string& key) const override;
  std::string derived_value(const RunConfig& config, const std::string& key) const override;
};

}  // namespace dtk::diffusion_planner
