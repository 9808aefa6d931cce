// Time as the trainer sees it; a test or a planned run supplies its own.
#pragma once
#include <chrono>

namespace dtk {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Seconds since any fixed instant; never goes back.
  virtual double seconds() = 0;
  /// Seconds since 1970 by the machine's calendar, which may be set back; for what people read only.
  virtual double unix_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  /// Whether threads beside the training are waited for wherever they could be ahead, so that what is alive
  /// when is no luck: in a planned run.
  virtual bool waits_for_threads() const { return false; }
};

class SteadyClock final : public Clock {
 public:
  double seconds() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace dtk
