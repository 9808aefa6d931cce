#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/data/pixel_source.h"
#include "toolkit/families/dit/claims.h"
#include "toolkit/families/dit/configuration.h"
#include "toolkit/families/dit/data.h"
#include "toolkit/families/dit/draft.h"
#include "toolkit/families/dit/drawing.h"
#include "toolkit/families/dit/flops.h"
#include "toolkit/families/dit/sampling.h"
#include "toolkit/families/dit/trainable.h"

namespace dtk::dit {
namespace {

std::string sizes_of(const models::DitOptions& model) {
  return fmt::format("depth {}, width {}, {} heads, patch {}, {} tokens; {}, {} classes", *model.depth,
                     *model.hidden, *model.heads, *model.patch, model.tokens(),
                     shape_text(model.channels, model.image_size, model.image_size), model.classes);
}

std::string drawn_text(const RunConfig& config) {
  const int64_t count = grid_classes(config).count() * options_of(config).grid.per_class;
  if (count == 0) return "";
  return fmt::format("{} {} in {} steps", count,
                     are_images(options_of(config).model.channels) ? "images" : "latents",
                     config.sample.steps);
}

/// Of dit-sample, that draw the grid of a run as it would have been.
std::string grid_arguments(const RunConfig& config) {
  const auto& asked = options_of(config).grid.classes;
  const std::string classes = asked ? *asked : fmt::format("0-{}", grid_classes(config).count() - 1);
  return fmt::format("--classes {} --per-class {}", shell_quoted(classes), options_of(config).grid.per_class);
}

class Family final : public Configuration {
 public:
  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator,
                                             const models::ParameterMade& made) const override {
    return std::make_unique<TrainableDit>(config, device, std::move(generator), made);
  }

  RunData open_data(const LoadedConfig& loaded, const DataIdentity* before,
                    const OpeningProgress& progress) const override {
    return image_data(loaded.config, dit::open_data(loaded, before, progress), before);
  }

  std::string drafts() const override {
    return "a folder with one folder of pictures per class, latents (.npy or .safetensors), an IDX file of "
           "images beside its labels";
  }
  std::optional<DataDraft> draft(const std::filesystem::path& data, bool small) const override {
    return draft_of_images(data, small);
  }

  RunData planned_data(const RunConfig& config, int64_t samples) const override {
    return image_data(config, planned_images(options_of(config).model, samples));
  }

  std::vector<std::string> kept_results() const override {
    return {models::dit_kept_results.begin(), models::dit_kept_results.end()};
  }

  // Pictures of twice the width have four times the tokens.
  std::array<SizedJob, 2> two_sizes(const RunConfig& config) const override {
    const int64_t samples = samples_of_micro_batch(config);
    const SizedJob few = ModelFamily::of_size(config, samples * facts(config).tokens);
    SizedJob many = few;
    options_of(many.config).model.image_size *= 2;
    many.tokens = samples * facts(many.config).tokens;
    return {few, many};
  }

  std::vector<Claim> claims(const RunConfig& /*config*/) const override { return dit::claims(); }

  ModelFacts facts(const RunConfig& config) const override {
    const models::DitOptions model = models::resolved(options_of(config).model);
    return {.model = models::published_size(model.name) ? policies::text_of(model.name) : "DiT",
            .sizes = sizes_of(model),
            .smaller = "model.name, or model.depth and model.hidden",
            .sample_name = "images",
            .tokens = model.tokens(),
            .drawn = drawn_text(config),
            .classes_key = "model.classes",
            .count_key = "sample.per_class",
            .count_keys = "sample.per_class or sample.classes",
            .pictures = are_images(model.channels),
            .size_keys = "sample.per_class, sample.classes or model.image_size",
            .drawn_note = "One row a class, " + std::to_string(options_of(config).grid.per_class) +
                          " samples each; the noise is the same in all grids.",
            .tensors =
                "latents of " + std::to_string(model.channels) + " channels, as the autoencoder gives them",
            .draw_again = grid_arguments(config),
            .fewer = "fewer at a time with "};
  }

  double training_flops_per_sample(const RunConfig& config, int64_t) const override {
    return static_cast<double>(training_flops_per_image(options_of(config).model));
  }

  UnpaintedImage picture_of(const RunConfig& config, const std::vector<NamedTensor>& samples,
                            const std::vector<std::string>& class_names) const override {
    const at::Tensor& labels = samples.at(1).tensor;
    return labelled_grid(
        samples.front().tensor,
        {labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + labels.numel()},
        options_of(config).grid.per_class, class_names);
  }

  SampleUsage sample_usage() const override { return image_usage(); }

  std::unique_ptr<Drawing> drawing(FileSystem& files, const SampleSource& source,
                                   const SampleArguments& arguments) const override {
    return draw_images(files, source, arguments);
  }

  at::Tensor untrained(const RunConfig& config, const std::string& name) const override {
    if (name != "pos_embed") return ModelFamily::untrained(config, name);
    const models::DitOptions model = models::resolved(options_of(config).model);
    return models::position_table(*model.hidden, model.image_size / *model.patch);
  }
};

}  // namespace

const ModelFamily& family() {
  static const Family one;
  return one;
}

}  // namespace dtk::dit
