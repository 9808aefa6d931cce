// The largest batch within a budget: found by steps, and larger with the policies.
#include "support/runs/largest_batch.h"

#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "support/catch.h"
#include "support/runs/tiny_run.h"
#include "toolkit/data/synthetic_source.h"
#include "toolkit/families/dit/options.h"

using namespace dtk;
using policies::Enabled;

namespace {

/// Two blocks over 64 tokens of 16 x 16 x 4 latents.
RunConfig latents(int64_t budget) {
  RunConfig config = test::tiny_config();
  config.train.accumulate = 1;
  config.data.prefetch = 1;
  models::DitOptions& model = dit::options_of(config).model;
  model.hidden = 64;
  model.heads = 4;
  model.patch = 2;
  model.image_size = 16;
  model.channels = 4;
  model.classes = 10;
  model.mlp_dropout = 0;
  config.memory.budget = ByteSize{budget};
  return config;
}

/// fp32, stored attention weights, every activation kept, the average on the training device.
RunConfig no_policies(int64_t budget) {
  RunConfig config = latents(budget);
  config.policies.precision.enabled = Enabled::off;
  config.policies.attention.enabled = Enabled::off;
  config.policies.ema.device = policies::EmaDevice::same;
  config.policies.checkpoint.enabled = Enabled::off;
  return config;
}

RunConfig all_policies(int64_t budget) {
  RunConfig config = latents(budget);
  config.policies.precision.enabled = Enabled::on;
  config.policies.attention.enabled = Enabled::on;
  config.policies.checkpoint.enabled = Enabled::on;
  return config;
}

std::shared_ptr<const ImageSource> samples(int64_t size) {
  return std::make_shared<SyntheticSource>(
      SyntheticSource::Shape{.size = size, .channels = 4, .height = 16, .width = 16, .classes = 10});
}

struct Search {
  LargestBatch found;
  std::map<int64_t, int64_t> peaks;  // by batch
};

Search search(const RunConfig& config, int64_t size = 4096) {
  Search result;
  result.found = largest_batch(config, samples(size), [&](int64_t batch, int64_t peak) {
    CHECK(result.peaks.emplace(batch, peak).second);  // none is tried twice
  });
  CHECK(result.found.steps_run == static_cast<int64_t>(result.peaks.size()));
  return result;
}

// Away from the peaks of all batches by more than what the loader's thread may or may not have prepared yet.
constexpr int64_t kBudget = 12'070'000;

void check_is_largest(const Search& search, int64_t budget) {
  const int64_t batch = search.found.batch;
  REQUIRE(batch > 0);
  CHECK(search.peaks.at(batch) == search.found.peak_bytes);
  CHECK(search.found.peak_bytes > 0);
  CHECK(search.found.peak_bytes <= budget);
  CHECK(search.found.next_batch == batch + 1);
  REQUIRE(search.peaks.count(batch + 1) == 1);
  CHECK(search.peaks.at(batch + 1) == 0);  // seen to exceed the budget
}

}  // namespace

TEST_CASE("largest batch: the next one exceeds the budget, and with all policies three times as many fit") {
  const Search none = search(no_policies(kBudget)), all = search(all_policies(kBudget));
  check_is_largest(none, kBudget);
  check_is_largest(all, kBudget);
  CHECK(all.found.batch >= 3 * none.found.batch);  // 31 and 10
}

TEST_CASE("largest batch: neither an earlier search nor what the program holds changes it") {
  const Search first = search(all_policies(kBudget));
  search(no_policies(kBudget / 2));
  const policies::CountingAllocatorGuard counting;
  const at::Tensor held = at::zeros({kBudget});
  REQUIRE(policies::cpu_accounts().live_bytes() >= 4 * kBudget);
  const Search again = search(all_policies(kBudget));
  CHECK(again.found.batch == first.found.batch);
  CHECK(again.found.steps_run == first.found.steps_run);
  CHECK(again.found.peak_bytes <= kBudget);
}

TEST_CASE("largest batch: batches prepared ahead count, however slowly they are read") {
  struct Slow final : ImageSource {
    explicit Slow(std::shared_ptr<const ImageSource> source)
        : ImageSource(source->shape()), inner(std::move(source)) {}
    std::string description() const override { return inner->description(); }
    int64_t read_image(int64_t index, float* values) const override {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      return inner->read_image(index, values);
    }
    const std::shared_ptr<const ImageSource> inner;
  };
  RunConfig config = all_policies(kBudget);
  const int64_t few_ahead = search(config).found.batch;
  config.data.prefetch = 8;
  const LargestBatch fast = search(config).found,
                     slow = largest_batch(config, std::make_shared<Slow>(samples(4096)));
  CHECK(slow.batch == fast.batch);
  CHECK(fast.batch < few_ahead);
}

TEST_CASE("largest batch: it grows with the budget") {
  CHECK(search(no_policies(kBudget / 2)).found.batch < search(no_policies(kBudget)).found.batch);
}

TEST_CASE("largest batch: batches are whole micro-batches, of which one is alive at a time") {
  RunConfig config = no_policies(kBudget);
  const int64_t single = search(config).found.batch;
  config.train.accumulate = 3;
  const Search search_of_three = search(config);
  CHECK(search_of_three.found.batch % 3 == 0);
  CHECK(search_of_three.peaks.at(search_of_three.found.batch + 3) == 0);
  CHECK(search_of_three.found.next_batch == search_of_three.found.batch + 3);
  CHECK(search_of_three.found.batch > single);
}

TEST_CASE("largest batch: it ends with the data set") {
  const Search found = search(all_policies(kBudget), 5);
  CHECK(found.found.batch == 5);
  CHECK(found.found.next_batch == 0);
  CHECK(found.peaks.rbegin()->first == 5);
}

TEST_CASE("largest batch: a budget that holds not even one sample, or less than the model, gives 0") {
  const int64_t one_sample = search(no_policies(kBudget)).peaks.at(1);
  for (const int64_t budget : {int64_t{1}, int64_t{100'000}, one_sample - 100'000}) {
    const Search none = search(no_policies(budget));
    CHECK(none.found.batch == 0);
    CHECK(none.found.next_batch == 1);
    CHECK(none.found.peak_bytes == 0);
    CHECK(none.peaks == std::map<int64_t, int64_t>{{1, 0}});
  }
}

TEST_CASE("largest batch: without a budget there is nothing to find") {
  RunConfig config = no_policies(kBudget);
  config.memory.budget.reset();
  CHECK_THROWS_AS(largest_batch(config, samples(4)), std::invalid_argument);
  CHECK_THROWS_WITH(largest_batch(config, samples(4)), "largest_batch: memory.budget is not set");
}

TEST_CASE("largest fit: every limit is found, with its neighbour, and nothing is asked twice") {
  for (int64_t limit = 0; limit <= 70; ++limit) {
    for (int64_t most = 1; most <= 70; ++most) {
      std::set<int64_t> asked;
      const LargestFit found = largest_fit(most, [&](int64_t n) {
        CHECK(n >= 1);
        CHECK(n <= most);
        CHECK(asked.insert(n).second);
        return n <= limit;
      });
      INFO(limit << " of " << most);
      REQUIRE(found.fitting == std::min(limit, most));
      REQUIRE(found.exceeding == (limit < most ? limit + 1 : 0));
    }
  }
}
