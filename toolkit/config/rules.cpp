#include "toolkit/config/rules.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "toolkit/config/diffusion_names.h"
#include "toolkit/config/respacing.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/range.h"
#include "toolkit/core/suggestions.h"

namespace dtk {
namespace {

/// "data.batch = 15 or 18, or ": the multiples of `accumulate` next to `batch`.
std::string near_batches(int64_t batch, int64_t accumulate) {
  const int64_t below = batch / accumulate * accumulate;
  const std::string lower = below > 0 ? toml_text(below) + " or " : "";
  if (below > std::numeric_limits<int64_t>::max() - accumulate) return "";
  return "data.batch = " + lower + toml_text(below + accumulate) + ", or ";
}

class Rules {
 public:
  Rules(const LoadedConfig& loaded, const std::string& file_name)
      : config_(loaded.config), locations_(loaded.locations), file_name_(file_name) {}

  void check() const {
    check_family();
    if (config_.drives()) {
      check_diffusion_planner();
    } else {
      check_model();
    }
    check_length();
    check_data();
    check_average();
    if (!config_.drives()) check_images();
    check_use();
  }

 private:
  bool written(const std::string& key) const { return locations_.count(key) > 0; }

  [[noreturn]] void fail(const std::string& key, const std::string& message) const {
    throw ConfigError((written(key) ? locations_.at(key) : file_name_) + ": " + message);
  }

  // "remove it", and how to do that without touching a file that other runs share.
  std::string removal(const std::vector<std::string>& keys) const {
    std::string resets;
    for (const std::string& key : keys) {
      if (written(key) && !locations_.at(key).starts_with("--set ")) resets += " --set " + key + "=default";
    }
    const std::string text = keys.size() == 1 ? "remove it" : "remove them";
    return resets.empty() ? text : text + " (what " + file_name_ + " sets is taken back with" + resets + ")";
  }

  static const char* is_or_are(const std::vector<std::string>& keys) {
    return keys.size() == 1 ? " is " : " are ";
  }

  // All at once: whoever starts from a file with a size of its own has set four.
  void check_fixed_by_name(const std::vector<models::DitProblem>& found) const {
    if (!models::published_size(config_.model.name)) return;
    std::vector<std::string> keys;
    for (const models::DitProblem& problem : found) {
      for (const char* field : {"depth", "hidden", "heads", "patch"}) {
        if (problem.field == field) keys.push_back("model." + problem.field);
      }
    }
    if (keys.empty()) return;
    fail(keys.front(), listed(keys, " and ") + is_or_are(keys) +
                           "fixed by model.name = " + toml_text(config_.model.name) + "; " + removal(keys) +
                           ", or use model.name = \"custom\"");
  }

  // Of another family nothing may be written: its rules would speak of what the run has not.
  void check_family() const {
    for (const auto& [key, place] : locations_) {
      if (!is_of_another_model(config_, key)) continue;
      fail(key, key + " has no use with train.model = " + toml_text(config_.train.model) + "; " +
                    removal({key}) + ", or change train.model");
    }
    if ((config_.data.kind == "frames") == config_.drives()) return;
    fail("data.kind", "data.kind = " + toml_text(config_.data.kind) + " is not what train.model = " +
                          toml_text(config_.train.model) + " is trained on; allowed: " +
                          (config_.drives() ? "frames"
                                            : "idx | images | latents | synthetic; frames are read with "
                                              "train.model = \"diffusion_planner\""));
  }

  void check_diffusion_planner() const {
    if (const auto problem = problem_of_diffusion_planner(config_)) fail(problem->key, problem->message);
    check_drawn("sample.frames", config_.sample.frames);
  }

  void check_images() const {
    check_diffusion();
    check_sampling();
    check_sampler_steps();
    check_grids();
  }

  void check_model() const {
    const auto found = models::problems(config_.model);
    check_fixed_by_name(found);
    if (!found.empty()) fail("model." + found.front().field, found.front().message);
    if (config_.model.learn_sigma && config_.diffusion.objective == "rectified_flow") {
      fail("model.learn_sigma",
           "model.learn_sigma = true has no use with diffusion.objective = \"rectified_flow\", which "
           "predicts no "
           "variance; set model.learn_sigma = false");
    }
  }

  void check_length() const {
    const TrainOptions& train = config_.train;
    if (train.out.empty()) {
      fail("train.out", "train.out is empty; name a folder of its own for the run, e.g. \"runs/mine\"");
    }
    if (!train.steps && !train.epochs && !train.seconds) {
      fail(
          "train.steps",
          "none of train.steps, train.epochs and train.seconds is set; set at least one of them, so that the "
          "run ends");
    }
    if (config_.schedule.kind == "epochs" && !train.epochs) {
      fail("schedule.kind",
           "schedule.kind = \"epochs\" needs train.epochs, which is not set: the rate of an epoch depends on "
           "how many there are; set it, or use schedule.kind = \"constant\"");
    }
    const int64_t warmup = config_.schedule.warmup;
    if (train.steps && warmup > *train.steps) {
      const std::string steps = toml_text(*train.steps);
      fail("schedule.warmup",
           "schedule.warmup = " + toml_text(warmup) + " is longer than the run; allowed: [0, " + steps +
               "] with train.steps = " + steps + "; for a short trial set schedule.warmup = 0");
    }
    const policies::EmaOptions& ema = config_.policies.ema;
    if (train.steps && ema.enabled != policies::Enabled::off && ema.every > *train.steps) {
      const std::string steps = toml_text(*train.steps);
      fail("policies.ema.every",
           "policies.ema.every = " + toml_text(ema.every) +
               " is longer than the run, whose average would never begin; allowed: [1, " + steps +
               "] with train.steps = " + steps);
    }
  }

  // Keys that were written and that other keys make meaningless.
  void check_use() const {
    if (!config_.train.init_key.empty() && config_.train.init_from.empty()) {
      fail("train.init_key", "train.init_key has no use without train.init_from, whose weights it chooses; " +
                                 removal({"train.init_key"}) + ", or set train.init_from");
    }
    if (config_.memory.budget && !config_.memory.ledger) {
      fail("memory.budget", "memory.budget needs the ledger, and memory.ledger = false; remove one of them");
    }
    if (placement_is_open(config_) && !config_.memory.budget) {
      fail("policies.checkpoint.keep",
           "policies.checkpoint.keep = \"auto\" computes as little again as memory.budget allows, which is "
           "not set; set it, or use keep = \"block\"");
    }
    check_policies();
    check_written();
  }

  void check_policies() const {
    const policies::PrecisionOptions& precision = config_.policies.precision;
    // Switched off is another matter: then no key of the policy has an effect (switched_off()).
    if (precision.enabled == policies::Enabled::on && precision.cpu != "probe") {
      fail(
          "policies.precision.cpu",
          "policies.precision.cpu decides what policies.precision.enabled = \"default\" means, which is true "
          "here; " +
              removal({"policies.precision.cpu"}) + ", or set policies.precision.enabled = \"default\"");
    }
    check_kept_attention();
    const policies::EmaOptions& ema = config_.policies.ema;
    if (!ema.pinned && ema.device == "same" && ema.enabled != policies::Enabled::off) {
      fail("policies.ema.pinned",
           "policies.ema.pinned = false has no use with policies.ema.device = \"same\", which copies "
           "nothing; " +
               removal({"policies.ema.pinned"}) + ", or change policies.ema.device");
    }
  }

  // The models attend through the seam only, which calls no such operator then.
  void check_kept_attention() const {
    const policies::CheckpointOptions& checkpoint = config_.policies.checkpoint;
    if (config_.policies.attention.enabled != policies::Enabled::off) return;
    if (checkpoint.enabled == policies::Enabled::off) return;
    for (const std::string& kept : checkpoint.keep.results) {
      if (kept.find("scaled_dot_product") == std::string::npos) continue;
      fail("policies.checkpoint.keep",
           "policies.checkpoint.keep names " + toml_text(kept) +
               ", an operator of fused attention, and policies.attention.enabled = false calls none; take it "
               "out of the list, or set policies.attention.enabled = \"default\"");
    }
  }

  void check_written() const {
    for (const auto& [key, place] : locations_) {
      const std::string because = useless_because(config_, key);
      if (because.empty()) continue;
      fail(key, key + " has no use with " + because + "; " + removal({key}) + ", or change " +
                    because.substr(0, because.find(' ')));
    }
    if (!config_.drives() && config_.sample.cfg_channels != 0 && config_.sample.guidance == 1.0) {
      fail("sample.cfg_channels",
           "sample.cfg_channels has no use with sample.guidance = 1, which guides nothing; " +
               removal({"sample.cfg_channels"}) + ", or raise sample.guidance");
    }
  }

  // Keys of samples that were written for a run that draws none: `key` = 0 says so. The other keys of
  // [sample] are those with which dit-sample draws from the run's checkpoints.
  void check_drawn(const std::string& key, int64_t samples) const {
    if (samples > 0) return;
    const std::string none = " has no use with " + key + " = 0, which draws no samples; ";
    const std::string raise = ", or raise " + key;
    if (const int64_t every = config_.train.sample_every; every > 0) {
      fail("train.sample_every",
           setting("train.sample_every", every) + none + removal({"train.sample_every"}) + raise);
    }
    if (!config_.sample.ema) {
      fail("sample.ema", "sample.ema = false" + none + removal({"sample.ema"}) + raise +
                             " (dit-sample --raw draws with the raw weights)");
    }
  }

  // Keys of grids that were written for a run that draws none, or fewer classes than asked for.
  void check_grids() const {
    const SampleOptions& sample = config_.sample;
    check_drawn("sample.per_class", sample.per_class);
    if (sample.classes && sample.per_class == 0) {
      fail("sample.classes", "sample.classes has no use with sample.per_class = 0, which draws no samples; " +
                                 removal({"sample.classes"}) + ", or raise sample.per_class");
    }
    if (sample.classes && *sample.classes > config_.model.classes) {
      const std::string classes = toml_text(config_.model.classes);
      fail("sample.classes", "sample.classes = " + toml_text(*sample.classes) +
                                 " is more than the model has; allowed: [1, " + classes +
                                 "] with model.classes = " + classes);
    }
  }

  void check_data() const {
    const int64_t batch = config_.data.batch;
    const int64_t accumulate = config_.train.accumulate;
    if (batch % accumulate != 0) {
      fail("train.accumulate",
           "train.accumulate = " + toml_text(accumulate) + " does not divide data.batch = " +
               toml_text(batch) + "; every micro-batch has data.batch / train.accumulate samples: set " +
               near_batches(batch, accumulate) + "train.accumulate to a divisor of " + toml_text(batch));
    }
    check_files_are_read();
    check_data_options();
    check_validation();
  }

  // Files of another kind of data.
  void check_files_are_read() const {
    const DataOptions& data = config_.data;
    std::vector<std::string> keys, values;
    const auto only_for = [&](const std::string& kinds, const std::string& key, const std::string& value) {
      if (value.empty() || is_choice(kinds, data.kind)) return;
      keys.push_back(key);
      values.push_back(key + " = " + toml_text(value));
    };
    only_for("idx", "data.images", data.images);
    only_for("idx | latents", "data.labels", data.labels);
    only_for("images", "data.folder", data.folder);
    only_for("latents", "data.latents", data.latents);
    if (keys.empty()) return;
    fail(keys.front(), listed(values, " and ") + is_or_are(keys) + "not read with data.kind = " +
                           toml_text(data.kind) + "; " + removal(keys) + ", or change data.kind");
  }

  void check_data_options() const {
    const DataOptions& data = config_.data;
    const auto no_use = [&](const std::string& key, const std::string& value, const std::string& why) {
      fail(key, key + " = " + value + " has no use with data.kind = " + toml_text(data.kind) + why + "; " +
                    removal({key}) + ", or change data.kind");
    };
    if (data.latent_scale != 1.0 && data.kind != "latents") {
      no_use("data.latent_scale", toml_text(data.latent_scale), "");
    }
    if (data.flip && data.kind == "latents") {
      no_use("data.flip", "true", ", as a mirrored latent is not the latent of the mirrored image");
    }
    if (data.flip && data.kind == "synthetic") no_use("data.flip", "true", "");
    if (data.on_corrupt != "error" && data.kind != "images" && data.kind != "frames") {
      no_use("data.on_corrupt", toml_text(data.on_corrupt), "");
    }
  }

  void check_validation() const {
    const TrainOptions& train = config_.train;
    const bool drives = config_.drives();
    const auto needs_samples = [&](const std::string& key, const std::string& value) {
      fail(key, key + " = " + value + " needs held-out samples, and " +
                    (drives ? "data.held_out is not set; " : "data.validation = 0 holds none out; ") +
                    removal({key}) + ", or set " + (drives ? "data.held_out" : "data.validation"));
    };
    if (drives ? config_.data.held_out.empty() : config_.data.validation == 0) {
      if (train.validate_every > 0) needs_samples("train.validate_every", toml_text(train.validate_every));
      if (train.validate_ema) needs_samples("train.validate_ema", "true");
    }
    if (config_.data.samples && config_.data.validation >= *config_.data.samples) {
      const int64_t samples = *config_.data.samples;
      fail("data.validation", "data.validation = " + toml_text(config_.data.validation) +
                                  " leaves nothing to train on of data.samples = " + toml_text(samples) +
                                  "; allowed: [0, " + toml_text(samples - 1) + "]");
    }
    if (train.validate_ema && config_.policies.ema.enabled == policies::Enabled::off) {
      fail("train.validate_ema",
           "train.validate_ema = true needs EMA weights, and policies.ema.enabled = false; set "
           "train.validate_ema = false, or enable the policy");
    }
  }

  void check_diffusion() const {
    const DiffusionOptions& diffusion = config_.diffusion;
    if (is_gaussian(diffusion.objective) && diffusion.betas == "linear" &&
        diffusion.steps < kMinLinearSteps) {
      fail("diffusion.steps",
           "diffusion.steps = " + toml_text(diffusion.steps) +
               " is too few for diffusion.betas = \"linear\", the last of which would reach "
               "1; allowed: at least " +
               std::to_string(kMinLinearSteps) + ", or diffusion.betas = \"cosine\"");
    }
    const std::string& sampler = config_.sample.sampler;
    const std::vector<std::string>& allowed = samplers_for(diffusion.objective);
    if (std::find(allowed.begin(), allowed.end(), sampler) != allowed.end()) return;
    fail("sample.sampler",
         "sample.sampler = " + toml_text(sampler) + " does not draw from a model of diffusion.objective = " +
             toml_text(diffusion.objective) + "; allowed: " + listed(allowed, " or ") + "; " +
             removal({"sample.sampler"}) + " to have the first, or change diffusion.objective");
  }

  void check_sampler_steps() const {
    const SampleOptions& sample = config_.sample;
    const int64_t all = config_.diffusion.steps;
    if (!has_diffusion_steps(sample.sampler)) return;
    if (sample.respacing) return check_respacing(*sample.respacing, all);
    if (sample.steps >= kMinDiffusionSteps && sample.steps <= all) return;
    fail("sample.steps", "sample.steps = " + toml_text(sample.steps) +
                             " is out of range with sample.sampler = " + toml_text(sample.sampler) +
                             ", which goes through steps of the diffusion; allowed: [" +
                             std::to_string(kMinDiffusionSteps) + ", " + std::to_string(all) +
                             "] with diffusion.steps = " + toml_text(all));
  }

  void check_respacing(const std::string& text, int64_t all) const {
    const std::string seen = "sample.respacing = " + toml_text(text);
    int64_t kept = 0;
    try {
      kept = static_cast<int64_t>(respaced_steps(text, all).size());
    } catch (const std::invalid_argument& problem) {
      fail("sample.respacing", seen + ": " + problem.what());
    }
    if (kept == config_.sample.steps) return;
    fail("sample.steps", "sample.steps = " + toml_text(config_.sample.steps) + " does not agree with " +
                             seen + ", which gives " + std::to_string(kept) + " steps; " +
                             removal({"sample.steps"}) + ", or change sample.respacing");
  }

  void check_sampling() const {
    const SampleOptions& sample = config_.sample;
    if (sample.guidance > 1 && config_.model.class_dropout == 0) {
      fail(written("sample.guidance") ? "sample.guidance" : "model.class_dropout",
           "sample.guidance = " + toml_text(sample.guidance) +
               " needs a null label, and model.class_dropout = 0 trains none; set sample.guidance = 1, or "
               "model.class_dropout above 0");
    }
    if (sample.cfg_channels > config_.model.channels) {
      const std::string channels = toml_text(config_.model.channels);
      fail("sample.cfg_channels", "sample.cfg_channels = " + toml_text(sample.cfg_channels) +
                                      " is more than the model has; allowed: [0, " + channels +
                                      "] with model.channels = " + channels + " (0 guides all)");
    }
  }

  void check_average() const {
    const bool no_ema = config_.policies.ema.enabled == policies::Enabled::off;
    if (config_.sample.ema && no_ema && written("sample.ema")) {
      fail(
          "sample.ema",
          "sample.ema = true needs EMA weights, and policies.ema.enabled = false; set sample.ema = false, or "
          "enable the policy");
    }
  }

  const RunConfig& config_;
  const std::map<std::string, std::string>& locations_;
  const std::string& file_name_;
};

}  // namespace

void check_rules(const LoadedConfig& loaded, const std::string& file_name) {
  Rules(loaded, file_name).check();
}

void check_new_run(const LoadedConfig& loaded) {
  const std::string key = "train.allow_thread_change";
  const auto place = loaded.locations.find(key);
  if (!loaded.config.train.allow_thread_change || place == loaded.locations.end()) return;
  const bool in_file = !place->second.starts_with("--set ");
  throw ConfigError(
      place->second + ": " + key +
      " = true has no use in a new run: it lets a resumed one go on with another number of threads; "
      "remove it" +
      (in_file ? " (what a file sets is taken back with --set " + key + "=default)" : "") +
      ", or continue a run with --resume");
}

bool placement_is_open(const RunConfig& config) {
  const policies::CheckpointOptions& checkpoint = config.policies.checkpoint;
  return checkpoint.enabled != policies::Enabled::off && checkpoint.keep.word == "auto";
}

}  // namespace dtk
