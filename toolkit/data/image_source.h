// Samples that are images, or latents of images, with a class each.
#pragma once
#include "toolkit/core/errors.h"
#include "toolkit/data/data_source.h"

namespace dtk {

/// A batch holds images (B, C, H, W), float32, and labels (B), int64.
class ImageSource : public DataSource {
 public:
  virtual int64_t channels() const = 0;  ///< C
  virtual int64_t height() const = 0;    ///< H
  virtual int64_t width() const = 0;     ///< W
  virtual int64_t classes() const = 0;   ///< labels are 0 .. classes() - 1

  /// Writes sample `index` to `values` (C·H·W floats, in [-1, 1] for images) and returns its class. May be
  /// called from several threads at once.
  virtual int64_t read_image(int64_t index, float* values) const = 0;

  Batch allocate(int64_t count, bool pinned) const final;
  /// The same in each epoch.
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const final;

  /// Where row `row` of a batch of this source begins: C·H·W floats. Throws as read().
  float* image_in(const Batch& batch, int64_t row) const;
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
