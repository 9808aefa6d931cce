// The trajectories that the driving planner draws, by DPM-Solver++.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "toolkit/diffusion/dpm_solver.h"
#include "toolkit/families/diffusion_planner/options.h"

namespace dtk::diffusion_planner {

/// The driving planner's network for one batch: x (B, P, 1 + T, 4), times as in NoisedSample.
using TrajectoryNetwork = std::function<at::Tensor(at::Tensor x, at::Tensor t)>;

/// Trajectories (B, P, 1 + T, 4) in the network's units, beginning at `current` (B, P, 4): after every step,
/// and in the result, index 0 is the present. `initial` (B, P, 1 + T, 4) is the noise, zeros for the
/// deterministic draw of validation. poses_of() makes metres of it.
at::Tensor solve_trajectories(const TrajectoryNetwork& network, const at::Tensor& current, at::Tensor initial,
                              const ProcessOptions& process = {}, const DpmSolverOptions& options = {},
                              const VpSde& sde = {});

}  // namespace dtk::diffusion_planner
