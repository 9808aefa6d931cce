#include "toolkit/core/format.h"
#include "toolkit/families/llava/adapter_files.h"
#include "toolkit/families/llava/answers.h"
#include "toolkit/families/llava/claims.h"
#include "toolkit/families/llava/configuration.h"
#include "toolkit/families/llava/dialogue_source.h"
#include "toolkit/families/llava/exported.h"
#include "toolkit/families/llava/laws.h"
#include "toolkit/families/llava/planned.h"
#include "toolkit/families/llava/trainable.h"

namespace dtk::llava {
namespace {

std::string sizes_text(const models::LlavaOptions& model) {
  return fmt::format("depth {}, width {}, {} heads, {} words; tower of {} layers of {}, {} tokens a picture",
                     *model.text.depth, *model.text.hidden, *model.text.heads, *model.text.vocabulary,
                     model.tower_layers(), *model.vision.hidden, model.image_tokens());
}

bool has_published_sizes(const models::LlavaOptions& model) {
  if (model.preset == models::LlavaPreset::custom) return false;
  models::LlavaOptions published;
  published.preset = model.preset;
  published = models::resolved(published);
  return model.vision == published.vision && model.text == published.text;
}

class Family final : public Configuration {
 public:
  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator,
                                             const models::ParameterMade& made) const override {
    return std::make_unique<TrainableLlava>(config, device, std::move(generator), made);
  }

  RunData open_data(const LoadedConfig& loaded, const DataIdentity* before,
                    const OpeningProgress& progress) const override {
    return open_dialogues(loaded, before, progress);
  }

  RunData planned_data(const RunConfig& config, int64_t samples) const override {
    return planned_dialogues(config, samples);
  }

  void measure_data(RunConfig& config) const override { measure_dialogues(config); }
  std::string planned_note(const RunConfig& config) const override { return llava::planned_note(config); }

  std::vector<std::string> kept_results() const override {
    return {models::llava_kept_results.begin(), models::llava_kept_results.end()};
  }

  SizedJob of_size(const RunConfig& config, int64_t tokens) const override {
    return of_length(config, tokens);
  }
  std::vector<Claim> claims(const RunConfig& config) const override { return llava::claims(config); }
  std::array<SizedJob, 2> two_sizes(const RunConfig& config) const override { return two_lengths(config); }
  std::vector<TokenNote> token_notes(const RunConfig& config, c10::Device device) const override {
    return llava::token_notes(config, device);
  }

  ModelFacts facts(const RunConfig& config) const override {
    const models::LlavaOptions model = models::resolved(options_of(config).model);
    return {.model = has_published_sizes(model) ? "LLaVA-" + policies::text_of(model.preset) : "LLaVA",
            .sizes = sizes_text(model),
            .smaller = "llava.text.hidden and llava.text.depth",
            .sample_name = "dialogues",
            .tokens = options_of(config).data.max_length,
            .tensors = "answers"};
  }

  AdapterFiles adapter(const Weights& weights, const RunConfig& config) const override {
    return adapter_files(weights, config);
  }
  Exporting exporting(const Weights& own, const RunConfig& config,
                      const ExportChanges& changes) const override {
    return llava::exporting(own, config, changes);
  }
  std::string lost_by_export(const RunConfig& config, const ExportChanges& changes) const override {
    return llava::lost_by_export(config, changes);
  }

  // What a plan counts is of the largest micro-batch: a step's own where all are as long.
  double training_flops_per_sample(const RunConfig& config, int64_t planned_step) const override {
    if (options_of(config).data.pad != Padding::max) return 0;
    return ModelFamily::training_flops_per_sample(config, planned_step);
  }

  SampleUsage sample_usage() const override { return questions_usage(); }

  std::unique_ptr<Drawing> drawing(FileSystem& files, const SampleSource& source,
                                   const SampleArguments& arguments) const override {
    return draw_answers(files, source, arguments);
  }
};

}  // namespace

const ModelFamily& family() {
  static const Family one;
  return one;
}

}  // namespace dtk::llava
