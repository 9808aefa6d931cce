#include "toolkit/data/held_out.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"

namespace dtk {
namespace {

/// Some samples of a `Source`.
template <class Source>
class Part : public Source {
 public:
  template <class... Shape>
  Part(std::shared_ptr<const Source> source, std::vector<uint32_t> indices, const Shape&... shape)
      : Source(shape...), indices_(std::move(indices)), source_(std::move(source)) {}

  std::string description() const override {
    return fmt::format("{} samples of {}", indices_.size(), source_->description());
  }
  DataRemarks remarks() const override { return source_->remarks(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  int64_t origin(int64_t index) const override { return source_->origin(index_in_source(index)); }
  bool is_weighted() const override { return source_->is_weighted(); }
  int64_t weight(int64_t index) const override { return source_->weight(index_in_source(index)); }
  std::optional<int64_t> length(int64_t index) const override {
    return source_->length(index_in_source(index));
  }

 protected:
  const Source& source() const { return *source_; }
  int64_t index_in_source(int64_t index) const { return indices_.at(static_cast<size_t>(index)); }

  std::vector<uint32_t> indices_;

 private:
  const std::shared_ptr<const Source> source_;
};

class DataPart final : public Part<DataSource> {
 public:
  using Part::Part;
  int64_t size() const override { return std::ssize(indices_); }
  Batch allocate(int64_t count, bool pinned) const override { return source().allocate(count, pinned); }
  Batch allocate_for(const std::vector<int64_t>& samples, bool pinned) const override {
    std::vector<int64_t> there;
    for (const int64_t sample : samples) there.push_back(index_in_source(sample));
    return source().allocate_for(there, pinned);
  }
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const override {
    source().read(index_in_source(index), epoch, batch, row);
  }
};

ImageSource::Shape part_of(ImageSource::Shape shape, int64_t samples) {
  shape.size = samples;
  return shape;
}

class ImagePart final : public Part<ImageSource> {
 public:
  ImagePart(std::shared_ptr<const ImageSource> source, const std::vector<uint32_t>& indices)
      : Part(source, indices, part_of(source->shape(), std::ssize(indices))) {}
  int64_t read_image(int64_t index, float* values) const override {
    return source().read_image(index_in_source(index), values);
  }
};

// Of sample i at i.
template <class Source>
std::vector<uint64_t> hashes_of(const Source& source, uint64_t seed) {
  std::vector<uint64_t> hashes(static_cast<size_t>(source.size()));
  for (int64_t i = 0; i < source.size(); ++i)
    hashes[static_cast<size_t>(i)] = held_out_hash(seed, source.sample_name(i), i);
  return hashes;
}

uint64_t limit_for(std::vector<uint64_t> hashes, int64_t count) {
  std::nth_element(hashes.begin(), hashes.begin() + count, hashes.end());
  return hashes[static_cast<size_t>(count)];  // of the first that is not held out
}

template <class SomeOf, class Source>
Split<Source> split(std::shared_ptr<const Source> source, int64_t count, uint64_t seed,
                    const DataIdentity* before) {
  const bool is_limited = before != nullptr && before->held_out_below.has_value();
  if (count < 0 || (count >= source->size() && !is_limited)) {
    throw std::invalid_argument(fmt::format("hold_out: {} of {} samples", count, source->size()));
  }
  if (count == 0) return {std::move(source), nullptr};
  const std::vector<uint64_t> hashes = hashes_of(*source, seed);
  const uint64_t below = is_limited ? *before->held_out_below : limit_for(hashes, count);
  std::vector<uint32_t> training, held_out;
  for (size_t i = 0; i < hashes.size(); ++i)
    (hashes[i] < below ? held_out : training).push_back(static_cast<uint32_t>(i));
  if (training.empty() || held_out.empty()) {
    throw DataError(fmt::format(
        "of the {} of {}, {} are held out by the choice that the run began with; begin a new run with these "
        "data",
        count_text(source->size(), "sample"), source->description(), held_out.empty() ? "none" : "all"));
  }
  return {std::make_shared<SomeOf>(source, std::move(training)),
          std::make_shared<SomeOf>(source, std::move(held_out)), below};
}

}  // namespace

DataSplit hold_out(std::shared_ptr<const DataSource> source, int64_t count, uint64_t seed,
                   const DataIdentity* before) {
  return split<DataPart>(std::move(source), count, seed, before);
}

ImageSplit hold_out(std::shared_ptr<const ImageSource> source, int64_t count, uint64_t seed,
                    const DataIdentity* before) {
  return split<ImagePart>(std::move(source), count, seed, before);
}

}  // namespace dtk
