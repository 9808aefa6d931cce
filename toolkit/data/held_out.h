// What a run trains on, and samples that it never trains on.
#pragma once
#include <cstdint>
#include <memory>

#include "toolkit/data/image_source.h"

namespace dtk {

template <class Source>
struct Split {
  std::shared_ptr<const Source> training;
  std::shared_ptr<const Source> held_out;  // null if nothing is held out
};
using DataSplit = Split<DataSource>;
using ImageSplit = Split<ImageSource>;

/// Holds `count` samples of `source` out: the first of a permutation that depends on `seed` and the size
/// alone (epoch_order of epoch 0), each part in the source's order. Costs 4 bytes a sample; with count 0
/// training is `source` itself. What a source changes at random by epoch and index it changes by its own
/// index of a sample. Throws std::invalid_argument unless 0 <= count < size.
DataSplit hold_out(std::shared_ptr<const DataSource> source, int64_t count, uint64_t seed);
/// The same parts, as images.
ImageSplit hold_out(std::shared_ptr<const ImageSource> source, int64_t count, uint64_t seed);

/// Labels are 0 .. count - 1.
struct ClassCounts {
  int64_t data = 0;
  int64_t model = 0;
};

/// The data of a run.
struct RunData {
  std::shared_ptr<const DataSource> all;  // for what is said of them
  DataSplit split;
  ClassCounts classes = {};  // of data and models that have some
  DataRemarks remarks = {};  // of all that was opened
};

}  // namespace dtk
