// Made-up samples of any shape: for measuring what does not depend on the data.
#pragma once
#include "toolkit/data/image_source.h"

namespace dtk {

/// `size` samples of C·H·W values, uniform in [-1, 1], each a pure function of its index; classes in turns.
class SyntheticSource final : public ImageSource {
 public:
  struct Shape {
    int64_t size = 1024, channels = 4, height = 32, width = 32, classes = 1000;
  };
  explicit SyntheticSource(const Shape& shape) : shape_(shape) {}

  int64_t size() const override { return shape_.size; }
  int64_t channels() const override { return shape_.channels; }
  int64_t height() const override { return shape_.height; }
  int64_t width() const override { return shape_.width; }
  int64_t classes() const override { return shape_.classes; }
  std::string description() const override;
  DataRemarks remarks() const override { return {.synthetic = true, .skipped = 0, .reasons = {}}; }
  int64_t read_image(int64_t index, float* values) const override;

 private:
  const Shape shape_;
};

}  // namespace dtk
