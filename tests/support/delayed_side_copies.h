// Side copies within the host's memory: a thread of its own makes them after random delays, and their target
// holds NaN until then, so that a missing wait shows.
#pragma once
#include <dtk/policies/side_copies.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

namespace dtk::test {

class DelayedSideCopies final : public policies::SideCopies {
 public:
  explicit DelayedSideCopies(uint64_t seed,
                             std::chrono::microseconds longest = std::chrono::microseconds(200))
      : random_(seed), delay_(0, longest.count()), thread_([this] { work(); }) {}
  ~DelayedSideCopies() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::unique_ptr<policies::SideCopy> begin(const at::Tensor& from, const at::Tensor& to) override {
    std::memset(to.mutable_data_ptr(), 0xFF, to.nbytes());  // a NaN in every float
    const std::lock_guard lock(mutex_);
    jobs_.push_back({from.const_data_ptr(), to.mutable_data_ptr(), from.nbytes()});
    changed_.notify_all();
    return std::make_unique<Begun>(*this, ++begun_);
  }

 private:
  struct Job {
    const void* from;
    void* to;
    size_t bytes;
  };
  // The calling thread stands for the device, so it is the one that waits.
  class Begun final : public policies::SideCopy {
   public:
    Begun(DelayedSideCopies& copies, uint64_t number) : copies_(copies), number_(number) {}
    void wait() override {
      std::unique_lock lock(copies_.mutex_);
      copies_.changed_.wait(lock, [&] { return copies_.done_ >= number_; });
    }

   private:
    DelayedSideCopies& copies_;
    const uint64_t number_;
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const Job job = jobs_.front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(delay_(random_)));
      std::memcpy(job.to, job.from, job.bytes);
      lock.lock();
      jobs_.pop_front();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mt19937_64 random_;
  std::uniform_int_distribution<int64_t> delay_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  uint64_t begun_ = 0, done_ = 0;
  bool stop_ = false;
  std::thread thread_;  // last, so that it finds the rest made
};

}  // namespace dtk::test
