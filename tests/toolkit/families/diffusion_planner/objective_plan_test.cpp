// The driving model's step with its objective, planned: where nothing is computed, every read of a value is
// an error.
#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <utility>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/diffusion_planner/job.h"
#include "support/diffusion_planner/objective_job.h"
#include "support/diffusion_planner/preset.h"
#include "toolkit/families/diffusion_planner/objective.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using namespace dtk::test;

namespace {

using dtk::test::kCpu;
using dtk::test::kCuda;

class FrameTraining {
 public:
  FrameTraining(const models::DiffusionPlannerOptions& model, int64_t batch, c10::Device device)
      : model_(built(model, device)),
        optimizer_({}, model_.parameters()),
        policies_(put_in(no_policies(), model_)),
        ledger_(policies::saved_tensor_ledger()),
        objective_(model_.options(), objective_options_of(model), device),
        noise_(policies::make_generator(device, 5)) {
    const policies::OwnerScope owner(policies::Category::data, "frames");
    frames_ = random_frames(model_.options(), batch, device);
  }

  at::Tensor loss() {
    const policies::SavedTensorScope ledger(ledger_);
    const policies::ModulePathScope path("loss");
    const auto scope = policies_.forward_scope();
    return objective_.loss(model_, frames_, noise_, /*training=*/true);
  }
  void step() {
    at::Tensor sum = loss();
    torch::autograd::backward({std::exchange(sum, {})}, {});
    policies_.before_step();
    optimizer_.step(1e-4);
    optimizer_.release_gradients();
    policies_.after_step();
  }
  void predict() { objective_.predict(model_, frames_); }

 private:
  static models::DiffusionPlanner built(const models::DiffusionPlannerOptions& options, c10::Device device) {
    const policies::OwnerScope owner(policies::Category::parameters, "model");
    models::DiffusionPlanner model(options, device, policies::make_generator(device, 3));
    planner::claim_state(model.parameters());
    return model;
  }

  models::DiffusionPlanner model_;
  AdamW optimizer_;
  policies::PolicySet policies_;
  const std::shared_ptr<policies::SavedTensorLayer> ledger_;
  const TrajectoryObjective objective_;
  at::Generator noise_;
  FrameBatch frames_;
};

/// By module.
Bytes kept(const models::DiffusionPlannerOptions& model, int64_t batch, c10::Device device) {
  FrameTraining training(model, batch, device);
  const at::Tensor loss = training.loss();
  const policies::MemoryAccounts& accounts =
      device.is_cpu() ? policies::cpu_accounts() : policies::device_accounts();
  return accounts.live().items()[policies::Category::saved];
}

Bytes planned(const models::DiffusionPlannerOptions& model, int64_t batch, c10::Device device) {
  Bytes bytes;
  planner::simulate(device, [&](const auto&) { bytes = kept(model, batch, device); });
  return bytes;
}

/// What backward reads of a sample that is the batch's own by hand, and here made from the frames: which
/// neighbours are absent when (bool), and what enters a linear layer as it is (fp32).
Bytes made_from_frames(const models::DiffusionPlannerOptions& model) {
  constexpr int64_t object = 10, pose = 4;
  int64_t inputs = *model.lane_num + object * *model.static_objects_num;  // speed limits, objects
  // Speed limits of the route, goal, turn indicators before the present one.
  if (!model.upstream()) inputs += *model.route_num + pose + *model.time_len - 1;
  return {{"objective", *model.predicted_neighbor_num * *model.future_len}, {"scene encoders", 4 * inputs}};
}

}  // namespace

TEST_CASE("diffusion_planner objective: a plan on CUDA keeps of whole frames what the pieces by hand keep") {
  for (const std::string preset : {"H", "M", "UP"}) {
    INFO(preset);
    const models::DiffusionPlannerOptions model = diffusion_planner_preset(preset);
    Bytes more = planned(model, 3, kCuda);
    for (const auto& [path, bytes] : planned(model, 2, kCuda)) more[path] -= bytes;
    Bytes wanted = by_part(planned_per_sample({.model = model}, kCuda));
    for (const auto& [part, bytes] : made_from_frames(models::resolved(model))) wanted[part] += bytes;
    CHECK(by_part(more) == wanted);
  }
}

TEST_CASE("diffusion_planner objective: steps and trajectories of every preset can be planned") {
  for (const std::string preset : {"H", "M", "UP"}) {
    INFO(preset);
    const planner::SimulationResult plan = planner::simulate(kCuda, [&](const auto&) {
      FrameTraining training(diffusion_planner_preset(preset), 2, kCuda);
      for (int i = 0; i < 2; ++i) training.step();
      training.predict();
    });
    CHECK(plan.steps.size() == 2);
    CHECK(policies::highest(plan.device).peak.bytes > 0);
  }
}

TEST_CASE("diffusion_planner objective: on the CPU a plan keeps to the byte what a run keeps") {
  const models::DiffusionPlannerOptions model = frame_diffusion_planner_options("H");
  Bytes counted;
  {
    const policies::CountingAllocatorGuard counting;
    counted = kept(model, 2, kCpu);
  }
  CHECK(sum(counted) > 0);
  CHECK(counted == planned(model, 2, kCpu));
}
