#include "toolkit/families/diffusion_planner/trajectories.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace dtk::diffusion_planner {

at::Tensor solve_trajectories(const TrajectoryNetwork& network, const at::Tensor& current, at::Tensor initial,
                              const ProcessOptions& process, const DpmSolverOptions& options,
                              const VpSde& sde) {
  const at::Tensor now = current.unsqueeze(2);
  const PredictData predict = [&](const at::Tensor& x, double t) {
    std::vector<int64_t> times = {x.size(0)};
    if (process.prefix) times = {x.size(0), x.size(1), x.size(2), 1};
    return network(x, at::full(times, t, x.options())).to(x.scalar_type());
  };
  const Constrain begin_now = [&](at::Tensor x) { return at::cat({now, x.narrow(2, 1, x.size(2) - 1)}, 2); };
  return dpm_solve(predict, begin_now, std::move(initial), options, sde);
}

}  // namespace dtk::diffusion_planner
