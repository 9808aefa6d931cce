#include <dtk/toolkit/held_out.h>
#include <dtk/toolkit/loader.h>

#include <algorithm>
#include <stdexcept>

namespace dtk {
namespace {

class Subset final : public DataSource {
 public:
  Subset(std::shared_ptr<const DataSource> source, std::vector<uint32_t> indices)
      : source_(std::move(source)), indices_(std::move(indices)) {
    std::sort(indices_.begin(), indices_.end());
  }

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  int64_t channels() const override { return source_->channels(); }
  int64_t height() const override { return source_->height(); }
  int64_t width() const override { return source_->width(); }
  int64_t classes() const override { return source_->classes(); }
  std::string description() const override {
    return std::to_string(size()) + " samples of " + source_->description();
  }
  DataRemarks remarks() const override { return source_->remarks(); }
  int64_t read(int64_t index, float* values) const override {
    return source_->read(indices_.at(static_cast<size_t>(index)), values);
  }

 private:
  const std::shared_ptr<const DataSource> source_;
  std::vector<uint32_t> indices_;
};

}  // namespace

DataSplit hold_out(std::shared_ptr<const DataSource> source, int64_t count, uint64_t seed) {
  if (count < 0 || count >= source->size()) {
    throw std::invalid_argument("hold_out: " + std::to_string(count) + " of " +
                                std::to_string(source->size()) + " samples");
  }
  if (count == 0) return {std::move(source), nullptr};
  const std::vector<uint32_t> order = epoch_order(seed, 0, static_cast<uint64_t>(source->size()));
  const auto middle = order.begin() + count;
  return {std::make_shared<Subset>(source, std::vector<uint32_t>(middle, order.end())),
          std::make_shared<Subset>(source, std::vector<uint32_t>(order.begin(), middle))};
}

}  // namespace dtk
