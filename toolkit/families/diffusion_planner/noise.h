// What the driving model is trained on: true trajectories as the network sees them, and their noised form
// with a time for each actor and step; and the trajectories that it draws from noise, by DPM-Solver++. B
// batch, P actors (the ego first, then neighbours), T future steps.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "toolkit/diffusion/dpm_solver.h"
#include "toolkit/families/diffusion_planner/options.h"

namespace dtk::diffusion_planner {

/// What there is of a batch before noise. States are in the network's units, futures in metres.
struct TruePaths {
  at::Tensor ego_current_state;     // (B, at least 4): x, y, cos, sin
  at::Tensor neighbor_agents_past;  // (B, at least P-1, V, at least 4), of which the last step counts
  at::Tensor ego_future;            // (B, T, 4)
  at::Tensor neighbors_future;      // (B, P-1, T, 4); 0 where absent
  at::Tensor absent;                // (B, P-1, T), bool
};

/// The driving model's network for one batch: x (B, P, 1 + T, 4), times as in NoisedSample.
using TrajectoryNetwork = std::function<at::Tensor(at::Tensor x, at::Tensor t)>;

/// Present poses of all actors (B, P, 4); a neighbour that is not there now has all 0.
at::Tensor current_states(const TruePaths& truth);

/// (B, P, 1 + T, 4): the present pose, then the future, in the network's units. Entries that are absent are 0
/// one by one: a neighbour that is not there now may have a future. With process.velocity the future is the
/// differences of x and y along the poses, in metres, beside the heading at their end; as in the original the
/// first is the difference of metres to units, which poses_of() takes back.
at::Tensor targets_of(const TruePaths& truth, const ProcessOptions& process);

/// Poses in metres (B, P, T, 4) of a prediction or of targets (B, P, 1 + T, 4).
at::Tensor poses_of(const at::Tensor& trajectories, const ProcessOptions& process);

/// The random part of a training sample.
struct NoiseDraws {
  at::Tensor uniform;  // (B) in [0, 1): the times
  at::Tensor z;        // (B, P, T, 4) standard normal
  at::Tensor delay;    // (B) int64 in 0 .. max_delay: the last step that is given as truth
  at::Tensor shorter;  // () in [0, 1): the factor on the times of what is given
};
/// Drawn in this order, of the type and device of `targets` (B, P, 1 + T, 4); delay and shorter are undefined
/// without a prefix.
NoiseDraws draw_noise(const at::Tensor& targets, const ProcessOptions& process,
                      const at::Generator& generator);

struct NoisedSample {
  at::Tensor x;       // (B, P, 1 + T, 4): noised, with the present and what is given as they are
  at::Tensor t;       // (B, P, 1 + T, 1), or (B) without a prefix
  at::Tensor prefix;  // (B, P, 1 + T, 1) bool: what is given of the ego; undefined without a prefix
};
/// The noised form of `targets`. Reads no value on the host.
NoisedSample noised_sample(const at::Tensor& targets, const NoiseDraws& draws, const ProcessOptions& process,
                           const VpSde& sde = {});

/// Trajectories (B, P, 1 + T, 4) in the network's units, beginning at `current` (B, P, 4): after every step,
/// and in the result, index 0 is the present. `initial` (B, P, 1 + T, 4) is the noise, zeros for the
/// deterministic draw of validation. poses_of() makes metres of it.
at::Tensor solve_trajectories(const TrajectoryNetwork& network, const at::Tensor& current, at::Tensor initial,
                              const ProcessOptions& process = {}, const DpmSolverOptions& options = {},
                              const VpSde& sde = {});

/// Sums of values (..., T, F) along T, as of at::cumsum, whose gradient needs no at::flip, for which LibTorch
/// has no shape kernel: a job with it can be planned. Keeps nothing for backward.
at::Tensor running_sum(const at::Tensor& values);

/// Which steps of the ego are given: index ≤ delay (B) of (B, actors, 1 + steps, 1).
at::Tensor prefix_of(const at::Tensor& delay, int64_t actors, int64_t steps);

}  // namespace dtk::diffusion_planner
