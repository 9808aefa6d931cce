#include <dtk/policies/internal/staging_ring.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace dtk::policies {

StagingRing::StagingRing(StagingCopies& engine, std::vector<void*> slots, Consume consume)
    : engine_(engine), slots_(std::move(slots)), consume_(std::move(consume)) {
  if (slots_.empty()) throw std::invalid_argument("staging ring: 0 slots; at least 1 is needed");
  thread_ = std::thread([this] { work(); });
}

StagingRing::~StagingRing() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Keeps as many copies in flight as there are slots, else consumes the oldest.
void StagingRing::work() {
  try {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !items_.empty(); });
      if (stop_) return;
      if (flying_ < items_.size() && flying_ < slots_.size()) {
        begin_next(lock);
      } else {
        consume_oldest(lock);
      }
      changed_.notify_all();
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

void StagingRing::begin_next(std::unique_lock<std::mutex>& lock) {
  const Chunk chunk = items_[flying_].chunk;
  const size_t slot = begun_ % slots_.size();
  lock.unlock();
  engine_.begin(slot, chunk.from, slots_[slot], chunk.bytes);
  lock.lock();
  ++begun_;
  ++flying_;
}

void StagingRing::consume_oldest(std::unique_lock<std::mutex>& lock) {
  const Item item = items_.front();
  const size_t slot = (begun_ - flying_) % slots_.size();
  lock.unlock();
  engine_.wait(slot);
  const Clock::time_point start = Clock::now();
  consume_(item.chunk, slots_[slot], item.argument);
  const Clock::duration took = Clock::now() - start;
  lock.lock();
  consumed_ += took;
  items_.pop_front();
  --flying_;
}

template <class Condition>
void StagingRing::wait_until(std::unique_lock<std::mutex>& lock, Condition condition) {
  changed_.wait(lock, [&] { return error_ != nullptr || condition(); });
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void StagingRing::post(const std::vector<Chunk>& round, double argument) {
  {
    std::unique_lock lock(mutex_);
    wait_until(lock, [] { return true; });
  }
  engine_.mark();
  hold_needed_ = true;
  {
    std::lock_guard lock(mutex_);
    for (const Chunk& chunk : round) items_.push_back({chunk, argument});
  }
  changed_.notify_all();
}

void StagingRing::wait_copied() {
  const Clock::time_point start = Clock::now();
  {
    std::unique_lock lock(mutex_);
    wait_until(lock, [&] { return flying_ == items_.size(); });
  }
  if (hold_needed_) engine_.hold_back();
  hold_needed_ = false;
  exposed_ += Clock::now() - start;
}

void StagingRing::flush() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return items_.empty(); });
}

double StagingRing::exposed_seconds() const {
  return std::chrono::duration<double>(exposed_).count();
}

double StagingRing::hidden_seconds() const {
  std::lock_guard lock(mutex_);
  return std::max(0.0, std::chrono::duration<double>(consumed_ - exposed_).count());
}

}  // namespace dtk::policies
