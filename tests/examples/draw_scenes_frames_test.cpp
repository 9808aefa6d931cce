// Frames of drawn worlds: what the files hold, and that there is something to learn in them.
#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "diffusion_planner/frame_writer.h"
#include "diffusion_planner/frames.h"
#include "diffusion_planner/scene_set.h"
#include "support/catch.h"
#include "support/diffusion_planner/samples.h"
#include "support/error_text.h"
#include "support/files/temporary_folder.h"
#include "toolkit/families/diffusion_planner/frames.h"
#include "toolkit/families/diffusion_planner/inputs.h"
#include "toolkit/families/diffusion_planner/metrics.h"
#include "toolkit/io/file_system.h"

namespace {

using namespace dtk;
using namespace dtk::diffusion_planner;

/// `count` frames of a set, one behind the other.
FrameBatch frames_of(const scenes::SceneSet& set, int64_t count) {
  const FrameBatch all = scenes::empty_frames(set.layout, set.sizes, count);
  scenes::for_each_frame(set, count, [&](const FrameBatch& frame, int64_t number) {
    std::vector<at::Tensor> to;
    FrameBatch::fields(all, [&](std::string_view, const at::Tensor& tensor) { to.push_back(tensor); });
    auto next = to.begin();
    FrameBatch::fields(frame, [&](std::string_view, const at::Tensor& tensor) {
      if (tensor.defined()) next->select(0, number).copy_(tensor[0]);
      ++next;
    });
  });
  return all;
}

scenes::SceneSet preset(const std::string& name) {
  return scenes::scene_set(name).value();
}

/// Frames of preset "H": everything around fits in.
const FrameBatch& wide_frames() {
  static const FrameBatch frames = frames_of(preset("H"), 60);
  return frames;
}

double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

/// (N, neighbours), bool: those that are there now.
at::Tensor present(const FrameBatch& frames) {
  return frames.neighbor_agents_past.select(2, -1).ne(0).any(-1);
}

/// From each point (N, T, 2) to the nearest of the route's centre lines, (N, T).
at::Tensor from_route(const FrameBatch& frames, const at::Tensor& points) {
  const at::Tensor lanes = frames.route_lanes;
  const at::Tensor is_there = lanes.narrow(3, 0, 8).ne(0).any(-1).any(-1);  // (N, R)
  const at::Tensor begin = lanes.narrow(2, 0, lanes.size(2) - 1).narrow(3, 0, 2).flatten(1, 2).unsqueeze(1);
  const at::Tensor along = lanes.narrow(2, 0, lanes.size(2) - 1).narrow(3, 2, 2).flatten(1, 2).unsqueeze(1);
  const at::Tensor there = is_there.unsqueeze(-1).expand({-1, -1, lanes.size(2) - 1}).flatten(1, 2);
  const at::Tensor from = points.unsqueeze(2) - begin;  // (N, T, segments, 2)
  const at::Tensor part =
      ((from * along).sum(-1) / along.square().sum(-1).clamp_min(1e-6)).clamp(0, 1).unsqueeze(-1);
  const at::Tensor away = (from - part * along).norm(2, -1);
  return away.masked_fill(there.logical_not().unsqueeze(1), 1e9).amin(-1);
}

Outcome outcome_of(const FrameBatch& frames) {
  const Futures futures = futures_of(frames.ego_agent_future, frames.neighbor_agents_future);
  return {futures.ego,
          futures.neighbors,
          futures.neighbor_mask,
          frames.turn_indicators,
          frames.ego_shape,
          frames.line_strings,
          frames.neighbor_agents_past.select(2, -1).narrow(1, 0, futures.neighbors.size(1))};
}

scenes::Box box(const at::Tensor& x, const at::Tensor& y, double heading, double length, double width) {
  return {{{x.item<double>(), y.item<double>()}, heading}, length, width};
}

}  // namespace

TEST_CASE("drawn frames: Frames reads back what was written, in each preset's sizes") {
  for (const std::string name : {"reduced", "H", "M", "UP"}) {
    INFO(name);
    const test::TemporaryFolder folder;
    const scenes::SceneSet set = preset(name);
    const FrameBatch frames = frames_of(set, 3);
    for (int64_t i = 0; i < 3; ++i) {
      scenes::write_frame(posix_file_system(), folder / (std::to_string(i) + ".npz"), frames, i,
                          {.layout = set.layout});
    }
    const Frames source(folder.path(), {.layout = set.layout, .sizes = set.sizes});
    const FrameBatch read = source.allocate(3);
    for (int64_t i = 0; i < 3; ++i) source.read(i, read, i);
    CHECK(test::same_samples(read, frames));
    CHECK(largest(read.ego_agent_future) > 1);
    CHECK(largest(read.lanes) > 1);
  }
}

TEST_CASE("drawn frames: a seed always gives the same ones, and held-out ones are of other worlds") {
  scenes::SceneSet set = preset("reduced"), held_out = set, other = set;
  held_out.part = scenes::Part::held_out;
  other.seed = 2;
  const FrameBatch frames = frames_of(set, 30);
  CHECK(test::same_samples(frames, frames_of(set, 30)));
  CHECK_FALSE(test::same_samples(frames, frames_of(other, 30)));
  const at::Tensor futures = frames.ego_agent_future, others = frames_of(held_out, 30).ego_agent_future;
  CHECK(largest((futures.unsqueeze(1) - others.unsqueeze(0)).abs().amax({2, 3}).amin()) > 1e-3);
  std::set<uint64_t> worlds;
  for (uint64_t i = 0; i < 1000; ++i) {
    for (const scenes::SceneSet& one : {set, held_out, other}) worlds.insert(scenes::world_seed(one, i));
  }
  CHECK(worlds.size() == 3000);
  const FrameBatch first = frames_of(set, 5);
  CHECK(at::equal(first.lanes, frames.lanes.narrow(0, 0, 5)));
}

TEST_CASE("drawn frames: the ego vehicle is at the origin, and goes on from its past as its state says") {
  const FrameBatch& frames = wide_frames();
  CHECK(largest(frames.ego_agent_past.select(1, -1)) == 0);
  const at::Tensor state = frames.ego_current_state;
  CHECK(largest(state.narrow(1, 0, 4) - at::tensor({0.0F, 0.0F, 1.0F, 0.0F})) == 0);
  const at::Tensor speed = state.select(1, 4);
  const at::Tensor last = frames.ego_agent_past.select(1, -2), next = frames.ego_agent_future.select(1, 0);
  // Half a step's acceleration, and what that may change in a step.
  CHECK(largest(last.narrow(1, 0, 2).norm(2, 1) - (speed - 0.05 * state.select(1, 6)) * 0.1) < 1e-3);
  CHECK(largest(next.narrow(1, 0, 2).norm(2, 1) - (speed + 0.05 * state.select(1, 6)) * 0.1) < 0.02);
  CHECK(largest(last.select(1, 2) + 0.1 * state.select(1, 9)) < 1e-5);
  const at::Tensor path = at::cat({frames.ego_agent_past, frames.ego_agent_future}, 1);
  const at::Tensor steps = path.narrow(1, 1, path.size(1) - 1) - path.narrow(1, 0, path.size(1) - 1);
  CHECK(largest(steps.narrow(2, 0, 2).norm(2, 2)) < 1.9);
  CHECK(largest(at::atan2(steps.select(2, 2).sin(), steps.select(2, 2).cos())) < 0.12);
  const at::Tensor faster = steps.narrow(2, 0, 2).norm(2, 2).diff(1, 1) * 100;  // m/s²
  CHECK(largest(faster) < 6.3);
  CHECK(speed.gt(8).sum().item<int64_t>() > 10);
  const at::Tensor turns = frames.turn_indicators;
  CHECK((turns.ge(1) & turns.le(3)).all().item<bool>());
  CHECK(turns.select(1, -1).eq(2).any().item<bool>());
  CHECK(turns.select(1, -1).eq(3).any().item<bool>());
  const at::Tensor goal = frames.goal_pose.narrow(1, 0, 2).norm(2, 1);
  CHECK((goal.amax().item<double>() > 60 && goal.amax().item<double>() < 151));
}

TEST_CASE("drawn frames: neighbours by their distance, then nothing; absent steps are zeros") {
  for (const FrameBatch& frames : {wide_frames(), frames_of(preset("reduced"), 30)}) {
    const at::Tensor there = present(frames), past = frames.neighbor_agents_past;
    const at::Tensor counts = there.sum(1);
    const at::Tensor ranks = at::arange(there.size(1)).unsqueeze(0);
    CHECK(at::equal(there, ranks.lt(counts.unsqueeze(1))));
    CHECK(counts.amax().item<int64_t>() > 12);
    CHECK(past.masked_select(there.logical_not().view({there.size(0), -1, 1, 1})).eq(0).all().item<bool>());
    const at::Tensor distance = past.select(2, -1).narrow(2, 0, 2).norm(2, 2).masked_fill(~there, 1000);
    CHECK(distance.diff(1, 1).amin().item<double>() > -1e-4);
    CHECK(distance.masked_select(there).amax().item<double>() <= scenes::seen_things + 1e-3);
    const at::Tensor steps = past.ne(0).any(-1);  // what has come stays
    CHECK(steps.to(at::kInt).diff(1, 2).masked_select(there.unsqueeze(-1)).ge(0).all().item<bool>());
    CHECK(at::equal(past.narrow(3, 8, 3).sum(-1), steps.to(at::kFloat)));
    CHECK(largest(past.narrow(3, 2, 2).norm(2, 3) - steps.to(at::kFloat)) < 1e-5);
    const at::Tensor future = frames.neighbor_agents_future.ne(0).any(-1);
    const at::Tensor known = there.narrow(1, 0, future.size(1));
    CHECK(future.masked_select(known.logical_not().unsqueeze(-1)).any().item<bool>() == false);
    CHECK(future.to(at::kInt).diff(1, 2).le(0).all().item<bool>());
  }
  // Of everything there is, some has come or gone.
  const at::Tensor steps = wide_frames().neighbor_agents_past.ne(0).any(-1);
  CHECK((steps.select(2, -1) & ~steps.select(2, 0)).any().item<bool>());
  const at::Tensor later = wide_frames().neighbor_agents_future.ne(0).any(-1);
  CHECK((later.select(2, 0) & ~later.select(2, -1)).any().item<bool>());
  for (const int64_t kind : {8, 9, 10})
    CHECK(wide_frames().neighbor_agents_past.select(3, kind).any().item<bool>());
}

TEST_CASE("drawn frames: a neighbour's next place is where its velocity leads") {
  const FrameBatch& frames = wide_frames();
  const at::Tensor now = frames.neighbor_agents_past.select(2, -1),
                   before = frames.neighbor_agents_past.select(2, -2),
                   next = frames.neighbor_agents_future.select(2, 0);
  const at::Tensor velocity = now.narrow(2, 4, 2);
  const at::Tensor goes_on = present(frames) & next.ne(0).any(-1);
  const at::Tensor has_come = present(frames) & before.ne(0).any(-1);
  const auto error = [&](const at::Tensor& moved, const at::Tensor& counted) {
    return largest((moved - velocity * 0.1).norm(2, 2).masked_select(counted));
  };
  // Not of pedestrians: they may stop or turn at once.
  const at::Tensor drives = now.select(2, 9).eq(0);
  CHECK(error(next.narrow(2, 0, 2) - now.narrow(2, 0, 2), goes_on & drives) < 0.07);
  CHECK(error(now.narrow(2, 0, 2) - before.narrow(2, 0, 2), has_come & drives) < 0.07);
  CHECK(error(next.narrow(2, 0, 2) * 0, goes_on & drives) > 1);  // what is compared is not 0
  const at::Tensor heading = at::atan2(now.select(2, 3), now.select(2, 2));
  const at::Tensor turned = next.select(2, 2) - heading;
  CHECK(largest(at::atan2(turned.sin(), turned.cos()).masked_select(goes_on & drives)) < 0.12);
}

TEST_CASE("drawn frames: nobody overlaps at the current time") {
  const FrameBatch& frames = wide_frames();
  int64_t pairs = 0, overlapping = 0;
  for (int64_t n = 0; n < frames.lanes.size(0); ++n) {
    const at::Tensor shape = frames.ego_shape[n];
    std::vector<scenes::Box> boxes = {
        box(shape[0] / 2, at::zeros({}), 0, shape[1].item<double>(), shape[2].item<double>())};
    const at::Tensor now = frames.neighbor_agents_past[n].select(1, -1);
    for (int64_t i = 0; i < now.size(0) && now[i].ne(0).any().item<bool>(); ++i) {
      if (now[i][9].item<float>() == 1) continue;
      boxes.push_back(box(now[i][0], now[i][1],
                          std::atan2(now[i][3].item<double>(), now[i][2].item<double>()),
                          now[i][7].item<double>(), now[i][6].item<double>()));
    }
    for (size_t i = 0; i < boxes.size(); ++i) {
      for (size_t j = i + 1; j < boxes.size(); ++j) {
        ++pairs;
        overlapping += scenes::overlap(boxes[i], boxes[j]) ? 1 : 0;
      }
    }
  }
  CHECK(pairs > 5000);
  CHECK(overlapping == 0);
}

TEST_CASE("drawn frames: the ego vehicle keeps to its route, clear of borders and of others") {
  const FrameBatch& frames = wide_frames();
  const at::Tensor path = frames.ego_agent_future.narrow(2, 0, 2);
  CHECK(largest(from_route(frames, path)) < 0.6);
  CHECK(largest(from_route(frames, path + 3)) > 1.5);  // beside it
  const Outcome outcome = outcome_of(frames);
  const at::Tensor own = outcome.ego_future.unsqueeze(1);
  const EgoMetrics metrics = ego_metrics(own, outcome, {});
  CHECK(largest(metrics.road_border) == 0);
  CHECK(largest(metrics.lateral) < 1e-5);
  CHECK(metrics.neighbor_margin.gt(0).sum().item<int64_t>() == 0);
  const EgoMetrics beside = ego_metrics(own + at::tensor({0.0F, 4.0F, 0.0F, 0.0F}), outcome, {});
  CHECK(beside.neighbor_margin.gt(0).sum().item<int64_t>() > 0);
}

TEST_CASE("drawn frames: the map around") {
  const FrameBatch& frames = wide_frames();
  for (const at::Tensor& lanes : {frames.lanes, frames.route_lanes}) {
    const at::Tensor there = lanes.ne(0).any(-1).any(-1);
    const at::Tensor counts = there.sum(1).unsqueeze(1);
    CHECK(at::equal(there, at::arange(there.size(1)).unsqueeze(0).lt(counts)));
    const at::Tensor steps = lanes.narrow(3, 0, 2).diff(1, 2);
    CHECK(largest(steps - lanes.narrow(3, 2, 2).narrow(2, 0, steps.size(2))) < 1e-4);
    CHECK(largest(lanes.narrow(3, 2, 2).select(2, -1)) == 0);
    const at::Tensor widths = lanes.narrow(3, 4, 2).norm(2, 3).masked_select(there.unsqueeze(-1));
    CHECK(largest(widths - scenes::lane_width / 2) < 1e-5);
    CHECK(largest(lanes.narrow(3, 4, 2) + lanes.narrow(3, 6, 2)) == 0);
    for (const auto& [first, count] : {std::pair{8, 5}, std::pair{13, 10}, std::pair{23, 10}}) {
      CHECK(at::equal(lanes.narrow(3, first, count).sum(-1).ne(0),
                      there.unsqueeze(-1).expand({-1, -1, lanes.size(2)})));
      CHECK(largest(lanes.narrow(3, first, count).sum(-1)) == 1);
    }
    for (const int64_t light : {8, 10}) CHECK(lanes.select(3, light).any().item<bool>());
  }
  CHECK(frames.lanes.select(3, 9).any().item<bool>());
  const at::Tensor there = frames.lanes.ne(0).any(-1).any(-1);
  CHECK(there.sum(1).amin().item<int64_t>() > 5);
  const at::Tensor distance = frames.lanes.narrow(3, 0, 2).norm(2, 3).amin(2).masked_fill(~there, 1000);
  CHECK(distance.diff(1, 1).amin().item<double>() > -1e-3);
  const at::Tensor limit = frames.lanes_speed_limit, known = frames.lanes_has_speed_limit;
  CHECK(at::equal(limit.ne(0), known));
  CHECK((limit.amax().item<double>() < 17 && limit.masked_select(known).amin().item<double>() > 8));
  CHECK((known.logical_not() & there.unsqueeze(-1)).any().item<bool>());
  // The route begins where the ego vehicle is.
  const at::Tensor origin = at::zeros({frames.lanes.size(0), 1, 2});
  CHECK(largest(from_route(frames, origin)) < 0.6);
  for (const int64_t type : {2, 3}) CHECK(frames.line_strings.select(3, type).any().item<bool>());
  CHECK(frames.polygons.select(3, 2).eq(1).any().item<bool>());
  const at::Tensor zebra = frames.polygons.narrow(3, 0, 2).ne(0).any(-1) & frames.polygons.select(3, 2).eq(0);
  CHECK(zebra.any().item<bool>());
  CHECK(frames.static_objects.narrow(2, 6, 4).any().item<bool>());
}

TEST_CASE("drawn frames: going straight on at the same speed is far from what happens") {
  const FrameBatch frames = frames_of(preset("reduced"), 120);
  const Outcome outcome = outcome_of(frames);
  const at::Tensor velocity = frames.ego_current_state.narrow(1, 4, 2).unsqueeze(1);  // (N, 1, 2)
  const at::Tensor seconds = at::arange(1, 81, at::kFloat).view({1, -1, 1}) * 0.1;
  const at::Tensor guess = at::cat({velocity * seconds, at::ones({120, 80, 1}), at::zeros({120, 80, 1})}, 2);
  const EgoMetrics metrics = ego_metrics(guess.unsqueeze(1), outcome, {});
  const at::Tensor distance = metrics.position_l2.sqrt();  // (N, T)
  const at::Tensor final = distance.select(1, -1), lateral = metrics.lateral.select(1, -1);
  const double ade = distance.mean().item<double>(), fde = final.mean().item<double>();
  const auto share = [](const at::Tensor& condition) {
    return condition.to(at::kDouble).mean().item<double>();
  };
  WARN("constant velocity, " << final.size(0) << " drawn frames: ADE " << ade << " m, FDE " << fde
                             << " m, ego_position_lat_loss " << metrics.lateral.mean().item<double>()
                             << " m; at the end above 2 m: " << 100 * share(final.gt(2))
                             << " %, to the side: " << 100 * share(lateral.gt(2)) << " %");
  CHECK(ade > 5);
  CHECK(fde > 12);
  CHECK(share(final.gt(2)) > 0.7);
  CHECK(share(lateral.gt(2)) > 0.3);
  // Some stop and some start.
  const at::Tensor end = frames.ego_agent_future.narrow(2, 0, 2).diff(1, 1).norm(2, 2).select(1, -1) * 10;
  const at::Tensor now = frames.ego_current_state.select(1, 4);
  CHECK(share(now.gt(5) & end.lt(1)) > 0.03);
  CHECK(share(now.lt(1) & end.gt(5)) > 0.03);
}

TEST_CASE("drawn frames: sizes that cannot be drawn are refused") {
  scenes::SceneSet set = preset("reduced");
  const auto text = [&] {
    return test::error_text<std::invalid_argument>(
        [&] { scenes::for_each_frame(set, 1, [](const FrameBatch&, int64_t) {}); });
  };
  set.sizes.future = 270;
  CHECK(text() ==
        "for_each_frame: past 31 and future 270 steps; allowed: 2 each at least, 300 together at most");
  set = preset("reduced");
  set.sizes.lane_features = 20;
  CHECK(text() == "for_each_frame: 20 features of a lane's point; allowed: 33, upstream's 12");
  set = preset("reduced");
  set.sizes.lane_points = 1;
  CHECK(text() == "for_each_frame: a lane, polygon or line string of fewer than 2 points");
  CHECK_FALSE(scenes::scene_set("L").has_value());
}
