#include "toolkit/data/pixel_source.h"

#include <stdexcept>

namespace dtk {

PixelSource::PixelSource(PixelData data)
    : data_(std::move(data)),
      sample_bytes_(static_cast<size_t>(data_.channels * data_.height * data_.width)) {
  if (data_.pixels.size() != data_.labels.size() * sample_bytes_) {
    throw std::invalid_argument("PixelSource: " + std::to_string(data_.pixels.size()) + " pixels for " +
                                std::to_string(data_.labels.size()) + " samples of " +
                                shape_text(data_.channels, data_.height, data_.width));
  }
}

int64_t PixelSource::read_image(int64_t index, float* values) const {
  const int64_t label = data_.labels.at(static_cast<size_t>(index));
  const uint8_t* pixels = data_.pixels.data() + static_cast<size_t>(index) * sample_bytes_;
  for (size_t i = 0; i < sample_bytes_; ++i) values[i] = static_cast<float>(pixels[i]) / 127.5F - 1.0F;
  return label;
}

std::string shape_text(int64_t channels, int64_t height, int64_t width) {
  return std::to_string(channels) + "x" + std::to_string(height) + "x" + std::to_string(width);
}

}  // namespace dtk
