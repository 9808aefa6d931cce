#include "toolkit/families/vggt/pictures.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/data/image_folder.h"
#include "toolkit/io/file_system.h"

namespace dtk::vggt {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMaxPicture = uint64_t{1} << 30;

// Rows `first` to `first` + `height` of a taller image.
Image cropped(const Image& image, int64_t first, int64_t height) {
  const auto row = static_cast<size_t>(image.width * image.channels);
  const auto begin = image.pixels.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first) * row);
  Image part{height, image.width, image.channels, {}};
  part.pixels.assign(begin, begin + static_cast<std::ptrdiff_t>(static_cast<size_t>(height) * row));
  return part;
}

int64_t white_above(int64_t lower, int64_t height) {
  return (height - lower) / 2;
}

Image on_white(const Image& image, int64_t height) {
  const auto row = static_cast<size_t>(image.width * image.channels);
  Image all{height, image.width, image.channels,
            std::vector<uint8_t>(static_cast<size_t>(height) * row, 255)};
  const auto above = static_cast<size_t>(white_above(image.height, height));
  std::copy(image.pixels.begin(), image.pixels.end(),
            all.pixels.begin() + static_cast<std::ptrdiff_t>(above * row));
  return all;
}

}  // namespace

std::vector<fs::path> picture_files(const fs::path& folder) {
  FileSystem& files = posix_file_system();
  if (!files.exists(folder) || !files.is_folder(folder))
    throw DataError(shown(folder) + (files.exists(folder) ? ": is a file" : ": no such folder") +
                    "; name a folder of pictures");
  std::vector<fs::path> found;
  std::vector<std::string> names;
  try {
    names = files.list(folder);
  } catch (const FileError& error) {
    throw DataError(error.what());
  }
  std::sort(names.begin(), names.end(), natural_less);
  for (const std::string& name : names) {
    if (!name.starts_with('.') && is_image_name(name)) found.push_back(folder / name);
  }
  return found;
}

std::string content_of(const fs::path& file, uint64_t most) try {
  FileSystem& files = posix_file_system();
  if (!files.exists(file) || files.is_folder(file)) throw DataError(shown(file) + ": no such file");
  return files.read(file, most);
} catch (const FileError& error) {
  throw DataError(error.what());
}

Image read_picture(const fs::path& file) {
  return decode_image(content_of(file, kMaxPicture), shown(file), Convert::rgb);
}

void write_values(const Image& image, const at::Tensor& into) {
  float* const values = into.mutable_data_ptr<float>();
  const int64_t pixels = image.height * image.width;
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t channel = 0; channel < 3; ++channel)
      values[channel * pixels + i] =
          static_cast<float>(image.pixels[static_cast<size_t>(3 * i + channel)]) / 255.0F;
  }
}

Pictures::Pictures(const fs::path& folder, int64_t patch, int64_t side, bool as_is)
    : patch_(patch), side_(side), as_is_(as_is), files_(picture_files(folder)) {
  if (files_.empty())
    throw DataError(shown(folder) + ": holds no picture; allowed: *.png, *.jpg, *.jpeg, *.webp and *.bmp");
  for (const fs::path& file : files_) {
    const ImageSize size = size_in_header(file, Convert::rgb);
    if (as_is && (size.height % patch != 0 || size.width % patch != 0))
      throw DataError(
          fmt::format("{}: {} x {} pixels, and --as-is takes sides that {} divides; leave it out, or "
                      "resize the pictures",
                      shown(file), size.width, size.height, patch));
    if (as_is && !heights_.empty() && (size.height != height_ || size.width != width_))
      throw DataError(
          fmt::format("{}: {} x {} pixels, and those before it {} x {}; --as-is takes pictures of one "
                      "size: leave it out",
                      shown(file), size.width, size.height, width_, height_));
    width_ = as_is ? size.width : side;
    constexpr int64_t kTallest = 16;  // times as high as wide, of which a part alone is looked at
    if (!as_is && full_height(size) > kTallest * side)
      throw DataError(
          fmt::format("{}: {} x {} pixels are more than {} times as high as wide, of which most would "
                      "be cut off; crop it",
                      shown(file), size.width, size.height, kTallest));
    heights_.push_back(as_is ? size.height : std::min(full_height(size), side));
    height_ = std::max(height_, heights_.back());
  }
}

// The nearest whole number of patches to the proportional height; ties go to the even one, as Python's
// round().
int64_t Pictures::full_height(const ImageSize& size) const {
  const double height =
      static_cast<double>(size.height) * static_cast<double>(side_) / static_cast<double>(size.width);
  return patch_ * std::max<int64_t>(1, std::llrint(height / static_cast<double>(patch_)));
}

std::string Pictures::description() const {
  std::string text = fmt::format("{} picture{} of {} x {}", size(), size() == 1 ? "" : "s", width_, height_);
  const auto lower =
      std::count_if(heights_.begin(), heights_.end(), [&](int64_t height) { return height < height_; });
  if (lower > 0) text += fmt::format("; {} of them lower, with white above and below", lower);
  return text;
}

Pictures::Rows Pictures::rows(int64_t index) const {
  const int64_t height = heights_.at(static_cast<size_t>(index)), first = white_above(height, height_);
  return {first, first + height};
}

Image Pictures::read(int64_t index) const {
  const fs::path& file = files_.at(static_cast<size_t>(index));
  Image image = read_picture(file);
  if (!as_is_) {
    image = resize_bicubic(image, full_height({3, image.height, image.width}), width_);
    if (image.height > side_) image = cropped(image, (image.height - side_) / 2, side_);
    if (image.height < height_) image = on_white(image, height_);
  }
  if (image.height != height_ || image.width != width_)
    throw DataError(shown(file) +
                    ": has another size than when the folder was looked at; leave it alone meanwhile");
  return image;
}

at::Tensor Pictures::read(int64_t first, int64_t count) const {
  at::Tensor values = at::empty({count, 3, height_, width_}, at::kFloat);
  for (int64_t i = 0; i < count; ++i) write_values(read(first + i), values.select(0, i));
  return values;
}

}  // namespace dtk::vggt
