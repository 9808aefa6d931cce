#include "toolkit/data/held_out.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "support/catch.h"
#include "toolkit/core/errors.h"
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
  std::vector<int64_t> order(20);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [](int64_t a, int64_t b) { return dtk::held_out_hash(3, "", a) < dtk::held_out_hash(3, "", b); });
  for (const uint64_t epoch : {uint64_t{0}, uint64_t{2}}) {
    std::vector<int64_t> expected;
    for (const int64_t index : order) expected.push_back(index + 100 * static_cast<int64_t>(epoch));
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

namespace {

/// Samples with names and nothing else.
struct Named final : dtk::ImageSource {
  explicit Named(std::vector<std::string> all)
      : ImageSource({static_cast<int64_t>(all.size()), 1, 1, 1, 1}), names(std::move(all)) {}
  std::string description() const override { return "names"; }
  std::string sample_name(int64_t index) const override { return names.at(static_cast<size_t>(index)); }
  int64_t read_image(int64_t index, float* values) const override {
    *values = static_cast<float>(index);
    return 0;
  }
  std::vector<std::string> names;
};

std::set<std::string> names_in(const dtk::ImageSource& part, const Named& source) {
  std::set<std::string> names;
  for (const float index : values_of(part)) names.insert(source.names.at(static_cast<size_t>(index)));
  return names;
}

dtk::ImageSplit split(const std::shared_ptr<Named>& source, int64_t count,
                      const dtk::DataIdentity* before = nullptr) {
  return hold_out(std::shared_ptr<const dtk::ImageSource>(source), count, 5, before);
}

std::vector<std::string> numbered_names(int64_t first, int64_t last) {
  std::vector<std::string> names;
  for (int64_t i = first; i <= last; ++i) names.push_back("cat/" + std::to_string(i) + ".png");
  return names;
}

}  // namespace

TEST_CASE("held-out samples: none changes sides when others come and go") {
  const auto before = std::make_shared<Named>(numbered_names(0, 199));
  const dtk::ImageSplit first = split(before, 40);
  REQUIRE(first.held_out->size() == 40);
  const std::set<std::string> held_out = names_in(*first.held_out, *before);

  std::vector<std::string> names = numbered_names(0, 299);  // 100 more, 50 fewer, in another order
  std::reverse(names.begin(), names.end());
  names.resize(250);
  const auto after = std::make_shared<Named>(names);
  dtk::DataIdentity saved;
  saved.held_out_below = first.held_out_below;
  const dtk::ImageSplit again = split(after, 40, &saved);
  CHECK(again.held_out->size() + again.training->size() == 250);
  CHECK(again.held_out_below == first.held_out_below);
  for (const std::string& name : names_in(*again.held_out, *after)) {
    const bool known = std::find(before->names.begin(), before->names.end(), name) != before->names.end();
    if (known) CHECK(held_out.count(name) == 1);
  }
  for (const std::string& name : names_in(*again.training, *after)) CHECK(held_out.count(name) == 0);
  // Chosen anew, they would have.
  const std::set<std::string> anew = names_in(*split(after, 120).held_out, *after);
  CHECK(std::any_of(anew.begin(), anew.end(), [&](const std::string& name) {
    return held_out.count(name) == 0 &&
           std::find(before->names.begin(), before->names.end(), name) != before->names.end();
  }));
}

TEST_CASE("held-out samples: a choice that leaves one side empty is refused") {
  const auto source = std::make_shared<Named>(numbered_names(0, 9));
  dtk::DataIdentity saved;
  saved.held_out_below = 0;
  CHECK_THROWS_WITH(
      split(source, 3, &saved),
      "of the 10 samples of names, none are held out by the choice that the run began with; begin "
      "a new run with these data");
  saved.held_out_below = UINT64_MAX;
  CHECK_THROWS_AS(split(source, 3, &saved), dtk::DataError);
}
