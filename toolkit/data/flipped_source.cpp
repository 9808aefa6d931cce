#include "toolkit/data/flipped_source.h"

#include <algorithm>

#include "toolkit/core/random_streams.h"

namespace dtk {
namespace {

void mirror(float* values, int64_t rows, int64_t width) {
  for (float* row = values; row != values + rows * width; row += width) std::reverse(row, row + width);
}

}  // namespace

bool is_flipped(uint64_t flip_seed, uint64_t epoch, uint64_t index) {
  return draw64(draw64(flip_seed, epoch), index) >> 63 != 0;
}

FlippedSource::FlippedSource(std::shared_ptr<const ImageSource> source, uint64_t flip_seed)
    : source_(std::move(source)), flip_seed_(flip_seed) {}

void FlippedSource::read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const {
  source_->read(index, epoch, batch, row);
  if (!is_flipped(flip_seed_, epoch, static_cast<uint64_t>(index))) return;
  mirror(source_->image_in(batch, row), source_->channels() * source_->height(), source_->width());
}

}  // namespace dtk
