// Batches of samples of different lengths.
#pragma once
#include <dtk/models/llava.h>

#include <vector>

#include "toolkit/data/data_source.h"
#include "toolkit/families/llava/sizes.h"

namespace dtk::llava {

/// Of a batch of ids (N, T), pictures (M, 3, S, S), feature_rows (K), picture_rows (K), label_rows (L) and
/// labels (L), in this order: where each sample's part lies.
class Layout final : public BatchLayout {
 public:
  Layout(std::vector<SampleSize> sizes, int64_t length, int64_t picture_tokens);

  Batch part(const Batch& batch, int64_t first, int64_t count) const override;

  /// Views of the tensors in which sample `row` is written: its ids (T) and its parts of the others. What is
  /// written to rows counts from `first_feature` and `first_row`.
  struct Place {
    models::LlavaBatch parts;
    int64_t first_feature, first_row;
  };
  Place place(const Batch& batch, int64_t row) const;

  const std::vector<SampleSize>& sizes() const { return sizes_; }

 private:
  SampleSize before(int64_t row) const;  // sums
  const std::vector<SampleSize> sizes_;
  const int64_t length_, picture_tokens_;
};

/// Tensors for samples of these sizes, filled up to `length` tokens, and the batch's layout; `side`: S.
Batch allocate_batch(std::vector<SampleSize> sizes, int64_t length, int64_t picture_tokens, int64_t side,
                     at::TensorOptions options);

/// As the model takes it. Throws std::invalid_argument for another family's batch.
models::LlavaBatch llava_batch(Batch batch);

}  // namespace dtk::llava
