// What is found of a scene, written as it is found.
#pragma once
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/families/vggt/geometry.h"
#include "toolkit/families/vggt/inference.h"
#include "toolkit/families/vggt/pictures.h"
#include "toolkit/io/file_system.h"

namespace dtk::vggt {

/// A folder with cameras.json, depth.npy and points.npy, the confidences of both, pictures of the depths, and
/// points.ply. Until finish() all is in "<folder>/.unfinished", which the destructor removes: in memory are a
/// few frames at a time. Throws FileError, and Error for results that are not finite.
class SceneFiles final : public Results {
 public:
  /// Throws ConfigError if `folder` is a file or holds results already.
  static void check_folder(FileSystem& files, const std::filesystem::path& folder, bool random);

  /// `random`: the weights are, which each file's name says. Throws ConfigError while another process writes
  /// into the folder.
  SceneFiles(FileSystem& files, std::filesystem::path folder, std::shared_ptr<const Pictures> pictures,
             bool random);
  ~SceneFiles() override;

  void take_poses(const at::Tensor& poses) override;
  void take_depths(int64_t first, const at::Tensor& depths, const at::Tensor& confidence) override;
  void take_points(int64_t first, const at::Tensor& points, const at::Tensor& confidence) override;

  /// Ends what was taken, and writes points.ply: of the point head, else of depths behind cameras, where
  /// there are such; points above `confidence`, by default from the median on; none of the white that was
  /// added to pictures. Returns why there is no points.ply where nobody asked for a confidence, else "".
  /// Throws ConfigError where none are above it; whatever it throws, the other files are there then.
  std::string finish(std::optional<double> confidence);

 private:
  struct Array {
    std::string name;
    std::unique_ptr<WritableFile> file;
    uint64_t values_begin = 0;  // bytes of the header
    int64_t of_frame = 0;       // numbers
  };
  struct Cloud;
  std::filesystem::path place(const std::string& name) const;
  std::string preview_name(int64_t index) const;
  void append(Array& array, const std::string& name, const at::Tensor& some);
  std::vector<float> frame_of(const Array& array, int64_t index) const;
  template <class Each>
  void each_pixel(const Cloud& cloud, const Each& each) const;
  float median(const Cloud& cloud) const;
  template <class Each>
  float each_point(const Cloud& cloud, double limit, const Each& each) const;
  std::string write_points(const Cloud& cloud, std::optional<double> confidence) const;
  bool places(const Cloud& cloud, int64_t frame) const;
  void put_in_place();

  FileSystem& files_;
  const std::filesystem::path folder_, partial_;
  std::filesystem::path where_;  // the files are: partial_, then folder_
  std::unique_ptr<FileLock> lock_;
  const std::shared_ptr<const Pictures> pictures_;
  const bool random_, made_folder_;
  std::vector<Camera> cameras_;
  Array depths_, depth_confidence_, points_, points_confidence_;
  bool stems_differ_ = false;
  std::string scales_;  // what white and black are in pictures of depths, JSON
};

inline constexpr char kRandomNote[] = "the weights are random: nothing here is of the scene";

}  // namespace dtk::vggt
