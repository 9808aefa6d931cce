// What the configuration knows of DiTs; the rest of their family is in family.cpp.
#pragma once
#include <optional>
#include <string>

#include "toolkit/families/dit/options.h"
#include "toolkit/train/model_family.h"

namespace dtk::dit {

class Configuration : public ModelFamily {
 public:
  std::string name() const override { return "dit"; }
  std::string data_kinds() const override { return policies::choices_of<ImageKind>(); }
  std::unique_ptr<OptionTables> new_options() const override;
  HeldOut held_out(const RunConfig& config) const override;
  std::optional<int64_t> heads(const RunConfig& config) const override;
  void settle_defaults(LoadedConfig& loaded) const override;
  void check_model(const RuleCheck& rules) const override;
  void check_data(const RuleCheck& rules) const override;
  void check_samples(const RuleCheck& rules) const override;
  std::string useless_because(const RunConfig& config, const std::string& key) const override;
  bool may_change_on_resume(const std::string& key) const override;
  std::string derived_value(const RunConfig& config, const std::string& key) const override;
};

}  // namespace dtk::dit
