// Random numbers of drawn worlds: the same on every machine and with every standard library.
#pragma once
#include <cstddef>
#include <cstdint>

#include "toolkit/core/random_streams.h"

namespace scenes {

class Random {
 public:
  /// Streams of one seed are independent of each other.
  Random(uint64_t seed, uint64_t stream) : key_(dtk::draw64(dtk::mix64(seed), stream)) {}

  /// In [0, 1).
  double unit() { return static_cast<double>(dtk::draw64(key_, drawn_++) >> 11) * 0x1p-53; }
  double between(double low, double high) { return low + (high - low) * unit(); }
  /// In [0, count); `count` at least 1.
  size_t below(size_t count) { return static_cast<size_t>(unit() * static_cast<double>(count)); }
  bool chance(double probability) { return unit() < probability; }
  double sign() { return chance(0.5) ? 1 : -1; }

 private:
  uint64_t key_;
  uint64_t drawn_ = 0;
};

}  // namespace scenes
