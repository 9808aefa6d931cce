#include "toolkit/families/diffusion_planner/frames.h"

#include "fuzz/input_files.h"
#include "fuzz/target.h"

namespace dtk::fuzz {
namespace {

using namespace diffusion_planner;

/// The first byte chooses: a frame of upstream's layout, one of version 2, or a list of frames.
void read_frames(std::string_view input) {
  if (input.empty()) return;
  const int choice = static_cast<unsigned char>(input[0]) % 3;
  FrameOptions options;
  options.layout = choice == 0 ? FrameLayout::upstream : FrameLayout::version_2;
  options.sizes = {.past = 2,
                   .future = 2,
                   .neighbors = 2,
                   .predicted_neighbors = 1,
                   .static_objects = 1,
                   .lanes = 2,
                   .lane_points = 2,
                   .route_lanes = 1,
                   .route_points = 2,
                   .lane_features = 12,
                   .polygons = 1,
                   .polygon_points = 2,
                   .line_strings = 1,
                   .line_string_points = 2};
  std::string list(input.substr(1));
  if (choice < 2) {
    input_folder().write("frame.npz", input.substr(1));
    list = "[\"frame.npz\"]";
  }
  const Frames frames(input_folder().write("list.json", list), options);
  const FrameBatch batch = frames.allocate(1);
  frames.read(frames.size() - 1, batch, 0);
}

}  // namespace

const Target frames = {read_frames, linear<128, 1024>};

}  // namespace dtk::fuzz
