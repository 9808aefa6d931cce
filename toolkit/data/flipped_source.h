// Images that are mirrored at random.
#pragma once
#include <memory>

#include "toolkit/data/image_source.h"

namespace dtk {

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
  Batch allocate(int64_t count, bool pinned) const override { return source_->allocate(count, pinned); }
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const override;

 private:
  const std::shared_ptr<const ImageSource> source_;
  const uint64_t flip_seed_;
};

}  // namespace dtk
