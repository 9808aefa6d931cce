// Samples that are never trained on.
#pragma once
#include <cstdint>
#include <memory>

#include "toolkit/data/image_source.h"

namespace dtk {

struct DataSplit {
  std::shared_ptr<const DataSource> training;
  std::shared_ptr<const DataSource> held_out;  // null if nothing is held out
};

struct ImageSplit {
  std::shared_ptr<const ImageSource> training;
  std::shared_ptr<const ImageSource> held_out;  // null if nothing is held out
};

/// Holds `count` samples of `source` out: the first of a permutation that depends on `seed` and the size
/// alone (epoch_order of epoch 0), each part in the source's order. Costs 4 bytes a sample; with count 0
/// training is `source` itself. What a source changes at random by epoch and index it changes by its own
/// index of a sample. Throws std::invalid_argument unless 0 <= count < size.
DataSplit hold_out(std::shared_ptr<const DataSource> source, int64_t count, uint64_t seed);
/// The same parts, as images.
ImageSplit hold_out(std::shared_ptr<const ImageSource> source, int64_t count, uint64_t seed);

}  // namespace dtk
