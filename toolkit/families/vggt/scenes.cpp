#include "toolkit/families/vggt/scenes.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/core/text.h"
#include "toolkit/families/vggt/options.h"
#include "toolkit/families/vggt/pictures.h"
#include "toolkit/io/json.h"
#include "toolkit/io/npy.h"

namespace dtk::vggt {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kJsonDepth = 8;
constexpr uint64_t kMaxFile = uint64_t{64} << 30;

[[noreturn]] void refuse(const std::string& place, const std::string& seen) {
  throw DataError(place + ": " + seen);
}

template <size_t N>
std::array<double, N> numbers(const nlohmann::json& json, const std::string& place) {
  if (!json.is_array() || json.size() != N) refuse(place, fmt::format("wanted: a list of {} numbers", N));
  std::array<double, N> list{};
  for (size_t i = 0; i < N; ++i) {
    if (!json[i].is_number()) refuse(place, fmt::format("wanted: a list of {} numbers", N));
    list.at(i) = json[i].get<double>();
    if (!std::isfinite(list.at(i))) refuse(place, "a number that is not finite");
  }
  return list;
}

const nlohmann::json& member(const nlohmann::json& json, const char* name, const std::string& place) {
  if (!json.is_object() || !json.contains(name)) refuse(place, fmt::format("has no \"{}\"", name));
  return json[name];
}

std::string text_of(const nlohmann::json& json) {
  return json.is_string() ? in_quotes(json.get<std::string>()) : std::string("no text");
}

// Depths of a scene (S, H, W), each 0 or above.
std::vector<float> read_depths(const fs::path& file, int64_t frames, int64_t height, int64_t width) {
  const std::string bytes = content_of(file, kMaxFile), name = shown(file);
  const NpyArray array = parse_npy(bytes, name);
  const std::vector<int64_t> wanted{frames, height, width};
  if (array.type != at::kFloat || array.shape != wanted)
    refuse(name,
           fmt::format("holds {} of {}; wanted: fp32 of {}, as many as frames/ has, of vggt.data.height and "
                       "vggt.data.width",
                       numpy_shape(array.shape), c10::toString(array.type), numpy_shape(wanted)));
  std::vector<float> depths(array.values.size() / sizeof(float));
  std::memcpy(depths.data(), array.values.data(), array.values.size());
  for (size_t i = 0; i < depths.size(); ++i) {
    if (!std::isfinite(depths[i]) || depths[i] < 0)
      refuse(name,
             fmt::format("value {} is {}; allowed: 0, where nothing is known, and finite numbers above it", i,
                         depths[i]));
  }
  return depths;
}

double mean_above_zero(const float* values, int64_t count) {
  double sum = 0;
  int64_t valid = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] <= 0) continue;
    sum += values[i];
    ++valid;
  }
  return valid == 0 ? 0 : sum / static_cast<double>(valid);
}

struct OneScene {
  std::string name;
  std::vector<fs::path> frames;
  std::vector<Camera> cameras;
  std::vector<float> depths;          // (S, H, W)
  std::vector<int64_t> may_be_first;  // frames with a valid depth
};

class SceneSource final : public DataSource {
 public:
  explicit SceneSource(const RunConfig& config)
      : data_(options_of(config).data), seed_(stream_seed(config.train.seed, "frames")) {
    const fs::path folder = data_.scenes;
    FileSystem& files = posix_file_system();
    if (!files.exists(folder) || !files.is_folder(folder))
      throw DataError("vggt.data.scenes = " + toml_text(data_.scenes) + ": no such folder");
    std::vector<std::string> names = files.list(folder);
    std::sort(names.begin(), names.end(), natural_less);
    for (const std::string& name : names) {
      if (!name.starts_with('.') && files.is_folder(folder / name)) scenes_.push_back(opened(folder / name));
    }
    if (scenes_.empty()) refuse(shown(folder), "holds no folder; each scene is one");
  }

  int64_t size() const override { return std::ssize(scenes_); }
  std::string description() const override {
    return fmt::format("{} scenes, {} frames of {} x {} of each at a time ({})", size(), data_.frames,
                       data_.width, data_.height, data_.scenes);
  }
  DataIdentity identity() const override {
    ClassDigest digest;
    for (int64_t i = 0; i < size(); ++i) {
      const OneScene& scene = scenes_[static_cast<size_t>(i)];
      int64_t bytes = 0;
      for (const fs::path& frame : scene.frames) bytes += data_file(frame).bytes;
      const fs::path folder = fs::path(data_.scenes) / scene.name;
      for (const char* const name : {"depth.npy", "cameras.json"}) bytes += data_file(folder / name).bytes;
      digest.add(scene.name, i, bytes);
    }
    return {{}, {digest.finish(0, "scenes")}};
  }
  std::string sample_name(int64_t index) const override {
    return scenes_.at(static_cast<size_t>(index)).name;
  }
  Batch allocate(int64_t count, bool pinned) const override {
    return allocate_batch(data_, count, at::TensorOptions().pinned_memory(pinned));
  }

  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const override {
    const OneScene& scene = scenes_.at(static_cast<size_t>(index));
    const std::vector<int64_t> chosen = frames_of(scene, index, epoch);
    const int64_t pixels = data_.height * data_.width;
    const auto depths_of = [&](int64_t frame) { return scene.depths.data() + frame * pixels; };
    const double scale = mean_above_zero(depths_of(chosen[0]), pixels);
    const Camera& first = scene.cameras[static_cast<size_t>(chosen[0])];
    for (int64_t i = 0; i < data_.frames; ++i) {
      const int64_t frame = chosen[static_cast<size_t>(i)];
      write_values(checked_picture(scene.frames[static_cast<size_t>(frame)]),
                   batch.tensors[kPictures].select(0, row).select(0, i));
      Camera camera = relative_to(first, scene.cameras[static_cast<size_t>(frame)]);
      for (double& one : camera.translation) one /= scale;
      const Pose pose = pose_of(camera, static_cast<double>(data_.height), static_cast<double>(data_.width));
      float* const into = batch.tensors[kPoses].select(0, row).select(0, i).mutable_data_ptr<float>();
      std::transform(pose.begin(), pose.end(), into, [](double value) { return static_cast<float>(value); });
      if (!std::all_of(into, into + pose.size(), [](float value) { return std::isfinite(value); }))
        refuse(scene.name + "/cameras.json",
               "cameras are farther apart than numbers reach, for depths as in depth.npy");
      float* const depths = batch.tensors[kDepths].select(0, row).select(0, i).mutable_data_ptr<float>();
      std::transform(depths_of(frame), depths_of(frame) + pixels, depths,
                     [&](float depth) { return static_cast<float>(depth / scale); });
    }
  }

 private:
  OneScene opened(const fs::path& folder) const {
    OneScene scene;
    scene.name = folder.filename().string();
    scene.frames = picture_files(folder / "frames");
    const int64_t count = std::ssize(scene.frames), pixels = data_.height * data_.width;
    if (count < data_.frames)
      refuse(shown(folder / "frames"),
             fmt::format("holds {} pictures, and a sample has vggt.data.frames = {}", count, data_.frames));
    const fs::path cameras = folder / "cameras.json";
    std::vector<std::string> names;
    for (const fs::path& frame : scene.frames) names.push_back(frame.filename().string());
    scene.cameras = parse_cameras(content_of(cameras, kMaxFile), shown(cameras), names);
    if (std::ssize(scene.cameras) != count)
      refuse(shown(cameras),
             fmt::format("has {} cameras, and frames/ {} pictures", scene.cameras.size(), count));
    scene.depths = read_depths(folder / "depth.npy", count, data_.height, data_.width);
    for (int64_t i = 0; i < count; ++i) {
      if (mean_above_zero(scene.depths.data() + i * pixels, pixels) > 0) scene.may_be_first.push_back(i);
    }
    if (scene.may_be_first.empty())
      refuse(shown(folder / "depth.npy"), "no depth is above 0, so that nothing says how large the scene is");
    return scene;
  }

  // Different ones, drawn for each epoch: the first has depths to scale by.
  std::vector<int64_t> frames_of(const OneScene& scene, int64_t index, uint64_t epoch) const {
    std::mt19937_64 draws(stream_seed(seed_, fmt::format("{}/{}", epoch, index)));
    std::vector<int64_t> all(scene.frames.size());
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), draws);
    const auto first = std::find_if(all.begin(), all.end(), [&](int64_t frame) {
      return std::binary_search(scene.may_be_first.begin(), scene.may_be_first.end(), frame);
    });
    std::swap(all.front(), *first);
    all.resize(static_cast<size_t>(data_.frames));
    return all;
  }

  Image checked_picture(const fs::path& file) const {
    Image image = read_picture(file);
    if (image.height != data_.height || image.width != data_.width)
      refuse(shown(file), fmt::format("{} x {} pixels; vggt.data.width and vggt.data.height say {} x {}",
                                      image.width, image.height, data_.width, data_.height));
    return image;
  }

  const SceneOptions data_;
  const uint64_t seed_;
  std::vector<OneScene> scenes_;
};

class PlannedScenes final : public DataSource {
 public:
  PlannedScenes(const SceneOptions& data, int64_t samples) : data_(data), samples_(samples) {}
  int64_t size() const override { return samples_; }
  std::string description() const override { return fmt::format("{} planned scenes", samples_); }
  Batch allocate(int64_t count, bool pinned) const override {
    return allocate_batch(data_, count, at::TensorOptions().pinned_memory(pinned));
  }
  void read(int64_t, uint64_t, const Batch&, int64_t) const override {}

 private:
  const SceneOptions data_;
  const int64_t samples_;
};

RunData split_of(std::shared_ptr<const DataSource> all, const RunConfig& config,
                 const DataIdentity* before = nullptr) {
  RunData data;
  data.split = hold_out(all, config.data.validation, stream_seed(config.train.seed, "validation"), before);
  data.all = std::move(all);
  return data;
}

}  // namespace

Batch allocate_batch(const SceneOptions& data, int64_t scenes, at::TensorOptions options) {
  options = options.dtype(at::kFloat);
  Batch batch;
  batch.tensors = {at::empty({scenes, data.frames, 3, data.height, data.width}, options),
                   at::empty({scenes, data.frames, 9}, options),
                   at::empty({scenes, data.frames, data.height, data.width}, options)};
  return batch;
}

std::vector<Camera> parse_cameras(std::string_view text, const std::string& name,
                                  const std::vector<std::string>& files) try {
  const nlohmann::json json = parse_strict_json(text, name, kJsonDepth);
  const nlohmann::json& list = member(json, "frames", name);
  if (!list.is_array()) refuse(name, "\"frames\" is no list");
  std::vector<Camera> cameras;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}: frame {}", name, i);
    if (list[i].is_object() && list[i].contains("file") && i < files.size() && list[i]["file"] != files[i])
      refuse(place, fmt::format("\"file\" is {}, and picture {} of frames/, by name, is {}; cameras stand in "
                                "the order of pictures",
                                text_of(list[i]["file"]), i, in_quotes(files[i])));
    Camera camera;
    const nlohmann::json& rows = member(list[i], "rotation", place);
    if (!rows.is_array() || rows.size() != 3) refuse(place, "\"rotation\" has not three rows");
    for (size_t row = 0; row < 3; ++row)
      camera.rotation.at(row) = numbers<3>(rows[row], place + ": \"rotation\"");
    if (!is_rotation(camera.rotation))
      refuse(place,
             "\"rotation\" is none: its rows must be of length 1, at right angles, and turn the right way");
    camera.translation = numbers<3>(member(list[i], "translation", place), place + ": \"translation\"");
    const auto focal = numbers<2>(member(list[i], "focal", place), place + ": \"focal\"");
    if (focal[0] <= 0 || focal[1] <= 0) refuse(place, "\"focal\" is not above 0");
    camera.focal_x = focal[0];
    camera.focal_y = focal[1];
    cameras.push_back(camera);
  }
  return cameras;
} catch (const FileError& error) {
  throw DataError(error.what());
}

std::string cameras_json(const std::vector<Camera>& cameras, const std::vector<std::string>& files,
                         const std::string& note) {
  Json json;
  if (!note.empty()) json["note"] = note;
  json["frames"] = Json::array();
  for (size_t i = 0; i < cameras.size(); ++i) {
    const Camera& camera = cameras[i];
    json["frames"].push_back({{"file", files.at(i)},
                              {"rotation", camera.rotation},
                              {"translation", camera.translation},
                              {"focal", {camera.focal_x, camera.focal_y}}});
  }
  return json_text(json, NotUtf8::replaced);
}

RunData open_scenes(const LoadedConfig& loaded, const DataIdentity* before) {
  if (options_of(loaded.config).data.scenes.empty())
    throw ConfigError("vggt.data.scenes is not set; name a folder of scenes to train on");
  return split_of(std::make_shared<const SceneSource>(loaded.config), loaded.config, before);
}

RunData planned_scenes(const RunConfig& config, int64_t samples) {
  return split_of(std::make_shared<const PlannedScenes>(options_of(config).data, samples), config);
}

}  // namespace dtk::vggt
