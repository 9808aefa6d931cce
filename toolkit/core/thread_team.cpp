#include "toolkit/core/thread_team.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace dtk {

ThreadTeam::ThreadTeam(int64_t threads) {
  if (threads < 1) throw std::invalid_argument("ThreadTeam: at least 1 thread");
  try {
    for (int64_t i = 1; i < threads; ++i) others_.emplace_back([this] { wait_for_loops(); });
  } catch (...) {
    end();  // those that the system gave
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  end();
}

void ThreadTeam::end() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begun_.notify_all();
  for (std::thread& other : others_) other.join();
}

void ThreadTeam::run(int64_t count, const std::function<void(int64_t)>& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    next_ = 0;
    count_ = count;
    // Several, so that short passes do not wait for each other's turn; few enough that all end together, and
    // soon after a call threw.
    constexpr int64_t kTurns = 4, kMaxTurn = 64;
    at_once_ = std::clamp<int64_t>(count / (kTurns * static_cast<int64_t>(others_.size() + 1)), 1, kMaxTurn);
    busy_ = others_.size();
    error_ = nullptr;
    ++loops_;
  }
  begun_.notify_all();
  take_part();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return busy_ == 0; });
  work_ = nullptr;
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadTeam::wait_for_loops() {
  for (int64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      begun_.wait(lock, [&] { return stop_ || loops_ != seen; });
      if (stop_) return;
      seen = loops_;
    }
    take_part();
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) ended_.notify_one();
  }
}

void ThreadTeam::take_part() {
  while (true) {
    int64_t number = 0, end = 0;
    {
      const std::lock_guard lock(mutex_);
      if (next_ >= count_) return;
      number = next_;
      next_ = end = std::min(count_, next_ + at_once_);
    }
    try {
      for (; number < end; ++number) (*work_)(number);
    } catch (...) {
      failed(number);
    }
  }
}

// All lower numbers were given out before, so the lowest that throws is met.
void ThreadTeam::failed(int64_t number) {
  const std::lock_guard lock(mutex_);
  next_ = count_;
  if (error_ != nullptr && error_number_ < number) return;
  error_ = std::current_exception();
  error_number_ = number;
}

}  // namespace dtk
