#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <dtk/policies/guards.h>
#include <dtk/toolkit/checkpoint_store.h>
#include <dtk/toolkit/config_io.h>
#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/image.h>
#include <dtk/toolkit/model_policies.h>
#include <dtk/toolkit/policy_places.h>
#include <dtk/toolkit/run.h>
#include <dtk/toolkit/safetensors.h>
#include <dtk/toolkit/sample_command.h>
#include <dtk/toolkit/streams.h>

namespace dtk {
namespace {

bool is_safetensors(const std::string& out) {
  return std::filesystem::path(out).extension() == ".safetensors";
}

LoadedConfig config_beside(FileSystem& files, const WeightsRequest& request) {
  const std::filesystem::path config = std::filesystem::path(request.path).parent_path() / "config.toml";
  if (!files.exists(config)) {
    throw ConfigError(request.path_place + ": no config.toml beside it says which model this is; " +
                      "name one with --config FILE");
  }
  return load_config(files, config, {});
}

}  // namespace

SampleSource open_source(FileSystem& files, const WeightsRequest& request, const std::string& config_file) {
  WeightsRequest found = request;
  const bool folder = files.is_folder(request.path);
  if (const auto checkpoint = folder ? checkpoint_in(files, request.path) : std::nullopt) {
    found.path = checkpoint->string();
  }
  SampleSource source;
  source.weights = open_weights(files, found);  // which compares all hashes of a checkpoint
  LoadedConfig loaded;
  if (!config_file.empty()) {
    loaded = load_config(files, config_file, {});
  } else if (folder) {
    loaded = load_config(files, std::filesystem::path(found.path) / "config.toml", {});
  } else {
    loaded = config_beside(files, request);
  }
  source.config = std::move(loaded.config);
  source.places = std::move(loaded.places);
  return source;
}

SampleSource open_sample_source(FileSystem& files, const SampleArguments& arguments) {
  if (arguments.checkpoint.empty()) {
    return open_source(files,
                       {arguments.weights, arguments.key, "--weights " + arguments.weights,
                        "--key " + arguments.key, "--key"},
                       arguments.config);
  }
  // A file is not a checkpoint.
  const auto folder = checkpoint_in(files, arguments.checkpoint);
  if (!folder) {
    throw ConfigError(
        "--checkpoint " + arguments.checkpoint +
        ": no complete checkpoint; name a checkpoint's folder, or a run folder to use its latest");
  }
  return open_source(files,
                     {folder->string(), arguments.raw ? "model" : "", "--checkpoint " + arguments.checkpoint,
                      "--raw", "--raw"},
                     arguments.config);
}

SampleOptions sample_options(const RunConfig& config, const SampleArguments& arguments) {
  SampleOptions options = config.sample;
  if (arguments.guidance) options.guidance = *arguments.guidance;
  if (arguments.steps) options.steps = *arguments.steps;
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

void check_out(FileSystem& files, const SampleArguments& arguments, const RunConfig& config) {
  const std::filesystem::path folder = std::filesystem::path(arguments.out).parent_path();
  if (!folder.empty() && !files.exists(folder)) {
    throw ConfigError("--out " + arguments.out + ": the folder " + folder.string() +
                      " does not exist; create it");
  }
  const int64_t channels = config.model.channels;
  if (!is_safetensors(arguments.out) && channels != 1 && channels != 3) {
    throw ConfigError("--out " + arguments.out + ": samples of " + std::to_string(channels) +
                      " channels are not images; write them with --out FILE.safetensors");
  }
}

at::Tensor draw_samples(const SampleSource& source, const SampleOptions& options,
                        const std::vector<int64_t>& labels, c10::Device device, const GoOn& go_on) try {
  models::Dit model(source.config.model, device);
  load_weights(source.weights, model);
  policies::PolicyOptions forward_only = source.config.policies;
  forward_only.ema.enabled = forward_only.checkpoint.enabled = policies::Enabled::off;
  policies::PolicySet policies = put_policies_in(forward_only, model);
  const auto scope = policies.forward_scope();
  const RunConfig& config = source.config;
  return sample(model, options, labels, config.data.batch / config.train.accumulate, go_on);
} catch (const policies::PolicyError& error) {
  throw with_place(error, source.places);
}

void write_samples(FileSystem& files, const SampleArguments& arguments, const at::Tensor& samples,
                   const std::vector<int64_t>& labels) {
  const std::filesystem::path out = arguments.out;
  if (is_safetensors(arguments.out)) {
    write_file_atomically(files, out, [&](WritableFile& file) {
      write_safetensors(file, {{"samples", samples}, {"labels", at::tensor(labels, at::kLong)}});
    });
    return;
  }
  write_file_atomically(files, out,
                        encode_png(image_grid(samples, arguments.per_class, /*padding=*/2, /*scale=*/2)));
}

}  // namespace dtk
