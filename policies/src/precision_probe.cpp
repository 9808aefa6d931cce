#include <dtk/policies/precision_probe.h>

#include <algorithm>
#include <cstdio>

namespace dtk::policies {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

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
  std::vector<double> fp32, bf16;
  while (fp32.empty() || (static_cast<int64_t>(fp32.size()) < most_pairs && now() - begin < seconds)) {
    fp32.push_back(timed(false));
    bf16.push_back(timed(true));
  }
  return {median(fp32), median(bf16), static_cast<int64_t>(fp32.size())};
}

bool bf16_is_faster(const PrecisionTimes& times) {
  return times.bf16_ms < 0.95 * times.fp32_ms;
}

std::string describe(const PrecisionTimes& times) {
  char text[120];
  std::snprintf(text, sizeof text, "bf16 %.1f ms, fp32 %.1f ms a step (median of %lld)", times.bf16_ms,
                times.fp32_ms, static_cast<long long>(times.pairs));
  return text;
}

}  // namespace dtk::policies
