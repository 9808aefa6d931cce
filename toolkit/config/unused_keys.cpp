#include "toolkit/config/diffusion_names.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/suggestions.h"

namespace dtk {
namespace {

bool of_images(const std::string& key) {
  return key.starts_with("model.") || key.starts_with("diffusion.") ||
         is_one_of(key, {"data.images", "data.labels", "data.folder", "data.latents", "data.latent_scale",
                         "data.samples", "data.flip", "data.validation", "sample.sampler", "sample.respacing",
                         "sample.eta", "sample.clip_x0", "sample.guidance", "sample.cfg_channels",
                         "sample.classes", "sample.per_class", "sample.seed"});
}

bool of_driving(const std::string& key) {
  return key.starts_with("diffusion_planner.") ||
         is_one_of(key, {"data.frames", "data.held_out", "data.normalization", "sample.frames"});
}

std::string useless_of_dit(const RunConfig& config, const std::string& key) {
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

}  // namespace

std::string location_of(const LoadedConfig& loaded, const std::string& key) {
  const auto place = loaded.locations.find(key);
  return place == loaded.locations.end() ? "" : place->second + ": ";
}

bool is_of_another_model(const RunConfig& config, const std::string& key) {
  return config.drives() ? of_images(key) : of_driving(key);
}

std::string useless_because(const RunConfig& config, const std::string& key) {
  if (is_of_another_model(config, key)) return setting("train.model", config.train.model);
  if (switched_off(config, parent_of(key))) return "";  // a single switch is to be enough
  const std::string because =
      config.drives() ? useless_of_diffusion_planner(config, key) : useless_of_dit(config, key);
  if (!because.empty()) return because;
  const policies::SegmentKeeps& keep = config.policies.checkpoint.keep;
  if (key == "policies.checkpoint.offload_min_bytes" && !keep.offloads()) {
    return "policies.checkpoint.keep = " + toml_text(keep);
  }
  // Each target is a choice of its own.
  if ((key == "policies.checkpoint.every" || key == "policies.checkpoint.segment") && keep.word == "auto") {
    return "policies.checkpoint.keep = " + toml_text(keep);
  }
  const std::string& schedule = config.schedule.kind;
  const bool by_epochs = schedule == "epochs";
  if ((key == "schedule.final" && schedule != "cosine") || (key == "schedule.warmup" && by_epochs) ||
      (key.starts_with("schedule.epochs.") && !by_epochs)) {
    return setting("schedule.kind", schedule);
  }
  return "";
}

bool sample_ema_is_moot(const LoadedConfig& loaded) {
  return loaded.config.sample.ema && loaded.config.policies.ema.enabled == policies::Enabled::off;
}

bool switched_off(const RunConfig& config, const std::string& table) {
  bool off = false;
  policies::PolicyOptions::tables(config.policies, [&](const std::string& name, const auto& policy) {
    if (table == "policies." + name) off = policy.enabled == policies::Enabled::off;
  });
  return off;
}

}  // namespace dtk
