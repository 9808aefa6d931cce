// Diffusion-Planner, a driving model (Zheng et al., 2025, and the fork behind Autoware's): an encoder of
// the scene, one token an object, and a DiT that denoises the future of the ego and its neighbours jointly.
// Names, shapes, initialisation and quirks are those of the published code.
//
// Letters: N batch, D hidden, P actors (the ego and the predicted neighbours), T steps of the future,
// O objects of a scene.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <dtk/models/diffusion_planner_options.h>
#include <dtk/models/layers.h>
#include <dtk/models/seam.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtk::models {

namespace diffusion_planner {
struct Parts;
}

/// A batch of scenes as the model reads them, normalised, headings as cosine and sine. Shapes: those of
/// scene_shapes(), each after N. What that does not list is not read and may be undefined. An object of which
/// everything is exactly 0 is absent, as is one that is there with such values.
struct DrivingScene {
  at::Tensor neighbor_agents_past, static_objects;
  at::Tensor lanes, lanes_speed_limit, lanes_has_speed_limit;
  at::Tensor route_lanes, route_lanes_speed_limit, route_lanes_has_speed_limit;
  at::Tensor polygons, line_strings;
  at::Tensor ego_agent_past, goal_pose, turn_indicators, ego_shape;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [neighbor_agents_past, static_objects, lanes, lanes_speed_limit, lanes_has_speed_limit, route_lanes,
           route_lanes_speed_limit, route_lanes_has_speed_limit, polygons, line_strings, ego_agent_past,
           goal_pose, turn_indicators, ego_shape] = self;
    visit("neighbor_agents_past", neighbor_agents_past);
    visit("static_objects", static_objects);
    visit("lanes", lanes);
    visit("lanes_speed_limit", lanes_speed_limit);
    visit("lanes_has_speed_limit", lanes_has_speed_limit);
    visit("route_lanes", route_lanes);
    visit("route_lanes_speed_limit", route_lanes_speed_limit);
    visit("route_lanes_has_speed_limit", route_lanes_has_speed_limit);
    visit("polygons", polygons);
    visit("line_strings", line_strings);
    visit("ego_agent_past", ego_agent_past);
    visit("goal_pose", goal_pose);
    visit("turn_indicators", turn_indicators);
    visit("ego_shape", ego_shape);
  }
};

/// What the decoder reads of a batch of scenes; made once, for any number of evaluations.
struct DrivingContext {
  at::Tensor encoding;        // (N, O, D)
  at::Tensor attend_actors;   // (N, 1, 1, P), false: an absent neighbour
  at::Tensor attend_context;  // (N, 1, 1, O), false: an absent object; undefined without mask_context
  at::Tensor route;           // (N, D), of UP only
};

/// Const functions may be called by several threads at once, as long as no policy is in `seam`.
class DiffusionPlanner {
 public:
  /// Builds the parameters on `device`, initialised as published with draws from `generator`, a generator of
  /// that device (absent: the device's default generator). The output is 0 at first. Throws
  /// std::invalid_argument with the first of problems(options).
  DiffusionPlanner(const DiffusionPlannerOptions& options, c10::Device device,
                   std::optional<at::Generator> generator = std::nullopt, const ParameterMade& made = {});

  /// Encodes the scenes. In training dropout acts, with draws from the device's default generator. Throws
  /// std::invalid_argument for a tensor of another shape, with its key.
  DrivingContext encode(const DrivingScene& scene, bool training) const;

  /// One evaluation of the network: of x (N, P, T + 1, 4), normalised poses of which the first is the current
  /// one, at the times t, (N, P, T + 1, 1) or of UP (N); (N, P, T + 1, 4).
  at::Tensor denoise(at::Tensor x, at::Tensor t, const DrivingContext& context, bool training) const;

  /// Logits (N, 5) of the turn indicator (none, disable, left, right, keep), from the ego's normalised
  /// trajectory (N, T + 1, 4) and the scene. UP has none: throws std::logic_error.
  at::Tensor turn_indicator(const at::Tensor& ego, const at::Tensor& encoding) const;

  /// All parameters in a fixed order, with the published names.
  const NamedTensors& parameters() const { return parameters_; }
  /// The named modules that run through the seam, in order of execution, each before those within it.
  const std::vector<std::string>& paths() const { return paths_; }
  const DiffusionPlannerOptions& options() const { return options_; }

  /// Replace its members to put policies in.
  Seam seam;

 private:
  DiffusionPlannerOptions options_;  // resolved
  NamedTensors parameters_;
  std::vector<std::string> paths_;
  std::shared_ptr<const diffusion_planner::Parts> parts_;
};

}  // namespace dtk::models
