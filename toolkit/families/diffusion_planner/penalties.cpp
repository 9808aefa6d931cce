#include "toolkit/families/diffusion_planner/penalties.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "toolkit/families/diffusion_planner/boxes.h"
#include "toolkit/families/diffusion_planner/inputs.h"

namespace dtk::diffusion_planner {
namespace {

constexpr double kMinSquare = 1e-8;  // m²: roots have a slope, and segments a length

// Its corners (B, T, 4, 2).
at::Tensor ego_box(const at::Tensor& poses, const at::Tensor& heading, const at::Tensor& ego_shape) {
  const at::Tensor ahead = (0.5 * ego_shape.narrow(1, 0, 1)).unsqueeze(1);  // (B, 1, 1)
  const at::Tensor center = poses.narrow(2, 0, 2) + ahead * heading;
  return boxes::corners(center, heading, ego_shape.narrow(1, 1, 1), ego_shape.narrow(1, 2, 1));
}

// The segments of all line strings, S of them a sample, as planes (B, S).
struct Segments {
  at::Tensor x, y;              // begin
  at::Tensor along_x, along_y;  // to the end
  at::Tensor square;            // of the length
  at::Tensor no_border;         // bool
};

Segments segments_of(const at::Tensor& line_strings) {
  const int64_t count = line_strings.size(2) - 1;
  const at::Tensor points = line_strings.narrow(3, 0, 2);
  const at::Tensor begin = points.narrow(2, 0, count);
  const at::Tensor along = points.narrow(2, 1, count) - begin;
  const at::Tensor there = points.abs().sum(-1).gt(1e-6);
  const at::Tensor border = line_strings.select(3, 3).gt(0.5).any(2, /*keepdim=*/true);
  const at::Tensor valid = there.narrow(2, 0, count) & there.narrow(2, 1, count) & border;
  const auto plane = [](const at::Tensor& values) { return values.flatten(1, 2).contiguous(); };
  Segments segments;
  segments.x = plane(begin.select(3, 0)), segments.y = plane(begin.select(3, 1));
  segments.along_x = plane(along.select(3, 0)), segments.along_y = plane(along.select(3, 1));
  segments.square = plane(along.square().sum(-1)).clamp_min_(kMinSquare);
  segments.no_border = plane(valid.logical_not());
  return segments;
}

// Squared distances (b, n, S) of points x, y (b, n, 1) to segments given as (b, 1, S); takes four tensors of
// that size.
at::Tensor all_squares(const at::Tensor& x, const at::Tensor& y, const Segments& s) {
  at::Tensor dx = x - s.x;
  at::Tensor dy = y - s.y;
  at::Tensor at_most = dx * s.along_x;
  at::Tensor other = dy * s.along_y;
  at_most.add_(other).div_(s.square).clamp_(0, 1);
  at::mul_out(other, at_most, s.along_x);
  dx.sub_(other);
  at::mul_out(other, at_most, s.along_y);
  dy.sub_(other);
  dx.mul_(dx), dy.mul_(dy);
  return dx.add_(dy).clamp_min_(kMinSquare);
}

// The same of one segment for each point, all (B, T): with gradients, so out of place.
at::Tensor square(const at::Tensor& x, const at::Tensor& y, const Segments& s) {
  const at::Tensor from_x = x - s.x, from_y = y - s.y;
  const at::Tensor part = ((from_x * s.along_x + from_y * s.along_y) / s.square).clamp(0, 1);
  const at::Tensor dx = from_x - part * s.along_x, dy = from_y - part * s.along_y;
  return (dx * dx + dy * dy).clamp_min(kMinSquare);
}

template <class Change>
Segments each_plane(const Segments& s, Change&& change) {
  return {change(s.x),       change(s.y),      change(s.along_x),
          change(s.along_y), change(s.square), change(s.no_border)};
}

// Which pair of a point and a border is nearest: (B, T), point · S + segment; the first of equals. `outline`
// is (B, T, K, 2).
at::Tensor nearest_pairs(const at::Tensor& outline, const Segments& segments, int64_t chunk) {
  const int64_t batch = outline.size(0), steps = outline.size(1), points = outline.size(2);
  const int64_t pairs = std::max<int64_t>(points * segments.x.size(1), 1);
  const int64_t samples_at_once = std::clamp<int64_t>(chunk / pairs, 1, batch);
  const int64_t steps_at_once = std::clamp<int64_t>(chunk / (pairs * samples_at_once), 1, steps);
  std::vector<at::Tensor> of_samples;
  for (int64_t b = 0; b < batch; b += samples_at_once) {
    const int64_t samples = std::min(samples_at_once, batch - b);
    const Segments some = each_plane(
        segments, [&](const at::Tensor& plane) { return plane.narrow(0, b, samples).unsqueeze(1); });
    std::vector<at::Tensor> of_steps;
    for (int64_t t = 0; t < steps; t += steps_at_once) {
      const int64_t count = std::min(steps_at_once, steps - t);
      const at::Tensor few = outline.narrow(0, b, samples).narrow(1, t, count).flatten(1, 2);
      at::Tensor squares = all_squares(few.narrow(2, 0, 1), few.narrow(2, 1, 1), some);
      squares.masked_fill_(some.no_border, std::numeric_limits<double>::infinity());
      of_steps.push_back(squares.view({samples, count, -1}).argmin(-1));
    }
    of_samples.push_back(at::cat(of_steps, 1));
  }
  return at::cat(of_samples, 0);
}

// (B, N), of the largest kind, the first of equals.
at::Tensor margins_of(const at::Tensor& kinds, const LossOptions& loss) {
  const at::Tensor vehicle = kinds.select(2, 0), pedestrian = kinds.select(2, 1),
                   bicycle = kinds.select(2, 2);
  const at::Tensor on_foot = pedestrian.gt(vehicle) & pedestrian.ge(bicycle);
  const at::Tensor cycles = bicycle.gt(vehicle) & bicycle.gt(pedestrian);
  const at::Tensor all = at::full_like(vehicle, loss.vehicle_margin);
  return all.masked_fill(on_foot, loss.pedestrian_margin).masked_fill(cycles, loss.bicycle_margin);
}

}  // namespace

at::Tensor line_strings_in_metres(const at::Tensor& line_strings) {
  const at::Tensor nothing = line_strings.eq(0).all(-1, /*keepdim=*/true);
  return to_metres(line_strings).masked_fill(nothing, 0);
}

at::Tensor ego_outline(const at::Tensor& poses, const at::Tensor& ego_shape, const LossOptions& loss) {
  const at::Tensor heading = boxes::unit(poses.narrow(2, 2, 2), loss.min_heading());
  const at::Tensor corners = ego_box(poses, heading, ego_shape);
  const at::Tensor edges = at::cat({corners.narrow(2, 1, 3), corners.narrow(2, 0, 1)}, 2) - corners;
  std::vector<at::Tensor> points = {corners};
  for (int64_t i = 1; i <= loss.border_points; ++i) {
    points.push_back(
        at::add(corners, edges, static_cast<double>(i) / static_cast<double>(loss.border_points + 1)));
  }
  return at::stack(points, 3).flatten(2, 3);
}

at::Tensor road_border_penalty(const at::Tensor& poses, const at::Tensor& ego_shape,
                               const at::Tensor& line_strings, const LossOptions& loss) {
  const Segments segments = segments_of(line_strings);
  const int64_t count = segments.x.size(1);
  if (count == 0) return at::zeros({poses.size(0), poses.size(1)}, poses.options());
  const at::Tensor outline = ego_outline(poses, ego_shape, loss);
  at::Tensor nearest;
  {
    const at::NoGradGuard search;
    nearest = nearest_pairs(outline.detach(), segments, loss.border_chunk);
  }
  const at::Tensor segment = nearest.remainder(count);
  const at::Tensor index = nearest.div(count, "floor").view({poses.size(0), poses.size(1), 1, 1});
  const at::Tensor point = outline.gather(2, index.expand({-1, -1, 1, 2})).squeeze(2);
  const Segments chosen =
      each_plane(segments, [&](const at::Tensor& plane) { return plane.gather(1, segment); });
  const at::Tensor distance = square(point.select(2, 0), point.select(2, 1), chosen).sqrt();
  const at::Tensor penalty = (loss.border_margin - distance).relu();
  return penalty.masked_fill(chosen.no_border, 0);
}

Traffic traffic_of(const at::Tensor& now, double unit, const at::Tensor& futures, const at::Tensor& absent) {
  return {now.select(2, 6) * unit, now.select(2, 7) * unit, now.narrow(2, 8, 3), futures, absent};
}

at::Tensor collision_penalty(const at::Tensor& poses, const at::Tensor& ego_shape, const Traffic& traffic,
                             const LossOptions& loss) {
  const int64_t steps = poses.size(1), neighbors = traffic.futures.size(1);
  if (neighbors == 0) return at::zeros({poses.size(0), steps}, poses.options());
  const std::set<int64_t> looked_at = {0, steps / 4, steps / 2, 3 * steps / 4, steps - 1};
  const auto at_those = [&](const at::Tensor& values, int64_t dimension) {
    std::vector<at::Tensor> some;
    for (const int64_t step : looked_at) some.push_back(values.narrow(dimension, step, 1));
    return at::cat(some, dimension);
  };
  const at::Tensor ego = at_those(poses, 1);  // (B, s, 4)
  const at::Tensor heading = boxes::unit(ego.narrow(2, 2, 2), loss.min_heading());
  const at::Tensor own_box = ego_box(ego, heading, ego_shape);

  const at::Tensor wider = 2 * margins_of(traffic.kinds, loss);
  const auto size = [&](const at::Tensor& own) { return (own.clamp_min(1e-3) + wider).unsqueeze(-1); };
  const at::Tensor futures = at_those(traffic.futures, 2);  // (B, N, s, 4)
  const at::Tensor other_heading = boxes::unit(futures.narrow(3, 2, 2), 1e-6);
  const at::Tensor box =
      boxes::corners(futures.narrow(3, 0, 2), other_heading, size(traffic.length), size(traffic.width));

  const at::Tensor ego_axes = boxes::axes(heading).unsqueeze(1).expand({-1, neighbors, -1, -1, -1});
  const at::Tensor axes = at::cat({ego_axes, boxes::axes(other_heading)}, 3);  // (B, N, s, 4, 2)
  at::Tensor depth = boxes::depths(axes, own_box.unsqueeze(1), box).amin(-1).clamp_min(0);
  depth = depth.masked_fill(at_those(traffic.absent, 2), 0);
  const at::Tensor deepest = std::get<0>(depth.max(1));  // (B, s)

  const at::Tensor nothing = at::zeros({poses.size(0), 1}, poses.options());
  std::vector<at::Tensor> all;
  int64_t step = 0, column = 0;
  for (const int64_t seen : looked_at) {
    if (seen > step) all.push_back(nothing.expand({-1, seen - step}));
    all.push_back(deepest.narrow(1, column++, 1));
    step = seen + 1;
  }
  return at::cat(all, 1);
}

}  // namespace dtk::diffusion_planner
