#include "toolkit/data/data_source.h"

#include <dtk/policies/memory_ledger.h>

namespace dtk {

Batch batch_for(const DataSource& source, const std::vector<int64_t>& samples, bool pinned) {
  Batch batch = source.allocate_for(samples, pinned);
  if (!source.is_weighted()) return batch;
  batch.weights.clear();
  for (const int64_t sample : samples) batch.weights.push_back(source.weight(sample));
  return batch;
}

Batch read_batch(const DataSource& source, int64_t first, int64_t count, const char* owner) {
  const policies::OwnerScope scope(policies::Category::data, owner);
  std::vector<int64_t> samples(static_cast<size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  Batch batch = batch_for(source, samples, /*pinned=*/false);
  for (int64_t row = 0; row < count; ++row) source.read(first + row, /*epoch=*/0, batch, row);
  return batch;
}

Batch part_of(const Batch& batch, int64_t first, int64_t count) {
  Batch part;
  if (batch.layout) {
    part = batch.layout->part(batch, first, count);
  } else {
    for (const at::Tensor& tensor : batch.tensors)
      part.tensors.push_back(tensor.defined() ? tensor.narrow(0, first, count) : at::Tensor());
  }
  part.part = BatchPart{first, batch.samples()};
  if (!batch.weights.empty())
    part.weights.assign(batch.weights.begin() + first, batch.weights.begin() + first + count);
  return part;
}

}  // namespace dtk
