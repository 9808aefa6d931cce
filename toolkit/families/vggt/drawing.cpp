#include "toolkit/families/vggt/drawing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "toolkit/config/locations.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/families/vggt/inference.h"
#include "toolkit/families/vggt/options.h"
#include "toolkit/families/vggt/pictures.h"
#include "toolkit/families/vggt/scenes.h"
#include "toolkit/io/npy.h"
#include "toolkit/train/apply_policies.h"

namespace dtk::vggt {
namespace {

namespace fs = std::filesystem;

constexpr char kRandom[] = "the weights are random: nothing here is of the scene";

void choose_heads(models::VggtOptions& model, const std::string& list) {
  model.camera = model.depths = model.points = false;
  for (const std::string& part : split(list, ',')) {
    bool* const head = part == "camera"   ? &model.camera
                       : part == "depth"  ? &model.depths
                       : part == "points" ? &model.points
                                          : nullptr;
    if (head == nullptr)
      throw ConfigError("--heads " + list + ": " + in_quotes(part) +
                        " is no head; allowed: camera, depth, points");
    *head = true;
  }
}

// Grey from near, white, to far, black; with the depths that they stand for.
std::pair<std::string, std::string> preview(const at::Tensor& depths) {
  const float* const values = depths.const_data_ptr<float>();
  const auto count = static_cast<size_t>(depths.numel());
  const auto [least, most] = std::minmax_element(values, values + count);
  const float range = *most > *least ? *most - *least : 1;
  Image image{depths.size(0), depths.size(1), 1, std::vector<uint8_t>(count)};
  std::transform(values, values + count, image.pixels.begin(), [&](float depth) {
    return static_cast<uint8_t>(std::lround(255 * (1 - (depth - *least) / range)));
  });
  return {encode_png(image), fmt::format("{{\"white\": {}, \"black\": {}}}", *least, *least + range)};
}

class SceneDrawing final : public Drawing {
 public:
  SceneDrawing(FileSystem& files, const SampleSource& source, const SampleArguments& arguments)
      : source_(source), out_(arguments.out), confidence_(arguments.given<double>("confidence")) {
    check_policies();
    check_out(files);
    models::VggtOptions& model = options_of(source_.config).model;
    if (const auto heads = arguments.given<std::string>("heads")) choose_heads(model, *heads);
    const models::VggtOptions sizes = models::resolved(model);
    const std::string folder = arguments.given<std::string>("images").value();
    pictures_ = std::make_shared<const Pictures>(folder, *sizes.patch, *sizes.image,
                                                 arguments.given<bool>("as-is").value_or(false));
    if (confidence_ && !has_points())
      throw ConfigError(
          fmt::format("--confidence {}: without points there is nothing to choose; name the heads "
                      "camera and depth, or points, or leave it out",
                      *confidence_));
  }

  std::string counted() const override { return count_text(pictures_->size(), "frame"); }
  std::vector<std::string> notes() const override {
    std::vector<std::string> lines;
    if (source_.random) lines.emplace_back(kRandom);
    for (const std::string& policy : asked_for_training())
      lines.push_back("policies." + policy + ".enabled = true is for training; nothing is trained here");
    lines.push_back(pictures_->description());
    const auto& tensors = source_.weights.tensors;
    const auto tracks = std::count_if(tensors.begin(), tensors.end(),
                                      [](const auto& one) { return one.name.starts_with("track_head."); });
    if (tracks > 0)
      lines.push_back(fmt::format("track_head: {} tensors are not read, no such head is built", tracks));
    return lines;
  }

  std::vector<NamedTensor> draw(c10::Device device, const KeepGoing& keep_going) const override try {
    const Scene scene{pictures_->size(), pictures_->height(), pictures_->width(),
                      [this](int64_t first, int64_t count) { return pictures_->read(first, count); }};
    const Inferred found =
        infer(source_.config, device, source_.random ? nullptr : &source_.weights, scene, keep_going);
    std::vector<NamedTensor> all;
    for (const auto& [name, tensor] : {std::pair("poses", found.poses),
                                       {"depths", found.depths},
                                       {"depth_confidence", found.depth_confidence},
                                       {"points", found.points},
                                       {"points_confidence", found.points_confidence}}) {
      if (!tensor.defined()) continue;
      if (!is_finite(tensor))
        throw Error(ExitCode::failure,
                    std::string("the model's ") + name +
                        " are not finite, so that nothing was written; are these its weights?");
      all.push_back({name, tensor});
    }
    return all;
  } catch (const policies::PolicyError& error) {
    throw located(error, source_.locations);
  }

  void write(FileSystem& files, const std::vector<NamedTensor>& samples) const override {
    files.create_directories(out_);
    std::map<std::string, at::Tensor> found;
    for (const NamedTensor& one : samples) found[one.name] = one.tensor;
    const std::vector<Camera> cameras =
        found.count("poses") > 0 ? cameras_in(found["poses"]) : std::vector<Camera>();
    if (!cameras.empty()) {
      std::vector<std::string> names;
      for (int64_t i = 0; i < pictures_->size(); ++i) names.push_back(pictures_->name(i));
      write_file_atomically(files, place("cameras.json"),
                            cameras_json(cameras, names, source_.random ? kRandom : ""));
    }
    if (found.count("depths") > 0) write_depths(files, found["depths"]);
    if (!has_points()) return;
    const bool of_head = found.count("points") > 0;
    write_points(files, cameras, of_head ? found["points"] : found["depths"],
                 of_head ? found["points_confidence"] : found["depth_confidence"]);
  }

 private:
  std::string named(const std::string& name) const { return (source_.random ? "random_" : "") + name; }
  fs::path place(const std::string& name) const { return out_ / named(name); }
  // Of pictures that differ in their endings alone with these.
  std::string preview_name(int64_t index) const {
    const auto stem = [&](int64_t i) { return fs::path(pictures_->name(i)).stem().string(); };
    for (int64_t i = 0; i < pictures_->size(); ++i) {
      if (i != index && stem(i) == stem(index)) return pictures_->name(index) + ".png";
    }
    return stem(index) + ".png";
  }

  bool has_points() const {
    const models::VggtOptions& model = options_of(source_.config).model;
    return model.points || (model.camera && model.depths);
  }

  std::vector<std::string> asked_for_training() const {
    std::vector<std::string> names;
    for (const policies::PolicyKind* const kind : policies::policy_kinds()) {
      if (!kind->acts_without_gradient() && kind->enabled(source_.config.policies) == policies::Enabled::on)
        names.push_back(kind->name());
    }
    return names;
  }
  // In a configuration that trains nothing.
  void check_policies() const {
    const std::vector<std::string> names = asked_for_training();
    if (names.empty() || has_end(source_.config.train)) return;
    const std::string key = "policies." + names.front() + ".enabled";
    const auto place = source_.locations.find(key);
    throw ConfigError(
        (place == source_.locations.end() ? "" : place->second + ": ") + key +
        " = true has no effect where nothing is trained: no backward pass, so that 0 bytes are kept for "
        "one; remove it");
  }

  void check_out(FileSystem& files) const {
    for (const char* const name : {"cameras.json", "depth.npy", "points.ply"}) {
      if (files.exists(place(name)))
        throw ConfigError("--out " + out_.string() + ": holds " + place(name).filename().string() +
                          " already; name another folder");
    }
    if (files.exists(out_) && !files.is_folder(out_))
      throw ConfigError("--out " + out_.string() + ": is a file; name a folder");
  }

  std::vector<Camera> cameras_in(const at::Tensor& poses) const {
    std::vector<Camera> cameras;
    const float* const values = poses.const_data_ptr<float>();
    for (int64_t i = 0; i < poses.size(0); ++i) {
      Pose pose{};
      std::copy(values + 9 * i, values + 9 * (i + 1), pose.begin());
      cameras.push_back(
          camera_of(pose, static_cast<double>(pictures_->height()), static_cast<double>(pictures_->width())));
    }
    return cameras;
  }

  void write_depths(FileSystem& files, const at::Tensor& depths) const {
    write_file_atomically(files, place("depth.npy"), [&](WritableFile& file) { write_npy(file, depths); });
    files.create_directories(place("depth"));
    std::string scales;
    for (int64_t i = 0; i < depths.size(0); ++i) {
      const auto [png, scale] = preview(depths.select(0, i));
      const std::string name = named(preview_name(i));
      write_file_atomically(files, place("depth") / name, png);
      scales += fmt::format("{} {}: {}", scales.empty() ? "{" : ",\n", nlohmann::json(name).dump(), scale);
    }
    write_file_atomically(files, place("depth") / named("scales.json"), scales + "}\n");
  }

  // Binary PLY. `values`: points (S, H, W, 3), or depths (S, H, W) behind `cameras`.
  void write_points(FileSystem& files, const std::vector<Camera>& cameras, const at::Tensor& values,
                    const at::Tensor& confidence) const {
    const float* const sure = confidence.const_data_ptr<float>();
    const int64_t height = confidence.size(1), width = confidence.size(2), pixels = height * width;
    const auto limit = static_cast<float>(confidence_.value_or(confidence.median().item<double>()));
    std::string body;
    int64_t count = 0;
    for (int64_t frame = 0; frame < confidence.size(0); ++frame) {
      const Image colours = pictures_->read(frame);
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        const int64_t at = frame * pixels + pixel;
        if (!(sure[at] > limit)) continue;
        std::array<float, 3> point{};
        if (values.dim() == 4) {
          std::copy_n(values.const_data_ptr<float>() + 3 * at, 3, point.begin());
        } else {
          const Vector behind =
              point_behind(cameras[static_cast<size_t>(frame)], static_cast<double>(pixel % width) + 0.5,
                           static_cast<double>(pixel / width) + 0.5, values.const_data_ptr<float>()[at],
                           static_cast<double>(height), static_cast<double>(width));
          std::copy(behind.begin(), behind.end(), point.begin());
        }
        if (!std::all_of(point.begin(), point.end(), [](float one) { return std::isfinite(one); })) continue;
        std::array<char, 15> vertex{};
        std::memcpy(vertex.data(), point.data(), sizeof(point));
        std::memcpy(vertex.data() + sizeof(point), colours.pixels.data() + 3 * pixel, 3);
        body.append(vertex.data(), vertex.size());
        ++count;
      }
    }
    const std::string head = fmt::format(
        "ply\nformat binary_little_endian 1.0\n{}comment confidence above {}\nelement vertex {}\nproperty "
        "float "
        "x\nproperty float y\nproperty float z\nproperty uchar red\nproperty uchar green\nproperty uchar "
        "blue\nend_header\n",
        source_.random ? "comment " + std::string(kRandom) + "\n" : "", limit, count);
    write_file_atomically(files, place("points.ply"), head + body);
  }

  SampleSource source_;
  const fs::path out_;
  const std::optional<double> confidence_;
  std::shared_ptr<const Pictures> pictures_;
};

}  // namespace

SampleUsage pictures_usage() {
  return {.arguments = {{"images", std::string()},
                        {"heads", std::string()},
                        {"as-is", bool{}, "", /*is_flag=*/true},
                        {"confidence", double{}, "[1, inf)"}},
          .value = "DIR",
          .example = "pictures",
          .purpose = "for VGGT",
          .samples = "cameras and depths of pictures",
          .model = "VGGT",
          .none_of_others = ", of which cameras and depths are inferred",
          .out = "FOLDER",
          .example_out = "scene",
          .help = "  --images DIR          VGGT's pictures;  --heads LIST  --as-is  --confidence C\n"};
}

std::unique_ptr<Drawing> draw_scene(FileSystem& files, const SampleSource& source,
                                    const SampleArguments& arguments) {
  return std::make_unique<SceneDrawing>(files, source, arguments);
}

}  // namespace dtk::vggt
