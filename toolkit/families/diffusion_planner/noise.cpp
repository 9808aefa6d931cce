#include "toolkit/families/diffusion_planner/noise.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

#include "toolkit/families/diffusion_planner/inputs.h"

namespace dtk::diffusion_planner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RunningSum : torch::autograd::Function<RunningSum> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& values) { return values.cumsum(-2); }
  // A value is in every sum from its own on.
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    const at::Tensor& gradient = gradients.front();
    const at::Tensor before = gradient.cumsum(-2) - gradient;
    return {gradient.sum(-2, /*keepdim=*/true) - before};
  }
};

}  // namespace

at::Tensor running_sum(const at::Tensor& values) {
  return RunningSum::apply(values);
}

at::Tensor current_states(const TruePaths& truth) {
  const at::Tensor ego = truth.ego_current_state.narrow(1, 0, 4).unsqueeze(1);
  const at::Tensor& past = truth.neighbor_agents_past;
  const int64_t neighbors = truth.neighbors_future.size(1);
  const at::Tensor now = past.narrow(1, 0, neighbors).select(2, past.size(2) - 1).narrow(2, 0, 4);
  return at::cat({ego, now}, 1);
}

at::Tensor targets_of(const TruePaths& truth, const ProcessOptions& process) {
  const at::Tensor now = current_states(truth).unsqueeze(2);
  at::Tensor future = at::cat({truth.ego_future.unsqueeze(1), truth.neighbors_future}, 1);
  if (process.velocity) {
    const int64_t steps = future.size(2);
    const at::Tensor path = at::cat({now, future}, 2).narrow(3, 0, 2);
    const at::Tensor ways = path.narrow(2, 1, steps) - path.narrow(2, 0, steps);
    future = at::cat({ways, future.narrow(3, 2, 2)}, 3);
  } else {
    future = to_units(future);
  }
  const at::Tensor absent_now = now.narrow(1, 1, now.size(1) - 1).eq(0).all(-1);  // (B, P-1, 1)
  const at::Tensor absent = at::cat({absent_now, truth.absent}, 2).unsqueeze(-1);
  const at::Tensor trajectories = at::cat({now, future}, 2);
  const at::Tensor ego = trajectories.narrow(1, 0, 1);
  const at::Tensor others = trajectories.narrow(1, 1, now.size(1) - 1).masked_fill(absent, 0);
  return at::cat({ego, others}, 1);
}

at::Tensor poses_of(const at::Tensor& trajectories, const ProcessOptions& process) {
  const at::Tensor future = trajectories.narrow(2, 1, trajectories.size(2) - 1);
  if (!process.velocity) return to_metres(future);
  const at::Tensor now = trajectories.narrow(2, 0, 1).narrow(3, 0, 2);
  const at::Tensor places = running_sum(future.narrow(3, 0, 2)) + now;
  return at::cat({places, future.narrow(3, 2, 2)}, 3);
}

NoiseDraws draw_noise(const at::Tensor& targets, const ProcessOptions& process,
                      const at::Generator& generator) {
  const int64_t batch = targets.size(0);
  NoiseDraws draws;
  draws.uniform = at::rand({batch}, generator, targets.options());
  draws.z = at::randn({batch, targets.size(1), targets.size(2) - 1, 4}, generator, targets.options());
  if (!process.prefix) return draws;
  draws.delay = at::randint(0, process.max_delay + 1, {batch}, generator, targets.options().dtype(at::kLong));
  draws.shorter = at::rand({}, generator, targets.options());
  return draws;
}

at::Tensor prefix_of(const at::Tensor& delay, int64_t actors, int64_t steps) {
  const at::Tensor index = at::arange(1 + steps, delay.options()).view({1, 1, -1, 1});
  const at::Tensor ego = index.le(delay.view({-1, 1, 1, 1}));
  const at::Tensor others = at::zeros({ego.size(0), actors - 1, 1 + steps, 1}, ego.options());
  return at::cat({ego, others}, 1);
}

NoisedSample noised_sample(const at::Tensor& targets, const NoiseDraws& draws, const ProcessOptions& process,
                           const VpSde& sde) {
  const int64_t actors = targets.size(1), steps = targets.size(2) - 1;
  const at::Tensor of_samples = draws.uniform * (1 - process.min_time) + process.min_time;
  at::Tensor t = of_samples.view({-1, 1, 1, 1});
  NoisedSample sample;
  if (process.prefix) {
    sample.prefix = prefix_of(draws.delay, actors, steps);
    const at::Tensor given = (t * draws.shorter).clamp_min(process.min_time);
    t = at::where(sample.prefix, given, t);
    sample.t = t;
    t = t.narrow(2, 1, steps);
  } else {
    sample.t = of_samples;
  }
  const at::Tensor future = targets.narrow(2, 1, steps);
  at::Tensor noised = sde.alpha(t) * future;
  noised = noised + sde.sigma(t) * draws.z;
  sample.x = at::cat({targets.narrow(2, 0, 1), noised}, 2);
  if (process.prefix) sample.x = at::where(sample.prefix, targets, sample.x);
  return sample;
}

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
