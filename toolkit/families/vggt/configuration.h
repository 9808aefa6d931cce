// What the configuration knows of VGGT.
#pragma once
#include "toolkit/train/model_family.h"

namespace dtk::vggt {

class Configuration : public ModelFamily {
 public:
  std::string name() const override { return "vggt"; }
  bool infers() const override { return true; }
  bool ignores(const std::string& key) const override;
  std::string data_kinds() const override { return "scenes"; }
  HeldOut held_out(const RunConfig& config) const override;
  std::unique_ptr<OptionTables> new_options() const override;
  std::optional<int64_t> heads(const RunConfig& config) const override;
  void settle_defaults(LoadedConfig& loaded) const override;
  void check_model(const RuleCheck& rules) const override;
  std::string derived_value(const RunConfig& config, const std::string& key) const override;
};

}  // namespace dtk::vggt
