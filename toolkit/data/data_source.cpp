#include "toolkit/data/data_source.h"

#include <dtk/policies/memory_ledger.h>

namespace dtk {

Batch read_batch(const DataSource& source, int64_t first, int64_t count, const char* owner) {
  const policies::OwnerScope scope(policies::Category::data, owner);
  Batch batch = source.allocate(count, /*pinned=*/false);
  for (int64_t row = 0; row < count; ++row) source.read(first + row, /*epoch=*/0, batch, row);
  return batch;
}

Batch part_of(const Batch& batch, int64_t first, int64_t count) {
  Batch part;
  part.part = BatchPart{first, batch.samples()};
  for (const at::Tensor& tensor : batch.tensors)
    part.tensors.push_back(tensor.defined() ? tensor.narrow(0, first, count) : at::Tensor());
  return part;
}

}  // namespace dtk
