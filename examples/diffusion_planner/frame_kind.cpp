#include "diffusion_planner/frame_kind.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/io/npy.h"
#include "toolkit/io/npz.h"

namespace scenes {
namespace {

// Of a frame in memory each size is a factor; no preset comes near.
constexpr int64_t largest_size = 4096;

}  // namespace

FrameKind frame_kind(const std::filesystem::path& file) {
  const dtk::NpzReader npz(file);
  FrameKind kind;
  if (!npz.has("version")) kind.layout = dtk::diffusion_planner::FrameLayout::upstream;
  dtk::diffusion_planner::FrameSizes& sizes = kind.sizes;
  // The first sizes of an array.
  const auto take = [&](const char* key, size_t dimensions, const std::vector<int64_t*>& out) {
    const std::vector<int64_t> shape = npz.shape(key);
    const bool fits = shape.size() == dimensions && std::all_of(shape.begin(), shape.end(), [](int64_t size) {
                        return size >= 1 && size <= largest_size;
                      });
    if (!fits) {
      throw dtk::DataError(file.string() + ": array \"" + key + "\" has the shape " +
                           dtk::numpy_shape(shape) + "; allowed: " + std::to_string(dimensions) +
                           " sizes from 1 to " + std::to_string(largest_size) + "; make the frame again");
    }
    for (size_t i = 0; i < out.size(); ++i) *out[i] = shape[i];
  };
  take("ego_agent_future", 2, {&sizes.future});
  take("neighbor_agents_past", 3, {&sizes.neighbors, &sizes.past});
  take("neighbor_agents_future", 3, {&sizes.predicted_neighbors});
  take("static_objects", 2, {&sizes.static_objects});
  take("lanes", 3, {&sizes.lanes, &sizes.lane_points, &sizes.lane_features});
  take("route_lanes", 3, {&sizes.route_lanes, &sizes.route_points});
  if (kind.layout == dtk::diffusion_planner::FrameLayout::upstream) return kind;
  take("polygons", 3, {&sizes.polygons, &sizes.polygon_points});
  take("line_strings", 3, {&sizes.line_strings, &sizes.line_string_points});
  return kind;
}

}  // namespace scenes
