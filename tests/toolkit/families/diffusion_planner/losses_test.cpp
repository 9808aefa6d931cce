// The driving model's loss terms and their gradients against the original's, term by term.
#include "toolkit/families/diffusion_planner/losses.h"

#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/diffusion_planner/golden.h"
#include "support/error_text.h"
#include "toolkit/families/diffusion_planner/noise.h"
#include "toolkit/families/diffusion_planner/penalties.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using test::largest;
using test::OriginalNumbers;

namespace {

// One stored case: inputs, what the network is taken to have said, and the options it was made with.
struct Case {
  Case(const OriginalNumbers& the_golden, std::string the_name, at::ScalarType the_type)
      : golden(the_golden), name(std::move(the_name)), type(the_type) {
    const auto& changed = golden.notes()["losses"]["cases"][name]["override"];
    const auto read = [&](const char* key, auto& member) {
      if (changed.contains(key)) changed[key].get_to(member);
    };
    read("coeff_position_lat_loss", loss.lateral);
    read("coeff_position_lon_loss", loss.longitudinal);
    read("coeff_heading_l2_loss", loss.heading);
    read("coeff_velocity", loss.speed_weight);
    read("coeff_timestep", loss.time_weights);
    read("ego_prediction_horizon", loss.ego_horizon);
    read("use_velocity_representation", process.velocity);
    loss.collision = 1;
    loss.exploding_heading_gradient = true;
    supervision.ego_current_state = in("in.ego_current_state");
    supervision.neighbor_agents_past = in("in.neighbor_agents_past");
    supervision.neighbors_future = in("fut.neighbors_future");
    supervision.absent = in("fut.neighbor_future_mask");
    supervision.line_strings = in("in.line_strings");
    supervision.ego_shape = in("in.ego_shape");
    supervision.turn_indicators = in("in.turn_indicators");
    supervision.targets = targets_of({supervision.ego_current_state, supervision.neighbor_agents_past,
                                      in("fut.ego_future"), supervision.neighbors_future, supervision.absent},
                                     process);
    trajectories = in("pred").clone().requires_grad_(true);
    logits = in("logits").clone().requires_grad_(true);
  }

  at::Tensor in(const std::string& entry) const { return golden.at("loss." + name + "." + entry, type); }
  bool has(const std::string& entry) const { return golden.has("loss." + name + "." + entry); }
  const nlohmann::json& notes() const { return golden.notes()["losses"]["cases"][name]; }

  Losses losses() const { return losses_of(trajectories, logits, supervision, process, loss); }

  const OriginalNumbers& golden;
  const std::string name;
  const at::ScalarType type;
  LossOptions loss;
  ProcessOptions process;
  Supervision supervision;
  at::Tensor trajectories, logits;
};

std::vector<std::string> names(const OriginalNumbers& golden) {
  std::vector<std::string> all;
  for (const auto& entry : golden.notes()["losses"]["cases"].items()) all.push_back(entry.key());
  return all;
}

at::Tensor gradient(const at::Tensor& term, const at::Tensor& of) {
  return torch::autograd::grad({term}, {of}, {}, /*retain_graph=*/true).front();
}

// Value and gradient of one term. One that the original has as a constant is 0 with a gradient of 0.
void check_term(const Case& one, const std::string& term, const at::Tensor& value, const at::Tensor& of) {
  INFO(one.name << " " << term << " in " << one.type);
  const bool wide = one.type == at::kDouble;
  const double wanted = one.notes()[wide ? "values_fp64" : "values"][term];
  const double other = one.notes()[wide ? "values" : "values_fp64"][term];
  CHECK(std::abs(value.item<double>() - wanted) <=
        (wide ? 1e-9 * std::abs(wanted) : 4 * std::abs(wanted - other) + 1e-6 * std::abs(wanted)));
  const at::Tensor slope = gradient(value, of);
  const auto& notes = one.notes()["gradients"][term];
  if (notes.is_string()) {
    CHECK(largest(slope) <= (notes == "zero up to rounding" ? 1e-8 : 0.0));
    return;
  }
  const at::Tensor stored = one.in("grad." + term);
  const bool ego_only = stored.dim() + 1 == slope.dim();
  one.golden.check(term, ego_only ? slope.select(1, 0) : slope,
                   one.golden.at("loss." + one.name + ".grad." + term, at::kFloat),
                   notes["max_abs_err"].get<double>());
  if (ego_only) CHECK(largest(slope.narrow(1, 1, slope.size(1) - 1)) == 0);
}

}  // namespace

TEST_CASE("diffusion_planner losses: each term's value and gradient are the original's in every case") {
  const OriginalNumbers golden;
  CHECK(names(golden).size() == 9);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const std::string& name : names(golden)) {
      const Case one(golden, name, type);
      const at::Tensor future = one.supervision.targets.narrow(2, 1, 80);
      CHECK(largest(future - one.in("target")) <= 4e-7 * largest(future));
      const Losses losses = one.losses();
      check_term(one, "ego_planning_loss", losses.ego, one.trajectories);
      check_term(one, "neighbor_prediction_loss", losses.neighbor, one.trajectories);
      check_term(one, "turn_indicator_loss", losses.turn_indicator, one.logits);
      check_term(one, "road_border_loss", losses.road_border, one.trajectories);
      check_term(one, "neighbor_collision_loss", losses.collision, one.trajectories);
    }
  }
}

TEST_CASE("diffusion_planner losses: both penalties step by step, and the outline, are the original's") {
  const OriginalNumbers golden;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const std::string& name : names(golden)) {
      const Case one(golden, name, type);
      const at::Tensor poses = poses_of(one.trajectories.narrow(1, 0, 1), one.process).squeeze(1).detach();
      const Supervision& given = one.supervision;
      const auto& errors = one.notes()["penalty_max_err"];
      const auto check = [&](const char* entry, const char* note, const at::Tensor& value) {
        golden.check(name + "." + entry, value, golden.at("loss." + name + "." + entry, at::kFloat),
                     errors[note].get<double>());
      };
      check(
          "penalty.border", "border",
          road_border_penalty(poses, given.ego_shape, line_strings_in_metres(given.line_strings), one.loss));
      const at::Tensor now = given.neighbor_agents_past.select(2, 0);
      check("penalty.collision", "collision",
            collision_penalty(poses, given.ego_shape,
                              traffic_of(now, 20, given.neighbors_future, given.absent), one.loss));
      if (!one.has("edge_points")) continue;
      const at::Tensor outline = ego_outline(poses, given.ego_shape, one.loss);
      check("edge_points", "edge_points",
            at::stack(
                {outline.select(1, 0), outline.select(1, 20), outline.select(1, 40), outline.select(1, 60)},
                1));
    }
  }
}

TEST_CASE(
    "diffusion_planner losses: the total is the sum of the terms by their weights, without those of weight "
    "0") {
  const OriginalNumbers golden;
  Case one(golden, "border", at::kDouble);
  one.loss.ego = 0.7, one.loss.neighbor = 0.3, one.loss.turn_indicator = 0.2, one.loss.road_border = 5;
  one.loss.collision = 11;
  const auto& values = one.notes()["values_fp64"];
  const auto value = [&](const char* term) { return values[term].get<double>(); };
  const auto total = [&] { return one.losses().total(one.loss).item<double>(); };
  const double sum = 0.7 * value("ego_planning_loss") + 0.3 * value("neighbor_prediction_loss") +
                     0.2 * value("turn_indicator_loss") + 5 * value("road_border_loss");
  CHECK(total() == Approx(sum + 11 * value("neighbor_collision_loss")).epsilon(1e-9));
  one.loss.collision = 0;
  CHECK(total() == Approx(sum).epsilon(1e-9));
  CHECK_FALSE(one.losses().collision.defined());
  one.loss = {.ego = 0, .neighbor = 0, .turn_indicator = 0, .road_border = 0};
  CHECK(test::error_text<std::invalid_argument>(total) ==
        "the driving model's loss: every term has weight 0");
}

TEST_CASE("diffusion_planner losses: defaults are the original's weights") {
  const OriginalNumbers golden;
  const auto& defaults = golden.notes()["losses"]["defaults"];
  const LossOptions loss;
  const auto same = [&](auto value, const char* key) {
    INFO(key);
    CHECK(value == defaults[key].get<decltype(value)>());
  };
  same(loss.ego, "alpha_planning_loss");
  same(loss.neighbor, "alpha_neighbor_loss");
  same(loss.road_border, "coeff_road_border_loss");
  same(loss.collision, "coeff_neighbor_collision_loss");
  same(loss.lateral, "coeff_position_lat_loss");
  same(loss.longitudinal, "coeff_position_lon_loss");
  same(loss.heading, "coeff_heading_l2_loss");
  same(loss.speed_weight, "coeff_velocity");
  same(loss.border_margin, "road_border_margin");
  same(loss.border_points, "road_border_n_interp");
  same(loss.vehicle_margin, "neighbor_collision_margin_vehicle");
  same(loss.pedestrian_margin, "neighbor_collision_margin_pedestrian");
  same(loss.bicycle_margin, "neighbor_collision_margin_bicycle");
  same(loss.integrated, "hybrid_loss_omega");
  same(loss.integrated_window, "hybrid_loss_window");
  CHECK(loss.time_weights == std::array<double, 4>{1, 1, 1, 1});
}

TEST_CASE("diffusion_planner losses: all four weights of the time count, each for its quarter") {
  const OriginalNumbers golden;
  Case one(golden, "plain_no_border", at::kDouble);
  const auto errors = [&] {
    return pose_errors(one.trajectories, one.supervision, one.process, one.loss).detach();
  };
  const at::Tensor plain = errors();
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    one.loss.time_weights = {1, 1, 1, 1};
    one.loss.time_weights[static_cast<size_t>(quarter)] = 3;
    at::Tensor expected = plain.clone();
    expected.narrow(2, 20 * quarter, 20).mul_(3);
    CHECK(at::allclose(errors(), expected));
  }
}

TEST_CASE("diffusion_planner losses: the speed weight sees the speed in units of 20 m/s") {
  const OriginalNumbers golden;
  Case one(golden, "plain_no_border", at::kDouble);
  const auto along = [&](double metres_per_second) {
    one.loss.lateral = one.loss.heading = 0;
    one.supervision.ego_current_state = one.supervision.ego_current_state.clone();
    one.supervision.ego_current_state.select(1, 4).fill_(metres_per_second / 20);
    return one.losses().ego.item<double>();
  };
  CHECK(along(19) == along(2));  // nothing is divided below 20 m/s
  CHECK(along(2) / along(30) == Approx(1.5).epsilon(1e-12));
  CHECK(along(-30) == Approx(along(30)).epsilon(1e-12));
}

TEST_CASE("diffusion_planner losses: upstream's error is the square summed over four channels") {
  const OriginalNumbers golden;
  Case one(golden, "plain_no_border", at::kDouble);
  one.loss.squared_error = true;
  const at::Tensor difference = one.trajectories.detach() - one.supervision.targets;
  CHECK(at::allclose(pose_errors(one.trajectories, one.supervision, one.process, one.loss),
                     difference.narrow(2, 1, 80).pow(2).sum(-1)));
}

TEST_CASE("diffusion_planner losses: an exploding heading gradient is tamed, and nothing else changes") {
  const OriginalNumbers golden;
  Case zero(golden, "zero_heading", at::kDouble);
  const auto norm = [](const Case& one) {
    return gradient(one.losses().road_border, one.trajectories).norm().item<double>();
  };
  CHECK(norm(zero) > 2e5);
  const double before = zero.losses().road_border.item<double>();
  zero.loss.exploding_heading_gradient = false;
  CHECK(norm(zero) < 25);
  CHECK(norm(zero) > 0);
  CHECK(zero.losses().road_border.item<double>() == before);
  Case border(golden, "border", at::kDouble);
  const at::Tensor original = gradient(border.losses().road_border, border.trajectories);
  border.loss.exploding_heading_gradient = false;
  CHECK(at::equal(gradient(border.losses().road_border, border.trajectories), original));
  CHECK_FALSE(LossOptions().exploding_heading_gradient);
}

TEST_CASE("diffusion_planner losses: what a sample of preset H keeps until backward") {
  const policies::CountingAllocatorGuard counting;
  const OriginalNumbers golden;
  Case one(golden, "border", at::kFloat);
  const auto wider = [](const at::Tensor& three) {
    return three.repeat({1, 107, 1, 1}).narrow(1, 0, 320).contiguous();
  };
  Supervision& given = one.supervision;
  given.neighbor_agents_past = wider(given.neighbor_agents_past);
  given.neighbors_future = wider(given.neighbors_future);
  given.absent = wider(given.absent.unsqueeze(-1)).squeeze(-1);
  given.targets = at::cat({given.targets.narrow(1, 0, 1), wider(given.targets.narrow(1, 1, 3))}, 1);
  given.line_strings = given.line_strings.repeat({1, 20, 1, 1});
  one.trajectories = given.targets.clone().requires_grad_(true);
  one.loss = {};
  const int64_t before = policies::cpu_accounts().live_bytes();
  const at::Tensor total = one.losses().total(one.loss);
  const int64_t kept = (policies::cpu_accounts().live_bytes() - before) / 3;
  INFO(kept << " bytes a sample");
  // Deviations across, along (4 bytes for each pose) and of the heading (8), and the border's few.
  CHECK(kept < 16 * 321 * 80 + 32'000);
}

TEST_CASE("diffusion_planner losses: of integrated velocities only the last ten learn") {
  const OriginalNumbers golden;
  Case one(golden, "velocity_mode", at::kDouble);
  one.loss.integrated = 1;
  at::Tensor whole = pose_errors(one.trajectories, one.supervision, one.process, one.loss);
  const at::Tensor slope = gradient(whole.select(1, 0).select(1, 50).sum(), one.trajectories).select(1, 0);
  const at::Tensor reached = slope.narrow(2, 0, 2).abs().sum(2).sum(0);  // (81)
  for (int64_t step = 0; step < 81; ++step) {
    INFO(step);
    CHECK((reached[step].item<double>() > 0) == (step >= 42 && step <= 51));
  }
}
