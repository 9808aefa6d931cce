#include "toolkit/families/vggt/configuration.h"

#include "toolkit/config/defaults.h"
#include "toolkit/config/rule_check.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/vggt/options.h"

namespace dtk::vggt {

// Nothing is drawn while it trains.
bool Configuration::ignores(const std::string& key) const {
  return is_one_of(key,
                   {"data.on_corrupt", "data.samples", "sample.steps", "sample.ema", "train.sample_every"});
}

HeldOut Configuration::held_out(const RunConfig& config) const {
  return {config.data.validation > 0, "data.validation", "data.validation = 0 holds none out"};
}

std::unique_ptr<OptionTables> Configuration::new_options() const {
  return std::make_unique<TablesOf<Options>>();
}

std::optional<int64_t> Configuration::heads(const RunConfig& config) const {
  return models::resolved(options_of(config).model).heads;
}

void Configuration::settle_defaults(LoadedConfig& loaded) const {
  RunConfig& config = loaded.config;
  settle(loaded, "data.kind", config.data.kind, std::string("scenes"), "of vggt");
  settle(loaded, "policies.checkpoint.targets", config.policies.checkpoint.targets,
         {"aggregator.patch_embed.blocks.*", "aggregator.frame_blocks.*", "aggregator.global_blocks.*"},
         "the blocks");
  settle(loaded, "policies.precision.fp32", config.policies.precision.fp32,
         models::head_paths(options_of(config).model), "the heads");
}

void Configuration::check_model(const RuleCheck& rules) const {
  const Options& options = options_of(rules.config());
  const auto found = models::problems(options.model);
  if (!found.empty()) rules.fail("vggt." + found.front().key, found.front().message);
  const int64_t patch = *models::resolved(options.model).patch;
  for (const auto& [key, side] : {std::pair("vggt.data.height", options.data.height),
                                  std::pair("vggt.data.width", options.data.width)}) {
    if (side % patch != 0)
      rules.fail(key, setting(key, side) + " must be divisible by " + setting("vggt.patch", patch));
  }
  const policies::InferenceOptions& inference = rules.config().policies.inference;
  if (options.infer.narrow_heads &&
      (inference.enabled == policies::Enabled::off || !inference.narrow_weights)) {
    rules.fail(
        "vggt.infer.narrow_heads",
        "vggt.infer.narrow_heads = true has no use without policies.inference.narrow_weights, which holds "
        "weights narrow; remove it, or switch that on");
  }
  if (!has_end(rules.config().train)) return;
  if (inference.enabled == policies::Enabled::on) {
    rules.fail(
        "policies.inference.enabled",
        "policies.inference.enabled = true has no effect on training, in which nothing is inferred; remove "
        "it: dit-sample and dit-plan --infer have it by default");
  }
  if (options.model.points) {
    rules.fail(
        "vggt.points",
        "vggt.points = true: no loss is known for the point head, so that it is not trained; remove it "
        "(dit-sample --heads points builds it)");
  }
}

// Of what a preset says.
std::string Configuration::derived_value(const RunConfig& config, const std::string& key) const {
  const models::VggtOptions& model = options_of(config).model;
  if (!models::problems(model).empty()) return "";
  const models::VggtOptions sizes = models::resolved(model);
  std::string line;
  models::VggtOptions::fields(sizes, [&](const std::string& name, const auto& value, const auto&...) {
    if (key == "vggt." + name && is_set(value))
      line = fmt::format("{} = {} ({})", name, toml_text(value), policies::text_of(model.preset));
  });
  return line;
}

}  // namespace dtk::vggt
