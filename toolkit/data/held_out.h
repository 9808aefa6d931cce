// What a run trains on, and samples that it never trains on.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "toolkit/data/image_source.h"

namespace dtk {

template <class Source>
struct Split {
  std::shared_ptr<const Source> training;
  std::shared_ptr<const Source> held_out;       // null if nothing is held out
  std::optional<uint64_t> held_out_below = {};  // DataIdentity's
};
using DataSplit = Split<DataSource>;
using ImageSplit = Split<ImageSource>;

/// Holds `count` samples of `source` out: those of the least held_out_hash() by `seed`, each part in the
/// source's order. `before`: of the data that an earlier process held samples out of; null: none did. Then
/// its limit decides, so that no sample changes sides, whatever has come or gone, and `count` is how many
/// there once were. Costs 4 bytes a sample; with count 0 training is `source` itself. What a source changes
/// at random by epoch and index it changes by its own index of a sample. Throws std::invalid_argument unless
/// 0 <= count < size, DataError if all or none are below the limit.
DataSplit hold_out(std::shared_ptr<const DataSource> source, int64_t count, uint64_t seed,
                   const DataIdentity* before = nullptr);
/// The same parts, as images.
ImageSplit hold_out(std::shared_ptr<const ImageSource> source, int64_t count, uint64_t seed,
                    const DataIdentity* before = nullptr);

/// Labels are 0 .. count - 1.
struct ClassCounts {
  int64_t data = 0;
  int64_t model = 0;
};

/// The data of a run.
struct RunData {
  std::shared_ptr<const DataSource> all;  // for what is said of them
  DataSplit split;
  ClassCounts classes = {};    // of data and models that have some
  DataRemarks remarks = {};    // of all that was opened
  DataIdentity identity = {};  // of all of them, with the limit of those held out (identity_of())
};

}  // namespace dtk
