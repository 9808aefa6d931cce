// DPM-Solver++ against the original's evaluations, and against a process that is known.
#include "toolkit/diffusion/dpm_solver.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/diffusion_planner/golden.h"
#include "support/error_text.h"
#include "toolkit/families/diffusion_planner/noise.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using test::OriginalNumbers;

namespace {

struct Toy {
  const char* name;
  TrajectoryNetwork network;
};

std::vector<Toy> toys() {
  return {
      {"affine_noise", [](const at::Tensor& x, const at::Tensor&) { return 0.5 * x + 0.1; }},
      {"affine_t_noise", [](const at::Tensor& x, const at::Tensor& t) { return 0.5 * x + 0.1 + 0.2 * t; }},
      {"sin_zeros", [](const at::Tensor& x, const at::Tensor& t) { return (2 * x).sin() + 0.3 * t; }}};
}

// The head on what the solver returned: ego places at steps 1, 11 .. 71 and the mean token.
at::Tensor turn_logits(const OriginalNumbers& golden, const at::Tensor& trajectories) {
  const at::ScalarType type = trajectories.scalar_type();
  std::vector<at::Tensor> parts;
  for (int64_t step = 1; step <= 71; step += 10) {
    parts.push_back(trajectories.select(1, 0).select(1, step).narrow(1, 0, 2));
  }
  parts.push_back(golden.at("solver.in.encoding", type).mean(1));
  return at::linear(at::cat(parts, 1), golden.at("solver.turn_indicator_predictor.weight", type),
                    golden.at("solver.turn_indicator_predictor.bias", type));
}

}  // namespace

TEST_CASE("dpm_solver: times are the original's, in equal steps of λ") {
  const OriginalNumbers golden;
  const std::vector<double> times = dpm_solver_times({});
  golden.check("solver.times", at::tensor(times, at::kDouble));
  std::vector<double> lambdas;
  for (const double t : times) lambdas.push_back(VpSde().lambda(t));
  golden.check("solver.lambdas", at::tensor(lambdas, at::kDouble));
}

TEST_CASE("dpm_solver: the eleven evaluations, the trajectories and what the head makes of them") {
  const OriginalNumbers golden;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const at::Tensor ego = golden.at("solver.in.ego_current_state", type).narrow(1, 0, 4).unsqueeze(1);
    const at::Tensor others = golden.at("solver.in.neighbor_agents_past_last", type).narrow(2, 0, 4);
    const at::Tensor current = at::cat({ego, others}, 1);
    for (const Toy& toy : toys()) {
      const std::string prefix = std::string("solver.") + toy.name + ".";
      std::vector<at::Tensor> seen, times, outputs;
      const TrajectoryNetwork watched = [&](const at::Tensor& x, const at::Tensor& t) {
        CHECK(t.sizes() == at::IntArrayRef({2, 3, 81, 1}));
        CHECK(at::equal(t, t.select(1, 0).select(1, 0).select(1, 0)[0].expand_as(t)));
        seen.push_back(x), times.push_back(t.flatten()[0]);
        outputs.push_back(toy.network(x, t));
        return outputs.back();
      };
      at::Tensor initial = golden.at("solver.in.x_init", type);
      if (prefix == "solver.sin_zeros.") initial = at::zeros_like(initial);
      const at::Tensor drawn = solve_trajectories(watched, current, initial);
      REQUIRE(seen.size() == 11);
      golden.check(prefix + "eval_x", at::stack(seen));
      const auto& errors = golden.notes()["tolerance"]["err_fp32_vs_fp64"];
      golden.check(prefix + "eval_t", at::stack(times), golden.at(prefix + "eval_t", at::kFloat),
                   errors["solver.times"][0].get<double>());
      if (type == at::kFloat && golden.has(prefix + "eval_out")) {
        const double error = errors[prefix + "eval_x"][0].get<double>();
        golden.check(prefix + "eval_out", at::stack(outputs), golden.at(prefix + "eval_out", type), error);
      }
      CHECK(at::equal(drawn.select(2, 0), current));
      golden.check(prefix + "prediction", poses_of(drawn, {}));
      golden.check(prefix + "turn_indicator_logit", turn_logits(golden, drawn));
    }
  }
}

TEST_CASE("dpm_solver: upstream's network gets one time a sample") {
  const TrajectoryNetwork network = [](const at::Tensor& x, const at::Tensor& t) {
    CHECK(t.sizes() == at::IntArrayRef({2}));
    return at::zeros_like(x);
  };
  solve_trajectories(network, at::zeros({2, 3, 4}), at::zeros({2, 3, 5, 4}), {.prefix = false});
}

namespace {

// Clean data that are normal with deviation s have a known best prediction, and a known x at every time on
// the way of the noise-free process: x_t / √(α² s² + σ²) stays.
double error_of(int64_t steps) {
  const VpSde sde;
  const double s = 0.4;
  const auto deviation = [&](double t) { return std::hypot(sde.alpha(t) * s, sde.sigma(t)); };
  at::Tensor reached;
  const PredictData best = [&](const at::Tensor& x, double t) {
    reached = x;
    return x * (sde.alpha(t) * s * s / (deviation(t) * deviation(t)));
  };
  const at::Tensor start = at::ones({1}, at::kDouble);
  dpm_solve(best, [](at::Tensor x) { return x; }, start, {.steps = steps});
  return std::abs(reached.item<double>() - deviation(1e-3) / deviation(1.0));
}

}  // namespace

TEST_CASE("dpm_solver: the error falls with the square of the steps") {
  const double coarse = error_of(40), fine = error_of(80);
  CHECK(coarse < 1e-2);
  CHECK(coarse / fine > 3.2);
  CHECK(coarse / fine < 4.8);
}

TEST_CASE("dpm_solver: no step, and times that do not fall, are refused") {
  CHECK(test::error_text<std::invalid_argument>([] { dpm_solver_times({.steps = 0}); }) ==
        "DPM-Solver++ from time 1.000000 to 0.001000 in 0 steps: it needs a step and 0 < last < first <= 1");
  CHECK_THROWS_AS(dpm_solver_times({.first = 0.1, .last = 0.2}), std::invalid_argument);
  CHECK_THROWS_AS(dpm_solver_times({.last = 0.0}), std::invalid_argument);
}
