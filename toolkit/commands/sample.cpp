#include "toolkit/commands/sample.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <dtk/policies/guards.h>

#include <algorithm>
#include <stdexcept>

#include "toolkit/checkpoint/find.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/commands/trained_model.h"
#include "toolkit/config/config_io.h"
#include "toolkit/config/diffusion_names.h"
#include "toolkit/config/respacing.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/data/image.h"
#include "toolkit/families/diffusion_planner/trainable.h"
#include "toolkit/families/dit/trainable.h"
#include "toolkit/io/npy.h"
#include "toolkit/io/safetensors.h"

namespace dtk {
namespace {

bool ends_in(const std::string& out, const char* extension) {
  return std::filesystem::path(out).extension() == extension;
}

LoadedConfig config_beside(FileSystem& files, const WeightsRequest& request) {
  const std::filesystem::path config = std::filesystem::path(request.path).parent_path() / "config.toml";
  if (!files.exists(config)) {
    throw ConfigError(request.path_place + ": no config.toml beside it says which model this is; " +
                      "name one with --config FILE");
  }
  return load_config(files, config, {});
}

// Weights go with the scales that they were trained with, unless a configuration of the user's names others.
void take_scales(FileSystem& files, const std::filesystem::path& weights, bool users_config,
                 RunConfig& config) {
  if (!config.drives() || (users_config && !config.data.normalization.empty())) return;
  const std::filesystem::path folder = files.is_folder(weights) ? weights : weights.parent_path();
  if (files.exists(folder / diffusion_planner::kScalesFile)) config.data.normalization = (folder / diffusion_planner::kScalesFile).string();
}

}  // namespace

SampleSource open_source(FileSystem& files, const WeightsRequest& request, const std::string& config_file) {
  WeightsRequest found = request;
  const auto checkpoint = checkpoint_in(files, request.path);
  if (checkpoint) found.path = checkpoint->string();
  SampleSource source;
  source.weights = open_weights(files, found);  // which compares all hashes of a checkpoint
  LoadedConfig loaded;
  if (!config_file.empty()) {
    loaded = load_config(files, config_file, {});
  } else if (checkpoint) {
    loaded = load_config(files, std::filesystem::path(found.path) / "config.toml", {});
  } else {
    loaded = config_beside(files, request);
  }
  source.config = std::move(loaded.config);
  take_scales(files, std::filesystem::path(found.path), !config_file.empty(), source.config);
  source.locations = std::move(loaded.locations);
  return source;
}

SampleSource open_sample_source(FileSystem& files, const SampleArguments& arguments) {
  if (arguments.checkpoint.empty()) {
    return open_source(files,
                       {arguments.weights, arguments.key, "--weights " + arguments.weights,
                        "--key " + arguments.key, "--key"},
                       arguments.config);
  }
  const auto folder = checkpoint_in(files, arguments.checkpoint);
  if (!folder) {
    throw ConfigError(
        "--checkpoint " + arguments.checkpoint + ": " + why_no_checkpoint(files, arguments.checkpoint) +
        "; name a checkpoint's folder, or a run folder to use its latest, or a file with --weights");
  }
  return open_source(files,
                     {folder->string(), arguments.raw ? "model" : "", "--checkpoint " + arguments.checkpoint,
                      "--raw", "--raw"},
                     arguments.config);
}

namespace {

void choose_sampler(SampleOptions& options, const RunConfig& config, const SampleArguments& arguments) {
  if (!arguments.sampler) return;
  const std::vector<std::string>& allowed = samplers_for(config.diffusion.objective);
  if (std::find(allowed.begin(), allowed.end(), *arguments.sampler) == allowed.end()) {
    throw ConfigError("--sampler " + *arguments.sampler + ": this model was trained with objective " +
                      config.diffusion.objective + "; allowed: " + listed(allowed, " or "));
  }
  options.sampler = *arguments.sampler;
}

int64_t count_of(const std::string& respacing, int64_t all) {
  try {
    return static_cast<int64_t>(respaced_steps(respacing, all).size());
  } catch (const std::invalid_argument& problem) {
    throw ConfigError("--respacing " + respacing + ": " + problem.what());
  }
}

// Steps and respacing say the same in two ways: what the command line says of one replaces both of the run.
void choose_steps(SampleOptions& options, const RunConfig& config, const SampleArguments& arguments) {
  if (arguments.steps || arguments.respacing) options.respacing = arguments.respacing;
  if (arguments.steps) options.steps = *arguments.steps;
  if (!has_diffusion_steps(options.sampler)) return;
  const int64_t all = config.diffusion.steps;
  if (arguments.respacing) {
    options.steps = count_of(*arguments.respacing, all);
    if (arguments.steps && *arguments.steps != options.steps) {
      throw ConfigError("--steps " + std::to_string(*arguments.steps) + " does not agree with --respacing " +
                        *arguments.respacing + ", which gives " + std::to_string(options.steps) +
                        " steps; remove one of them");
    }
  } else if (arguments.steps && (options.steps < kMinDiffusionSteps || options.steps > all)) {
    throw ConfigError("--steps " + std::to_string(options.steps) + ": " + options.sampler +
                      " goes through steps of the diffusion; allowed: " + std::to_string(kMinDiffusionSteps) +
                      " to " + std::to_string(all));
  }
}

// What the run says of these belongs to its own sampler; what the command line says must have a use.
void choose_gaussian_options(SampleOptions& options, const SampleArguments& arguments) {
  const auto refuse = [&](const std::string& name, const std::string& instead) {
    throw ConfigError(name + " has no use with the sampler " + options.sampler + "; remove it" + instead);
  };
  const bool gaussian = has_diffusion_steps(options.sampler);
  if (arguments.respacing && !gaussian) refuse("--respacing", "");
  if (arguments.clip_x0 && !gaussian) refuse("--clip-x0", "");
  if (arguments.eta && options.sampler != "ddim") refuse("--eta", gaussian ? ", or use --sampler ddim" : "");
  if (arguments.clip_x0) options.clip_x0 = *arguments.clip_x0;
  if (arguments.eta) options.eta = *arguments.eta;
}

}  // namespace

SampleOptions sample_options(const RunConfig& config, const SampleArguments& arguments) {
  SampleOptions options = config.sample;
  if (arguments.guidance) options.guidance = *arguments.guidance;
  choose_sampler(options, config, arguments);
  choose_steps(options, config, arguments);
  choose_gaussian_options(options, arguments);
  if (arguments.cfg_channels) options.cfg_channels = *arguments.cfg_channels;
  if (arguments.seed) options.seed = *arguments.seed;
  if (options.guidance != 1.0 && config.model.class_dropout <= 0) {
    throw ConfigError(
        "--guidance: this model was trained with class_dropout = 0 and has no null label to guide "
        "with; use --guidance 1");
  }
  if (arguments.cfg_channels && options.guidance == 1.0) {
    throw ConfigError("--cfg-channels has no use with guidance 1, which guides nothing; remove one of them");
  }
  if (options.cfg_channels > config.model.channels) {
    throw ConfigError("--cfg-channels " + std::to_string(options.cfg_channels) + ": the model has " +
                      std::to_string(config.model.channels) + " channels; allowed: 0 (all) to " +
                      std::to_string(config.model.channels));
  }
  return options;
}

std::vector<int64_t> sample_labels(const RunConfig& config, const SampleArguments& arguments) {
  std::vector<int64_t> labels;
  for (const int64_t label : arguments.classes) {
    if (label < 0 || label >= config.model.classes) {
      throw ConfigError("--classes: " + std::to_string(label) +
                        " is not a class of this model; allowed: 0 to " +
                        std::to_string(config.model.classes - 1));
    }
    labels.insert(labels.end(), static_cast<size_t>(arguments.per_class), label);
  }
  return labels;
}

void check_out_folder(FileSystem& files, const std::string& out) {
  const std::filesystem::path folder = std::filesystem::path(out).parent_path();
  if (folder.empty() || files.exists(folder)) return;
  throw ConfigError("--out " + out + ": the folder " + folder.string() + " does not exist; create it");
}

void check_out(FileSystem& files, const SampleArguments& arguments, const RunConfig& config) {
  check_out_folder(files, arguments.out);
  const int64_t channels = config.model.channels;
  if (ends_in(arguments.out, ".png") && !are_images(channels)) {
    throw ConfigError("--out " + arguments.out + ": samples of " + std::to_string(channels) +
                      " channels are not images; write them with --out FILE.safetensors or --out FILE.npy");
  }
}

at::Tensor draw_samples(const SampleSource& source, const SampleOptions& options,
                        const std::vector<int64_t>& labels, c10::Device device, const KeepGoing& keep_going) {
  const RunConfig& config = source.config;
  return with_trained<TrainableDit>(source, config, device, [&](const TrainableDit& model) {
    return sample(model.dit(), config.diffusion, options, labels, config.data.batch / config.train.accumulate,
                  keep_going);
  });
}

void write_samples(FileSystem& files, const SampleArguments& arguments, const at::Tensor& samples,
                   const std::vector<int64_t>& labels) {
  const std::filesystem::path out = arguments.out;
  if (ends_in(arguments.out, ".npy")) {
    write_file_atomically(files, out, [&](WritableFile& file) { write_npy(file, samples); });
    return;
  }
  if (ends_in(arguments.out, ".safetensors")) {
    write_file_atomically(files, out, [&](WritableFile& file) {
      write_safetensors(file, {{"samples", samples}, {"labels", at::tensor(labels, at::kLong)}});
    });
    return;
  }
  write_file_atomically(files, out,
                        encode_png(image_grid(samples, arguments.per_class, /*padding=*/2, /*scale=*/2)));
}

}  // namespace dtk
