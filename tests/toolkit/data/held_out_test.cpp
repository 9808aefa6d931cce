#include "toolkit/data/held_out.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "support/catch.h"
#include "toolkit/data/loader.h"
#include "toolkit/data/synthetic_source.h"

using dtk::hold_out;
using dtk::SyntheticSource;

namespace {

std::shared_ptr<const dtk::ImageSource> made_up(int64_t size) {
  return std::make_shared<SyntheticSource>(
      SyntheticSource::Shape{.size = size, .channels = 1, .height = 1, .width = 1, .classes = 3});
}

std::vector<float> values_of(const dtk::ImageSource& source) {
  std::vector<float> values(static_cast<size_t>(source.size()));
  for (int64_t i = 0; i < source.size(); ++i) source.read_image(i, &values[static_cast<size_t>(i)]);
  return values;
}

}  // namespace

TEST_CASE("held-out samples: every sample is in exactly one of the two parts") {
  const auto source = made_up(50);
  const dtk::ImageSplit split = hold_out(source, 7, 3);
  CHECK(split.training->size() == 43);
  CHECK(split.held_out->size() == 7);
  CHECK(split.held_out->classes() == 3);
  CHECK(split.held_out->description() == "7 samples of 50 made-up samples 1x1x1, 3 classes (SYNTHETIC)");
  CHECK(split.training->remarks().synthetic);
  auto both = values_of(*split.training);
  const auto held_out = values_of(*split.held_out);
  both.insert(both.end(), held_out.begin(), held_out.end());
  auto all = values_of(*source);
  std::sort(both.begin(), both.end());
  std::sort(all.begin(), all.end());
  CHECK(both == all);
}

TEST_CASE("held-out samples: chosen by the seed alone") {
  const auto source = made_up(50);
  CHECK(values_of(*hold_out(source, 7, 3).held_out) == values_of(*hold_out(source, 7, 3).held_out));
  CHECK(values_of(*hold_out(source, 7, 3).held_out) != values_of(*hold_out(source, 7, 4).held_out));
}

TEST_CASE("held-out samples: none leave the source as it is") {
  const auto source = made_up(5);
  const dtk::ImageSplit split = hold_out(source, 0, 3);
  CHECK(split.training == source);
  CHECK(split.held_out == nullptr);
  CHECK_THROWS_AS(hold_out(source, 5, 3), std::invalid_argument);
  CHECK_THROWS_AS(hold_out(source, -1, 3), std::invalid_argument);
}

namespace {

/// Sample i is i, and 100 more in each epoch.
struct Counted final : dtk::DataSource {
  int64_t size() const override { return 20; }
  std::string description() const override { return "20 numbers"; }
  dtk::DataRemarks remarks() const override { return {.synthetic = true, .skipped = 2, .reasons = {}}; }
  dtk::Batch allocate(int64_t count, bool) const override { return {{at::zeros({count}, at::kLong)}}; }
  void read(int64_t index, uint64_t epoch, const dtk::Batch& batch, int64_t row) const override {
    batch.tensors[0].mutable_data_ptr<int64_t>()[row] = index + 100 * static_cast<int64_t>(epoch);
  }
};

std::vector<int64_t> numbers_of(const dtk::DataSource& source, uint64_t epoch) {
  const dtk::Batch batch = source.allocate(source.size(), false);
  for (int64_t i = 0; i < source.size(); ++i) source.read(i, epoch, batch, i);
  const auto* numbers = batch.tensors[0].const_data_ptr<int64_t>();
  return {numbers, numbers + source.size()};
}

}  // namespace

TEST_CASE("held-out samples: of any source, the ones that are held out of images") {
  const std::shared_ptr<const dtk::DataSource> source = std::make_shared<Counted>();
  const dtk::DataSplit split = hold_out(source, 6, 3);
  CHECK(split.held_out->description() == "6 samples of 20 numbers");
  CHECK(split.training->remarks().skipped == 2);
  const std::vector<uint32_t> order = dtk::epoch_order(3, 0, 20);
  for (const uint64_t epoch : {uint64_t{0}, uint64_t{2}}) {
    std::vector<int64_t> expected;
    for (const uint32_t index : order) expected.push_back(index + 100 * static_cast<int64_t>(epoch));
    std::sort(expected.begin(), expected.begin() + 6);
    std::sort(expected.begin() + 6, expected.end());
    std::vector<int64_t> seen = numbers_of(*split.held_out, epoch);
    for (const int64_t number : numbers_of(*split.training, epoch)) seen.push_back(number);
    CHECK(seen == expected);
  }
  CHECK_THROWS_AS(hold_out(source, 20, 3), std::invalid_argument);

  const std::shared_ptr<const dtk::ImageSource> images = std::make_shared<SyntheticSource>(
      SyntheticSource::Shape{.size = 20, .channels = 1, .height = 1, .width = 1, .classes = 20});
  const auto labels = [](const dtk::DataSource& part) {
    const dtk::Batch batch = part.allocate(part.size(), false);
    for (int64_t i = 0; i < part.size(); ++i) part.read(i, 0, batch, i);
    const auto* values = batch.tensors[1].const_data_ptr<int64_t>();
    return std::vector<int64_t>(values, values + part.size());
  };
  CHECK(labels(*hold_out(images, 6, 3).held_out) == numbers_of(*split.held_out, 0));
  CHECK(labels(*hold_out(images, 6, 3).training) == numbers_of(*split.training, 0));
}
