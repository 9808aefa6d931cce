// Augmentation of the driving model's frames: the ego's present state is shifted, its path leads back
// within two seconds, and everything is seen from the new present. B batch, N neighbours, V past and T future
// steps.
//
// Batches are as the files hold them, in metres, but after headings_to_cos_sin() (inputs.h). Needed
// are the ego's shape (which upstream's files have not: give one), state and future, neighbours and lanes;
// all other arrays may be undefined. What has no place or direction is not touched.
//
// On whatever device the frames lie; no value is read on the host and no shape depends on one: what is not
// accepted stays by a choice of each element.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

#include "toolkit/families/diffusion_planner/batch.h"
#include "toolkit/families/diffusion_planner/options.h"
#include "toolkit/families/diffusion_planner/smoothing.h"

namespace dtk::diffusion_planner {

/// The random part, drawn in this order.
struct ShiftDraws {
  at::Tensor coin;     // (B) in [0, 1): accepted below `probability`
  at::Tensor uniform;  // (B, 9) in [0, 1), or (B, 1) where one number is shared
  at::Tensor scale;    // (B) normal around 1: the factor on past and speeds of what is accepted
};
ShiftDraws draw_shift(const FrameBatch& scene, const AugmentationOptions& options,
                      const at::Generator& generator);

/// The ego's shifted states (B, 10) of all samples: (2 uniform - 1) times the largest shift of x, y, yaw, vx,
/// vy, ax, ay, steering and yaw rate, which the options and the original fix; then vx at least 0, the yaw
/// rate within ±0.85 rad/s, and the steering that goes with it.
at::Tensor shifted_state(const FrameBatch& scene, const at::Tensor& uniform,
                         const AugmentationOptions& options);

/// (B), bool: whether the ego's box, centred on the pose of `state` (B, 10), meets a neighbour's of the
/// present or a boundary of a lane.
at::Tensor meets_something(const FrameBatch& scene, const at::Tensor& state);

/// (B), bool: whose shift counts: coin, speed ahead, and nothing met.
at::Tensor accepted_shifts(const FrameBatch& scene, const at::Tensor& state, const at::Tensor& coin,
                           const AugmentationOptions& options);

/// `future` (B, T, 3) with its first options.rebuilt steps on quintics in x and y from `state` (B, 10) to the
/// step after them. Throws std::invalid_argument if there is no such step.
at::Tensor rebuilt_future(const at::Tensor& future, const at::Tensor& state,
                          const AugmentationOptions& options);

/// All of `scene` as seen from its current state. Rows that are absent become 0.
FrameBatch seen_from_present(FrameBatch scene, const AugmentationOptions& options);

/// All of it, for batches of one number of future steps. Calls may come from several threads at once.
class Augmentation {
 public:
  Augmentation(const AugmentationOptions& options, int64_t future_steps, c10::Device device);

  /// The scene, shifted where accepted, seen from its present, with the ego's future smoothed if the options
  /// say so (shifted or not). Types stay as they are.
  FrameBatch apply(FrameBatch scene, const ShiftDraws& draws) const;

 private:
  const AugmentationOptions options_;
  std::optional<TrajectorySmoother> smoother_;
};

}  // namespace dtk::diffusion_planner
