// All of the driving model's objective on the test device: on the simulated one every read of a value, and
// every shape that depends on one, is an error.
#include <ATen/ATen.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/diffusion_planner/path_metrics.h"
#include "toolkit/diffusion/dpm_solver.h"
#include "toolkit/families/diffusion_planner/augmentation.h"
#include "toolkit/families/diffusion_planner/inputs.h"
#include "toolkit/families/diffusion_planner/losses.h"
#include "toolkit/families/diffusion_planner/metrics.h"
#include "toolkit/families/diffusion_planner/noise.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using test::test_device;

namespace {

constexpr int64_t kBatch = 2, kNeighbors = 3, kSteps = 80;

at::Tensor noise(at::IntArrayRef sizes) {
  static uint64_t seed = 0;
  return at::randn(sizes, policies::make_generator(test_device(), ++seed),
                   at::TensorOptions().device(test_device()));
}

FrameBatch scene() {
  FrameBatch made;
  made.ego_agent_past = noise({kBatch, 31, 4});
  made.ego_current_state = noise({kBatch, 10}) + 5;
  made.ego_agent_future = noise({kBatch, kSteps, 3});
  made.neighbor_agents_past = noise({kBatch, kNeighbors, 31, 11});
  made.neighbor_agents_future = noise({kBatch, kNeighbors, kSteps, 3});
  made.static_objects = noise({kBatch, 5, 10});
  made.lanes = noise({kBatch, 6, 20, 33});
  made.route_lanes = noise({kBatch, 2, 20, 33});
  made.polygons = noise({kBatch, 2, 40, 3});
  made.line_strings = noise({kBatch, 4, 20, 4});
  made.goal_pose = noise({kBatch, 4});
  made.ego_shape = noise({kBatch, 3}).abs();
  return made;
}

bool finite(const at::Tensor& tensor) {
  return tensor.isfinite().all().item<bool>();
}

}  // namespace

TEST_CASE("diffusion_planner objective: augmentation, noise, every loss term and its gradient read no value",
          "[device]") {
  const at::Generator generator = policies::make_generator(test_device(), 4);
  const AugmentationOptions augmentation;
  FrameBatch frames = scene();
  const ShiftDraws shift = draw_shift(frames, augmentation, generator);
  frames = Augmentation(augmentation, kSteps, test_device()).apply(frames, shift);
  CHECK_VALUES(finite(frames.ego_agent_future));
  for (const bool velocity : {false, true}) {
    const ProcessOptions process = {.velocity = velocity};
    Supervision given;
    given.ego_current_state = frames.ego_current_state;
    given.neighbor_agents_past = frames.neighbor_agents_past;
    const Futures futures = futures_of(frames.ego_agent_future, frames.neighbor_agents_future);
    given.neighbors_future = futures.neighbors;
    given.absent = futures.neighbor_mask;
    given.line_strings = frames.line_strings;
    given.ego_shape = frames.ego_shape;
    given.turn_indicators = at::zeros({kBatch, 31}, given.absent.options().dtype(at::kInt));
    given.targets = targets_of({given.ego_current_state, given.neighbor_agents_past, futures.ego,
                                given.neighbors_future, given.absent},
                               process);
    const NoiseDraws draws = draw_noise(given.targets, process, generator);
    const NoisedSample sample = noised_sample(given.targets, draws, process);
    at::Tensor prediction = sample.x.detach().clone().requires_grad_(true);
    at::Tensor logits = noise({kBatch, 5}).requires_grad_(true);
    const LossOptions options = {.collision = 0.5, .time_weights = {1, 2, 3, 4}, .border_chunk = 50'000};
    const Losses losses = losses_of(prediction, logits, given, process, options);
    CHECK(losses.collision.defined());
    CHECK(losses.road_border.defined());
    torch::autograd::backward({losses.total(options)}, {});
    CHECK(prediction.grad().sizes() == at::IntArrayRef({kBatch, 1 + kNeighbors, 1 + kSteps, 4}));
    CHECK_VALUES(finite(prediction.grad()));
    CHECK_VALUES(finite(logits.grad()));
  }
}

TEST_CASE("diffusion_planner objective: sampling and metrics read no value until they are asked for scores",
          "[device]") {
  const at::Tensor current = noise({kBatch, 1 + kNeighbors, 4});
  const at::Tensor start = at::zeros({kBatch, 1 + kNeighbors, 1 + kSteps, 4}, current.options());
  int evaluations = 0;
  const TrajectoryNetwork network = [&](const at::Tensor& x, const at::Tensor& t) {
    ++evaluations;
    return 0.5 * x + t;
  };
  const at::Tensor drawn = solve_trajectories(network, current, start);
  CHECK(evaluations == 11);
  const FrameBatch frames = scene();
  test::PathMetrics metrics;
  const Futures futures = futures_of(frames.ego_agent_future, frames.neighbor_agents_future);
  const Outcome outcome = {futures.ego,
                           futures.neighbors,
                           futures.neighbor_mask,
                           at::zeros({kBatch, 31}, current.options().dtype(at::kInt)),
                           frames.ego_shape,
                           frames.line_strings,
                           frames.neighbor_agents_past.select(2, 30)};
  metrics.add(poses_of(drawn, {}), noise({kBatch, 5}), outcome);
  metrics.add(poses_of(drawn, {}), noise({kBatch, 5}), outcome);
  CHECK_VALUES(std::isfinite(metrics.scores_sync().ego_lateral));
  CHECK_VALUES(metrics.scores_sync().samples == 2 * kBatch);
}
