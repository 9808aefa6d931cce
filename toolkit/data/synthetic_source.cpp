#include "toolkit/data/synthetic_source.h"

#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/data/pixel_source.h"

namespace dtk {

std::string SyntheticSource::description() const {
  return fmt::format("{} made-up samples {}, {} classes (SYNTHETIC)", size(),
                     shape_text(channels(), height(), width()), classes());
}

int64_t SyntheticSource::read_image(int64_t index, float* values) const {
  const int64_t count = channels() * height() * width();
  const auto key = static_cast<uint64_t>(index);
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint32_t>(draw64(key, static_cast<uint64_t>(i)) >> 40);  // 24 bits
    values[i] = static_cast<float>(bits) / 8388608.0F - 1.0F;
  }
  return index % classes();
}

}  // namespace dtk
