#include "toolkit/config/rule_check.h"

#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"

namespace dtk {

void RuleCheck::fail(const std::string& key, const std::string& message) const {
  throw ConfigError((written(key) ? locations_.at(key) : file_name_) + ": " + message);
}

std::string RuleCheck::removal(const std::vector<std::string>& keys) const {
  std::string resets;
  for (const std::string& key : keys) {
    if (written(key) && !written_by_set(loaded_, key)) resets += " --set " + key + "=default";
  }
  const std::string text = keys.size() == 1 ? "remove it" : "remove them";
  return resets.empty() ? text
                        : fmt::format("{} (what {} sets is taken back with{})", text, file_name_, resets);
}

void RuleCheck::check_drawn(const std::string& key, int64_t samples) const {
  if (samples > 0) return;
  const std::string none = " has no use with " + key + " = 0, which draws no samples; ";
  const std::string raise = ", or raise " + key;
  if (const int64_t every = config_.train.sample_every; every > 0) {
    fail("train.sample_every",
         setting("train.sample_every", every) + none + removal({"train.sample_every"}) + raise);
  }
  if (!config_.sample.ema) {
    fail("sample.ema", fmt::format("sample.ema = false{}{}{} (dit-sample --raw draws with the raw weights)",
                                   none, removal({"sample.ema"}), raise));
  }
}

}  // namespace dtk
