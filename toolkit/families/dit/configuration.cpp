#include "toolkit/families/dit/configuration.h"

#include <dtk/policies/advice.h>

#include <algorithm>
#include <stdexcept>

#include "toolkit/config/defaults.h"
#include "toolkit/config/rule_check.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/diffusion/diffusion_names.h"
#include "toolkit/diffusion/respacing.h"
#include "toolkit/families/dit/classes.h"
#include "toolkit/families/dit/options.h"

namespace dtk::dit {
namespace {

using policies::advise;

// The published code learns a variance beside ε; with v and x_0 a fixed one is usual.
void settle_learn_sigma(LoadedConfig& loaded) {
  const Prediction objective = options_of(loaded.config).diffusion.objective;
  const std::string reason = objective == Prediction::velocity ? "rectified flow predicts no variance"
                             : objective == Prediction::epsilon
                                 ? "as the original DiT"
                                 : "usual with objective " + policies::text_of(objective);
  settle(loaded, "model.learn_sigma", options_of(loaded.config).model.learn_sigma,
         objective == Prediction::epsilon, reason);
}

void settle_sampler(LoadedConfig& loaded) {
  const Prediction objective = options_of(loaded.config).diffusion.objective;
  settle(loaded, "sample.sampler", options_of(loaded.config).sampler.sampler, samplers_for(objective).front(),
         "usual with objective " + policies::text_of(objective));
}

void settle_policies(LoadedConfig& loaded) {
  policies::PolicyOptions& policies = loaded.config.policies;
  const policies::PolicyOptions usual = policy_defaults();
  settle(loaded, "policies.checkpoint.targets", policies.checkpoint.targets, usual.checkpoint.targets,
         "the DiT's blocks");
  settle(loaded, "policies.precision.fp32", policies.precision.fp32, usual.precision.fp32,
         "where the DiT's output leaves");
}

void settle_convert(LoadedConfig& loaded) {
  const bool rgb = loaded.config.data.kind == policies::text_of(ImageKind::images) &&
                   options_of(loaded.config).model.channels == 3;
  if (rgb) {
    settle(loaded, "data.convert", options_of(loaded.config).data.convert, Convert::rgb,
           "usual with model.channels = 3");
  }
}

void settle_steps(LoadedConfig& loaded) {
  const SamplerOptions& sampler = options_of(loaded.config).sampler;
  int64_t& steps = loaded.config.sample.steps;
  const int64_t all = options_of(loaded.config).diffusion.steps, usual = default_steps(sampler.sampler);
  if (!has_diffusion_steps(sampler.sampler) || (usual <= all && !sampler.respacing)) {
    return settle(loaded, "sample.steps", steps, usual, "usual with " + policies::text_of(sampler.sampler));
  }
  if (!sampler.respacing) {
    return settle(loaded, "sample.steps", steps, all, "all that the diffusion has");
  }
  try {
    const auto kept = static_cast<int64_t>(respaced_steps(*sampler.respacing, all).size());
    settle(loaded, "sample.steps", steps, kept,
           "what sample.respacing = " + toml_text(*sampler.respacing) + " gives");
  } catch (const std::invalid_argument&) {  // check_rules() says what is wrong with it
  }
}

// All at once: whoever starts from a file with a size of its own has set four.
void check_fixed_by_name(const RuleCheck& rules, const std::vector<models::DitProblem>& found) {
  if (!models::published_size(options_of(rules.config()).model.name)) return;
  std::vector<std::string> keys;
  for (const models::DitProblem& problem : found) {
    for (const char* field : {"depth", "hidden", "heads", "patch"}) {
      if (problem.field == field) keys.push_back("model." + problem.field);
    }
  }
  if (keys.empty()) return;
  rules.fail(keys.front(),
             fmt::format("{}{}fixed by model.name = {}; {}, or {}", listed(keys, " and "), is_or_are(keys),
                         toml_text(options_of(rules.config()).model.name), rules.removal(keys),
                         advise("model.name", toml_text(models::DitPreset::custom))));
}

void check_diffusion(const RuleCheck& rules) {
  const DiffusionOptions& diffusion = options_of(rules.config()).diffusion;
  if (is_gaussian(diffusion.objective) && diffusion.betas == BetaKind::linear &&
      diffusion.steps < kMinLinearSteps) {
    rules.fail(
        "diffusion.steps",
        fmt::format("diffusion.steps = {} is too few for diffusion.betas = \"linear\", the last of which "
                    "would reach 1; allowed: at least {}, or {}",
                    toml_text(diffusion.steps), kMinLinearSteps, advise("diffusion.betas", "\"cosine\"")));
  }
  const SamplerKind sampler = options_of(rules.config()).sampler.sampler;
  if (draws_from(sampler, diffusion.objective)) return;
  rules.fail("sample.sampler",
             fmt::format("sample.sampler = {} does not draw from a model of diffusion.objective = {}; "
                         "allowed: {}; {} to have the first, or change diffusion.objective",
                         toml_text(sampler), toml_text(diffusion.objective),
                         sampler_choices(diffusion.objective), rules.removal({"sample.sampler"})));
}

void check_respacing(const RuleCheck& rules, const std::string& text, int64_t all) {
  const std::string seen = "sample.respacing = " + toml_text(text);
  int64_t kept = 0;
  try {
    kept = static_cast<int64_t>(respaced_steps(text, all).size());
  } catch (const std::invalid_argument& problem) {
    rules.fail("sample.respacing", seen + ": " + problem.what());
  }
  if (kept == rules.config().sample.steps) return;
  rules.fail(
      "sample.steps",
      fmt::format(
          "sample.steps = {} does not agree with {}, which gives {} steps; {}, or change sample.respacing",
          toml_text(rules.config().sample.steps), seen, kept, rules.removal({"sample.steps"})));
}

void check_sampler_steps(const RuleCheck& rules) {
  const SamplerOptions& sampler = options_of(rules.config()).sampler;
  const int64_t steps = rules.config().sample.steps;
  const int64_t all = options_of(rules.config()).diffusion.steps;
  if (!has_diffusion_steps(sampler.sampler)) return;
  if (sampler.respacing) return check_respacing(rules, *sampler.respacing, all);
  if (steps >= kMinDiffusionSteps && steps <= all) return;
  rules.fail(
      "sample.steps",
      fmt::format("sample.steps = {} is out of range with sample.sampler = {}, which goes through steps of "
                  "the diffusion; allowed: [{}, {}] with diffusion.steps = {}",
                  toml_text(steps), toml_text(sampler.sampler), kMinDiffusionSteps, all, toml_text(all)));
}

void check_sampling(const RuleCheck& rules) {
  const GridOptions& grid = options_of(rules.config()).grid;
  if (grid.guidance > 1 && options_of(rules.config()).model.class_dropout == 0) {
    rules.fail(rules.written("sample.guidance") ? "sample.guidance" : "model.class_dropout",
               fmt::format("sample.guidance = {} needs a null label, and model.class_dropout = 0 trains "
                           "none; {}, or model.class_dropout above 0",
                           toml_text(grid.guidance), advise("sample.guidance", "1")));
  }
  if (grid.cfg_channels > options_of(rules.config()).model.channels) {
    const std::string channels = toml_text(options_of(rules.config()).model.channels);
    rules.fail("sample.cfg_channels", fmt::format("sample.cfg_channels = {} is more than the model has; "
                                                  "allowed: [0, {}] with model.channels = {} (0 guides all)",
                                                  toml_text(grid.cfg_channels), channels, channels));
  }
}

// Keys of grids that were written for a run that draws none, or fewer classes than asked for.
void check_grids(const RuleCheck& rules) {
  const GridOptions& grid = options_of(rules.config()).grid;
  rules.check_drawn("sample.per_class", grid.per_class);
  if (grid.classes && grid.per_class == 0) {
    rules.fail("sample.classes",
               "sample.classes has no use with sample.per_class = 0, which draws no samples; " +
                   rules.removal({"sample.classes"}) + ", or raise sample.per_class");
  }
  try {
    if (grid.classes) ClassChoice(*grid.classes, options_of(rules.config()).model.classes);
  } catch (const std::invalid_argument& problem) {
    rules.fail("sample.classes",
               fmt::format("sample.classes = {}: {}", toml_text(*grid.classes), problem.what()));
  }
}

// Files of another kind of data.
void check_files_are_read(const RuleCheck& rules) {
  const ImageKind kind = image_kind(rules.config());
  const ImageOptions& data = options_of(rules.config()).data;
  std::vector<std::string> keys, values;
  const auto only_for = [&](std::initializer_list<ImageKind> kinds, const std::string& key,
                            const std::string& value) {
    if (value.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
    keys.push_back(key);
    values.push_back(setting(key, value));
  };
  only_for({ImageKind::idx}, "data.images", data.images);
  only_for({ImageKind::idx, ImageKind::latents}, "data.labels", data.labels);
  if (data.if_missing != IfMissing::error)
    only_for({ImageKind::idx, ImageKind::synthetic}, "data.if_missing", policies::text_of(data.if_missing));
  only_for({ImageKind::images}, "data.folder", data.folder);
  only_for({ImageKind::latents}, "data.latents", data.latents);
  if (keys.empty()) return;
  rules.fail(keys.front(),
             fmt::format("{}{}not read with {}; {}, or change data.kind", listed(values, " and "),
                         is_or_are(keys), setting("data.kind", kind), rules.removal(keys)));
}

void check_data_options(const RuleCheck& rules) {
  const ImageKind kind = image_kind(rules.config());
  const OnCorrupt on_corrupt = rules.config().data.on_corrupt;
  const ImageOptions& data = options_of(rules.config()).data;
  const auto no_use = [&](const std::string& key, const auto& value, const std::string& why = "") {
    rules.fail(key, fmt::format("{} has no use with {}{}; {}, or change data.kind", setting(key, value),
                                setting("data.kind", kind), why, rules.removal({key})));
  };
  if (data.latent_shift != 0.0 && kind != ImageKind::latents) no_use("data.latent_shift", data.latent_shift);
  if (data.latent_scale != 1.0 && kind != ImageKind::latents) no_use("data.latent_scale", data.latent_scale);
  if (data.flip && kind == ImageKind::latents)
    no_use("data.flip", true, ", as a mirrored latent is not the latent of the mirrored image");
  if (data.flip && kind == ImageKind::synthetic) no_use("data.flip", true);
  if (data.convert != Convert::none && kind != ImageKind::images) no_use("data.convert", data.convert);
  if (data.strict_folder && kind != ImageKind::images) no_use("data.strict_folder", true);
  if (data.convert == Convert::rgb && options_of(rules.config()).model.channels != 3) {
    rules.fail(
        "data.convert",
        fmt::format("data.convert = \"rgb\" gives images of 3 channels, and model.channels = {}; {}, or {}",
                    toml_text(options_of(rules.config()).model.channels), rules.removal({"data.convert"}),
                    advise("model.channels", "3")));
  }
  if (on_corrupt != OnCorrupt::error && kind != ImageKind::images) no_use("data.on_corrupt", on_corrupt);
}

}  // namespace

std::unique_ptr<OptionTables> Configuration::new_options() const {
  return std::make_unique<TablesOf<Options>>();
}

HeldOut Configuration::held_out(const RunConfig& config) const {
  return {config.data.validation > 0, "data.validation", "data.validation = 0 holds none out"};
}

std::optional<int64_t> Configuration::heads(const RunConfig& config) const {
  return models::resolved(options_of(config).model).heads;
}

void Configuration::settle_defaults(LoadedConfig& loaded) const {
  settle_learn_sigma(loaded);
  settle_sampler(loaded);
  settle_steps(loaded);
  settle_convert(loaded);
  settle_policies(loaded);
}

void Configuration::check_model(const RuleCheck& rules) const {
  const auto found = models::problems(options_of(rules.config()).model);
  check_fixed_by_name(rules, found);
  if (!found.empty()) rules.fail("model." + found.front().field, found.front().message);
  if (options_of(rules.config()).model.learn_sigma &&
      options_of(rules.config()).diffusion.objective == Prediction::velocity) {
    rules.fail("model.learn_sigma",
               "model.learn_sigma = true has no use with diffusion.objective = \"rectified_flow\", which "
               "predicts no variance; " +
                   advise("model.learn_sigma", "false"));
  }
}

void Configuration::check_data(const RuleCheck& rules) const {
  check_files_are_read(rules);
  check_data_options(rules);
}

void Configuration::check_samples(const RuleCheck& rules) const {
  check_diffusion(rules);
  check_sampling(rules);
  check_sampler_steps(rules);
  check_grids(rules);
  if (options_of(rules.config()).grid.cfg_channels != 0 && options_of(rules.config()).grid.guidance == 1.0) {
    rules.fail("sample.cfg_channels",
               "sample.cfg_channels has no use with sample.guidance = 1, which guides nothing; " +
                   rules.removal({"sample.cfg_channels"}) + ", or raise sample.guidance");
  }
}

std::string Configuration::useless_because(const RunConfig& config, const std::string& key) const {
  const Prediction objective = options_of(config).diffusion.objective;
  const SamplerKind sampler = options_of(config).sampler.sampler;
  const bool of_flow = key == "diffusion.time",
             of_gaussian = key == "diffusion.steps" || key == "diffusion.betas";
  if (is_gaussian(objective) ? of_flow : of_gaussian) return "diffusion.objective";
  const bool of_steps = key == "sample.respacing" || key == "sample.clip_x0";
  if ((of_steps && !has_diffusion_steps(sampler)) || (key == "sample.eta" && sampler != SamplerKind::ddim)) {
    return "sample.sampler";
  }
  return "";
}

// Shift and scale are the model's own unit of what it draws.
bool Configuration::may_change_on_resume(const std::string& key) const {
  return !is_one_of(key, {"data.latent_shift", "data.latent_scale"}) &&
         ModelFamily::may_change_on_resume(key);
}

std::string Configuration::derived_value(const RunConfig& config, const std::string& key) const {
  const models::DitPreset model = options_of(config).model.name;
  const auto size = models::published_size(model);
  if (!size) return "";
  const auto text = [&](const std::string& name, int64_t value) {
    return key == "model." + name
               ? fmt::format("{} = {} ({})", name, toml_text(value), policies::text_of(model))
               : std::string();
  };
  return text("depth", size->depth) + text("hidden", size->hidden) + text("heads", size->heads) +
         text("patch", size->patch);
}

}  // namespace dtk::dit
