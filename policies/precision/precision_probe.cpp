#include <dtk/policies/internal/precision_probe.h>

#include <algorithm>
#include <cstdio>

namespace dtk::policies {
PrecisionTimes probe_precision(const std::function<void(bool bf16)>& step, int64_t max_pairs, double seconds,
                               const std::function<double()>& now) {
  const double begin = now();
  const auto timed = [&](bool bf16) {
    const double start = now();
    step(bf16);
    return 1000.0 * (now() - start);
  };
  timed(false);
  timed(true);
  PrecisionTimes times;
  do {
    const double fp32 = timed(false), bf16 = timed(true);
    times.fp32_ms = times.pairs == 0 ? fp32 : std::min(times.fp32_ms, fp32);
    times.bf16_ms = times.pairs == 0 ? bf16 : std::min(times.bf16_ms, bf16);
    times.bf16_ahead += bf16 < fp32 ? 1 : 0;
    ++times.pairs;
  } while (times.pairs < max_pairs && now() - begin < seconds);
  return times;
}

bool bf16_is_faster(const PrecisionTimes& times) {
  return times.bf16_ms < (1 - kBf16Margin) * times.fp32_ms &&
         5 * times.bf16_ahead >= kBf16AheadOfFive * times.pairs;
}

std::string describe(const PrecisionTimes& times, const char* what) {
  char text[120];
  std::snprintf(text, sizeof text, "bf16 %.1f ms, fp32 %.1f ms %s (fastest of %lld; bf16 ahead in %lld)",
                times.bf16_ms, times.fp32_ms, what, static_cast<long long>(times.pairs),
                static_cast<long long>(times.bf16_ahead));
  return text;
}

}  // namespace dtk::policies
