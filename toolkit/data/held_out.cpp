#include "toolkit/data/held_out.h"

#include <algorithm>
#include <stdexcept>

#include "toolkit/core/format.h"
#include "toolkit/data/loader.h"

namespace dtk {
namespace {

/// Some samples of a `Source`.
template <class Source>
class Part : public Source {
 public:
  Part(std::shared_ptr<const Source> source, std::vector<uint32_t> indices)
      : source_(std::move(source)), indices_(std::move(indices)) {
    std::sort(indices_.begin(), indices_.end());
  }

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  std::string description() const override {
    return fmt::format("{} samples of {}", size(), source_->description());
  }
  DataRemarks remarks() const override { return source_->remarks(); }

 protected:
  const Source& source() const { return *source_; }
  int64_t index_in_source(int64_t index) const { return indices_.at(static_cast<size_t>(index)); }

 private:
  const std::shared_ptr<const Source> source_;
  std::vector<uint32_t> indices_;
};

class DataPart final : public Part<DataSource> {
 public:
  using Part::Part;
  Batch allocate(int64_t count, bool pinned) const override { return source().allocate(count, pinned); }
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const override {
    source().read(index_in_source(index), epoch, batch, row);
  }
};

class ImagePart final : public Part<ImageSource> {
 public:
  using Part::Part;
  int64_t channels() const override { return source().channels(); }
  int64_t height() const override { return source().height(); }
  int64_t width() const override { return source().width(); }
  int64_t classes() const override { return source().classes(); }
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
