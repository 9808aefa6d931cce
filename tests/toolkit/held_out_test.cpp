#include <dtk/toolkit/held_out.h>
#include <dtk/toolkit/synthetic_source.h>

#include <algorithm>

#include "support/catch.h"

using dtk::hold_out;
using dtk::SyntheticSource;

namespace {

std::shared_ptr<const dtk::DataSource> made_up(int64_t size) {
  return std::make_shared<SyntheticSource>(
      SyntheticSource::Shape{.size = size, .channels = 1, .height = 1, .width = 1, .classes = 3});
}

std::vector<float> values_of(const dtk::DataSource& source) {
  std::vector<float> values(static_cast<size_t>(source.size()));
  for (int64_t i = 0; i < source.size(); ++i) source.read(i, &values[static_cast<size_t>(i)]);
  return values;
}

}  // namespace

TEST_CASE("held-out samples: every sample is in exactly one of the two parts") {
  const auto source = made_up(50);
  const dtk::DataSplit split = hold_out(source, 7, 3);
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
  const dtk::DataSplit split = hold_out(source, 0, 3);
  CHECK(split.training == source);
  CHECK(split.held_out == nullptr);
  CHECK_THROWS_AS(hold_out(source, 5, 3), std::invalid_argument);
  CHECK_THROWS_AS(hold_out(source, -1, 3), std::invalid_argument);
}
