// The driving model's training samples against the original's.
#include "toolkit/families/diffusion_planner/noise.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>

#include <stdexcept>
#include <string>

#include "support/diffusion_planner/golden.h"
#include "support/error_text.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using test::OriginalNumbers;

namespace {

TruePaths truth_of(const OriginalNumbers& golden, at::ScalarType type) {
  return {golden.at("noise.in.ego_current_state", type), golden.at("noise.in.neighbor_agents_past", type),
          golden.at("noise.fut.ego_future", type), golden.at("noise.fut.neighbors_future", type),
          golden.at("noise.fut.neighbor_future_mask", type)};
}

NoiseDraws draws_of(const OriginalNumbers& golden, at::ScalarType type, double shorter) {
  return {golden.at("noise.draw.uniform", type), golden.at("noise.draw.z", type),
          golden.at("noise.draw.delay", type), at::full({}, shorter, type)};
}

}  // namespace

TEST_CASE("diffusion_planner noise: targets, times, prefix and noised trajectories are the original's") {
  const OriginalNumbers golden;
  struct Case {
    const char* name;
    double shorter;
    bool velocity;
  };
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const Case& one :
         {Case{"c0.37", 0.37, false}, Case{"c0.0005", 0.0005, false}, Case{"velocity_c0.37", 0.37, true}}) {
      const std::string prefix = std::string("noise.") + one.name + ".";
      const ProcessOptions process = {.velocity = one.velocity};
      const at::Tensor targets = targets_of(truth_of(golden, type), process);
      golden.check(prefix + "gt_trajectories", targets);
      const NoisedSample sample = noised_sample(targets, draws_of(golden, type, one.shorter), process);
      golden.check(prefix + "diffusion_time", sample.t);
      golden.check(prefix + "sampled_trajectories", sample.x);
      CHECK(at::equal(sample.prefix, golden.at("noise.c0.37.prefix_mask", type)));
    }
  }
  CHECK(golden.checked() == 2 * 3 * 3);
}

TEST_CASE("diffusion_planner noise: a neighbour that is not there now keeps its future as a target") {
  const OriginalNumbers golden;
  const at::Tensor targets = targets_of(truth_of(golden, at::kDouble), {});
  const at::Tensor late = targets.select(0, 2).select(0, 2);  // neighbour 1 of sample 2
  CHECK(test::largest(late[0]) == 0);
  CHECK(test::largest(late.narrow(0, 1, 80)) > 0);
}

TEST_CASE("diffusion_planner noise: poses come back from targets, in both representations") {
  const OriginalNumbers golden;
  const TruePaths truth = truth_of(golden, at::kDouble);
  for (const bool velocity : {false, true}) {
    const ProcessOptions process = {.velocity = velocity};
    const at::Tensor poses = poses_of(targets_of(truth, process), process);
    // The first way, from units to metres, is off scale and cancels.
    CHECK(test::largest(poses.select(1, 0) - truth.ego_future) < 1e-12 * 100);
    const at::Tensor present = targets_of(truth, process).select(2, 1).select(1, 0);
    CHECK((test::largest(present.narrow(1, 0, 2)) > 3) == velocity);
  }
}

TEST_CASE("diffusion_planner noise: draws follow the generator in their order, delays reach max_delay") {
  const at::Tensor targets = at::zeros({4000, 2, 9, 4});
  const ProcessOptions process = {.max_delay = 3};
  const NoiseDraws draws = draw_noise(targets, process, policies::make_generator(at::kCPU, 7));
  const at::Generator same = policies::make_generator(at::kCPU, 7);
  CHECK(at::equal(draws.uniform, at::rand({4000}, same)));
  CHECK(at::equal(draws.z, at::randn({4000, 2, 8, 4}, same)));
  CHECK(at::equal(draws.delay, at::randint(0, 4, {4000}, same, at::kLong)));
  CHECK(at::equal(draws.shorter, at::rand({}, same)));
  const at::Tensor counts = at::bincount(draws.delay);
  CHECK(counts.numel() == 4);
  CHECK(counts.min().item<int64_t>() > 900);
}

TEST_CASE("diffusion_planner noise: upstream has one time a sample, and only the present is given") {
  const ProcessOptions process = {.prefix = false};
  const at::Generator generator = policies::make_generator(at::kCPU, 7);
  const at::Tensor targets = at::randn({3, 2, 9, 4}, generator);
  const NoiseDraws draws = draw_noise(targets, process, generator);
  CHECK_FALSE(draws.delay.defined());
  const NoisedSample sample = noised_sample(targets, draws, process);
  CHECK(sample.t.sizes() == at::IntArrayRef({3}));
  CHECK_FALSE(sample.prefix.defined());
  CHECK(at::equal(sample.x.select(2, 0), targets.select(2, 0)));
  const VpSde sde;
  const at::Tensor t = sample.t.view({3, 1, 1, 1});
  const at::Tensor expected = sde.alpha(t) * targets.narrow(2, 1, 8) + sde.sigma(t) * draws.z;
  CHECK(at::allclose(sample.x.narrow(2, 1, 8), expected));
  CHECK(sample.t.min().item<double>() >= 1e-3);
}
