// DPM-Solver++ (Lu et al. 2022): the multistep solver of second order for a network that predicts clean data.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "toolkit/diffusion/options.h"
#include "toolkit/diffusion/vp_sde.h"

namespace dtk {

/// steps + 1 times from first to last, in equal steps of λ. Throws std::invalid_argument unless steps >= 1
/// and 0 < last < first <= 1.
std::vector<double> dpm_solver_times(const DpmSolverOptions& options, const VpSde& sde = {});

/// Clean data of x at time t, both of x's shape or of one that the caller knows.
using PredictData = std::function<at::Tensor(const at::Tensor& x, double t)>;
/// What must hold of x, put into it: called with the first x, and with each that follows.
using Constrain = std::function<at::Tensor(at::Tensor x)>;

/// Clean data from x at time `first`. steps + 1 evaluations of `predict`: at the first time, after each step
/// but the last, and one at the last time, whose result is returned. Of first order in the first step, of
/// second order in all others. Reads no value on the host.
at::Tensor dpm_solve(const PredictData& predict, const Constrain& constrain, at::Tensor x,
                     const DpmSolverOptions& options = {}, const VpSde& sde = {});

}  // namespace dtk
