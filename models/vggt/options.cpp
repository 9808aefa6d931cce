#include <dtk/models/vggt_options.h>

#include <algorithm>

namespace dtk::models {
namespace {

class Check {
 public:
  explicit Check(const VggtOptions& options) : options_(resolved(options)) {
    const std::pair<const char*, std::optional<int64_t>> sizes[] = {
        {"image", options_.image},         {"patch", options_.patch},     {"hidden", options_.hidden},
        {"heads", options_.heads},         {"encoder", options_.encoder}, {"depth", options_.depth},
        {"registers", options_.registers}, {"trunk", options_.trunk},     {"features", options_.features}};
    for (const auto& [key, value] : sizes) check_size(key, value);
    if (!found_.empty()) return;
    check_divides("image", *options_.image, *options_.patch, "vggt.patch");
    check_divides("hidden", *options_.hidden, 4 * *options_.heads, "four times vggt.heads");
    check_divides("features", *options_.features, 8, "eight");
    check_taps();
    if (!options_.camera && !options_.depths && !options_.points)
      add("camera", "vggt.camera, vggt.depths and vggt.points are all false; set one of them");
  }

  std::vector<VggtProblem> found() { return std::move(found_); }

 private:
  void add(const std::string& key, const std::string& message) { found_.push_back({key, message}); }

  void check_size(const std::string& key, const std::optional<int64_t>& value) {
    const int64_t smallest = key == "registers" ? 0 : 1;
    if (!value) {
      add(key, "vggt." + key + " is not set; set it, or vggt.preset");
    } else if (*value < smallest) {
      add(key,
          "vggt." + key + " = " + std::to_string(*value) + " must be at least " + std::to_string(smallest));
    }
  }

  void check_divides(const std::string& key, int64_t value, int64_t by, const std::string& what) {
    if (value % by == 0) return;
    add(key, "vggt." + key + " = " + std::to_string(value) + " must be divisible by " + what + " (" +
                 std::to_string(by) + ")");
  }

  void check_taps() {
    for (const auto& [key, list] : {std::pair("taps", options_.taps), {"widths", options_.widths}}) {
      if (!list) return add(key, std::string("vggt.") + key + " is not set; set it, or vggt.preset");
    }
    const auto &taps = *options_.taps, &widths = *options_.widths;
    const bool are_there = std::is_sorted(taps.begin(), taps.end()) &&
                           std::adjacent_find(taps.begin(), taps.end()) == taps.end() && taps.front() >= 0 &&
                           taps.back() == *options_.depth - 1;
    if (!are_there) {
      add("taps", "vggt.taps must be four pairs, ascending, of which the last is the last of vggt.depth = " +
                      std::to_string(*options_.depth) + ", number " + std::to_string(*options_.depth - 1));
    }
    const bool fit =
        std::all_of(widths.begin(), widths.end(), [](int64_t width) { return width > 0 && width % 4 == 0; });
    if (!fit) add("widths", "vggt.widths must be four numbers above 0 that 4 divides");
  }

  const VggtOptions options_;
  std::vector<VggtProblem> found_;
};

}  // namespace

VggtOptions resolved(VggtOptions options) {
  if (options.preset != VggtPreset::of_1b) return options;
  const auto set = [](std::optional<int64_t>& size, int64_t published) {
    if (!size) size = published;
  };
  set(options.image, 518);
  set(options.patch, 14);
  set(options.hidden, 1024);
  set(options.heads, 16);
  set(options.encoder, 24);
  set(options.depth, 24);
  set(options.registers, 4);
  set(options.trunk, 4);
  set(options.features, 256);
  if (!options.widths) options.widths = {256, 512, 1024, 1024};
  if (!options.taps) options.taps = {4, 11, 17, 23};
  return options;
}

std::vector<std::string> head_paths(const VggtOptions& options) {
  std::vector<std::string> paths;
  if (options.camera) paths.emplace_back("camera_head");
  for (const auto& [is_there, name] :
       {std::pair(options.depths, "depth_head"), {options.points, "point_head"}}) {
    if (is_there) paths.insert(paths.end(), {name, std::string(name) + ".projects.*"});
  }
  return paths;
}

std::vector<VggtProblem> problems(const VggtOptions& options) {
  return Check(options).found();
}

}  // namespace dtk::models
