#include <ATen/ATen.h>

#include <utility>

#include "diffusion_planner/parts.h"

// What an object is made of, whether it is present and where it is, is worked out before its module runs:
// small tensors without gradients. No shape depends on how many objects are present.

namespace dtk::models::diffusion_planner {
namespace {

using Options = DiffusionPlannerOptions;

constexpr int64_t kSeenSteps = 6;     // of a past; the others are zeroed
constexpr int64_t kLaneFeatures = 8;  // of a point: position, direction, both bounds; then attributes

// In the order of the tokens. The turn indicator has the ego shape's, as published; UP has three of its own.
enum Class {
  kEgo,
  kNeighbor,
  kStatic,
  kLane,
  kRoute,
  kPolygon,
  kLineString,
  kGoalPose,
  kEgoShape,
  kClasses = 10
};

/// Objects of one kind.
struct Objects {
  at::Tensor tokens;   // (N, n, D)
  at::Tensor present;  // (N, n)
  at::Tensor pose;     // (N, n, 4)
  int64_t kind;
};

at::Tensor feature(const at::Tensor& x, int64_t index) {
  return x.select(-1, index);
}

// (..., n) -> (...): whether any of the last dimension is not exactly 0
at::Tensor any_nonzero(const at::Tensor& x) {
  return x.ne(0).any(-1);
}

// (N, n, V, F) -> (N, n)
at::Tensor any_point(const at::Tensor& x) {
  return any_nonzero(x.flatten(2));
}

at::Tensor always(const at::Tensor& like, int64_t count) {
  return at::ones({like.size(0), count}, like.options().dtype(at::kBool));
}

// (N, n, ...) -> (N·n, ...)
at::Tensor rows(const at::Tensor& x) {
  return x.flatten(0, 1).contiguous();
}

at::Tensor zeroed_but_latest(const at::Tensor& past, int64_t dim) {
  const int64_t old = past.size(dim) - kSeenSteps;
  if (old <= 0) return past;
  return at::cat({at::zeros_like(past.narrow(dim, 0, old)), past.narrow(dim, old, kSeenSteps)}, dim);
}

at::Tensor zeroed_but_oldest(const at::Tensor& past, int64_t dim) {
  const int64_t late = past.size(dim) - kSeenSteps;
  if (late <= 0) return past;
  return at::cat({past.narrow(dim, 0, kSeenSteps), at::zeros_like(past.narrow(dim, kSeenSteps, late))}, dim);
}

// The pose of a point whose features 2 and 3 are taken for its direction. (N, n, V, F) -> (N, n, 4)
at::Tensor middle_pose(const at::Tensor& points) {
  const at::Tensor point = points.select(2, points.size(2) / 2);
  const at::Tensor heading = at::atan2(feature(point, 3), feature(point, 2));
  return at::stack({feature(point, 0), feature(point, 1), heading.cos(), heading.sin()}, -1);
}

// Absent objects have the token 0: (N·n, D) x (N·n, 1).
at::Tensor only_present(at::Tensor tokens, const at::Tensor& present) {
  return tokens * present;
}

// (N·n, D) -> (N, n, D)
at::Tensor per_scene(const at::Tensor& tokens, const at::Tensor& present) {
  return tokens.view({present.size(0), present.size(1), tokens.size(-1)});
}

Objects ego(const SequenceEncoder& encoder, const Options& options, at::Tensor past, Pass pass) {
  if (!options.use_ego_history) past = at::zeros_like(past);
  past = *options.oldest_ego_history ? zeroed_but_oldest(past, 1) : zeroed_but_latest(past, 1);
  at::Tensor pose = past.narrow(1, past.size(1) - 1, 1);
  const at::Tensor present = always(past, 1);
  const auto fn = [layer = &encoder, pass](Tensors&& in) {
    at::Tensor h = pooled(*layer, std::move(in[0]), pass);
    return pack(embedded(*layer, h, pass));
  };
  at::Tensor token = pass.run(encoder.path, fn, pack(std::move(past)));
  token = pass.dropout(std::move(token), *options.ego_history_dropout);
  return {token.unsqueeze(1), present, std::move(pose), kEgo};
}

Objects neighbors(const NeighborEncoder& encoder, const Options& options, at::Tensor past, Pass pass) {
  if (!options.upstream()) past = zeroed_but_latest(past, 2);
  const at::Tensor now = past.select(2, past.size(2) - 1);  // (N, n, 11)
  const at::Tensor state = past.narrow(-1, 0, 8);
  const at::Tensor steps = any_nonzero(state);  // (N, n, V)
  const at::Tensor present = steps.any(-1);
  at::Tensor speed = state.narrow(-1, 4, 2);
  if (!options.upstream()) speed = at::zeros_like(speed);
  at::Tensor x = at::cat(
      {state.narrow(-1, 0, 4), speed, state.narrow(-1, 6, 2), steps.unsqueeze(-1).to(past.scalar_type())},
      -1);
  const auto fn = [layer = &encoder, pass](Tensors&& in) {
    at::Tensor h = pooled(layer->sequence, std::move(in[0]), pass);
    h = h + layer->type_emb(in[1]);
    h = embedded(layer->sequence, h, pass);
    return pack(only_present(std::move(h), in[2]));
  };
  at::Tensor tokens = pass.run(encoder.sequence.path, fn,
                               pack(rows(x), rows(now.narrow(-1, 8, 3)), rows(present.unsqueeze(-1))));
  return {per_scene(tokens, present), present, now.narrow(-1, 0, kPose), kNeighbor};
}

Objects static_objects(const PathMlp& encoder, const at::Tensor& x, Pass pass) {
  const at::Tensor present = any_nonzero(x);
  const auto fn = [layer = &encoder.mlp, pass](Tensors&& in) {
    at::Tensor h = run_mlp(*layer, std::move(in[0]), pass);
    return pack(only_present(std::move(h), in[1]));
  };
  at::Tensor tokens = pass.run(encoder.path, fn, pack(rows(x), rows(present.unsqueeze(-1))));
  return {per_scene(tokens, present), present, x.narrow(-1, 0, kPose), kStatic};
}

Objects lanes(const LaneEncoder& encoder, const at::Tensor& x, const at::Tensor& limit,
              const at::Tensor& has_limit, int64_t kind, Pass pass) {
  const at::Tensor points = x.narrow(-1, 0, kLaneFeatures);
  const at::Tensor attributes = x.select(2, 0).narrow(-1, kLaneFeatures, x.size(-1) - kLaneFeatures);
  const at::Tensor present = any_point(points);
  const auto fn = [layer = &encoder, pass](Tensors&& in) {
    at::Tensor h = pooled(layer->sequence, std::move(in[0]), pass);
    at::Tensor added = layer->speed_limit_emb(in[2]);
    added = at::where(in[3], added, layer->unknown_speed_emb);
    h = h + added;
    added = layer->attribute_emb(in[1]);
    h = h + added;
    added.reset();
    h = embedded(layer->sequence, h, pass);
    return pack(only_present(std::move(h), in[4]));
  };
  at::Tensor tokens = pass.run(encoder.sequence.path, fn,
                               pack(rows(points), rows(attributes), rows(limit),
                                    rows(has_limit.to(at::kBool)), rows(present.unsqueeze(-1))));
  return {per_scene(tokens, present), present, middle_pose(points), kind};
}

// Steps to the next point are appended to the points' features, so that what middle_pose() takes for a
// direction are the first of these and the last flag of the type, as published.
Objects lines(const SequenceEncoder& encoder, const at::Tensor& x, int64_t kind, Pass pass) {
  const at::Tensor xy = x.narrow(-1, 0, 2);
  const int64_t last = x.size(2) - 1;
  at::Tensor steps = xy.narrow(2, 1, last) - xy.narrow(2, 0, last);
  steps = at::constant_pad_nd(steps, {0, 0, 0, 1});
  const at::Tensor points = at::cat({x, steps}, -1);
  const at::Tensor present = any_point(points.narrow(-1, 0, kPose));
  const auto fn = [layer = &encoder, pass](Tensors&& in) {
    at::Tensor h = pooled(*layer, std::move(in[0]), pass);
    h = embedded(*layer, h, pass);
    return pack(only_present(std::move(h), in[1]));
  };
  at::Tensor tokens = pass.run(encoder.path, fn, pack(rows(points), rows(present.unsqueeze(-1))));
  return {per_scene(tokens, present), present, middle_pose(points), kind};
}

// A pose (N, 4), or of what has none the origin.
Objects vector(const VectorEncoder& encoder, const at::Tensor& x, at::Tensor pose, int64_t kind, Pass pass) {
  const auto fn = [layer = &encoder, pass](Tensors&& in) {
    at::Tensor h = run_mlp(layer->channel_pre_project, std::move(in[0]), pass);
    h = layer->norm(h);
    return pack(run_mlp(layer->emb_project, std::move(h), pass));
  };
  at::Tensor token = pass.run(encoder.path, fn, pack(x));
  return {token.unsqueeze(1), always(x, 1), pose.unsqueeze(1), kind};
}

// (N, 4): x = y = 0, heading 0
at::Tensor origin(const at::Tensor& like) {
  at::Tensor pose = at::zeros({like.size(0), kPose}, like.options());
  pose.select(1, 2).fill_(1);
  return pose;
}

// (N, n, D): the route's lanes by their place along it, absent ones 0
at::Tensor route_places(const at::Tensor& embedding, const at::Tensor& present) {
  return embedding * present.unsqueeze(-1);
}

std::vector<Objects> all_objects(const Encoder& encoder, const Options& options, const DrivingScene& scene,
                                 Pass pass) {
  std::vector<Objects> all;
  if (encoder.ego) all.push_back(ego(*encoder.ego, options, scene.ego_agent_past, pass));
  all.push_back(neighbors(encoder.neighbor, options, scene.neighbor_agents_past, pass));
  all.push_back(static_objects(encoder.static_objects, scene.static_objects, pass));
  all.push_back(
      lanes(encoder.lane, scene.lanes, scene.lanes_speed_limit, scene.lanes_has_speed_limit, kLane, pass));
  if (options.upstream()) return all;
  all.push_back(lanes(*encoder.route, scene.route_lanes, scene.route_lanes_speed_limit,
                      scene.route_lanes_has_speed_limit, kRoute, pass));
  at::Tensor places = route_places(encoder.route_position_embedding, all.back().present);
  all.back().tokens = all.back().tokens + places;
  places.reset();
  all.push_back(lines(*encoder.polygon, scene.polygons, kPolygon, pass));
  all.push_back(lines(*encoder.line_string, scene.line_strings, kLineString, pass));
  all.push_back(vector(*encoder.goal_pose, scene.goal_pose, scene.goal_pose, kGoalPose, pass));
  all.push_back(vector(*encoder.ego_shape, scene.ego_shape, origin(scene.ego_shape), kEgoShape, pass));
  at::Tensor turns = scene.turn_indicators.narrow(1, 0, *options.time_len - 1);  // the last is the label
  turns = turns.to(scene.ego_shape.scalar_type());
  if (!options.use_turn_indicators) turns = at::zeros_like(turns);
  all.push_back(vector(*encoder.turn_indicator, turns, origin(turns), kEgoShape, pass));
  return all;
}

// (1, O, classes), one-hot
at::Tensor kinds(const std::vector<Objects>& all, int64_t count, bool upstream) {
  at::Tensor table = at::zeros({1, count, upstream ? 3 : kClasses}, all.front().pose.options());
  int64_t begin = 0;
  for (const Objects& objects : all) {
    const int64_t n = objects.present.size(1);
    const int64_t column = upstream ? objects.kind - kNeighbor : objects.kind;
    table.narrow(1, begin, n).select(2, column).fill_(1);
    begin += n;
  }
  return table;
}

at::Tensor joined(const std::vector<Objects>& all, at::Tensor Objects::*member) {
  Tensors list;
  for (const Objects& objects : all) list.push_back(objects.*member);
  return at::cat(list, 1);
}

}  // namespace

at::Tensor encode(const Encoder& encoder, const Options& options, const DrivingScene& scene, Pass pass) {
  std::vector<Objects> all = all_objects(encoder, options, scene, pass);
  const at::Tensor present = joined(all, &Objects::present);  // (N, O)
  const int64_t n = present.size(0), count = present.size(1);
  at::Tensor places =
      at::cat({joined(all, &Objects::pose), kinds(all, count, options.upstream()).expand({n, -1, -1})}, 2);
  at::Tensor absent = present.logical_not().unsqueeze(-1);
  at::Tensor tokens = joined(all, &Objects::tokens);
  all.clear();
  const auto emb = [layer = &encoder.pos_emb](Tensors&& in) {
    at::Tensor h = (*layer)(in[0]);
    return pack(h.masked_fill(in[1], 0));
  };
  places = pass.run(encoder.pos_emb_path, emb, pack(std::move(places), absent));
  tokens = tokens + places;
  places.reset();

  // The first object is attended to even if it is absent, so that no row of attention is empty.
  at::Tensor mask = at::cat({always(present, 1), present.narrow(1, 1, count - 1)}, 1);
  mask = mask.view({n, 1, 1, count});
  for (const FusionBlock& block : encoder.blocks) {
    const auto fn = [layer = &block, pass](Tensors&& in) {
      at::Tensor x = std::move(in[0]);
      return pack(run_fusion(*layer, std::move(x), in[1], pass));
    };
    tokens = pass.run(block.path, fn, pack(std::move(tokens), mask));
  }
  const auto norm = [layer = &encoder.norm](Tensors&& in) { return pack((*layer)(in[0])); };
  tokens = pass.run(encoder.fusion_norm_path, norm, pack(std::move(tokens)));
  if (options.mask_context.value_or(false)) tokens = tokens.masked_fill(absent, 0);
  return tokens;
}

at::Tensor encode_route(const SequenceEncoder& encoder, const at::Tensor& route_lanes, Pass pass) {
  at::Tensor points = route_lanes.narrow(-1, 0, kPose).flatten(1, 2).contiguous();
  const at::Tensor present = any_nonzero(points.flatten(1)).unsqueeze(-1);  // (N, 1)
  const auto fn = [layer = &encoder, pass](Tensors&& in) {
    at::Tensor h = pooled(*layer, std::move(in[0]), pass);
    h = embedded(*layer, h, pass);
    return pack(only_present(std::move(h), in[1]));
  };
  return pass.run(encoder.path, fn, pack(std::move(points), present));
}

}  // namespace dtk::models::diffusion_planner
