#include "toolkit/families/dit/drawing.h"

#include <ATen/ops/tensor.h>

#include <map>
#include <stdexcept>
#include <utility>

#include "toolkit/config/keys.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/data/image.h"
#include "toolkit/diffusion/diffusion_names.h"
#include "toolkit/diffusion/respacing.h"
#include "toolkit/families/dit/sampling.h"
#include "toolkit/families/dit/trainable.h"
#include "toolkit/io/npy.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/train/trained_model.h"

namespace dtk::dit {
namespace {

void choose_sampler(DrawOptions& options, const RunConfig& config, const SampleArguments& arguments) {
  const auto asked = arguments.given<std::string>("sampler");
  if (!asked) return;
  const Prediction objective = options_of(config).diffusion.objective;
  const auto sampler = policies::parse_enum<SamplerKind>(*asked);
  if (!sampler || !draws_from(*sampler, objective)) {
    throw ConfigError(fmt::format("--sampler {}: this model was trained with objective {}; allowed: {}",
                                  *asked, policies::text_of(objective), sampler_choices(objective)));
  }
  options.sampler.sampler = *sampler;
}

int64_t steps_of(const std::string& respacing, int64_t all) {
  try {
    return static_cast<int64_t>(respaced_steps(respacing, all).size());
  } catch (const std::invalid_argument& problem) {
    throw ConfigError(fmt::format("--respacing {}: {}", respacing, problem.what()));
  }
}

// Steps and respacing say the same in two ways: what the command line says of one replaces both of the run.
void choose_steps(DrawOptions& options, const RunConfig& config, const SampleArguments& arguments) {
  const auto steps = arguments.given<int64_t>("steps");
  const auto respacing = arguments.given<std::string>("respacing");
  if (steps || respacing) options.sampler.respacing = respacing;
  if (steps) options.steps = *steps;
  if (!has_diffusion_steps(options.sampler.sampler)) return;
  const int64_t all = options_of(config).diffusion.steps;
  if (respacing) {
    options.steps = steps_of(*respacing, all);
    if (steps && *steps != options.steps) {
      throw ConfigError(fmt::format(
          "--steps {} does not agree with --respacing {}, which gives {} steps; remove one of them", *steps,
          *respacing, options.steps));
    }
  } else if (steps && (options.steps < kMinDiffusionSteps || options.steps > all)) {
    throw ConfigError(fmt::format("--steps {}: {} goes through steps of the diffusion; allowed: {} to {}",
                                  options.steps, policies::text_of(options.sampler.sampler),
                                  kMinDiffusionSteps, all));
  }
}

// What the run says of these belongs to its own sampler; what the command line says must have a use.
void choose_gaussian_options(DrawOptions& options, const SampleArguments& arguments) {
  const auto refuse = [&](const std::string& name, const std::string& instead) {
    throw ConfigError(fmt::format("{} has no use with the sampler {}; remove it{}", name,
                                  policies::text_of(options.sampler.sampler), instead));
  };
  const bool gaussian = has_diffusion_steps(options.sampler.sampler);
  const auto clip_x0 = arguments.given<bool>("clip-x0");
  const auto eta = arguments.given<double>("eta");
  if (arguments.given<std::string>("respacing") && !gaussian) refuse("--respacing", "");
  if (clip_x0 && !gaussian) refuse("--clip-x0", "");
  if (eta && options.sampler.sampler != SamplerKind::ddim)
    refuse("--eta", gaussian ? ", or use --sampler ddim" : "");
  options.sampler.clip_x0 = clip_x0.value_or(options.sampler.clip_x0);
  options.sampler.eta = eta.value_or(options.sampler.eta);
}

int64_t per_class(const SampleArguments& arguments) {
  return arguments.given<int64_t>("per-class").value_or(1);
}

std::string allowed_for(const char* key) {
  return find_key(key)->allowed;
}

// The run's [sample] options with what the command line says on top.
DrawOptions asked_options(const RunConfig& config, const SampleArguments& arguments) {
  DrawOptions options = draw_options(config);
  options.grid.guidance = arguments.given<double>("guidance").value_or(options.grid.guidance);
  choose_sampler(options, config, arguments);
  choose_steps(options, config, arguments);
  choose_gaussian_options(options, arguments);
  const auto cfg_channels = arguments.given<int64_t>("cfg-channels");
  options.grid.cfg_channels = cfg_channels.value_or(options.grid.cfg_channels);
  options.grid.seed = arguments.given<int64_t>("seed").value_or(options.grid.seed);
  if (options.grid.guidance != 1.0 && options_of(config).model.class_dropout <= 0) {
    throw ConfigError(
        "--guidance: this model was trained with class_dropout = 0 and has no null label to guide "
        "with; use --guidance 1");
  }
  if (cfg_channels && options.grid.guidance == 1.0) {
    throw ConfigError("--cfg-channels has no use with guidance 1, which guides nothing; remove one of them");
  }
  if (options.grid.cfg_channels > options_of(config).model.channels) {
    throw ConfigError(fmt::format("--cfg-channels {0}: the model has {1} channels; allowed: 0 (all) to {1}",
                                  options.grid.cfg_channels, options_of(config).model.channels));
  }
  return options;
}

std::vector<int64_t> sample_labels(const SampleSource& source, const SampleArguments& arguments) try {
  std::vector<int64_t> labels;
  const ClassChoice classes(arguments.given<std::string>("classes").value(),
                            options_of(source.config).model.classes);
  for (const int64_t label : classes.labels(source.class_names))
    labels.insert(labels.end(), static_cast<size_t>(per_class(arguments)), label);
  return labels;
} catch (const std::invalid_argument& problem) {
  throw ConfigError(std::string("--classes: ") + problem.what());
}

// Better said before they are drawn.
void check_out(FileSystem& files, const SampleArguments& arguments, const RunConfig& config) {
  check_out_folder(files, arguments.out);
  if (arguments.given<bool>("unscale") && image_kind(config) != ImageKind::latents) {
    throw ConfigError("--unscale has no use with data.kind = " + toml_text(image_kind(config)) +
                      ", whose samples are not scaled; remove it");
  }
  const int64_t channels = options_of(config).model.channels;
  if (arguments.out.ends_with(".png") && !are_images(channels)) {
    throw ConfigError(
        fmt::format("--out {}: samples of {} channels are not images; write them with --out "
                    "FILE.safetensors or --out FILE.npy",
                    arguments.out, channels));
  }
}

class DrawnImages final : public TensorDrawing {
 public:
  DrawnImages(FileSystem& files, const SampleSource& source, const SampleArguments& arguments)
      : source_(source),
        arguments_(arguments),
        options_(asked_options(source.config, arguments)),
        labels_(sample_labels(source, arguments)) {
    check_out(files, arguments, source.config);
  }
  std::string counted() const override { return count_text(static_cast<int64_t>(labels_.size()), "sample"); }
  std::vector<NamedTensor> draw(c10::Device device, const KeepGoing& keep_going) const override {
    const RunConfig& config = source_.config;
    at::Tensor samples = with_trained<TrainableDit>(source_, config, device, [&](const TrainableDit& model) {
      return sample(model.dit(), options_of(config).diffusion, options_, labels_,
                    samples_of_micro_batch(config), keep_going);
    });
    if (!samples.defined()) return {};
    return {{"samples", as_trained() ? samples : unscaled(samples, options_of(config).data)}};
  }
  void write(FileSystem& files, const std::vector<NamedTensor>& drawn) const override {
    const std::string& out = arguments_.out;
    const at::Tensor& samples = drawn.front().tensor;
    if (out.ends_with(".png")) {
      const UnpaintedImage grid = labelled_grid(samples, labels_, per_class(arguments_), source_.class_names);
      return write_file_atomically(files, out, encode_png(grid.paint()));
    }
    write_file_atomically(files, out, [&](WritableFile& file) {
      if (out.ends_with(".npy")) return write_npy(file, samples);
      write_safetensors(file, {{"samples", samples}, {"labels", at::tensor(labels_, at::kLong)}}, unit());
    });
  }

 private:
  bool as_trained() const { return !arguments_.given<bool>("unscale").value_or(true); }

  // What the header says of latents.
  std::map<std::string, std::string> unit() const {
    const ImageOptions& data = options_of(source_.config).data;
    if (image_kind(source_.config) != ImageKind::latents) return {};
    const std::string numbers = fmt::format("(latents - {}) * {}", data.latent_shift, data.latent_scale);
    return {{"unit", as_trained() ? "as the model is trained: " + numbers
                                  : "as the autoencoder gives latents; the model is trained on " + numbers}};
  }

  const SampleSource source_;
  const SampleArguments arguments_;
  const DrawOptions options_;
  const std::vector<int64_t> labels_;
};

}  // namespace

SampleUsage image_usage() {
  return {.arguments = {{"classes", std::string()},
                        {"per-class", int64_t{}, "[1, 1024]"},
                        {"unscale", bool{}},
                        {"guidance", double{}, allowed_for("sample.guidance")},
                        {"cfg-channels", int64_t{}, allowed_for("sample.cfg_channels")},
                        {"sampler", std::string(), allowed_for("sample.sampler")},
                        {"respacing", std::string()},
                        {"eta", double{}, allowed_for("sample.eta")},
                        {"clip-x0", bool{}},
                        {"seed", int64_t{}, allowed_for("sample.seed")},
                        {"steps", int64_t{}, allowed_for("sample.steps")}},
          .value = "LIST",
          .example = "0,1,2",
          .purpose = "for images and latents",
          .samples = "samples of its classes",
          .out = "FILE",
          .example_out = "grid.png",
          .endings = {".png", ".safetensors", ".npy"},
          .help = R"(  --classes LIST        a row each: cat,dog,0-4, or all;  --per-class K  samples
  --out FILE            .png, .safetensors, .npy;  --unscale false  as trained
)",
          .options_help = R"(  --sampler NAME        euler, heun, ddpm or ddim;  --steps N  sampler steps
  --respacing TEXT      which steps of ddpm, ddim: 250, 10,15,20 or ddim50
  --eta E               noise of ddim;  --clip-x0 true|false
  --guidance SCALE      1 is off;  --cfg-channels N  channels guided, 0 is all
)"};
}

std::unique_ptr<Drawing> draw_images(FileSystem& files, const SampleSource& source,
                                     const SampleArguments& arguments) {
  return std::make_unique<DrawnImages>(files, source, arguments);
}

}  // namespace dtk::dit
