// A tiny VGGT, and scenes that are drawn for it: a slanted plane with a pattern, seen by cameras beside each
// other.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "support/files/temporary_folder.h"
#include "toolkit/config/config_io.h"
#include "toolkit/families/vggt/inference.h"

namespace dtk::test {

/// Lines of a configuration: the sizes of the fixture's network, pictures of 56 x 84 pixels.
std::string tiny_vggt();
LoadedConfig tiny_vggt_config(const std::vector<std::string>& overrides = {});

/// Keeps what is found, of all frames.
struct KeptResults final : vggt::Results {
  at::Tensor poses, depths, depth_confidence, points, points_confidence;
  void take_poses(const at::Tensor& some) override { poses = some.clone(); }
  void take_depths(int64_t first, const at::Tensor& some, const at::Tensor& confidence) override;
  void take_points(int64_t first, const at::Tensor& some, const at::Tensor& confidence) override;
};

class SceneFolder {
 public:
  /// So many scenes "0", "1", ... of so many frames, of 56 x 84 pixels.
  explicit SceneFolder(int64_t scenes = 2, int64_t frames = 3);
  std::string path(const std::string& name = "") const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  std::string read(const std::string& name) const;
  /// Replaces the depths of a scene (S, H, W).
  void write_depths(const std::string& scene, const at::Tensor& depths) const;
  /// Of a run that trains on them.
  LoadedConfig config(const std::vector<std::string>& overrides = {}) const;

 private:
  const TemporaryFolder folder_;
};

}  // namespace dtk::test
