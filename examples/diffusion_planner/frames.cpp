#include "diffusion_planner/frames.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string_view>

#include "diffusion_planner/frame_map.h"
#include "diffusion_planner/random.h"

namespace scenes {
namespace {

constexpr double standing = 3;  // m in all of the future

bool is_there(const Track& track, int from, int to) {
  return track.at(from) != nullptr && track.at(to) != nullptr;
}

void put_pose(float* to, const Pose& ego, const Pose& pose) {
  const Point seen = ego.sees(pose.at);
  to[0] = static_cast<float>(seen.x);
  to[1] = static_cast<float>(seen.y);
  to[2] = static_cast<float>(wrapped(pose.heading - ego.heading));
}

void put_ego(const Recording& recording, const Moment& moment, const dtk::diffusion_planner::FrameBatch& batch, int64_t row) {
  const Track& track = recording.tracks[moment.ego];
  const State& now = *track.at(moment.step);
  const Motion& motion = now.motion;
  float* const state = values_of(batch.ego_current_state, row);
  state[2] = 1;
  state[4] = static_cast<float>(motion.speed);
  state[6] = static_cast<float>(motion.acceleration);
  state[7] = static_cast<float>(motion.speed * motion.yaw_rate);
  state[8] = static_cast<float>(motion.steering);
  state[9] = static_cast<float>(motion.yaw_rate);
  const auto future = static_cast<int>(batch.ego_agent_future.size(1));
  for (int i = 0; i < future; ++i) {
    put_pose(values_of(batch.ego_agent_future, row) + 3 * i, motion.pose,
             track.at(moment.step + 1 + i)->motion.pose);
  }
  if (!batch.ego_agent_past.defined()) return;
  const auto past = static_cast<int>(batch.ego_agent_past.size(1));
  int32_t* const indicators = batch.turn_indicators.mutable_data_ptr<int32_t>() + row * past;
  for (int i = 0; i < past; ++i) {
    const State& then = *track.at(moment.step + 1 - past + i);
    put_pose(values_of(batch.ego_agent_past, row) + 3 * i, motion.pose, then.motion.pose);
    indicators[i] = static_cast<int32_t>(then.indicator);
  }
  float* const shape = values_of(batch.ego_shape, row);
  shape[0] = static_cast<float>(track.shape.wheelbase);
  shape[1] = static_cast<float>(track.shape.length);
  shape[2] = static_cast<float>(track.shape.width);
}

/// The end of the route, or what of it one looks ahead to.
Pose goal(const Recording& recording, const Track& track, const State& now) {
  constexpr double farthest = 150;
  double left = now.along + farthest;
  for (auto leg = static_cast<size_t>(now.leg);; ++leg) {
    const Path& path = recording.roads.lanes[static_cast<size_t>(track.route[leg])].path;
    if (left <= path.length() || leg + 1 == track.route.size()) return path.at(left);
    left -= path.length();
  }
}

void put_neighbor(const Track& track, int step, const Pose& ego, const dtk::diffusion_planner::FrameBatch& batch, int64_t row,
                  int64_t place) {
  const int64_t past = batch.neighbor_agents_past.size(2), features = batch.neighbor_agents_past.size(3);
  float* to = values_of(batch.neighbor_agents_past, row) + place * past * features;
  for (int64_t i = 0; i < past; ++i, to += features) {
    const State* const then = track.at(step + 1 + static_cast<int>(i - past));
    if (then == nullptr) continue;
    const Box box = box_of(track, *then);
    const Point at = ego.sees(box.center.at), ahead = direction(box.center.heading - ego.heading);
    const Point velocity = Pose{{}, ego.heading}.sees(velocity_of(track, *then));
    const std::array<double, 8> values = {at.x,       at.y,       ahead.x,   ahead.y,
                                          velocity.x, velocity.y, box.width, box.length};
    std::transform(values.begin(), values.end(), to, [](double value) { return static_cast<float>(value); });
    to[8 + static_cast<int>(track.kind)] = 1;
  }
  if (place >= batch.neighbor_agents_future.size(1)) return;
  const int64_t future = batch.neighbor_agents_future.size(2);
  to = values_of(batch.neighbor_agents_future, row) + place * future * 3;
  for (int64_t i = 0; i < future; ++i) {
    const State* const then = track.at(step + 1 + static_cast<int>(i));
    if (then != nullptr) put_pose(to + 3 * i, ego, box_of(track, *then).center);
  }
}

void put_neighbors(const Recording& recording, const Moment& moment, const Pose& ego,
                   const dtk::diffusion_planner::FrameBatch& batch, int64_t row) {
  struct NearTrack {
    double distance = 0;
    const Track* track = nullptr;
  };
  std::vector<NearTrack> seen;
  for (size_t i = 0; i < recording.tracks.size(); ++i) {
    const Track& track = recording.tracks[i];
    const State* const now = track.at(moment.step);
    if (i == moment.ego || now == nullptr) continue;
    const double distance = length(box_of(track, *now).center.at - ego.at);
    if (distance <= seen_things) seen.push_back({distance, &track});
  }
  std::stable_sort(seen.begin(), seen.end(),
                   [](const NearTrack& a, const NearTrack& b) { return a.distance < b.distance; });
  const auto count = std::min(batch.neighbor_agents_past.size(1), static_cast<int64_t>(seen.size()));
  for (int64_t i = 0; i < count; ++i) {
    put_neighbor(*seen[static_cast<size_t>(i)].track, moment.step, ego, batch, row, i);
  }
}

}  // namespace

std::string wrong_sizes(const dtk::diffusion_planner::FrameSizes& sizes) {
  if (sizes.past < 2 || sizes.future < 2 || sizes.past + sizes.future > max_steps) {
    return "past " + std::to_string(sizes.past) + " and future " + std::to_string(sizes.future) +
           " steps; allowed: 2 each at least, " + std::to_string(max_steps) + " together at most";
  }
  if (sizes.lane_features != 33 && sizes.lane_features != 12) {
    return std::to_string(sizes.lane_features) + " features of a lane's point; allowed: 33, upstream's 12";
  }
  if (std::min({sizes.lane_points, sizes.route_points, sizes.polygon_points, sizes.line_string_points}) < 2) {
    return "a lane, polygon or line string of fewer than 2 points";
  }
  return "";
}

std::vector<Moment> choose_moments(const Recording& recording, const dtk::diffusion_planner::FrameSizes& sizes, size_t count,
                                   uint64_t seed) {
  const auto past = static_cast<int>(sizes.past), future = static_cast<int>(sizes.future);
  std::vector<Moment> all, chosen;
  for (int step = past - 1; step + future < recording.steps; step += 10) {
    for (size_t i = 0; i < recording.tracks.size(); ++i) {
      const Track& track = recording.tracks[i];
      if (track.kind != Kind::vehicle || track.parked) continue;
      if (is_there(track, step - past + 1, step + future)) all.push_back({step, i});
    }
  }
  Random random(seed, 4);
  while (!all.empty() && chosen.size() < count) {
    std::swap(all[random.below(all.size())], all.back());
    const Moment moment = all.back();
    all.pop_back();
    const Track& track = recording.tracks[moment.ego];
    const double way =
        length(track.at(moment.step + future)->motion.pose.at - track.at(moment.step)->motion.pose.at);
    if (way < standing && !random.chance(0.15)) continue;
    const bool again = std::any_of(chosen.begin(), chosen.end(), [&](const Moment& other) {
      return other.ego == moment.ego && std::abs(other.step - moment.step) < 30;
    });
    if (!again) chosen.push_back(moment);
  }
  return chosen;
}

dtk::diffusion_planner::FrameBatch empty_frames(dtk::diffusion_planner::FrameLayout layout, const dtk::diffusion_planner::FrameSizes& sizes, int64_t count) {
  const std::vector<dtk::NpzArray> arrays = dtk::diffusion_planner::frame_arrays(layout, sizes);
  dtk::diffusion_planner::FrameBatch batch;
  dtk::diffusion_planner::FrameBatch::fields(batch, [&](std::string_view key, at::Tensor& tensor) {
    for (const dtk::NpzArray& array : arrays) {
      if (array.key != key) continue;
      std::vector<int64_t> shape = {count};
      shape.insert(shape.end(), array.shape.begin(), array.shape.end());
      tensor = at::zeros(shape, array.type);
    }
  });
  return batch;
}

void put_frame(const Recording& recording, const Moment& moment, const dtk::diffusion_planner::FrameBatch& batch, int64_t row) {
  const Track& track = recording.tracks[moment.ego];
  const State& now = *track.at(moment.step);
  const Pose& ego = now.motion.pose;
  put_ego(recording, moment, batch, row);
  put_neighbors(recording, moment, ego, batch, row);
  put_map(recording, recording.seconds(moment.step), ego, track, now, batch, row);
  if (!batch.goal_pose.defined()) return;
  put_pose(values_of(batch.goal_pose, row), ego, goal(recording, track, now));
}

}  // namespace scenes
