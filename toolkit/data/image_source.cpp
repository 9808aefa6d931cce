#include "toolkit/data/image_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>

#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"

namespace dtk {

Batch ImageSource::allocate(int64_t count, bool pinned) const {
  const auto layout = at::TensorOptions().pinned_memory(pinned);
  return {{at::empty({count, channels(), height(), width()}, layout.dtype(at::kFloat)),
           at::empty({count}, layout.dtype(at::kLong))}};
}

void ImageSource::read(int64_t index, uint64_t, const Batch& batch, int64_t row) const {
  float* const values = image_in(batch, row);
  batch.tensors[1].mutable_data_ptr<int64_t>()[row] = read_image(index, values);
}

float* ImageSource::image_in(const Batch& batch, int64_t row) const {
  const auto is_plain = [](const at::Tensor& tensor, at::ScalarType type) {
    return tensor.defined() && tensor.scalar_type() == type && tensor.is_contiguous() &&
           tensor.device().is_cpu() && tensor.dim() > 0;
  };
  const bool fits =
      batch.tensors.size() == 2 && is_plain(batch.tensors[0], at::kFloat) &&
      is_plain(batch.tensors[1], at::kLong) &&
      batch.tensors[0].sizes() == at::IntArrayRef({batch.samples(), channels(), height(), width()}) &&
      batch.tensors[1].sizes() == at::IntArrayRef({batch.samples()});
  if (!fits) throw std::invalid_argument("ImageSource: the batch is not as allocate() makes it");
  if (row < 0 || row >= batch.samples()) {
    throw std::out_of_range(fmt::format("ImageSource: row {} of {}", row, batch.samples()));
  }
  return batch.tensors[0].mutable_data_ptr<float>() + row * channels() * height() * width();
}

bool is_flipped(uint64_t flip_seed, uint64_t epoch, uint64_t index) {
  return draw64(draw64(flip_seed, epoch), index) >> 63 != 0;
}

FlippedSource::FlippedSource(std::shared_ptr<const ImageSource> source, uint64_t flip_seed)
    : source_(std::move(source)), flip_seed_(flip_seed) {}

void FlippedSource::read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const {
  source_->read(index, epoch, batch, row);
  if (!is_flipped(flip_seed_, epoch, static_cast<uint64_t>(index))) return;
  const int64_t width = source_->width();
  float* const image = source_->image_in(batch, row);
  float* const end = image + source_->channels() * source_->height() * width;
  for (float* line = image; line != end; line += width) std::reverse(line, line + width);
}

}  // namespace dtk
