// A staging copies within the host's memory: a thread of its own copies after a random delay, and a slot
// holds NaN until its copy has arrived, so that a missing wait shows.
#pragma once
#include <dtk/policies/internal/staging_ring.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>

namespace dtk::test {

class DelayedStagingCopies final : public policies::StagingCopies {
 public:
  explicit DelayedStagingCopies(std::chrono::microseconds longest, uint64_t seed = 1)
      : random_(seed), delay_(0, longest.count()), thread_([this] { work(); }) {}
  ~DelayedStagingCopies() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void mark() override { ++marks; }

  void begin(size_t slot, const void* from, void* to, size_t bytes) override {
    if (fail_begin-- == 0) throw std::runtime_error("the copy cannot begin");
    std::memset(to, 0xFF, bytes);  // a NaN in every float
    std::lock_guard lock(mutex_);
    arrived_[slot] = false;
    jobs_.push_back({slot, from, to, bytes});
    changed_.notify_all();
  }

  void wait(size_t slot) override {
    if (fail_wait-- == 0) throw std::runtime_error("the copy does not arrive");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_[slot]; });
  }

  /// The training thread stands for the device, so it is the one that waits.
  void hold_back() override {
    ++holds;
    open();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty(); });
  }

  /// Copies stand still until open() or hold_back().
  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  void open() {
    std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

  std::atomic<int> marks{0}, holds{0};
  std::atomic<int64_t> fail_begin{-1}, fail_wait{-1};  // calls until the one that throws

 private:
  struct Job {
    size_t slot;
    const void* from;
    void* to;
    size_t bytes;
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || (!jobs_.empty() && !closed_); });
      if (stop_) return;
      const Job job = jobs_.front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(delay_(random_)));
      std::memcpy(job.to, job.from, job.bytes);
      lock.lock();
      jobs_.pop_front();
      arrived_[job.slot] = true;
      changed_.notify_all();
    }
  }

  std::mt19937_64 random_;
  std::uniform_int_distribution<int64_t> delay_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::map<size_t, bool> arrived_;
  bool closed_ = false;
  bool stop_ = false;
  std::thread thread_;  // last, so that it finds the rest made
};

}  // namespace dtk::test
