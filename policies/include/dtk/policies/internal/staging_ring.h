// Copies memory of a training device into the host's in the background, chunk by chunk through a ring of
// slots, and hands each chunk to a consumer. Free of LibTorch; a StagingCopies knows the device.
#pragma once
#include <dtk/policies/internal/scoped.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dtk::policies {

/// Starts copies and says when they arrived. Two threads call it at the same time, each its own functions.
/// Its destructor ends all copies begun: none may touch a slot afterwards.
class StagingCopies {
 public:
  virtual ~StagingCopies() = default;
  /// Training thread. Copies begun from now on see the memory as the work given to the device so far leaves
  /// it.
  virtual void mark() = 0;
  /// Worker thread. Starts to copy `bytes` bytes to `to`, the memory of `slot`, and returns at once.
  virtual void begin(size_t slot, const void* from, void* to, size_t bytes) = 0;
  /// Worker thread. Returns when the last copy begun into `slot` has arrived.
  virtual void wait(size_t slot) = 0;
  /// Training thread. Work given to the device from now on waits there for all copies begun.
  virtual void hold_back() = 0;
};

/// One copy. `index` is the caller's.
struct Chunk {
  const void* from = nullptr;
  size_t bytes = 0;
  size_t index = 0;
};

/// The public functions are for one thread, the training thread; copies are begun and consumed on a thread of
/// the ring's own, in the order posted. What engine or consumer throws there ends that thread's work and is
/// thrown by every later call of post, wait_copied and flush.
class StagingRing : NotCopied {
 public:
  /// Called on the ring's thread with the chunk's contents and its round's argument.
  using Consume = std::function<void(const Chunk& chunk, const void* contents, double argument)>;

  /// `slots`: host memory, each block large enough for the largest chunk. Engine and slots must outlive the
  /// ring. Throws std::invalid_argument if there is no slot.
  StagingRing(StagingCopies& engine, std::vector<void*> slots, Consume consume);
  /// Drops what is not consumed yet; waits for the chunk in hand only, and does not throw.
  ~StagingRing();

  /// Marks the engine and queues a round; returns at once. The memory at `from` must live until
  /// wait_copied().
  void post(const std::vector<Chunk>& round, double argument);
  /// Call before the posted memory changes: waits until every copy was begun, and lets the device wait for
  /// their end. Does not wait for the consumer, unless all slots are taken: that time is exposed_seconds().
  void wait_copied();
  /// Waits until everything posted is consumed.
  void flush();

  /// Time the training thread spent in wait_copied(). What the device then waits for the copies is not in it.
  double exposed_seconds() const;
  /// Time the ring's thread consumed chunks, less the exposed: work that ran beside the training. Waiting for
  /// copies is no work.
  double hidden_seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Item {
    Chunk chunk;
    double argument;
  };
  void work();
  void begin_next(std::unique_lock<std::mutex>& lock);
  void consume_oldest(std::unique_lock<std::mutex>& lock);
  template <class Condition>
  void wait_until(std::unique_lock<std::mutex>& lock, Condition condition);

  StagingCopies& engine_;
  const std::vector<void*> slots_;
  const Consume consume_;
  bool hold_needed_ = false;    // training thread only: copies were posted since the last hold_back
  Clock::duration exposed_{0};  // training thread only

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<Item> items_;  // posted and not consumed, oldest first
  size_t flying_ = 0;       // of these the first are begun
  size_t begun_ = 0;        // ever; the n-th copy takes slot n modulo slots
  bool stop_ = false;
  std::exception_ptr error_;
  Clock::duration consumed_{0};

  std::thread thread_;  // last, so that it finds the rest made
};

}  // namespace dtk::policies
