#include "support/vggt/scenes.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "toolkit/data/image.h"
#include "toolkit/families/vggt/geometry.h"
#include "toolkit/families/vggt/scenes.h"
#include "toolkit/io/npy.h"

namespace dtk::test {
namespace {

constexpr int64_t kHeight = 56, kWidth = 84;

vggt::Camera camera_at(int64_t scene, int64_t frame) {
  const double angle = 0.04 * static_cast<double>(frame) - 0.02 * static_cast<double>(scene);
  vggt::Camera camera;
  camera.rotation = {
      {{std::cos(angle), 0, std::sin(angle)}, {0, 1, 0}, {-std::sin(angle), 0, std::cos(angle)}}};
  camera.translation = {-0.3 * static_cast<double>(frame), 0.05 * static_cast<double>(scene), 0};
  camera.focal_x = camera.focal_y = 70;
  return camera;
}

struct Seen {
  double depth = 0;
  vggt::Vector point{};
};

// The plane z = 4 + x/4 + scene/2 along the ray through a pixel: a point of the ray is linear in its depth.
Seen seen_by(const vggt::Camera& camera, int64_t scene, double x, double y) {
  const vggt::Vector from = vggt::point_behind(camera, x, y, 0, kHeight, kWidth),
                     to = vggt::point_behind(camera, x, y, 1, kHeight, kWidth);
  const auto above = [&](const vggt::Vector& point) {
    return point[2] - 4 - point[0] / 4 - static_cast<double>(scene) / 2;
  };
  const double depth = above(from) / (above(from) - above(to));
  return {depth, vggt::point_behind(camera, x, y, depth, kHeight, kWidth)};
}

void add(at::Tensor& all, int64_t first, const at::Tensor& some) {
  if (first != (all.defined() ? all.size(0) : 0)) throw std::logic_error("frames are missing");
  all = all.defined() ? at::cat({all, some}) : some.clone();
}

}  // namespace

void KeptResults::take_depths(int64_t first, const at::Tensor& some, const at::Tensor& confidence) {
  add(depths, first, some);
  add(depth_confidence, first, confidence);
}
void KeptResults::take_points(int64_t first, const at::Tensor& some, const at::Tensor& confidence) {
  add(points, first, some);
  add(points_confidence, first, confidence);
}

std::string tiny_vggt() {
  return "[vggt]\nimage = 56\npatch = 14\nhidden = 64\nheads = 4\nencoder = 3\ndepth = 6\nregisters = 4\n"
         "trunk = 2\nfeatures = 32\nwidths = [16, 24, 32, 32]\ntaps = [1, 2, 4, 5]\n"
         "[vggt.data]\nheight = 56\nwidth = 84\n";
}

LoadedConfig tiny_vggt_config(const std::vector<std::string>& overrides) {
  return parse_config(
      "[train]\nmodel = \"vggt\"\nthreads = 1\n" + tiny_vggt() + "[policies.precision]\nenabled = false\n",
      "vggt.toml", overrides);
}

SceneFolder::SceneFolder(int64_t scenes, int64_t frames) {
  for (int64_t scene = 0; scene < scenes; ++scene) {
    const std::string name = std::to_string(scene);
    const at::Tensor depths = at::empty({frames, kHeight, kWidth}, at::kFloat);
    float* depth = depths.mutable_data_ptr<float>();
    std::vector<vggt::Camera> cameras;
    std::vector<std::string> files;
    for (int64_t frame = 0; frame < frames; ++frame) {
      cameras.push_back(camera_at(scene, frame));
      files.push_back(std::to_string(frame) + ".png");
      Image image{kHeight, kWidth, 3, {}};
      for (int64_t y = 0; y < kHeight; ++y) {
        for (int64_t x = 0; x < kWidth; ++x) {
          const Seen seen =
              seen_by(cameras.back(), scene, static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5);
          *depth++ = static_cast<float>(seen.depth);
          for (const double wave : {2.0, 3.0, 5.0})
            image.pixels.push_back(static_cast<uint8_t>(127 + 100 * std::sin(wave * seen.point[0]) *
                                                                  std::cos(wave * seen.point[1] + wave)));
        }
      }
      folder_.write(name + "/frames/" + files.back(), encode_png(image));
    }
    write_depths(name, depths);
    write(name + "/cameras.json", vggt::cameras_json(cameras, files, ""));
  }
}

std::string SceneFolder::read(const std::string& name) const {
  std::ostringstream text;
  text << std::ifstream(folder_ / name, std::ios::binary).rdbuf();
  return text.str();
}

void SceneFolder::write_depths(const std::string& scene, const at::Tensor& depths) const {
  write_file_atomically(posix_file_system(), folder_ / (scene + "/depth.npy"),
                        [&](WritableFile& file) { write_npy(file, depths); });
}

LoadedConfig SceneFolder::config(const std::vector<std::string>& overrides) const {
  const std::string text = "[train]\nmodel = \"vggt\"\nsteps = 6\nthreads = 1\nout = '" + path("run") +
                           "'\n[data]\nbatch = 2\n[optimizer]\nlr = 1e-3\n" + tiny_vggt() +
                           "frames = 3\nscenes = '" + path() + "'\n[policies.precision]\nenabled = false\n";
  return parse_config(text, "vggt.toml", overrides);
}

}  // namespace dtk::test
