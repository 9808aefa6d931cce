#include "toolkit/families/diffusion_planner/smoothing.h"

#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "toolkit/core/format.h"

namespace dtk::diffusion_planner {
namespace {

constexpr double kRidge = 1e-4;                                   // of every unknown
constexpr double kHeading = 1e-2, kSpeed = 1e-6, kAction = 1e-4;  // weights of roughness

// The square of the differences of order `order` of n values: weight · dt^-2k DᵀD.
at::Tensor roughness(int64_t n, int64_t order, double weight) {
  at::Tensor differences = at::eye(n, at::kDouble);
  for (int64_t i = 0; i < order; ++i) {
    const int64_t rows = differences.size(0) - 1;
    differences = differences.narrow(0, 1, rows) - differences.narrow(0, 0, rows);
  }
  return at::mm(differences.t(), differences) *
         (weight * std::pow(kTrajectoryStep, -2.0 * static_cast<double>(order)));
}

at::Tensor solved(const at::Tensor& matrix, const at::Tensor& right) {
  return std::get<0>(at::linalg_solve_ex(matrix, right.unsqueeze(-1))).squeeze(-1);
}

at::Tensor differences(const at::Tensor& values) {
  const int64_t n = values.size(1) - 1;
  return values.narrow(1, 1, n) - values.narrow(1, 0, n);
}

// Headings (B, N) without their jumps by whole turns.
at::Tensor unwrapped(const at::Tensor& headings) {
  constexpr double kTurn = 2 * std::numbers::pi;
  const int64_t n = headings.size(1);
  const at::Tensor turns = (differences(headings) / kTurn).round().cumsum(1);
  return at::cat({headings.narrow(1, 0, 1), headings.narrow(1, 1, n - 1) - turns * kTurn}, 1);
}

// 0 in front of (B, N), or of (B, N, 2).
at::Tensor from_zero(const at::Tensor& values) {
  return at::cat({at::zeros_like(values.narrow(1, 0, 1)), values}, 1);
}

}  // namespace

TrajectorySmoother::TrajectorySmoother(int64_t steps, c10::Device device) : steps_(steps) {
  if (steps < 4) {
    throw std::invalid_argument(
        fmt::format("smoothing a trajectory of {} steps: it needs at least 4", steps));
  }
  const policies::OwnerScope owner(policies::Category::parameters, "trajectory smoothing");
  const at::Tensor one = at::eye(steps, at::kDouble), ridge = kRidge * one;
  // The first heading and speed are known: their column of the roughness belongs to the right-hand side. That
  // heading is 0.
  const at::Tensor of_headings = roughness(steps + 1, 3, kHeading).narrow(0, 1, steps).narrow(1, 1, steps);
  headings_ = std::get<0>(at::linalg_inv_ex(one + of_headings + ridge)).to(device);
  const at::Tensor of_actions = roughness(steps, 2, kAction) + ridge;
  accelerations_ = std::get<0>(at::linalg_inv_ex(one + of_actions)).to(device);
  curvatures_ = of_actions.to(device);
  // Each speed but the last stands in two equations, whose factors are of length 1.
  at::Tensor own = 2 * one;
  own.select(0, steps - 1).select(0, steps - 1).fill_(1);
  const at::Tensor first = at::zeros({steps, 1}, at::kDouble);
  speeds_ = roughness(steps + 1, 3, kSpeed).narrow(0, 1, steps) + at::cat({first, own + ridge}, 1);
  speeds_ = speeds_.to(device);
}

TrajectorySmoother::Fit TrajectorySmoother::fit(const at::Tensor& future, const at::Tensor& speed) const {
  const at::Tensor measured = future.to(at::kDouble), v0 = speed.to(at::kDouble).unsqueeze(1);
  const at::Tensor theta = from_zero(at::mm(unwrapped(measured.select(2, 2)), headings_.t()));  // (B, N+1)

  // v_t u_t + v_(t+1) u_(t+1) = twice the way / dt, u = (cos θ, sin θ).
  const at::Tensor u = at::stack({theta.cos(), theta.sin()}, -1);  // (B, N+1, 2)
  const at::Tensor way = differences(from_zero(measured.narrow(2, 0, 2))) * (2 / kTrajectoryStep);
  const at::Tensor ways =
      at::cat({way.narrow(1, 0, steps_ - 1) + way.narrow(1, 1, steps_ - 1), way.narrow(1, steps_ - 1, 1)},
              1);                                    // of the equations that v_1 .. v_N stand in
  const at::Tensor turn = differences(theta).cos();  // (B, N): u_t · u_(t+1)
  at::Tensor right = (u.narrow(1, 1, steps_) * ways).sum(-1);
  right = right - v0 * speeds_.select(1, 0);
  right = right - at::constant_pad_nd(turn.narrow(1, 0, 1) * v0, {0, steps_ - 1});
  const at::Tensor beside = turn.narrow(1, 1, steps_ - 1);
  const at::Tensor matrix =
      speeds_.narrow(1, 1, steps_) + at::diag_embed(beside, 1) + at::diag_embed(beside, -1);
  const at::Tensor v = at::cat({v0, solved(matrix, right)}, 1);

  Fit fit;
  const at::Tensor a = at::mm(differences(v) / kTrajectoryStep, accelerations_.t());
  const at::Tensor passed =
      v.narrow(1, 0, steps_) * kTrajectoryStep + a * (kTrajectoryStep * kTrajectoryStep / 2);
  const at::Tensor kappa = solved(curvatures_ + at::diag_embed(passed.square()), passed * differences(theta));
  fit.actions = at::stack({a, kappa}, -1);

  const at::Tensor driven = at::cat({v0, v0 + (a * kTrajectoryStep).cumsum(1)}, 1);
  const at::Tensor length =
      driven.narrow(1, 0, steps_) * kTrajectoryStep + a * (kTrajectoryStep * kTrajectoryStep / 2);
  const at::Tensor heading = from_zero((kappa * length).cumsum(1));
  const auto place = [&](const at::Tensor& direction) {
    const at::Tensor velocity = driven * direction;
    const at::Tensor mean =
        (velocity.narrow(1, 0, steps_) + velocity.narrow(1, 1, steps_)) * (kTrajectoryStep / 2);
    return mean.cumsum(1);
  };
  fit.future = at::stack({place(heading.cos()), place(heading.sin()), heading.narrow(1, 1, steps_)}, -1);
  return fit;
}

}  // namespace dtk::diffusion_planner
