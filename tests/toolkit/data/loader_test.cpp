#include "toolkit/data/loader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "support/catch.h"
#include "support/error_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/data/image_source.h"

using dtk::Batch;
using dtk::DataError;
using dtk::Loader;
using dtk::LoaderOptions;
using dtk::test::error_text;

namespace {

using Milliseconds = std::chrono::milliseconds;

/// Sample i is the value i with label i mod 10; `before_read` may wait or throw.
class CountingSource : public dtk::ImageSource {
 public:
  explicit CountingSource(int64_t size, std::function<void(int64_t)> before_read = {})
      : ImageSource({.size = size, .channels = 1, .height = 1, .width = 2, .classes = 10}),
        before_read_(std::move(before_read)) {}

  std::string description() const override { return "numbers"; }
  int64_t read_image(int64_t index, float* values) const override {
    if (before_read_) before_read_(index);
    values[0] = static_cast<float>(index);
    values[1] = -values[0];
    return index % 10;
  }

 private:
  std::function<void(int64_t)> before_read_;
};

class UnlikeSource final : public CountingSource {
 public:
  using CountingSource::CountingSource;
  std::optional<int64_t> length(int64_t index) const override { return index * 7 % 10 + 1; }
};

std::shared_ptr<const dtk::ImageSource> numbers(int64_t size, std::function<void(int64_t)> before_read = {}) {
  return std::make_shared<CountingSource>(size, std::move(before_read));
}

std::vector<int64_t> indices(const Batch& batch) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < batch.tensors[1].size(0); ++i) {
    result.push_back(batch.tensors[0][i][0][0][0].item<int64_t>());
  }
  return result;
}

std::vector<int64_t> take(Loader& loader, int64_t batches) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < batches; ++i) {
    for (const int64_t index : indices(loader.next())) all.push_back(index);
  }
  return all;
}

}  // namespace

TEST_CASE("data order: pinned, so that no change goes unnoticed") {
  // The first two outputs of splitmix64 seeded with 0, as published with it.
  CHECK(dtk::draw64(0, 0) == 0xe220a8397b1dcdafU);
  CHECK(dtk::draw64(0, 1) == 0x6e789e6aa1b965f4U);
  CHECK(dtk::epoch_order(0, 0, 10) == std::vector<uint32_t>{1, 7, 4, 2, 9, 5, 0, 6, 8, 3});
  CHECK(dtk::epoch_order(0, 1, 10) == std::vector<uint32_t>{1, 7, 5, 4, 2, 6, 8, 9, 3, 0});
  CHECK(dtk::epoch_order(1, 0, 10) == std::vector<uint32_t>{8, 0, 7, 1, 5, 2, 6, 9, 4, 3});
  CHECK(dtk::epoch_order(5, 5, 1) == std::vector<uint32_t>{0});
  CHECK(dtk::epoch_order(5, 5, 0).empty());
  CHECK_THROWS_AS(dtk::epoch_order(0, 0, uint64_t{1} << 33), std::invalid_argument);
}

TEST_CASE("data order: every sample is equally likely at every place") {
  constexpr int epochs = 6000;
  int counts[5][5] = {};
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto order = dtk::epoch_order(3, epoch, 5);
    for (size_t place = 0; place < 5; ++place) ++counts[place][order[place]];
  }
  // 1200 expected in each of the 25 cells, standard deviation 31.
  for (const auto& row : counts) {
    for (const int count : row) CHECK(std::abs(count - 1200) < 5 * 31);
  }
}

TEST_CASE("loader: batches have shape, values and labels of the samples") {
  Loader loader(numbers(20), {.seed = 1, .batch = 4});
  const Batch batch = loader.next();
  CHECK(batch.tensors[0].sizes() == at::IntArrayRef{4, 1, 1, 2});
  CHECK(batch.tensors[0].scalar_type() == at::kFloat);
  CHECK(batch.tensors[1].sizes() == at::IntArrayRef{4});
  CHECK(batch.tensors[1].scalar_type() == at::kLong);
  const auto order = dtk::epoch_order(1, 0, 20);
  for (int64_t i = 0; i < 4; ++i) {
    const auto index = static_cast<int64_t>(order[static_cast<size_t>(i)]);
    CHECK(batch.tensors[0][i][0][0][0].item<int64_t>() == index);
    CHECK(batch.tensors[0][i][0][0][1].item<int64_t>() == -index);
    CHECK(batch.tensors[1][i].item<int64_t>() == index % 10);
  }
}

TEST_CASE("loader: the order does not depend on prefetch") {
  Loader shallow(numbers(23), {.seed = 7, .batch = 4, .prefetch = 1});
  Loader deep(numbers(23), {.seed = 7, .batch = 4, .prefetch = 8});
  CHECK(take(shallow, 20) == take(deep, 20));
}

TEST_CASE("loader: every sample at most once an epoch, the incomplete batch is dropped, epochs differ") {
  Loader loader(numbers(23), {.seed = 7, .batch = 4});
  CHECK(loader.samples_per_epoch() == 20);
  const auto first = take(loader, 5);
  const auto second = take(loader, 5);
  CHECK(std::set<int64_t>(first.begin(), first.end()).size() == 20);
  CHECK(std::set<int64_t>(second.begin(), second.end()).size() == 20);
  CHECK(first != second);

  Loader whole(numbers(24), {.seed = 7, .batch = 4});
  const auto all = take(whole, 6);
  CHECK(std::set<int64_t>(all.begin(), all.end()).size() == 24);
}

TEST_CASE("loader: continues where an earlier one stopped, across epochs") {
  Loader uninterrupted(numbers(23), {.seed = 7, .batch = 4});
  const auto all = take(uninterrupted, 18);
  for (const int64_t stop : {0, 1, 4, 5, 6, 13}) {
    Loader before(numbers(23), {.seed = 7, .batch = 4, .prefetch = 3});
    auto joined = take(before, stop);
    CHECK(before.consumed() == 4 * stop);
    Loader after(numbers(23), {.seed = 7, .batch = 4, .start = before.consumed()});
    CHECK(after.consumed() == 4 * stop);
    const auto rest = take(after, 18 - stop);
    joined.insert(joined.end(), rest.begin(), rest.end());
    CHECK(joined == all);
  }
}

TEST_CASE("loader: without drop_last an epoch ends with a shorter batch, and every sample comes once") {
  Loader loader(numbers(23), {.seed = 7, .batch = 4, .drop_last = false});
  CHECK(loader.samples_per_epoch() == 23);
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    const auto order = dtk::epoch_order(7, epoch, 23);
    std::vector<int64_t> seen;
    for (const int64_t size : {4, 4, 4, 4, 4, 3}) {
      const Batch batch = loader.next();
      CHECK(batch.tensors[1].size(0) == size);
      for (const int64_t index : indices(batch)) seen.push_back(index);
    }
    CHECK(seen == std::vector<int64_t>(order.begin(), order.end()));
    CHECK(loader.consumed() == 23 * static_cast<int64_t>(epoch + 1));
  }
}

TEST_CASE("loader: what is left of an epoch is known before it is taken") {
  Loader loader(numbers(23), {.seed = 7, .batch = 4, .drop_last = false});
  std::vector<int64_t> available;
  for (int i = 0; i < 7; ++i) {
    available.push_back(loader.available(8));
    loader.next();
  }
  CHECK(available == std::vector<int64_t>{8, 8, 8, 8, 7, 3, 8});
  Loader whole(numbers(23), {.seed = 7, .batch = 4});
  take(whole, 4);
  CHECK(whole.available(8) == 8);  // the fifth and the first of the next epoch
}

TEST_CASE("loader: without drop_last, too, it continues where an earlier one stopped") {
  const LoaderOptions options{.seed = 7, .batch = 4, .drop_last = false};
  Loader uninterrupted(numbers(23), options);
  const auto all = take(uninterrupted, 18);
  for (const int64_t stop : {1, 5, 6, 7, 13}) {
    Loader before(numbers(23), options);
    auto joined = take(before, stop);
    LoaderOptions rest = options;
    rest.start = before.consumed();
    Loader after(numbers(23), rest);
    const auto tail = take(after, 18 - stop);
    joined.insert(joined.end(), tail.begin(), tail.end());
    CHECK(joined == all);
  }
  CHECK_THROWS_AS(Loader(numbers(23), {.batch = 4, .start = 24, .drop_last = false}), std::invalid_argument);
}

TEST_CASE("loader: flips are drawn by seed, epoch and sample") {
  constexpr uint64_t flip_seed = 11;
  const LoaderOptions options{.seed = 7, .batch = 4};
  LoaderOptions deep = options;
  deep.prefetch = 8;
  LoaderOptions late = options;
  late.start = 12;
  const auto source = std::make_shared<dtk::FlippedSource>(numbers(20), flip_seed);
  Loader loader(source, options), ahead(source, deep), resumed(source, late);
  for (int i = 0; i < 20; ++i) {
    const Batch batch = loader.next();
    CHECK(at::equal(batch.tensors[0], ahead.next().tensors[0]));
    if (i >= 3) CHECK(at::equal(batch.tensors[0], resumed.next().tensors[0]));
    for (int64_t k = 0; k < 4; ++k) {
      // The sample `index` is (index, -index); mirrored it is (-index, index).
      const auto left = batch.tensors[0][k][0][0][0].item<int64_t>();
      const auto right = batch.tensors[0][k][0][0][1].item<int64_t>();
      CHECK(left == -right);
      const bool flipped =
          dtk::is_flipped(flip_seed, static_cast<uint64_t>(i / 5), static_cast<uint64_t>(std::abs(left)));
      CHECK((left < 0) == (flipped && left != 0));
    }
  }
  int flips = 0;
  for (uint64_t epoch = 0; epoch < 100; ++epoch) {
    for (uint64_t index = 0; index < 100; ++index) flips += dtk::is_flipped(flip_seed, epoch, index);
  }
  CHECK(std::abs(flips - 5000) < 5 * 50);  // five standard deviations
}

TEST_CASE("loader: the order does not depend on how many threads read") {
  std::mutex mutex;
  std::set<std::thread::id> readers;
  const auto slow = [&](int64_t index) {
    std::this_thread::sleep_for(Milliseconds(1 + index % 3));
    const std::lock_guard lock(mutex);
    readers.insert(std::this_thread::get_id());
  };
  Loader one(numbers(50), {.seed = 7, .batch = 12, .drop_last = false});
  std::optional<Loader> three(std::in_place, numbers(50, slow),
                              LoaderOptions{.seed = 7, .batch = 12, .threads = 3, .drop_last = false});
  CHECK(take(one, 11) == take(*three, 11));
  three.reset();
  CHECK(readers.size() == 3);
}

TEST_CASE("loader: of several samples that cannot be read the first is told of, whatever thread read it") {
  const auto order = dtk::epoch_order(0, 0, 64);
  const std::set<int64_t> bad{order[33], order[41], order[62]};
  for (int again = 0; again < 20; ++again) {
    Loader loader(numbers(64,
                          [&](int64_t index) {
                            if (index == order[33]) std::this_thread::sleep_for(Milliseconds(5));
                            if (bad.count(index) > 0)
                              throw DataError("sample " + std::to_string(index) + " is bad");
                          }),
                  {.seed = 0, .batch = 32, .threads = 4});
    CHECK(take(loader, 1).size() == 32);
    CHECK(error_text<DataError>([&] { loader.next(); }) == "sample " + std::to_string(order[33]) + " is bad");
  }
}

TEST_CASE("loader: an error of the source comes after the batches before it, and stays") {
  const auto order = dtk::epoch_order(0, 0, 12);
  const int64_t bad = order[9];  // in the third batch of four
  Loader loader(numbers(12,
                        [bad](int64_t index) {
                          if (index == bad) throw DataError("sample " + std::to_string(index) + " is bad");
                        }),
                {.seed = 0, .batch = 4, .prefetch = 8});
  CHECK(take(loader, 2).size() == 8);
  for (int again = 0; again < 3; ++again) {
    CHECK(error_text<DataError>([&] { loader.next(); }) == "sample " + std::to_string(bad) + " is bad");
  }
  CHECK(loader.consumed() == 8);
}

TEST_CASE("loader: grouped batches hold like lengths, each sample once, the rest at the end, epochs differ") {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 1003; ++i) lengths.push_back(i % 7 == 0 ? -(i * 31 % 40) - 1 : i * 37 % 101 + 1);
  const auto order = dtk::grouped_order(3, 0, lengths, 8);
  CHECK(order == dtk::grouped_order(3, 0, lengths, 8));
  CHECK(order != dtk::grouped_order(3, 1, lengths, 8));
  CHECK(order != dtk::grouped_order(4, 0, lengths, 8));
  CHECK(std::set<uint32_t>(order.begin(), order.end()).size() == 1003);
  const auto shuffled = dtk::epoch_order(3, 0, 1003);
  const auto spread_in = [&](const std::vector<uint32_t>& some) {
    int64_t sum = 0;
    for (size_t first = 0; first < 1000; first += 8) {
      const auto [shortest, longest] = std::minmax_element(
          some.begin() + static_cast<ptrdiff_t>(first), some.begin() + static_cast<ptrdiff_t>(first) + 8,
          [&](uint32_t a, uint32_t b) { return lengths[a] < lengths[b]; });
      sum += lengths[*longest] - lengths[*shortest];
    }
    return sum;
  };
  CHECK(spread_in(order) < spread_in(shuffled) / 20);
  int64_t mixed = 0, rises = 0;
  for (size_t first = 0; first < 1000; first += 8) {
    const auto texts = std::count_if(order.begin() + static_cast<ptrdiff_t>(first),
                                     order.begin() + static_cast<ptrdiff_t>(first) + 8,
                                     [&](uint32_t one) { return lengths[one] < 0; });
    mixed += texts > 0 && texts < 8 ? 1 : 0;
    rises += first > 0 && lengths[order[first]] >= lengths[order[first - 8]] ? 1 : 0;
  }
  CHECK(mixed <= 1);
  CHECK((rises > 40 && rises < 85));  // they come in any order
}

TEST_CASE("loader: samples in groups come in grouped_order(), wherever it starts") {
  const auto source = std::make_shared<const UnlikeSource>(30);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 30; ++i) lengths.push_back(*source->length(i));
  const auto order = dtk::grouped_order(9, 0, lengths, 4);
  Loader loader(source, {.seed = 9, .batch = 4, .grouped = true});
  const auto first = take(loader, 7);
  CHECK(std::equal(first.begin(), first.end(), order.begin()));
  Loader later(source, {.seed = 9, .batch = 4, .start = 12, .grouped = true});
  CHECK(take(later, 4) == std::vector<int64_t>(first.begin() + 12, first.end()));
}

TEST_CASE("loader: no more than `prefetch` batches are prepared ahead") {
  const auto reads = std::make_shared<std::atomic<int>>(0);
  Loader loader(numbers(100, [reads](int64_t) { ++*reads; }), {.batch = 5, .prefetch = 3});
  while (*reads < 15) std::this_thread::sleep_for(Milliseconds(1));
  std::this_thread::sleep_for(Milliseconds(30));
  CHECK(*reads == 15);
  loader.next();
  while (*reads < 20) std::this_thread::sleep_for(Milliseconds(1));
  std::this_thread::sleep_for(Milliseconds(30));
  CHECK(*reads == 20);
}

TEST_CASE("loader: destruction does not wait for batches nobody wants") {
  const auto begin = std::chrono::steady_clock::now();
  {
    // The thread waits for room.
    Loader full(numbers(100), {.batch = 5, .prefetch = 1});
    full.next();
    std::this_thread::sleep_for(Milliseconds(20));
  }
  {
    // The thread is inside a batch that would take 100 s.
    const auto reads = std::make_shared<std::atomic<int>>(0);
    Loader slow(numbers(1000,
                        [reads](int64_t) {
                          ++*reads;
                          std::this_thread::sleep_for(Milliseconds(100));
                        }),
                {.batch = 1000});
    while (*reads == 0) std::this_thread::sleep_for(Milliseconds(1));
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("loader: exposed wait counts what next() had to wait, and nothing else") {
  Loader slow(numbers(100, [](int64_t) { std::this_thread::sleep_for(Milliseconds(20)); }),
              {.batch = 2, .prefetch = 1});
  const auto begin = std::chrono::steady_clock::now();
  take(slow, 3);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  CHECK(slow.exposed_wait_seconds() > 0.08);
  CHECK(slow.exposed_wait_seconds() <= elapsed.count());

  const auto reads = std::make_shared<std::atomic<int>>(0);
  Loader quick(numbers(100, [reads](int64_t) { ++*reads; }), {.batch = 2, .prefetch = 4});
  while (*reads < 8) std::this_thread::sleep_for(Milliseconds(1));
  std::this_thread::sleep_for(Milliseconds(20));
  take(quick, 3);
  CHECK(quick.exposed_wait_seconds() == 0);
}

TEST_CASE("loader: it can be waited for until all is prepared, or reading has failed") {
  const auto reads = std::make_shared<std::atomic<int>>(0);
  Loader loader(numbers(100,
                        [reads](int64_t) {
                          std::this_thread::sleep_for(Milliseconds(1));
                          ++*reads;
                        }),
                {.batch = 2, .prefetch = 4});
  for (int taken = 0; taken < 3; ++taken) {
    loader.wait_until_full();
    CHECK(*reads == 8 + 2 * taken);
    loader.next();
  }
  Loader broken(numbers(100, [](int64_t) { throw std::runtime_error("cannot be read"); }), {.batch = 2});
  CHECK_THROWS_WITH(broken.wait_until_full(), "cannot be read");
}

TEST_CASE("loader: planned, all is ready at once, by one thread and in the source's order") {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  int64_t read = 0;
  const auto source = numbers(6, [&](int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    ++read;
  });
  Loader loader(source, {.batch = 2, .prefetch = 2, .threads = 3, .planned = true});
  const auto read_so_far = [&] {
    const std::lock_guard lock(mutex);
    return read;
  };
  CHECK(read_so_far() == 4);
  for (int64_t batch = 0; batch < 4; ++batch) {
    CAPTURE(batch);
    CHECK(indices(loader.next()) == std::vector<int64_t>{batch % 3 * 2, batch % 3 * 2 + 1});
    CHECK(read_so_far() == 4 + 2 * (batch + 1));
  }
  CHECK(threads.size() == 1);
}

TEST_CASE("loader: tensors are allocated inside the hook, on the loader's thread") {
  std::atomic<int> calls = 0;
  std::atomic<bool> other_thread = true;
  const auto caller = std::this_thread::get_id();
  {
    Loader loader(numbers(20), {.batch = 4, .prefetch = 1}, [&](const std::function<void()>& allocate) {
      ++calls;
      other_thread = other_thread && std::this_thread::get_id() != caller;
      allocate();
    });
    CHECK(take(loader, 3).size() == 12);
  }
  CHECK(calls >= 3);
  CHECK(other_thread);

  Loader lazy(numbers(20), {.batch = 4}, [](const std::function<void()>&) {});
  CHECK(error_text<std::logic_error>([&] { lazy.next(); }) ==
        "Loader: around_allocation did not call its argument");
}

namespace {

/// Two arrays of unlike types and shapes, and one that is not there: (index, epoch) and the index' bytes.
struct TwoArrays final : dtk::DataSource {
  int64_t size() const override { return 10; }
  std::string description() const override { return "10 pairs"; }
  Batch allocate(int64_t count, bool pinned) const override {
    pinned_seen = pinned;
    return {{at::Tensor(), at::empty({count + surplus, 2}, at::kLong), at::empty({count, 3, 1}, at::kByte)}};
  }
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const override {
    batch.tensors[1][row].copy_(at::tensor({index, static_cast<int64_t>(epoch)}));
    batch.tensors[2][row].fill_(index);
  }
  int64_t surplus = 0;
  mutable std::atomic<bool> pinned_seen = true;
};

}  // namespace

TEST_CASE("loader: it fills whatever a source allocates, and tells it the epoch") {
  const auto source = std::make_shared<TwoArrays>();
  Loader loader(source, {.seed = 3, .batch = 4, .drop_last = false});
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    const auto order = dtk::epoch_order(3, epoch, 10);
    std::vector<int64_t> expected, seen;
    for (const uint32_t index : order) {
      expected.push_back(index);
      expected.push_back(static_cast<int64_t>(epoch));
    }
    for (const int64_t count : {4, 4, 2}) {
      const Batch batch = loader.next();
      REQUIRE(batch.tensors.size() == 3);
      CHECK_FALSE(batch.tensors[0].defined());
      CHECK(batch.samples() == count);
      const auto* pairs = batch.tensors[1].const_data_ptr<int64_t>();
      seen.insert(seen.end(), pairs, pairs + 2 * count);
      CHECK(at::equal(batch.tensors[2],
                      batch.tensors[1].select(1, 0).to(at::kByte).view({-1, 1, 1}).expand({-1, 3, 1})));
    }
    CHECK(seen == expected);
    CHECK(loader.consumed() == 10 * static_cast<int64_t>(epoch + 1));
  }
  CHECK_FALSE(source->pinned_seen);
  const auto wrong = std::make_shared<TwoArrays>();
  wrong->surplus = 1;
  Loader refusing(wrong, {.batch = 4});
  CHECK(error_text<std::logic_error>([&] { refusing.next(); }) ==
        "Loader: 10 pairs: asked to allocate a batch of 4, the source made one of 5");
}

TEST_CASE("images: a batch that another source made is refused, and a row outside") {
  const auto source = numbers(3);
  const Batch batch = source->allocate(2, false);
  source->read(2, 0, batch, 1);
  CHECK(batch.tensors[0][1].flatten()[1].item<float>() == -2);
  CHECK(batch.tensors[1][1].item<int64_t>() == 2);
  CHECK(error_text<std::out_of_range>([&] { source->read(2, 0, batch, 2); }) == "ImageSource: row 2 of 2");
  CHECK_THROWS_AS(source->read(2, 0, batch, -1), std::out_of_range);
  const at::Tensor images = batch.tensors[0], labels = batch.tensors[1];
  const std::vector<Batch> others = {{},
                                     {{images}},
                                     {{images, at::Tensor()}},
                                     {{images, labels.to(at::kInt)}},
                                     {{images, labels.narrow(0, 0, 1)}},
                                     {{images.view({2, 1, 2, 1}), labels}},
                                     {{at::zeros({}), labels}},
                                     {{at::zeros({2, 2, 1, 2}).narrow(1, 0, 1), labels}}};
  for (const Batch& other : others) {
    CHECK(error_text<std::invalid_argument>([&] { source->read(0, 0, other, 0); }) ==
          "ImageSource: the batch is not as allocate() makes it");
  }
}

TEST_CASE("loader: several take turns, batch by batch of a step, and each knows where the others are") {
  for (const bool drop_last : {true, false}) {
    const auto options = [&](int64_t turn, int64_t turns) {
      return LoaderOptions{
          .seed = 7, .batch = 3, .prefetch = 2, .drop_last = drop_last, .turn = turn, .turns = turns};
    };
    // Five batches an epoch. Steps of two go on in the next epoch where batches are whole; else the third has
    // one.
    const int64_t size = drop_last ? 16 : 13;
    Loader alone(numbers(size), options(0, 1)), first(numbers(size), options(0, 2)),
        second(numbers(size), options(1, 2));
    for (int64_t batch = 0, place = 0; batch < 20; ++batch) {
      Loader& own = place == 0 ? first : second;
      Loader& other = place == 0 ? second : first;
      REQUIRE(own.has_turn());
      REQUIRE_FALSE(other.has_turn());
      CHECK_THROWS_AS(other.next(), std::logic_error);
      const std::vector<int64_t> samples = take(alone, 1);
      CHECK(take(own, 1) == samples);
      CHECK(other.pass_over() == static_cast<int64_t>(samples.size()));
      CHECK(own.consumed() == alone.consumed());
      CHECK(other.consumed() == alone.consumed());
      place = !drop_last && alone.consumed() % size == 0 ? 0 : 1 - place;
    }
  }
}

TEST_CASE("loader: bad options") {
  CHECK(error_text<DataError>([] { Loader(numbers(7), {.batch = 8}); }) ==
        "data: numbers are fewer than one micro-batch of 8; set data.batch = 7 or less");
  CHECK_THROWS_AS(Loader(numbers(7), {.batch = 0}), std::invalid_argument);
  CHECK_THROWS_AS(Loader(numbers(7), {.batch = 1, .prefetch = 0}), std::invalid_argument);
  CHECK_THROWS_AS(Loader(numbers(7), {.batch = 1, .threads = 0}), std::invalid_argument);
  CHECK_THROWS_AS(Loader(numbers(7), {.batch = 1, .start = -1}), std::invalid_argument);
  CHECK(error_text<std::invalid_argument>([] { Loader(numbers(7), {.batch = 2, .start = 3}); }) ==
        "Loader: no batch of 2 begins at start 3");
}
