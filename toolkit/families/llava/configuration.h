// What the configuration knows of LLaVA.
#pragma once
#include "toolkit/train/model_family.h"

namespace dtk::llava {

class Configuration : public ModelFamily {
 public:
  std::string name() const override { return "llava"; }
  std::vector<std::string> parts() const override;
  bool ignores(const std::string& key) const override;
  std::string data_kinds() const override { return "conversations"; }
  bool has_lengths() const override { return true; }
  HeldOut held_out(const RunConfig& config) const override;
  std::unique_ptr<OptionTables> new_options() const override;
  std::optional<int64_t> heads(const RunConfig& config) const override;
  void settle_defaults(LoadedConfig& loaded) const override;
  void check_model(const RuleCheck& rules) const override;
  void check_data(const RuleCheck& rules) const override;
  std::string useless_because(const RunConfig& config, const std::string& key) const override;
  bool may_change_on_resume(const std::string& key) const override;
  std::string derived_value(const RunConfig& config, const std::string& key) const override;
};

}  // namespace dtk::llava
