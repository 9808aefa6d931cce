// Whether bf16 is faster than fp32 here: measured, not looked up.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dtk::policies {

struct PrecisionTimes {
  // The fastest step of each kind: what else the machine does can only add to a time.
  double fp32_ms = 0, bf16_ms = 0;
  int64_t pairs = 0;       // steps timed of each kind, taken in turns
  int64_t bf16_ahead = 0;  // pairs in which the step in bf16 was the faster one
};

/// Times step(bf16) for bf16 = false and true in turns, at most `max_pairs` of each after one untimed pair,
/// and stops early, with at least one pair, when `seconds` are over. `now` gives seconds.
PrecisionTimes probe_precision(const std::function<void(bool bf16)>& step, int64_t max_pairs, double seconds,
                               const std::function<double()>& now);

/// By how much the fastest step in bf16 has to be the faster one. Of 50 starts each of two models the ratios
/// of the fastest steps were 0.893 to 1.155 and 0.651 to 0.767 (benchmarks/results/cpu_precision_starts.md):
/// 0.85 lies in neither range, so starts choose alike.
inline constexpr double kBf16Margin = 0.15;
/// In how many of five pairs it has to be ahead, at least.
inline constexpr int64_t kBf16AheadOfFive = 4;

/// True if bf16 is faster by more than the margin, and ahead in so many pairs; else fp32, which is exact.
bool bf16_is_faster(const PrecisionTimes& times);

/// "bf16 12.1 ms, fp32 20.3 ms a step (fastest of 15; bf16 ahead in 15)".
std::string describe(const PrecisionTimes& times, const char* what = "a step");

}  // namespace dtk::policies
