#include "toolkit/data/pixel_source.h"

#include <iterator>
#include <stdexcept>

#include "toolkit/core/format.h"

namespace dtk {

PixelSource::PixelSource(PixelData data)
    : ImageSource({std::ssize(data.labels), data.channels, data.height, data.width, data.classes}),
      data_(std::move(data)),
      sample_bytes_(static_cast<size_t>(data_.channels * data_.height * data_.width)) {
  if (data_.pixels.size() != data_.labels.size() * sample_bytes_) {
    throw std::invalid_argument(fmt::format("PixelSource: {} pixels for {} samples of {}",
                                            data_.pixels.size(), size(),
                                            shape_text(channels(), height(), width())));
  }
}

int64_t PixelSource::read_image(int64_t index, float* values) const {
  const int64_t label = data_.labels.at(static_cast<size_t>(index));
  const uint8_t* pixels = data_.pixels.data() + static_cast<size_t>(index) * sample_bytes_;
  for (size_t i = 0; i < sample_bytes_; ++i) values[i] = static_cast<float>(pixels[i]) / 127.5F - 1.0F;
  return label;
}

std::string shape_text(int64_t channels, int64_t height, int64_t width) {
  return fmt::format("{}x{}x{}", channels, height, width);
}

}  // namespace dtk
