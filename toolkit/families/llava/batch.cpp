#include "toolkit/families/llava/batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <numeric>
#include <stdexcept>
#include <utility>

namespace dtk::llava {
namespace {

SampleSize sum(SampleSize a, const SampleSize& b) {
  return {a.tokens + b.tokens, a.pictures + b.pictures, a.features + b.features, a.labels + b.labels};
}

SampleSize sum_of(const std::vector<SampleSize>& sizes, int64_t first, int64_t count) {
  return std::accumulate(sizes.begin() + first, sizes.begin() + first + count, SampleSize{}, sum);
}

Batch listed(models::LlavaBatch parts) {
  Batch batch;
  batch.tensors =
      models::pack(std::move(parts.ids), std::move(parts.pictures), std::move(parts.feature_rows),
                   std::move(parts.picture_rows), std::move(parts.label_rows), std::move(parts.labels));
  return batch;
}

}  // namespace

Layout::Layout(std::vector<SampleSize> sizes, int64_t length, int64_t picture_tokens)
    : sizes_(std::move(sizes)), length_(length), picture_tokens_(picture_tokens) {}

SampleSize Layout::before(int64_t row) const {
  return sum_of(sizes_, 0, row);
}

Batch Layout::part(const Batch& batch, int64_t first, int64_t count) const {
  const SampleSize skipped = before(first), taken = sum_of(sizes_, first, count);
  const models::LlavaBatch whole = llava_batch(batch);
  models::LlavaBatch parts;
  parts.ids = whole.ids.narrow(0, first, count);
  parts.pictures = whole.pictures.narrow(0, skipped.pictures, taken.pictures);
  // Counted from the part's own first picture and row.
  parts.feature_rows =
      whole.feature_rows.narrow(0, skipped.features, taken.features) - skipped.pictures * picture_tokens_;
  parts.picture_rows = whole.picture_rows.narrow(0, skipped.features, taken.features) - first * length_;
  parts.label_rows = whole.label_rows.narrow(0, skipped.labels, taken.labels) - first * length_;
  parts.labels = whole.labels.narrow(0, skipped.labels, taken.labels);
  return listed(std::move(parts));
}

Layout::Place Layout::place(const Batch& batch, int64_t row) const {
  const SampleSize skipped = before(row);
  const SampleSize& own = sizes_.at(static_cast<size_t>(row));
  const models::LlavaBatch whole = llava_batch(batch);
  Place place;
  place.parts.ids = whole.ids.select(0, row);
  place.parts.pictures = whole.pictures.narrow(0, skipped.pictures, own.pictures);
  place.parts.feature_rows = whole.feature_rows.narrow(0, skipped.features, own.features);
  place.parts.picture_rows = whole.picture_rows.narrow(0, skipped.features, own.features);
  place.parts.label_rows = whole.label_rows.narrow(0, skipped.labels, own.labels);
  place.parts.labels = whole.labels.narrow(0, skipped.labels, own.labels);
  place.first_feature = skipped.pictures * picture_tokens_;
  place.first_row = row * length_;
  return place;
}

Batch allocate_batch(std::vector<SampleSize> sizes, int64_t length, int64_t picture_tokens, int64_t side,
                     at::TensorOptions options) {
  const auto count = static_cast<int64_t>(sizes.size());
  const SampleSize all = sum_of(sizes, 0, count);
  const auto rows = options.dtype(at::kLong);
  Batch batch = listed({at::empty({count, length}, rows), at::empty({all.pictures, 3, side, side}, options),
                        at::empty({all.features}, rows), at::empty({all.features}, rows),
                        at::empty({all.labels}, rows), at::empty({all.labels}, rows)});
  for (const SampleSize& one : sizes) batch.weights.push_back(one.labels);
  batch.layout = std::make_shared<Layout>(std::move(sizes), length, picture_tokens);
  return batch;
}

models::LlavaBatch llava_batch(Batch batch) {
  if (batch.tensors.size() != 6) {
    throw std::invalid_argument("llava batch: " + std::to_string(batch.tensors.size()) +
                                " tensors; a batch of dialogues has 6");
  }
  std::vector<at::Tensor>& list = batch.tensors;
  return {std::move(list[0]), std::move(list[1]), std::move(list[2]),
          std::move(list[3]), std::move(list[4]), std::move(list[5])};
}

}  // namespace dtk::llava
