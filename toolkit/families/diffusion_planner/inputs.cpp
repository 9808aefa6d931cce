#include "toolkit/families/diffusion_planner/inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "toolkit/core/format.h"

namespace dtk::diffusion_planner {
namespace {

constexpr auto kAhead = static_cast<float>(kUnitForward), kLength = static_cast<float>(kUnitLength);

/// x, y, then `scaled` - 2 features divided as positions are, then features as they are.
FeatureScale scale_of(int64_t features, int64_t scaled, float mean_x) {
  FeatureScale scale{std::vector<float>(static_cast<size_t>(features), 0.0F),
                     std::vector<float>(static_cast<size_t>(features), 1.0F)};
  scale.mean[0] = mean_x;
  std::fill_n(scale.std.begin(), scaled, kLength);
  return scale;
}

/// x, y, cos, sin, then as many features that are divided as positions are, up to `features`.
FeatureScale state_scale(int64_t features, int64_t scaled) {
  FeatureScale scale = scale_of(features, 2, kAhead);
  std::fill_n(scale.std.begin() + 4, scaled, kLength);
  return scale;
}

void check_scale(const FeatureScale& scale, const std::string& name) {
  const bool usable = scale.mean.size() == scale.std.size() && !scale.std.empty() &&
                      std::find(scale.std.begin(), scale.std.end(), 0.0F) == scale.std.end();
  if (usable) return;
  throw std::invalid_argument(fmt::format(
      "the scale of {} has {} means and {} deviations; allowed: as many of both, at least one, and "
      "no deviation of 0",
      name, scale.mean.size(), scale.std.size()));
}

at::Tensor on_device(const std::vector<float>& values, c10::Device device) {
  return at::tensor(values, at::kFloat).to(device);
}

/// True where all features of a row are 0: (..., 1).
at::Tensor absent_rows(const at::Tensor& values) {
  return values.eq(0).all(-1, /*keepdim=*/true);
}

}  // namespace

at::Tensor with_cos_sin(const at::Tensor& poses) {
  const at::Tensor heading = poses.narrow(-1, 2, 1);
  const at::Tensor cosine = heading.cos(), sine = heading.sin();
  return at::cat({poses.narrow(-1, 0, 2), cosine, sine}, -1);
}

void headings_to_cos_sin(FrameBatch& batch) {
  for (at::Tensor* poses : {&batch.ego_agent_past, &batch.goal_pose}) {
    if (poses->defined()) *poses = with_cos_sin(*poses);
  }
}

Futures futures_of(const at::Tensor& ego_future, const at::Tensor& neighbors_future) {
  Futures futures;
  futures.ego = with_cos_sin(ego_future);
  const at::Tensor absent = absent_rows(neighbors_future);
  futures.neighbors = with_cos_sin(neighbors_future);
  futures.neighbors.masked_fill_(absent, 0);
  futures.neighbor_mask = absent.squeeze(-1);
  return futures;
}

std::map<std::string, FeatureScale> published_scales(int64_t lane_features) {
  const FeatureScale lanes = scale_of(lane_features, 8, kAhead), limit = scale_of(1, 1, 0);
  return {{"ego_agent_past", pose_scale()},
          {"ego_current_state", state_scale(10, 4)},
          {"neighbor_agents_past", state_scale(11, 4)},
          {"static_objects", state_scale(10, 2)},
          {"lanes", lanes},
          {"lanes_speed_limit", limit},
          {"route_lanes", lanes},
          {"route_lanes_speed_limit", limit},
          {"polygons", scale_of(3, 2, kAhead)},
          {"line_strings", scale_of(4, 2, kAhead)},
          {"goal_pose", pose_scale()}};
}

FeatureScale pose_scale() {
  return scale_of(4, 2, kAhead);
}

Normalizer::Normalizer(const std::map<std::string, FeatureScale>& scales, c10::Device device) {
  for (const auto& [key, scale] : scales) {
    check_scale(scale, key);
    scales_[key] = {on_device(scale.mean, device), on_device(scale.std, device)};
  }
}

at::Tensor Normalizer::normalized(const std::string& key, at::Tensor values) const {
  const Scale& scale = scales_.at(key);
  const at::Tensor absent = absent_rows(values);
  at::Tensor result = values - scale.mean;
  values.reset();
  result.div_(scale.std);
  result.masked_fill_(absent, 0);
  return result;
}

void Normalizer::normalize(FrameBatch& batch) const {
  FrameBatch::fields(batch, [&](std::string_view key, at::Tensor& tensor) {
    const std::string name(key);
    if (tensor.defined() && scales_.count(name) > 0) tensor = normalized(name, std::move(tensor));
  });
}

// x alone is shifted: no tensor of four shifts is copied from the host.
at::Tensor to_units(const at::Tensor& metres) {
  const at::Tensor x = (metres.narrow(-1, 0, 1) - kUnitForward) / kUnitLength;
  const at::Tensor y = metres.narrow(-1, 1, 1) / kUnitLength;
  return at::cat({x, y, metres.narrow(-1, 2, 2)}, -1);
}

at::Tensor to_metres(const at::Tensor& units) {
  const at::Tensor x = units.narrow(-1, 0, 1) * kUnitLength + kUnitForward;
  const at::Tensor y = units.narrow(-1, 1, 1) * kUnitLength;
  return at::cat({x, y, units.narrow(-1, 2, 2)}, -1);
}

}  // namespace dtk::diffusion_planner
