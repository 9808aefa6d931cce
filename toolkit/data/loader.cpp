#include "toolkit/data/loader.h"

#include <dtk/policies/advice.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"

namespace dtk {

void check_fills_a_batch(const DataSource& source, int64_t batch, int64_t accumulate) {
  if (source.size() >= batch / accumulate) return;
  throw DataError(fmt::format("data: {} are fewer than one micro-batch of {}; {} or less",
                              source.description(), batch / accumulate,
                              policies::advise("data.batch", std::to_string(source.size() * accumulate))));
}

namespace {

int64_t samples_per_epoch(const DataSource& source, const LoaderOptions& options) {
  if (options.batch < 1 || options.prefetch < 1 || options.threads < 1 || options.start < 0) {
    throw std::invalid_argument("Loader: batch, prefetch and threads must be at least 1, start at least 0");
  }
  if (options.turn < 0 || options.turn >= options.turns)
    throw std::invalid_argument("Loader: turns count from 0");
  check_fills_a_batch(source, options.batch, 1);
  const int64_t samples = options.drop_last ? source.size() / options.batch * options.batch : source.size();
  if (options.start % samples % options.batch != 0) {
    throw std::invalid_argument(
        fmt::format("Loader: no batch of {} begins at start {}", options.batch, options.start));
  }
  return samples;
}

std::vector<int64_t> lengths_of(const DataSource& source, const LoaderOptions& options) {
  std::vector<int64_t> lengths;
  if (!options.grouped || options.planned) return lengths;
  for (int64_t i = 0; i < source.size(); ++i) lengths.push_back(source.length(i).value());
  return lengths;
}

}  // namespace

std::vector<uint32_t> epoch_order(uint64_t seed, uint64_t epoch, uint64_t size) {
  if (size > std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument(fmt::format("epoch_order: {} samples; allowed: up to 4294967295", size));
  }
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0U);
  const uint64_t key = draw64(seed, epoch);
  for (uint64_t i = size; i-- > 1;) std::swap(order[i], order[draw64(key, i) % (i + 1)]);
  return order;
}

std::vector<uint32_t> grouped_order(uint64_t seed, uint64_t epoch, const std::vector<int64_t>& lengths,
                                    int64_t batch) {
  constexpr int64_t kBatchesSorted = 64;
  std::vector<uint32_t> order = epoch_order(seed, epoch, lengths.size());
  const auto middle =
      std::stable_partition(order.begin(), order.end(), [&](uint32_t one) { return lengths[one] < 0; });
  std::vector<uint32_t> in_batches, rest;
  const auto add = [&](auto begin, auto end) {
    const auto whole = begin + std::distance(begin, end) / batch * batch;
    for (auto first = begin; first < whole;) {
      const auto last = first + std::min<int64_t>(std::distance(first, whole), kBatchesSorted * batch);
      std::stable_sort(first, last, [&](uint32_t a, uint32_t b) { return lengths[a] < lengths[b]; });
      first = last;
    }
    in_batches.insert(in_batches.end(), begin, whole);
    rest.insert(rest.end(), whole, end);
  };
  add(order.begin(), middle);
  add(middle, order.end());
  const auto one_more = rest.begin() + std::ssize(rest) / batch * batch;  // of both kinds
  in_batches.insert(in_batches.end(), rest.begin(), one_more);
  const uint64_t batches = in_batches.size() / static_cast<uint64_t>(batch);
  std::vector<uint32_t> grouped;
  for (const uint64_t number : epoch_order(draw64(seed, kBatchesSorted), epoch, batches)) {
    const auto begin = in_batches.begin() + static_cast<int64_t>(number) * batch;
    grouped.insert(grouped.end(), begin, begin + batch);
  }
  grouped.insert(grouped.end(), one_more, rest.end());
  return grouped;
}

Loader::Loader(std::shared_ptr<const DataSource> source, const LoaderOptions& options,
               AroundAllocation around_allocation)
    : source_(std::move(source)),
      options_(options),
      around_allocation_(std::move(around_allocation)),
      samples_per_epoch_(dtk::samples_per_epoch(*source_, options)),
      lengths_(lengths_of(*source_, options)),
      consumed_(options.start),
      readers_(options.planned ? 1 : options.threads),
      thread_([this] { run(); }) {
  if (options.planned) wait_for_the_rest();
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int64_t Loader::pass_over() {
  if (has_turn()) return next().samples();
  const int64_t samples = batch_at(consumed_);
  consumed_ += samples;
  turn_ = turn_after(turn_, consumed_);
  return samples;
}

Batch Loader::next() {
  if (!has_turn()) throw std::logic_error("Loader: the next batch is another loader's");
  std::unique_lock lock(mutex_);
  const auto is_ready = [this] { return !ready_.empty() || error_ != nullptr; };
  if (!is_ready()) {
    const auto begin = std::chrono::steady_clock::now();
    changed_.wait(lock, is_ready);
    exposed_wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  if (ready_.empty()) std::rethrow_exception(error_);
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  consumed_ += batch.samples();
  turn_ = turn_after(turn_, consumed_);
  lock.unlock();
  changed_.notify_all();
  if (options_.planned) wait_for_the_rest();
  return batch;
}

void Loader::wait_until_full() {
  wait_for_the_rest();
  const std::lock_guard lock(mutex_);
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void Loader::wait_for_the_rest() {
  std::unique_lock lock(mutex_);
  changed_.wait(
      lock, [this] { return ready_.size() >= static_cast<size_t>(options_.prefetch) || error_ != nullptr; });
}

void Loader::run() {
  try {
    int64_t turn = 0;
    for (int64_t first = options_.start; wait_for_room();) {
      Batch batch;
      const int64_t count = batch_at(first), of = turn;
      turn = turn_after(turn, first + count);
      first += count;
      if (of != options_.turn) continue;
      if (!make_batch(first - count, count, batch)) return;
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

bool Loader::wait_for_room() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || ready_.size() < static_cast<size_t>(options_.prefetch); });
  return !stop_;
}

int64_t Loader::batch_at(int64_t consumed) const {
  return std::min(options_.batch, samples_per_epoch_ - consumed % samples_per_epoch_);
}

// `consumed`: behind the batch whose turn it was.
int64_t Loader::turn_after(int64_t turn, int64_t consumed) const {
  const bool begins_step = !options_.drop_last && consumed % samples_per_epoch_ == 0;
  return begins_step ? 0 : (turn + 1) % options_.turns;
}

int64_t Loader::available(int64_t wanted) const {
  if (options_.drop_last) return wanted;
  return std::min(wanted, samples_per_epoch_ - consumed_ % samples_per_epoch_);
}

std::vector<int64_t> Loader::samples_at(int64_t first, int64_t count) const {
  std::vector<int64_t> samples;
  std::vector<uint32_t> order;
  int64_t epoch = -1;
  // With drop_last micro-batches of two epochs may make one step.
  for (int64_t i = first; i < first + count; ++i) samples.push_back(sample_at(i, order, epoch));
  return samples;
}

int64_t Loader::weight_of_next(int64_t count) const {
  if (!source_->is_weighted()) return count;
  int64_t weight = 0;
  for (int64_t i = consumed_; i < consumed_ + count; ++i)
    weight += source_->weight(sample_at(i, weighed_order_, weighed_epoch_));
  return weight;
}

std::vector<uint32_t> Loader::order_of(int64_t epoch) const {
  const auto number = static_cast<uint64_t>(epoch);
  return options_.grouped ? grouped_order(options_.seed, number, lengths_, options_.batch)
                          : epoch_order(options_.seed, number, static_cast<uint64_t>(source_->size()));
}

// `order` is that of `epoch`, and becomes that of the sample. Planned, the order is left out: of a large
// batch it takes seconds.
int64_t Loader::sample_at(int64_t consumed, std::vector<uint32_t>& order, int64_t& epoch) const {
  const int64_t place = consumed % samples_per_epoch_;
  if (options_.planned) return place;
  if (const int64_t now = consumed / samples_per_epoch_; now != epoch) {
    order = order_of(now);
    epoch = now;
  }
  return order.at(static_cast<size_t>(place));
}

/// The batch of `count` samples that starts `first` samples into the run; false if the loader is being
/// destroyed.
bool Loader::make_batch(int64_t first, int64_t count, Batch& batch) {
  // No batch holds samples of two epochs.
  std::vector<int64_t> samples;
  for (int64_t i = first; i < first + count; ++i) samples.push_back(sample_at(i, order_, order_epoch_));
  const auto allocate = [&] { batch = batch_for(*source_, samples, options_.pinned); };
  if (around_allocation_) {
    around_allocation_(allocate);
  } else {
    allocate();
  }
  if (batch.tensors.empty()) throw std::logic_error("Loader: around_allocation did not call its argument");
  if (batch.samples() != count) {
    throw std::logic_error(
        fmt::format("Loader: {}: asked to allocate a batch of {}, the source made one of {}",
                    source_->description(), count, batch.samples()));
  }
  const auto epoch = static_cast<uint64_t>(first / samples_per_epoch_);
  std::atomic<bool> stopped = false;
  readers_.run(count, [&](int64_t row) {
    stopped = stopped || stop_;
    if (!stopped) source_->read(samples[static_cast<size_t>(row)], epoch, batch, row);
  });
  return !stopped;
}

}  // namespace dtk
