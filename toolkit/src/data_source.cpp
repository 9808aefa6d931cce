#include <dtk/toolkit/data_source.h>

namespace dtk {

Batch read_batch(const DataSource& source, int64_t first, int64_t count) {
  Batch batch = source.allocate(count, /*pinned=*/false);
  for (int64_t row = 0; row < count; ++row) source.read(first + row, /*epoch=*/0, batch, row);
  return batch;
}

}  // namespace dtk
