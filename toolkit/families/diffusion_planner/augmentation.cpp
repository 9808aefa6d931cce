#include "toolkit/families/diffusion_planner/augmentation.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace dtk::diffusion_planner {
namespace {

// The frame of a pose (B, at least 4) of x, y, cos, sin.
class Frame {
 public:
  explicit Frame(const at::Tensor& pose) : pose_(pose) {}

  // Directions (B, ..., 2).
  at::Tensor turned(const at::Tensor& direction) const {
    const at::Tensor x = direction.select(-1, 0), y = direction.select(-1, 1);
    const at::Tensor cosine = entry(2, x.dim()), sine = entry(3, x.dim());
    return at::stack({x * cosine + y * sine, y * cosine - x * sine}, -1);
  }
  // Places (B, ..., 2).
  at::Tensor moved(const at::Tensor& place) const {
    const int64_t dimensions = place.dim() - 1;
    return turned(at::stack(
        {place.select(-1, 0) - entry(0, dimensions), place.select(-1, 1) - entry(1, dimensions)}, -1));
  }
  // Headings (B, ...), rad, within ±π.
  at::Tensor turned_heading(const at::Tensor& heading) const {
    const at::Tensor own = at::atan2(pose_.select(1, 3), pose_.select(1, 2));
    const at::Tensor difference = heading - shaped(own, heading.dim());
    return at::atan2(difference.sin(), difference.cos());
  }
  // Rows (B, ..., F) whose first two features are a place, followed by `directions` directions; 0 where the
  // first `tested` features are 0 (all of them: F).
  at::Tensor seen(const at::Tensor& rows, int64_t directions, int64_t tested) const {
    std::vector<at::Tensor> parts = {moved(rows.narrow(-1, 0, 2))};
    for (int64_t i = 0; i < directions; ++i) parts.push_back(turned(rows.narrow(-1, 2 + 2 * i, 2)));
    const int64_t done = 2 + 2 * directions;
    parts.push_back(rows.narrow(-1, done, rows.size(-1) - done));
    const at::Tensor absent = rows.narrow(-1, 0, tested).eq(0).all(-1, /*keepdim=*/true);
    return at::cat(parts, -1).masked_fill(absent, 0);
  }

 private:
  at::Tensor shaped(const at::Tensor& of_samples, int64_t dimensions) const {
    std::vector<int64_t> sizes(static_cast<size_t>(dimensions), 1);
    sizes[0] = -1;
    return of_samples.view(sizes);
  }
  at::Tensor entry(int64_t index, int64_t dimensions) const {
    return shaped(pose_.select(1, index), dimensions);
  }

  at::Tensor pose_;
};

at::Tensor future_seen(const Frame& frame, const at::Tensor& future) {
  return at::cat(
      {frame.moved(future.narrow(-1, 0, 2)), frame.turned_heading(future.select(-1, 2)).unsqueeze(-1)}, -1);
}

template <class Change>
void change_if_there(at::Tensor& tensor, Change&& change) {
  if (tensor.defined()) tensor = change(tensor);
}

}  // namespace

ShiftDraws draw_shift(const FrameBatch& scene, const AugmentationOptions& options,
                      const at::Generator& generator) {
  const at::Tensor& state = scene.ego_current_state;
  const int64_t batch = state.size(0);
  ShiftDraws draws;
  draws.coin = at::rand({batch}, generator, state.options());
  draws.uniform = at::rand({batch, options.shared_perturbation ? 1 : 9}, generator, state.options());
  draws.scale = at::randn({batch}, generator, state.options()) * options.past_scale + 1;
  return draws;
}

FrameBatch seen_from_present(FrameBatch scene, const AugmentationOptions& options) {
  const at::Tensor present = scene.ego_current_state;
  const Frame frame(present);
  scene.ego_agent_future = future_seen(frame, scene.ego_agent_future);
  {
    const at::Tensor absent = scene.neighbor_agents_future.narrow(-1, 0, 2).eq(0).all(-1, /*keepdim=*/true);
    scene.neighbor_agents_future = future_seen(frame, scene.neighbor_agents_future).masked_fill(absent, 0);
  }
  scene.neighbor_agents_past = frame.seen(scene.neighbor_agents_past, 2, 6);
  scene.lanes = frame.seen(scene.lanes, 3, 8);
  change_if_there(scene.route_lanes, [&](const at::Tensor& rows) { return frame.seen(rows, 3, 8); });
  for (at::Tensor* points : {&scene.polygons, &scene.line_strings}) {
    change_if_there(*points, [&](const at::Tensor& rows) { return frame.seen(rows, 0, rows.size(-1)); });
  }
  change_if_there(scene.static_objects,
                  [&](const at::Tensor& rows) { return frame.seen(rows, 1, rows.size(-1)); });
  if (!options.unmoved_goal_and_past) {
    for (at::Tensor* poses : {&scene.ego_agent_past, &scene.goal_pose}) {
      change_if_there(*poses, [&](const at::Tensor& rows) { return frame.seen(rows, 1, rows.size(-1)); });
    }
  }
  scene.ego_current_state = at::cat(
      {frame.moved(present.narrow(1, 0, 2)), frame.turned(present.narrow(1, 2, 2)),
       frame.turned(present.narrow(1, 4, 2)), frame.turned(present.narrow(1, 6, 2)), present.narrow(1, 8, 2)},
      1);
  return scene;
}

Augmentation::Augmentation(const AugmentationOptions& options, int64_t future_steps, c10::Device device)
    : options_(options) {
  if (options.smooth) smoother_.emplace(future_steps, device);
}

FrameBatch Augmentation::apply(FrameBatch scene, const ShiftDraws& draws) const {
  const at::Tensor shifted = shifted_state(scene, draws.uniform, options_);
  const at::Tensor accepted = accepted_shifts(scene, shifted, draws.coin, options_);
  scene.ego_agent_future =
      at::where(accepted.view({-1, 1, 1}), rebuilt_future(scene.ego_agent_future, shifted, options_),
                scene.ego_agent_future);
  const at::Tensor state = at::where(accepted.unsqueeze(1), shifted, scene.ego_current_state);
  const at::Tensor scale = draws.scale.clamp(0.8, 1.2).masked_fill(accepted.logical_not(), 1).unsqueeze(1);
  scene.ego_current_state =
      at::cat({state.narrow(1, 0, 4), state.narrow(1, 4, 4) * scale, state.narrow(1, 8, 2)}, 1);
  change_if_there(scene.ego_agent_past, [&](const at::Tensor& past) {
    return at::cat({past.narrow(2, 0, 2) * scale.unsqueeze(2), past.narrow(2, 2, 2)}, 2);
  });
  scene = seen_from_present(std::move(scene), options_);
  if (smoother_) {
    const at::Tensor& future = scene.ego_agent_future;
    scene.ego_agent_future =
        smoother_->fit(future, scene.ego_current_state.select(1, 4)).future.to(future.scalar_type());
  }
  return scene;
}

}  // namespace dtk::diffusion_planner
