#include "toolkit/families/vggt/scene_files.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/families/vggt/scenes.h"
#include "toolkit/io/json.h"
#include "toolkit/io/npy.h"

namespace dtk::vggt {
namespace {

namespace fs = std::filesystem;

constexpr char kCameras[] = "cameras.json", kPoints[] = "points.ply", kDepthPictures[] = "depth";

std::string named(const std::string& name, bool random) {
  return (random ? "random_" : "") + name;
}

void check_finite(const char* what, const at::Tensor& values) {
  if (is_finite(values)) return;
  throw Error(ExitCode::failure, std::string("the model's ") + what +
                                     " are not finite, so that nothing was written; are these its weights?");
}

// Grey from near, white, to far, black; with the depths that they stand for.
std::pair<std::string, std::string> preview(const at::Tensor& depths) {
  const float* const values = depths.const_data_ptr<float>();
  const auto count = static_cast<size_t>(depths.numel());
  const auto [nearest, farthest] = std::minmax_element(values, values + count);
  const float range = *farthest > *nearest ? *farthest - *nearest : 1;
  Image image{depths.size(0), depths.size(1), 1, std::vector<uint8_t>(count)};
  std::transform(values, values + count, image.pixels.begin(), [&](float depth) {
    return static_cast<uint8_t>(std::lround(255 * (1 - (depth - *nearest) / range)));
  });
  return {encode_png(image), fmt::format("{{\"white\": {}, \"black\": {}}}", *nearest, *nearest + range)};
}

}  // namespace

// What points.ply is made of.
struct SceneFiles::Cloud {
  const Array& values;  // three numbers a pixel, or its depth
  const Array& confidence;
  bool are_points = false;
};

void SceneFiles::check_folder(FileSystem& files, const fs::path& folder, bool random) {
  for (const char* const name : {kCameras, "depth.npy", "depth_confidence.npy", kDepthPictures, "points.npy",
                                 "points_confidence.npy", kPoints}) {
    if (files.exists(folder / named(name, random)))
      throw ConfigError(fmt::format("--out {}: holds {} already; name another folder", folder.string(),
                                    named(name, random)));
  }
  if (files.exists(folder) && !files.is_folder(folder))
    throw ConfigError("--out " + folder.string() + ": is a file; name a folder");
}

SceneFiles::SceneFiles(FileSystem& files, fs::path folder, std::shared_ptr<const Pictures> pictures,
                       bool random)
    : files_(files),
      folder_(without_slash(folder)),
      partial_(folder_ / ".unfinished"),
      where_(partial_),
      pictures_(std::move(pictures)),
      random_(random),
      made_folder_(!files.exists(folder_)) {
  files_.create_directories(folder_);
  lock_ = files_.try_lock_folder(folder_);
  if (!lock_)
    throw ConfigError("--out " + folder_.string() + ": another process writes into it; name another folder");
  files_.remove_all(partial_);  // of a process that was killed
  files_.create_directories(partial_);
  std::set<std::string> stems;
  for (int64_t i = 0; i < pictures_->size(); ++i) stems.insert(fs::path(pictures_->name(i)).stem().string());
  stems_differ_ = std::ssize(stems) == pictures_->size();
}

SceneFiles::~SceneFiles() {
  try {
    files_.remove_all(partial_);
    if (made_folder_ && files_.list(folder_).empty()) files_.remove_all(folder_);
  } catch (const FileError&) {  // the next process removes it
  }
}

fs::path SceneFiles::place(const std::string& name) const {
  return where_ / named(name, random_);
}

std::string SceneFiles::preview_name(int64_t index) const {
  const fs::path name = pictures_->name(index);
  return named((stems_differ_ ? name.stem() : name).string() + ".png", random_);
}

void SceneFiles::append(Array& array, const std::string& name, const at::Tensor& some) {
  if (!array.file) {
    array.name = name;
    array.file = files_.create(place(name));
    std::vector<int64_t> shape = some.sizes().vec();
    array.of_frame = some.numel() / shape[0];
    shape[0] = pictures_->size();
    write_npy_header(*array.file, at::kFloat, shape);
    array.file->sync();
    array.values_begin = files_.size(place(name));
  }
  array.file->write(some.const_data_ptr<float>(), some.nbytes());
}

std::vector<float> SceneFiles::frame_of(const Array& array, int64_t index) const {
  std::vector<float> values(static_cast<size_t>(array.of_frame));
  const size_t bytes = values.size() * sizeof(float);
  files_.read_into(place(array.name), array.values_begin + static_cast<uint64_t>(index) * bytes,
                   values.data(), bytes);
  return values;
}

void SceneFiles::take_poses(const at::Tensor& poses) {
  check_finite("poses", poses);
  const float* const values = poses.const_data_ptr<float>();
  std::vector<std::string> names;
  for (int64_t i = 0; i < poses.size(0); ++i) {
    Pose pose{};
    std::copy(values + 9 * i, values + 9 * (i + 1), pose.begin());
    cameras_.push_back(
        camera_of(pose, static_cast<double>(pictures_->height()), static_cast<double>(pictures_->width())));
    names.push_back(pictures_->name(i));
  }
  write_file_atomically(files_, place(kCameras), cameras_json(cameras_, names, random_ ? kRandomNote : ""));
}

void SceneFiles::take_depths(int64_t first, const at::Tensor& depths, const at::Tensor& confidence) {
  check_finite("depths", depths);
  check_finite("confidences", confidence);
  if (first == 0) files_.create_directories(place(kDepthPictures));
  append(depths_, "depth.npy", depths);
  append(depth_confidence_, "depth_confidence.npy", confidence);
  for (int64_t i = 0; i < depths.size(0); ++i) {
    const auto [png, scale] = preview(depths.select(0, i));
    const std::string name = preview_name(first + i);
    write_file_atomically(files_, place(kDepthPictures) / name, png);
    const nlohmann::json quoted = name;
    scales_ += fmt::format("{} {}: {}", scales_.empty() ? "{" : ",\n", json_line(quoted), scale);
  }
}

void SceneFiles::take_points(int64_t, const at::Tensor& points, const at::Tensor& confidence) {
  check_finite("points", points);
  check_finite("confidences", confidence);
  append(points_, "points.npy", points);
  append(points_confidence_, "points_confidence.npy", confidence);
}

// Whether points of a frame can be told: a camera that sees no angle has none.
bool SceneFiles::places(const Cloud& cloud, int64_t frame) const {
  if (cloud.are_points) return true;
  const Camera& camera = cameras_[static_cast<size_t>(frame)];
  return camera.focal_x > 0 && camera.focal_y > 0;
}

// each(frame, pixel, confidence) of what is no white, of frames whose points can be told.
template <class Each>
void SceneFiles::each_pixel(const Cloud& cloud, const Each& each) const {
  const auto width = static_cast<size_t>(pictures_->width());
  for (int64_t frame = 0; frame < pictures_->size(); ++frame) {
    if (!places(cloud, frame)) continue;
    const std::vector<float> sure = frame_of(cloud.confidence, frame);
    const Pictures::Rows rows = pictures_->rows(frame);
    for (size_t pixel = static_cast<size_t>(rows.first) * width;
         pixel < static_cast<size_t>(rows.last) * width; ++pixel)
      each(frame, pixel, sure[pixel]);
  }
}

// The lower one of an even number. Confidences are above 1, and bits of such numbers have their order: first
// their upper half is found, then the lower one.
float SceneFiles::median(const Cloud& cloud) const {
  uint32_t found = 0, known = 0;  // bits, and which of them are known
  std::optional<int64_t> rank;    // among those that agree in them
  for (const int shift : {16, 0}) {
    std::vector<int64_t> counts(1 << 16);
    int64_t all = 0;
    each_pixel(cloud, [&](int64_t, size_t, float confidence) {
      const auto bits = std::bit_cast<uint32_t>(confidence);
      if ((bits & known) != found) return;
      ++counts[(bits >> shift) & 0xFFFF];
      ++all;
    });
    if (all == 0) return 0;
    if (!rank) rank = (all - 1) / 2;
    uint32_t half = 0;
    while (*rank >= counts[half]) *rank -= counts[half++];
    found |= half << shift;
    known |= uint32_t{0xFFFF} << shift;
  }
  return std::bit_cast<float>(found);
}

// each(frame, pixel, point) of those above `limit`; returns the surest confidence of all.
template <class Each>
float SceneFiles::each_point(const Cloud& cloud, double limit, const Each& each) const {
  const auto height = static_cast<double>(pictures_->height()),
             width = static_cast<double>(pictures_->width());
  const auto side = static_cast<size_t>(pictures_->width());
  float surest = 1;
  int64_t values_of = -1;  // a frame
  std::vector<float> values;
  each_pixel(cloud, [&](int64_t frame, size_t pixel, float confidence) {
    surest = std::max(surest, confidence);
    if (!(static_cast<double>(confidence) > limit)) return;
    if (values_of != frame) values = frame_of(cloud.values, values_of = frame);
    std::array<float, 3> point{};
    if (cloud.are_points) {
      std::copy_n(values.data() + 3 * pixel, 3, point.begin());
    } else {
      const Vector behind = point_behind(
          cameras_[static_cast<size_t>(frame)], static_cast<double>(pixel % side) + 0.5,
          static_cast<double>(pixel / side) + 0.5, static_cast<double>(values[pixel]), height, width);
      std::copy(behind.begin(), behind.end(), point.begin());
    }
    if (std::all_of(point.begin(), point.end(), [](float one) { return std::isfinite(one); }))
      each(frame, pixel, point);
  });
  return surest;
}

// Binary PLY, whose head says how many there are. Returns what there is to say of those that are not there.
std::string SceneFiles::write_points(const Cloud& cloud, std::optional<double> confidence) const {
  int64_t without = 0;  // frames
  for (int64_t frame = 0; frame < pictures_->size(); ++frame) without += places(cloud, frame) ? 0 : 1;
  if (without == pictures_->size())
    return "no points.ply: a focal length of every camera is 0, so that no depth has a place";
  // The median itself is among them, so that they are half where all confidences are one.
  const double limit = confidence ? *confidence : static_cast<double>(std::nextafter(median(cloud), 0.0F));
  int64_t count = 0;
  const float surest = each_point(cloud, limit, [&](int64_t, size_t, const auto&) { ++count; });
  if (count == 0 && static_cast<double>(surest) > limit)
    return "no points.ply: no point that these depths and cameras give is finite";
  if (count == 0)
    throw ConfigError(
        fmt::format("--confidence {}: no point is above it, the surest has {}; points.ply is "
                    "left out, the other files are in {}",
                    limit, surest, folder_.string()));
  write_file_atomically(files_, place(kPoints), [&](WritableFile& file) {
    std::string text = fmt::format(
        "ply\nformat binary_little_endian 1.0\n{}comment confidence above {}\nelement vertex {}\n"
        "property float x\nproperty float y\nproperty float z\n"
        "property uchar red\nproperty uchar green\nproperty uchar blue\nend_header\n",
        random_ ? "comment " + std::string(kRandomNote) + "\n" : "", limit, count);
    int64_t colours_of = -1;
    Image colours;
    each_point(cloud, limit, [&](int64_t frame, size_t pixel, const std::array<float, 3>& point) {
      if (colours_of != frame) {
        colours = pictures_->read(colours_of = frame);
        file.write(text.data(), text.size());
        text.clear();
      }
      std::array<char, 15> vertex{};
      std::memcpy(vertex.data(), point.data(), sizeof(point));
      std::memcpy(vertex.data() + sizeof(point), colours.pixels.data() + 3 * pixel, 3);
      text.append(vertex.data(), vertex.size());
    });
    file.write(text.data(), text.size());
  });
  if (without == 0) return "";
  return fmt::format("{} of {} frames have no points: a focal length of their cameras is 0", without,
                     pictures_->size());
}

void SceneFiles::put_in_place() {
  for (const std::string& name : files_.list(partial_)) files_.rename(partial_ / name, folder_ / name);
  files_.sync_directory(folder_);
  where_ = folder_;
}

std::string SceneFiles::finish(std::optional<double> confidence) {
  for (Array* const array : {&depths_, &depth_confidence_, &points_, &points_confidence_}) {
    if (!array->file) continue;
    array->file->sync();
    array->file->close();
  }
  if (!scales_.empty())
    write_file_atomically(files_, place(kDepthPictures) / named("scales.json", random_), scales_ + "}\n");
  put_in_place();  // whatever becomes of the points
  if (points_.file) return write_points({points_, points_confidence_, true}, confidence);
  if (cameras_.empty() || !depths_.file) return "";
  return write_points({depths_, depth_confidence_, false}, confidence);
}

}  // namespace dtk::vggt
