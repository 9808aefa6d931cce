#include "toolkit/families/dit/configuration.h"

#include <algorithm>
#include <stdexcept>

#include "toolkit/config/defaults.h"
#include "toolkit/config/diffusion_names.h"
#include "toolkit/config/respacing.h"
#include "toolkit/config/rule_check.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/text.h"

namespace dtk::dit {
namespace {

// The published code learns a variance beside ε; with v and x_0 a fixed one is usual.
void settle_learn_sigma(LoadedConfig& loaded) {
  const std::string& objective = loaded.config.diffusion.objective;
  const std::string reason = objective == "rectified_flow" ? "rectified flow predicts no variance"
                             : objective == "epsilon"      ? "as the original DiT"
                                                           : "usual with objective " + objective;
  settle(loaded, "model.learn_sigma", loaded.config.model.learn_sigma, objective == "epsilon", reason);
}

void settle_sampler(LoadedConfig& loaded) {
  const std::string& objective = loaded.config.diffusion.objective;
  settle(loaded, "sample.sampler", loaded.config.sample.sampler, samplers_for(objective).front(),
         "usual with objective " + objective);
}

void settle_steps(LoadedConfig& loaded) {
  SampleOptions& sample = loaded.config.sample;
  const int64_t all = loaded.config.diffusion.steps, usual = default_steps(sample.sampler);
  if (!has_diffusion_steps(sample.sampler) || (usual <= all && !sample.respacing)) {
    return settle(loaded, "sample.steps", sample.steps, usual, "usual with " + sample.sampler);
  }
  if (!sample.respacing) {
    return settle(loaded, "sample.steps", sample.steps, all, "all that the diffusion has");
  }
  try {
    const auto kept = static_cast<int64_t>(respaced_steps(*sample.respacing, all).size());
    settle(loaded, "sample.steps", sample.steps, kept,
           "what sample.respacing = " + toml_text(*sample.respacing) + " gives");
  } catch (const std::invalid_argument&) {  // check_rules() says what is wrong with it
  }
}

// All at once: whoever starts from a file with a size of its own has set four.
void check_fixed_by_name(const RuleCheck& rules, const std::vector<models::DitProblem>& found) {
  if (!models::published_size(rules.config().model.name)) return;
  std::vector<std::string> keys;
  for (const models::DitProblem& problem : found) {
    for (const char* field : {"depth", "hidden", "heads", "patch"}) {
      if (problem.field == field) keys.push_back("model." + problem.field);
    }
  }
  if (keys.empty()) return;
  rules.fail(keys.front(), listed(keys, " and ") + is_or_are(keys) +
                               "fixed by model.name = " + toml_text(rules.config().model.name) + "; " +
                               rules.removal(keys) + ", or use model.name = \"custom\"");
}

void check_diffusion(const RuleCheck& rules) {
  const DiffusionOptions& diffusion = rules.config().diffusion;
  if (is_gaussian(diffusion.objective) && diffusion.betas == "linear" && diffusion.steps < kMinLinearSteps) {
    rules.fail("diffusion.steps",
               "diffusion.steps = " + toml_text(diffusion.steps) +
                   " is too few for diffusion.betas = \"linear\", the last of which would reach "
                   "1; allowed: at least " +
                   std::to_string(kMinLinearSteps) + ", or diffusion.betas = \"cosine\"");
  }
  const std::string& sampler = rules.config().sample.sampler;
  const std::vector<std::string>& allowed = samplers_for(diffusion.objective);
  if (std::find(allowed.begin(), allowed.end(), sampler) != allowed.end()) return;
  rules.fail("sample.sampler",
             "sample.sampler = " + toml_text(sampler) +
                 " does not draw from a model of diffusion.objective = " + toml_text(diffusion.objective) +
                 "; allowed: " + listed(allowed, " or ") + "; " + rules.removal({"sample.sampler"}) +
                 " to have the first, or change diffusion.objective");
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
  rules.fail("sample.steps", "sample.steps = " + toml_text(rules.config().sample.steps) +
                                 " does not agree with " + seen + ", which gives " + std::to_string(kept) +
                                 " steps; " + rules.removal({"sample.steps"}) +
                                 ", or change sample.respacing");
}

void check_sampler_steps(const RuleCheck& rules) {
  const SampleOptions& sample = rules.config().sample;
  const int64_t all = rules.config().diffusion.steps;
  if (!has_diffusion_steps(sample.sampler)) return;
  if (sample.respacing) return check_respacing(rules, *sample.respacing, all);
  if (sample.steps >= kMinDiffusionSteps && sample.steps <= all) return;
  rules.fail("sample.steps", "sample.steps = " + toml_text(sample.steps) +
                                 " is out of range with sample.sampler = " + toml_text(sample.sampler) +
                                 ", which goes through steps of the diffusion; allowed: [" +
                                 std::to_string(kMinDiffusionSteps) + ", " + std::to_string(all) +
                                 "] with diffusion.steps = " + toml_text(all));
}

void check_sampling(const RuleCheck& rules) {
  const SampleOptions& sample = rules.config().sample;
  if (sample.guidance > 1 && rules.config().model.class_dropout == 0) {
    rules.fail(
        rules.written("sample.guidance") ? "sample.guidance" : "model.class_dropout",
        "sample.guidance = " + toml_text(sample.guidance) +
            " needs a null label, and model.class_dropout = 0 trains none; set sample.guidance = 1, or "
            "model.class_dropout above 0");
  }
  if (sample.cfg_channels > rules.config().model.channels) {
    const std::string channels = toml_text(rules.config().model.channels);
    rules.fail("sample.cfg_channels", "sample.cfg_channels = " + toml_text(sample.cfg_channels) +
                                          " is more than the model has; allowed: [0, " + channels +
                                          "] with model.channels = " + channels + " (0 guides all)");
  }
}

// Keys of grids that were written for a run that draws none, or fewer classes than asked for.
void check_grids(const RuleCheck& rules) {
  const SampleOptions& sample = rules.config().sample;
  rules.check_drawn("sample.per_class", sample.per_class);
  if (sample.classes && sample.per_class == 0) {
    rules.fail("sample.classes",
               "sample.classes has no use with sample.per_class = 0, which draws no samples; " +
                   rules.removal({"sample.classes"}) + ", or raise sample.per_class");
  }
  if (sample.classes && *sample.classes > rules.config().model.classes) {
    const std::string classes = toml_text(rules.config().model.classes);
    rules.fail("sample.classes", "sample.classes = " + toml_text(*sample.classes) +
                                     " is more than the model has; allowed: [1, " + classes +
                                     "] with model.classes = " + classes);
  }
}

}  // namespace

bool Configuration::owns(const std::string& key) const {
  return key.starts_with("model.") || key.starts_with("diffusion.") ||
         is_one_of(key, {"data.images", "data.labels", "data.folder", "data.latents", "data.latent_scale",
                         "data.samples", "data.flip", "data.validation", "sample.sampler", "sample.respacing",
                         "sample.eta", "sample.clip_x0", "sample.guidance", "sample.cfg_channels",
                         "sample.classes", "sample.per_class", "sample.seed"});
}

HeldOut Configuration::held_out(const RunConfig& config) const {
  return {config.data.validation > 0, "data.validation", "data.validation = 0 holds none out"};
}

std::optional<int64_t> Configuration::heads(const RunConfig& config) const {
  return models::resolved(config.model).heads;
}

void Configuration::settle_defaults(LoadedConfig& loaded) const {
  settle_learn_sigma(loaded);
  settle_sampler(loaded);
  settle_steps(loaded);
}

void Configuration::check_model(const RuleCheck& rules) const {
  const auto found = models::problems(rules.config().model);
  check_fixed_by_name(rules, found);
  if (!found.empty()) rules.fail("model." + found.front().field, found.front().message);
  if (rules.config().model.learn_sigma && rules.config().diffusion.objective == "rectified_flow") {
    rules.fail("model.learn_sigma",
               "model.learn_sigma = true has no use with diffusion.objective = \"rectified_flow\", which "
               "predicts no "
               "variance; set model.learn_sigma = false");
  }
}

void Configuration::check_samples(const RuleCheck& rules) const {
  check_diffusion(rules);
  check_sampling(rules);
  check_sampler_steps(rules);
  check_grids(rules);
  if (rules.config().sample.cfg_channels != 0 && rules.config().sample.guidance == 1.0) {
    rules.fail("sample.cfg_channels",
               "sample.cfg_channels has no use with sample.guidance = 1, which guides nothing; " +
                   rules.removal({"sample.cfg_channels"}) + ", or raise sample.guidance");
  }
}

std::string Configuration::useless_because(const RunConfig& config, const std::string& key) const {
  const std::string& objective = config.diffusion.objective;
  const std::string& sampler = config.sample.sampler;
  const bool of_flow = key == "diffusion.time",
             of_gaussian = key == "diffusion.steps" || key == "diffusion.betas";
  if (is_gaussian(objective) ? of_flow : of_gaussian) return setting("diffusion.objective", objective);
  const bool of_steps = key == "sample.respacing" || key == "sample.clip_x0";
  if ((of_steps && !has_diffusion_steps(sampler)) || (key == "sample.eta" && sampler != "ddim")) {
    return setting("sample.sampler", sampler);
  }
  return "";
}

std::string Configuration::derived_line(const RunConfig& config, const std::string& key) const {
  const std::string& model = config.model.name;
  const auto size = models::published_size(model);
  if (!size) return "";
  const auto line = [&](const char* name, int64_t value) {
    return key == std::string("model.") + name
               ? std::string("# ") + name + " = " + toml_text(value) + " (" + model + ")"
               : std::string();
  };
  return line("depth", size->depth) + line("hidden", size->hidden) + line("heads", size->heads) +
         line("patch", size->patch);
}

}  // namespace dtk::dit
