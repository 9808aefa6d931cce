// Trajectories that the driving model draws of whole frames, and how they are scored.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/diffusion_planner/golden.h"
#include "support/diffusion_planner/objective_job.h"
#include "support/diffusion_planner/path_metrics.h"
#include "support/error_text.h"
#include "toolkit/families/diffusion_planner/metrics.h"
#include "toolkit/families/diffusion_planner/noise.h"
#include "toolkit/families/diffusion_planner/objective.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using namespace dtk::test;
using models::DiffusionPlanner;

namespace {

TrajectoryObjective objective_of(const DiffusionPlanner& model, c10::Device device = at::kCPU) {
  return {model.options(), objective_options_of(model.options()), device};
}

at::Tensor noise(const DiffusionPlanner& model, int64_t count) {
  const models::DiffusionPlannerOptions& options = model.options();
  return at::randn({count, options.decoder_tokens(), 1 + *options.future_len, 4},
                   policies::make_generator(at::kCPU, 8));
}

}  // namespace

TEST_CASE(
    "diffusion_planner objective: trajectories of every preset, eleven evaluations and one look at the scene",
    "[device]") {
  for (const std::string preset : {"H", "M", "UP"}) {
    INFO(preset);
    DiffusionPlanner model = frame_diffusion_planner(preset, test_device());
    int evaluations = 0, scenes = 0;
    model.seam.run = [&](std::string_view path, const models::ModuleFn& fn, models::Tensors&& in) {
      if (path.ends_with("dit.final_layer")) ++evaluations;
      if (path.ends_with("encoder.lane_encoder")) ++scenes;
      return fn(std::move(in));
    };
    FrameBatch frames = random_frames(model.options(), 2, test_device());
    frames.ego_agent_future.reset(), frames.neighbor_agents_future.reset();
    const auto drawn = objective_of(model, test_device()).predict(model, frames);
    CHECK(evaluations == 11);
    CHECK(scenes == 1);
    CHECK(drawn.trajectories.sizes() == at::IntArrayRef({2, 9, 80, 4}));
    CHECK_FALSE(drawn.trajectories.requires_grad());
    CHECK_VALUES(drawn.trajectories.isfinite().all().item<bool>());
    CHECK(drawn.logits.defined() == (preset != "UP"));
    if (drawn.logits.defined()) CHECK(drawn.logits.sizes() == at::IntArrayRef({2, 5}));
  }
}

TEST_CASE("diffusion_planner objective: a trajectory is the solver's, in metres, and the logits are of it") {
  const DiffusionPlanner model = frame_diffusion_planner("H");
  const TrajectoryObjective objective = objective_of(model);
  for (const at::Tensor& initial : {at::Tensor(), noise(model, 3)}) {
    INFO((initial.defined() ? "from noise" : "from zeros"));
    const auto drawn = objective.predict(model, golden_frames("H"), initial);

    const at::NoGradGuard no_grad;
    FrameBatch batch = golden_frames("H");
    headings_to_cos_sin(batch);
    Normalizer(published_scales(33), at::kCPU).normalize(batch);
    const at::Tensor now = at::cat({batch.ego_current_state.narrow(1, 0, 4).unsqueeze(1),
                                    batch.neighbor_agents_past.select(2, 30).narrow(2, 0, 4)},
                                   1);
    const models::DrivingContext context = model.encode(driving_scene(batch), false);
    const at::Tensor wanted = solve_trajectories(
        [&](const at::Tensor& x, const at::Tensor& t) { return model.denoise(x, t, context, false); }, now,
        initial.defined() ? initial : at::zeros({3, 9, 81, 4}));
    CHECK(at::allclose(drawn.trajectories, to_metres(wanted.narrow(2, 1, 80)), 1e-6, 1e-5));
    CHECK(
        at::allclose(drawn.logits, model.turn_indicator(wanted.select(1, 0), context.encoding), 1e-5, 1e-6));
  }
}

TEST_CASE("diffusion_planner objective: what is drawn from zeros is the same each time, from noise another") {
  const DiffusionPlanner model = frame_diffusion_planner("H");
  const TrajectoryObjective objective = objective_of(model);
  const auto drawn = [&](const at::Tensor& initial) {
    return objective.predict(model, golden_frames("H"), initial).trajectories;
  };
  const at::Tensor first = drawn({});
  at::manual_seed(5);
  CHECK(at::equal(drawn({}), first));
  CHECK(at::equal(drawn(at::zeros({3, 9, 81, 4})), first));
  CHECK_FALSE(at::equal(drawn(noise(model, 3)), first));
  CHECK(test::error_text<std::invalid_argument>([&] {
          drawn(at::zeros({3, 9, 80, 4}));
        }) ==
        "denoise: x [3, 9, 80, 4] at t [3, 9, 80, 1]; diffusion_planner.preset = \"H\" takes x [3, 9, 81, 4] "
        "and t [3, "
        "9, 81, 1]");
}

TEST_CASE(
    "diffusion_planner objective: a model that has learnt nothing stands where positions are counted from") {
  const DiffusionPlanner model(frame_diffusion_planner_options("H"), at::kCPU);
  const at::Tensor drawn = objective_of(model).predict(model, golden_frames("H")).trajectories;
  CHECK(at::allclose(drawn, at::tensor({10.0F, 0.0F, 0.0F, 0.0F}).expand({3, 9, 80, 4}), 0, 1e-5));
}

TEST_CASE("diffusion_planner objective: outcomes of stored frames have the original's metrics") {
  const OriginalNumbers golden;
  const auto raw = [&](const char* name) { return golden.at(std::string("valid.raw.") + name, at::kFloat); };
  FrameBatch frames;
  frames.ego_agent_future = raw("ego_agent_future");
  frames.neighbor_agents_future = raw("neighbor_agents_future");
  // More than are predicted, and a past: neither counts.
  const at::Tensor now = raw("neighbor_agents_past");
  const at::Tensor more = at::cat({now, at::ones_like(now)}, 1);
  frames.neighbor_agents_past = at::cat({at::ones_like(more), more}, 2);
  frames.turn_indicators = raw("turn_indicators");
  frames.ego_shape = raw("ego_shape");
  frames.line_strings = raw("line_strings");
  test::PathMetrics metrics;
  metrics.add(golden.at("valid.prediction", at::kFloat), golden.at("valid.turn_indicator_logit", at::kFloat),
              outcome_of(frames));
  const PathScores scores = metrics.scores_sync();
  const auto& wanted = golden.notes()["validation"]["metrics"];
  const auto close = [&](double value, const nlohmann::json& number) {
    CHECK(value == Approx(number.get<double>()).epsilon(2e-6).margin(1e-8));
  };
  close(scores.neighbor, wanted["avg_loss_neighbor"]);
  close(scores.turn_accuracy, wanted["turn_indicator_accuracy"]);
  close(scores.turn_change_accuracy, wanted["turn_indicator_change_accuracy"]);
  const auto& ego = wanted["ego_means"];
  close(scores.ego_lateral, ego["ego_position_lat_loss"]);
  close(scores.ego_longitudinal, ego["ego_position_lon_loss"]);
  close(scores.ego_neighbor_margin, ego["ego_neighbor_margin_loss"]);
  close(scores.ego_road_border, ego["ego_road_border_loss"]);
}

TEST_CASE("diffusion_planner objective: a prediction that is what happened scores 0 in every preset") {
  for (const std::string preset : {"H", "UP"}) {
    INFO(preset);
    const Outcome outcome = outcome_of(golden_frames(preset));
    const at::Tensor truth = at::cat({outcome.ego_future.unsqueeze(1), outcome.neighbors_future}, 1);
    test::PathMetrics metrics;
    metrics.add(truth, {}, outcome);
    const PathScores scores = metrics.scores_sync();
    CHECK(scores.samples == 3);
    CHECK(scores.ego_lateral == 0);
    CHECK(scores.neighbor == 0);
    metrics.add(truth + 1, {}, outcome);
    CHECK(metrics.scores_sync().neighbor == Approx(0.5));
  }
}
