// Samples that are images, or latents of images, with a class each; as they are, or mirrored at random.
#pragma once
#include <memory>

#include "toolkit/core/errors.h"
#include "toolkit/data/data_source.h"

namespace dtk {

/// A batch holds images (B, C, H, W), float32, and labels (B), int64.
class ImageSource : public DataSource {
 public:
  struct Shape {
    int64_t size = 1024;  // samples
    int64_t channels = 4, height = 32, width = 32;
    int64_t classes = 1000;  // labels are 0 .. classes - 1
  };
  explicit ImageSource(const Shape& shape) : shape_(shape) {}

  const Shape& shape() const { return shape_; }
  int64_t size() const final { return shape_.size; }
  int64_t channels() const { return shape_.channels; }  ///< C
  int64_t height() const { return shape_.height; }      ///< H
  int64_t width() const { return shape_.width; }        ///< W
  int64_t classes() const { return shape_.classes; }

  /// Writes sample `index` to `values` (C·H·W floats, in [-1, 1] for images) and returns its class. May be
  /// called from several threads at once.
  virtual int64_t read_image(int64_t index, float* values) const = 0;

  Batch allocate(int64_t count, bool pinned) const final;
  /// The same in each epoch.
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const final;

  /// Where row `row` of a batch of this source begins: C·H·W floats. Throws as read().
  float* image_in(const Batch& batch, int64_t row) const;

 private:
  const Shape shape_;
};

/// Whether sample `index` is mirrored in `epoch`: a pure function, so that neither prefetching nor resuming
/// changes it.
bool is_flipped(uint64_t flip_seed, uint64_t epoch, uint64_t index);

/// The batches of `source` with each image mirrored left to right with probability 1/2, drawn anew in each
/// epoch.
class FlippedSource final : public DataSource {
 public:
  FlippedSource(std::shared_ptr<const ImageSource> source, uint64_t flip_seed);

  int64_t size() const override { return source_->size(); }
  std::string description() const override { return source_->description(); }
  DataRemarks remarks() const override { return source_->remarks(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  bool is_weighted() const override { return source_->is_weighted(); }
  int64_t weight(int64_t index) const override { return source_->weight(index); }
  Batch allocate(int64_t count, bool pinned) const override { return source_->allocate(count, pinned); }
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const override;

 private:
  const std::shared_ptr<const ImageSource> source_;
  const uint64_t flip_seed_;
};

/// A DataError about the file of the labels, where the samples have one of their own.
struct LabelsError : DataError {
  using DataError::DataError;
};
/// read(), whose DataErrors become LabelsErrors.
template <class Read>
auto read_labels_file(Read&& read) try {
  return read();
} catch (const DataError& error) {
  throw LabelsError(error.what());
}

}  // namespace dtk
