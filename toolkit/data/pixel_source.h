// Images held in memory as bytes: what every reader of image files ends up with.
#pragma once
#include <string>
#include <vector>

#include "toolkit/data/image_source.h"

namespace dtk {

/// Byte images of one shape with a class each; costs C·H·W + 8 bytes a sample, and its name.
struct PixelData {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t classes = 0;
  std::vector<uint8_t> pixels;                 // (N, C, H, W)
  std::vector<int64_t> labels;                 // (N), each in [0, classes)
  std::vector<std::string> class_names = {};   // by label; empty: numbers
  std::vector<std::string> sample_names = {};  // (N), unique; empty: none
  DataIdentity identity = {};
  std::string description;
  DataRemarks remarks;
};

/// read_image() maps a byte v to v / 127.5 - 1, so 0 .. 255 becomes -1 .. 1.
class PixelSource final : public ImageSource {
 public:
  /// Throws std::invalid_argument when pixels and labels do not match the shape.
  explicit PixelSource(PixelData data);

  std::string description() const override { return data_.description; }
  DataRemarks remarks() const override { return data_.remarks; }
  DataIdentity identity() const override { return data_.identity; }
  std::vector<std::string> class_names() const override { return data_.class_names; }
  std::string sample_name(int64_t index) const override {
    return data_.sample_names.empty() ? "" : data_.sample_names.at(static_cast<size_t>(index));
  }
  /// Throws std::out_of_range for an index outside [0, size()).
  int64_t read_image(int64_t index, float* values) const override;

 private:
  const PixelData data_;
  const size_t sample_bytes_;
};

/// "1x28x28": channels, height, width.
std::string shape_text(int64_t channels, int64_t height, int64_t width);

}  // namespace dtk
