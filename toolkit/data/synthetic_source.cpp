#include "toolkit/data/synthetic_source.h"

#include "toolkit/core/random_streams.h"
#include "toolkit/data/pixel_source.h"

namespace dtk {

std::string SyntheticSource::description() const {
  return std::to_string(shape_.size) + " made-up samples " +
         shape_text(shape_.channels, shape_.height, shape_.width) + ", " + std::to_string(shape_.classes) +
         " classes (SYNTHETIC)";
}

int64_t SyntheticSource::read_image(int64_t index, float* values) const {
  const int64_t count = shape_.channels * shape_.height * shape_.width;
  const auto key = static_cast<uint64_t>(index);
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint32_t>(draw64(key, static_cast<uint64_t>(i)) >> 40);  // 24 bits
    values[i] = static_cast<float>(bits) / 8388608.0F - 1.0F;
  }
  return index % shape_.classes;
}

}  // namespace dtk
