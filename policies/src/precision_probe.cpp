#include <dtk/policies/precision_probe.h>

#include <algorithm>
#include <cstdio>

namespace dtk::policies {
PrecisionTimes probe_precision(const std::function<void(bool bf16)>& step, int64_t most_pairs, double seconds,
                               const std::function<double()>& now) {
  const double begin = now();
  const auto timed = [&](bool bf16) {
    const double start = now();
    step(bf16);
    return 1000.0 * (now() - start);
  };
  timed(false);
  timed(true);
  PrecisionTimes times{timed(false), timed(true), 1};
  while (times.pairs < most_pairs && now() - begin < seconds) {
    times.fp32_ms = std::min(times.fp32_ms, timed(false));
    times.bf16_ms = std::min(times.bf16_ms, timed(true));
    ++times.pairs;
  }
  return times;
}

bool bf16_is_faster(const PrecisionTimes& times) {
  return times.bf16_ms < 0.95 * times.fp32_ms;
}

std::string describe(const PrecisionTimes& times) {
  char text[120];
  std::snprintf(text, sizeof text, "bf16 %.1f ms, fp32 %.1f ms a step (fastest of %lld)", times.bf16_ms,
                times.fp32_ms, static_cast<long long>(times.pairs));
  return text;
}

}  // namespace dtk::policies
