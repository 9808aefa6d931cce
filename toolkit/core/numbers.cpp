#include "toolkit/core/numbers.h"

#include <cstdio>

namespace dtk {

std::string percent_text(int64_t part, int64_t whole) {
  if (whole == 0) return "0 %";
  const int64_t percent = (200 * part + whole) / (2 * whole);
  return percent == 0 && part > 0 ? "<1 %" : std::to_string(percent) + " %";
}

std::string flops_text(int64_t count) {
  const auto flops = static_cast<double>(count);
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s", flops / (flops < 1e12 ? 1e9 : 1e12),
                flops < 1e12 ? "GFLOP" : "TFLOP");
  return text;
}

}  // namespace dtk
