// Sizes and arrays of the driving model's frames, against what its models read.
#include "toolkit/families/diffusion_planner/layout.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <stdexcept>

#include "support/catch.h"
#include "support/diffusion_planner/preset.h"
#include "support/error_text.h"

namespace dtk {

using test::error_text;

TEST_CASE("diffusion_planner layout: sizes and layout are those of a model") {
  const auto of = [](const char* preset) {
    return diffusion_planner::sizes_of(test::diffusion_planner_preset(preset));
  };
  CHECK(of("H") == diffusion_planner::FrameSizes{});
  diffusion_planner::FrameSizes fewer;
  fewer.neighbors = fewer.predicted_neighbors = 32;
  CHECK(of("M") == fewer);
  diffusion_planner::FrameSizes upstream = fewer;
  upstream.past = 21;
  upstream.predicted_neighbors = 10;
  upstream.lanes = 70;
  upstream.lane_features = 12;
  CHECK(of("UP") == upstream);
  CHECK(diffusion_planner::layout_of(test::diffusion_planner_preset("H")) ==
        diffusion_planner::FrameLayout::version_2);
  CHECK(diffusion_planner::layout_of(test::diffusion_planner_preset("M")) ==
        diffusion_planner::FrameLayout::version_2);
  CHECK(diffusion_planner::layout_of(test::diffusion_planner_preset("UP")) ==
        diffusion_planner::FrameLayout::upstream);

  models::DiffusionPlannerOptions model;
  model.time_len = 2;
  model.future_len = 10;
  model.agent_num = 4;
  model.predicted_neighbor_num = 3;
  model.static_objects_num = 5;
  model.lane_num = 6, model.lane_len = 7;
  model.route_num = 8, model.route_len = 9;
  model.polygon_num = 11, model.polygon_len = 12;
  model.line_string_num = 13, model.line_string_len = 14;
  CHECK(diffusion_planner::sizes_of(model) == diffusion_planner::FrameSizes{.past = 2,
                                                                            .future = 10,
                                                                            .neighbors = 4,
                                                                            .predicted_neighbors = 3,
                                                                            .static_objects = 5,
                                                                            .lanes = 6,
                                                                            .lane_points = 7,
                                                                            .route_lanes = 8,
                                                                            .route_points = 9,
                                                                            .polygons = 11,
                                                                            .polygon_points = 12,
                                                                            .line_strings = 13,
                                                                            .line_string_points = 14});
}

TEST_CASE("diffusion_planner layout: what a model reads of a scene are arrays of its frames") {
  for (const char* preset : {"H", "M", "UP"}) {
    INFO(preset);
    const models::DiffusionPlannerOptions model = test::diffusion_planner_preset(preset);
    const std::vector<NpzArray> arrays = diffusion_planner::frame_arrays(diffusion_planner::layout_of(model),
                                                                         diffusion_planner::sizes_of(model));
    for (auto [key, shape] : models::scene_shapes(model)) {
      INFO(key);
      if (key == "ego_agent_past" || key == "goal_pose") shape.back() = 3;  // a heading becomes cos and sin
      CHECK(std::count_if(arrays.begin(), arrays.end(), [&](const NpzArray& array) {
              return array.key == key && array.shape == shape;
            }) == 1);
    }
  }
}

TEST_CASE("diffusion_planner layout: sizes that are none") {
  diffusion_planner::FrameSizes sizes;
  sizes.lanes = 0;
  CHECK(error_text<std::invalid_argument>([&] {
          diffusion_planner::frame_arrays(diffusion_planner::FrameLayout::version_2, sizes);
        }) == "FrameSizes: a size is 0; allowed: from 1");
  sizes = {};
  sizes.predicted_neighbors = 321;
  CHECK(error_text<std::invalid_argument>([&] {
          diffusion_planner::frame_arrays(diffusion_planner::FrameLayout::version_2, sizes);
        }) == "FrameSizes: predicted_neighbors is 321; allowed: up to neighbors, 320");
}

}  // namespace dtk
