#include "toolkit/core/format.h"
#include "toolkit/families/diffusion_planner/claims.h"
#include "toolkit/families/diffusion_planner/configuration.h"
#include "toolkit/families/diffusion_planner/drawing.h"
#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/families/diffusion_planner/trainable.h"

namespace dtk::diffusion_planner {
namespace {

std::string sizes_text(const models::DiffusionPlannerOptions& model) {
  return fmt::format("width {}, {} heads; {} objects, {} trajectories of {} steps", *model.hidden_dim,
                     *model.num_heads, model.encoder_tokens(), model.decoder_tokens(), *model.future_len);
}

std::string drawn_text(const RunConfig& config) {
  const int64_t frames = options_of(config).sample.frames;
  if (frames == 0) return "";
  return fmt::format("trajectories of up to {} frames in {} steps", frames, config.sample.steps);
}

class Family final : public Configuration {
 public:
  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator,
                                             const models::ParameterMade& made) const override {
    return std::make_unique<TrainableDiffusionPlanner>(config, device, std::move(generator), made);
  }

  RunData open_data(const LoadedConfig& loaded, const DataIdentity*, const OpeningProgress&) const override {
    return open_frames(loaded);
  }

  std::string drafts() const override { return ".npz frames of driving or a JSON list of them"; }
  std::optional<DataDraft> draft(const std::filesystem::path& data, bool) const override {
    return draft_of_frames(data);
  }

  RunData planned_data(const RunConfig& config, int64_t samples) const override {
    return planned_frames(config, samples);
  }

  std::vector<std::string> kept_results() const override {
    return {models::diffusion_planner_kept_results.begin(), models::diffusion_planner_kept_results.end()};
  }

  std::vector<Claim> claims(const RunConfig& /*config*/) const override {
    return diffusion_planner::claims();
  }

  ModelFacts facts(const RunConfig& config) const override {
    const models::DiffusionPlannerOptions model = models::resolved(options_of(config).model);
    return {.model = "Diffusion-Planner " + policies::text_of(model.preset),
            .sizes = sizes_text(model),
            .smaller = "diffusion_planner.hidden_dim and its depths",
            .sample_name = "frames",
            .tokens = model.encoder_tokens() + model.decoder_tokens(),
            .drawn = drawn_text(config),
            .count_key = "sample.frames",
            .count_keys = "sample.frames",
            .tensors = "trajectories",
            .draw_again =
                "--frames " + (options_of(config).data.held_out.empty() ? options_of(config).data.frames
                                                                        : options_of(config).data.held_out),
            .draws_folder = true,
            .fewer = "them of a shorter list with "};
  }

  SampleUsage sample_usage() const override { return frames_usage(); }

  std::unique_ptr<Drawing> drawing(FileSystem& files, const SampleSource& source,
                                   const SampleArguments& arguments) const override {
    return draw_frames(files, source, arguments);
  }

  // Weights go with the scales that they were trained with, unless a configuration of the user's names
  // others.
  void take_files(FileSystem& files, const std::filesystem::path& folder, bool users,
                  RunConfig& config) const override {
    if (users && !options_of(config).data.normalization.empty()) return;
    if (files.exists(folder / kScalesFile))
      options_of(config).data.normalization = (folder / kScalesFile).string();
  }
};

}  // namespace

const ModelFamily& family() {
  static const Family one;
  return one;
}

}  // namespace dtk::diffusion_planner
