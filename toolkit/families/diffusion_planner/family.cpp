#include "toolkit/families/diffusion_planner/data.h"
#include "toolkit/families/diffusion_planner/trainable.h"
#include "toolkit/train/model_family.h"

namespace dtk::diffusion_planner {
namespace {

std::string sizes_text(const models::DiffusionPlannerOptions& model) {
  return "width " + std::to_string(*model.hidden_dim) + ", " + std::to_string(*model.num_heads) + " heads; " +
         std::to_string(model.encoder_tokens()) + " objects, " + std::to_string(model.decoder_tokens()) +
         " trajectories of " + std::to_string(*model.future_len) + " steps";
}

std::string drawn_text(const SampleOptions& sample) {
  if (sample.frames == 0) return "";
  return "trajectories of up to " + std::to_string(sample.frames) + " frames in " +
         std::to_string(sample.steps) + " steps";
}

class Family final : public ModelFamily {
 public:
  std::string name() const override { return "diffusion_planner"; }

  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator) const override {
    return std::make_unique<TrainableDiffusionPlanner>(config, device, std::move(generator));
  }

  RunData open_data(const LoadedConfig& loaded) const override { return open_frames(loaded); }

  RunData planned_data(const RunConfig& config, int64_t samples, PlannedValues values) const override {
    return planned_frames(config, samples, /*zeros=*/values == PlannedValues::made_up);
  }

  ModelFacts facts(const RunConfig& config) const override {
    const models::DiffusionPlannerOptions model = models::resolved(config.diffusion_planner);
    return {.model = "Diffusion-Planner " + model.preset,
            .sizes = sizes_text(model),
            .smaller = "diffusion_planner.hidden_dim and its depths",
            .sample_name = "frames",
            .tokens = model.encoder_tokens() + model.decoder_tokens(),
            .drawn = drawn_text(config.sample),
            .count_key = "sample.frames",
            .count_keys = "sample.frames",
            .tensors = "trajectories",
            .draw_again =
                "--frames " + (config.data.held_out.empty() ? config.data.frames : config.data.held_out),
            .draws_folder = true,
            .fewer = "them of a shorter list with "};
  }
};

}  // namespace

const ModelFamily& family() {
  static const Family one;
  return one;
}

}  // namespace dtk::diffusion_planner
