// Made-up samples of any shape: for measuring what does not depend on the data.
#pragma once
#include "toolkit/data/image_source.h"

namespace dtk {

/// Samples of C·H·W values, uniform in [-1, 1], each a pure function of its index; classes in turns.
class SyntheticSource final : public ImageSource {
 public:
  using ImageSource::ImageSource;

  std::string description() const override;
  DataRemarks remarks() const override { return {.synthetic = true}; }
  DataIdentity identity() const override { return {{}, {{0, "made up", size(), ""}}}; }
  int64_t read_image(int64_t index, float* values) const override;
};

}  // namespace dtk
