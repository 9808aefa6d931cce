#include "toolkit/diffusion/dpm_solver.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "toolkit/core/format.h"

namespace dtk {

std::vector<double> dpm_solver_times(const DpmSolverOptions& options, const VpSde& sde) {
  if (options.steps < 1 || !(0 < options.last && options.last < options.first && options.first <= 1)) {
    throw std::invalid_argument(fmt::format(
        "DPM-Solver++ from time {:f} to {:f} in {} steps: it needs a step and 0 < last < first <= 1",
        options.first, options.last, options.steps));
  }
  const double begin = sde.lambda(options.first), end = sde.lambda(options.last);
  std::vector<double> times = {options.first};
  for (int64_t i = 1; i < options.steps; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(options.steps);
    times.push_back(sde.time(begin + (end - begin) * part));
  }
  times.push_back(options.last);
  return times;
}

at::Tensor dpm_solve(const PredictData& predict, const Constrain& constrain, at::Tensor x,
                     const DpmSolverOptions& options, const VpSde& sde) {
  const std::vector<double> times = dpm_solver_times(options, sde);
  x = constrain(std::move(x));
  at::Tensor data = predict(x, times[0]), before;  // of this time, and of the one before
  for (size_t i = 1; i < times.size(); ++i) {
    const double from = times[i - 1], to = times[i];
    const double h = sde.lambda(to) - sde.lambda(from);
    const double share = -sde.alpha(to) * std::expm1(-h);  // of the data
    x = x * (sde.sigma(to) / sde.sigma(from));
    x = at::add(x, data, share);
    if (before.defined()) {
      const double ratio = (sde.lambda(from) - sde.lambda(times[i - 2])) / h;
      x = at::add(x, data - before, 0.5 * share / ratio);
    }
    x = constrain(std::move(x));
    if (i + 1 == times.size()) break;
    before = std::move(data);
    data = predict(x, to);
  }
  data.reset();
  before.reset();
  return constrain(predict(x, options.last));
}

}  // namespace dtk
