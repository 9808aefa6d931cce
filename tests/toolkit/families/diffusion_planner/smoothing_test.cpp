// The fitted trajectory against the original's in float64, and what a fit must not change.
#include "toolkit/families/diffusion_planner/smoothing.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>

#include <numbers>
#include <stdexcept>

#include "support/diffusion_planner/golden.h"
#include "support/error_text.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using test::largest;
using test::OriginalNumbers;

namespace {

const TrajectorySmoother& smoother() {
  static const TrajectorySmoother eighty(80, at::kCPU);
  return eighty;
}

at::Tensor speed_of(const OriginalNumbers& golden) {
  return golden.at("aug.plain.out.ego_current_state", at::kDouble).select(1, 4);
}

// A path that a car drives: constant acceleration and curvature from speed v0.
at::Tensor driven(double v0, double acceleration, double curvature) {
  const at::Tensor t = at::arange(1, 8001, at::kDouble) / 1000;  // 1 ms
  const at::Tensor way = v0 * t + acceleration * t * t / 2;
  const at::Tensor heading = curvature * way, v = v0 + acceleration * t;
  const at::Tensor x = (v * heading.cos()).cumsum(0) / 1000, y = (v * heading.sin()).cumsum(0) / 1000;
  return at::stack({x, y, heading}, -1).slice(0, 99, 8000, 100).unsqueeze(0);
}

}  // namespace

TEST_CASE("trajectory_smoothing: path and actions are the original's in float64") {
  const OriginalNumbers golden;
  // The speed is stored in fp32 only: 2e-7 m/s at the begin are 4e-6 m/s² over the first step.
  const auto fit = smoother().fit(golden.at("aug.plain.ego_future.fp64", at::kDouble), speed_of(golden));
  const at::Tensor error = fit.future - golden.at("aug.smooth.ego_future.fp64", at::kDouble);
  CHECK(largest(error) < 1e-6);
  CHECK(largest(fit.actions - golden.at("aug.smooth.actions.fp64", at::kDouble)) < 1e-5);
  // Whereas the original's own fp32 is off by centimetres.
  const at::Tensor of_original = golden.at("aug.smooth.fp32_error_per_sample_m", at::kDouble);
  CHECK(of_original.min().item<double>() > 1e-3);
}

TEST_CASE("trajectory_smoothing: from what an fp32 change of frame gives, within 1e-4 m") {
  const OriginalNumbers golden;
  const auto fit = smoother().fit(golden.at("aug.plain.ego_future", at::kFloat), speed_of(golden));
  CHECK(fit.future.scalar_type() == at::kDouble);
  CHECK(largest(fit.future - golden.at("aug.smooth.ego_future.fp64", at::kDouble)) < 1e-4);
}

TEST_CASE("trajectory_smoothing: what a car drove stays, noise on it goes") {
  const at::Tensor path = driven(8, -0.5, 0.02), speed = at::full({1}, 8.0, at::kDouble);
  CHECK(largest((smoother().fit(path, speed).future - path).narrow(2, 0, 2)) < 0.02);
  const at::Tensor noise = 0.05 * at::randn({1, 80, 3}, policies::make_generator(at::kCPU, 1), at::kDouble);
  const at::Tensor fitted = smoother().fit(path + noise * at::tensor({1, 1, 0}), speed).future;
  const auto roughness = [](const at::Tensor& future) {
    return future.narrow(2, 0, 2).diff(2, 1).square().mean().item<double>();
  };
  CHECK(roughness(fitted) < 0.1 * roughness(path + noise));
}

TEST_CASE("trajectory_smoothing: headings that jump by whole turns are the same headings") {
  const at::Tensor path = driven(8, 0.2, 0.12), speed = at::full({1}, 8.0, at::kDouble);
  CHECK(largest(path.select(2, 2)) > 3.5);
  const at::Tensor heading = path.select(2, 2);
  const at::Tensor wrapped =
      at::stack({path.select(2, 0), path.select(2, 1), at::atan2(heading.sin(), heading.cos())}, -1);
  CHECK(wrapped.select(2, 2).min().item<double>() < -2);
  CHECK(largest(smoother().fit(wrapped, speed).future - smoother().fit(path, speed).future) < 1e-9);
}

TEST_CASE("trajectory_smoothing: samples of a batch do not know each other; other lengths work") {
  const OriginalNumbers golden;
  const at::Tensor future = golden.at("aug.plain.ego_future.fp64", at::kDouble), speed = speed_of(golden);
  const at::Tensor whole = smoother().fit(future, speed).future;
  const at::Tensor alone = smoother().fit(future.narrow(0, 3, 1), speed.narrow(0, 3, 1)).future;
  CHECK(largest(whole.narrow(0, 3, 1) - alone) < 1e-10);
  const auto shorter = TrajectorySmoother(40, at::kCPU).fit(future.narrow(1, 0, 40), speed);
  CHECK(shorter.future.sizes() == at::IntArrayRef({8, 40, 3}));
  CHECK(largest(shorter.future - future.narrow(1, 0, 40)) < 15);
  CHECK(test::error_text<std::invalid_argument>([] { TrajectorySmoother(3, at::kCPU); }) ==
        "smoothing a trajectory of 3 steps: it needs at least 4");
}
