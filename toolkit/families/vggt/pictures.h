// Pictures of a scene, brought to what the model reads.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "toolkit/data/image.h"

namespace dtk::vggt {

/// The pictures of a folder, in natural order of their names, of which headers alone are read at first.
class Pictures {
 public:
  /// Files in `folder` itself that are called as picture_files() has them. Each is resized to width `side`
  /// (bicubic), its height in proportion to the nearest multiple of `patch` and cropped to its middle where
  /// it is above `side`; where heights differ then, lower ones get white above and below. `as_is`: nothing is
  /// changed, and all must be alike with sides that `patch` divides. Throws DataError for a folder without
  /// pictures and for files whose headers cannot be read, or that do not fit `as_is`.
  Pictures(const std::filesystem::path& folder, int64_t patch, int64_t side, bool as_is);

  int64_t size() const { return std::ssize(files_); }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  /// "12 pictures of 518 x 336; 3 of them lower, with white above and below".
  std::string description() const;
  std::string name(int64_t index) const { return files_.at(static_cast<size_t>(index)).filename().string(); }
  /// Rows `first` to `last`, without the last, of its picture: the others are white.
  struct Rows {
    int64_t first = 0, last = 0;
  };
  Rows rows(int64_t index) const;
  /// RGB bytes of (height, width). Throws DataError naming the file.
  Image read(int64_t index) const;
  /// Some of them as (count, 3, H, W) in [0, 1].
  at::Tensor read(int64_t first, int64_t count) const;

 private:
  int64_t full_height(const ImageSize& size) const;  // once it is as wide as wanted
  const int64_t patch_, side_;
  const bool as_is_;
  std::vector<std::filesystem::path> files_;
  std::vector<int64_t> heights_;  // of each before white is added
  int64_t height_ = 0, width_ = 0;
};

/// The files of `folder` that is_image_name() takes, without hidden ones, in natural order.
std::vector<std::filesystem::path> picture_files(const std::filesystem::path& folder);
/// All bytes of a file, at most `most`. Throws DataError naming it.
std::string content_of(const std::filesystem::path& file, uint64_t most);
/// One of them as RGB. Throws DataError naming it.
Image read_picture(const std::filesystem::path& file);
/// Writes it as (3, H, W) in [0, 1].
void write_values(const Image& image, const at::Tensor& into);

}  // namespace dtk::vggt
