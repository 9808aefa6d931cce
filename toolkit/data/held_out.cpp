#include "toolkit/data/held_out.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "toolkit/core/format.h"
#include "toolkit/data/loader.h"

namespace dtk {
namespace {

/// Some samples of a `Source`.
template <class Source>
class Part : public Source {
 public:
  template <class... Shape>
  Part(std::shared_ptr<const Source> source, std::vector<uint32_t> indices, const Shape&... shape)
      : Source(shape...), indices_(std::move(indices)), source_(std::move(source)) {
    std::sort(indices_.begin(), indices_.end());
  }

  std::string description() const override {
    return fmt::format("{} samples of {}", indices_.size(), source_->description());
  }
  DataRemarks remarks() const override { return source_->remarks(); }

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

template <class SomeOf, class Source>
Split<Source> split(std::shared_ptr<const Source> source, int64_t count, uint64_t seed) {
  if (count < 0 || count >= source->size()) {
    throw std::invalid_argument(fmt::format("hold_out: {} of {} samples", count, source->size()));
  }
  if (count == 0) return {std::move(source), nullptr};
  const std::vector<uint32_t> order = epoch_order(seed, 0, static_cast<uint64_t>(source->size()));
  const auto middle = order.begin() + count;
  return {std::make_shared<SomeOf>(source, std::vector<uint32_t>(middle, order.end())),
          std::make_shared<SomeOf>(source, std::vector<uint32_t>(order.begin(), middle))};
}

}  // namespace

DataSplit hold_out(std::shared_ptr<const DataSource> source, int64_t count, uint64_t seed) {
  return split<DataPart>(std::move(source), count, seed);
}

ImageSplit hold_out(std::shared_ptr<const ImageSource> source, int64_t count, uint64_t seed) {
  return split<ImagePart>(std::move(source), count, seed);
}

}  // namespace dtk
