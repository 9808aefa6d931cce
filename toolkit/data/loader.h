// Shuffled batches, prepared ahead by threads of their own.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "toolkit/core/thread_team.h"
#include "toolkit/data/data_source.h"

namespace dtk {

/// The order in which an epoch visits samples 0 .. size - 1: a permutation that depends on nothing but the
/// arguments, on any machine and with any standard library. For i = size - 1 down to 1, element i is swapped
/// with element draw64(key, i) mod (i + 1), where key = draw64(seed, epoch). Throws std::invalid_argument for
/// a size beyond 32 bits.
std::vector<uint32_t> epoch_order(uint64_t seed, uint64_t epoch, uint64_t size);

/// Likewise of samples of `lengths`, such that batches of `batch` hold samples of about one length and of one
/// sign: of each sign the samples in epoch_order(), those of 64 batches at a time sorted by length, and all
/// batches in an order drawn for themselves. What fills no batch of its sign makes at most one of both, and
/// the end.
std::vector<uint32_t> grouped_order(uint64_t seed, uint64_t epoch, const std::vector<int64_t>& lengths,
                                    int64_t batch);

struct LoaderOptions {
  uint64_t seed = 0;
  int64_t batch = 1;      // samples per batch given out (the micro-batch), at least 1
  int64_t prefetch = 2;   // batches prepared ahead, at least 1
  int64_t threads = 1;    // that read the samples of a batch, at least 1
  bool pinned = false;    // page-locked tensors, which a device copies without stopping its stream
  int64_t start = 0;      // samples already consumed: what consumed() of an earlier loader said
  bool drop_last = true;  // false: also the last samples of an epoch, in a shorter batch
  bool grouped = false;   // by DataSource::length(): grouped_order()
  // Samples in the source's order, read by one thread; all that may be prepared ahead is ready, or has
  // failed, when the constructor or next() returns. For sources without values: what is alive is then no
  // luck.
  bool planned = false;
  // Several loaders of equal options take turns, batch by batch of a step (train.accumulate, which they
  // divide): this one makes those whose turn it is. A step begins at `start` and, without drop_last, at each
  // epoch.
  int64_t turn = 0, turns = 1;
};

/// Called on the loader's thread for each batch; must call its argument, which allocates the batch's tensors.
using AroundAllocation = std::function<void(const std::function<void()>& allocate)>;

/// Throws DataError if `source` has fewer samples than one of the `accumulate` micro-batches of `batch`.
void check_fills_a_batch(const DataSource& source, int64_t batch, int64_t accumulate);

/// Endless batches of any source, epoch after epoch. The order is a pure function of (seed, epoch, position
/// in the epoch), so it does not depend on `prefetch` or `threads` and continues exactly at `start`. With
/// drop_last only whole batches are given out: the samples at the end of an epoch's order that do not fill
/// one are dropped in that epoch. Without, they make one shorter batch, and no batch holds samples of two
/// epochs.
///
/// One background thread makes the batches, and options.threads - 1 others help it to read them; they use no
/// intra-op threads of LibTorch. The members are for one consuming thread. The destructor waits for the
/// samples that are being read, one a thread.
class Loader {
 public:
  /// Throws DataError if the source holds less than one batch, std::invalid_argument for options out of range
  /// or a start that is not where a batch begins.
  Loader(std::shared_ptr<const DataSource> source, const LoaderOptions& options,
         AroundAllocation around_allocation = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Whether the next batch of the run is made by this loader, and is next()'s.
  bool has_turn() const { return turn_ == options_.turn; }
  /// Passes the next batch over, whoever makes it. Returns the samples that it holds. Throws as next().
  int64_t pass_over();
  /// The next batch, where it has_turn(). What the source (or the allocation) threw comes out here after the
  /// batches before it, and again at every later call.
  Batch next();
  /// Waits until all that may be prepared ahead is ready, so that no memory is taken any more until next().
  /// Throws what the source or the allocation threw.
  void wait_until_full();

  /// Samples given out, counted from the start of the run (it begins at options.start).
  int64_t consumed() const { return consumed_; }
  /// Samples given out per epoch: size(), with drop_last rounded down to whole batches.
  int64_t samples_per_epoch() const { return samples_per_epoch_; }
  /// Samples that the next batches hold together, up to `wanted` (a multiple of options.batch): fewer where,
  /// without drop_last, the epoch ends before.
  int64_t available(int64_t wanted) const;
  /// Numbers in the source of `count` samples of the run from sample `first` on, which do not end an epoch.
  std::vector<int64_t> samples_at(int64_t first, int64_t count) const;
  /// Of the next `count` samples, read or not: the sum of DataSource::weight().
  int64_t weight_of_next(int64_t count) const;
  /// Seconds that next() had to wait for a batch that was not ready, in total.
  double exposed_wait_seconds() const { return exposed_wait_seconds_; }

 private:
  void run();
  bool wait_for_room();
  void wait_for_the_rest();
  int64_t batch_at(int64_t consumed) const;
  int64_t turn_after(int64_t turn, int64_t consumed) const;
  bool make_batch(int64_t first, int64_t count, Batch& batch);
  std::vector<uint32_t> order_of(int64_t epoch) const;
  int64_t sample_at(int64_t consumed, std::vector<uint32_t>& order, int64_t& epoch) const;

  const std::shared_ptr<const DataSource> source_;
  const LoaderOptions options_;
  const AroundAllocation around_allocation_;
  const int64_t samples_per_epoch_;
  const std::vector<int64_t> lengths_;  // of the source's samples, where they are grouped by them

  // For the consuming thread only.
  int64_t consumed_;
  int64_t turn_ = 0;  // whose the next batch is
  double exposed_wait_seconds_ = 0;
  mutable std::vector<uint32_t> weighed_order_;
  mutable int64_t weighed_epoch_ = -1;

  // For the loader's thread.
  ThreadTeam readers_;
  std::vector<uint32_t> order_;
  int64_t order_epoch_ = -1;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;         // protected by mutex_
  std::exception_ptr error_;        // protected by mutex_
  std::atomic<bool> stop_ = false;  // set under mutex_

  std::thread thread_;  // last: starts when all else is built
};

}  // namespace dtk
