// Time as the trainer sees it; a test or a planned run supplies its own.
#pragma once
#include <chrono>

namespace dtk {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Seconds since any fixed instant; never goes back.
  virtual double seconds() = 0;
};

class SteadyClock final : public Clock {
 public:
  double seconds() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace dtk
