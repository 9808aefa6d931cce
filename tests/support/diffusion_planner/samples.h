// Samples of the driving model for tests.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <string_view>

#include "toolkit/families/diffusion_planner/batch.h"
#include "toolkit/families/diffusion_planner/layout.h"

namespace dtk::test {

/// Of frame_a, frame_b and frame_c in tests/fixtures/diffusion_planner/frames.
inline diffusion_planner::FrameSizes reduced_sizes() {
  diffusion_planner::FrameSizes sizes;
  sizes.neighbors = sizes.predicted_neighbors = 8;
  sizes.lanes = 6;
  sizes.route_lanes = 3;
  sizes.polygons = 2;
  sizes.line_strings = 4;
  sizes.static_objects = 3;
  return sizes;
}

/// Small ones, all different.
inline diffusion_planner::FrameSizes tiny_sizes() {
  diffusion_planner::FrameSizes sizes;
  sizes.past = 4;
  sizes.future = 5;
  sizes.neighbors = sizes.predicted_neighbors = 3;
  sizes.static_objects = 2;
  sizes.lanes = 6;
  sizes.route_lanes = 1;
  sizes.lane_points = 7;
  sizes.route_points = 13;
  sizes.lane_features = 12;
  sizes.polygons = 8;
  sizes.polygon_points = 9;
  sizes.line_strings = 10;
  sizes.line_string_points = 11;
  return sizes;
}

/// `count` samples of random numbers in every array of the layout.
inline diffusion_planner::FrameBatch random_samples(diffusion_planner::FrameLayout layout,
                                                    const diffusion_planner::FrameSizes& sizes,
                                                    int64_t count) {
  const std::vector<NpzArray> arrays = diffusion_planner::frame_arrays(layout, sizes);
  diffusion_planner::FrameBatch batch;
  diffusion_planner::FrameBatch::fields(batch, [&](std::string_view key, at::Tensor& tensor) {
    const auto array =
        std::find_if(arrays.begin(), arrays.end(), [&](const NpzArray& known) { return known.key == key; });
    if (array == arrays.end()) return;
    std::vector<int64_t> shape = {count};
    shape.insert(shape.end(), array->shape.begin(), array->shape.end());
    tensor = array->type == at::kFloat ? at::randn(shape)
                                       : at::randint(0, 2, shape, at::TensorOptions(array->type));
  });
  return batch;
}

/// Both have the same arrays, equal but for NaNs, which are no value of a sample.
inline bool same_samples(const diffusion_planner::FrameBatch& a, const diffusion_planner::FrameBatch& b) {
  std::vector<at::Tensor> of_a, of_b;
  diffusion_planner::FrameBatch::fields(
      a, [&](std::string_view, const at::Tensor& tensor) { of_a.push_back(tensor); });
  diffusion_planner::FrameBatch::fields(
      b, [&](std::string_view, const at::Tensor& tensor) { of_b.push_back(tensor); });
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) {
                      return x.defined() == y.defined() &&
                             (!x.defined() || (x.scalar_type() == y.scalar_type() && at::equal(x, y)));
                    });
}

}  // namespace dtk::test
